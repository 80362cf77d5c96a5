# SPDX-License-Identifier: Apache-2.0
"""Resource classes, inventories, and what extra specs ask for."""

import hypothesis
from hypothesis import strategies
import os_resource_classes

from cellsched import exception
from cellsched.objects import resources
from tests.unit import base


class TestNames(base.TestCase):

    def test_standard_classes_are_the_classes_of_the_library(self):
        for name in os_resource_classes.STANDARDS:
            self.assertTrue(resources.is_known(name), name)

    def test_custom_classes_begin_with_custom(self):
        for name in ('CUSTOM_X', 'CUSTOM_' + 'A' * 248, 'CUSTOM__9'):
            self.assertTrue(resources.is_known(name), name)
        for name in ('', 'X', 'custom_x', 'CUSTOM_', 'CUSTOM_x', 'CUSTOM_X\n',
                     'CUSTOM_' + 'A' * 249, 'CUSTOM_\u00c4', 'VCPU ', 'VCPUS'):
            self.assertFalse(resources.is_known(name), name)

    def test_classes_of_parts_are_unknown(self):
        for name in ('CUSTOM_PCPU_1', 'CUSTOM_NUMA0_VCPU',
                     'CUSTOM_NUMA1_MEMORY_MB', 'CUSTOM_NUMA0_PAGES_4KB',
                     'CUSTOM_PCI_POOL_0123456789ABCDEF'):
            self.assertFalse(resources.is_known(name), name)
        self.assertTrue(resources.is_known('CUSTOM_PCPU_FAST'))


class TestRequested(base.TestCase):

    def test_amounts_are_by_class_and_include_zero(self):
        self.assertEqual(
            {'VGPU': 1, 'CUSTOM_GOLD': 2, 'VCPU': 0},
            resources.requested({
                'resources:VGPU': '1', 'resources:CUSTOM_GOLD': '02',
                'resources:VCPU': '0', 'resources1:VGPU': '3',
                'hw:cpu_policy': 'shared'}))

    def test_flavor_may_have_no_extra_specs(self):
        for extra_specs in None, {}:
            self.assertEqual({}, resources.requested(extra_specs))

    def test_unknown_class_is_refused_by_its_key(self):
        for name in ('', 'GPU', 'custom_x', 'a:b', 'CUSTOM_X\n', 'x' * 500,
                     '\U00010000' * 80):
            error = self.assertRaises(
                exception.InvalidField, resources.requested,
                {f'resources:{name}': '1'})
            self.assertIn('extra_specs.resources:', error.field)
            self.assertLess(len(error.field), 120)
            self.assertNotIn('\n', str(error))
            self.assertIn('CUSTOM_', error.expected)

    def test_invalid_amount_is_refused_with_the_bound(self):
        for said in ('', '-1', '1.5', 'one', ' 1', '1\n', '\u0661',
                     '2147483648', '9' * 5000, None, 1):
            error = self.assertRaises(
                exception.InvalidField, resources.requested,
                {'resources:VGPU': said})
            self.assertEqual(
                ('flavor', 'extra_specs.resources:VGPU',
                 'a whole number from 0 to 2147483647'),
                (error.where, error.field, error.expected))
        self.assertEqual({'VGPU': 2 ** 31 - 1}, resources.requested(
            {'resources:VGPU': '2147483647'}))


class TestInventory(base.TestCase):

    @hypothesis.given(
        *[strategies.integers(1, 40) for _ in range(3)],
        strategies.integers(0, 100))
    def test_amounts_are_admitted_within_the_units(
        self, least, most, step, amount
    ):
        inventory = resources.Inventory(
            9, min_unit=least, max_unit=most, step_size=step)

        self.assertEqual((least, most, step), inventory.units)
        self.assertEqual(
            amount in [each for each in range(least, most + 1)
                       if each % step == 0],
            inventory.admits(amount))
