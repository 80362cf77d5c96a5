# SPDX-License-Identifier: Apache-2.0
"""Requests that wait for something outside keep no other request waiting.

For each service and each of its methods, twice as many requests as the
service has threads wait for a lock, and an unrelated request is answered.
"""

from collections.abc import Iterator
import contextlib
import inspect
import sqlite3
import threading
from typing import Any

from oslo_utils import uuidutils

from cellsched.compute import agent
from cellsched.compute import moves
from cellsched import context
from cellsched import embedding
from cellsched import objects
from cellsched.rpc import client
from cellsched.rpc.compute import ComputeAPI
from cellsched.rpc import conductor
from cellsched.rpc.scheduler import SchedulerAPI
from cellsched.scheduler import service as scheduler
from cellsched.standalone.deployment import DeployedHost
from cellsched.testing import builders
from tests.functional import base
from tests import profile
from tests.unit import base as unit

THREADS = 4

#: Statements wait longer than a test takes, so no limit of theirs helps.
LONG_S = 3000


class TestCase(base.TestCase):
    """Two cells, and services with few threads."""

    def setUp(self) -> None:
        super().setUp()
        self.deploy(
            {'cell1': [DeployedHost(
                'a1', vcpus=200, memory_mb=300000, disk_gb=9000)],
             'cell2': [DeployedHost('b1', availability_zone='other')]},
            DEFAULT={'executor_thread_pool_size': THREADS},
            api_database={'lock_timeout': LONG_S},
            database={'lock_timeout': LONG_S},
            claims={'lock_timeout': LONG_S},
            conductor={'scheduling_timeout': 300})
        # The scheduler has read both cells.
        self.built(availability_zone='nova')
        self.built(availability_zone='other')
        self.transports = self.world.api.parts.transports
        self.targets = self.world.api.parts.targets

    def lock(self, database: str) -> sqlite3.Connection:
        """Take the lock of a database, as a client that hangs does."""
        held = sqlite3.connect(
            self.world.directory / f'{database}.sqlite', isolation_level=None,
            check_same_thread=False)
        held.execute('BEGIN IMMEDIATE')
        self.addCleanup(held.close)
        return held

    @contextlib.contextmanager
    def locked(self, database: str) -> Iterator[None]:
        """Lock a database; wait for the requests that it has kept waiting.

        The requests of the next method would come on top of them.
        """
        with contextlib.closing(self.lock(database)):
            yield
        self.until(lambda: not any(
            server.is_busy for service in self.world._services
            for server in service.servers), 'the requests have ended')

    def transport(self, cell: str | None = None) -> Any:
        return (self.transports.get() if cell is None
                else self.targets.transport(self.cells()[cell]))

    def ask(self, topic: str, cell: str | None = None,
            server: str | None = None) -> None:
        """Call a service with a request that needs nothing."""
        answer = client.Client(
            self.transport(cell), topic, '1.1', 'baseapi', timeout_s=300,
        ).call(context.RequestContext(), 'ping', None, server, arg=5)
        self.assertEqual(5, answer['arg'])


def _spec(**fields: Any) -> objects.RequestSpec:
    return builders.request(
        vcpus=1, memory_mb=512, root_gb=10, project_id='project', **fields)


def _uuid() -> str:
    return uuidutils.generate_uuid()


def _instance() -> objects.Instance:
    return objects.Instance(uuid=_uuid(), project_id='project')


CONTEXT = context.RequestContext(project_id='project', user_id='user')

#: Requests to the agent a1, by method.
TO_AGENT = {
    'build_and_run_instance': lambda api: api.build_and_run_instance(
        CONTEXT, 'a1', _instance(), _spec(), {}, 'a1', {}, []),
    'terminate_instance': lambda api: api.terminate_instance(
        CONTEXT, 'a1', _instance()),
    'rebuild_instance': lambda api: api.rebuild_instance(
        CONTEXT, 'a1', _instance(), _uuid(), 'a1'),
    'prepare_migration': lambda api: api.prepare_migration(
        CONTEXT, 'a1', _instance(), _uuid(), 'a1'),
    'migrate_in': lambda api: api.migrate_in(
        CONTEXT, 'a1', _instance(), _uuid(), 'a1'),
    'unshelve_instance': lambda api: api.unshelve_instance(
        CONTEXT, 'a1', _instance(), _uuid(), 'a1'),
    'shelve_offload_instance': lambda api: api.shelve_offload_instance(
        CONTEXT, 'a1', _instance(), _uuid()),
    'migrate_out': lambda api: api.migrate_out(
        CONTEXT, 'a1', _instance(), _uuid()),
}

