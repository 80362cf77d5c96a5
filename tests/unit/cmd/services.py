# SPDX-License-Identifier: Apache-2.0
"""Services as processes: started, told to stop, and looked at."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from cellsched.testing import databases
from tests.unit import base
from tests.unit.cmd import processes


class ServiceTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_directory()
        self.api = self.useFixture(databases.APIDatabase())
        self.cell = self.useFixture(databases.CellDatabase())
        self.claims_url = self.useFixture(databases.ClaimsDatabase()).url

    def configure(self, api=False, cell=False, **groups):
        """Write a configuration, with these databases; return its path."""
        wanted = {
            'DEFAULT': {'host': 'host1', 'transport_url': 'local://x/y'},
            'api_database': {'connection': self.api.url} if api else {},
            'database': {'connection': self.cell.url} if cell else {},
            'claims': {'connection': self.claims_url}}
        for group, options in groups.items():
            wanted[group] = {**wanted.get(group, {}), **options}
        path = self.directory / 'service.conf'
        path.write_text('\n'.join(
            line for group, options in wanted.items() for line in (
                f'[{group}]', *(f'{name} = {value}'
                                for name, value in options.items()))))
        return path

    def run_to_end(self, module, **options):
        """Run a service that cannot start; return its code and its errors."""
        path = self.configure(**options)
        ended = processes.run(module, '--config-file', str(path))
        self.assertEqual('', ended.stdout)
        return ended.returncode, ended.stderr

    def start(self, module, **options):
        """Start a service by the ``main`` of its module."""
        path = self.configure(**options)
        return self.start_code(
            f'from cellsched.cmd import {module}; {module}.main()',
            '--config-file', str(path))

    def start_code(self, code, *argv):
        return Service(self, f'import sys; sys.argv[0] = "service"\n{code}',
                       *argv)


class Service:
    """A process, and what it wrote."""

    def __init__(self, test, code, *argv):
        self.test = test
        self.log = pathlib.Path(test.directory / 'log')
        env = {name: value for name, value in os.environ.items()
               if name != 'PYTHONWARNINGS'}
        with self.log.open('wb') as log:
            # In a group of its own, which it may send signals to.
            self.popen = subprocess.Popen(
                [sys.executable, '-c', code, *argv], stdout=log, stderr=log,
                env=env, start_new_session=True)
        test.addCleanup(self.end)

    @property
    def output(self):
        return self.log.read_text()

    def until(self, pattern, count=1):
        """Wait until its output has so many matches; return them."""
        deadline = time.monotonic() + processes.TIMEOUT_S
        while len(found := re.findall(pattern, self.output)) < count:
            self.test.assertIsNone(self.popen.poll(), self.output)
            self.test.assertLess(time.monotonic(), deadline, self.output)
            time.sleep(0.02)
        return found

    def signal(self, number):
        self.popen.send_signal(number)

    def stop(self):
        """Tell it to stop; return its exit code when it has."""
        self.signal(signal.SIGTERM)
        return self.popen.wait(processes.TIMEOUT_S)

    def end(self):
        if self.popen.poll() is None:
            os.killpg(self.popen.pid, signal.SIGKILL)
            self.popen.wait()
