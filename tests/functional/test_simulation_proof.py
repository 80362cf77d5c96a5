# SPDX-License-Identifier: Apache-2.0
"""The simulation turns red when a guard is removed.

Each guard is replaced by what would be there without it, and seeds are tried
until one breaks a promise that it keeps with the guard.
"""

import contextlib
import itertools
import logging
from unittest import mock

import sqlalchemy as sa

from cellsched.cells import cell0
from cellsched.claims import validation
from cellsched.compute import places
from cellsched.conductor.tasks import build_and_schedule
from cellsched.conductor.tasks import build_instances
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.api import models
from cellsched.db.cell import instances
from cellsched.db.cell import on_host
from cellsched import migrations
from cellsched.scheduler.decision import allocation
from cellsched.simulator.promises import harness
from cellsched.simulator.promises import simulation
from cellsched.simulator import servers
from tests import profile
from tests.unit import base

#: Who is slow, dies or hears twice is taken for dead by others.
RACES = ('freeze', 'repeat', 'lose', 'commit')

_lease = build_requests.lease
_create = instances.create
_fence = build_and_schedule.BuildAndSchedule._fence
_change = instances._change
_transit = instances.transit
_explain = on_host.explain


def lease_anything(connection, uuids, owner, now, expires_at):
    """Recover leased builds too."""
    return _lease(connection, uuids, owner, now + 10 ** 9, expires_at)


def renew_anything(connection, owners, expires_at):
    """Treat every lease as the own one."""
    return build_requests.present(connection, owners)


def decide_anyway(connection, uuids, cell_id, now):
    """Give servers a cell, whatever they have."""
    table, uuids = models.instance_mappings, list(uuids)
    connection.execute(
        sa.update(table).where(table.c.instance_uuid.in_(uuids))
        .values(cell_id=cell_id))
    return set(uuids)


def create_anew(connection, those, now, images=None):
    """Overwrite existing servers."""
    those = list(those)
    instances.purge(connection, [each.uuid for each in those])
    return _create(connection, those, now, images)


def hold_anything(connection, owners):
    """Renew deleted and foreign leases too."""
    return dict.fromkeys(owners, 0)


def claim_again(claims, held):
    """Claim existing claims again."""
    return list(claims)


def withdraw_anyway(store, uuid, name, look):
    """Release the claims of a server without a second look."""
    store.transfer(uuid, name)
    store.release([name])
    return True


def lose_by_placement(*args):
    """Take a row on another host, or on none, for proof of a move."""
    return [each._replace(fate=on_host.Fate.LOST)
            if each.fate in (on_host.Fate.ELSEWHERE, on_host.Fate.UNPLACED)
            else each for each in _explain(*args)]


@contextlib.contextmanager
def look_once(task, builds):
    """Find out which builds are ours, and undo them some time later."""
    with _fence(task, builds):
        pass
    with task.database.writer() as connection:
        yield connection


def change_anyhow(connection, uuids, transition, values, now, expected):
    """Change servers in whatever state they are."""
    if transition is not None:
        transition = transition._replace(before=None)
    return _change(connection, uuids, transition, values, now, {})


def transit_in_any_attempt(
        connection, uuid, transition, now, values=None, **expected):
    """Count an attempt again for each delivery of a message."""
    expected.pop('build_attempts', None)
    return _transit(connection, uuid, transition, now, values, **expected)


def lock_nothing(connection, uuids):
    """Take servers for existing, also deleted ones."""
    return set(uuids)


def allocate_without_names(hosts, row, demand, allocated):
    """Claim amounts only: no CPUs, pages and devices by their names."""
    return allocated


def keep_place(places_, uuid):
    """Keep the CPUs, pages and devices of a server that is gone."""


