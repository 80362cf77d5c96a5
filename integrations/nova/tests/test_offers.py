# SPDX-License-Identifier: Apache-2.0
"""Tests of :mod:`cellsched_nova.offers`."""

import json
import types
import unittest

from nova import objects as nova_objects

from cellsched.testing import builders
from cellsched_nova import offers

CHILD = 'child'


class States:
    """Host states of Nova that were read.

    :ivar known: states by the uuid of the compute node
    """

    def __init__(self):
        self.known = {}

    def get(self, uuid):
        return self.known.get(uuid)


def state(candidates):
    counted = []
    return types.SimpleNamespace(
        allocation_candidates=candidates, limits={'numa_topology': None},
        consume_from_request=counted.append, counted=counted)


class TestCase(unittest.TestCase):

    def setUp(self):
        nova_objects.register_all()
        self.hosts = builders.hosts(host=['a', 'b'])
        self.uuids = list(self.hosts['uuid'])
        self.states = States()

    def written(self, offered, row, allocated=None):
        """Return the claim of a selection."""
        made = offered.selection(row, allocated, {})
        self.assertEqual(self.uuids[row], made.compute_node_uuid)
        return json.loads(made.allocation_request)


class TestWholeHosts(TestCase):

    def test_host_serves_all_resources(self):
        offered = offers.WholeHosts(
            {'VCPU': 2}, None, self.states, None, self.hosts)

        self.assertFalse(offered.is_parted)
        self.assertEqual(
            {'allocations': {self.uuids[1]: {'resources': {'VCPU': 2}}},
             'mappings': {'': [self.uuids[1]]}}, self.written(offered, 1))

    def test_selected_host_is_counted_in_its_state(self):
        known = self.states.known[self.uuids[0]] = state([])
        offered = offers.WholeHosts(
            {}, 'spec', self.states, None, self.hosts)

        offered.taken(0, None)
        offered.taken(1, None)

        self.assertEqual(['spec'], known.counted)


class TestAllocationCandidates(TestCase):

    def setUp(self):
        super().setUp()
        self.request = self.on(self.uuids[0])
        self.group = types.SimpleNamespace(requester_id='_GPU')
        self.offered = offers.AllocationCandidates(
            {self.uuids[0]: [self.request], CHILD: [self.request]},
            types.SimpleNamespace(requested_resources=[self.group]),
            self.states, None, self.hosts)

    def on(self, host, child=CHILD):
        return {'allocations': {
            child: {'resources': {'VGPU': 1}},
            host: {'resources': {'VCPU': 2}}},
            'mappings': {'': [host], '_GPU': [child]}}

    def test_first_candidate_is_offered(self):
        allocated = self.offered.allocate(0)

        self.assertEqual({'VCPU': 2}, allocated.resources)
        self.assertEqual(self.request,
                         self.written(self.offered, 0, allocated))

    def test_parts_name_the_groups_of_each_provider(self):
        self.assertEqual(
            {('', self.uuids[0], (('VCPU', 2),)),
             ('_GPU', CHILD, (('VGPU', 1),))},
            {(each.suffix, each.provider, tuple(each.resources))
             for each in self.offered.allocate(0).parts})

    def test_host_without_candidates_has_no_offer(self):
        self.assertIsNone(self.offered.allocate(1))

    def test_candidates_removed_by_filters_are_not_offered(self):
        kept = self.on(self.uuids[0], 'other')
        self.states.known[self.uuids[0]] = state([kept])

        self.assertIn('other', self.offered.allocate(0).allocations)

        self.states.known[self.uuids[0]] = state([])
        self.assertIsNone(self.offered.allocate(0))

    def test_selected_candidate_is_known_to_filters(self):
        known = self.states.known[self.uuids[0]] = state([self.request])

        self.offered.taken(0, self.offered.allocate(0))

        self.assertEqual([CHILD], self.group.provider_uuids)
        self.assertEqual([self.offered.spec], known.counted)
