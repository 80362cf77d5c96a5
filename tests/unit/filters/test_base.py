# SPDX-License-Identifier: Apache-2.0
"""The contract of a filter."""

from cellsched.filters import all_hosts
from cellsched.filters import base as filters
from cellsched.testing import builders
from tests.unit import base


class TestFilter(base.TestCase):

    def test_name_is_that_of_the_class(self):
        plugin = builders.plugin(all_hosts.AllHostsFilter)

        self.assertEqual('AllHostsFilter', plugin.name)

    def test_filter_must_keep(self):
        self.assertRaises(
            TypeError, type('Partial', (filters.Filter,), {}), None)

    def test_filter_asks_for_nothing_unless_it_says_so(self):
        plugin = type('Whole', (filters.Filter,), {'keep': None})('options')
        hosts, request = builders.hosts(), builders.request()

        self.assertEqual('options', plugin.options)
        self.assertTrue(plugin.applies(request))
        self.assertEqual([], list(plugin.located(request)))
        self.assertEqual({}, plugin.limits(hosts, request))
        self.assertIsNone(plugin.shortfall(hosts, request))
        self.assertEqual([], plugin.opts())
        self.assertEqual((False,) * 5, (
            plugin.local, plugin.by_row, plugin.reopens,
            plugin.run_on_rebuild, plugin.run_filter_once_per_request))
