# SPDX-License-Identifier: Apache-2.0

import subprocess
import sys

from tests.unit import base


class TestCmd(base.TestCase):

    def test_processes_use_threads_and_hear_nothing_of_eventlet(self):
        ended = subprocess.run(
            [sys.executable, '-c',
             'import cellsched.cmd\n'
             'from oslo_service import backend\n'
             'backend.get_backend()\n'
             'print(backend.get_backend_type().value)\n'],
            capture_output=True, text=True, timeout=120)

        self.assertEqual(('threading\n', ''), (ended.stdout, ended.stderr))
