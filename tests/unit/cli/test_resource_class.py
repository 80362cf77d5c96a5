# SPDX-License-Identifier: Apache-2.0

import os_resource_classes

from tests.unit.cli import test_provider


class TestResourceClass(test_provider.ProviderTestCase):

    def listed(self):
        ran = self.shell('resource', 'class', 'list', '-f', 'json')
        self.assertEqual(0, ran.code, ran.err)
        return {each.pop('Name'): tuple(each.values()) for each in ran.data}

    def test_standard_classes_are_listed_and_custom_ones_in_use(self):
        self.assertEqual(set(os_resource_classes.STANDARDS),
                         set(self.listed()))

        self.create_pool('pool1', '--resource', 'CUSTOM_X=3')

        self.assertEqual({'CUSTOM_X'}, {
            *self.listed()} - {*os_resource_classes.STANDARDS})

    def test_providers_are_added_up(self):
        before = self.listed()
        self.assertEqual(('', 0, 0, 0), before['PCPU'])
        self.assertEqual(('', 1, 2, 0), before['VGPU'])
        self.assertEqual(('', 2), before['VCPU'][:2])
        self.assertEqual('MB', before['MEMORY_MB'][0])
        self.assertEqual('kbit/s', before['NET_BW_EGR_KILOBIT_PER_SEC'][0])
        unit, providers, capacity, used = before['DISK_GB']

        made = self.create_pool()
        self.create_pool('pool2', '--resource', 'DISK_GB:reserved=200')
        self.claim(made['uuid'], DISK_GB=30)

        self.assertEqual(
            ('GB', providers + 2, capacity + 1800, used + 30),
            self.listed()['DISK_GB'])

    def test_cell_that_does_not_answer_is_named(self):
        self.take_down_cell()

        ran = self.shell('resource', 'class', 'list')

        self.assertEqual(0, ran.code)
        self.assertIn('cell1 did not answer', ran.err)
