# SPDX-License-Identifier: Apache-2.0
"""The decision."""

import math

import hypothesis
from hypothesis import strategies
import numpy as np

from cellsched import exception
from cellsched.filters import availability_zone
from cellsched.filters import compute
from cellsched.filters import num_instances
from cellsched.scheduler import pipeline
from cellsched.testing import builders
from cellsched.weighers import cpu
from cellsched.weighers import disk
from cellsched.weighers import ram
from tests.unit import base
from tests.unit.filters import test_compute
from tests.unit.hosts import rows
from tests.unit.scheduler import test_ranking
from tests.unit.scheduler import toys


class TestCandidates(base.TestCase):

    def decide(self, filters, hosts, **request):
        self.pipeline = pipeline.Pipeline(filters, [])
        self.request = builders.request(**request)
        return self.pipeline.candidates(hosts, self.request)

    def counts(self, found, hosts):
        return [(each.by, each.hosts)
                for each in found.rejections(hosts, self.request)]

    def test_host_must_pass_every_filter(self):
        found = self.decide(
            [toys.Filter([True, True, False, True]),
             toys.Filter([False, True, False, True])], builders.hosts(4))

        self.assertEqual([1, 3], found.rows.tolist())

    def test_host_counts_where_it_failed_first(self):
        hosts = builders.hosts(room={'MEMORY_MB': [0, 0, 512, 512, 512]})
        found = self.decide(
            [toys.Filter([False, True, False, True, True])], hosts)

        self.assertEqual([('capacity:MEMORY_MB', 2), ('Filter', 1)],
                         self.counts(found, hosts))

    def test_nothing_more_is_asked_once_no_host_is_left(self):
        late = toys.Filter([True, True])
        hosts = builders.hosts(2)

        found = self.decide([toys.Filter([False, False]), late], hosts)

        self.assertEqual(0, len(found))
        self.assertEqual(0, late.asked)

    def test_without_hosts_nothing_is_asked(self):
        never = toys.Filter([])
        hosts = builders.hosts(0)

        found = self.decide([never], hosts)

        self.assertEqual((0, 0), (len(found), never.asked))
        self.assertEqual([], self.counts(found, hosts))

    def test_filter_that_does_not_apply_is_not_asked(self):
        idle = toys.Filter([False], applies=False)

        found = self.decide([idle], builders.hosts(1))

        self.assertEqual((1, 0), (len(found), idle.asked))

    def test_room_for_all_resources_is_wanted(self):
        hosts = builders.hosts(room={
            'VCPU': [1, 2, 2, 2], 'MEMORY_MB': [9, 8, 9, 9],
            'DISK_GB': [3, 3, 2, 3]})

        found = self.decide([], hosts, vcpus=2, memory_mb=9, root_gb=3)

        self.assertEqual([3], found.rows.tolist())
        self.assertEqual(
            [('capacity:VCPU', 1), ('capacity:MEMORY_MB', 1),
             ('capacity:DISK_GB', 1)], self.counts(found, hosts))

    def test_server_larger_than_a_host_does_not_fit_an_empty_one(self):
        hosts = builders.hosts(vcpus_total=[8, 9], cpu_allocation_ratio=4.0)

        found = self.decide([], hosts, vcpus=9)

        self.assertEqual([1], found.rows.tolist())
        self.assertEqual([('size:VCPU', 1)], self.counts(found, hosts))

    def test_mask_that_is_a_column_is_left_alone(self):
        hosts = builders.hosts(service_disabled=[True, False])

        self.decide([toys.Filter(lambda it: it['service_disabled']),
                     toys.Filter([False, True])], hosts)

        self.assertEqual([True, False], hosts['service_disabled'].tolist())


