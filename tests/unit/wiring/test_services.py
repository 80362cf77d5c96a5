# SPDX-License-Identifier: Apache-2.0
"""Services: they run, stop, and release everything."""

from concurrent import futures
import logging
import random
import threading

from amqp import exceptions as amqp_exc
import oslo_messaging

from cellsched import batching
from cellsched.claims import sql
from cellsched import clock
from cellsched import context
from cellsched.db.api import host_mappings
from cellsched.db.cell import compute_nodes
from cellsched.db import session
from cellsched import exception
from cellsched import objects
from cellsched.rpc import client
from cellsched.rpc import conductor
from cellsched.rpc import local
from cellsched.rpc import server
from cellsched.scheduler.drivers import base as drivers
from cellsched.scheduler import recording
from cellsched.scheduler import replay
from cellsched.testing import builders
from cellsched.testing.clock import FakeClock
from cellsched.wiring import service as wiring_service
from cellsched.wiring import services
from tests.unit.db import samples
from tests.unit.wiring import configured

ADMIN = context.admin()


class TestService(configured.WiringTestCase):

    def service(self, *periodic, servers=()):
        return services.Service(
            services.Components(self.conf()), servers, periodic)

    def run_until(self, done, service, times):
        """Run a service until its work was done so many times."""
        service.start()
        for _ in range(times):
            self.assertTrue(done.acquire(timeout=configured.DEADLINE_S))
        service.stop()

    def test_periodic_work_is_done_again_and_again(self):
        done = threading.Semaphore(0)
        self.run_until(done, self.service((done.release, 0.01)), 3)

    def shifted(self, share, spacing_s):
        """Return what the calls of a task release.

        :param share: the random number of its service
        """
        done = threading.Semaphore(0)
        service = self.service((done.release, spacing_s))
        service.parts.random = random.Random()
        service.parts.random.random = lambda: share
        service.start()
        self.addCleanup(service.stop)
        return done

    def test_first_call_is_at_a_random_part_of_the_interval(self):
        first = self.shifted(1 - 1e-9, 60.0)
        second = self.shifted(0.0, 30.0)

        self.assertTrue(first.acquire(timeout=configured.DEADLINE_S))
        self.assertFalse(second.acquire(blocking=False))

    def test_calls_are_shifted_by_a_minute_at_most(self):
        source = random.Random(0)
        for spacing_s, least_s in (
                (0.1, 0), (10, 0), (60, 0), (300, 240), (3600, 3540)):
            found = [wiring_service.first_delay_s(spacing_s, source)
                     for _ in range(1000)]
            span_s = spacing_s - least_s

            self.assertLess(least_s, min(found))
            self.assertLess(min(found), least_s + span_s / 50)
            self.assertLess(spacing_s - span_s / 50, max(found))
            self.assertLessEqual(max(found), spacing_s)

    def test_times_of_calls_are_kept_after_a_long_call(self):
        now, done, calls = FakeClock(), threading.Semaphore(0), []

        def work():
            calls.append(now.monotonic())
            if len(calls) == 1:
                # It ends in the middle of the next interval.
                now.advance(0.15)
            done.release()

        service = services.Service(
            services.Components(self.conf(), now), [], [], [(work, 0.1)])
        service.parts.random = random.Random()
        service.parts.random.random = lambda: 0.0
        service.start()
        self.addCleanup(service.stop)
        self.assertTrue(done.acquire(timeout=configured.DEADLINE_S))

        # The time passes in steps, with a chance to begin before each.
        while not done.acquire(timeout=0.1):
            now.advance(0.01)

        self.assertGreater(calls[1], 0.19)

    def test_work_at_once_does_not_wait_for_its_turn(self):
        done = threading.Semaphore(0)
        service = services.Service(
            services.Components(self.conf()), [],
            at_once=[(done.release, 3600.0)])
        self.assertFalse(done.acquire(blocking=False))
        service.start()

        self.assertTrue(done.acquire(timeout=configured.DEADLINE_S))
        service.stop()

    def test_failed_periodic_work_is_repeated(self):
        for error, text in ((KeyError('as told'), 'as told'),
                            (SystemExit('as told'), 'SystemExit: as told')):
            done = threading.Semaphore(0)

            def fail(done=done, error=error):
                done.release()
                raise error

            self.run_until(done, self.service((fail, 0.01)), 3)

            self.assertIn(text, self.logs.output)

    def test_service_stops_after_a_fatal_error_and_logs_once(self):
        calls, ended = [], threading.Semaphore(0)

        def fail():
            calls.append(1)
            raise exception.HostNameTaken(host='h', by='another agent')

        service = self.service((fail, 0.01))
        service.on_failure = lambda: (
            ended.release() if service._stopping.is_set() else None)

        self.run_until(ended, service, 1)

        self.assertEqual(([1], 'h'), (calls, service.failure.host))
        self.assertEqual(1, self.logs.output.count('Service stops'))

    def test_unavailable_server_and_its_return_are_logged_once(self):
        failures = [
            exception.DatabaseUnreachable(
                schema='cell', url='x', reason='it restarts'),
            oslo_messaging.MessageDeliveryFailure('no broker'),
            amqp_exc.AccessRefused('no')]
        done = threading.Semaphore(0)

        def report():
            done.release()
            if failures:
                raise failures.pop(0)

        logger = logging.getLogger('cellsched')
        self.addCleanup(logger.setLevel, logger.level)
        logger.setLevel(logging.INFO)
        self.run_until(done, self.service((report, 0.01)), 6)

        self.assertEqual(3 + 1, self.logs.output.count(
            'report fails and is repeated: '))
        self.assertIn('it restarts', self.logs.output)
        self.assertEqual(1, self.logs.output.count(
            'report fails and is repeated: this has ended after'))
        self.assertNotIn('Traceback', self.logs.output)

    def test_stop_waits_for_running_periodic_work(self):
        begun, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)
        still_open = []

        def work():
            begun.set()
            go_on.wait(configured.DEADLINE_S)
            still_open.append('transports' if service.parts.transports._open
                              else None)

        service = self.service((work, 0.01))
        service.parts.transports.get()
        service.start()
        begun.wait(configured.DEADLINE_S)
        stopping = threading.Thread(target=service.stop)
        stopping.start()
        stopping.join(0.05)
        self.assertTrue(stopping.is_alive())
        go_on.set()
        stopping.join(configured.DEADLINE_S)

        self.assertFalse(stopping.is_alive())
        self.assertEqual(['transports'], still_open)

    def test_stop_waits_for_received_messages(self):
        begun, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        class Endpoint:

            def work(self, context):
                begun.set()
                go_on.wait(configured.DEADLINE_S)
                return 'done'

        service = self.service()
        transport = service.parts.transports.get()
        service = services.Service(service.parts, [
            server.server(transport, 'topic', 'host', [Endpoint()],
                          clock.Clock().timestamp)])
        service.start()
        with futures.ThreadPoolExecutor(2) as threads:
            asked = client.Client(transport, 'topic', '1.0')
            answer = threads.submit(asked.call, context.admin(), 'work')
            self.assertTrue(begun.wait(configured.DEADLINE_S))
            stopped = threads.submit(service.stop)
            futures.wait([stopped], 0.05)
            self.assertFalse(stopped.done())
            go_on.set()

            self.assertEqual('done', answer.result(configured.DEADLINE_S))
            stopped.result(configured.DEADLINE_S)

    def test_work_in_progress_is_named(self):
        begun, go_on = threading.Semaphore(0), threading.Event()
        self.addCleanup(go_on.set)

        class Endpoint:

            def work(self, context, instance_uuids):
                begun.release()
                go_on.wait(configured.DEADLINE_S)

        def tidy_up():
            begun.release()
            go_on.wait(configured.DEADLINE_S)

        service = self.service()
        transport = service.parts.transports.get()
        service = services.Service(
            service.parts,
            [server.server(transport, 'topic', 'host', [Endpoint()])],
            [(tidy_up, 0.01)], builds=lambda: ['1', 'leased'])
        self.assertEqual(
            ['2 leased builds for instances 1, leased'],
            service.in_progress())
        service.start()
        self.addCleanup(service.stop)
        self.addCleanup(go_on.set)
        asked = client.Client(transport, 'topic', '1.0')
        asked.cast(context.admin(), 'work', instance_uuids=['a'])
        asked.cast(context.admin(), 'work',
                   instance_uuids=list(map(str, range(12))))
        for _ in range(3):
            self.assertTrue(begun.acquire(timeout=configured.DEADLINE_S))

        self.assertEqual(
            ['2 messages work for instances 0, 1, 10, 11, 2, 3, 4, 5, 6, 7 '
             'and 3 more', '1 leased builds for instance leased',
             'periodic task TestService.test_work_in_progress_is_named.'
             '<locals>.tidy_up'],
            service.in_progress())

    def test_stuck_loops_are_named(self):
        begun, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def hang():
            begun.set()
            go_on.wait(configured.DEADLINE_S)

        fake = FakeClock()
        service = services.Service(
            services.Components(self.conf(), fake), [],
            [(hang, 0.01), (lambda: None, 3600)])
        service.start()
        self.addCleanup(service.stop)
        self.addCleanup(go_on.set)
        begun.wait(configured.DEADLINE_S)
        self.assertEqual([], service.stuck(configured.DEADLINE_S))

        fake.advance(1900)
        [hung] = service.stuck(configured.DEADLINE_S)
        self.assertIn('hang runs for 1900 s', hung)

        fake.advance(1900)
        _, late = service.stuck(configured.DEADLINE_S)
        self.assertIn('<lambda> last ran 3800 s ago', late)

    def test_stuck_threads_are_named(self):
        go_on = threading.Event()
        self.addCleanup(go_on.set)
        pool = futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        parts = services.Components(self.conf())
        service = services.Service(parts, [server.server(
            parts.transports.get(), 'topic', 'host', [],
            queue=batching.TaskQueue(pool, 1))])
        service.start()
        self.addCleanup(service.stop)
        self.addCleanup(go_on.set)
        self.assertEqual([], service.stuck(configured.DEADLINE_S))

        pool.submit(go_on.wait, configured.DEADLINE_S)

        self.assertEqual(['the threads of topic topic do not run'],
                         service.stuck(0.01))

    def test_service_stops_from_each_stage_of_its_start(self):
        class Server:

            def start(self):
                raise exception.DatabaseUnreachable(
                    schema='x', url='x', reason='x')

            stop = wait = None

        never_started = self.service((lambda: None, 60))
        never_started.stop()

        half_started = self.service(servers=[Server()])
        self.assertRaises(exception.DatabaseUnreachable, half_started.start)
        half_started.stop()

        at_once = self.service((lambda: None, 60))
        at_once.start()
        for _ in range(2):
            at_once.stop()

    def test_stopped_services_leave_no_threads_or_connections(self):
        before = set(threading.enumerate())
        for make in configured.SERVICES:
            service = make(self.conf_for(make))
            service.start()
            service.stop()

            self.assertEqual({}, service.parts.databases._open)
            self.assertEqual({}, service.parts.transports._open)
            self.assertNotIn(self.world, str(local._worlds))
        self.until_threads_are(before)