#: Requests to the conductor above the cells about a server, by method.
TO_CONDUCTOR = {
    'build_and_schedule': None,
    'rebuild_instance': lambda api, uuid: api.rebuild_instance(
        CONTEXT, uuid, _uuid()),
    'migrate_server': lambda api, uuid: api.migrate_server(
        CONTEXT, uuid, _uuid()),
    'unshelve_instance': lambda api, uuid: api.unshelve_instance(
        CONTEXT, uuid, _uuid()),
}

#: Requests to the conductor of a cell, by method.
TO_CELL_CONDUCTOR = {
    'build_instances': lambda api: api.build_instances(
        CONTEXT, [_instance()], {}, _spec(), [[]]),
}

#: Requests to a scheduler, by method. Only a decision waits for a database.
TO_SCHEDULER = {
    'select_destinations': {
        'spec_obj': _spec(), 'return_objects': True},
    'update_aggregates': {'aggregates': objects.Aggregate(
        id=1, name='a', hosts=[], metadata={})},
    'delete_aggregate': {'aggregate': objects.Aggregate(id=1)},
    'update_instance_info': {
        'host_name': 'a1',
        'instance_info': objects.InstanceList(objects=[])},
    'delete_instance_info': {
        'host_name': 'a1', 'instance_uuid': _uuid()},
    'sync_instance_info': {'host_name': 'a1', 'instance_uuids': []},
}


#: Methods of agents that no message calls.
NOT_SENT = {'clean_up', 'revert_failed', 'resume', 'resume_soon'}


class TestMethods(unit.TestCase):

    def test_tables_have_every_method(self):
        for table, *endpoints in (
                (TO_SCHEDULER, scheduler.Scheduler),
                (TO_CONDUCTOR, conductor.SuperConductor,
                 conductor.MovingConductor),
                (TO_CELL_CONDUCTOR, conductor.CellConductor),
                (TO_AGENT, agent.Agent, moves.MovingAgent)):
            self.assertEqual({
                name for endpoint in endpoints for name, method
                in inspect.getmembers(endpoint, inspect.isfunction)
                if not name.startswith('_')} - NOT_SENT, set(table))


class TestAgent(TestCase):

    def test_requests_wait_for_the_database_of_the_cell(self):
        api = ComputeAPI(self.transport('cell1'))
        for method, send in TO_AGENT.items():
            with self.subTest(method), self.locked('cell1'):
                for _ in range(2 * THREADS):
                    send(api)
                self.ask('compute', 'cell1', 'a1')


class TestBusyAgent(base.TestCase):
    """An agent whose driver takes long, with one build at a time."""

    def start(self, builds_max: int) -> str:
        """Start a deployment, and twice as many builds as threads."""
        hangs = threading.Event()
        self.deploy({'cell1': [DeployedHost('a1', vcpus=99)]}, DEFAULT={
            'executor_thread_pool_size': THREADS,
            'max_concurrent_builds': builds_max},
            conductor={'cast_timeout': LONG_S})
        [found] = self.built()
        driver = self.driver('a1')
        spawn = driver.spawn

        def slow_spawn(*args: Any) -> None:
            hangs.wait()
            spawn(*args)

        driver.spawn = slow_spawn
        self.addCleanup(hangs.set)
        for _ in range(2 * THREADS):
            self.create()
        return found.uuid

    def test_builds_wait_for_a_free_driver(self):
        uuid = self.start(1)

        self.delete(uuid)
        self.gone(uuid)

    def test_builds_wait_for_the_driver(self):
        uuid = self.start(0)

        self.delete(uuid)
        self.gone(uuid)


class TestListing(TestCase):

    def test_queries_wait_for_the_database_of_a_cell(self):
        hangs = threading.Event()
        begun = threading.Semaphore(0)
        parts = self.world.api.parts
        cells = self.cells()

        def ask(cell_context: context.RequestContext) -> str:
            assert cell_context.cell is not None
            if cell_context.cell.uuid == cells['cell1'].uuid:
                begun.release()
                hangs.wait()
            return 'answer'

        def gather(cell: str) -> Any:
            return parts.gatherer.gather(CONTEXT, [cells[cell]], ask)

        threads = parts.conf.cell_worker_thread_pool_size
        for _ in range(2 * threads):
            stuck = threading.Thread(target=gather, args=['cell1'])
            stuck.start()
            self.addCleanup(stuck.join)
        self.addCleanup(hangs.set)
        for _ in range(threads):
            begun.acquire()

        self.assertEqual(
            ['answer'], list(gather('cell2').results.values()))


