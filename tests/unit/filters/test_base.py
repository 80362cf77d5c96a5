# SPDX-License-Identifier: Apache-2.0
"""The contract of a filter."""

from cellsched import exception
from cellsched.filters import all_hosts
from cellsched.filters import base as filters
from cellsched.scheduler.decision import pipeline
from cellsched.testing import builders
from tests.unit import base
from tests.unit.scheduler import toys


class TestFilter(base.TestCase):

    def test_name_is_name_of_class(self):
        plugin = builders.plugin(all_hosts.AllHostsFilter)

        self.assertEqual('AllHostsFilter', plugin.name)

    def test_filter_must_keep(self):
        self.assertRaises(
            TypeError, type('Partial', (filters.Filter,), {}), None)

    def test_defaults_of_a_filter(self):
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


class Bare:
    """Has nothing of ours."""

    asked = ()

    def host_passes(self, host_state, spec_obj):
        self.asked = [*self.asked, host_state.host]
        return host_state.free_ram_mb >= spec_obj.flavor.memory_mb * 2


class Based(filters.BaseHostFilter):

    run_filter_once_per_request = True
    RUN_ON_REBUILD = True
    reason = 'is odd'
    hints = ('odd',)
    reads = ('image.properties.odd',)

    def host_passes(self, host_state, spec_obj):
        return host_state.service['host'] == spec_obj.hint('odd')[0]


class Broken:

    def host_passes(self, host_state, spec_obj):
        return host_state.nonsense


class TestRowFilter(base.TestCase):

    def decide(self, filters, hosts, **request):
        return pipeline.Pipeline(filters, []).candidates(
            hosts, builders.request(**request))

    def test_class_without_base_is_called_host_by_host(self):
        hosts = builders.hosts(free_ram_mb=[1024, 1023, 2048])

        found = self.decide([filters.RowFilter(Bare())], hosts)

        self.assertEqual([0, 2], found.rows.tolist())
        self.assertEqual(
            [('Bare', 1, 'was rejected')],
            [(each.by, each.hosts, each.reason)
             for each in found.rejections(builders.request())])

    def test_only_remaining_hosts_are_checked(self):
        plugin = Bare()

        self.decide([toys.Filter([True, False, True]),
                     filters.RowFilter(plugin)], builders.hosts(3))

        self.assertEqual(['host1', 'host3'], plugin.asked)

    def test_chosen_host_alone_is_looked_at_again(self):
        plugin = Bare()
        hosts, request = builders.hosts(3), builders.request()
        decision = pipeline.Pipeline([filters.RowFilter(plugin)], [])
        found = decision.candidates(hosts, request)
        plugin.asked = ()
        # There is room left, which is less than this filter wants.
        hosts.take(1, {'MEMORY_MB': 15800})

        found = decision.recheck(request, found, 1)

        self.assertEqual(['host2'], plugin.asked)
        self.assertEqual([0, 2], found.rows.tolist())

    def test_attributes_of_the_class_are_kept(self):
        plugin = filters.RowFilter(Based())

        self.assertEqual(
            ('Based', 'is odd', {'odd'}, {'image.properties.odd'}, True,
             True),
            (plugin.name, plugin.reason, plugin.hints, plugin.reads,
             plugin.run_filter_once_per_request, plugin.run_on_rebuild))
        found = self.decide([plugin], builders.hosts(3),
                            hints={'odd': 'host2'})
        self.assertEqual([1], found.rows.tolist())

    def test_class_without_attributes_has_the_defaults(self):
        plugin = filters.RowFilter(Bare())

        self.assertEqual((set(), set(), False, False), (
            plugin.hints, plugin.reads, plugin.run_filter_once_per_request,
            plugin.run_on_rebuild))

    def test_exception_names_the_class(self):
        error = self.assertRaises(
            exception.PluginFailed, self.decide, [filters.RowFilter(Broken())],
            builders.hosts())

        self.assertEqual('Broken', error.plugin)
        self.assertIn('nonsense', str(error.__cause__))

    def test_base_class_has_no_verdict(self):
        error = self.assertRaises(
            exception.PluginFailed, self.decide,
            [filters.RowFilter(filters.BaseHostFilter())], builders.hosts())

        self.assertIsInstance(error.__cause__, NotImplementedError)

    def test_without_hosts_no_host_is_checked(self):
        mask = filters.RowFilter(Broken()).keep(
            builders.hosts(0), builders.request())

        self.assertEqual(([], bool), (mask.tolist(), mask.dtype))
