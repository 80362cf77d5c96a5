# SPDX-License-Identifier: Apache-2.0
"""Hosts are selected and claimed one after the other."""

import random
import unittest

from cellsched.scheduler.decision import pipeline
from cellsched.scheduler.selection import selector
from cellsched.testing import builders
from cellsched.weighers import resources
from cellsched_nova import decision


class Whole:
    """Claims all resources from the host."""

    def __init__(self, **amounts):
        self.chosen_nodes = []
        self._amounts = amounts

    def first(self, uuid):
        return {'allocations': {uuid: {'resources': {
            'VCPU': 1, 'MEMORY_MB': 512}}}, 'mappings': {'': [uuid]}}

    def chosen(self, uuid, instance, request):
        self.chosen_nodes.append(uuid)


class TestCase(unittest.TestCase):

    def setUp(self):
        # The last host has most memory.
        self.hosts = builders.hosts(free_ram_mb=[1024, 2048, 4096])
        self.uuids = list(self.hosts['uuid'])
        self.claimed = []
        self.full = set()

    def claim(self, instance, allocation_request):
        [uuid] = allocation_request['allocations']
        self.claimed.append((instance, uuid))
        return uuid not in self.full

    def chooser(self, offers=None):
        return decision.Chooser(
            pipeline.Pipeline([], [builders.plugin(resources.RAMWeigher)]),
            selector.SelectionPolicy(random.Random(0)), self.hosts,
            builders.request(), offers or Whole(), self.claim)


class TestChooser(TestCase):

    def test_best_host_is_claimed(self):
        self.assertTrue(self.chooser().choose('a', last=True))
        self.assertEqual([('a', self.uuids[2])], self.claimed)

    def test_host_with_a_refused_claim_is_skipped(self):
        self.full.add(self.uuids[2])
        chooser = self.chooser()

        self.assertTrue(chooser.choose('a', last=True))
        self.assertEqual(
            [('a', self.uuids[2]), ('a', self.uuids[1])], self.claimed)
        self.assertEqual([self.uuids[2]], chooser.refused)

    def test_no_host_is_selected_if_all_claims_are_refused(self):
        self.full.update(self.uuids)
        chooser = self.chooser()

        self.assertFalse(chooser.choose('a', last=True))
        self.assertIn('3 lost their room',
                      chooser.diagnosis([], 1).text())

    def test_next_instance_sees_the_claim_of_the_previous_one(self):
        self.hosts = builders.hosts(free_ram_mb=[4000, 4096])
        self.uuids = list(self.hosts['uuid'])
        chooser = self.chooser()

        self.assertTrue(chooser.choose('a', last=False))
        self.assertTrue(chooser.choose('b', last=True))
        self.assertEqual([('a', self.uuids[1]), ('b', self.uuids[0])],
                         self.claimed)

    def test_host_without_a_possible_claim_is_skipped(self):
        offers = Whole()
        first = offers.first
        offers.first = lambda uuid: (
            None if uuid == self.uuids[2] else first(uuid))

        self.assertTrue(self.chooser(offers).choose('a', last=True))
        self.assertEqual([('a', self.uuids[1])], self.claimed)

    def test_alternates_are_in_the_cell_of_the_selected_host(self):
        self.hosts = builders.hosts(
            free_ram_mb=[512, 1024, 2048, 4096, 1536],
            cell=['x', 'x', 'y', 'x', 'x'])
        chooser = self.chooser()
        chooser.choose('a', last=True)

        [[chosen, *alternates]] = chooser.with_alternates(2)

        self.assertEqual(3, chosen.row)
        self.assertEqual([4, 1], [each.row for each in alternates])

    def test_alternates_exclude_the_selected_hosts(self):
        chooser = self.chooser()
        chooser.choose('a', last=False)
        chooser.choose('b', last=True)

        rows = [[each.row for each in place]
                for place in chooser.with_alternates(5)]

        chosen = {place[0] for place in rows}
        self.assertTrue(all(chosen.isdisjoint(place[1:]) for place in rows))


class TestDecisionRecord(TestCase):

    def test_record_has_the_two_best_hosts_and_their_weights(self):
        chooser = self.chooser()
        chooser.choose('a', last=False)
        chooser.choose('b', last=True)

        first, other = chooser.decision().picks

        hosts = self.hosts['host']
        self.assertEqual(
            ('a', 3, hosts[2], hosts[1], ['RAMWeigher']),
            (first.instance, first.candidates, first.first.host,
             first.second.host, [each.by for each in first.first.shares]))
        self.assertEqual(('b', None), (other.instance, other.second))
        self.assertEqual([[], []], [first.first.providers,
                                    other.first.providers])

    def test_record_has_the_providers_of_a_claim_on_several(self):
        offers = Whole()
        offers.first = lambda uuid: {
            'allocations': {
                'child': {'resources': {'VGPU': 1}},
                uuid: {'resources': {'VCPU': 1}}},
            'mappings': {'': [uuid], '_GPU': ['child']}}
        chooser = decision.Chooser(
            pipeline.Pipeline([], []),
            selector.SelectionPolicy(random.Random(0)), self.hosts,
            builders.request(), offers, lambda *arguments: True)
        chooser.choose('a', last=True)

        [pick] = chooser.decision().picks

        self.assertEqual([
            ('', self.uuids[0], pick.first.node, {'VCPU': 1}),
            ('_GPU', 'child', None, {'VGPU': 1})],
            [tuple(each.values()) for each in pick.first.providers])

    def test_record_names_hosts_with_refused_claims(self):
        self.full.update(self.uuids)
        chooser = self.chooser()
        chooser.choose('a', last=True)

        # In the order of the refusals.
        self.assertEqual({'claims': list(self.hosts['host'])[::-1]},
                         chooser.examples())
