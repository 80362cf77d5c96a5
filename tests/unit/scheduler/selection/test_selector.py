# SPDX-License-Identifier: Apache-2.0
"""Choosing for the instances of one request, one after the other."""

import collections
import random

import numpy as np

from cellsched import exception
from cellsched.filters import compute
from cellsched.filters import numa_topology
from cellsched.hardware import fit
from cellsched.hardware import host
from cellsched.hardware import units
from cellsched.scheduler.decision import pipeline
from cellsched.scheduler.decision import ranking
from cellsched.scheduler.selection import claims
from cellsched.scheduler.selection import selector
from cellsched.scheduler.selection.selector import SelectionPolicy
from cellsched.scheduler.selection.selector import Selector
from cellsched.testing import builders
from tests.unit import base
from tests.unit.scheduler import toys


class TestSelectionPolicy(base.TestCase):

    def ranked(self, weights):
        return ranking.Ranking(
            builders.hosts(len(weights)), None,
            [ranking.WeightPart(
                toys.Weigher(None), np.array(weights, dtype='float64'),
                float(max(weights) - min(weights)), None)]
            if weights else [])

    def picked(self, weights, times=300, width=None, **policy):
        """Return how often each row is chosen.

        Weights are scaled to 0..1 and multiplied by their range.
        """
        chosen = SelectionPolicy(random.Random(0), **policy)
        ranked = self.ranked(weights)
        return collections.Counter(
            next(iter(chosen.pick(ranked, width)), None)
            for _ in range(times))

    def test_best_is_chosen_and_of_equals_the_first(self):
        self.assertEqual({1: 300}, self.picked([1, 9, 9, 8]))

    def test_host_is_chosen_at_random_from_the_subset(self):
        found = self.picked([1, 9, 9, 8], subset_size=3)

        self.assertEqual({1, 2, 3}, set(found))
        self.assertGreater(min(found.values()), 60)

    def test_subset_may_exceed_the_number_of_hosts(self):
        self.assertEqual({0, 1}, set(self.picked([1, 2], subset_size=9)))

    def test_equals_are_shuffled(self):
        found = self.picked([1, 9, 9, 8, 9], shuffle=True)

        self.assertEqual({1, 2, 4}, set(found))
        self.assertGreater(min(found.values()), 60)

    def test_shuffled_subset_includes_next_best_hosts(self):
        self.assertEqual({1, 3}, set(self.picked(
            [1, 9, 0, 8], shuffle=True, subset_size=2)))
        self.assertEqual({1, 2, 4}, set(self.picked(
            [1, 9, 9, 8, 9], shuffle=True, subset_size=2)))

    def test_of_equals_the_first_from_a_place_on_is_chosen(self):
        weights = [9, 1, 9, 8]
        for start, row in ((0.0, 0), (0.25, 2), (0.5, 2), (0.75, 0),
                           (0.999, 0)):
            self.assertEqual({row: 300}, self.picked(weights, start=start))
        self.assertEqual({1: 300}, self.picked([1, 9, 8, 8], start=0.75))

    def test_width_widens_the_subset_of_a_request(self):
        found = self.picked([1, 9, 7, 8], width=3)

        self.assertEqual({1, 2, 3}, set(found))
        self.assertGreater(min(found.values()), 60)
        self.assertEqual({1, 2, 3}, set(self.picked(
            [1, 9, 7, 8], width=1, subset_size=3)))

    def test_width_excludes_hosts_with_far_lower_weights(self):
        weights = [0, -1e6, 9, 1, -11]

        self.assertEqual({0, 2, 3}, set(self.picked(weights, width=5)))
        # Who configured that for all requests has it.
        self.assertEqual({0, 2, 3, 4}, set(self.picked(
            weights, width=5, subset_size=4)))
        self.assertEqual({0}, set(self.picked([0, -11, -1e6], width=5)))

    def test_width_applies_to_shuffled_ties(self):
        self.assertEqual({0, 1, 2}, set(self.picked(
            [9, 9, 8, 7], width=3, shuffle=True)))

    def test_empty_ranking_has_no_choice(self):
        for policy in ({}, {'subset_size': 3}, {'shuffle': True},
                       {'start': 0.5}, {'width': 3}):
            self.assertEqual({None: 1}, self.picked([], 1, **policy))

    def test_choice_depends_on_the_random_source(self):
        class Last:
            shuffle = staticmethod(lambda rows: rows.reverse())
            choice = staticmethod(lambda rows: rows[-1])

        ranked = ranking.Ranking(builders.hosts(3))
        self.assertEqual([2], SelectionPolicy(Last(), 3).pick(ranked))
        self.assertEqual(
            [2], SelectionPolicy(Last(), 1, True).pick(ranked))

    def rows(self, weights, count, **policy):
        return SelectionPolicy(random.Random(0), **policy).pick(
            self.ranked(weights), count=count)

    def test_next_rows_are_in_the_order_of_weights(self):
        weights = [1, 9, 7, 9, 8]

        self.assertEqual([1, 3, 4, 2, 0], self.rows(weights, 9))
        self.assertEqual([1, 3, 4], self.rows(weights, 3))
        # Equals follow from the place where this scheduler begins.
        self.assertEqual([3, 1, 4], self.rows(weights, 3, start=0.5))

    def test_next_rows_begin_with_the_subset(self):
        weights = [1, 9, 7, 9, 8]

        rows = self.rows(weights, 5, subset_size=3)
        self.assertEqual({1, 3, 4}, {*rows[:3]})
        self.assertEqual([2, 0], rows[3:])
        self.assertEqual({1, 3}, {*self.rows(
            weights, 2, subset_size=2, shuffle=True)})