class ProofTestCase(base.TestCase):

    hardware = False

    def setUp(self):
        super().setUp()
        logging.disable(logging.CRITICAL)
        self.addCleanup(logging.disable, logging.NOTSET)
        self.harness = harness.Harness(self.hardware)
        self.addCleanup(self.harness.close)

    def assertIsMissed(
            self, *replaced, kinds=RACES, rate=0.2, first=0, claims=None):
        """Without this the simulation turns red, and with it it does not.

        :param first: the seed to begin with, where it takes long from 0
        :param claims: the claim store, if it is one with a server
        """
        for seed in itertools.chain(
                range(first, profile.SEEDS_TO_FAIL), range(first)):
            with contextlib.ExitStack() as stack:
                for owner, name, function in replaced:
                    stack.enter_context(
                        mock.patch.object(owner, name, function))
                without = self.run_seed(seed, kinds, rate, claims)
            if without and not self.run_seed(seed, kinds, rate, claims):
                return
        self.fail('nothing turned red')

    def run_seed(self, seed, kinds, rate, claims):
        return simulation.Simulation(
            self.harness, seed, kinds, rate, servers.KINDS.get(claims)
        ).run().failure


@profile.by_default(
    'test_fence_of_the_lease', 'test_proof_of_a_guest_lost_by_its_host',
    reason='more guards whose absence the simulation notices')
class TestSimulationProof(ProofTestCase):

    def test_lease(self):
        self.assertIsMissed(
            (build_requests, 'lease', lease_anything),
            (build_requests, 'renew', renew_anything), first=67)

    def test_fence_of_the_lease(self):
        self.assertIsMissed((build_requests, 'renew', renew_anything))

    def test_comparing_and_setting_of_the_mapping(self):
        """It is the second line behind the fence of the lease."""
        self.assertIsMissed((build_requests, 'renew', renew_anything),
                            (instance_mappings, 'decide', decide_anyway))

    def test_uniqueness_of_rows(self):
        self.assertIsMissed((instances, 'create', create_anew),
                            (cell0, 'create', create_anew),
                            kinds=('freeze',), first=56)

    def test_delete_fence(self):
        self.assertIsMissed((build_requests, 'held', hold_anything),
                            kinds=('freeze',), rate=0.1)

    def test_idempotence_of_claims(self):
        """A database would refuse the same claim, too."""
        self.assertIsMissed(
            (validation, 'outstanding', claim_again), claims='etcd')

    def test_fence_of_undoing(self):
        """All of it is of one transaction, so that no order can be wrong."""
        self.assertIsMissed(
            (build_and_schedule.BuildAndSchedule, '_fence', look_once),
            kinds=('freeze', 'commit'), rate=0.4, first=51)

    def test_proof_of_a_guest_lost_by_its_host(self):
        self.assertIsMissed((on_host, 'explain', lose_by_placement),
                            kinds=('restore',), rate=0.3, first=22)

    def test_second_look_before_claims_are_released(self):
        self.assertIsMissed((migrations, 'withdraw', withdraw_anyway),
                            kinds=('freeze', 'down', 'build'), first=60)

    def test_count_of_attempts(self):
        self.assertIsMissed(
            (build_instances, 'transit', transit_in_any_attempt),
            kinds=('build', 'repeat', 'delay'), first=111)

    def test_lock_before_a_message_is_stored(self):
        self.assertIsMissed(
            (build_instances, 'lock', lock_nothing),
            kinds=('build', 'delete'), first=55)

    def test_conditions_of_transitions(self):
        self.assertIsMissed((instances, '_change', change_anyhow))


@profile.by_default(
    'test_names_in_claims',
    reason='more guards whose absence the simulation notices')
class TestHardwareProof(ProofTestCase):
    """Guards of dedicated CPUs, pages and devices."""

    hardware = True

    def test_names_in_claims(self):
        self.assertIsMissed(
            (allocation, 'with_hardware', allocate_without_names))

    def test_release_of_cpus_pages_and_devices(self):
        self.assertIsMissed((places.Places, 'remove', keep_place),
                            kinds=('freeze', 'delay', 'lose', 'repeat'),
                            first=45)
