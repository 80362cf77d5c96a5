# SPDX-License-Identifier: Apache-2.0

from importlib import metadata
import inspect

import fixtures
import stevedore

from cellsched.cli import app
from cellsched.hosts import columns
from cellsched import plugins
from tests.unit.cli import base


class TestPlugin(base.CommandTestCase):

    def plugin(self, *argv):
        return self.run_app(app.Shell, 'plugin', *argv)

    def install(self, namespace, **targets):
        """Make entry points be there, as if a package had them."""
        cache = stevedore.ExtensionManager.ENTRY_POINT_CACHE
        self.useFixture(fixtures.MonkeyPatch(
            'stevedore.ExtensionManager.ENTRY_POINT_CACHE', {
                **cache, namespace: [
                    metadata.EntryPoint(name, target, namespace)
                    for name, target in targets.items()]}))

    def test_every_plugin_is_listed_with_its_summary(self):
        rows = {(row['Kind'], row['Name']): row
                for row in self.plugin('list', '-f', 'json').data}

        self.assertEqual(
            {(kind, name) for kind, namespace in plugins.KINDS.items()
             for name in plugins.names(namespace)}, set(rows))
        self.assertEqual(
            {'Kind': 'filter', 'Name': 'NumInstancesFilter',
             'Summary': 'Reject a host whose number of instances has reached '
                        'the limit.',
             'Module': 'cellsched.filters.num_instances', 'Problem': ''},
            rows['filter', 'NumInstancesFilter'])
        for row in rows.values():
            self.assertNotEqual('', row['Summary'])

    def test_unimportable_plugin_is_listed_with_the_reason(self):
        self.install(plugins.VIRT, broken='tests.nonsense:Driver')

        ran = self.plugin('list', '-f', 'json')

        [row] = [row for row in ran.data if row['Kind'] == 'virt']
        self.assertIn("No module named 'tests.nonsense'", row['Problem'])
        self.assertEqual('', row['Summary'])
        self.assertEqual('tests.nonsense', row['Module'])

    def test_invalid_plugin_is_listed_with_the_reason(self):
        self.install(plugins.VIRT, odd='cellsched.plugins:KINDS',
                     partial='cellsched.virt.base:ComputeDriver',
                     nix='no module')

        ran = self.plugin('list', '-f', 'json')

        self.assertEqual(0, ran.code)
        problems = {row['Name']: row['Problem'] for row in ran.data
                    if row['Kind'] == 'virt'}
        self.assertIn('cellsched.virt.base.ComputeDriver', problems['odd'])
        self.assertIn('ComputeDriver does not implement ', problems['partial'])
        self.assertIn('nodes, spawn; expected', problems['partial'])
        self.assertIn('can be imported', problems['nix'])

    def test_unusable_plugin_is_shown_with_the_reason(self):
        self.install(plugins.VIRT, broken='tests.nonsense:Driver')

        ran = self.plugin('show', 'virt', 'broken', '-f', 'json')

        self.assertEqual((1, ''), (ran.code, ran.err))
        self.assertIn("No module named 'tests.nonsense'",
                      ran.data['problem'])

    def test_options_are_shown_with_defaults_and_help(self):
        ran = self.plugin('show', 'filter', 'NumInstancesFilter')

        self.assertEqual(0, ran.code)
        self.assertIn('[filter_scheduler] max_instances_per_host = 50',
                      ran.out)
        self.assertIn('before it is passed over', ran.out)

    def test_options_are_data_for_programs(self):
        shown = self.plugin(
            'show', 'filter', 'NumInstancesFilter', '-f', 'json').data

        [option] = shown['options']
        self.assertEqual(
            ('filter_scheduler', 'max_instances_per_host', 50),
            (option['group'], option['name'], option['default']))
        self.assertIn('[filter_scheduler] max_instances_per_host',
                      shown['description'])

    def test_hints_and_capabilities_are_shown(self):
        hints = self.plugin('show', 'filter', 'DifferentHostFilter', '-c',
                            'hints', '-f', 'value')
        capabilities = self.plugin('show', 'claims', 'sql', '-c',
                                   'capabilities', '-f', 'value')

        self.assertEqual('different_host\n', hints.out)
        self.assertIn('durable', capabilities.out)

    def test_demands_of_a_filter_are_shown(self):
        reads = self.plugin('show', 'filter', 'ComputeCapabilitiesFilter',
                            '-c', 'reads', '-f', 'value')

        self.assertIn('flavor.extra_specs.capabilities:*, ', reads.out)

    def test_driver_of_any_hints_is_shown(self):
        shown = self.plugin('show', 'driver', 'filter_scheduler', '-f',
                            'json').data

        self.assertEqual(('', ''), (shown['hints'], shown['reads']))

    def test_data_is_shown_with_the_docstring_of_its_module(self):
        self.install(plugins.COLUMNS, mine='cellsched.hosts.columns:STANDARD')

        shown = self.plugin('show', 'columns', 'mine', '-f', 'json').data

        self.assertEqual(inspect.getdoc(columns), shown['description'])
        self.assertEqual([], shown['options'])

    def test_error_for_an_unknown_name_or_kind_lists_choices(self):
        for kind, name, *texts in (
                ('weigher', 'NixWeigher', 'NixWeigher', 'RAMWeigher'),
                ('nix', 'RAMWeigher', 'nix', 'weigher')):
            self.assertEnds(1, self.plugin('show', kind, name), *texts)
