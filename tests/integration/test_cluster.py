# SPDX-License-Identifier: Apache-2.0
"""``tools/cluster.sh`` and ``tools/soak.sh``, with real servers."""

import json
import os
import signal
from urllib import request

from tests.integration import base
from tests.integration import processes
from tests.integration import servers
from tests import profile
from tests.unit import tidy

TOOLS = tidy.ROOT / 'tools'


@profile.full_only(
    'a whole cluster; tests.functional.test_cluster_script has its state, '
    'tests.integration.test_stories its deployment')
class TestCluster(base.TestCase):

    def setUp(self):
        super().setUp()
        for kind in servers.RabbitMQ, servers.PostgreSQL:
            base.installed(kind)
        # The account of PostgreSQL has to find its files there.
        self.cluster = processes.make_directory(servers.serving.ROOT)
        self.cluster.chmod(0o755)
        self.addCleanup(
            lambda: self.cluster.exists()
            and processes.remove_directory(self.cluster))

    def run_tool(self, command, *args, expected=0):
        return self.run_command(
            'bash', str(TOOLS / 'cluster.sh'), command,
            f'--directory={self.cluster}', *args, expected=expected)

    def test_cluster_starts_and_recovers_and_stops(self):
        self.addCleanup(self.run_tool, 'down')
        self.assertIn('CELLSCHED_CONFIG', self.run_tool(
            'up', '--cells=1', '--agents=1', '--schedulers=1'))
        state = json.loads((self.cluster / 'cluster.json').read_text())
        self.assertIn('already', self.run_tool('up'))
        for name in ('cellsched-scheduler-control1',
                     'cellsched-compute-cell1-host1'):
            os.kill(state['processes'][name], signal.SIGKILL)
        processes.wait_until(
            lambda: 2 == self.run_tool('status', expected=1).count(
                'has ended'), 'both to be missed')

        self.run_tool('up')

        self.assertNotIn('has ended', self.run_tool('status'))
        for port in state['ports'].values():
            with request.urlopen(
                    f'http://127.0.0.1:{port}/healthz', timeout=60) as answer:
                self.assertEqual(200, answer.status)
        played = json.loads(self.run_command(
            'cellsched', 'demo', '--cluster', '-f', 'json',
            env={'CELLSCHED_CONFIG': str(self.cluster / 'api.conf')}))
        self.assertEqual(
            ['ACTIVE'] * 6 + ['ERROR', 'DELETED'],
            [each['Status'] for each in played])

        self.run_tool('down')

        self.assertFalse(self.cluster.exists())
        self.run_tool('status', expected=3)
        for pid in state['processes'].values():
            self.assertFalse(processes.is_alive(pid))

    def test_soak_passes(self):
        printed = self.run_command(
            'bash', str(TOOLS / 'soak.sh'), '--minutes=0.5', '--rate=4',
            '--cells=1', '--agents=1')

        self.assertIn('the audit found nothing.', printed)
