# SPDX-License-Identifier: Apache-2.0

import logging
import os
import socket

import fixtures

from cellsched.cmd.systemd import Systemd
from tests.unit import base


class Socket:
    """The socket at which systemd receives notifications."""

    def __init__(self, test, name='notify'):
        self.path = str(test.temporary_directory() / name)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        test.addCleanup(self._socket.close)
        self._socket.bind(self.path)
        self._socket.settimeout(600)
        self.seen = []

    def receive(self):
        self.seen.append(self._socket.recv(4096).decode())
        return self.seen[-1]

    def until(self, state):
        while self.receive() != state:
            pass


class TestSystemd(base.TestCase):

    def systemd(self, **variables):
        for name in ('NOTIFY_SOCKET', 'WATCHDOG_USEC', 'WATCHDOG_PID'):
            self.useFixture(fixtures.EnvironmentVariable(
                name, variables.get(name)))
        return Systemd()

    def test_messages_are_not_sent_without_systemd(self):
        systemd = self.systemd()

        systemd.ready()
        systemd.relay(2)
        systemd.beat()

        self.assertIsNone(systemd.interval_s)

    def test_notifications_are_sent(self):
        received = Socket(self)
        systemd = self.systemd(
            NOTIFY_SOCKET=received.path, WATCHDOG_USEC='3000000')

        systemd.ready()
        systemd.beat()
        systemd.notify('STOPPING=1')

        self.assertEqual(
            ['READY=1', 'WATCHDOG=1', 'STOPPING=1'],
            [received.receive() for _ in range(3)])
        self.assertEqual(1.0, systemd.interval_s)

    def test_other_programs_do_not_find_the_socket(self):
        self.systemd(NOTIFY_SOCKET='/nowhere', WATCHDOG_USEC='1',
                     WATCHDOG_PID='1')

        self.assertEqual([], [name for name in os.environ if
                              name.startswith(('NOTIFY_', 'WATCHDOG_'))])

    def test_watchdog_of_another_process_is_ignored(self):
        systemd = self.systemd(
            NOTIFY_SOCKET='/nowhere', WATCHDOG_USEC='3000000',
            WATCHDOG_PID=str(os.getppid()))

        self.assertIsNone(systemd.interval_s)

    def test_missing_socket_of_systemd_is_no_error(self):
        systemd = self.systemd(NOTIFY_SOCKET='/nowhere')

        logs = self.useFixture(fixtures.FakeLogger(
            'cellsched.cmd.systemd', level=logging.DEBUG))

        systemd.ready()

        self.assertIn('systemd was not notified', logs.output)

    def test_abstract_socket_is_found(self):
        name = f'@cellsched-test-{os.getpid()}'
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as received:
            received.bind(name.replace('@', '\0'))
            received.settimeout(600)
            self.systemd(NOTIFY_SOCKET=name).ready()

            self.assertEqual(b'READY=1', received.recv(100))

    def test_service_is_ready_and_alive_when_all_workers_are(self):
        received = Socket(self)
        systemd = self.systemd(NOTIFY_SOCKET=received.path)
        systemd.relay(2)

        systemd.ready(0)
        systemd.beat(0)
        systemd.notify('one worker')
        self.assertEqual('one worker', received.receive())

        systemd.ready(1)
        self.assertEqual(['READY=1', 'WATCHDOG=1'],
                         [received.receive(), received.receive()])

        systemd.beat(1)
        systemd.beat(1)
        systemd.ready(0)
        self.assertEqual('WATCHDOG=1', received.receive())
