# SPDX-License-Identifier: Apache-2.0
"""The demand and the rows of a batch."""

from cellsched.claims import base as claims
from cellsched.claims.sql import fragments
from tests.unit import base


def claim(provider, consumer='c', project_id=None, **resources):
    return claims.Claim(
        consumer, provider, resources, None, project_id,
        project_id and f'user of {project_id}')


class TestGroup(base.TestCase):

    def test_claims_of_a_provider_add_up(self):
        added = fragments.BatchDemand(3, (
            fragments.ClassDemand('GB', 5, 5, 5, 5),
            fragments.ClassDemand('VCPU', 16, 4, 6, 2)))

        self.assertEqual({added: ['p']}, fragments.group([
            claim('p', VCPU=4), claim('p', VCPU=6, GB=5),
            claim('p', VCPU=6)]))

    def test_providers_with_the_same_demand_are_together(self):
        grouped = fragments.group([
            claim('r', VCPU=2), claim('q', VCPU=1), claim('p', VCPU=2),
            claim('o', VCPU=1), claim('o', VCPU=1)])

        self.assertEqual([['o'], ['p', 'r'], ['q']], list(grouped.values()))

    def test_empty_batch_has_no_group(self):
        self.assertEqual({}, fragments.group([]))


class TestRows(base.TestCase):
    """The allocations of a batch."""

    def rows(self, *batch):
        return [tuple(row.values()) for row in fragments.rows(batch)]

    def test_consumer_on_two_providers_has_an_ordinal_for_each_row(self):
        self.assertEqual(
            [('b', 0, 'p', 'VCPU', 1, None, None),
             ('c', 0, 'p', 'VCPU', 1, 'x', 'user of x'),
             ('c', 1, 'q', 'VCPU', 1, None, None)],
            self.rows(claim('q', 'c', 'x', VCPU=1),
                      claim('p', 'c', 'x', VCPU=1),
                      claim('p', 'b', VCPU=1)))

    def test_classes_are_in_order_and_the_first_row_has_the_owner(self):
        self.assertEqual(
            [('b', 0, 'p', 'GB', 3, 'y', 'user of y'),
             ('b', 1, 'p', 'VCPU', 2, None, None),
             ('c', 0, 'p', 'VCPU', 1, 'x', 'user of x')],
            self.rows(claim('p', 'c', 'x', VCPU=1),
                      claim('p', 'b', 'y', VCPU=2, GB=3)))
