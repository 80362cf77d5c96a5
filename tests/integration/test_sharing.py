# SPDX-License-Identifier: Apache-2.0
"""Servers that the processes of a run share."""

import pathlib
import re
import signal
import sys
import threading

import sqlalchemy as sa

from tests.integration import base
from tests.integration import processes
from tests.integration import servers
from tests.integration import serving
from tests.integration import sharing
from tests import profile

ROOT = str(pathlib.Path(__file__).parents[2])

#: Says where the shared server is, which it starts if nobody has: in one
#: write, because two processes say it at once.
ASK = '''
import sys
from tests.integration import servers
server = servers.shared(servers.PostgreSQL)
with servers.Part(server) as part:
    sys.stdout.write(
        f"directory: {server.directory} url: {part.url('one')}\\n")
    sys.stdout.flush()
'''

#: Says where the server is of which it uses a part.
USE = '''
from tests.integration import servers
with servers.part_of(servers.PostgreSQL, durable=True) as part:
    part.url("one")
    print(part.server.directory)
'''


class Missing(servers.PostgreSQL):
    """A server that no machine has."""

    programs = ('no-such-program',)


class Broken(servers.PostgreSQL):
    """A server that does not start."""

    def prepare(self) -> None:
        raise processes.ProcessFailed('it is out of order')


class TestSharing(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        # What cannot be had here fails in this process already.
        self.part_of(servers.PostgreSQL)

    def command(self, *lines: str) -> list[str]:
        """Return a command that shares servers with two processes, and ends.

        :param lines: of Python, which end it
        """
        code = '\n'.join([
            'import signal, subprocess, sys',
            f'asks = [sys.executable, "-c", {ASK!r}]',
            'all = [subprocess.Popen(asks) for _ in range(2)]',
            'assert [each.wait() for each in all] == [0, 0]',
            'child = subprocess.Popen(["sleep", "1000"])',
            'print("child:", child.pid, flush=True)',
            'print("all have asked", flush=True)', *lines])
        return [sys.executable, '-m', 'tests.integration.sharing',
                sys.executable, '-c', code]

    def test_shared_server_ends_with_the_command(self):
        output = self.run_command(
            *self.command('sys.exit(3)'), env={'PYTHONPATH': ROOT},
            expected=3)

        self.assert_gone(output)

    @profile.full_only('other ends of a run; by default it ends by itself')
    def test_ended_run_leaves_no_servers(self):
        for number in signal.SIGINT, signal.SIGTERM, signal.SIGKILL:
            with self.subTest(signal=number):
                run = self.process(
                    self.command('signal.pause()'), name=f'run-{number}',
                    env={'PYTHONPATH': ROOT}, ready='all have asked',
                    stop_signal=number)
                output = run.output()

                run.stop()

                self.assert_gone(output)

    def assert_gone(self, output: str) -> None:
        found = re.findall('^directory: (.+) url: (.+)$', output,
                           re.MULTILINE)
        self.assertEqual(2, len(found), output)
        [directory] = {pathlib.Path(path) for path, _ in found}
        self.assertEqual(2, len({url for _, url in found}))
        processes.wait_until(
            lambda: not directory.exists(), f'{directory} to go')
        self.assertEqual([], processes.inside(directory))
        [child] = re.findall(r'^child: (\d+)$', output, re.MULTILINE)
        processes.wait_until(
            lambda: not processes.is_alive(int(child)),
            'what the command started to end')


class TestServers(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        started = sharing.Servers()
        self.addCleanup(started.close)
        self.path = str(self.directory / 'servers')
        listener = self.enterContext(
            sharing.Listener(self.path, started))
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(listener.shutdown)

    def test_attached_server_has_parts_and_cannot_be_stopped(self):
        base.installed(servers.PostgreSQL)
        server = sharing.attached(servers.PostgreSQL, self.path)

        with servers.Part(server) as part:
            engine = sa.create_engine(part.url('one'))
            self.addCleanup(engine.dispose)
            with engine.connect() as connection:
                self.assertEqual(1, connection.scalar(sa.text('SELECT 1')))

        engine.dispose()
        self.assertRaises(sa.exc.OperationalError, engine.connect)
        for call in server.stop, server.kill, server.start:
            self.assertRaises(RuntimeError, call)

    @profile.full_only('one more server; by default all tests share one')
    def test_part_has_a_separate_server_without_sharing(self):
        base.installed(servers.PostgreSQL)
        shared = str(sharing.attached(
            servers.PostgreSQL, self.path).directory)

        for path, is_shared in (self.path, True), ('', False):
            used = self.run_command(
                sys.executable, '-c', USE,
                env={'PYTHONPATH': ROOT, sharing.VARIABLE: path}).strip()
            self.assertEqual(is_shared, used == shared, used)
            self.assertEqual(is_shared, pathlib.Path(used).exists())

    def test_missing_server_is_reported_to_each_process(self):
        for _ in range(2):
            error = self.assertRaises(
                serving.NotInstalled, sharing.attached, Missing, self.path)
            self.assertIn('no-such-program', str(error))

    def test_failing_server_is_reported_to_each_process(self):
        for _ in range(2):
            error = self.assertRaises(
                processes.ProcessFailed, sharing.attached, Broken, self.path)
            self.assertIn('out of order', str(error))