class TestRecheck(base.TestCase):

    def test_room_that_was_taken_is_missed(self):
        hosts = builders.hosts(3, room={'MEMORY_MB': [700, 1200, 1024]})
        request = builders.request(memory_mb=512)
        decision = pipeline.Pipeline([], [])
        found = decision.candidates(hosts, request)

        for row in (0, 1):
            hosts.take(row, request.resources())
        found = decision.recheck(hosts, request, found)

        self.assertEqual([1, 2], found.rows.tolist())
        (rejection,) = found.rejections(hosts, request)
        self.assertEqual((1, 324), (rejection.hosts,
                                    rejection.nearest.amount))

    def test_counts_add_up_over_the_instances(self):
        hosts = builders.hosts(3, room={'MEMORY_MB': [100, 512, 512]})
        request = builders.request(memory_mb=512)
        decision = pipeline.Pipeline([], [])
        found = decision.candidates(hosts, request)

        for row in (1, 2):
            hosts.take(row, request.resources())
            found = decision.recheck(hosts, request, found)

        self.assertEqual(0, len(found))
        (rejection,) = found.rejections(hosts, request)
        self.assertEqual((3, 1, 412), (
            rejection.hosts, rejection.nearest.hosts,
            rejection.nearest.amount))

    def test_filter_that_runs_once_is_not_asked_again(self):
        once = toys.Filter([True, True], once=True)
        always = toys.Filter([True, True])
        decision = pipeline.Pipeline([once, always], [])
        hosts, request = builders.hosts(2), builders.request()

        found = decision.candidates(hosts, request)
        decision.recheck(hosts, request, found)

        self.assertEqual((1, 2), (once.asked, always.asked))

    def test_host_that_is_out_stays_out(self):
        fickle = toys.Filter([False, True])
        decision = pipeline.Pipeline([fickle], [])
        hosts, request = builders.hosts(2), builders.request()
        found = decision.candidates(hosts, request)

        fickle.answer = [True, True]
        found = decision.recheck(hosts, request, found)

        self.assertEqual([1], found.rows.tolist())

    def test_refused_host_stays_out_and_is_not_rejected(self):
        decision = pipeline.Pipeline([], [])
        hosts, request = builders.hosts(2), builders.request()

        found = decision.candidates(hosts, request).without(0)
        found = decision.recheck(hosts, request, found)

        self.assertEqual([1], found.rows.tolist())
        self.assertEqual([], found.rejections(hosts, request))


class TestWeigh(base.TestCase):

    def weigh(self, weighers, hosts, passed=None):
        decision = pipeline.Pipeline(
            [toys.Filter(passed)] if passed else [], weighers)
        request = builders.request()
        found = decision.candidates(hosts, request)
        return decision.weigh(hosts, request, found)

    def test_scaled_scores_are_multiplied_and_added_up(self):
        found = self.weigh(
            [toys.Weigher([0, 5, 10], 2.0), toys.Weigher([4.0, 2.0, 0.0], -1)],
            builders.hosts(3))

        self.assertEqual([-1.0, 0.5, 2.0], found.weights.tolist())
        self.assertEqual([2, 1, 0], list(found))

    def test_hosts_that_are_out_do_not_stretch_the_scale(self):
        found = self.weigh([toys.Weigher([1000, 1, 3, 2])],
                           builders.hosts(4), [False, True, True, True])

        self.assertEqual([1, 2, 3], found.rows.tolist())
        self.assertEqual([0.0, 1.0, 0.5], found.weights.tolist())

    def test_multiplier_may_differ_from_host_to_host(self):
        found = self.weigh(
            [toys.Weigher([9, 0, 1, 1], np.array([0, 1, 2, -1]))],
            builders.hosts(4), [False, True, True, True])

        self.assertEqual([0.0, 2.0, -1.0], found.weights.tolist())

    def test_fewer_than_two_hosts_are_not_weighed(self):
        for count in (0, 1):
            found = self.weigh([toys.Weigher(toys.fail)],
                               builders.hosts(count))
            self.assertEqual([0.0] * count, found.weights.tolist())
            self.assertEqual(list(range(count)), list(found))

    def test_multiplier_of_zero_turns_a_weigher_off(self):
        found = self.weigh([toys.Weigher(toys.fail, 0)], builders.hosts(2))

        self.assertEqual([0.0, 0.0], found.weights.tolist())

    def test_failing_weigher_is_named(self):
        for broken in (toys.Weigher(toys.fail), toys.Weigher([1]),
                       toys.Weigher([float('nan'), 1.0]),
                       toys.Weigher([1, 2], times=math.inf)):
            error = self.assertRaises(exception.PluginFailed, self.weigh,
                                      [broken], builders.hosts(2))
            self.assertEqual('Weigher', error.plugin)