class TestWidth(base.TestCase):

    def setUp(self):
        super().setUp()
        self.hosts = builders.hosts(
            host=['up', 'dead', 'two', 'TWO', 'out', 'forced'],
            last_seen_up=[builders.NOW - old for old in (0, 61, 0, 61, 0, 0)],
            service_disabled=[False, False, False, False, True, False],
            forced_down=[False, False, False, False, False, True])

    def width(self, refusals=0, ignore_hosts=None, **policy):
        return SelectionPolicy(random.Random(0), **{
            'refused_subset_size': 32, 'evacuation_subset_size': 10,
            'takes_servers': builders.plugin(compute.ComputeFilter),
            **policy}).width(self.hosts, builders.request(
                ignore_hosts=ignore_hosts), refusals)

    def test_width_grows_with_refusals_up_to_a_bound(self):
        self.assertEqual(
            [1, 4, 16, 32, 32, 32],
            [self.width(refused) for refused in (0, 1, 2, 3, 4, 10 ** 9)])
        self.assertEqual([5, 5, 16], [
            self.width(refused, subset_size=5) for refused in range(3)])
        self.assertEqual(64, self.width(9, subset_size=64))
        self.assertEqual(1, self.width(9, refused_subset_size=1))

    def test_server_leaving_an_unusable_host_is_an_evacuation(self):
        for hosts in (['dead'], ['TWO'], ['out'], ['forced'], ['DEAD'],
                      ['up', 'dead'], ['gone', 'dead']):
            self.assertEqual(10, self.width(ignore_hosts=hosts), hosts)
        for hosts in (None, [], ['up'], ['two'], ['gone']):
            self.assertEqual(1, self.width(ignore_hosts=hosts), hosts)

    def test_evacuation_has_the_larger_width(self):
        for refusals, wanted in ((0, 10), (1, 10), (2, 16)):
            self.assertEqual(
                wanted, self.width(refusals, ignore_hosts=['dead']))
        self.assertEqual(12, self.width(
            ignore_hosts=['dead'], subset_size=12))
        self.assertEqual(1, self.width(
            ignore_hosts=['dead'], evacuation_subset_size=1))
        self.assertEqual(1, self.width(
            ignore_hosts=['dead'], takes_servers=None))


