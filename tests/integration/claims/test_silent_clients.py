# SPDX-License-Identifier: Apache-2.0
"""Clients of the SQL store that go silent at a packet hold nothing.

A client is silent from a packet on, as a process that is stopped, or a machine
that is cut off: its connection stays open, and nothing comes. All other
clients have the limits that services have by default, so they would be refused
as busy where it held a row.
"""

from concurrent import futures
import math
import uuid

import fixtures

from cellsched.claims import base as claims
from cellsched.claims import sql
from cellsched.claims.sql import queries
from cellsched import clock
from cellsched.db import session
from cellsched import exception
from cellsched.testing.suite import claim_cases
from cellsched.wiring import services
from tests.functional import base as stories
from tests.integration import base
from tests.integration.claims import test_sql
from tests.integration.fates import cutting
from tests.integration import servers
from tests import profile

#: More packets than any call takes, with those of all its reads.
PACKETS_MAX = 50

#: The calls of a store that write, each proven by default at each packet.
CALLS = ('claim', 'alternatives', 'claim_of_a_member', 'refused_claim',
         'claim_again', 'release', 'transfer', 'new_inventory', 'inventory',
         'traits', 'recount')


class SilentClientTests:

    #: The limits that a service has by default.
    limits = {'lock_timeout': 1.0, 'statement_timeout': 30.0,
              'idle_transaction_timeout': 4.0}

    #: Calls that also read, and the requests of a read.
    reads, read_requests = {'transfer', 'new_inventory', 'inventory'}, 1

    def setUp(self):
        super().setUp()
        self.wire = self.useFixture(cutting.Wire(self.url))
        self.silent = self.limited(self.wire.url)
        self.other = self.limited(self.url)
        self.host, self.further = (
            self.make_provider(self.other, VCPU=100, GB=100)
            for _ in range(2))

    def limited(self, url):
        """Return a store as a service has one."""
        database = session.Database(url, 'claims', {
            'connection_parameters': self.connection_parameters(),
            **self.limits}, clock=clock.Clock())
        self.addCleanup(database.close)
        return sql.SQLClaims(database)

    def member(self, host='h'):
        return claims.Claim(
            str(uuid.uuid4()), self.host, {'VCPU': 1}, claims.Membership(
                self.group, host, claims.ANTI_AFFINITY, 50))

    def call(self, name):
        """Return a call, and the consumers that it is about."""
        held, new = (self.make_claim(self.host, VCPU=1, GB=1)
                     for _ in range(2))
        moved = [held, claims.Claim(held.consumer, self.further, {'GB': 1})]
        self.group, store = str(uuid.uuid4()), self.silent
        if name in ('claim_again', 'release', 'transfer'):
            self.other.claim(moved)
            self.other.claim([new])
        if name == 'recount':
            self.execute(
                'UPDATE inventories SET used = used + 1 '
                f"WHERE provider = '{self.host}'")
        inventory = {'VCPU': claims.Inventory(total=100 + len(name)),
                     'GB': claims.Inventory(total=100)}
        return {
            'claim': lambda: store.claim([*moved, new]),
            'alternatives': lambda: self.assertEqual([1, 1], [
                outcome.chosen for outcome in store.claim_each([
                    [[claims.Claim(each.consumer, provider, {'VCPU': 1})]
                     for provider in ('unknown', self.host)]
                    for each in (held, new)])]),
            'claim_of_a_member': lambda: store.claim(
                [self.member(), self.member('i')]),
            'refused_claim': lambda: self.assertRaises(
                exception.ClaimRefused, store.claim,
                [new, self.make_claim(self.further, VCPU=1000)]),
            'claim_again': lambda: store.claim([*moved, new]),
            'release': lambda: store.release([held.consumer, new.consumer]),
            'transfer': lambda: store.transfer(held.consumer, new.consumer),
            'new_inventory': lambda: store.set_inventory(
                str(uuid.uuid4()), inventory),
            'inventory': lambda: store.set_inventory(self.host, inventory),
            'traits': lambda: store.set_traits(
                self.host, ['CUSTOM_A', f'CUSTOM_{uuid.uuid4().hex.upper()}'],
                self.host),
            'recount': lambda: self.assertTrue(store.recount(self.host)),
        }[name]

    def execute(self, statement):
        with self.make_database().writer() as connection:
            connection.exec_driver_sql(statement)

    def check_second_client(self):
        """Use what a silent client used; a locked row would refuse it."""
        claim = self.make_claim(self.host, VCPU=1)
        self.assertEqual(2, self.other.claim([
            claim, claims.Claim(claim.consumer, self.further, {'GB': 1})]))
        self.assertEqual(1, self.other.claim([self.member()]))
        self.assertTrue(self.other.transfer(claim.consumer, 'moved'))
        self.other.set_inventory(self.further, {
            'VCPU': claims.Inventory(total=200),
            'GB': claims.Inventory(total=200)})
        self.other.release(['moved'])
        self.other.set_inventory(self.further, {
            'VCPU': claims.Inventory(total=100),
            'GB': claims.Inventory(total=100)})

    def check_at_each_packet(self, name):
        for packets in range(PACKETS_MAX):
            # A connection that is open has sent all that opens it.
            self.silent.consumers()
            call = self.call(name)
            with futures.ThreadPoolExecutor(1) as pool:
                self.wire.freeze_after(packets)
                calling = pool.submit(call)
                while not (self.wire.is_silent.wait(0.01) or calling.done()):
                    pass
                was_silent = self.wire.is_silent.is_set()
                if was_silent:
                    self.check_second_client()
                self.wire.go_on()
            # Whatever came of it, it is done once.
            calling.result()
            for provider in self.host, self.further:
                self.assertFalse(self.other.recount(provider), name)
            self.other.release(self.other.consumers())
            if not was_silent:
                # The call, and its answer.
                self.assertLess(1, packets)
                return
        self.fail(f'{name} takes more than {PACKETS_MAX} packets')

    def test_silent_client_holds_no_locks(self):
        for name in CALLS:
            with self.subTest(name):
                self.check_at_each_packet(name)

    def test_write_is_a_single_packet_and_its_answer(self):
        # A connection that is not used for a second is checked.
        self.useFixture(fixtures.MonkeyPatch(
            'cellsched.db.engines.TRUSTED_S', math.inf))
        for name in ('claim', 'release', 'transfer', 'new_inventory',
                     'inventory', 'claim_of_a_member'):
            self.silent.consumers()
            call = self.call(name)
            self.wire.freeze_after(PACKETS_MAX)

            call()

            self.assertEqual(
                1 + self.read_requests * (name in self.reads),
                self.wire.requests, name)
            self.wire.go_on()

    def test_recount_corrects_all_counters(self):
        claim = self.make_claim(self.host, VCPU=2, GB=3)
        self.other.claim([claim])
        of = f"provider = '{self.host}'"
        self.execute('UPDATE inventories SET used = 50, capacity = 60 '
                     f"WHERE {of} AND resource_class = 'VCPU'")
        self.execute('DELETE FROM inventories '
                     f"WHERE {of} AND resource_class = 'GB'")
        self.execute('UPDATE providers SET consumers = 9 '
                     f"WHERE uuid = '{self.host}'")
        token = self.other.usages().token

        self.assertTrue(self.other.recount(self.host))

        [usage] = self.other.usages(token).usages
        self.assertEqual(
            (1, {'VCPU': 2, 'GB': 3}, {'VCPU': 100, 'GB': 0}),
            (usage.consumers, dict(usage.used), dict(usage.capacity)))
        self.assertFalse(self.other.recount(self.host))

    def test_traits_are_replaced(self):
        for traits in {'CUSTOM_A', 'CUSTOM_B'}, {'CUSTOM_B', 'CUSTOM_C'}, {}:
            self.other.set_traits(self.host, traits, self.further)

            with self.make_database().reader() as connection:
                self.assertEqual(
                    (self.further, frozenset(traits)),
                    queries.traits_of(connection, self.host))

    def test_host_locked_by_another_session_is_named(self):
        held = self.make_claim(self.further, VCPU=1)
        batch = [self.make_claim(self.host, VCPU=1),
                 self.make_claim(self.further, VCPU=1)]
        for table in 'providers', 'inventories':
            column = 'uuid' if table == 'providers' else 'provider'
            with self.make_database().writer() as connection:
                connection.exec_driver_sql(
                    f"SELECT * FROM {table} WHERE {column} = '{self.host}' "
                    'FOR UPDATE')

                error = self.assertRaises(
                    exception.ClaimBusy, self.other.claim, batch)

                self.assertEqual([self.host], error.providers)
                self.assertEqual(1, self.other.claim([held]))
                self.other.release([held.consumer])
        self.assertEqual([], self.other.consumers())
        self.assertEqual(2, self.other.claim(batch))

    def test_write_outlives_an_idle_session_with_a_lock(self):
        [claim] = batch = [self.make_claim(self.host, VCPU=1)]
        self.other.claim(batch)
        idle = self.limited(self.url)._database

        def stay():
            with idle.writer() as connection:
                connection.exec_driver_sql(
                    f"UPDATE providers SET consumers = consumers "
                    f"WHERE uuid = '{self.host}'")
                connection.exec_driver_sql(
                    f"SELECT * FROM providers WHERE uuid = '{self.host}' "
                    'FOR UPDATE')
                self.other.release([claim.consumer])
                connection.exec_driver_sql('SELECT 1')

        self.assertRaises(exception.DatabaseUnreachable, stay)

        self.assertEqual({}, self.other.claims_of([claim.consumer]))

    def test_call_with_a_lost_answer_is_applied_once(self):
        for name in CALLS:
            with self.subTest(name):
                self.silent.consumers()
                call = self.call(name)
                with futures.ThreadPoolExecutor(1) as pool:
                    self.wire.freeze_after(1)
                    calling = pool.submit(call)
                    self.assertTrue(self.wire.is_silent.wait(self.timeout_s))
                    self.wire.drop()
                    self.wire.go_on()
                moved = calling.result()
                if name == 'transfer':
                    self.assertTrue(moved)
                for provider in self.host, self.further:
                    self.assertFalse(self.other.recount(provider), name)
                self.other.release(self.other.consumers())

    def test_lost_connection_is_a_database_error(self):
        for call in (lambda: self.silent.release(['c']),
                     lambda: self.silent.transfer('c', 'd'),
                     lambda: self.silent.set_inventory(self.host, {}),
                     lambda: self.silent.claim([self.member()])):
            self.group = str(uuid.uuid4())
            self.silent.consumers()
            self.wire.break_off()

            self.assertRaises(exception.DatabaseUnreachable, call)

            self.wire.mend()
            self.silent.consumers()


