# SPDX-License-Identifier: Apache-2.0
"""Broken plug-ins matter only to services that enable them."""

import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import fixtures

from cellsched.cli import app
from cellsched import exception
from cellsched import plugins
from tests import broken_packages
from tests.functional import base
from tests.unit import base as unit_base
from tests.unit.cmd import services
from tests.unit import installing

ROOT = pathlib.Path(__file__).resolve().parents[2]

TIMEOUT_S = 600


class TestInstalled(base.TestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(installing.Installed(broken_packages.write_broken))

    def test_servers_are_built_beside_broken_plugins(self):
        self.deploy({'cell1': ['a1']})

        [found] = self.built()

        self.assertEqual(('ACTIVE', 'a1'), (found.status, found.host))
        self.assertIn('Skipped a weigher of all_weighers: Configuration: '
                      '[filter_scheduler] weight_classes: AbstractWeigher: '
                      'AbstractWeigher does not implement score',
                      self.logs.output)
        self.assertIn('Resource class cannot be used: Configuration: '
                      'cellsched.resource_classes CUSTOM_LEAVING: ',
                      self.logs.output)
        self.assertNotIn('LeavingFilter', self.logs.output)

    def run_command(self, *argv):
        out, err = io.StringIO(), io.StringIO()
        path = self.world.directory / 'etc' / 'api.conf'
        code = app.Shell(out, err).run(['--config-file', str(path), *argv])
        return code, out.getvalue(), err.getvalue()

    def test_commands_name_the_skipped_weighers(self):
        self.deploy({'cell1': ['a1']})

        code, out, _ = self.run_command('config', 'validate')
        self.assertEqual(1, code)
        self.assertIn('weight_classes: AbstractWeigher: ', out)
        code, _, err = self.run_command('plan', '--flavor', 'small')
        self.assertEqual(0, code)
        self.assertIn('cellsched: warning: skipped a weigher: ', err)
        self.assertIn('AbstractWeigher', err)

    def test_broken_configured_plugin_stops_the_service(self):
        for group, option, name in (
                ('scheduler', 'driver', 'leaving'),
                ('scheduler', 'driver', 'partial'),
                ('claims', 'store', 'leaving'), ('claims', 'store', 'partial'),
                ('DEFAULT', 'compute_driver', 'partial'),
                ('DEFAULT', 'network_driver', 'leaving'),
                ('DEFAULT', 'network_driver', 'partial'),
                ('quota', 'driver', 'partial'),
                ('filter_scheduler', 'weight_classes', 'LeavingWeigher'),
                ('filter_scheduler', 'weight_classes', 'AbstractWeigher'),
                *(('filter_scheduler', 'enabled_filters', name)
                  for kind, name in broken_packages.broken()
                  if kind == plugins.FILTERS)):
            error = self.assertRaises(
                exception.ConfigurationInvalid, self.deploy,
                {'cell1': ['a1']}, **{group: {option: name}})

            self.assertIn(f'[{group}] {option}: {name}: ', str(error))
            self.assertEqual(1, len(str(error).splitlines()))


class TestInADecision(base.TestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(installing.Installed(broken_packages.write_failing))

    def failed(self, filter_name):
        self.deploy({'cell1': ['a1']}, filter_scheduler={
            'enabled_filters': ('ComputeFilter', filter_name)})
        [found] = self.built()
        self.assertEqual('ERROR', found.status)
        return found

    def explained(self, uuid):
        out = io.StringIO()
        path = self.world.directory / 'etc' / 'api.conf'
        app.Shell(out, io.StringIO()).run(
            ['--config-file', str(path), 'explain', uuid])
        return out.getvalue()

    def test_error_names_the_failed_filter_and_the_log_has_the_cause(self):
        for name, said in (
                ('FailingFilter', 'ValueError: as told'),
                ('LeavingFilter', 'SystemExit: as told'),
                ('FailingRowFilter', 'ValueError: as told'),
                ('TypoFilter', "The host table has no column 'free_ram'; did "
                               'you mean free_ram_mb?')):
            found = self.failed(name)

            self.assertEqual(f'Filter {name} failed.', found.reason)
            self.assertIn(said, self.logs.output)
            # Each scheduler writes what it decided before it stops.
            self.world.stop()

    def test_decision_is_explained_with_the_name(self):
        found = self.failed('FailingFilter')

        text = self.until(lambda: self.explained(found.uuid), 'it is kept')

        self.assertIn('Filter FailingFilter failed.', text)
        self.assertNotIn('as told', text)


class TestCommands(unit_base.TestCase):
    """In processes of their own, where packages are installed beside."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.site = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.site)
        broken_packages.write_broken(cls.site)
        broken_packages.write_working(cls.site)

    def run_python(self, *args, code=0):
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', *args], cwd=ROOT,
            capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
            env={**os.environ, 'PYTHONPATH': str(self.site)})
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def command(self, *argv, module='shell', code=0):
        return self.run_python(
            '-c', f'from cellsched.cmd import {module}; {module}.main()',
            *argv, code=code)

    def test_each_broken_plugin_has_its_row(self):
        kinds = {namespace: kind for kind, namespace in plugins.KINDS.items()}
        wanted = {(kinds[namespace], name)
                  for namespace, name in broken_packages.broken()
                  if namespace in kinds and name not in (
                      'UnmakableFilter', 'CUSTOM_UNMAKABLE')}

        out, err = self.command('plugin', 'list', '-f', 'json')

        rows = json.loads(out)
        self.assertEqual('', err)
        self.assertEqual(wanted, {(row['Kind'], row['Name'])
                                  for row in rows if row['Problem']})
        self.assertIn('GpuFilter', [row['Name'] for row in rows])

    def test_broken_command_fails_alone(self):
        out, err = self.command('broken', code=1)
        self.assertEqual(('', 1), (out, len(err.splitlines())))
        self.assertIn('cellsched.cli broken', err)
        self.assertIn('SystemExit: 7', err)

        self.assertEqual(('hello\n', ''), self.command('hello'))
        out, _ = self.command('help')
        self.assertIn('Could not load broken', out)
        self.assertIn('server list', out)
        # One that has the name of one that is shipped does not replace it.
        out, _ = self.command('help', 'server', 'list')
        self.assertIn('usage: cellsched server list', out)
        self.command('--help', module='manage')

    def test_documentation_lists_shipped_plugins(self):
        out, _ = self.run_python('-c', '''
import sys
sys.path.insert(0, 'doc/ext')
from cellsched import plugins
import commands
import plugin_lists
for kind in plugins.KINDS:
    print(*plugin_lists.names(kind))
print(*commands.names('cellsched.cli'))
''')
        self.assertIn('RamFilter', out)
        self.assertIn('server list', out)
        for name in ('Gpu', 'gpus', 'hello', *(
                name for _, name in broken_packages.broken()
                if name != 'server.list')):
            self.assertNotIn(name, out.split())

    def test_sample_configuration_has_shipped_options(self):
        out, _ = self.run_python(
            '-m', 'oslo_config.generator', '--config-file',
            'etc/cellsched/config-generator.conf')

        self.assertIn('#max_instances_per_host', out)
        self.assertNotIn('least_gpus', out)


class TestForms(unit_base.TestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(installing.Installed(broken_packages.write_broken))

    def run_plugin(self, *argv):
        out, err = io.StringIO(), io.StringIO()
        code = app.Shell(out, err).run(['plugin', *argv])
        self.assertEqual('', err.getvalue())
        self.assertIn('LeavingFilter', out.getvalue())
        self.assertIn('SystemExit: 7', out.getvalue())
        return code

    def test_broken_plugin_is_listed_in_every_form(self):
        for form in 'csv', 'json', 'table', 'value', 'yaml':
            self.assertEqual(0, self.run_plugin('list', '-f', form))

    def test_broken_plugin_is_shown_in_every_form(self):
        for form in 'json', 'shell', 'table', 'value', 'yaml':
            self.assertEqual(1, self.run_plugin(
                'show', 'filter', 'LeavingFilter', '-f', form))


class TestServices(services.ServiceTestCase):

    def setUp(self):
        super().setUp()
        site = self.temporary_directory()
        broken_packages.write_broken(site)
        self.useFixture(fixtures.EnvironmentVariable('PYTHONPATH', str(site)))

    def test_service_with_an_enabled_broken_plugin_ends_in_a_line(self):
        code, error = self.run_to_end('scheduler', api=True, filter_scheduler={
            'enabled_filters': 'ComputeFilter,LeavingFilter',
            'leaving_limit': 3})

        self.assertEqual(1, code)
        *_, line = error.splitlines()
        self.assertEqual(
            'scheduler: Configuration: [filter_scheduler] enabled_filters: '
            'LeavingFilter: SystemExit: 7; expected a plug-in that can be '
            'imported',
            line)
        self.assertNotIn('Traceback', error)
