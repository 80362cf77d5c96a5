# SPDX-License-Identifier: Apache-2.0
"""Commands that need neither Nova's databases nor Placement."""

import io
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import nova.conf
from nova import context as nova_context
from nova.db.api import api as api_api
from nova.db.main import api as main_api
from oslo_db.sqlalchemy import enginefacade

from cellsched.hosts import document
from cellsched.scheduler.explanation import decision_record
from cellsched.testing import builders
from cellsched_nova import commands
from cellsched_nova import options
from cellsched_nova import records

CONF = nova.conf.CONF

SERVER = '10000000-0000-4000-8000-000000000000'
SIZE = ('--vcpus', '1', '--ram', '512')

CONFIGURATION = """\
[DEFAULT]
state_path = {directory}
[filter_scheduler]
enabled_filters = ComputeFilter,JsonFilter
weight_classes = nova.scheduler.weights.ram.RAMWeigher
ram_weight_multiplier = -1.0
[api_database]
connection = sqlite:///{directory}/none/api.sqlite
[database]
connection = sqlite:///{directory}/none/main.sqlite
"""

#: Sends SIGINT when a module is imported, and runs a command.
INTERRUPTED = """
import importlib, os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[2]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
importlib.import_module(sys.argv[1]).main()
"""


class TestInterrupts(unittest.TestCase):

    def test_interrupt_during_the_start_of_a_process_shows_no_traceback(self):
        patch = 'oslo_service.backend._threading'
        for module, imported in (
                ('cellsched_nova.commands', patch),
                ('cellsched_nova.shadow.commands', patch),
                ('cellsched_nova.commands', 'cliff'),
                ('cellsched_nova.shadow.commands', 'cliff'),
                ('cellsched_nova.main', 'nova'),
                ('cellsched_nova.main', 'cellsched_nova.manager')):
            ended = subprocess.run(
                [sys.executable, '-c', INTERRUPTED, module, imported],
                capture_output=True, text=True, timeout=600)

            self.assertEqual(
                (-signal.SIGINT, '', ''),
                (ended.returncode, ended.stdout, ended.stderr), imported)


