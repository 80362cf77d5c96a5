# SPDX-License-Identifier: Apache-2.0
"""Room for what a request takes."""

import inspect
import itertools
from unittest import mock

import hypothesis
from hypothesis import strategies
from hypothesis import strategies as st
import numpy as np

from cellsched import exception
from cellsched.objects import request_groups
from cellsched.scheduler.decision import allocation
from cellsched.scheduler.decision import capacity
from cellsched.testing import builders
from tests import profile
from tests.unit import base
from tests.unit.hosts import rows
from tests.unit.scheduler.decision import test_provider_groups


class TestCapacity(base.TestCase):

    def test_host_with_less_than_the_demand_is_rejected(self):
        hosts = builders.hosts(available={'CUSTOM_X': [3, 2, 1, 0, -1]})
        stage = capacity.Capacity('CUSTOM_X', 2)

        self.assertEqual([True, True, False, False, False],
                         stage.keep(hosts, builders.request()).tolist())

    def test_class_unknown_to_all_hosts_rejects_all_hosts(self):
        stage = capacity.Capacity('CUSTOM_Y', 1)

        self.assertEqual([False, False], stage.keep(
            builders.hosts(2), builders.request()).tolist())

    def test_shortfall_is_the_missing_amount_with_its_unit(self):
        hosts = builders.hosts(available={'MEMORY_MB': [100, 512, 600]})

        amounts, unit = capacity.Capacity('MEMORY_MB', 512).shortfall(
            hosts, builders.request())

        self.assertEqual(([412, 0, -88], 'MB'), (amounts.tolist(), unit))

    def test_reason_is_readable(self):
        self.assertEqual(
            ['lacks CPUs', 'lacks memory', 'lacks disk', 'lacks CUSTOM_X'],
            [capacity.Capacity(resource, 1).reason for resource
             in ('VCPU', 'MEMORY_MB', 'DISK_GB', 'CUSTOM_X')])

    def test_placement_can_change_the_verdict(self):
        self.assertFalse(capacity.Capacity.run_filter_once_per_request)
        self.assertTrue(inspect.getdoc(capacity.Capacity))

    @hypothesis.given(table=rows.ROWS, wanted=strategies.integers(1, 100))
    def test_column_verdict_equals_row_verdicts(self, table, wanted):
        hosts = rows.hosts(table)
        stage = capacity.Capacity('VCPU', wanted)
        expected = [int(row['vcpus_total'] * row['cpu_allocation_ratio'])
                    - row['vcpus_used'] >= wanted for row in table]

        some = hosts.at(np.arange(len(table)))
        self.assertEqual(
            expected, stage.keep(some, builders.request()).tolist())
        if all(expected):
            self.assertIsNone(stage.keep(hosts, builders.request()))
        else:
            self.assertEqual(
                expected, stage.keep(hosts, builders.request()).tolist())


class TestSize(base.TestCase):

    def test_host_smaller_than_the_server_is_rejected(self):
        hosts = builders.hosts(vcpus_total=[1, 2, 3])
        stage = capacity.Size('VCPU', 2)

        self.assertEqual([False, True, True], stage.keep(
            hosts, builders.request()).tolist())

    def test_shortfall_is_the_missing_amount_with_its_unit(self):
        hosts = builders.hosts(total_usable_disk_gb=[1, 9])

        amounts, unit = capacity.Size('DISK_GB', 5).shortfall(
            hosts, builders.request())

        self.assertEqual(([4, -4], 'GB'), (amounts.tolist(), unit))

    def test_reason_is_readable(self):
        self.assertEqual('is too small in memory',
                         capacity.Size('MEMORY_MB', 1).reason)

    def test_placement_cannot_change_the_verdict(self):
        self.assertTrue(capacity.Size.run_filter_once_per_request)

    def test_maximum_unit_below_the_total_limits_the_size(self):
        hosts = builders.hosts(
            vcpus_total=[8, 8, 8, 1], units=[
                (('VCPU', 1, 4, 1),), (('VCPU', 1, 16, 1),), (), ()])
        stage = capacity.Size('VCPU', 5)

        self.assertEqual([False, True, True, False], stage.keep(
            hosts, builders.request()).tolist())
        self.assertEqual([1, -3, -3, 4], stage.shortfall(
            hosts, builders.request())[0].tolist())

    def test_custom_classes_are_limited_only_by_their_inventory(self):
        hosts = builders.hosts(units=[
            (('CUSTOM_X', 1, 2, 1),), (('CUSTOM_Y', 1, 1, 1),)])

        for amount, expected in (2, None), (3, [False, True]):
            kept = capacity.Size('CUSTOM_X', amount).keep(
                hosts, builders.request())
            self.assertEqual(
                expected, kept if kept is None else kept.tolist())

    def test_some_hosts_are_looked_at_as_all_are(self):
        hosts = builders.hosts(
            vcpus_total=[1, 2, 3, 4], units=[
                (), (), (('VCPU', 1, 1, 1),), ()])

        self.assertEqual([True, False, True], capacity.Size('VCPU', 2).keep(
            hosts.at(np.array([1, 2, 3])), builders.request()).tolist())

    def test_size_of_each_class_is_remembered(self):
        smallest = {'VCPU': 2, 'MEMORY_MB': 2048, 'DISK_GB': 20}
        for first, second in itertools.permutations(smallest, 2):
            hosts = builders.hosts(
                vcpus_total=[2, 8], total_usable_ram_mb=[2048, 8192],
                total_usable_disk_gb=[20, 80])
            for resource in (first, second, first):
                least = smallest[resource]
                # With room on the smallest host, none is compared.
                self.assertIsNone(capacity.Size(resource, least).keep(
                    hosts, builders.request()))
                self.assertEqual(
                    [False, True], capacity.Size(resource, least + 1).keep(
                        hosts, builders.request()).tolist())

    def test_empty_table_rejects_no_host(self):
        self.assertIsNone(capacity.Size('VCPU', 10).keep(
            builders.hosts(0), builders.request()))


