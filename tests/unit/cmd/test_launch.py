# SPDX-License-Identifier: Apache-2.0
"""Running a service as a process, whenever it is told to stop."""

import logging
import pathlib
import re
import signal
import threading

import fixtures
from oslo_log import formatters

from cellsched.cmd import launch
from cellsched import context
from cellsched.db.cell.services import COMPUTE
from cellsched.db.cell.services import report
from tests import profile
from tests.unit import base
from tests.unit.cmd import processes
from tests.unit.cmd import services
from tests.unit.cmd import test_systemd
from tests.unit.db import samples

#: A service that sends itself a message, which is not done with before it is
#: told to stop; and one that is told to stop while it starts.
CODE = """
import atexit, functools, os, signal, sys, threading
from amqp import exceptions
from cellsched.wiring.components import Components
from cellsched.wiring import service
from cellsched import context, plugins
from cellsched.cmd import launch
from cellsched.rpc import client, server


class Endpoint:

    def work(self, context, instance_uuid):
        print('begun', flush=True)
        stopping.wait(600)
        print('done', flush=True)


class Service(service.Service):

    def start(self):
        super().start()
        client.Client(self.parts.transports.get(), 'topic', '1.0').cast(
            context.admin(), 'work', instance_uuid='uuid1')

    def stop(self, timeout_s):
        stopping.set()
        super().stop(timeout_s)


class Busy(Service):

    def stop(self, timeout_s):
        service.Service.stop(self, timeout_s)


class Asking(service.Service):

    def start(self):
        self._periodic = [(self.parts.compute_cap, 0.05)]
        super().start()


class Impatient(service.Service):

    def start(self):
        os.kill(os.getpid(), signal.SIGTERM)
        stopping.wait(600)


class Refused(service.Service):

    def start(self):
        raise exceptions.AccessRefused('wrong password')


def make(kind, conf, metrics=None):
    parts = Components(conf)
    return kind(parts, [server.server(
        parts.transports.get(), 'topic', 'host', [Endpoint()])])


atexit.register(print, 'the interpreter ends')
stopping = threading.Event()
kind = globals()[sys.argv.pop()]
count = int(sys.argv.pop())
sys.exit(launch.run(functools.partial(make, kind), lambda conf: count,
                    [plugins.CLAIMS]))
"""


class TestLaunch(services.ServiceTestCase):

    def run_code(self, kind, workers, **options):
        return self.start_code(
            CODE, '--config-file', str(self.configure(**options)),
            str(workers), kind)

    def test_received_message_is_finished_before_the_exit(self):
        for workers in (1, 2):
            service = self.run_code('Service', workers)
            service.until('begun', workers)
            # Until then a signal ends it without stopping it.
            service.until('has started', workers)

            self.assertEqual(0, service.stop(), service.output)

            self.assertEqual(workers, service.output.count('done'))
            # That would take half a second.
            self.assertNotIn('the interpreter ends', service.output)
            self.assertEqual(workers, service.output.count(
                'stops within 60 seconds; it waits for: message work for '
                'instance uuid1\n'))
            self.assertNotIn('Traceback', service.output)

    def test_second_signal_ends_the_service_and_logs_unfinished_work(self):
        for workers in (1, 2):
            service = self.run_code('Busy', workers)
            service.until('begun', workers)
            service.until('has started', workers)

            service.signal(signal.SIGTERM)
            service.until('stops within', workers)
            service.signal(signal.SIGTERM)
            code = service.popen.wait(600)

            # The parent of the workers ends as always.
            self.assertEqual(1 if workers == 1 else 0, code, service.output)
            self.assertEqual(workers, len(re.findall(
                r'service ends at SIG\w+; in progress: message work for '
                'instance uuid1\n', service.output)), service.output)
            self.assertNotIn('Traceback', service.output)

    def test_graceful_shutdown_timeout_ends_the_service(self):
        service = self.run_code(
            'Busy', 1, DEFAULT={'graceful_shutdown_timeout': 1})
        service.until('begun')
        service.until('has started')

        self.assertEqual(1, service.stop(), service.output)

        self.assertIn('service ends after the 1 seconds of '
                      'graceful_shutdown_timeout; in progress: message work',
                      service.output)

    def test_signal_during_the_start_ends_the_service(self):
        service = self.run_code('Impatient', 1)

        self.assertEqual(0, service.popen.wait(600), service.output)

        self.assertNotIn('Traceback', service.output)

    def test_refusing_broker_at_the_start_is_logged_in_a_single_line(self):
        service = self.run_code('Refused', 1)

        self.assertEqual(1, service.popen.wait(600), service.output)

        self.assertEqual(
            1, service.output.count('service: AccessRefused: '))
        self.assertNotIn('Traceback', service.output)

    def test_refused_workers_print_no_tracebacks(self):
        service = self.run_code('Refused', 2)

        service.until('service: AccessRefused: ', 2)
        service.stop()

        self.assertNotIn('Traceback', service.output)

    def test_service_waits_for_its_database_and_logs_once(self):
        self.cell.database.close()
        file = pathlib.Path(self.cell.url.removeprefix('sqlite:///'))
        hidden = file.with_suffix('.away')
        port = processes.free_port()
        for workers in (1, 2):
            file.rename(hidden)
            file.mkdir()
            service = self.start(
                'conductor', cell=True, conductor={'workers': workers},
                monitoring={'conductor_port': port})
            service.until(' waits for a database: The cell database at ')
            self.assertNotIn('has started', service.output)
            status, answer = processes.get(port, '/healthz')
            self.assertEqual(503, status)
            self.assertIn('waits for a database: The cell database', answer)

            file.rmdir()
            hidden.rename(file)
            service.until('has started', workers)
            self.assertEqual(200, processes.get(port, '/healthz')[0])

            self.assertEqual(0, service.stop(), service.output)
            # The begin and the end.
            self.assertEqual(2, service.output.count('waits for a database'))
            self.assertEqual(1, service.output.count(': this has ended'))
            self.assertNotIn('Traceback', service.output)

    def test_hangup_reads_service_versions_again(self):
        with self.cell.database.writer() as connection:
            report(
                connection, samples.uuids(1)[0], 'host', COMPUTE,
                'compute', samples.NOW, 1)
        for workers in (1, 2):
            service = self.run_code(
                'Asking', workers, cell=True,
                upgrade_levels={'compute': 'auto'})
            service.until('The oldest compute service', workers)
            self.configure(
                cell=True, upgrade_levels={'compute': 'auto'},
                DEFAULT={'debug': True})

            service.signal(signal.SIGHUP)

            service.until('The oldest compute service', 2 * workers)
            # The parent reads it too.
            service.until(r'changed options: \[DEFAULT\] debug',
                          workers + (workers > 1))
            self.assertEqual(0, service.stop(), service.output)
            self.assertEqual(workers, service.output.count('has started'))