class TestPlugins(base.TestCase):

    def test_failing_filter_is_named(self):
        for broken in (toys.Filter(toys.fail), toys.Filter([True, False])):
            decision = pipeline.Pipeline([broken], [])
            error = self.assertRaises(
                exception.PluginFailed, decision.candidates,
                builders.hosts(1), builders.request())
            self.assertEqual('Filter', error.plugin)

    def test_filter_that_fails_at_the_request_is_named(self):
        for method in ('applies', 'located'):
            broken = toys.Filter([True])
            setattr(broken, method, toys.fail)
            decision = pipeline.Pipeline([broken], [])
            error = self.assertRaises(
                exception.PluginFailed, decision.located, builders.request())
            self.assertEqual('Filter', error.plugin)

    def test_generator_that_fails_late_is_named(self):
        def locate(request):
            yield 'a'
            toys.fail()

        broken = toys.Filter([True])
        broken.located = locate
        decision = pipeline.Pipeline([broken], [])

        self.assertRaises(exception.PluginFailed, decision.located,
                          builders.request())

    def test_instances_to_locate_are_those_of_the_filters_that_apply(self):
        decision = pipeline.Pipeline(
            [toys.Filter([], located=['a', 'b']),
             toys.Filter([], located=['b', 'c']),
             toys.Filter([], located=['d'], applies=False)], [])

        self.assertEqual({'a', 'b', 'c'},
                         decision.located(builders.request()))

    def test_hints_are_those_that_some_filter_reads(self):
        decision = pipeline.Pipeline(
            [toys.Filter([], hints=['a']), toys.Filter([], hints=['b', 'a'])],
            [])

        self.assertEqual({'a', 'b'}, decision.hints)


class TestAgainstRows(base.TestCase):
    """The decision on columns is the one on rows."""

    def has_room(self, host, flavor):
        """Return whether there is room; none of something always fits."""
        vcpus = int(host['vcpus_total'] * host['cpu_allocation_ratio'])
        return all(wanted == 0 or room >= wanted for wanted, room in (
            (flavor.vcpus, vcpus - host['vcpus_used']),
            (flavor.vcpus, host['vcpus_total']),
            (flavor.memory_mb, host['free_ram_mb']),
            (flavor.root_gb, host['free_disk_mb'] // 1024)))

    def plain(self, table, request, limit, multipliers):
        """Return passing rows and their weights, host by host."""
        rows_in = [
            row for row, host in enumerate(table)
            if test_compute.keeps(host, 60)
            and host['num_instances'] < limit
            and (request.availability_zone or host['availability_zone'])
            == host['availability_zone']
            and self.has_room(host, request.flavor)]
        weights = [0.0] * len(rows_in)
        scores = (
            lambda host: host['free_ram_mb'],
            lambda host: host['vcpus_total'] * host['cpu_allocation_ratio']
            - host['vcpus_used'],
            lambda host: host['free_disk_mb'])
        if len(rows_in) > 1:
            for score, multiplier in zip(scores, multipliers):
                parts = test_ranking.scaled(
                    [score(table[row]) for row in rows_in], 0, None)
                weights = [weight + multiplier * part
                           for weight, part in zip(weights, parts)]
        return rows_in, weights

    @hypothesis.given(
        table=rows.ROWS, limit=strategies.integers(1, 5),
        multipliers=strategies.tuples(
            *[strategies.sampled_from([-1.5, 0.0, 1.0, 3.0])] * 3),
        zone=strategies.sampled_from([None, 'east', 'west', 'north']),
        vcpus=strategies.integers(0, 3),
        memory_mb=strategies.integers(0, 4096),
        root_gb=strategies.integers(0, 3))
    @hypothesis.settings(rows.settings, max_examples=100)
    def test_hosts_weights_and_order_are_the_same(
            self, table, limit, multipliers, zone, vcpus, memory_mb, root_gb):
        decision = pipeline.Pipeline(
            [builders.plugin(availability_zone.AvailabilityZoneFilter),
             builders.plugin(compute.ComputeFilter),
             builders.plugin(num_instances.NumInstancesFilter,
                             max_instances_per_host=limit)],
            [builders.plugin(kind, **{kind.multiplier_name: multiplier})
             for kind, multiplier in zip(
                 (ram.RAMWeigher, cpu.CPUWeigher, disk.DiskWeigher),
                 multipliers)])
        hosts = rows.hosts(table)
        request = builders.request(
            availability_zone=zone, vcpus=vcpus, memory_mb=memory_mb,
            root_gb=root_gb)

        found = decision.candidates(hosts, request)
        ranked = decision.weigh(hosts, request, found)

        rows_in, weights = self.plain(table, request, limit, multipliers)
        self.assertEqual(rows_in, ranked.rows.tolist())
        self.assertEqual(weights, ranked.weights.tolist())
        order = sorted(range(len(weights)), key=lambda at: -weights[at])
        self.assertEqual([rows_in[at] for at in order], list(ranked))
