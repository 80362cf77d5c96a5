# SPDX-License-Identifier: Apache-2.0
"""The modules that the process of a service imports."""

import ast
import re
import subprocess
import sys

from tests.unit.cmd import processes
from tests.unit.cmd import services
from tests.unit.db import samples

#: Runs a service, and prints what it has imported when it has started.
CODE = """
from cellsched.cmd import launch
from cellsched.cmd import {service}


def freeze_objects():
    print('imported', sorted(
        name for name in sys.modules if name.startswith('cellsched.')),
        flush=True)


launch.freeze_objects = freeze_objects
{service}.main()
"""

#: Runs a command, and prints what it has imported when it has ended, and how
#: often Python looked for cycles meanwhile.
COMMAND = """
import gc
import sys

import cellsched.cmd


def looks():
    return sum(each['collections'] for each in gc.get_stats())


before = looks()

from cellsched.cli import app

code = app.Shell().run(sys.argv[1:])
print('looked', looks() - before, 'times')
print('imported', sorted(
    name for name, module in sys.modules.items() if module))
sys.exit(code)
"""

#: What no command needs that reads databases which are files of SQLite.
DRIVERS = ('amqp', 'kombu', 'numpy', 'sqlalchemy.dialects.mysql',
           'sqlalchemy.dialects.postgresql')


class TestImports(services.ServiceTestCase):

    def imported(self, service, **options):
        """Return the modules of ours that a service has at its end."""
        path = self.configure(**options)
        process = self.start_code(
            CODE.format(service=service), '--config-file', str(path))
        process.until('has started as host1')
        [names] = process.until(r'imported (.*)\n')
        self.assertEqual(0, process.stop(), process.output)
        return ast.literal_eval(names)

    def imported_by(self, *command):
        """Return the modules that a command imports."""
        done = subprocess.run(
            [sys.executable, '-c', COMMAND, '--config-file',
             str(self.configure(api=True)), *command],
            capture_output=True, text=True, check=False,
            timeout=processes.TIMEOUT_S)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn('looked 0 times', done.stdout)
        [names] = re.findall(r'imported (.*)\n', done.stdout)
        return ast.literal_eval(names)

    def assertNone(self, packages, names):
        """Check that nothing of these packages was imported."""
        self.assertEqual([], [
            name for name in names if any(
                f'{name}.'.startswith(f'cellsched.{package}.')
                for package in packages)])

    def assertNoLibrary(self, libraries, names):
        """Check that none of these libraries was imported."""
        self.assertEqual([], [
            name for name in names if any(
                f'{name}.'.startswith(f'{library}.')
                for library in libraries)])

    def test_agent_with_options_of_schedulers_imports_no_scheduler(self):
        names = self.imported(
            'compute', cell=True,
            filter_scheduler={'enabled_filters': 'ComputeFilter',
                              'cpu_weight_multiplier': 2.0},
            scheduler={'driver': 'chance_scheduler'})

        self.assertIn('cellsched.compute.agent', names)
        self.assertIn('cellsched.virt.fake', names)
        self.assertNone(
            ['api', 'audit', 'cells', 'conductor', 'db.api', 'embedding',
             'filters', 'host_manager', 'hosts', 'quota', 'scheduler',
             'weighers'], names)

    def test_conductor_imports_no_other_service(self):
        names = self.imported(
            'conductor', api=True, cell=True, conductor={'workers': 1})

        self.assertIn('cellsched.quota.db', names)
        self.assertNone(
            ['api', 'compute', 'filters', 'host_manager', 'hosts',
             'scheduler', 'virt.fake', 'weighers'], names)

    def test_scheduler_imports_no_other_service(self):
        names = self.imported('scheduler', api=True, scheduler={'workers': 1})

        self.assertIn('cellsched.filters.compute', names)
        self.assertNone(
            ['api', 'audit', 'compute', 'conductor', 'embedding', 'quota.db',
             'virt.fake'], names)

    def test_command_imports_a_single_controller(self):
        names = self.imported_by('flavor', 'list')

        self.assertIn('cellsched.api.flavors', names)
        self.assertNoLibrary(DRIVERS, names)
        self.assertNone(
            ['api.servers', 'audit', 'claims.sql', 'compute', 'conductor',
             'filters', 'host_manager', 'hosts', 'quota.db', 'scheduler',
             'virt.fake', 'weighers'], names)

    def test_help_imports_commands_and_no_library(self):
        names = self.imported_by('--help')

        self.assertIn('cellsched.cli.demo', names)
        self.assertNoLibrary(
            ['jsonschema', 'numpy', 'oslo_config', 'oslo_log',
             'oslo_messaging', 'sqlalchemy', 'yaml'], names)

    def test_command_with_cells_imports_no_driver(self):
        samples.map_cell(self.api.database, samples.cell(
            'east', transport_url='rabbit://user:secret@127.0.0.1:1/',
            database_connection=self.cell.url))

        for command in ('cell', 'list'), ('service', 'list'):
            with self.subTest(command=command):
                names = self.imported_by(*command)

                self.assertIn('cellsched.cells.gather', names)
                self.assertNoLibrary(DRIVERS, names)

        names = self.imported_by('server', 'list')

        self.assertIn('cellsched.cells.gather', names)
        self.assertIn('cellsched.listing.servers', names)
        self.assertNoLibrary(DRIVERS, names)
        self.assertNone(
            ['audit', 'conductor', 'host_manager', 'scheduler', 'virt.fake',
             'weighers'], names)

    def test_host_list_imports_no_other_service(self):
        names = self.imported_by('host', 'list')

        self.assertIn('cellsched.scheduler.drivers.filter_scheduler', names)
        self.assertNone(
            ['api.servers', 'archive', 'audit', 'compute', 'conductor',
             'embedding', 'quota.db', 'virt.fake'], names)
        self.assertNoLibrary(['os_traits', 'yaml'], names)

    def test_plugin_list_imports_no_traits(self):
        names = self.imported_by('plugin', 'list')

        self.assertIn('cellsched.virt.fake', names)
        self.assertNoLibrary(['os_traits'], names)
