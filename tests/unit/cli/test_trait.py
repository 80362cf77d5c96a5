# SPDX-License-Identifier: Apache-2.0

import os_traits

from tests.unit.cli import test_provider


class TestTrait(test_provider.ProviderTestCase):

    def listed(self, *argv):
        ran = self.shell('trait', 'list', *argv, '-f', 'json')
        self.assertEqual(0, ran.code, ran.err)
        return {each['Name']: each['Providers'] for each in ran.data}

    def test_traits_are_listed_with_the_number_of_their_providers(self):
        self.create_pool('pool1', '--trait', 'CUSTOM_GPU')
        self.create_pool('pool2', '--trait', 'STORAGE_DISK_SSD')

        listed = self.listed()

        self.assertEqual(
            (2, 1, 2), tuple(listed[name] for name in (
                'CUSTOM_GPU', 'STORAGE_DISK_SSD', 'COMPUTE_NODE')))
        self.assertNotIn(0, listed.values())

    def test_standard_ones_are_added(self):
        listed = self.listed('--standard')

        self.assertEqual({'CUSTOM_GPU'}, {*listed} - {*os_traits.get_traits()})
        self.assertLess(100, len(listed))
        self.assertEqual(0, listed['STORAGE_DISK_SSD'])
        self.assertEqual(self.listed(), {
            name: count for name, count in listed.items() if count})
