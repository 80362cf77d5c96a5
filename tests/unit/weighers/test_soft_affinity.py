# SPDX-License-Identifier: Apache-2.0
"""ServerGroupSoftAffinityWeigher and its opposite."""

from cellsched import objects
from cellsched.testing import builders
from cellsched.testing.suite import weighers
from cellsched.weighers import soft_affinity
from tests.unit import base
from tests.unit import strategies

FIRST, SECOND, THIRD, OTHER = strategies.UUIDS[:4]


class SoftCases:
    """What both have in common."""

    sign: int

    def make_requests(self):
        return [*super().make_requests(), self.request(FIRST, THIRD)]

    def request(self, *members):
        return builders.request(group={
            'policy': self.plugin.policy, 'members': list(members)})

    def test_score_counts_the_members_on_each_host(self):
        hosts = builders.hosts(
            3, located={FIRST: 1, SECOND: 1, THIRD: 2, OTHER: 0})

        self.assertScores([0, 2 * self.sign, self.sign], hosts,
                          self.request(FIRST, SECOND, THIRD))

    def test_repeated_member_counts_once(self):
        hosts = builders.hosts(2, located={FIRST: 1})

        self.assertScores([0, self.sign], hosts, self.request(FIRST, FIRST))

    def test_member_placed_in_this_decision_counts(self):
        hosts, request = builders.hosts(2), self.request(FIRST)

        hosts.take(1, request.resources(), FIRST)

        self.assertScores([0, self.sign], hosts, request)

    def test_only_requests_of_the_policy_count(self):
        plugin = builders.plugin(self.plugin)
        for policy in (*objects.requests.POLICIES, None):
            request = builders.request(
                group={'policy': policy, 'members': [FIRST]})
            self.assertEqual(policy == plugin.policy, plugin.applies(request))
        for request in (builders.request(), self.request(),
                        builders.request(instance_group=None)):
            self.assertFalse(plugin.applies(request))

    def test_members_have_to_be_found(self):
        plugin = builders.plugin(self.plugin)

        self.assertEqual({FIRST, SECOND}, set(
            plugin.located(self.request(FIRST, SECOND, FIRST))))

    def test_preference_cannot_be_turned_around(self):
        self.assertRaises(ValueError, builders.plugin, self.plugin,
                          **{self.plugin.multiplier_name: -0.1})


class TestServerGroupSoftAffinityWeigher(
        SoftCases, weighers.WeigherSuite, base.TestCase):

    plugin = soft_affinity.ServerGroupSoftAffinityWeigher
    sign = 1


class TestServerGroupSoftAntiAffinityWeigher(
        SoftCases, weighers.WeigherSuite, base.TestCase):

    plugin = soft_affinity.ServerGroupSoftAntiAffinityWeigher
    sign = -1