class TestSilentClients(
        SilentClientTests, test_sql.OnPostgreSQL,
        claim_cases.ClaimStoreCase, base.TestCase):

    def test_alternatives_do_not_wait_for_a_locked_host(self):
        for table, column in (
                ('providers', 'uuid'), ('inventories', 'provider')):
            consumer = str(uuid.uuid4())
            with self.make_database().writer() as connection:
                connection.exec_driver_sql(
                    f"SELECT * FROM {table} WHERE {column} = '{self.host}' "
                    'FOR UPDATE')

                outcome = self.other.claim_any([
                    [claims.Claim(consumer, provider, {'VCPU': 1})]
                    for provider in (self.host, self.further)])

            # After a wait, the first host would be refused as busy.
            self.assertEqual(claims.AnyOf(1, 1), outcome, table)


@profile.full_only('MariaDB; the rules are proven on PostgreSQL')
class TestMariaDB(
        SilentClientTests, test_sql.OnMariaDB,
        claim_cases.ClaimStoreCase, base.TestCase):

    # A transaction reads.
    reads, read_requests = {*SilentClientTests.reads, 'release'}, 2


@profile.full_only('a second driver; the rules are proven with psycopg2')
class TestByPsycopg(TestSilentClients):

    by_driver = staticmethod(servers.by_psycopg)


