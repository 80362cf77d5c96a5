# SPDX-License-Identifier: Apache-2.0
"""The library that other services embed, as a package."""

import subprocess
import sys

from cellsched.conf import default
from cellsched.conf import opts
from tests.unit import base

PROGRAM = '''
import sys, threading
from oslo_config import cfg
before = len(threading.enumerate())
import cellsched.embedding
print(len(threading.enumerate()) - before)
print(*cfg.CONF)
print(*sys.modules)
'''

UNWANTED = ('cellsched.wiring.services', 'cellsched.scheduler',
            'cellsched.compute', 'cellsched.api', 'cellsched.cli',
            'cellsched.testing')

TIMEOUT_S = 600


class TestImport(base.TestCase):

    def test_import_starts_no_thread_and_registers_no_option(self):
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', PROGRAM], check=True,
            capture_output=True, text=True, timeout=TIMEOUT_S)
        threads, names, modules = done.stdout.splitlines()

        self.assertEqual('0', threads)
        # Libraries register some of theirs.
        ours = {opt.dest for opt in default.OPTS} | {
            group for group, _ in opts.list_core()}
        self.assertEqual(set(), ours.intersection(names.split()))
        self.assertEqual([], [
            name for name in modules.split() if name.startswith(UNWANTED)])
