# SPDX-License-Identifier: Apache-2.0
"""Requests for builds that failed on hosts, and go to others."""

import hypothesis
from hypothesis import strategies as st

from cellsched.claims import base as claims_base
from cellsched import exception
from cellsched.filters import server_group
from cellsched import migrations
from cellsched import objects
from cellsched.testing import builders
from tests import profile
from tests.unit.db import samples
from tests.unit.scheduler import schedulers


def retry(*hosts):
    return objects.SchedulerRetries(
        num_attempts=len(hosts), hosts=objects.ComputeNodeList(objects=[
            objects.ComputeNode(host=host, hypervisor_hostname=host)
            for host in hosts]))


class RetryCase(schedulers.MovingTestCase):

    def host(self, *tried, by=None, vcpus=4, uuids=None, **wishes):
        """Return the host that a build gets after it failed on others."""
        [[chosen]] = self.place(
            uuids=uuids or self.uuids, by=by, vcpus=vcpus,
            retry=retry(*tried) if tried else None, **wishes)
        return chosen.service_host


class TestRetry(RetryCase):

    def test_build_gets_an_untried_host_and_releases_the_tried_host(self):
        tried = []
        for host in ('a1', 'a2', 'a3', 'b1', 'b2'):
            self.assertEqual(host, self.host(*tried))

            self.assertEqual({self.uuids[0]: (host, 4)}, self.held())
            tried.append(host)
        self.assertEqual([0, 0, 0, 0, 4], [
            self.used(host) for host in self.hosts])
        self.assertTableIsRight()

    def test_unplaceable_build_releases_its_claim(self):
        self.host()

        self.assertRaises(exception.NoValidHost, self.host, *self.hosts)

        self.assertEqual({}, self.held())
        self.assertEqual(0, self.used('a1'))
        self.assertTableIsRight()

    def test_build_refused_as_uncertain_keeps_its_claim(self):
        self.host()
        error = exception.HostStateUncertain(hosts=5, known=5)
        self.loader.mass_outage_error = lambda: error

        self.assertRaises(exception.HostStateUncertain, self.host, *self.hosts)

        self.assertEqual({self.uuids[0]: ('a1', 4)}, self.held())

    def test_failed_release_keeps_the_table_correct(self):
        self.host()
        release, self.world.claims.release = (
            self.world.claims.release, self.fail_to_release)

        self.assertRaises(
            exception.DatabaseUnreachable, self.host, 'a1')

        self.assertEqual(
            {migrations.consumer(self.uuids[0]): ('a1', 4)}, self.held())
        self.assertTableIsRight()
        self.world.claims.release = release
        self.assertEqual('a2', self.host('a1'))
        self.assertEqual({self.uuids[0]: ('a2', 4)}, self.held())

    @staticmethod
    def fail_to_release(consumers):
        raise exception.DatabaseUnreachable(schema='claims', url='x',
                                            reason='y')

    def test_late_scheduler_keeps_the_host_of_another_scheduler(self):
        self.host()
        other, _ = self.world.placer(
            first=schedulers.destinations())
        transfer = self.world.claims.transfer

        def late(source, target):
            self.world.claims.transfer = transfer
            self.assertEqual('a2', self.host('a1', by=other))
            return transfer(source, target)

        self.world.claims.transfer = late

        self.assertRaises(exception.NoValidHost, self.host, *self.hosts)

        self.assertEqual({self.uuids[0]: ('a2', 4)}, self.held())

    def test_usage_is_read_again_after_a_failed_build_only(self):
        reload, read = self.loader.reload, []
        self.loader.reload = lambda names: (read.append(names), reload(names))

        self.host()
        self.assertEqual([], read)

        self.host('a1')
        self.assertEqual([[self.world.providers['a1']]], read)

    def test_first_attempt_reads_no_claims(self):
        claims_of, asked = self.world.claims.claims_of, []
        self.world.claims.claims_of = lambda names: (
            asked.append(names) or claims_of(names))

        self.place(uuids=self.uuids, retry=retry())

        self.assertEqual([], asked)

    def test_repeated_retry_gets_the_same_answer(self):
        self.host()
        for by in (self.placer, self.world.placer(
                first=schedulers.destinations())[0]):
            self.assertEqual('a2', self.host('a1', by=by))

            self.assertEqual({self.uuids[0]: ('a2', 4)}, self.held())

    def test_tried_host_is_free_for_other_requests(self):
        self.host()
        self.host('a1')

        self.assertEqual([['a1']], schedulers.hosts(self.place()))

    def test_host_taken_by_another_request_is_skipped(self):
        self.host()
        self.world.claims.refuses = [self.world.providers['a2']]

        self.assertEqual('a3', self.host('a1'))

        self.assertEqual({self.uuids[0]: ('a3', 4)}, self.held())
        self.refresh()
        self.assertTableIsRight()

    def test_forced_build_is_not_sent_to_a_tried_host(self):
        self.host()

        self.assertRaises(
            exception.NoValidHost, self.host, 'a1', force_hosts=['a1'])

    def test_caller_without_instances_gets_an_untried_host(self):
        [[chosen]] = self.place(
            uuids=self.uuids, retry=retry('a1'), claim=False)

        self.assertEqual('a2', chosen.service_host)

    def test_group_member_may_use_the_tried_host_of_another(self):
        self.restart(
            filters=[builders.plugin(
                server_group.ServerGroupAntiAffinityFilter)],
            first=schedulers.destinations())
        other = samples.uuids(1)
        group = {'policy': 'anti-affinity', 'members': [*self.uuids, *other]}
        self.host(group=group)
        self.host('a1', group=group)

        self.assertEqual('a1', self.host(group=group, uuids=other))

    @profile.few_examples
    @hypothesis.given(
        st.lists(st.sampled_from(['a1', 'a2', 'a3', 'b1', 'b2']),
                 max_size=4, unique=True), st.booleans())
    def test_no_host_is_given_again(self, tried, holds):
        [uuid] = self.uuids = samples.uuids(1)
        if holds and tried:
            self.host(force_hosts=tried[:1])

        self.assertNotIn(self.host(*tried), tried)

        [(host, _)] = self.held().values()
        self.assertNotIn(host, tried)
        self.world.claims.release([uuid])
        self.loader.reload([*self.world.providers.values()])


