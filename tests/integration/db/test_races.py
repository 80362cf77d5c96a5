# SPDX-License-Identifier: Apache-2.0
"""Transactions that change the same rows do not stop each other.

A statement locks rows in the order in which it finds them, and that order is
not the same for all.
"""

import functools
import random

import sqlalchemy as sa

from cellsched.db.api import build_requests
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_mappings
from cellsched.db.api import leases
from cellsched.db.api import models
from cellsched.db.cell import services
from cellsched.db import statements
from cellsched import exception
from tests.integration.db import base
from tests import profile
from tests.unit.db import samples
from tests.unit import racing

ROUNDS = profile.RACING_ROUNDS


class TestRaces(base.APITestCase):

    def setUp(self):
        super().setUp()
        self.database = self.make_database()
        self.cells = [
            samples.map_cell(self.database, samples.cell(name))
            for name in ('east', 'west')]

    def write(self, query, *args):
        with self.database.writer() as connection:
            return query(connection, *args)

    def shuffle_rows(self, column, uuids):
        """Have rows lie in another order than that of their ids."""
        for uuid in random.sample(uuids, len(uuids)):
            self.write(lambda connection, value: connection.execute(
                sa.update(column.table).where(column == value)
                .values(updated_at=samples.LATER)), uuid)

    def test_leases_and_deletions_do_not_deadlock(self):
        for _ in range(ROUNDS):
            uuids = samples.uuids(60)
            samples.accept(self.database, uuids)
            self.shuffle_rows(models.build_requests.c.instance_uuid, uuids)

            def lease(owner, order):
                for number in range(3):
                    self.write(build_requests.lease, order,
                               f'{owner}{number}', 1.0, 0.5)

            outcomes = racing.race(
                lambda: lease('a', uuids), lambda: lease('b', uuids[::-1]),
                lambda: lease('c', random.sample(uuids, 60)),
                lambda: self.write(build_requests.delete, uuids[::-1]))

            self.assertEqual([None] * 3 + [set(uuids)], outcomes)

    def test_hosts_mapped_in_different_orders_do_not_deadlock(self):
        east, west = self.cells
        for number in range(3):
            hosts = [f'host{number}-{row}' for row in range(3000)]

            outcomes = racing.race(*[
                lambda order=order, cell=cell: self.write(
                    host_mappings.create_missing, order, cell.id,
                    samples.NOW)
                for order, cell in (
                    (hosts, east), (hosts[::-1], west),
                    (random.sample(hosts, len(hosts)), east))])

            self.assertEqual([None] * 3, outcomes)

    def test_single_leader_is_elected_in_a_race(self):
        for number in range(ROUNDS):
            outcomes = racing.race(*[
                lambda name=name, now=number * 100.0: self.write(
                    leases.elect, 'task', name, now, now + 60.0)
                for name in (f'{number}-{each}' for each in range(8))])

            self.assertEqual([False] * 7 + [True], sorted(outcomes))

    def test_decisions_and_withdrawals_do_not_deadlock(self):
        east, west = self.cells
        uuids = samples.uuids(60)
        samples.accept(self.database, uuids)
        self.shuffle_rows(models.instance_mappings.c.instance_uuid, uuids)

        def again(query, cell):
            for _ in range(20):
                order = random.sample(uuids, len(uuids))
                self.write(query, order, cell.id, *(
                    [samples.NOW] if query != instance_mappings.confirm
                    else []))

        outcomes = racing.race(*[
            lambda query=query, cell=cell: again(query, cell)
            for query, cell in (
                (instance_mappings.decide, east),
                (instance_mappings.decide, west),
                (instance_mappings.withdraw, east),
                (instance_mappings.withdraw, west),
                (instance_mappings.confirm, east))])

        self.assertEqual([None] * 5, outcomes)


@profile.full_only('MariaDB; the rules are proven on PostgreSQL')
class TestRacesOnMariaDB(base.OnMariaDB, TestRaces):
    pass


class TestHostNames(base.CellTestCase):
    """One of several machines that take a host name at once gets it."""

    def setUp(self):
        super().setUp()
        self.database = self.make_database()

    def write(self, query, *args):
        # As an agent does: it retries after a conflict.
        for _ in range(10):
            try:
                with self.database.writer() as connection:
                    return query(connection, *args)
            except exception.TransactionLost:
                pass
        self.fail('each attempt was lost')

    def identify(self, host, host_id):
        return self.write(
            services.identify, samples.uuids(1)[0], host, 'compute',
            samples.NOW, 1, host_id)

    def test_single_machine_takes_a_name_in_a_race(self):
        for number in range(ROUNDS):
            name, machines = f'host{number}', samples.uuids(3)
            for each in machines[1:]:
                self.identify(each, each)

            outcomes = racing.race(
                lambda: self.identify(name, machines[0]),
                *(functools.partial(self.write, services.rename, each, name,
                                    samples.NOW) for each in machines[1:]))

            with self.database.reader() as connection:
                owner = services.look(connection, name).host_id
            self.assertIn(owner, machines)
            self.assertEqual(owner, outcomes[0])
            for each, outcome in zip(machines[1:], outcomes[1:], strict=True):
                if each == owner:
                    self.assertIsNone(outcome)
                else:
                    self.assertIsInstance(outcome, exception.HostNameTaken)


@profile.full_only('MariaDB; the rule is proven on PostgreSQL')
class TestHostNamesOnMariaDB(base.OnMariaDB, TestHostNames):
    pass


class TestLocked(base.APITestCase):
    """What is locked, as by who undoes a build, keeps nobody waiting."""

    def setUp(self):
        super().setUp()
        self.database = self.make_database()
        self.uuids = samples.uuids(2)
        samples.accept(self.database, self.uuids)
        self.due = leases.LeaseDeadline(1060.0, samples.LATER)

    def test_locked_batch_is_not_claimed(self):
        held, free = self.uuids
        with self.database.writer() as holding, \
                self.database.writer() as claiming:
            statements.lock(
                holding, models.build_requests.c.instance_uuid, [held])
            claiming.exec_driver_sql("SET LOCAL lock_timeout = '5s'")

            self.assertEqual([[free]], leases.claim(
                claiming, [[held], [free]], 'owner', self.due, 1120.0))

    def test_locked_lease_is_not_extended(self):
        held, free = self.uuids
        with self.database.writer() as connection:
            build_requests.lease(
                connection, self.uuids, 'owner', 1000.0, 1060.0)
        with self.database.writer() as holding, \
                self.database.writer() as extending:
            statements.lock(
                holding, models.build_requests.c.instance_uuid, [held])
            extending.exec_driver_sql("SET LOCAL lock_timeout = '5s'")

            leases.extend(
                extending, dict.fromkeys(self.uuids, 'owner'), 1120.0)

        with self.database.writer() as connection:
            self.assertEqual([held], [
                each.request.instance_uuid for each in build_requests.lease(
                    connection, self.uuids, 'next', 1060.0, 1120.0)])