class TestRunning(configured.WiringTestCase):

    def ping(self, topic):
        parts = services.Components(self.conf())
        self.addCleanup(parts.close)
        return client.Client(
            parts.transports.get(), topic, '1.1', 'baseapi',
            configured.DEADLINE_S,
        ).call(context.admin(), 'ping', arg='?')['service']

    def test_services_of_a_cell_know_no_api_database(self):
        for make, topic in ((services.conductor, 'conductor'),
                            (services.compute, 'compute')):
            service = self.run_service(self.make(make, self.conf(cell=True)))

            self.assertEqual(topic, self.ping(topic))
            self.assertNotIn('database', service.parts.__dict__)

    def test_databases_determine_the_kind_of_a_conductor(self):
        for databases_, endpoints in (
                ({'api': True}, ['SuperConductor', 'MovingConductor']),
                ({'cell': True}, ['CellConductor']),
                ({'api': True, 'cell': True},
                 ['SuperConductor', 'MovingConductor', 'CellConductor'])):
            service = self.make(services.conductor, self.conf(**databases_))

            [server] = service.servers
            self.assertEqual(endpoints, [
                type(each).__name__ for each in server.dispatcher.endpoints
                if type(each).__name__ != 'BaseAPI'])
            above = ['Leases', 'Recoverer', 'InterruptedDeletions',
                     'StalledBuilds', 'LeakedClaims']
            self.assertEqual(
                above * ('api' in databases_)
                + ['NetworkCleanup', 'StrandedDeletions', 'StalledMigrations']
                * ('cell' in databases_),
                [type(each[0].__self__).__name__
                 for each in service._periodic])

    def test_new_agent_has_reported(self):
        self.make(services.compute, self.conf(cell=True))

        with self.cell.database.reader() as connection:
            self.assertEqual(['host1'], compute_nodes.list_hosts(connection))

    def test_agent_with_the_api_database_is_mapped(self):
        self.map_cell()

        self.make(services.compute, self.conf(api=True, cell=True))

        with self.api.database.reader() as connection:
            found = host_mappings.get_many(connection, ['host1'])
        self.assertEqual('cell1', found['host1'].name)

    def test_agent_of_an_unmapped_cell_is_refused(self):
        self.map_cell(database_connection='sqlite:///elsewhere')

        error = self.assertRaises(
            exception.ConfigurationInvalid, self.make, services.compute,
            self.conf(api=True, cell=True))

        self.assertEqual('[database] connection', error.field)

    def test_agent_with_the_name_of_another_cells_host_is_refused(self):
        self.map_cell()
        other = self.map_cell('cell2', database_connection='sqlite:///other')
        with self.api.database.writer() as connection:
            host_mappings.create_missing(
                connection, ['host1'], other.id, samples.NOW)

        error = self.assertRaises(
            exception.HostMappingExists, self.make, services.compute,
            self.conf(api=True, cell=True))

        self.assertEqual(other.identity, error.mapped_cell)
        with self.cell.database.reader() as connection:
            self.assertEqual([], compute_nodes.list_hosts(connection))

    def test_scheduler_finds_the_hosts_of_agents(self):
        self.map_cell()
        self.make(services.compute, self.conf(cell=True))
        path = self.directory / 'decisions'
        service = self.run_service(services.scheduler(self.conf(
            api=True, scheduler={'record': path})))
        [wanted] = samples.uuids(1)

        [[chosen]] = client.Client(
            service.parts.transports.get(), 'scheduler', '4.5',
        ).call(context.admin(), 'select_destinations',
               spec_obj=builders.request(), instance_uuids=[wanted],
               return_objects=True)

        self.assertIsInstance(chosen, objects.Selection)
        self.assertEqual('host1', chosen.service_host)
        self.assertIn(wanted, service.parts.claims.claims_of([wanted]))
        # The decision is recorded, and is the same again.
        service.parts.recorder.flush()
        [entry] = recording.read(path, tables=True)
        self.assertEqual(([wanted], ['host1']),
                         (entry.uuids, entry.answer.hosts))
        replay.apply_header(service.parts.conf, entry.header)
        self.assertEqual(replay.SAME, replay.Replay(
            service.parts.conf).decide(entry).change)

    def test_recording_to_a_missing_directory_is_refused(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, self.make, services.scheduler,
            self.conf(api=True, scheduler={
                'record': self.directory / 'none' / 'decisions'}))

        self.assertIn('[scheduler] record: ', error.format_message())

    def test_scheduler_has_the_configured_driver(self):
        for name, kind in (('filter_scheduler', 'FilterScheduler'),
                           ('chance_scheduler', 'ChanceScheduler')):
            service = self.make(services.scheduler, self.conf(
                api=True, scheduler={'driver': name}))

            [server] = service.servers
            driver = server.dispatcher.endpoints[0]._driver
            self.assertIsInstance(driver, drivers.SchedulerDriver)
            self.assertEqual(kind, type(driver).__name__)
            self.assertEqual(
                kind, type(services.planner(service.parts)).__name__)

    def test_api_reads_and_writes(self):
        api = self.make(services.api, self.conf(api=True))

        api.flavors.create(ADMIN, 'small', 1, 512, 10)

        self.assertEqual(['small'], [
            flavor.name for flavor in api.flavors.list_all(ADMIN)])
        self.assertEqual([], api.servers.list(context.admin()).servers)
        api.close()


