# SPDX-License-Identifier: Apache-2.0
"""Plug-ins: found by entry point, loaded strictly and in order."""

from importlib import metadata
import sys

from oslo_config import cfg
import stevedore

from cellsched import exception
from cellsched.filters import base as filters
from cellsched import plugins
from tests.unit import base

NAMESPACE = 'cellsched.tests'


class TestPlugins(base.TestCase):

    def install(self, **targets):
        """Make entry points be there, as if packages had them."""
        cache = stevedore.ExtensionManager.ENTRY_POINT_CACHE
        cache[NAMESPACE] = [
            metadata.EntryPoint(name, target, NAMESPACE)
            for name, target in targets.items()]
        self.addCleanup(cache.pop, NAMESPACE)

    def test_every_kind_has_plugins(self):
        kinds = dict(plugins.KINDS)
        # A deployment has the standard columns without a plug-in.
        del kinds['columns']

        for namespace in kinds.values():
            self.assertNotEqual([], plugins.names(namespace))

    def test_names_are_sorted_and_nothing_is_imported_for_them(self):
        self.install(B='antigravity:x', A='tests.none:x')

        self.assertEqual(['A', 'B'], plugins.names(NAMESPACE))
        self.assertNotIn('antigravity', sys.modules)

    def test_plugin_is_what_its_entry_point_names(self):
        self.install(A='cellsched.filters.base:Filter')

        self.assertIs(filters.Filter, plugins.load(NAMESPACE, 'A'))

    def test_unknown_name_is_an_error_that_lists_what_is_there(self):
        self.install(A='cellsched.filters.base:Filter', B='tests.none:x')

        error = self.assertRaises(
            exception.PluginNotFound, plugins.load, NAMESPACE, 'C')

        self.assertEqual(
            f'No plug-in C in {NAMESPACE}; there are: A, B.', str(error))

    def test_plugin_that_cannot_be_imported_is_an_error_that_says_why(self):
        self.install(A='tests.none:x', B='cellsched.filters.base:None_')

        for name, why in ('A', 'tests.none'), ('B', 'None_'):
            error = self.assertRaises(
                exception.ConfigurationInvalid, plugins.load, NAMESPACE, name)

            self.assertIn(f'{NAMESPACE} {name}', str(error))
            self.assertIn(why, str(error))

    def test_name_of_two_plugins_is_an_error(self):
        self.install(A='cellsched.filters.base:Filter')
        stevedore.ExtensionManager.ENTRY_POINT_CACHE[NAMESPACE].append(
            metadata.EntryPoint('A', 'tests.unit.base:TestCase', NAMESPACE))

        self.assertRaises(
            exception.ConfigurationInvalid, plugins.load, NAMESPACE, 'A')

    def test_all_wanted_are_loaded_in_the_order_wanted(self):
        self.install(A='cellsched.filters.base:Filter',
                     B='tests.unit.base:TestCase', C='tests.none:x')

        self.assertEqual(
            ['B', 'A'], list(plugins.load_all(NAMESPACE, ['B', 'A'])))

    def test_all_there_are_is_all_of_them_by_name(self):
        self.install(B='tests.unit.base:TestCase',
                     A='cellsched.filters.base:Filter')

        self.assertEqual(
            {'A': filters.Filter, 'B': base.TestCase},
            plugins.load_all(NAMESPACE))
        self.assertEqual({}, plugins.load_all('cellsched.nowhere'))

    def test_one_that_is_missing_stops_all(self):
        self.install(A='cellsched.filters.base:Filter')

        self.assertRaises(exception.PluginNotFound, plugins.load_all,
                          NAMESPACE, ['A', 'C'])

    def test_plugin_of_another_kind_is_an_error_that_names_the_base(self):
        self.install(A='tests.unit.base:TestCase', B='cellsched.plugins:KINDS')

        for name in 'A', 'B':
            error = self.assertRaises(
                exception.ConfigurationInvalid, plugins.load_all, NAMESPACE,
                [name], base=filters.Filter)

            self.assertIn('cellsched.filters.base.Filter', str(error))
            self.assertIn(f'{NAMESPACE} {name}', str(error))


class TestPath(base.TestCase):

    def test_class_is_what_its_path_names(self):
        self.assertIs(filters.Filter, plugins.load_path(
            'cellsched.filters.base.Filter'))

    def test_path_that_names_nothing_is_an_error_that_says_why(self):
        for path in ('cellsched.filters.base.Missing', 'nowhere.at.all.X',
                     'X', '', '.', 'a..b'):
            error = self.assertRaises(
                exception.ConfigurationInvalid, plugins.load_path, path)

            self.assertIn('the import path of a class', str(error))
            self.assertEqual(path, error.kwargs['field'])

    def test_module_that_fails_is_an_error_that_says_why(self):
        directory = self.temporary_directory()
        (directory / 'failing_plugin.py').write_text('1 / 0\n')
        sys.path.insert(0, str(directory))
        self.addCleanup(sys.path.remove, str(directory))

        error = self.assertRaises(
            exception.ConfigurationInvalid, plugins.load_path,
            'failing_plugin.Filter')

        self.assertIn('division by zero', str(error))


class TestOptions(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = cfg.ConfigOpts()
        self.conf.register_opt(cfg.IntOpt('limit', default=1))
        self.conf.register_opt(cfg.IntOpt('limit', default=2), group='some')
        self.conf([], default_config_files=[], default_config_dirs=[])

    def test_options_are_those_of_the_group(self):
        for group, wanted, limit in (
                ('DEFAULT', None, 1), ('some', 'some', 2)):
            plugin = type('Plugin', (), {'group': group})

            self.assertEqual(wanted, plugins.group(plugin))
            self.assertEqual(limit, plugins.options(self.conf, plugin).limit)
