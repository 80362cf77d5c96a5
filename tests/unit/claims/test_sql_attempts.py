# SPDX-License-Identifier: Apache-2.0
"""Retries after conflicts, and calls without a transaction."""

import sqlalchemy as sa

from cellsched.claims import base as claims
from cellsched.claims.sql import providers
from cellsched.claims.sql import queries
from cellsched.claims.sql import schema
from cellsched.claims.sql import transactions
from cellsched import exception
from tests.unit.claims.sql import base
from tests.unit.db import recording

#: A consumer whose lane of the feed is not that of ``c``.
MEANWHILE = 'd'


class TestAttempts(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        self.provide('p')
        self.lost = 0

    def lose(self, module, name, times):
        """Let a function fail with a conflict for a number of calls."""
        function = getattr(module, name)

        def losing(*args, **options):
            if self.lost < times:
                self.lost += 1
                raise exception.TransactionLost(
                    schema='claims', reason='another one was first')
            return function(*args, **options)

        self.patch(module, name, losing)

    def statements(self, call):
        with recording.recorded(self.database) as statements:
            call()
        return [text for text, _ in statements]

    def test_each_call_is_made_again(self):
        held = [claims.Claim('c', 'p', {'VCPU': 2})]
        other = {'VCPU': claims.Inventory(total=9)}
        for module, name, call, outcome in (
                (transactions, 'claim', lambda: self.store.claim(held), 1),
                (queries, 'claims_of', lambda: self.store.claims_of(['c']),
                 {'c': held}),
                (queries, 'consumers', self.store.consumers, ['c']),
                (transactions, 'transfer',
                 lambda: self.store.transfer('c', 'd'), True),
                (providers, 'set_inventory',
                 lambda: self.store.set_inventory('p', other), None),
                (queries, 'usages_of',
                 lambda: self.store.usages(providers=['p']).usages,
                 [claims.Usage('p', {'VCPU': 9}, {'VCPU': 2}, 1)]),
                (transactions, 'release',
                 lambda: self.store.release(['d']), None)):
            self.lost = 0
            self.lose(module, name, 2)

            self.assertEqual(outcome, call(), name)

            self.assertEqual(2, self.lost, name)
        self.assertEqual([], self.store.consumers())

    def test_call_with_endless_conflicts_fails(self):
        self.lose(queries, 'consumers', 99)
        self.assertEqual([], self.store.consumers())

        self.lost = 0
        self.lose(queries, 'consumers', 100)
        error = self.assertRaises(
            exception.DatabaseError, self.store.consumers)

        self.assertEqual(
            ('claims', '100 transactions in a row had conflicts'),
            (error.kwargs['schema'], error.kwargs['reason']))

    def lose_answers(self, times):
        """Let writes be made, and their answers be lost, for some calls."""
        write = self.store._write

        def losing(*args):
            outcome = write(*args)
            if self.lost < times:
                self.lost += 1
                raise exception.ConnectionLost(
                    schema='claims', url='there', reason='it ended')
            return outcome

        self.patch(self.store, '_write', losing)

    def test_call_with_a_lost_answer_is_executed_once(self):
        held = claims.Claim('c', 'p', {'VCPU': 2})
        for call, outcome, consumer, used in (
                (lambda: self.store.claim([held]), 0, 'c', 2),
                (lambda: self.store.transfer('c', 'd'), True, 'd', 2),
                (lambda: self.store.release(['d']), None, None, 0)):
            self.lost = 0
            with self.subTest(consumer=consumer):
                self.lose_answers(2)

                self.assertEqual(outcome, call())

                self.assertLess(0, self.lost)
                [usage] = self.store.usages(providers=['p']).usages
                self.assertEqual(used, usage.used['VCPU'])
                self.assertEqual([consumer] if consumer else [],
                                 self.store.consumers())

    def test_lost_transfer_has_the_outcome_of_the_last_attempt(self):
        """The target holds claims that are not those of the source."""
        self.store.claim([claims.Claim('c', 'p', {'VCPU': 2}),
                          claims.Claim('d', 'p', {'VCPU': 3})])
        write = self.store._write

        def lose_once(*args):
            self.patch(self.store, '_write', write)
            self.store.release(['c'])
            raise exception.ConnectionLost(
                schema='claims', url='there', reason='it ended')

        self.patch(self.store, '_write', lose_once)
        self.assertFalse(self.store.transfer('c', 'd'))

        self.lost = 0
        self.lose_answers(1)
        self.assertFalse(self.store.transfer('c', 'd'))
        self.assertEqual(['d'], self.store.consumers())

    def test_call_with_three_lost_connections_fails(self):
        self.store.claim([claims.Claim('c', 'p', {'VCPU': 2})])
        for call in (lambda: self.store.release(['c']),
                     lambda: self.store.transfer('c', 'd')):
            writes = self.fail_writes(exception.ConnectionLost(
                schema='claims', url='there', reason='it ended'))

            self.assertRaises(exception.ConnectionLost, call)

            self.assertEqual(3, len(writes))

    def fail_writes(self, error):
        """Let each write fail, and return the list of these writes."""
        writes = []

        def failing(*args):
            writes.append(args)
            raise error

        self.patch(self.store, '_write', failing)
        return writes

    def test_claim_fails_after_two_timeouts_or_three_connections(
            self):
        lost = exception.ConnectionLost(
            schema='claims', url='there', reason='it ended')
        busy = exception.DatabaseBusy(schema='claims', reason='it waited')
        for error, number in (lost, 3), (busy, 2):
            writes = self.fail_writes(error)

            self.assertRaises(type(error), self.store.claim, [
                claims.Claim('c', 'p', {'VCPU': 2})])

            self.assertEqual(number, len(writes))

    def test_claim_without_its_busy_hosts_has_its_time_limits_again(self):
        """A host that is passed over counts as no failed attempt."""
        self.provide('q', 'r')
        writes = self.fail_writes(
            exception.DatabaseBusy(schema='claims', reason='it waited'))
        locked = [{'p'}, {'q'}, set(), set()]
        self.patch(self.store, '_locked', lambda requests: locked.pop(0))

        self.assertRaises(
            exception.DatabaseBusy, self.store.claim_any,
            [[claims.Claim('c', name, {'VCPU': 2})] for name in 'pqr'])

        self.assertEqual(
            ['p', 'q', 'r', 'r'], [batch[0].provider for _, batch in writes])

    def requests(self, number, *providers):
        """Return requests of one VCPU each on one of the providers."""
        return [[[claims.Claim(f'{n}', provider, {'VCPU': 1})]
                 for provider in providers] for n in range(number)]

    def count_writes(self):
        """Return the list of the claims that each transaction is to make."""
        writes, write = [], self.store._write

        def counting(name, *args):
            writes.append([claim.provider for claim in args[0]])
            return write(name, *args)

        self.patch(self.store, '_write', counting)
        return writes

    def test_refused_requests_get_alternatives_together(self):
        self.provide('q')
        self.store.claim([claims.Claim('c', 'p', {'VCPU': 6})])
        writes = self.count_writes()

        outcomes = self.store.claim_each(self.requests(4, 'p', 'q'))

        self.assertEqual([0, 0, 1, 1], [each.chosen for each in outcomes])
        self.assertEqual([1, 1, 1, 1], [each.new for each in outcomes])
        self.assertEqual([[], [], [0], [0]],
                         [[*each.refusals] for each in outcomes])
        self.assertEqual(['pppp', 'ppqq'], [*map(''.join, writes)])

    def test_requests_without_room_are_refused_without_a_write(self):
        self.store.claim([claims.Claim('c', 'p', {'VCPU': 8})])
        writes = self.count_writes()

        outcomes = self.store.claim_each(self.requests(3, 'p'))

        self.assertEqual([None] * 3, [each.chosen for each in outcomes])
        self.assertEqual(['ppp'], [*map(''.join, writes)])

    def test_requests_claim_once_if_the_answer_is_lost(self):
        self.lose_answers(1)

        outcomes = self.store.claim_each(self.requests(3, 'p'))

        self.assertEqual(1, self.lost)
        self.assertEqual([0] * 3, [each.chosen for each in outcomes])
        [usage] = self.store.usages(providers=['p']).usages
        self.assertEqual(({'VCPU': 3}, 3), (usage.used, usage.consumers))

    def test_locked_hosts_are_passed_over_for_all_requests(self):
        self.provide('q')
        write, locked = self.store._write, [{'p'}]

        def busy_at_p(name, batch):
            if any(claim.provider == 'p' for claim in batch):
                raise exception.DatabaseBusy(schema='claims', reason='busy')
            return write(name, batch)

        self.patch(self.store, '_write', busy_at_p)
        self.patch(self.store, '_locked', lambda requests: locked.pop(0))

        outcomes = self.store.claim_each(
            [*self.requests(2, 'p', 'q'),
             [[claims.Claim('x', 'p', {'VCPU': 1})]]])

        self.assertEqual([1, 1, None], [each.chosen for each in outcomes])
        for each in outcomes:
            self.assertIsInstance(each.refusals[0], exception.ClaimBusy)

    def test_repeated_claim_is_counted_once(self):
        held = claims.Claim('c', 'p', {'VCPU': 2})
        new = claims.Claim('d', 'p', {'VCPU': 2})
        self.store.claim([held])

        self.assertEqual(0, self.store.claim([held]))
        self.assertEqual(1, self.store.claim([held, new]))

        [usage] = self.store.usages(providers=['p']).usages
        self.assertEqual(({'VCPU': 4}, 2), (usage.used, usage.consumers))

    def test_call_without_consumers_begins_no_transaction(self):
        begun = []

        def listen(connection):
            begun.append(connection)

        sa.event.listen(self.database.engine, 'begin', listen)
        self.addCleanup(
            sa.event.remove, self.database.engine, 'begin', listen)

        self.store.claim([])
        self.store.release([])
        self.store.release(iter(()))

        self.assertEqual([], begun)
        self.store.release(['c'])
        self.assertEqual(1, len(begun))

    def test_provider_without_inventory_is_known(self):
        self.assertEqual([], self.store.usages(providers=['q']).usages)

        self.store.set_inventory('q', {})

        self.assertEqual(
            [claims.Usage('q', {}, {}, 0)],
            self.store.usages(providers=['q']).usages)
        self.assertEqual([], [
            text for text in self.statements(
                lambda: self.store.set_inventory('q', {}))
            if not text.startswith('SELECT')])

    def test_provider_changed_during_the_read_is_reported(self):
        token = self.store.usages().token
        read = schema.FEED.token

        def read_before_a_claim(connection):
            until = read(connection)
            self.store.claim([claims.Claim(MEANWHILE, 'p', {'VCPU': 1})])
            return until

        self.assertNotEqual(
            schema.FEED.lane('c'), schema.FEED.lane(MEANWHILE))
        self.store.claim([claims.Claim('c', 'p', {'VCPU': 2})])
        self.patch(schema.FEED, 'token', read_before_a_claim)

        [usage] = self.store.usages(token).usages

        self.assertEqual({'VCPU': 3}, usage.used)

    def test_usages_of_named_providers_keep_the_token(self):
        token = self.store.usages().token
        self.store.claim([claims.Claim('c', 'p', {'VCPU': 2})])

        self.assertEqual(token, self.store.usages(token, ['p']).token)
        self.assertIsNone(self.store.usages(None, ['p']).token)
        self.assertNotEqual(token, self.store.usages(token).token)