class TestChoosing(base.TestCase):

    def setUp(self):
        super().setUp()
        self.hosts = builders.hosts(
            cell=['a', 'a', 'a', 'b'], vcpus_total=4, cpu_allocation_ratio=1)
        self.uuids = self.hosts['uuid'].tolist()

    def selector(self, filters=(), lost=[], weigher=None, **request):
        request = {'vcpus': 4, **request}
        refused = claims.ClaimRefusals()
        for provider in lost * 2:
            refused.add(exception.ClaimRefused(
                provider=provider, resource='VCPU', amount=4, consumer='i'))
        return Selector(
            pipeline.Pipeline(
                filters, [weigher or toys.Weigher([9.0, 8.0, 7.0, 6.0])]),
            SelectionPolicy(random.Random(0)), self.hosts,
            builders.request(**request), refused)

    def names(self, selections):
        return [[each.service_host for each in some] for some in selections]

    def test_earlier_instances_reduce_the_capacity(self):
        chosen = self.selector()

        self.assertEqual([True, True], [
            chosen.choose('i', None, False), chosen.choose('j', None, True)])

        self.assertEqual([['host1', 'host3'], ['host2', 'host3']],
                         self.names(chosen.selections(2)))
        self.assertEqual([1, 1, 0, 0], self.hosts['num_instances'].tolist())

    def test_filters_locate_earlier_instances(self):
        apart = toys.Filter(
            lambda hosts: hosts.counts_of(['i', 'j']) == 0, local=True)
        chosen = self.selector([apart], vcpus=1)

        for uuid in 'ij':
            chosen.choose(uuid, None, uuid == 'j')

        self.assertEqual([['host1'], ['host2']],
                         self.names(chosen.selections(0)))

    def test_selection_without_hosts_has_a_diagnosis(self):
        chosen = self.selector()
        for uuid in 'ijkl':
            self.assertTrue(chosen.choose(uuid, None, False))

        self.assertFalse(chosen.choose('m', None, True))

        why = chosen.diagnosis(['north'], 5)
        self.assertEqual((4, 4, 5, ['north']), (
            why.hosts, why.placed, why.requested, why.silent))
        self.assertEqual([('capacity:VCPU', 4)], [
            (each.by, each.hosts) for each in why.rejections])
        self.assertEqual(
            {'capacity:VCPU': ['host1', 'host2', 'host3', 'host4']},
            {name: sorted(hosts) for name, hosts
             in chosen.examples().items() if hosts})

    def test_placed_instance_keeps_its_host(self):
        chosen = self.selector()

        self.assertTrue(chosen.choose('i', self.uuids[2], False))
        self.assertTrue(chosen.choose('j', None, True))

        self.assertEqual([['host3', 'host2'], ['host1', 'host2']],
                         self.names(chosen.selections(1)))
        self.assertEqual([1, 0, 0, 0], self.hosts['num_instances'].tolist())

    def test_host_unsuitable_for_the_image_is_not_kept(self):
        image = toys.Filter([True, True, False, True], rebuild=True)
        chosen = self.selector([image])

        self.assertTrue(chosen.choose('i', self.uuids[1], False))
        self.assertFalse(chosen.choose('j', self.uuids[2], True))

        why = chosen.diagnosis([], 2)
        self.assertEqual((1, [('Filter', 1)]), (why.placed, [
            (each.by, each.hosts) for each in why.rejections]))
        self.assertEqual({'Filter': ['host3']}, chosen.examples())

    def test_instance_on_an_unknown_host_is_not_placed(self):
        chosen = self.selector()

        self.assertFalse(chosen.choose('i', 'elsewhere', True))

        self.assertEqual([], chosen.diagnosis([], 1).rejections or [])

    def test_lost_hosts_are_passed_over_and_counted(self):
        chosen = self.selector(lost=[self.uuids[0], 'elsewhere'])

        chosen.choose('i', None, True)

        self.assertEqual([['host2', 'host3']],
                         self.names(chosen.selections(3)))
        self.assertEqual(1, chosen.diagnosis([], 1).lost)

    def test_lost_host_is_not_counted_as_rejected(self):
        chosen = self.selector(
            [toys.Filter([False, False, True, True])], lost=self.uuids[:1])

        chosen.choose('i', None, True)

        why = chosen.diagnosis([], 1)
        self.assertEqual((1, [('Filter', 1)]), (why.lost, [
            (each.by, each.hosts) for each in why.rejections]))
        self.assertEqual({'claims': ['host1'], 'Filter': ['host2']},
                         chosen.examples())

    def test_selection_has_the_fields_for_a_build(self):
        chosen = self.selector(memory_mb=7, root_gb=2)
        chosen.choose('i', None, True)

        [[selection]] = chosen.selections(0)

        self.assertEqual(
            (self.uuids[0], 'host1', 'host1', 'a', 'nova', '1.36'),
            (selection.compute_node_uuid, selection.service_host,
             selection.nodename, selection.cell_uuid,
             selection.availability_zone,
             selection.allocation_request_version))
        self.assertEqual({}, selection.limits.to_dict())
        self.assertIn('"VCPU": 4', selection.allocation_request)

    def test_limits_are_collected_from_the_filters(self):
        class Limiting(toys.Filter):
            def limits(self, hosts, request):
                return {'vcpu': hosts['vcpus_total'] * 2}

        for placed in None, self.uuids[2]:
            chosen = self.selector([Limiting(None)])
            chosen.choose('i', placed, True)

            [selections] = chosen.selections(1)

            self.assertEqual([{'vcpu': 8}] * 2, [
                each.limits.to_dict() for each in selections])

    def test_decision_has_the_chosen_hosts(self):
        chosen = self.selector([toys.Filter([True, True, False, True])])
        for uuid in 'ij':
            chosen.choose(uuid, None, uuid == 'j')

        told = chosen.decision()

        self.assertEqual(4, told.hosts)
        self.assertEqual(
            [('i', 3, 'host1', 'host2'), ('j', 2, 'host2', None)],
            [(pick.instance, pick.candidates, pick.first.host,
              pick.second and pick.second.host) for pick in told.picks])
        self.assertEqual(('Filter', 3, 2), (
            told.stages[-1].by, told.stages[-1].entered,
            told.stages[-1].left))

    def test_weights_are_updated_after_each_instance(self):
        used = toys.Weigher(lambda hosts: -hosts['num_instances'])
        chosen = self.selector(weigher=used, vcpus=1)

        for uuid in 'ijklm':
            chosen.choose(uuid, None, uuid == 'm')

        self.assertEqual(
            [['host1'], ['host2'], ['host3'], ['host4'], ['host1']],
            self.names(chosen.selections(0)))

    def test_filter_may_bring_hosts_back(self):
        def even(hosts):
            counts = hosts.whole['num_instances']
            return hosts['num_instances'] <= counts.min()

        apart = toys.Filter(even)
        for apart.reopens, expected in (
                (True, ['host1', 'host2', 'host3', 'host4', 'host1']),
                (False, ['host1', 'host2', 'host3', 'host4', 'host4'])):
            chosen = self.selector([apart], vcpus=1)

            for uuid in 'ijklm':
                chosen.choose(uuid, None, uuid == 'm')

            self.assertEqual(expected, [host for [host] in self.names(
                chosen.selections(0))])
            self.hosts.columns.give_back()