class TestStepSize(base.TestCase):

    def setUp(self):
        super().setUp()
        self.hosts = builders.hosts(units=[
            (), (('CUSTOM_X', 4, 64, 1),), (('CUSTOM_X', 1, 64, 4),),
            (('CUSTOM_X', 8, 64, 8),)])

    def test_amount_is_a_multiple_and_no_less_than_the_least(self):
        for amount, expected in (
                (1, [True, False, False, False]),
                (4, [True, True, True, False]),
                (6, [True, True, False, False]),
                (8, [True, True, True, True])):
            stage = capacity.StepSize('CUSTOM_X', amount)
            self.assertEqual(expected, stage.keep(
                self.hosts, builders.request()).tolist())
            self.assertEqual(expected[1::2], stage.keep(
                self.hosts.at(np.array([1, 3])), builders.request()).tolist())

    def test_classes_without_bounds_are_not_looked_at(self):
        stage = capacity.StepSize('CUSTOM_Y', 1)

        self.assertIsNone(stage.keep(self.hosts, builders.request()))
        self.assertFalse(stage.restricts(self.hosts))

    def test_reason_is_readable_and_shortfall_is_none(self):
        stage = capacity.StepSize('CUSTOM_X', 1)

        self.assertEqual(
            ('step:CUSTOM_X', 'gives CUSTOM_X in other amounts', None),
            (stage.name, stage.reason,
             stage.shortfall(self.hosts, builders.request())))


class TestStages(base.TestCase):

    def test_each_class_of_the_request_has_a_stage(self):
        for amounts, fields in (
                ({'VCPU': 2, 'MEMORY_MB': 512, 'DISK_GB': 5}, {
                    'root_gb': 1, 'ephemeral_gb': 2, 'swap': 1025}),
                ({'VCPU': 2, 'MEMORY_MB': 512}, {'root_gb': 0}),
                # Extra specs override the fields of the flavor.
                ({'MEMORY_MB': 7, 'DISK_GB': 1, 'CUSTOM_GOLD': 1}, {
                    'root_gb': 1, 'extra_specs': {
                        'resources:CUSTOM_GOLD': '1', 'resources:VCPU': '0',
                        'resources:MEMORY_MB': '7'}})):
            stages = capacity.stages(builders.hosts(1), builders.request(
                vcpus=2, memory_mb=512, **fields))

            self.assertEqual(
                {f'capacity:{name}': amount
                 for name, amount in amounts.items()},
                {stage.name: stage.amount for stage in stages
                 if isinstance(stage, capacity.Capacity)})

    def test_size_is_checked_before_capacity(self):
        stages = capacity.stages(builders.hosts(1), builders.request())

        self.assertEqual(
            ['size:VCPU', 'size:MEMORY_MB', 'size:DISK_GB', 'capacity:VCPU',
             'capacity:MEMORY_MB', 'capacity:DISK_GB'],
            [stage.name for stage in stages])

    def test_steps_are_checked_if_a_host_has_steps(self):
        request = builders.request(extra_specs={'resources:CUSTOM_X': '1'})
        for units, expected in (
                ((), []), ((('CUSTOM_X', 1, 8, 1),), []),
                ((('CUSTOM_Y', 2, 8, 2),), []),
                ((('CUSTOM_X', 2, 8, 1),), ['step:CUSTOM_X']),
                ((('CUSTOM_X', 1, 8, 2),), ['step:CUSTOM_X'])):
            hosts = builders.hosts(2, units=[(), units])
            self.assertEqual(
                expected, [stage.name for stage
                           in capacity.stages(hosts, request)
                           if isinstance(stage, capacity.StepSize)], units)

    def test_invalid_amount_is_refused(self):
        for amount in (-1, -2 ** 63, 2 ** 31, 2 ** 63, 2 ** 70):
            error = self.assertRaises(
                exception.InvalidField, capacity.stages,
                builders.hosts(1), builders.request(memory_mb=amount))
            self.assertEqual('resources.MEMORY_MB', error.field)

    def test_zero_amount_is_refused(self):
        class Request:
            def resources(self):
                return {'CUSTOM_X': 0}

            def group_demand(self):
                return request_groups.NO_GROUPS

        self.assertRaises(
            exception.InvalidField, capacity.stages, builders.hosts(1),
            Request())