@profile.full_only('tests.unit.cmd.test_systemd has the notifications')
class TestSystemd(services.ServiceTestCase):
    """A service as systemd starts it."""

    def test_unit_of_type_notify_learns_all(self):
        for workers in (1, 2):
            received = test_systemd.Socket(self)
            self.useFixture(fixtures.EnvironmentVariable(
                'NOTIFY_SOCKET', received.path))
            self.useFixture(fixtures.EnvironmentVariable(
                'WATCHDOG_USEC', '300000'))
            service = self.start_code(
                CODE, '--config-file', str(self.configure()), str(workers),
                'Service')

            received.until('READY=1')
            service.until('has started', workers)
            received.until('WATCHDOG=1')
            received.until('WATCHDOG=1')
            self.assertEqual(0, service.stop(), service.output)
            received.until('STOPPING=1')
            self.assertEqual(1, received.seen.count('READY=1'))


class Handler(logging.Handler):
    """Keeps lines, and who wrote them; waits first, where it is told to."""

    def __init__(self):
        super().__init__()
        self.lines = []
        self.threads = set()
        self.go_on = threading.Event()
        self.go_on.set()

    def emit(self, record):
        self.go_on.wait(600)
        self.lines.append(self.format(record))
        self.threads.add(threading.get_ident())


class TestLogQueue(base.TestCase):

    def setUp(self):
        super().setUp()
        self.handler = Handler()
        self.logger = logging.Logger('test')
        self.logger.addHandler(self.handler)
        self.queue = launch.LogQueue(self.logger)
        self.queue.start()
        self.addCleanup(self.queue.stop)
        self.addCleanup(self.handler.go_on.set)

    def written(self):
        self.queue.stop()
        return self.handler.lines

    def test_logging_does_not_wait_for_the_write(self):
        self.handler.go_on.clear()
        self.logger.info('one %s', 'line')
        self.assertEqual([], self.handler.lines)

        self.handler.go_on.set()
        self.assertEqual(['one line'], self.written())
        self.assertNotIn(threading.get_ident(), self.handler.threads)

    def test_stopped_queue_writes_all_lines(self):
        self.handler.go_on.clear()
        for number in range(1000):
            self.logger.info('%d', number)
        threading.Timer(0, self.handler.go_on.set).start()

        self.assertEqual(list(map(str, range(1000))), self.written())

    def test_line_has_the_values_of_the_moment(self):
        self.handler.go_on.clear()
        hosts = ['host1']
        self.logger.info('on %s', hosts)
        hosts.append('host2')
        self.handler.go_on.set()

        self.assertEqual(["on ['host1']"], self.written())

    def test_line_has_the_context_of_its_thread(self):
        self.handler.setFormatter(formatters.ContextFormatter(
            '%(message)s', config=_Options()))
        context.RequestContext(request_id='req-mine', overwrite=True)
        self.addCleanup(context.RequestContext, overwrite=True)
        self.logger.info('mine')
        self.logger.info('other', extra={
            'context': context.RequestContext(
                request_id='req-other', overwrite=False)})

        self.assertEqual(
            ['req-mine mine', 'req-other other'], self.written())

    def test_traceback_is_formatted_by_the_handler(self):
        try:
            raise ValueError('wrong')
        except ValueError:
            self.logger.exception('Failed')

        [line] = self.written()
        self.assertEqual(
            ('Failed', 'ValueError: wrong'),
            (line.splitlines()[0], line.splitlines()[-1]))

    def test_handler_gets_records_of_its_level(self):
        self.handler.setLevel(logging.WARNING)
        self.logger.info('fine')
        self.logger.warning('odd')

        self.assertEqual(['odd'], self.written())

    def test_caller_writes_if_the_queue_is_full(self):
        self.patch(launch, 'WAITING_MAX', 0)
        self.logger.info('more')

        self.assertEqual(['more'], self.handler.lines)
        self.assertEqual({threading.get_ident()}, self.handler.threads)

    def test_caller_writes_if_the_queue_is_stopped(self):
        self.queue.stop()
        self.queue.stop()
        self.logger.info('late')

        self.assertEqual(['late'], self.handler.lines)

    def test_handlers_replaced_before_the_stop_are_kept(self):
        other = Handler()
        self.logger.handlers = [other]

        self.queue.stop()

        self.assertEqual([other], self.logger.handlers)


class _Options:
    """What oslo.log's formatter asks its configuration."""

    logging_context_format_string = '%(request_id)s %(message)s'
    logging_default_format_string = '- %(message)s'
    logging_exception_prefix = ''
    logging_user_identity_format = '%(user)s'
    logging_debug_format_suffix = ''