class TestHardware(base.TestCase):
    """Requests for NUMA cells on hosts whose CPUs are claimed by number."""

    UNUSED = host.HostTopology(tuple(
        host.HostCell(number, frozenset(), frozenset(
            range(4 * number, 4 * number + 4)), 4096, siblings=tuple(
                frozenset([cpu]) for cpu in range(4 * number, 4 * number + 4)))
        for number in range(2)))

    def selector(self, count, vcpus=3, packs=False, **columns):
        hosts = builders.hosts(
            numa_topology=[self.UNUSED] * count,
            available={'PCPU': 8, **units.inventory(
                self.UNUSED, (), fit.Ratios())}, **columns)
        return Selector(
            pipeline.Pipeline(
                [builders.plugin(numa_topology.NUMATopologyFilter)], [],
                packs_cells=packs),
            SelectionPolicy(random.Random(0)), hosts, builders.request(
                vcpus=vcpus, memory_mb=64, root_gb=0, extra_specs={
                    'hw:cpu_policy': 'dedicated'}))

    def cpus(self, chosen):
        """Return the numbers of the claimed CPUs of each server."""
        return [sorted(int(name.rpartition('_')[2])
                       for each in server.amounts.values() for name in each
                       if name.startswith('CUSTOM_PCPU_'))
                for server in chosen]

    def test_servers_of_a_request_claim_different_cpus(self):
        found = self.selector(2, claims_hardware=True)
        chosen = [found.choose(str(number), None, False)
                  for number in range(5)]

        self.assertEqual([True] * 4 + [False], chosen)
        self.assertEqual([[0, 1, 2], [4, 5, 6]] * 2,
                         sorted(self.cpus(found.chosen())[:2]) + sorted(
                             self.cpus(found.chosen())[2:]))

    def test_packed_servers_share_a_cell(self):
        for packs, expected in (False, [[0], [4]]), (True, [[0], [1]]):
            found = self.selector(1, 1, packs, claims_hardware=True)
            self.assertTrue(all(
                found.choose(each, None, False) for each in 'ab'))
            self.assertEqual(expected, self.cpus(found.chosen()))

    def test_selection_names_the_claimed_cpus(self):
        found = self.selector(1, claims_hardware=True)
        self.assertTrue(found.choose('a', None, True))
        [[selection]] = found.selections(0)

        [amounts] = selection.requested().values()
        self.assertEqual(1, amounts['CUSTOM_PCPU_0'])
        self.assertEqual(64, amounts['CUSTOM_NUMA0_MEMORY_MB'])

    def test_host_without_claims_of_cpus_claims_amounts_alone(self):
        found = self.selector(1)
        self.assertTrue(found.choose('a', None, True))

        self.assertEqual([[]], self.cpus(found.chosen()))


class TestMembers(base.TestCase):

    def members(self, request, *uuids):
        given = selector.with_members(request, uuids)
        group = given.get('instance_group')
        return None if group is None else group.members

    def test_instances_of_the_request_are_members_of_its_group(self):
        request = builders.request(group={'members': ['a', 'b']})

        self.assertEqual(['a', 'b', 'c'], self.members(request, 'b', 'c'))
        # What the caller has stays as it is.
        self.assertEqual(['a', 'b'], request.instance_group.members)

    def test_group_may_have_no_members_yet(self):
        for members in (None, []):
            request = builders.request(group={'members': members})
            self.assertEqual(['c'], self.members(request, 'c'))

    def test_instances_to_spread_are_a_group(self):
        request = builders.request(hints={'spread': 'cell'})

        self.assertEqual(['a', 'b'], self.members(request, 'a', 'b'))
        self.assertIsNone(request.get('instance_group'))

    def test_request_without_a_group_has_no_members(self):
        request = builders.request()

        self.assertIs(request, selector.with_members(request, ['a']))
