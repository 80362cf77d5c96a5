# SPDX-License-Identifier: Apache-2.0
"""The decision."""

import hypothesis
from hypothesis import strategies

from cellsched import exception
from cellsched.filters import availability_zone
from cellsched.filters import compute
from cellsched.filters import num_instances
from cellsched.scheduler.decision import pipeline
from cellsched.testing import builders
from cellsched.weighers import resources
from tests.unit import base
from tests.unit.filters import test_compute
from tests.unit.hosts import rows
from tests.unit.scheduler.decision import test_ranking
from tests.unit.scheduler import toys


class TestCandidates(base.TestCase):

    def decide(self, filters, hosts, **request):
        self.pipeline = pipeline.Pipeline(filters, [])
        self.request = builders.request(**request)
        return self.pipeline.candidates(hosts, self.request)

    def counts(self, found):
        return [(each.by, each.hosts)
                for each in found.rejections(self.request)]

    def test_host_is_counted_at_its_first_rejection(self):
        hosts = builders.hosts(available={'MEMORY_MB': [0, 0, 512, 512, 512]})
        found = self.decide(
            [toys.Filter([False, True, False, True, True])], hosts)

        self.assertEqual([('capacity:MEMORY_MB', 2), ('Filter', 1)],
                         self.counts(found))

    def test_stages_are_skipped_without_hosts(self):
        never = toys.Filter([])
        hosts = builders.hosts(0)

        found = self.decide([never], hosts)

        self.assertEqual((0, 0), (len(found), never.asked))
        self.assertEqual([], self.counts(found))

    def test_inapplicable_filter_is_not_called(self):
        idle = toys.Filter([False], applies=False)

        found = self.decide([idle], builders.hosts(1))

        self.assertEqual((1, 0), (len(found), idle.asked))

    def test_capacity_is_not_checked_without_needs(self):
        decision = pipeline.Pipeline(
            [], [], needs=lambda hosts, request: ())

        found = decision.candidates(
            builders.hosts(2, available={'VCPU': 0}), builders.request())

        self.assertEqual([0, 1], found.rows.tolist())

    def test_capacity_is_needed_for_all_resources(self):
        hosts = builders.hosts(available={
            'VCPU': [1, 2, 2, 2], 'MEMORY_MB': [9, 8, 9, 9],
            'DISK_GB': [3, 3, 2, 3]})

        found = self.decide([], hosts, vcpus=2, memory_mb=9, root_gb=3)

        self.assertEqual([3], found.rows.tolist())
        self.assertEqual(
            [('capacity:VCPU', 1), ('capacity:MEMORY_MB', 1),
             ('capacity:DISK_GB', 1)], self.counts(found))

    def test_server_larger_than_a_host_does_not_fit_an_empty_host(self):
        hosts = builders.hosts(vcpus_total=[8, 9], cpu_allocation_ratio=4.0)

        found = self.decide([], hosts, vcpus=9)

        self.assertEqual([1], found.rows.tolist())
        self.assertEqual([('size:VCPU', 1)], self.counts(found))

    def test_column_returned_as_mask_is_not_modified(self):
        hosts = builders.hosts(service_disabled=[True, False])

        self.decide([toys.Filter(lambda it: it['service_disabled']),
                     toys.Filter([False, True])], hosts)

        self.assertEqual([True, False], hosts['service_disabled'].tolist())

    def test_destinations_are_checked_before_filters_and_capacity(self):
        order = []

        class Noting(toys.Filter):
            def keep(self, hosts, request):
                order.append((self.answer, len(hosts)))

        hosts = builders.hosts(available={'VCPU': [0, 8]})
        decision = pipeline.Pipeline(
            [Noting('filter')], [], [Noting('destination')])

        decision.candidates(hosts, builders.request())

        self.assertEqual(['destination', 'filter'],
                         [name for name, _ in order])
        found = decision.candidates(hosts, builders.request())
        self.assertEqual([1], found.rows.tolist())

    def test_forced_request_passes_filters_by(self):
        strict = toys.Filter([False, False])
        destination = toys.Filter([True, False])
        decision = pipeline.Pipeline([strict], [], [destination])

        for forced in ('force_hosts', 'force_nodes'):
            found = decision.candidates(
                builders.hosts(2), builders.request(**{forced: ['host1']}))
            self.assertEqual([0], found.rows.tolist())
        self.assertEqual(0, strict.asked)
        # Room it needs all the same.
        found = decision.candidates(
            builders.hosts(2, available={'VCPU': 0}),
            builders.request(force_hosts=['host1']))
        self.assertEqual(0, len(found))

    def test_rebuild_runs_only_its_filters(self):
        image = toys.Filter([True, False], rebuild=True)
        other = toys.Filter([False, False])
        decision = pipeline.Pipeline([other, image], [], [other])

        found = decision.candidates(
            builders.hosts(2, available={'VCPU': 0}), builders.request(),
            rebuild=True)

        self.assertEqual([0], found.rows.tolist())
        self.assertEqual(0, other.asked)


