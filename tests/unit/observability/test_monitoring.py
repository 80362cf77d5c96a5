# SPDX-License-Identifier: Apache-2.0
"""The HTTP port for health, readiness and metrics."""

import http.client
import logging
import socket
import threading

import fixtures

from cellsched import clock
from cellsched import exception
from cellsched.observability import monitoring
from cellsched.observability.prometheus import PrometheusMetrics
from cellsched.testing.clock import FakeClock
from tests.unit import base

TIMEOUT_S = 60


def start_thread(function):
    threading.Thread(target=function, daemon=True).start()


class Watched:
    """A service with some checks."""

    def __init__(self, **checks):
        self.checks = checks
        self.reason = ''


class TestMonitor(base.TestCase):

    def monitor(self, service=None, timeout_s=TIMEOUT_S, time=None):
        made = monitoring.Monitor(
            PrometheusMetrics('scheduler'), timeout_s,
            time or clock.Clock(), start_thread)
        if service is not None:
            made.watch(service.checks, lambda: service.reason)
        return made

    def ask(self, monitor, path):
        answer = monitor.answer(path, '')
        return answer.status, answer.body.decode()

    def test_unstarted_service_is_unhealthy_and_not_ready(self):
        monitor = self.monitor()

        self.assertEqual((503, 'the service has not started\n'),
                         self.ask(monitor, '/healthz'))
        self.assertEqual((503, 'not ready: the service has not started\n'),
                         self.ask(monitor, '/readyz'))

    def test_service_waiting_for_a_database_names_its_masked_url(self):
        monitor = self.monitor()

        monitor.wait_for('waits for a database: mysql://me:secret@db/api')

        text = ('the service has not started: waits for a database: '
                'mysql://me:****@db/api\n')
        self.assertEqual((503, text), self.ask(monitor, '/healthz'))
        self.assertEqual((503, f'not ready: {text}'),
                         self.ask(monitor, '/readyz'))

    def test_readiness_names_the_reason_of_a_stopping_service(self):
        service = Watched()
        monitor = self.monitor(service)

        self.assertEqual((200, 'ready\n'), self.ask(monitor, '/readyz?x=1'))

        service.reason = 'the service stops'
        self.assertEqual((503, 'not ready: the service stops\n'),
                         self.ask(monitor, '/readyz'))

    def test_service_is_not_ready_while_its_broker_fails(self):
        service, time = Watched(), FakeClock()
        refused = ['the broker refuses the user', 'no answer']

        def ping():
            if refused:
                raise exception.CellUnreachable(
                    cell='east', reason=refused.pop())
            return ''

        def fail():
            raise AssertionError('a database is not asked')

        service.checks = {'broker, topic scheduler': ping, 'database': fail}
        monitor = monitoring.Monitor(
            PrometheusMetrics('scheduler'), TIMEOUT_S, time,
            lambda function: function())
        monitor.watch(service.checks, lambda: service.reason)

        for expected in 'no answer', 'refuses the user':
            status, body = self.ask(monitor, '/readyz')
            self.assertEqual(503, status)
            self.assertIn(expected, body)
            time.advance(monitoring.KEPT_S + 1)
        self.assertEqual((200, 'ready\n'), self.ask(monitor, '/readyz'))

    def test_all_checks_are_shown_with_their_remarks(self):
        monitor = self.monitor(Watched(
            broker=lambda: '', cells=lambda: 'no answer of cell2'))

        self.assertEqual(
            (200, '[+] broker: ok\n[+] cells: ok; no answer of cell2\n'
                  'healthy\n'), self.ask(monitor, '/healthz'))

    def test_failed_check_is_named_without_the_password(self):
        def fail():
            raise exception.DatabaseUnreachable(
                schema='API', url='x', reason='mysql://me:secret@db/api')

        status, body = self.ask(self.monitor(Watched(
            API=fail, store=lambda: '')), '/healthz')

        self.assertEqual(503, status)
        self.assertIn('[-] API: DatabaseUnreachable', body)
        self.assertIn('[+] store: ok', body)
        self.assertNotIn('secret', body)

    def test_silent_server_fails_in_time_and_costs_a_single_thread(self):
        answers, calls = threading.Event(), []

        def hang():
            calls.append(1)
            answers.wait(TIMEOUT_S)
            return ''

        monitor = self.monitor(Watched(store=hang), timeout_s=0.05)
        for _ in range(3):
            status, body = self.ask(monitor, '/healthz')
            self.assertEqual(503, status)
            self.assertRegex(body, r'\[-\] store: no answer for [\d.]+ sec')
        answers.set()

        self.assertEqual([1], calls)

    def test_log_has_the_first_failure_of_a_kind_and_the_end(self):
        class LateClock(clock.Clock):
            late_s = 0.0

            def monotonic(self):
                return super().monotonic() + self.late_s

        logs = self.useFixture(fixtures.FakeLogger(
            'cellsched.observability.monitoring', level=logging.INFO))
        time, results = LateClock(), [
            OSError('1'), OSError('2'), ValueError('3'), None, None]

        def check():
            error = results.pop(0)
            if error is not None:
                raise error
            return ''

        monitor = self.monitor(Watched(store=check), time=time)
        while results:
            self.ask(monitor, '/healthz')
            time.late_s += 2 * monitoring.KEPT_S

        self.assertEqual(
            ['Health check of store fails: OSError: 1',
             'Health check of store fails: ValueError: 3',
             'Health check of store fails: this has ended after 6 s; it '
             'occurred 3 times'],
            logs.output.splitlines())

    def test_recent_result_is_used_again(self):
        calls = []
        monitor = self.monitor(Watched(store=lambda: str(calls.append(1))))

        for _ in range(5):
            self.ask(monitor, '/healthz')

        self.assertLess(len(calls), 5)

    def test_other_path_is_not_found(self):
        self.assertEqual(
            (404, 'paths: /healthz /readyz /metrics\n'),
            self.ask(self.monitor(), '/'))