@profile.full_only('the time of builds, which needs a real clock')
class TestBuilds(stories.TestCase, base.TestCase):
    """Builds go on while an API or a client of the store is silent."""

    #: Seconds within which a server is active.
    bar_s = 5.0

    #: Builds for each packet, and packets of a call of the API.
    builds, packets = 5, 60

    def setUp(self):
        super().setUp()
        self.database_url = self.part_of(servers.PostgreSQL).url
        self.deploy({'cell1': ['a1', 'a2'], 'cell2': ['b1']})
        self.seconds = []

    def silent_api(self):
        """Return an API whose connections go over a wire, and the wire."""
        wire = self.useFixture(cutting.Wire(self.database_url('api')))
        conf = self.world.conf('api')
        conf.set_override('connection', wire.url, 'api_database')
        conf.set_override('connection', self.database_url('claims'), 'claims')
        api = services.api(conf)
        self.addCleanup(api.close)
        api.servers.list(stories.USER)
        return api, wire

    def check_builds(self):
        for _ in range(self.builds):
            began = stories.CLOCK.monotonic()
            [built] = self.built()
            self.seconds.append(stories.CLOCK.monotonic() - began)
            self.assertEqual('ACTIVE', built.status)
            self.delete(built.uuid)
            self.gone(built.uuid)

    def test_builds_continue_while_an_api_is_silent_at_any_packet(self):
        for packets in range(self.packets):
            api, wire = self.silent_api()
            with futures.ThreadPoolExecutor(1) as pool:
                wire.freeze_after(packets)
                calling = pool.submit(
                    api.servers.create, stories.USER, 'silent', 'small')
                while not (wire.is_silent.wait(0.01) or calling.done()):
                    pass
                was_silent = wire.is_silent.is_set()
                if was_silent:
                    self.check_builds()
                wire.go_on()
            # What was not accepted is said so.
            error = calling.exception()
            if error is None:
                self.settled(calling.result())
            else:
                self.assertIsInstance(error, exception.DatabaseError)
            if not was_silent:
                break
        self.assertFalse(was_silent)
        self.assertLess(5, packets)
        self.assertLess(max(self.seconds), self.bar_s)