class TestMoves(RetryCase):
    """What a server has where it is stays its own."""

    def setUp(self):
        super().setUp()
        self.moved = migrations.consumer(self.uuids[0])
        self.host(vcpus=2)

    def test_server_failing_to_migrate_keeps_its_claim(self):
        self.assertEqual('a2', self.host(vcpus=2, ignore_hosts=['a1']))

        for tried, host in ((['a2'], 'a3'), (['a2', 'a3'], 'b1')):
            self.assertEqual(host, self.host(
                *tried, vcpus=2, ignore_hosts=['a1']))

            self.assertEqual({
                self.uuids[0]: ('a1', 2), self.moved: (host, 2)}, self.held())
        self.assertTableIsRight()

    def test_server_failing_to_resize_keeps_its_claim(self):
        self.assertEqual('a2', self.host(vcpus=4))

        self.assertEqual('a3', self.host('a2', vcpus=4))

        self.assertEqual({
            self.uuids[0]: ('a1', 2), self.moved: ('a3', 4)}, self.held())

    def test_server_failing_to_resize_in_place_keeps_its_size(self):
        self.assertEqual('a1', self.host(vcpus=1))

        self.assertEqual('a2', self.host('a1', vcpus=1))

        self.assertEqual({
            self.uuids[0]: ('a1', 2), self.moved: ('a2', 1)}, self.held())

    def test_server_reported_by_a_tried_host_keeps_its_claim(self):
        self.loader.tell_instances('a1', self.uuids, False)

        self.assertEqual('a2', self.host('a1', vcpus=2))

        self.assertEqual({
            self.uuids[0]: ('a1', 2), self.moved: ('a2', 2)}, self.held())

    def test_unplaceable_move_releases_its_target_claim(self):
        self.host(vcpus=2, ignore_hosts=['a1'])

        self.assertRaises(
            exception.NoValidHost, self.host, 'a2', 'a3', 'b1', 'b2',
            vcpus=2, ignore_hosts=['a1'])

        self.assertEqual({self.uuids[0]: ('a1', 2)}, self.held())

    def test_claim_on_an_unknown_host_is_kept(self):
        [uuid] = self.uuids = samples.uuids(1)
        claim = claims_base.Claim(
            uuid, 'elsewhere', {'VCPU': 4, 'MEMORY_MB': 1})
        self.world.claims.set_inventory(
            'elsewhere', dict.fromkeys(
                claim.resources, claims_base.Inventory(4)))
        self.world.claims.claim([claim])

        self.assertRaises(exception.NoValidHost, self.host, 'a1')

        self.assertEqual([claim], self.world.claims.claims_of([uuid])[uuid])
