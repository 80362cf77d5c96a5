# SPDX-License-Identifier: Apache-2.0
"""What a batch moves, added up."""

from cellsched.claims import base as claims
from cellsched.claims.sql import demand
from tests.unit import base


def claim(provider, **resources):
    return claims.Claim('c', provider, resources)


class TestGroup(base.TestCase):

    def test_claims_of_a_provider_add_up(self):
        self.assertEqual(
            {demand.BatchDemand(3, (demand.ClassDemand('GB', 5, 5, 5, 5),
                                    demand.ClassDemand(
                                        'VCPU', 16, 4, 6, 2))): ['p']},
            demand.group([claim('p', VCPU=4), claim('p', VCPU=6, GB=5),
                          claim('p', VCPU=6)]))

    def test_providers_with_the_same_demand_are_together(self):
        grouped = demand.group([
            claim('r', VCPU=2), claim('q', VCPU=1), claim('p', VCPU=2),
            claim('o', VCPU=1), claim('o', VCPU=1)])

        self.assertEqual([['o'], ['p', 'r'], ['q']], list(grouped.values()))

    def test_nothing_is_no_group(self):
        self.assertEqual({}, demand.group([]))