class TestCommands(unittest.TestCase):

    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.nova_conf = self.directory / 'nova.conf'
        self.nova_conf.write_text(
            CONFIGURATION.format(directory=self.directory))
        self.addCleanup(CONF, [], project='nova', default_config_files=[],
                        default_config_dirs=[])
        self.addCleanup(CONF.reset)

    def run_command(self, *argv):
        """Return the exit code, output and errors of a command."""
        # A process reads its configuration only once.
        CONF.reset()
        for api in (main_api, api_api):
            self.addCleanup(api.context_manager.patch_factory(
                enginefacade.transaction_context()))
        stdout, stderr = io.StringIO(), io.StringIO()
        code = commands.NovaShell(stdout, stderr).run([
            '--config-file', str(self.nova_conf), *map(str, argv)])
        return code, stdout.getvalue(), stderr.getvalue()

    def snapshot(self):
        path = self.directory / 'hosts.json'
        path.write_text(json.dumps(document.dump(document.HostDocument(
            builders.table(host=['a', 'b'], nodename=['a', 'b'],
                           free_ram_mb=[1024, 2048]),
            builders.NOW, {builders.CELL: 'north'}))))
        return path

    def test_commands_are_listed(self):
        code, output, _ = self.run_command('--help')

        self.assertEqual(0, code)
        for name in ('capacity', 'explain', 'host export', 'plan'):
            self.assertIn(f'  {name}', output)
        self.assertNotIn('flavor', output)

    def test_plug_ins_of_nova_conf_decide_on_a_file(self):
        code, output, wrong = self.run_command(
            'plan', '--snapshot', self.snapshot(), *SIZE, '-f', 'json')

        self.assertEqual((0, ''), (code, wrong))
        [place] = json.loads(output)['places']
        # Nova's configuration prefers hosts with less memory.
        self.assertEqual(('a', 'north'), (place['host'], place['cell']))

    def test_row_filter_of_nova_decides_on_a_file_by_columns(self):
        _, output, _ = self.run_command(
            'plan', '--snapshot', self.snapshot(), *SIZE, '-f', 'json',
            '--hint', 'query=[">=", "$free_ram_mb", 2000]')

        stages = {each['by']: (each['entered'], each['left'])
                  for each in json.loads(output)['stages']}
        self.assertIn('JsonFilter', stages)

    def test_capacity_of_a_file_is_counted(self):
        code, output, _ = self.run_command(
            'capacity', '--snapshot', self.snapshot(), *SIZE, '-f', 'json')

        self.assertEqual(0, code)
        self.assertEqual(6, json.loads(output)[-1]['Servers'])

    def test_decision_is_explained(self):
        options.register_opts(CONF)
        CONF(['--config-file', str(self.nova_conf)], project='nova')
        database = records.open_database(CONF)
        self.addCleanup(database.close)
        kept = records.DecisionRecords(database, 60)
        kept.record(
            nova_context.RequestContext(request_id='req-1'),
            builders.request(), [SERVER], decision_record.Decision(
                3, (), (), 'because', way=decision_record.Way('columns')))
        kept.flush()

        code, output, wrong = self.run_command(
            'explain', SERVER, '-f', 'json')

        self.assertEqual((0, ''), (code, wrong))
        found = json.loads(output)
        self.assertEqual(
            ('because', {'name': 'columns', 'reasons': []}),
            (found['reason'], found['way']))

    def test_unknown_decision_is_not_found(self):
        code, _, wrong = self.run_command('explain', 'req-2')

        self.assertEqual(1, code)
        self.assertIn('[cellsched] decision_retention', wrong)
        self.assertFalse((self.directory / 'cellsched.sqlite').exists())

    def test_unsupported_configuration_is_named(self):
        self.nova_conf.write_text(
            '[filter_scheduler]\nenabled_filters = Missing\n')

        code, _, wrong = self.run_command('explain', 'req-2')

        self.assertEqual(1, code)
        self.assertIn('Missing is not in available_filters', wrong)

    def test_invalid_transport_url_is_named(self):
        self.nova_conf.write_text(
            '[DEFAULT]\ntransport_url = rabbit://user:secret@host:port/\n')

        code, _, wrong = self.run_command('plan', *SIZE)

        self.assertEqual(1, code)
        self.assertIn('Configuration: [DEFAULT] transport_url', wrong)
        self.assertNotIn('secret', wrong)

    def test_unreachable_database_is_named(self):
        for flavor in ('--flavor', 'small'), (*SIZE, '--group', SERVER):
            code, _, wrong = self.run_command('plan', *flavor)

            self.assertEqual((1, 1), (code, len(wrong.splitlines())), wrong)
            self.assertIn('cannot be reached', wrong)

    def test_missing_options_are_named(self):
        self.nova_conf.write_text('')
        for argv, options_ in (
                (('plan', *SIZE), ('database', 'placement')),
                (('host', 'export'), ('database', 'placement')),
                (('plan', '--flavor', 'small'), ())):
            code, _, wrong = self.run_command(*argv)

            self.assertEqual((1, 1), (code, len(wrong.splitlines())), wrong)
            for group in ('api_database', *options_):
                self.assertIn(f'[{group}] ', wrong)

    def test_unreachable_placement_is_named(self):
        with self.nova_conf.open('a') as stream:
            stream.write('[placement]\nauth_type = none\n')
        for argv in (('plan', *SIZE), ('capacity', *SIZE),
                     ('host', 'export')):
            code, _, wrong = self.run_command(*argv)

            self.assertEqual((1, 1), (code, len(wrong.splitlines())), wrong)
            self.assertIn('Placement cannot be read', wrong)