class TestPlugins(base.TestCase):

    def test_fewer_than_two_hosts_are_not_weighed(self):
        decision = pipeline.Pipeline([], [toys.Weigher(toys.fail)])
        request = builders.request()
        for count in (0, 1):
            found = decision.weigh(request, decision.candidates(
                builders.hosts(count), request))
            self.assertEqual([0.0] * count, found.weights.tolist())
            self.assertEqual(list(range(count)), list(found))

    def test_late_failure_of_a_generator_is_named(self):
        def locate(request):
            yield 'a'
            toys.fail()

        broken = toys.Filter([True])
        broken.located = locate
        decision = pipeline.Pipeline([broken], [])

        self.assertRaises(exception.PluginFailed, decision.located,
                          builders.request())

    def test_instances_are_located_for_applicable_plugins(self):
        class Weigher(toys.Weigher):

            def located(self, request):
                return ['e']

        decision = pipeline.Pipeline(
            [toys.Filter([], located=['a', 'b']),
             toys.Filter([], located=['b', 'c']),
             toys.Filter([], located=['d'], applies=False)],
            [toys.Weigher(None), Weigher(None)],
            [toys.Filter([], located=['f'])])

        self.assertEqual({'a', 'b', 'c', 'e', 'f'},
                         decision.located(builders.request()))

    def test_unsupported_policy_is_refused_before_any_host(self):
        never = toys.Filter(toys.fail)
        serving = toys.Filter(None)
        serving.serves = frozenset(['affinity'])

        error = self.assertRaises(
            exception.InvalidField,
            pipeline.Pipeline([serving, never], []).candidates,
            builders.hosts(2), builders.request(
                group={'policy': 'anti-affinity'}))

        self.assertEqual(('server group', 'policy'),
                         (error.where, error.field))
        request = builders.request(group={'policy': 'affinity'})
        self.assertEqual(2, len(pipeline.Pipeline([serving], []).candidates(
            builders.hosts(2), request)))

    def test_hints_are_collected_from_all_filters(self):
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
    def test_hosts_weights_and_order_are_the_same(
            self, table, limit, multipliers, zone, vcpus, memory_mb, root_gb):
        decision = pipeline.Pipeline(
            [builders.plugin(availability_zone.AvailabilityZoneFilter),
             builders.plugin(compute.ComputeFilter),
             builders.plugin(num_instances.NumInstancesFilter,
                             max_instances_per_host=limit)],
            [builders.plugin(kind, **{kind.multiplier_name: multiplier})
             for kind, multiplier in zip(
                 (resources.RAMWeigher, resources.CPUWeigher,
                  resources.DiskWeigher),
                 multipliers)])
        hosts = rows.hosts(table)
        request = builders.request(
            availability_zone=zone, vcpus=vcpus, memory_mb=memory_mb,
            root_gb=root_gb)

        found = decision.candidates(hosts, request)
        ranked = decision.weigh(request, found)

        rows_in, weights = self.plain(table, request, limit, multipliers)
        self.assertEqual(rows_in, ranked.rows.tolist())
        self.assertEqual(weights, ranked.weights.tolist())
        order = sorted(range(len(weights)), key=lambda at: -weights[at])
        self.assertEqual([rows_in[at] for at in order], list(ranked))
