# SPDX-License-Identifier: Apache-2.0
"""Providers beside the hosts of a table: their children, and shared ones."""

from cellsched.hosts import providers
from tests.unit import base


class TestOtherProviders(base.TestCase):

    def setUp(self):
        super().setUp()
        self.others = providers.OtherProviders()
        self.others.set_sharing(
            {'pool': providers.SharingProvider('pool', 'rack')})
        self.others.set_available('pool', {'DISK_GB': 5}, ())

    def test_existing_mappings_are_not_modified(self):
        children, shared = self.others.children, self.others.sharing

        self.others.replace([('n', (), ('a', 'b'))])
        self.others.add('available:DISK_GB@pool', -2)

        self.assertEqual({}, children)
        self.assertEqual({'a': ('n', 1), 'b': ('n', 2)},
                         self.others.children)
        self.assertEqual({'DISK_GB': 5}, shared['pool'].available)
        self.assertEqual({'DISK_GB': 3}, self.others.sharing['pool'].available)

    def test_child_of_another_node_is_kept(self):
        self.others.replace([('n', (), ('a',)), ('m', (), ('a',))])

        self.others.replace([('n', ('a',), ())])

        self.assertEqual({'a': ('m', 1)}, self.others.children)

    def test_names_of_other_rooms_are_not_its_own(self):
        self.assertFalse(self.others.add('available:DISK_GB', -2))
        self.assertFalse(self.others.add('available:DISK_GB@1', -2))
        self.assertTrue(self.others.add('available:DISK_GB@gone', -2))

    def test_usage_is_listed_by_provider(self):
        self.assertEqual(
            ('n', 'b', 'pool'), self.others.providers_of('n', ('a', 'b'), [
                ('VCPU', 1), ('VGPU@2', 1), ('X@2', 1), ('DISK_GB@pool', 1)]))
