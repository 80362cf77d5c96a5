# SPDX-License-Identifier: Apache-2.0
"""Checks by the statements that write."""

from cellsched.claims import base as claims
from cellsched.claims.sql import transactions
from cellsched import exception
from tests.unit.claims.sql import base
from tests.unit.db import recording


def claim(consumer, provider, **resources):
    return claims.Claim(consumer, provider, resources)


class TestTake(base.StoreTestCase):

    def setUp(self):
        super().setUp()
        for number in range(30):
            self.store.set_inventory(f'p{number}', {
                'VCPU': claims.Inventory(100, min_unit=2, max_unit=8,
                                         step_size=2),
                'GB': claims.Inventory(100)})

    def take(self, *batch):
        with self.database.writer() as connection:
            transactions.claim(connection, batch)

    def test_write_checks_the_capacity(self):
        for vcpus in 1, 3, 10:
            self.assertRaises(
                transactions.InsufficientCapacity, self.take,
                claim('c', 'p1', VCPU=vcpus))
        self.take(claim('c', 'p1', GB=97))

        for batch in (
            [claim('d', 'p1', GB=4)],
            [claim('d', 'p1', GB=2), claim('e', 'p1', GB=2)],
            [claim('d', 'p1', GB=2, VCPU=1)],
            [claim('d', 'p2', GB=4), claim('e', 'p1', GB=4)],
            [claim('d', 'p1', GB=1, CUSTOM_GPU=1)],
            [claim('d', 'nowhere', GB=1)],
        ):
            self.assertRaises(
                transactions.InsufficientCapacity, self.take, *batch)

        self.take(claim('d', 'p1', GB=3, VCPU=8))

    def test_consumer_takes_once(self):
        self.take(claim('c', 'p1', GB=1))

        for again in claim('c', 'p1', GB=1), claim('c', 'p2', VCPU=2):
            self.assertRaises(exception.ConstraintViolated, self.take, again)

    def test_statements_do_not_grow_with_the_batch(self):
        def batch(name, size):
            return [claim(f'{name}{number}', f'p{number % 30}', VCPU=2, GB=1)
                    for number in range(size)]

        small, large = batch('s', 30), batch('l', 600)
        few = self.statements(lambda: self.store.claim(small))
        self.assertEqual(
            few, self.statements(lambda: self.store.claim(large)))
        self.assertLess(len(few), 8)
        few = self.statements(
            lambda: self.store.release(c.consumer for c in small))
        many = self.statements(
            lambda: self.store.release(c.consumer for c in large))
        self.assertLess(len(many), 2 * len(few))

    def test_different_demands_are_claimed_and_released(self):
        batch = [claim(f'c{number}', f'p{number}', VCPU=2, GB=1 + number)
                 for number in range(30)]

        self.store.claim(batch)

        for each in batch:
            [usage] = self.store.usages(providers=[each.provider]).usages
            self.assertEqual((each.resources, 1),
                             (usage.used, usage.consumers))
        self.store.release([each.consumer for each in batch])
        self.assertEqual({0}, {
            amount for usage in self.store.usages().usages
            for amount in usage.used.values()})

    def test_release_without_claims_writes_no_row(self):
        self.assertEqual([], [
            text for text in self.statements(
                lambda: self.store.release(['c', 'd']))
            if not text.startswith('SELECT')])

    def statements(self, call):
        """Return the statements that a call makes."""
        with recording.recorded(self.database) as statements:
            call()
        return [text for text, _ in statements]