Provider = test_provider_groups.Provider
ask = test_provider_groups.ask
make = test_provider_groups.make

more_ = st.lists(st.integers(0, 9), min_size=2, max_size=2)


@st.composite
def hosts_(draw):
    root, *children = draw(test_provider_groups.trees())
    for each in (root, *children):
        each.amounts = dict(zip(test_provider_groups.CLASSES, draw(more_)))
    return [root, *children]


def counts(table, request):
    return capacity.counts(table.view(builders.NOW), request).tolist()


def group(amount):
    """Return a numbered group."""
    return {'resources': {'CUSTOM_A': amount}, 'required_traits': [],
            'forbidden_traits': [], 'in_tree': None, 'aggregates': [],
            'forbidden_aggregates': []}


def placed(table, request):
    """Return how many fit each host, by taking them one after the other."""
    hosts = table.view(builders.NOW)
    wants = capacity.provider_demand(hosts, request, request.resources())
    found = [0] * len(hosts)
    for host in range(len(hosts)):
        while (given := allocation.allocate(hosts, host, wants)) is not None:
            hosts.take(host, given.resources)
            found[host] += 1
    return found


class TestServerCounts(base.TestCase):

    @profile.many_examples
    @hypothesis.given(
        hosts=st.lists(hosts_(), min_size=1, max_size=4),
        zones=st.lists(test_provider_groups.zones_, min_size=4, max_size=4),
        pools=st.lists(st.builds(
            Provider, more_, test_provider_groups.traits_, st.none(),
            test_provider_groups.units_), max_size=2),
        amounts=st.fixed_dictionaries(
            {name: st.integers(0, 2)
             for name in test_provider_groups.CLASSES}),
        groups=st.lists(test_provider_groups.groups_(), max_size=3),
        policy=st.sampled_from(['none', 'isolate']),
        near=st.booleans(), traits=st.dictionaries(
            st.sampled_from(test_provider_groups.TRAITS),
            st.sampled_from(['required', 'forbidden'])))
    def test_count_equals_the_number_of_placed_servers(
            self, hosts, zones, pools, amounts, groups, policy, near, traits):
        zones = zones[:len(hosts)]
        subtrees = [range(len(groups))] if near and groups else []
        request = ask(amounts, groups, policy, subtrees, traits)
        table = make(hosts, zones, pools)
        view = table.view(builders.NOW)
        hypothesis.assume(capacity.provider_demand(
            view, request, request.resources()) is not None)

        self.assertEqual(placed(table, request), counts(table, request))

    def test_shared_provider_counts_once(self):
        hosts = [[Provider()] for _ in range(3)]
        table = make(hosts, [{0}, {0}, {0}], [Provider((11, 0))])

        # Each has CPUs for 8; the pool has enough for 5.
        self.assertEqual([5, 0, 0], counts(table, ask({'CUSTOM_A': 2})))
        self.assertEqual([5, 0, 0], counts(table, ask(groups=[group(2)])))

    def test_equal_hosts_are_computed_once(self):
        hosts = [[Provider(), Provider((4, 0)), Provider((4, 0))]
                 for _ in range(50)]
        with mock.patch.object(
                allocation, 'assign', wraps=allocation.assign) as assign:
            self.assertEqual([4] * 50, counts(
                make(hosts), ask(groups=[group(2)])))

        self.assertEqual(5, assign.call_count)

    def test_hosts_with_different_trees_are_computed_separately(self):
        hosts = [[Provider(), Provider((4, 0))] for _ in range(2)]
        request = ask(groups=[
            {**group(2), 'in_tree': test_provider_groups.uuid_of(1, 1)}])

        self.assertEqual([0, 2], counts(make(hosts), request))

    def test_unlimited_capacity_is_counted_to_a_bound(self):
        request = ask(groups=[group(1)])
        request.flavor.extra_specs |= {
            f'resources:{name}': '0'
            for name in ('VCPU', 'MEMORY_MB', 'DISK_GB')}
        table = make([[Provider()]], [{0}], [Provider((10 ** 6, 0))])
        with mock.patch.object(capacity, 'ONE_BY_ONE_MAX', 100):
            self.assertEqual([100], counts(table, request))
