# SPDX-License-Identifier: Apache-2.0
"""The decision on several instances, one after the other."""

import hypothesis
from hypothesis import strategies

from cellsched.scheduler.decision import pipeline
from cellsched.testing import builders
from tests.unit import base
from tests.unit.scheduler import toys


class TestRecheck(base.TestCase):
    """What is asked again, after something was taken in a row."""

    def decided(self, filters, hosts, **request):
        self.decision = pipeline.Pipeline(filters, [])
        self.hosts, self.request = hosts, builders.request(**request)
        return self.decision.candidates(hosts, self.request)

    def taken(self, found, row):
        self.hosts.take(row, self.request.resources())
        return self.decision.recheck(self.request, found, row)

    def test_capacity_used_in_the_request_rejects_the_host(self):
        found = self.decided([], builders.hosts(
            3, available={'MEMORY_MB': [700, 1200, 1024]}), memory_mb=512)

        for row in (0, 1):
            found = self.taken(found, row)

        self.assertEqual([1, 2], found.rows.tolist())
        (rejection,) = found.rejections(self.request)
        self.assertEqual((1, 324), (rejection.hosts,
                                    rejection.nearest.amount))

    def test_counts_add_up_over_the_instances(self):
        found = self.decided([], builders.hosts(
            3, available={'MEMORY_MB': [100, 512, 512]}), memory_mb=512)

        for row in (1, 2):
            found = self.taken(found, row)

        self.assertEqual(0, len(found))
        (rejection,) = found.rejections(self.request)
        self.assertEqual((3, 1, 412), (
            rejection.hosts, rejection.nearest.hosts,
            rejection.nearest.amount))

    def test_filter_once_per_request_is_not_called_again(self):
        once = toys.Filter([True, True], once=True)
        always = toys.Filter([True, True])
        found = self.decided([once, always], builders.hosts(2))

        self.taken(found, 0)

        self.assertEqual((1, 2), (once.asked, always.asked))

    def test_local_filter_is_called_for_the_chosen_host_only(self):
        local = toys.Filter([True] * 3, local=True)
        far = toys.Filter([True] * 3)
        found = self.decided([local, far], builders.hosts(3))

        found = self.taken(found, 1)

        self.assertEqual([[0, 1, 2], [1]], local.rows)
        self.assertEqual([[0, 1, 2]] * 2, far.rows)
        self.assertEqual([0, 1, 2], found.rows.tolist())

    def test_filters_receive_the_same_request_again(self):
        asked = []

        class Filter(toys.Filter):

            def keep(self, hosts, request):
                asked.append(request)

        found = self.decided(
            [Filter(None, local=True), Filter(None)], builders.hosts(2))

        self.taken(found, 0)

        self.assertEqual([self.request] * 4, asked)

    def test_local_verdict_puts_the_chosen_host_out(self):
        local = toys.Filter(
            lambda hosts: hosts['num_instances'] < 1, local=True)
        found = self.decided([local], builders.hosts(3))

        found = self.taken(found, 1)
        self.assertEqual([0, 2], found.rows.tolist())
        found = self.taken(found, 2)

        self.assertEqual([0], found.rows.tolist())
        self.assertEqual([('Filter', 2)], [
            (each.by, each.hosts)
            for each in found.rejections(self.request)])

    def test_global_filter_may_reject_other_hosts(self):
        far = toys.Filter(lambda hosts: hosts['num_instances'] >= (
            hosts.whole['num_instances'].max()))
        found = self.decided([far], builders.hosts(4))

        found = self.taken(found, 2)

        self.assertEqual([2], found.rows.tolist())

    def test_filter_uses_allocations_on_a_few_hosts(self):
        few = toys.Filter([True] + [False] * 9 + [True], once=True)
        free = toys.Filter(lambda hosts: hosts['num_instances'] < 1)
        found = self.decided([few, free], builders.hosts(11))

        found = self.taken(found, 10)

        self.assertEqual([0], found.rows.tolist())

    def test_rejected_host_is_never_kept_again(self):
        for local in (False, True):
            fickle = toys.Filter([False, True], local=local)
            found = self.decided([fickle], builders.hosts(2))
            fickle.answer = [True, True]

            found = self.taken(found, 1)

            self.assertEqual([1], found.rows.tolist())

    def test_refused_host_stays_out_and_is_not_rejected(self):
        found = self.decided([], builders.hosts(3)).without([0])

        found = self.taken(found, 1)

        self.assertEqual([1, 2], found.rows.tolist())
        self.assertEqual([], found.rejections(self.request))

    @hypothesis.given(strategies.data())
    def test_recheck_equals_a_complete_decision(self, data):
        count = data.draw(strategies.integers(1, 12))
        room = data.draw(strategies.lists(
            strategies.integers(0, 4), min_size=count, max_size=count))
        limit = toys.Filter(
            lambda hosts: hosts['num_instances'] < 2, local=True)
        found = self.decided(
            [limit], builders.hosts(count, available={'VCPU': room}))

        while len(found):
            row = data.draw(strategies.sampled_from(found.rows.tolist()))
            found = self.taken(found, row)
            again = self.decision.candidates(self.hosts, self.request)
            self.assertEqual(again.rows.tolist(), found.rows.tolist())
            self.assertEqual(again.rejections(self.request),
                             found.rejections(self.request))


class TestLimits(base.TestCase):

    class Limiting(toys.Filter):
        def limits(self, hosts, request):
            return {self.answer: hosts['vcpus_total'] * 2}

    def test_limits_are_collected_from_filters_for_the_host(self):
        decision = pipeline.Pipeline(
            [self.Limiting('vcpu'), self.Limiting('disk_gb'),
             toys.Filter(None), self.Limiting('memory_mb', applies=False)],
            [])
        for each in decision.filters:
            each.keep = lambda hosts, request: None
        hosts, request = builders.hosts(vcpus_total=[3, 4]), builders.request()

        found = decision.candidates(hosts, request)

        limits = decision.limits(request, found, 1)
        self.assertEqual({'vcpu': 8, 'disk_gb': 8}, limits)
        self.assertIs(int, type(limits['vcpu']))

    def test_limits_are_empty_without_limiting_filters(self):
        decision = pipeline.Pipeline([toys.Filter([True])], [])
        hosts, request = builders.hosts(), builders.request()

        self.assertEqual({}, decision.limits(
            request, decision.candidates(hosts, request), 0))
