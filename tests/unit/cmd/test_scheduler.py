# SPDX-License-Identifier: Apache-2.0
"""The process of a scheduler."""

import os
import pathlib
import signal
import socket
import time

from tests.unit.cmd import processes
from tests.unit.cmd import services


class TestScheduler(services.ServiceTestCase):

    def test_scheduler_runs_until_a_signal(self):
        service = self.start('scheduler', api=True, scheduler={'workers': 1})
        service.until('has started as host1')

        self.assertEqual(0, service.stop(), service.output)
        self.assertNotIn('Traceback', service.output)

    def test_missing_driver_is_refused_in_a_single_line(self):
        code, error = self.run_to_end(
            'scheduler', api=True, scheduler={'driver': 'nobody'})

        self.assertEqual(1, code)
        self.assertEqual(
            'scheduler: No plug-in nobody in cellsched.scheduler.drivers, '
            'which [scheduler] driver names; expected one of '
            'chance_scheduler, filter_scheduler, provider_scheduler.\n', error)

    def request(self, path):
        return processes.get(self.port, path)

    def test_workers_share_a_port_and_their_metrics(self):
        self.port = processes.free_port()
        service = self.start(
            'scheduler', api=True,
            DEFAULT={'graceful_shutdown_timeout': 60},
            scheduler={'workers': 2, 'refresh_interval': 0.1},
            monitoring={'scheduler_port': self.port})
        service.until('has started as host1', 2)

        self.assertEqual(
            (200, '[+] broker, topic scheduler: ok\n[+] API database: ok\n'
                  '[+] cells: ok\n[+] claim store: ok\nhealthy\n'),
            self.request('/healthz'))
        self.wait_for('/readyz', 'ready\n')
        # The metrics of a worker that is killed and replaced stay.
        self.wait_for('/metrics', 'cellsched_workers 2.0\n')
        worker = self.workers(service)[0]
        worker_id = int(worker.name)
        os.kill(worker_id, signal.SIGKILL)
        service.until('has started as host1', 3)
        self.wait_for('/metrics', 'cellsched_workers 2.0\n')

        self.assertEqual(0, service.stop(), service.output)
        self.assertNotIn('Traceback', service.output)

    def wait_for(self, path, text):
        deadline = time.monotonic() + processes.TIMEOUT_S
        while text not in self.request(path)[1]:
            self.assertLess(time.monotonic(), deadline, self.request(path))
            time.sleep(0.05)

    def workers(self, service):
        """Return the directories of the worker processes."""
        return [path.parent for path in pathlib.Path('/proc').glob('*/stat')
                if path.parent.name.isdigit() and path.read_text().rpartition(
                    ')')[2].split()[1] == str(service.popen.pid)]

    def test_used_port_is_refused_in_a_single_line(self):
        with socket.socket() as other:
            other.bind(('127.0.0.1', 0))
            other.listen()
            port = other.getsockname()[1]
            code, error = self.run_to_end(
                'scheduler', api=True, monitoring={'scheduler_port': port})

        self.assertEqual(1, code)
        self.assertIn(f'listen on 127.0.0.1 port {port}: Address '
                      'already in use', error)
        self.assertEqual(1, error.count('\n'))
