# SPDX-License-Identifier: Apache-2.0
"""Plug-ins: found by entry point, loaded strictly and in order."""

from importlib import metadata
import sys

import fixtures
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
        self.addCleanup(cache.pop, NAMESPACE, None)

    def test_every_kind_has_plugins(self):
        kinds = dict(plugins.KINDS)
        # A deployment has the standard columns and resource classes without a
        # plug-in.
        del kinds['columns'], kinds['resource_class']

        for namespace in kinds.values():
            self.assertNotEqual([], plugins.names(namespace))

    def test_names_are_sorted_without_an_import(self):
        self.install(B='antigravity:x', A='tests.none:x')

        self.assertEqual(['A', 'B'], plugins.names(NAMESPACE))
        self.assertNotIn('antigravity', sys.modules)

    def test_plugin_is_the_object_of_its_entry_point(self):
        self.install(A='cellsched.filters.base:Filter')

        self.assertIs(filters.Filter, plugins.load(NAMESPACE, 'A'))

    def test_plugin_of_a_new_package_is_found(self):
        self.assertNotIn('NewFilter', plugins.names(plugins.FILTERS))
        directory = self.temporary_directory()
        package = directory / 'new_filter-1.dist-info'
        package.mkdir()
        (package / 'METADATA').write_text('Name: new_filter\nVersion: 1\n')
        (package / 'entry_points.txt').write_text(
            f'[{plugins.FILTERS}]\nNewFilter=cellsched.filters.base:Filter\n')
        sys.path.insert(0, str(directory))
        self.addCleanup(sys.path.remove, str(directory))

        self.assertIs(filters.Filter, plugins.load(
            plugins.FILTERS, 'NewFilter'))

    def test_unknown_name_is_refused_with_the_names(self):
        self.install(A='cellsched.filters.base:Filter', B='tests.none:x')

        error = self.assertRaises(
            exception.PluginNotFound, plugins.load, NAMESPACE, 'C')

        self.assertEqual(
            f'No plug-in C in {NAMESPACE}; expected one of A, B.', str(error))

    def test_failed_import_is_refused_with_the_reason(self):
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

    def test_error_of_a_module_is_a_single_line(self):
        for name, text in (
                ('exits', 'raise SystemExit(3)'), ('odd', 'def ('),
                ('long', 'raise ValueError("a\\nb")'),
                ('strange', 'class E(BaseException): pass\nraise E("x")')):
            target = self.module(name, text)
            self.install(A=target)

            error = self.assertRaises(
                exception.ConfigurationInvalid, plugins.load, NAMESPACE, 'A',
                '[some] option')

            self.assertIn('[some] option: A: ', str(error))
            self.assertNotIn('\n', str(error))

    def test_interrupt_while_a_module_is_imported_is_passed_on(self):
        self.install(A=self.module('stopped', 'raise KeyboardInterrupt'))

        self.assertRaises(KeyboardInterrupt, plugins.load, NAMESPACE, 'A')

    def module(self, name, text):
        """Return where something of a module is that fails."""
        directory = self.temporary_directory()
        (directory / f'plugin_that_{name}.py').write_text(text + '\n')
        sys.path.insert(0, str(directory))
        self.addCleanup(sys.path.remove, str(directory))
        return f'plugin_that_{name}:Plugin'

    def test_option_with_an_unknown_name_is_named(self):
        error = self.assertRaises(
            exception.PluginNotFound, plugins.load, NAMESPACE, 'A',
            '[some] option')

        self.assertIn('which [some] option names', str(error))

    def test_usable_and_broken_plugins_are_separate(self):
        self.install(B='tests.unit.base:TestCase', C='tests.none:x',
                     A='cellsched.filters.base:Filter', D='no module at all',
                     E=self.module('leaves', 'raise SystemExit(3)'))

        usable, broken = plugins.load_installed(NAMESPACE)

        self.assertEqual({'A': filters.Filter, 'B': base.TestCase}, usable)
        self.assertEqual(['C', 'D', 'E'], list(broken))
        self.assertEqual(({}, {}), plugins.load_installed('cellsched.none'))

    def test_plugin_of_another_kind_is_refused_with_the_base(self):
        self.install(A='tests.unit.base:TestCase', B='cellsched.plugins:KINDS')

        for name in 'A', 'B':
            error = self.assertRaises(
                exception.ConfigurationInvalid, plugins.load_class, NAMESPACE,
                name, filters.Filter)

            self.assertIn('cellsched.filters.base.Filter', str(error))
            self.assertIn(f'{NAMESPACE} {name}', str(error))

    def test_abstract_class_is_refused_with_its_methods(self):
        self.install(A='cellsched.filters.base:Filter')

        error = self.assertRaises(
            exception.ConfigurationInvalid, plugins.load_class, NAMESPACE,
            'A', filters.Filter, '[some] option')

        self.assertIn('[some] option: A: Filter does not implement keep; '
                      'expected a complete class', str(error))

    def test_shipped_plugins_exclude_foreign_plugins(self):
        self.useFixture(fixtures.MonkeyPatch(
            'stevedore.ExtensionManager.ENTRY_POINT_CACHE', {
                plugins.FILTERS: [metadata.EntryPoint(
                    'Foreign', 'tests.none:x', plugins.FILTERS)]}))

        self.assertEqual(['Foreign'], plugins.names(plugins.FILTERS))
        self.assertNotIn('Foreign', plugins.load_shipped(plugins.FILTERS))
        self.assertIn('RamFilter', plugins.load_shipped(plugins.FILTERS))


