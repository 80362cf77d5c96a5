# SPDX-License-Identifier: Apache-2.0

import os
import subprocess
import sys

from tests.unit import base


class TestCmd(base.TestCase):

    def test_processes_use_threads_without_warnings_of_eventlet(self):
        self.assertEqual('threading\n', self.run_code(
            'import cellsched.cmd\n'
            'from oslo_service import backend\n'
            'backend.get_backend()\n'
            'print(backend.get_backend_type().value)\n'))

    def test_numpy_starts_no_threads(self):
        self.assertEqual('1\n', self.run_code(
            'import os\n'
            'import cellsched.cmd\n'
            'import numpy\n'
            'print(len(os.listdir("/proc/self/task")))\n'))

    def test_configured_threads_of_numpy_stay(self):
        self.assertEqual('2\n', self.run_code(
            'import os\n'
            'import cellsched.cmd\n'
            'print(os.environ["OPENBLAS_NUM_THREADS"])\n',
            OPENBLAS_NUM_THREADS='2'))

    def run_code(self, code, **variables):
        """Return what code printed."""
        environment = {name: value for name, value in os.environ.items()
                       if name != 'OPENBLAS_NUM_THREADS'}
        ended = subprocess.run(
            [sys.executable, '-c', code], env={**environment, **variables},
            capture_output=True, text=True, timeout=600)
        self.assertEqual('', ended.stderr)
        return ended.stdout
