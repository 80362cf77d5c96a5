# SPDX-License-Identifier: Apache-2.0
"""Callers that know of no claims, and hosts that others tell of."""

from cellsched import exception
from cellsched.filters import instance_hints
from cellsched.filters import server_group
from cellsched.testing import builders
from tests.unit.db import samples
from tests.unit.scheduler import schedulers


class TestUnclaimed(schedulers.PlacingTestCase):

    hosts = {'a1': 4, 'b1': 4}

    def ask(self, count=1):
        return self.place(count, vcpus=2, claim=False)

    def test_unclaimed_request_claims_no_resources(self):
        places = self.ask(3)

        self.assertEqual([['a1'], ['a1'], ['b1']], schedulers.hosts(places))
        self.assertEqual([], self.world.claims.batches)
        self.assertEqual(0, self.used('a1'))

    def test_unclaimed_choice_counts_until_hosts_report(self):
        self.ask(2)

        self.assertEqual([['b1']], schedulers.hosts(self.ask()))
        self.world.clock.advance(61)
        self.refresh()
        self.assertEqual([['a1']], schedulers.hosts(self.ask()))

    def test_refusal_follows_a_second_read(self):
        self.fill('a1', 'b1')

        error = self.assertRaises(exception.NoValidHost, self.ask)

        self.assertIn('2 hosts', error.reason)
        self.assertTableIsRight()

    def test_host_freed_since_the_last_read_is_found(self):
        consumers = self.fill('a1', 'b1')
        self.refresh()
        self.world.clock.advance(1)
        self.world.claims.release(consumers[1:])

        self.assertEqual([['b1']], schedulers.hosts(self.ask()))


class TestReports(schedulers.PlacingTestCase):

    def test_filters_use_instances_reported_by_hosts(self):
        self.restart(
            filters=[builders.plugin(instance_hints.DifferentHostFilter)])
        [other] = samples.uuids(1)
        self.refresh()
        self.loader.tell_instances('a1', [other], complete=False)

        places = self.place(vcpus=1, hints={'different_host': [other]})

        self.assertEqual([['a2']], schedulers.hosts(places))

    def test_claim_overrides_the_report_of_a_host(self):
        self.restart(
            filters=[builders.plugin(instance_hints.DifferentHostFilter)])
        [other] = samples.uuids(1)
        self.world.claim('a2', 1, other)
        self.refresh()
        self.loader.tell_instances('a1', [other], complete=False)

        places = self.place(2, vcpus=4, hints={'different_host': [other]})

        self.assertEqual([['a1'], ['a3']], schedulers.hosts(places))

    def test_own_reported_host_is_ignored_by_the_group_filter(self):
        self.restart(filters=[
            builders.plugin(server_group.ServerGroupAntiAffinityFilter)])
        uuids = samples.uuids(1)
        self.refresh()
        self.loader.tell_instances('b1', uuids, complete=True)

        places = self.place(uuids=uuids, group={
            'policy': 'anti-affinity', 'members': uuids})

        self.assertEqual([['a1']], schedulers.hosts(places))