class TestServer(base.TestCase):

    def setUp(self):
        super().setUp()
        self.listener = monitoring.listen('127.0.0.1', 0)
        self.port = self.listener.getsockname()[1]
        self.addCleanup(self.listener.close)
        monitor = monitoring.Monitor(
            PrometheusMetrics('scheduler'), TIMEOUT_S, clock.Clock(),
            start_thread, self.listener)
        monitor.serve()
        self.addCleanup(monitor.stop)

    def connect(self):
        made = http.client.HTTPConnection(
            '127.0.0.1', self.port, timeout=TIMEOUT_S)
        self.addCleanup(made.close)
        return made

    def ask(self, path, method='GET'):
        connection = self.connect()
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers

    def test_metrics_have_the_media_type_of_prometheus(self):
        status, body, headers = self.ask('/metrics')

        self.assertEqual(200, status)
        self.assertIn('version=', headers['Content-Type'])
        self.assertIn(b'cellsched_workers 1.0', body)
        self.assertEqual('cellsched', headers['Server'])

    def test_head_has_no_body(self):
        status, body, headers = self.ask('/readyz', 'HEAD')

        self.assertEqual((503, b''), (status, body))
        self.assertGreater(int(headers['Content-Length']), 0)

    def test_other_methods_are_refused(self):
        self.assertEqual(501, self.ask('/metrics', 'POST')[0])

    def test_silent_clients_do_not_block_other_clients_for_long(self):
        self.useFixture(fixtures.MonkeyPatch(
            'cellsched.observability.monitoring._Handler.timeout', 0.1))
        for _ in range(8):
            self.addCleanup(socket.create_connection(
                ('127.0.0.1', self.port)).close)

        self.assertEqual(503, self.ask('/readyz')[0])

    def test_connection_beyond_the_limit_and_the_oldest_are_closed(self):
        self.useFixture(fixtures.MonkeyPatch(
            'cellsched.observability.monitoring._REQUESTS_MAX', 2))
        first, second, third = (
            socket.create_connection(('127.0.0.1', self.port), TIMEOUT_S)
            for _ in range(3))
        for each in first, second, third:
            self.addCleanup(each.close)

        self.assertEqual((b'', b''), (third.recv(1), first.recv(1)))
        second.sendall(b'GET /readyz HTTP/1.0\r\n\r\n')
        self.assertIn(b'503', second.recv(100))

    def test_port_in_use_is_an_error_with_its_number(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, monitoring.listen, '127.0.0.1',
            self.port)

        self.assertIn(f'listen on 127.0.0.1 port {self.port}', str(error))
