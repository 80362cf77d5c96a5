# SPDX-License-Identifier: Apache-2.0
"""Members of server groups that other schedulers place at the same time."""

from cellsched.claims import base as claims_base
from cellsched import exception
from cellsched.filters import server_group
from cellsched import migrations
from cellsched.scheduler.decision import mandatory_stages
from cellsched.testing import builders
from tests.unit.db import samples
from tests.unit.hosts import world
from tests.unit.scheduler import schedulers

AFFINITY, ANTI_AFFINITY = 'affinity', 'anti-affinity'

FILTERS = (server_group.ServerGroupAffinityFilter,
           server_group.ServerGroupAntiAffinityFilter)


class TestGroups(schedulers.PlacingTestCase):

    def setUp(self):
        super().setUp()
        self.placer, self.loader = self.made()
        self.other, self.other_loader = self.made('b2', 'b1')
        for each in (self.loader, self.other_loader):
            each.refresh(world.CONTEXT)

    def made(self, *likes):
        return self.world.placer(
            filters=[builders.plugin(kind) for kind in FILTERS],
            weighers=[schedulers.liking(*likes)],
            first=[mandatory_stages.IgnoredHost()])

    def member(self, policy, by=None, count=1, uuids=None, rules=None,
               alternates=0, **wishes):
        """Place members of a group that were told of no others."""
        group = {'policy': policy, 'rules': rules or {}}
        return schedulers.hosts(self.place(
            count, by=by, uuids=uuids, vcpus=1, alternates=alternates,
            group=group, **wishes))

    def test_claim_has_the_membership_of_the_instance(self):
        [uuid] = samples.uuids(1)
        self.member(ANTI_AFFINITY, uuids=[uuid],
                    rules={'max_server_per_host': '3'})

        [[claim]] = self.world.claims.batches
        group = builders.request(group={}).instance_group.uuid
        self.assertEqual(claims_base.Membership(
            group, 'a1', ANTI_AFFINITY, 3, uuid), claim.group)

    def test_member_of_an_alternative_is_on_its_host(self):
        self.world.claims.refuses = [self.world.providers['a1']]
        [uuid] = samples.uuids(1)

        self.assertEqual([['a2']], self.member(ANTI_AFFINITY, uuids=[uuid]))

        [joined] = self.world.claims.memberships([uuid]).values()
        self.assertEqual('a2', joined.host)

    def test_request_without_a_policy_claims_as_any(self):
        self.member(None)
        self.place(vcpus=1, hints={'spread': 'cell'})
        self.place(vcpus=1)

        self.assertEqual({None}, {
            claim.group for [claim] in self.world.claims.batches})

    def test_later_member_is_placed_on_another_host(self):
        self.assertEqual([['a1'], ['a2']], self.member(
            ANTI_AFFINITY, count=2))

        self.placer, self.loader = self.made()
        self.assertEqual([['a3'], ['b1']], self.member(
            ANTI_AFFINITY, count=2))

        # One refusal tells of all hosts that are taken.
        self.assertEqual(3, len(self.world.claims.batches))
        self.assertTableIsRight()

    def test_later_member_joins_the_host_of_the_group(self):
        self.assertEqual([['a1']], self.member(AFFINITY))

        self.assertEqual([['a1']], self.member(AFFINITY, by=self.other))

        self.other_loader.refresh(world.CONTEXT)
        self.assertTableIsRight(self.other_loader)

    def test_alternates_exclude_hosts_of_other_members(self):
        self.member(ANTI_AFFINITY, uuids=samples.uuids(2))

        self.assertEqual([['b2', 'b1']], self.member(
            ANTI_AFFINITY, by=self.other, alternates=2))
        self.placer, self.loader = self.made('a2')
        self.assertEqual([['a3']], self.member(
            ANTI_AFFINITY, alternates=2))

    def test_refusal_names_hosts_of_other_members(self):
        self.member(ANTI_AFFINITY, count=5)

        error = self.assertRaises(
            exception.NoValidHost, self.member, ANTI_AFFINITY, by=self.other)

        self.assertIn('of 5 hosts 5 already run their share of the server '
                      'group.', error.reason)
        for host in self.hosts:
            self.assertNotIn(host, str(error))
        decision = self.world.records[-1][-1]
        self.assertEqual([*self.hosts], sorted(
            decision.examples['server-group']))
        self.assertTableIsRight(self.other_loader)

    def test_hosts_below_the_group_limit_take_remaining_members(self):
        several = {'max_server_per_host': '2'}
        self.member(ANTI_AFFINITY, count=7, rules=several)

        hosts = self.member(
            ANTI_AFFINITY, by=self.other, count=3, rules=several)

        self.assertEqual([['b1'], ['b2'], ['b2']], sorted(hosts))

    def test_full_host_of_the_group_is_the_reason(self):
        self.member(AFFINITY)
        self.world.claim('a1', 3)

        error = self.assertRaises(
            exception.NoValidHost, self.member, AFFINITY, by=self.other)

        self.assertIn('1 lacks CPUs', error.reason)
        self.assertIn('4 run no server of the group', error.reason)
        self.assertTableIsRight(self.other_loader)

    def test_choices_are_bounded(self):
        self.restart(
            attempts_max=2,
            filters=[builders.plugin(kind) for kind in FILTERS])
        refuser = self.world.claims

        def refuse(claims):
            refuser.batches.append(claims)
            raise exception.GroupPolicyViolated(
                provider=claims[0].provider, consumer=claims[0].consumer,
                group='g', policy=ANTI_AFFINITY, hosts=[], members=[])

        self.patch(refuser, 'claim', refuse)
        error = self.assertRaises(
            exception.NoValidHost, self.member, ANTI_AFFINITY)

        self.assertEqual(5, len(refuser.batches))
        self.assertIn('5 were ruled out', error.reason)

    def test_request_is_not_modified(self):
        self.member(AFFINITY)
        request = schedulers.request(vcpus=1, group={'policy': AFFINITY})

        self.other.place(world.CONTEXT, request, samples.uuids(1), 0)

        self.assertEqual(([], []), (
            request.instance_group.hosts, request.instance_group.members))

    def test_moved_member_is_the_same_member(self):
        [uuid] = samples.uuids(1)
        self.member(ANTI_AFFINITY, uuids=[uuid])

        self.assertEqual([['a2']], self.member(
            ANTI_AFFINITY, uuids=[uuid], ignore_hosts=['a1'],
            instance_uuid=uuid))

        claim = self.world.claims.batches[-1][0]
        self.assertEqual((migrations.consumer(uuid), uuid, 'a2'), (
            claim.consumer, claim.group.member, claim.group.host))