class TestEmbeddedConductor(TestCase):

    def test_builds_wait_for_the_database_of_their_cell(self):
        conf = self.world.conf('api')
        conf.set_override('recovery_threads', THREADS, 'conductor')
        conductor = embedding.EmbeddedConductor(conf)
        self.addCleanup(conductor.close)

        def build(zone: str) -> str:
            uuid = _uuid()
            conductor.accept(CONTEXT, {uuid: 'server'}, _spec(
                availability_zone=zone))
            thread = threading.Thread(
                target=conductor.run, args=[CONTEXT, [uuid]], daemon=True)
            thread.start()
            self.addCleanup(thread.join)
            return uuid

        with contextlib.closing(self.lock('cell1')):
            for _ in range(2 * THREADS):
                build('nova')

            [built] = self.settled([build('other')])
            self.assertEqual('ACTIVE', built.status)


class TestCellConductor(TestCase):

    def test_requests_wait_for_the_database_of_the_cell(self):
        api = conductor.ConductorAPI(self.transport('cell1'))
        for method, send in TO_CELL_CONDUCTOR.items():
            with self.subTest(method), self.locked('cell1'):
                for _ in range(2 * THREADS):
                    send(api)
                self.ask('conductor', 'cell1')


class TestConductor(TestCase):

    def assertBuildsInOtherCell(self):
        [built] = self.built(availability_zone='other')
        self.assertEqual('ACTIVE', built.status)

    def test_builds_wait_for_the_database_of_their_cell(self):
        self.lock('cell1')
        for _ in range(2 * THREADS):
            self.create(availability_zone='nova')

        self.ask('conductor')
        self.assertBuildsInOtherCell()

    def test_moves_wait_for_the_database_of_their_cell(self):
        uuids = [each.uuid for each in self.built(
            availability_zone='nova', max_count=2 * THREADS)]
        api = conductor.ConductorAPI(self.transport())
        for method, send in TO_CONDUCTOR.items():
            if send is not None:
                with self.subTest(method), self.locked('cell1'):
                    for uuid in uuids:
                        send(api, uuid)
                    self.ask('conductor')
                    self.assertBuildsInOtherCell()

    def test_builds_wait_for_the_claim_store(self):
        with self.locked('claims'):
            for _ in range(2 * THREADS):
                self.create(availability_zone='nova')

            self.ask('conductor')
            self.ask('scheduler')

    def test_builds_wait_for_the_api_database(self):
        uuids = self.built(max_count=2 * THREADS)
        self.lock('api')
        api = conductor.ConductorAPI(self.transport())
        for each in uuids:
            api.build_and_schedule(CONTEXT, [each.uuid])

        self.ask('conductor')


class TestScheduler(TestCase):

    def call(self, method: str, **arguments: Any) -> Any:
        return client.Client(
            self.transport(), 'scheduler', '4.5', timeout_s=300,
        ).call(CONTEXT, method, **arguments)

    def stuck(self, *uuids: str) -> None:
        """Have the scheduler wait for the claim store."""
        api = SchedulerAPI(self.transport(), timeout_s=LONG_S)

        def select(uuid: str) -> None:
            with contextlib.suppress(Exception):
                api.select_destinations(CONTEXT, _spec(), [uuid])

        for uuid in uuids:
            threading.Thread(
                target=select, args=[uuid], daemon=True).start()

    def test_claims_wait_for_the_claim_store(self):
        self.lock('claims')
        self.stuck(*(_uuid() for _ in range(2 * THREADS)))
        self.ask('scheduler')
        for method, arguments in TO_SCHEDULER.items():
            with self.subTest(method):
                self.call(method, **arguments)

    def test_requests_for_a_server_wait_for_its_claim(self):
        self.lock('claims')
        self.stuck(*[_uuid()] * 2 * THREADS)

        self.ask('scheduler')

    @profile.full_only('it needs a real clock')
    def test_other_requests_are_answered_within_a_second(self):
        self.lock('claims')
        self.stuck(*(_uuid() for _ in range(2 * THREADS)))
        begin = base.CLOCK.monotonic()
        self.ask('scheduler')

        self.assertLess(base.CLOCK.monotonic() - begin, 1)
