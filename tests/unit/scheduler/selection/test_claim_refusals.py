# SPDX-License-Identifier: Apache-2.0
"""What the claim store refused, and what that says of other hosts."""

from cellsched import exception
from cellsched.scheduler.selection import claim_refusals
from cellsched.testing import builders
from tests.unit import base


class TestRefusals(base.TestCase):

    def setUp(self):
        super().setUp()
        self.hosts = builders.hosts(host=['a', 'b', 'b', 'c'])
        self.uuids = self.hosts['uuid'].tolist()
        self.refusals = claim_refusals.ClaimRefusals()

    def no_room(self, row):
        self.refusals.add(exception.ClaimRefused(
            provider=self.uuids[row], resource='VCPU', amount=1,
            consumer='i'))

    def no_place(self, row, policy, *hosts):
        self.refusals.add(exception.GroupPolicyViolated(
            provider=self.uuids[row], consumer='i', group='g',
            policy=policy, hosts=list(hosts), members=['m'] * len(hosts)))

    def test_host_without_room_is_hopeless_when_it_is_refused_again(self):
        self.assertFalse(self.refusals)
        self.no_room(0)
        self.no_room(1)
        self.assertEqual([], self.refusals.hopeless(self.hosts))
        self.no_room(1)

        self.assertTrue(self.refusals)
        self.assertEqual([1], self.refusals.hopeless(self.hosts))
        self.assertEqual(self.uuids[:2], self.refusals.lost)
        self.assertEqual([0, 1], self.refusals.refused(self.hosts))
        self.assertEqual(3, self.refusals.times)
        self.assertEqual([], self.refusals.closed(self.hosts))

    def test_hosts_that_the_store_names_are_closed_at_once(self):
        self.no_place(0, 'anti-affinity', 'a', 'b', 'gone')

        self.assertTrue(self.refusals)
        self.assertEqual([0, 1, 2], self.refusals.closed(self.hosts))
        self.assertEqual(self.uuids[:1], self.refusals.denied)
        self.assertEqual([], self.refusals.hopeless(self.hosts))

    def test_host_that_is_refused_for_the_request_itself_is_closed(self):
        self.no_place(0, 'anti-affinity')

        self.assertEqual([0], self.refusals.closed(self.hosts))
        request = builders.request(group={})
        self.assertIs(request, self.refusals.inform(request))

    def test_host_that_has_a_place_left_is_not_closed(self):
        self.no_place(3, 'anti-affinity', 'a')

        self.assertEqual([0], self.refusals.closed(self.hosts))
        self.assertEqual(['l', 'm'], self.refusals.inform(builders.request(
            group={'members': ['l']})).instance_group.members)

    def test_host_of_the_others_is_told_and_not_closed(self):
        self.no_place(0, 'affinity', 'b')
        request = builders.request(group={'hosts': ['a', 'b']})

        self.assertEqual([0], self.refusals.closed(self.hosts))
        told = self.refusals.inform(
            builders.request(group={'hosts': ['a']}))
        self.assertEqual(['a', 'b'], told.instance_group.hosts)
        self.assertEqual(['a', 'b'], self.refusals.inform(
            request).instance_group.hosts)
