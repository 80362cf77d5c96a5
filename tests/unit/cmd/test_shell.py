# SPDX-License-Identifier: Apache-2.0

import json
import os
import signal

from cellsched.hosts import document
from cellsched.testing import builders
from tests.unit import base
from tests.unit.cmd import processes

#: What is left where a cell does not answer.
THREAD = """
import threading
threading.Thread(target=threading.Event().wait).start()
"""


#: Sends SIGINT when a module is imported.
INTERRUPT = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == '{module}':
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
"""


class TestShell(base.TestCase):

    def test_command_prints_only_its_output(self):
        ended = processes.run('shell', 'plugin', 'list', '-f', 'value')

        self.assertEqual((0, ''), (ended.returncode, ended.stderr))
        self.assertIn('ComputeFilter', ended.stdout)

    def test_unprintable_characters_are_escaped(self):
        env = {**os.environ, 'PYTHONIOENCODING': 'ascii'}
        path = self.temporary_directory() / 'hosts.json'
        path.write_text(json.dumps(document.dump(document.HostDocument(
            builders.table(1, host='n\xe9'), 0))))

        ended = processes.run(
            'shell', 'host', 'list', '--snapshot', str(path), env=env)

        self.assertEqual((0, ''), (ended.returncode, ended.stderr))
        self.assertIn('n\\xe9', ended.stdout)

    def test_error_is_a_single_line_without_traceback(self):
        missing = self.temporary_directory() / 'missing.conf'

        ended = processes.run(
            'shell', 'server', 'list', '--config-file', str(missing))

        self.assertEqual((1, ''), (ended.returncode, ended.stdout))
        self.assertEqual(1, len(ended.stderr.splitlines()), ended.stderr)
        self.assertTrue(ended.stderr.startswith('cellsched: '))
        self.assertIn('missing.conf', ended.stderr)

    def test_interrupt_during_an_import_shows_no_traceback(self):
        for module, code in (('cliff', -signal.SIGINT),
                             ('cellsched.cli.backend', 130)):
            ended = processes.run(
                'shell', 'server', 'list',
                before=INTERRUPT.format(module=module))

            self.assertEqual(
                (code, '', ''),
                (ended.returncode, ended.stdout, ended.stderr))

    def test_interrupt_during_the_start_of_a_process_shows_no_traceback(self):
        for process, module in (
                ('scheduler', 'numpy'), ('conductor', 'oslo_messaging'),
                ('compute', 'cellsched.cmd.reports'),
                ('status', 'oslo_upgradecheck')):
            ended = processes.run(
                process, before=INTERRUPT.format(module=module))

            self.assertEqual(
                (-signal.SIGINT, '', ''),
                (ended.returncode, ended.stdout, ended.stderr), module)

    def test_closed_pipe_exits_with_141(self):
        reader, writer = os.pipe()
        os.close(reader)

        with os.fdopen(writer, 'w') as stdout:
            ended = processes.run('shell', 'plugin', 'list', stdout=stdout)

        self.assertEqual((141, ''), (ended.returncode, ended.stderr))

    def test_closed_stdout_exits_with_0(self):
        ended = processes.run(
            'shell', 'plugin', 'list', before='sys.stdout = None')

        self.assertEqual((0, ''), (ended.returncode, ended.stderr))

    def test_threads_do_not_keep_the_process(self):
        ended = processes.run('shell', '--version', before=THREAD)

        self.assertEqual(0, ended.returncode)
        self.assertIn('cellsched', ended.stdout)
