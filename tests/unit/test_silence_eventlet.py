# SPDX-License-Identifier: Apache-2.0
"""Imports of the libraries that warn of eventlet."""

import pathlib
import subprocess
import sys

from tests import profile
from tests.unit import base

ROOT = pathlib.Path(__file__).resolve().parents[2]

#: Through each of these a library is imported first that warns.
ENTRANCES = ('cellsched.wiring.services', 'cellsched.cmd.launch',
             'cellsched.conf', 'cellsched.filters.base',
             'cellsched.notify.notifiers', 'cellsched.rpc.client')

#: What an old release of webob has Python warn of; it is not of eventlet.
CGI = "'cgi' is"

TIMEOUT_S = 600


class TestImportWarnings(base.TestCase):

    def run_python(self, *args):
        """Return what a program prints, where it may not warn."""
        done = subprocess.run(
            [sys.executable, *args], cwd=ROOT, capture_output=True,
            text=True, timeout=TIMEOUT_S)
        self.assertEqual((0, ''), (done.returncode, done.stderr))
        return done.stdout

    def test_imports_emit_no_warnings(self):
        strict = '-W', 'error', '-W', f'ignore:{CGI}'
        # What is no warning where all are errors is none elsewhere, but for
        # what Python itself shows or hides.
        for name, options in [(ENTRANCES[0], ()), *(
                (name, strict)
                for name in ENTRANCES[:profile.ENTRANCES])]:
            with self.subTest(name=name, options=options):
                self.run_python(*options, '-c', f'import {name}')

    def test_import_keeps_the_warning_filters_and_patches_no_module(self):
        self.assertEqual('True []', self.run_python('-c', (
            # This one adds some of its own.
            'import numpy\n'
            'import warnings\n'
            'warnings.simplefilter("error", DeprecationWarning)\n'
            f'warnings.filterwarnings("ignore", "{CGI}")\n'
            'before = list(warnings.filters)\n'
            'import cellsched.wiring.services\n'
            'print(before == warnings.filters, end=" ")\n'
            'warnings.resetwarnings()\n'
            'from eventlet import patcher\n'
            'print([name for name in ("os", "select", "socket", "thread", '
            '"time") if patcher.is_monkey_patched(name)])\n')).strip())

    def test_processes_do_not_import_eventlet(self):
        self.assertEqual('[]', self.run_python('-c', (
            'import sys\n'
            'import cellsched.cmd.compute, cellsched.cmd.conductor, '
            'cellsched.cmd.scheduler, cellsched.cmd.shell\n'
            'print([name for name, module in sys.modules.items()\n'
            '       if name.split(".")[0] == "eventlet" and module])\n'
        )).strip())
