# SPDX-License-Identifier: Apache-2.0
"""Combined changes of providers."""

import contextlib
import random

from cellsched.claims import base as claims
from cellsched.claims.cassandra import ledger
from cellsched.claims.cassandra import records
from cellsched.claims.cassandra import requests
from cellsched.claims.cassandra import session
from cellsched.claims import coordination
from cellsched import clock
from tests.unit import base as tests
from tests.unit.claims.cassandra import base


class TestLedger(tests.TestCase):

    def setUp(self):
        super().setUp()
        self.model = base.make_model()
        base.make_store(self.model).set_inventory(
            'p', {'VCPU': claims.Inventory(total=8, max_unit=4),
                  'GB': claims.Inventory(total=8)})
        self.client = base.Client(self.model)
        self.locks = coordination.ContentionLock(clock.Clock())
        self.ledger = ledger.Ledger(session.Session(
            self.client, clock.Clock(), random.Random(), 5.0, 'x'), True,
            self.locks)

    def row(self, name, amount=1, resource='VCPU'):
        return requests.ClaimRow(
            name, 'x', records.text({resource: amount}))

    def do(self, *entries):
        self.ledger.do(entries)
        return [entry.outcome.name for entry in entries]

    def figures(self):
        return self.model.partitions['p'].figures

    def changes(self):
        return [each for request in self.client.sent
                for each in getattr(request, 'requests', [request])
                if isinstance(each, requests.ChangeProvider)]

    def test_changes_of_a_provider_share_a_request(self):
        outcomes = self.do(
            *(ledger.Entry('p', [self.row(name)]) for name in 'abc'))

        self.assertEqual(['DONE'] * 3, outcomes)
        self.assertEqual(1, len(self.changes()))
        self.assertEqual((3, 3), (
            self.figures().used[0], self.figures().consumers))

    def test_contended_counters_are_read_before_a_change(self):
        self.do(ledger.Entry('p', [self.row('a')]))
        self.client.sent.clear()
        self.do(ledger.Entry('p', [self.row('b')]))
        self.assertEqual(1, len(self.client.sent))
        self.locks.note_conflict(['p'])

        self.do(ledger.Entry('p', [self.row('c')]))

        self.assertEqual(
            requests.ReadFigures('p', serial=False), self.client.sent[1])
        self.assertEqual(3, len(self.client.sent))

    def test_entries_within_capacity_succeed_beside_refused_entries(self):
        outcomes = self.do(
            *(ledger.Entry('p', [self.row(name, amount)])
              for name, amount in (('a', 4), ('b', 5), ('c', 3), ('d', 2))))

        self.assertEqual(['DONE', 'REFUSED', 'DONE', 'REFUSED'], outcomes)
        self.assertEqual(7, self.figures().used[0])

    def test_released_capacity_is_used_by_the_same_request(self):
        self.do(*(ledger.Entry('p', [self.row(name, 4)]) for name in 'ab'))

        outcomes = self.do(ledger.Entry('p', [self.row('c', 4)]),
                           ledger.Entry('p', deleted=[self.row('a', 4)]))

        self.assertEqual(['DONE', 'DONE'], outcomes)
        self.assertEqual((8, 2), (
            self.figures().used[0], self.figures().consumers))

    def test_row_deleted_by_two_entries_is_counted_once(self):
        self.do(ledger.Entry('p', [self.row('a', 4)]))

        outcomes = self.do(*(ledger.Entry('p', deleted=[self.row('a', 4)])
                             for _ in range(2)))

        self.assertEqual(['DONE', 'GONE'], outcomes)
        self.assertEqual((0, 0), (
            self.figures().used[0], self.figures().consumers))

    def test_existing_row_stops_no_other_entry(self):
        self.do(ledger.Entry('p', [self.row('a')]))

        outcomes = self.do(*(ledger.Entry('p', [self.row(name)])
                             for name in 'abc'))

        self.assertEqual(['DONE'] * 3, outcomes)
        self.assertEqual(3, self.figures().used[0])

    def test_fenced_row_stops_no_other_entry(self):
        self.model.answer(requests.Fence('p', 'a', 'x'))

        outcomes = self.do(*(ledger.Entry('p', [self.row(name)])
                             for name in 'abc'))

        self.assertEqual(['GONE', 'DONE', 'DONE'], outcomes)
        self.assertEqual(2, self.figures().used[0])

    def test_change_executed_twice_succeeds(self):
        """A server may repeat an executed request and report a refusal."""
        answer = self.model.answer

        def twice(request):
            answer(request)
            return answer(request)

        self.model.answer = twice
        for amount in 2, 4, 2:
            self.assertEqual(['DONE'], self.do(
                ledger.Entry('p', [self.row(f'{amount} {len(self.changes())}',
                                            amount)])))
        self.assertEqual(['REFUSED'], self.do(
            ledger.Entry('p', [self.row('more', 1)])))

        self.assertEqual((8, 3), (
            self.figures().used[0], self.figures().consumers))

    def test_lock_is_held_after_a_concurrent_change_only(self):
        held = []

        class Locks(coordination.ContentionLock):
            @contextlib.contextmanager
            def held(self, providers):
                held.append([*providers])
                yield

        now = clock.Clock()
        self.ledger = ledger.Ledger(session.Session(
            self.client, now, random.Random(), 5.0, 'x'), False, Locks(now))
        self.do(ledger.Entry('p', [self.row('a')]))
        other = self.model.answer

        def disturbed(request):
            if isinstance(request, requests.ChangeProvider):
                self.model.answer = other
                base.make_store(self.model).claim(
                    [claims.Claim('b', 'p', {'VCPU': 1})])
            return other(request)

        self.model.answer = disturbed
        self.do(ledger.Entry('p', [self.row('c')]))
        self.do(ledger.Entry('p', [self.row('d')]))

        self.assertEqual([[], [], ['p'], []], held)
        self.assertEqual(4, self.figures().used[0])

    def test_refused_change_is_followed_by_no_read(self):
        self.do(ledger.Entry('p', [self.row('a', 4)]))
        base.make_store(self.model).claim(
            [claims.Claim('b', 'p', {'VCPU': 3})])
        self.client.sent.clear()

        self.assertEqual(
            ['REFUSED'], self.do(ledger.Entry('p', [self.row('c', 2)])))

        self.assertEqual(self.changes(), self.client.sent)

    def test_refusal_follows_a_new_read_of_the_counters(self):
        """A concurrent release by another client frees capacity."""
        self.do(*(ledger.Entry('p', [self.row(name, 4)]) for name in 'ab'))
        other = base.make_store(self.model)
        other._ledger.do([ledger.Entry('p', deleted=[self.row('a', 4)])])

        self.assertEqual(
            ['DONE'], self.do(ledger.Entry('p', [self.row('c', 4)])))

    def test_concurrent_change_of_the_inventory_is_respected(self):
        self.do(ledger.Entry('p', [self.row('a')]))
        base.make_store(self.model).set_inventory(
            'p', {'VCPU': claims.Inventory(total=2)})

        self.assertEqual(['REFUSED'], self.do(
            ledger.Entry('p', [self.row('b', 2)])))
        self.assertEqual(['DONE'], self.do(ledger.Entry('p', [self.row('b')])))

    def test_rows_beyond_a_request_are_written_by_several_requests(self):
        base.make_store(self.model).set_inventory(
            'p', {'VCPU': claims.Inventory(total=1000)})

        self.do(*(ledger.Entry('p', [
            self.row(f'{number}-{each}') for each in range(150)])
            for number in range(3)))

        self.assertEqual([150] * 3, [len(each.inserted)
                                     for each in self.changes()])
        self.assertEqual(450, self.figures().used[0])

    def test_unknown_provider_has_no_capacity_and_no_rows(self):
        self.assertEqual(['REFUSED', 'GONE'], self.do(
            ledger.Entry('q', [self.row('a')]),
            ledger.Entry('q', deleted=[self.row('b')])))
