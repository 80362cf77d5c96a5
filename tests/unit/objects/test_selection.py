# SPDX-License-Identifier: Apache-2.0
"""A place that the scheduler chose."""

import json

from cellsched import objects
from tests.unit import base
from tests.unit.objects import wire


class TestSelection(base.TestCase):

    def test_allocation_request_is_in_the_form_of_placement(self):
        text = objects.Selection.allocation(wire.UUID, {'VCPU': 1})

        self.assertEqual(
            {'allocations': {wire.UUID: {'resources': {'VCPU': 1}}},
             'mappings': {'': [wire.UUID]}}, json.loads(text))

    def test_wanted_is_what_the_allocation_request_asks_for(self):
        selection = objects.Selection(
            allocation_request=objects.Selection.allocation(
                wire.UUID, {'VCPU': 1, 'MEMORY_MB': 512}))

        self.assertEqual({wire.UUID: {'VCPU': 1, 'MEMORY_MB': 512}},
                         selection.wanted())

    def test_nothing_is_wanted_without_a_request(self):
        for selection in (
                objects.Selection(), objects.Selection(
                    allocation_request=None),
                objects.Selection.obj_from_primitive(wire.SELECTION)):
            self.assertEqual({}, selection.wanted())

    def test_older_callers_get_host_node_and_limits(self):
        selection = objects.Selection.obj_from_primitive(wire.SELECTION)
        self.assertEqual({'host': 'h1', 'nodename': 'n1', 'limits': {}},
                         selection.to_dict())

        selection.limits.memory_mb = 512
        self.assertEqual({'memory_mb': 512}, selection.to_dict()['limits'])

        selection.limits = None
        self.assertEqual({}, selection.to_dict()['limits'])
