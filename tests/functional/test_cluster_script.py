# SPDX-License-Identifier: Apache-2.0
"""``tools/cluster.sh`` and ``tools/soak.sh``, without a cluster.

``tests.integration.test_cluster`` starts one.
"""

import contextlib
import io
import json
import os
import subprocess
import sys

from tests.unit import base
from tools import cluster
from tools import soak


class TestCluster(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_directory()

    def run_script(self, *args):
        printed = io.StringIO()
        with (contextlib.redirect_stdout(printed),
              contextlib.redirect_stderr(printed)):
            try:
                code = cluster.main([
                    *args, '--directory', str(self.directory)])
            except SystemExit as exc:
                code = exc.code
        return code, printed.getvalue()

    def write(self, pid):
        (self.directory / cluster.STATE).write_text(json.dumps({
            'number': 1, 'pid': pid, 'processes': {'scheduler': pid},
            'ports': {'scheduler': 17}}))

    def test_no_cluster_runs_in_an_empty_directory(self):
        for command, code in ('status', cluster.DOWN), ('down', 0):
            self.assertEqual(
                (code, f'No cluster runs in {self.directory}.\n'),
                self.run_script(command))

    def test_process_in_another_directory_is_not_stopped(self):
        with subprocess.Popen(
                [sys.executable, '-c', 'input()'], stdin=subprocess.PIPE,
                cwd='/') as other:
            self.write(other.pid)

            self.assertEqual(cluster.DOWN, self.run_script('status')[0])
            self.assertEqual(0, self.run_script('down')[0])

            self.assertIsNone(other.poll())
            other.communicate(b'\n')
        self.assertEqual(0, other.returncode)

    def test_process_in_the_directory_belongs_to_the_cluster(self):
        with subprocess.Popen(
                [sys.executable, '-c', 'input()'], stdin=subprocess.PIPE,
                cwd=self.directory) as ours:
            self.write(ours.pid)

            code, printed = self.run_script('status')

            self.assertEqual(cluster.RUNS, code)
            self.assertRegex(
                printed,
                rf'scheduler +runs +{ours.pid}  http://127.0.0.1:17\n')
            ours.communicate(b'\n')

    def test_down_keeps_files_of_the_user(self):
        self.write(os.getpid())
        (self.directory / 'api.conf').touch()
        (self.directory / 'notes.txt').touch()

        self.run_script('down')

        self.assertEqual(['notes.txt'], os.listdir(self.directory))

    def test_directory_in_use_is_refused(self):
        (self.directory / 'notes.txt').touch()

        code, _ = self.run_script('up')

        self.assertEqual(
            f'--directory: {self.directory} is not empty; expected a new '
            'directory or an empty one', code)
        self.assertEqual(['notes.txt'], os.listdir(self.directory))

    def test_numbers_are_checked(self):
        code, printed = self.run_script('up', '--cells', '0')

        self.assertEqual(2, code)
        self.assertIn('0 is out of range; expected 1 to 1000', printed)


class TestGrowth(base.TestCase):

    def grew(self, memory, connections):
        samples = [{'scheduler': each} for each in zip(memory, connections)]
        [(name, grew, _)] = soak.growth(samples)
        self.assertEqual('scheduler', name)
        return grew

    def test_steady_process_passes(self):
        self.assertFalse(self.grew(
            [50, 90, 100, 101, 99, 100, 101, 102, 103, 104], [9, 8] * 5))

    def test_growing_memory_is_detected(self):
        self.assertTrue(self.grew(range(100, 200, 10), [9] * 10))

    def test_growing_connections_are_detected(self):
        self.assertTrue(self.grew([100] * 10, range(10, 40, 3)))

    def test_own_memory_and_connections_are_read(self):
        self.assertGreater(soak.memory_mb(os.getpid()), 1)
        self.assertEqual(0, soak.connections_of()(os.getpid()))