class Leaving:
    """A plug-in that ends the thread of whoever calls it."""

    limit = 7

    def leave(self, error):
        raise error

    def add(self, one, other=0):
        return one + other


class TestContained(base.TestCase):

    def setUp(self):
        super().setUp()
        self.plugin = Leaving()
        self.contained = plugins.PluginProxy(self.plugin, 'Store', 'mine')

    def test_proxy_passes_calls_and_attributes(self):
        self.assertEqual(5, self.contained.add(2, other=3))
        self.assertEqual(7, self.contained.limit)
        self.assertIsInstance(self.contained, Leaving)
        self.contained.limit = 8
        self.assertEqual(8, self.plugin.limit)
        self.assertFalse(hasattr(self.contained, 'nothing'))

    def test_exit_of_a_plugin_is_an_error_with_its_name(self):
        for left in SystemExit(1), BaseException('odd'):
            error = self.assertRaises(
                exception.PluginFailed, self.contained.leave, left)

            self.assertEqual('Store mine failed.', str(error))
            self.assertIs(left, error.__cause__)

    def test_errors_and_interrupts_are_passed_on(self):
        for error in (ValueError('x'), KeyboardInterrupt(), GeneratorExit(),
                      exception.ThreadStopped()):
            raised = self.assertRaises(
                type(error), self.contained.leave, error)

            self.assertIs(error, raised)


class TestPath(base.TestCase):

    def test_class_is_loaded_by_its_path(self):
        self.assertIs(filters.Filter, plugins.load_path(
            'cellsched.filters.base.Filter'))

    def test_unknown_path_is_refused_with_the_reason(self):
        for path in ('cellsched.filters.base.Missing', 'nowhere.at.all.X',
                     'X', '', '.', 'a..b'):
            error = self.assertRaises(
                exception.ConfigurationInvalid, plugins.load_path, path)

            self.assertIn('the import path of a class', str(error))
            self.assertNotIn('Traceback', str(error))
            self.assertEqual(path, error.kwargs['field'])

    def test_failing_module_is_refused_with_the_reason(self):
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

    def test_plugin_gets_the_options_of_its_group(self):
        for group, wanted, limit in (
                ('DEFAULT', None, 1), ('some', 'some', 2)):
            plugin = type('Plugin', (), {'group': group})

            self.assertEqual(wanted, plugins.group(plugin))
            self.assertEqual(limit, plugins.options(self.conf, plugin).limit)
