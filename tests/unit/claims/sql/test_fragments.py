# SPDX-License-Identifier: Apache-2.0
"""The demand of a batch."""

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from cellsched.claims import base as claims
from cellsched.claims.sql import fragments
from tests.unit import base


def claim(provider, consumer='c', project_id=None, **resources):
    return claims.Claim(
        consumer, provider, resources, None, project_id,
        project_id and f'user of {project_id}')


class TestAnyOf(base.TestCase):

    def test_list_is_bound_as_an_array_of_texts(self):
        compiled = sa.select(sa.column('name') == fragments.any_of('names'))

        [bound] = compiled.compile(
            dialect=postgresql.dialect()).binds.values()
        self.assertEqual('names', bound.key)
        self.assertIsInstance(bound.type, sa.ARRAY)
        self.assertIsInstance(bound.type.item_type, sa.Text)


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

    def test_nothing_is_no_group(self):
        self.assertEqual({}, fragments.group([]))


class TestInserting(base.TestCase):
    """The parameters of an INSERT on PostgreSQL."""

    def given(self, *batch):
        return dict(fragments.inserting(batch)[1])

    def test_claims_that_are_alike_give_their_amounts_once(self):
        self.assertEqual(
            {'consumer': ['d', 'c'], 'provider': ['p', 'q'],
             'ordinal': [0, 1], 'resource_class': ['GB', 'VCPU'],
             'amount': [5, 1],
             'project_id': ['x', None], 'user_id': ['user of x', None]},
            self.given(claim('p', 'd', 'x', VCPU=1, GB=5),
                       claim('q', 'c', GB=5, VCPU=1)))

    def test_claims_that_are_alike_and_for_one_project_name_it_once(self):
        given = self.given(claim('p', 'd', 'x', VCPU=1),
                           claim('q', 'c', 'x', VCPU=1))

        self.assertEqual(('x', 'user of x'),
                         (given['project_id'], given['user_id']))

    def test_consumer_on_two_providers_has_an_ordinal_for_each_row(self):
        self.assertEqual(
            {'consumer': ['b', 'c', 'c'], 'ordinal': [0, 0, 1],
             'provider': ['p', 'p', 'q'], 'resource_class': ['VCPU'] * 3,
             'amount': [1, 1, 1], 'project_id': [None, 'x', None],
             'user_id': [None, 'user of x', None]},
            self.given(claim('q', 'c', 'x', VCPU=1),
                       claim('p', 'c', 'x', VCPU=1),
                       claim('p', 'b', VCPU=1)))

    def test_claims_of_other_amounts_have_rows_of_their_own(self):
        self.assertEqual(
            {'consumer': ['b', 'b', 'c'], 'ordinal': [0, 1, 0],
             'provider': ['p', 'p', 'p'],
             'resource_class': ['GB', 'VCPU', 'VCPU'], 'amount': [3, 2, 1],
             'project_id': ['y', None, 'x'],
             'user_id': ['user of y', None, 'user of x']},
            self.given(claim('p', 'c', 'x', VCPU=1),
                       claim('p', 'b', 'y', VCPU=2, GB=3)))