class Stopping(threading.Event):
    """Says when somebody asks."""

    def __init__(self):
        super().__init__()
        self.asked = threading.Semaphore(0)

    def is_set(self):
        self.asked.release()
        return super().is_set()

    def wait(self, timeout=None):
        # The stop begins after this.
        return False


class TestStopping(configured.WiringTestCase):

    def test_no_periodic_work_is_begun_any_more(self):
        done = []
        service = services.Service(
            services.Components(self.conf()), [],
            [(lambda: done.append('periodic'), 0.01)],
            [(lambda: done.append('at once'), 0.01)])
        service._stopping = Stopping()
        service._stopping.set()

        service.start()
        for _ in range(4):
            self.assertTrue(service._stopping.asked.acquire(
                timeout=configured.DEADLINE_S))
        service.stop()

        self.assertEqual([], done)


class TestSharedFile(configured.WiringTestCase):
    """SQLite has one writer for a file: nobody releases in a transaction."""

    def is_fenced(self, **groups):
        service = self.make(
            services.conductor, self.conf(api=True, **groups))
        [server] = service.servers
        [endpoint] = [
            each for each in server.dispatcher.endpoints
            if isinstance(each, conductor.SuperConductor)]
        return endpoint._run.__self__.limits.fenced

    def test_claims_are_released_in_the_transaction_of_another_file(self):
        self.assertTrue(self.is_fenced())

    def test_claims_in_the_same_file_are_released_after_the_transaction(self):
        claims = session.Database(
            self.api.url, 'claims', clock=clock.Clock())
        self.addCleanup(claims.close)
        sql.SQLClaims(claims).sync()
        for connection in ('', self.api.url):
            self.assertFalse(self.is_fenced(
                claims={'connection': connection}))
