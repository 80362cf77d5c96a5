# SPDX-License-Identifier: Apache-2.0
"""Taking up builds that were left lying."""

from concurrent import futures
import dataclasses
import threading

from amqp import exceptions as amqp_exc
import futurist
import sqlalchemy as sa

from cellsched.conductor import recovery
from cellsched.conductor.tasks.lease import Attempt
from cellsched.conductor.tasks.lease import Leases
from cellsched.conductor.tasks.lease import Retries
from cellsched import context
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.api import leases
from cellsched.db.api import models as api_models
from cellsched.db.cell import build_casts
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched.db.cell import server_moves
from cellsched.db.cell import services
from cellsched import deletion
from cellsched.deletion import Deletion
from cellsched import migrations
from cellsched.network import deallocation
from cellsched.network import fake
from cellsched.testing import clock
from cellsched.testing import databases
from tests.unit.base import TestCase
from tests.unit.compute import agents
from tests.unit.compute import mover
from tests.unit.conductor import base
from tests.unit.db import samples
from tests.unit.network import networks


class Task:
    """Notes which batches it is told to build; fails at some of them."""

    def __init__(self, case, fails_at=(), first=lambda uuids: None):
        self.leases = Leases(case.database, base.LEASE_S)
        self.retries = Retries(case.clock, 1.0)
        self.batches = []
        self.attempts = []
        self.fails_at = fails_at
        self.first = first

    def attempt(self, attempt):
        self.first(attempt.uuids)
        self.attempts.append(attempt)
        self.batches.append(list(attempt.uuids))
        if set(attempt.uuids) & set(self.fails_at):
            raise KeyError('as told')


class TestRecoverer(base.TestCase):

    def run_with(self, task, **options):
        recovery.Recoverer(
            self.database, task, base.LEASE_S, **{
                'executor': futurist.SynchronousExecutor(), **options}).run()
        return task

    def taken_up(self, **options):
        return self.run_with(Task(self), **options).batches

    def lease(self, uuids):
        now = self.clock.timestamp()
        with self.database.writer() as connection:
            build_requests.lease(
                connection, uuids, 'conductor', now, now + base.LEASE_S)

    def accept_batch(self, count):
        return self.accept(count, reservation_id=f'r-{samples.uuids(1)}')

    def test_unleased_request_waits_for_the_time_of_a_lease(self):
        [uuid] = self.accept()

        self.clock.advance(base.LEASE_S - 1)
        self.assertEqual([], self.taken_up())
        self.clock.advance(1)
        self.assertEqual([[uuid]], self.taken_up())

    def test_leased_request_is_not_recovered(self):
        [uuid] = self.accept()
        self.clock.advance(base.LEASE_S)
        self.lease([uuid])

        self.clock.advance(base.LEASE_S - 1)
        self.assertEqual([], self.taken_up())
        self.clock.advance(1)
        self.assertEqual([[uuid]], self.taken_up())

    def test_queued_batch_is_not_recovered(self):
        queued, lost = self.accept_batch(3), self.accept_batch(2)
        self.clock.advance(base.LEASE_S)

        self.assertEqual([lost], self.taken_up(queued=lambda: queued))

    def test_batch_beyond_the_page_is_recovered_whole(self):
        batch = self.accept_batch(5)
        self.clock.advance(base.LEASE_S)

        self.assertEqual([batch], self.taken_up(page=2))

    def test_failed_batch_does_not_stop_later_batches(self):
        for uuid in (batches := [self.accept()[0] for _ in range(3)]):
            self.clock.advance(1)
        self.clock.advance(base.LEASE_S)

        task = self.run_with(Task(self, fails_at=batches[:1]))

        self.assertEqual([[uuid] for uuid in batches], task.batches)
        self.assertIn('as told', self.logs.output)

    def test_unreadable_request_does_not_stop_later_requests(self):
        [broken] = self.accept()
        self.clock.advance(1)
        [sound] = self.accept()
        with self.database.writer() as connection:
            connection.execute(
                sa.update(api_models.build_requests)
                .where(api_models.build_requests.c.instance_uuid == broken)
                .values(instance='what?'))
        self.clock.advance(base.LEASE_S)

        self.run_with(self.task())

        self.assertBuilding('cell1', sound)
        self.assertIn(broken, self.logs.output)

    def test_batches_are_run_for_their_projects(self):
        [uuid] = self.accept()
        self.clock.advance(base.LEASE_S)

        [attempt] = self.run_with(Task(self)).attempts

        self.assertEqual([uuid], attempt.uuids)
        self.assertEqual('project', attempt.context.project_id)
        self.assertTrue(attempt.context.is_admin)

    def test_full_page_is_followed_by_the_next_at_once(self):
        uuids = [self.accept()[0] for _ in range(5)]
        self.clock.advance(base.LEASE_S)

        self.assertEqual(
            [[uuid] for uuid in uuids], self.taken_up(page=2))

    def test_conductors_take_up_different_builds(self):
        """The second one looks while the first one builds."""
        uuids = [self.accept()[0] for _ in range(6)]
        self.clock.advance(base.LEASE_S)
        first, second = Task(self), Task(self)

        def look_once(batch):
            if not first.batches:
                self.run_with(second, page=2)

        first.first = look_once
        self.run_with(first, page=2)

        self.assertEqual(uuids[:2], sum(first.batches, []))
        self.assertEqual(uuids[2:], sum(second.batches, []))

    def test_batches_are_built_at_the_same_time(self):
        for _ in range(3):
            self.accept()
        self.clock.advance(base.LEASE_S)
        all_there = threading.Barrier(3)

        with futures.ThreadPoolExecutor(3) as executor:
            task = self.run_with(
                Task(self, first=lambda batch: all_there.wait(600)),
                executor=executor)

        self.assertEqual(3, len(task.batches))
        self.assertEqual('', self.logs.output.partition('Traceback')[1])

    def test_batches_built_at_a_time_are_limited(self):
        for _ in range(4):
            self.accept()
        self.clock.advance(base.LEASE_S)
        begun, go_on = threading.Semaphore(0), threading.Semaphore(0)

        def build(batch):
            begun.release()
            go_on.acquire(timeout=600)

        task = Task(self, first=build)
        with (futures.ThreadPoolExecutor(4) as executor,
              futures.ThreadPoolExecutor(1) as looking):
            looks = looking.submit(
                self.run_with, task, executor=executor, at_once=2)
            for _ in range(2):
                self.assertTrue(begun.acquire(timeout=600))
            futures.wait([looks], 0.05)
            self.assertFalse(begun.acquire(blocking=False))
            go_on.release(4)
            looks.result(60)

        self.assertEqual(4, len(task.batches))

    def test_queued_batch_keeps_its_lease(self):
        uuids = [self.accept()[0] for _ in range(2)]
        self.clock.advance(base.LEASE_S)

        def wait_long(batch):
            for _ in range(3):
                self.clock.advance(base.LEASE_S - 1)
                task.leases.renew()
            self.assertEqual([], self.taken_up())

        task = Task(self, first=wait_long)
        self.run_with(task)

        self.assertEqual([[uuid] for uuid in uuids], task.batches)

    def test_deferred_build_is_retried_when_due(self):
        task = Task(self)
        task.retries.defer(Attempt(base.USER, ['uuid']))

        self.run_with(task)
        self.assertEqual([], task.batches)
        self.clock.advance(1)
        self.run_with(task)

        self.assertEqual([['uuid']], task.batches)
        self.assertEqual(base.USER, task.attempts[0].context)

    def test_owner_of_the_lease_does_the_work(self):
        self.accept_batch(2)
        self.accept()
        self.clock.advance(base.LEASE_S)

        attempts = self.run_with(
            Task(self), new_uuid=lambda: 'owner').attempts

        self.assertEqual(['owner'] * 2, [each.owner for each in attempts])
        table = api_models.build_requests
        with self.database.reader() as connection:
            leases_ = connection.execute(sa.select(
                table.c.lease_owner, table.c.lease_expires_at)).all()
        self.assertEqual(
            [('owner', self.clock.timestamp() + base.LEASE_S)] * 3,
            [tuple(each) for each in leases_])


class LateExecutor(futurist.SynchronousExecutor):
    """Lets something happen before what is found is worked on."""

    def __init__(self, meanwhile):
        super().__init__()
        self._meanwhile = meanwhile

    def submit(self, *args, **kwargs):
        self._meanwhile()
        return super().submit(*args, **kwargs)


class HoldingExecutor(futurist.SynchronousExecutor):
    """Begins what it is given when it is told to."""

    def __init__(self):
        super().__init__()
        self.held = []

    def submit(self, function, *args):
        future = futurist.Future()
        self.held.append(lambda: future.set_result(function(*args)))
        return future


class TestRaces(base.StalledBuildsTestCase):

    def run_late(self, meanwhile):
        self.make_stalled(executor=LateExecutor(meanwhile)).run()

    def tell(self, cell=None):
        """Do what another conductor does that tells a host again."""
        database = cell or self.cell
        with database.writer() as connection:
            cast = build_casts.get(connection, self.uuid)
            self.assertTrue(build_casts.tell_again(
                connection, cast, self.clock.steady()))

    def test_cast_of_another_conductor_is_not_repeated(self):
        self.wait()

        self.run_late(self.tell)

        self.assertEqual([], self.sent())
        self.assertEqual(2, self.kept.casts)

    def test_repeated_cast_of_another_conductor_prevents_a_retry(self):
        self.clock.advance(base.RETRY_POLICY.down_s + 1)

        self.run_late(self.tell)

        self.assertEqual([], self.handed_on)
        self.assertEqual('scheduling', self.row(self.uuid).task_state)

    def test_late_begin_on_the_host_prevents_a_retry(self):
        self.clock.advance(base.RETRY_POLICY.down_s + 1)

        self.run_late(lambda: self.put(
            host='a1', node='node-a1', task_state='spawning'))

        self.assertEqual([], self.handed_on)
        row = self.row(self.uuid)
        self.assertEqual(('a1', 'spawning'), (row.host, row.task_state))

    def test_build_on_another_host_is_not_retried(self):
        self.put(host='a1', node='node-a1', task_state='spawning')
        self.clock.advance(base.RETRY_POLICY.down_s + 1)

        self.run_late(lambda: self.put(host='a2', node='node-a2'))

        self.assertEqual([], self.handed_on)
        row = self.row(self.uuid)
        self.assertEqual(('a2', 'spawning'), (row.host, row.task_state))

    def test_build_with_a_newer_attempt_is_not_retried(self):
        self.clock.advance(base.RETRY_POLICY.down_s + 1)

        self.run_late(lambda: self.put(build_attempts=2))

        self.assertEqual([], self.handed_on)

    def test_cast_of_a_deleted_row_is_dropped(self):
        self.wait()
        with self.cell.writer() as connection:
            instances.purge(connection, [self.uuid])

        self.stalled.run()

        self.assertIsNone(self.kept)
        self.assertEqual(([], []), (self.sent(), self.handed_on))

    def test_build_removed_by_another_conductor_is_skipped(self):
        elsewhere = self.targets.database(self.cells['cell2'])
        with elsewhere.writer() as connection:
            instances.create(connection, [samples.instance(self.uuid)],
                             self.clock.now())
            build_casts.create(connection, [dataclasses.replace(
                self.kept, cast_at=self.clock.steady() - 100)])

        self.run_late(lambda: self.tell(elsewhere))

        self.assertEqual({'cell1', 'cell2'}, {*self.rows(self.uuid)})

    def test_cell_in_progress_is_not_read_again(self):
        executor = HoldingExecutor()
        stalled_builds = self.make_stalled(executor=executor)
        for _ in range(3):
            self.wait()
            stalled_builds.run()
        [work] = executor.held

        work()

        self.assertEqual([('a1', self.uuid)], self.sent())
        self.wait(1000)
        stalled_builds.run()
        self.assertEqual(2, len(executor.held))


PATIENCE = base.RETRY_POLICY


class TestStalledBuilds(base.StalledBuildsTestCase):

    def test_recent_cast_is_not_repeated(self):
        self.clock.advance(59)

        self.stalled.run()

        self.assertEqual(([], []), (self.sent(), self.handed_on))

    def test_cast_is_repeated_to_an_idle_host(self):
        self.wait()

        self.stalled.run()
        self.stalled.run()

        self.assertEqual([('a1', self.uuid)], self.sent())
        [client] = self.compute.clients.values()
        message = build_casts.BuildMessage.read(self.kept)
        self.assertEqual(
            message.filter_properties,
            client.sent[0].arguments['filter_properties'])
        self.assertEqual(2, self.kept.casts)

    def test_failed_cast_does_not_count_and_is_repeated(self):
        self.wait()
        client = self.compute.get(
            self.transports.get(self.cells['cell1'].transport_url))
        client.failure = amqp_exc.AccessRefused('wrong password')

        self.stalled.run()

        self.assertIn('AccessRefused', self.logs.output)
        self.assertNotIn('Traceback', self.logs.output)
        self.assertEqual(1, self.kept.casts)
        client.failure = None
        self.wait(1)
        self.stalled.run()
        self.assertEqual([('a1', self.uuid)], self.sent())
        self.assertEqual(2, self.kept.casts)

    def test_failed_message_to_a_conductor_is_repeated(self):
        self.put(task_state=None, build_attempts=2)
        self.wait()
        client = self.conductors.get(
            self.transports.get(self.cells['cell1'].transport_url))
        client.failure = amqp_exc.AccessRefused('wrong password')
        self.stalled.run()
        self.assertEqual([], self.handed_on)

        client.failure = None
        self.wait(1)
        self.stalled.run()
        self.assertHandedOn(tried=2)

    def test_host_has_twice_as_long_each_time(self):
        self.wait()
        self.stalled.run()
        self.compute.clients.clear()

        self.wait(119)
        self.stalled.run()
        self.assertEqual([], self.sent())

        self.wait(2)
        self.stalled.run()
        self.assertEqual([('a1', self.uuid)], self.sent())

    def test_another_host_is_tried_after_some_times(self):
        for number in range(PATIENCE.casts):
            self.wait(61 * 2 ** number)
            self.stalled.run()

        self.assertEqual(PATIENCE.casts - 1, len(self.sent()))
        self.assertHandedOn()

    def test_build_on_a_down_host_is_retried_elsewhere(self):
        for state in (
                {'task_state': 'scheduling'},
                {'task_state': 'spawning', 'host': 'a1', 'node': 'n'}):
            self.put(**state)
            self.clock.advance(2 * PATIENCE.timeout_s + 1)

            self.stalled.run()

            self.assertHandedOn()
            self.conductors.clients.clear()
        self.assertEqual([], self.sent())

    def test_build_on_a_forced_down_host_is_retried_elsewhere(self):
        self.wait()
        with self.cell.writer() as connection:
            services.set_forced_down(
                connection, 'a1', True, self.clock.now())

        self.stalled.run()

        self.assertHandedOn()

    def test_build_in_progress_on_a_live_host_continues(self):
        self.put(task_state='spawning', host='a1')
        self.wait()

        self.stalled.run()

        self.assertEqual(([], []), (self.sent(), self.handed_on))
        self.assertEqual('spawning', self.row(self.uuid).task_state)
        self.assertEqual(self.clock.steady(), self.kept.cast_at)

    def test_counted_attempt_without_a_cast_is_repeated(self):
        self.put(build_attempts=2)
        self.clock.advance(PATIENCE.down_s + 1)

        self.stalled.run()

        self.assertHandedOn(tried=2)

    def test_cast_of_an_ended_build_is_dropped(self):
        kept = self.kept
        for values in ({'vm_state': 'active', 'task_state': None},
                       {'vm_state': 'error', 'task_state': None},
                       {'task_state': 'deleting'}, {'deleted': 1}):
            self.put(**{'vm_state': 'building', **values})
            with self.cell.writer() as connection:
                build_casts.replace(connection, kept)
            self.clock.advance(PATIENCE.down_s + 1)

            self.stalled.run()

            self.assertIsNone(self.kept, values)
        self.assertEqual(([], []), (self.sent(), self.handed_on))

    def test_build_with_a_request_belongs_to_another_conductor(self):
        builds = dict.fromkeys(self.accept(2))
        with self.database.writer() as connection:
            # Of one of them nobody has said yet where it is to be.
            instance_mappings.decide(
                connection, list(builds)[:1], self.cells['cell1'].id,
                self.clock.now())
        for uuid in builds:
            with self.cell.writer() as connection:
                instances.create(
                    connection, [samples.instance(uuid)], self.clock.now())
                build_casts.create(connection, [
                    build_casts.BuildMessage.first(
                        [self.selection('a1')], None,
                    ).kept(uuid, self.clock.steady() - 100)])
                builds[uuid] = build_casts.get(connection, uuid)

        self.stalled.run()

        self.assertEqual(([], []), (self.sent(), self.handed_on))
        for uuid, kept in builds.items():
            self.assertEqual(['cell1'], [*self.rows(uuid)])
            with self.cell.reader() as connection:
                now = build_casts.get(connection, uuid)
            # It was looked at, and nothing else.
            self.assertEqual(
                kept, dataclasses.replace(now, cast_at=kept.cast_at))

    def test_build_of_a_server_in_another_cell_is_removed(self):
        elsewhere = self.targets.database(self.cells['cell2'])
        with elsewhere.writer() as connection:
            instances.create(connection, [samples.instance(self.uuid)],
                             self.clock.now())
            build_casts.create(connection, [
                build_casts.BuildMessage.first(
                    [self.selection('b1')], None,
                ).kept(self.uuid, self.clock.steady())])
        self.wait()

        self.stalled.run()

        self.assertEqual(['cell1'], [*self.rows(self.uuid)])
        with elsewhere.reader() as connection:
            self.assertIsNone(build_casts.get(connection, self.uuid))
        self.assertEqual([('a1', self.uuid)], self.sent())

    def test_begun_build_of_an_unmapped_server_stays(self):
        """A restored API database does not know the server."""
        self.put(task_state='spawning', host='a1', node='a1')
        with self.database.writer() as connection:
            connection.execute(sa.delete(api_models.instance_mappings))
        before = self.rows(self.uuid)
        self.wait()

        self.stalled.run()

        self.assertEqual(before, self.rows(self.uuid))
        self.assertIsNotNone(self.kept)

    def assertRemovedAfter(self, change):
        """The build goes after this change of the server's mapping."""
        table = api_models.instance_mappings
        with self.database.writer() as connection:
            connection.execute(
                change.where(table.c.instance_uuid == self.uuid))
        self.wait()

        self.stalled.run()

        self.assertEqual(({}, None), (self.rows(self.uuid), self.kept))
        self.assertEqual(([], []), (self.sent(), self.handed_on))

    def test_build_of_a_server_without_a_cell_is_removed(self):
        self.assertRemovedAfter(
            sa.update(api_models.instance_mappings).values(cell_id=None))

    def test_build_of_an_unmapped_server_is_removed(self):
        self.assertRemovedAfter(sa.delete(api_models.instance_mappings))

    def test_failed_cell_does_not_delay_other_cells(self):
        with self.targets.database(
                self.cells['cell2']).writer() as connection:
            models.METADATA.drop_all(connection)
        self.wait()

        self.stalled.run()

        self.assertEqual([('a1', self.uuid)], self.sent())
        cell = self.cells['cell2']
        self.assertIn(f'Cell {cell.identity} fails the query StalledBuilds.',
                      self.logs.output)

    def test_build_with_an_unreadable_cast_delays_no_other_build(self):
        [other] = self.accept()
        self.task().run(base.USER, [other])
        self.compute.clients.clear()
        with self.cell.writer() as connection:
            connection.execute(
                sa.update(models.build_casts)
                .where(models.build_casts.c.instance_uuid == self.uuid)
                .values(message='no JSON'))
        self.wait()

        self.stalled.run()

        self.assertEqual([('a1', other)], self.sent())
        self.assertIn(self.uuid, self.logs.output)
        # A later release may have written it, so nothing was changed.
        for _ in range(9):
            self.wait()
            self.stalled.run()
        self.assertNotIn(('a1', self.uuid), self.sent())
        with self.cell.reader() as connection:
            found = build_casts.get(connection, self.uuid)
        self.assertEqual(('no JSON', self.kept.casts),
                         (found.message, found.casts))


class TestRetryPolicy(base.base.TestCase):

    def test_time_doubles_with_each_attempt_up_to_a_bound(self):
        policy = recovery.RetryPolicy(10, 9, 90)

        self.assertEqual(
            [0, 10, 30, 70, 70, 70],
            [policy.more_s(casts) for casts in range(6)])


class TestStalledBuildCasts(base.StalledBuildsTestCase):

    def test_conductor_gets_the_whole_build(self):
        message = build_casts.BuildMessage.read(self.kept)
        self.clock.advance(base.RETRY_POLICY.down_s + 1)

        self.stalled.run()

        [client] = self.conductors.clients.values()
        [sent] = client.sent
        self.assertTrue(sent.context.is_admin)
        self.assertEqual('build_instances', sent.method)
        self.assertEqual(
            message.request_spec.obj_to_primitive(),
            sent.arguments['request_spec'].obj_to_primitive())
        properties = dict(sent.arguments['filter_properties'])
        retry = properties.pop('retry')
        self.assertEqual(
            ({'limits': message.filter_properties['limits']},
             message.filter_properties['retry']['hosts'], 1),
            (properties, retry['hosts'], retry['num_attempts']))
        self.assertIn(self.uuid, retry['exc_reason'])
        self.assertIn('its host did not take it up', retry['exc_reason'])

    def test_each_cast_uses_the_cell_of_its_server(self):
        self.clock.advance(base.RETRY_POLICY.down_s + 1)
        self.stalled.run()
        self.put(task_state='scheduling')
        self.wait(121)
        self.stalled.run()

        transport = self.transports.get(self.cells['cell1'].transport_url)
        self.assertEqual([transport], [*self.conductors.clients])
        self.assertEqual([transport], [*self.compute.clients])
        [sent] = self.compute.clients[transport].sent
        self.assertTrue(sent.context.is_admin)

    def test_interval_between_repetitions_grows(self):
        self.clock.advance(base.RETRY_POLICY.down_s + 1)
        self.stalled.run()

        self.clock.advance(119)
        self.stalled.run()
        self.assertEqual(1, len(self.handed_on))

        self.clock.advance(2)
        self.stalled.run()
        self.assertEqual(2, len(self.handed_on))
        self.assertEqual(3, self.kept.casts)

    def test_host_with_a_recent_report_is_up(self):
        for late_s, told, handed_on in (
                (base.RETRY_POLICY.down_s - 1, 1, 0),
                (base.RETRY_POLICY.down_s + 1, 0, 1)):
            with self.cell.writer() as connection:
                build_casts.replace(connection, self.original())
            self.report('a1')
            self.clock.advance(late_s)

            self.stalled.run()

            self.assertEqual((told, handed_on),
                             (len(self.sent()), len(self.handed_on)))
            self.compute.clients.clear()

    def original(self):
        return build_casts.BuildMessage.first(
            [self.selection('a1'), self.selection('a2')], None).kept(
                self.uuid, self.clock.steady())

    def test_builds_are_read_in_pages(self):
        [other] = self.accept()
        self.task().run(base.USER, [other])
        self.compute.clients.clear()
        self.wait()
        looks = []

        class Compute(type(self.compute)):

            def get(this, transport):
                # What is not on the first page counts as told of long ago.
                with self.cell.reader() as connection:
                    looks.append(build_casts.is_any_before(
                        connection, self.clock.steady() - 60))
                return super().get(transport)

        self.compute = Compute()
        self.make_stalled(page=1).run()

        self.assertEqual([True, False], looks)
        self.assertEqual(2, len(self.sent()))

    def test_failure_of_a_cell_is_logged_and_repeated(self):
        self.wait()
        table = models.build_casts
        tell = self.compute.get

        def fail(transport):
            with self.cell.writer() as connection:
                connection.exec_driver_sql(
                    f'ALTER TABLE {table.name} RENAME TO away')
            self.compute.get = tell
            return tell(transport)

        self.compute.get = fail
        self.make_stalled(page=1).run()
        self.assertIn('cell1', self.logs.output)
        with self.cell.writer() as connection:
            connection.exec_driver_sql(
                f'ALTER TABLE away RENAME TO {table.name}')

        self.wait(1000)
        self.stalled.run()

        self.assertEqual(2, len(self.sent()))


DEADLINE_S, DOWN_S = 600, 60


class StalledMigrationsTestCase(mover.MoverTestCase):

    def setUp(self):
        super().setUp()
        self.stalled = self.make_stalled()

    def make_stalled(self, **options):
        return recovery.StalledMigrations(
            self.cell, self.compute, self.claims, 'conductor', DEADLINE_S,
            DOWN_S, **options)

    def report(self, host='host1'):
        with self.cell.writer() as connection:
            services.report(connection, samples.uuids(1)[0], host,
                            services.COMPUTE, 'compute', self.clock.now(), 2)

    def run_late(self, late_s=DEADLINE_S + 1, stalled=None):
        self.clock.advance(late_s)
        self.report()
        (stalled or self.stalled).run()

    @property
    def sent(self):
        return [(each.method, each.host) for each in self.compute.sent]


class TestStalledMigrations(StalledMigrationsTestCase):

    def pop_sent(self):
        sent = self.sent
        self.compute.sent.clear()
        return sent

    def test_migration_continues_until_its_deadline(self):
        move = self.accept()

        self.run_late(DEADLINE_S)

        self.assertEqual(server_moves.MIGRATING, self.status(move))
        self.assertEqual({'own': 'host1', 'move': 'host2'}, self.places)

    def test_unmoved_server_stays(self):
        for status in server_moves.UNMOVED:
            move = self.accept(status=status)
            self.run_late()

            self.assertState('active', None, 'host1')
            self.assertEqual({'own': 'host1'}, self.places)
            self.assertEqual(server_moves.ERROR, self.status(move))
            self.assertIn('600 seconds', self.fault)
            # The source may have stopped the server.
            self.assertEqual([('migrate_out', 'host2'),
                              ('migrate_out', 'host1')], self.pop_sent())

    def test_moved_server_is_on_the_new_host(self):
        move = self.accept()
        self.transit('begin_migrate')
        self.transit('finish_migrate', host='host2', node='node2')
        self.end(move, server_moves.MOVED)

        self.run_late()

        self.assertState('active', None, 'host2')
        self.assertEqual({'own': 'host2'}, self.places)
        self.assertEqual(server_moves.FINISHED, self.status(move))
        self.assertEqual([('migrate_out', 'host1')], self.pop_sent())

    def test_source_host_gets_the_message_again_while_up(self):
        self.accept(ask=False, status=server_moves.FINISHED)

        for late_s, expected in ((DEADLINE_S + 1, [('migrate_out', 'host1')]),
                                 (DEADLINE_S - 1, []),
                                 (2, [('migrate_out', 'host1')])):
            self.run_late(late_s)
            self.assertEqual(expected, self.pop_sent())
        self.clock.advance(DEADLINE_S + 1)
        self.stalled.run()
        self.assertEqual([], self.pop_sent())

    def test_migration_from_a_deleted_host_ends(self):
        move = self.accept(ask=False, status=server_moves.FINISHED,
                           source_compute='gone')

        self.run_late()

        self.assertEqual([], self.pop_sent())
        self.assertEqual(server_moves.DONE, self.status(move))

    def test_shelving_continues(self):
        move = self.accept(server_moves.SHELVE, dest_compute=None)

        self.run_late()

        self.assertEqual(
            [('shelve_offload_instance', 'host1')], self.pop_sent())
        self.assertEqual(server_moves.MIGRATING, self.status(move))

    def test_migration_without_a_server_stops_no_other_migration(self):
        for status in (server_moves.MIGRATING, server_moves.ERROR):
            lost = server_moves.Migration(
                samples.uuids(1)[0], None, server_moves.MIGRATION, status)
            with self.cell.writer() as connection:
                server_moves.create(
                    connection, lost, agents.USER, self.clock.now())
        move = self.accept()

        self.run_late()

        self.assertEqual(server_moves.ERROR, self.status(move))
        self.assertNotIn('Traceback', self.logs.output)

    def test_server_without_a_cast_to_its_host_is_not_shelved(self):
        move = self.accept(server_moves.SHELVE, dest_compute=None,
                           status=server_moves.ACCEPTED)

        self.run_late()

        self.assertState('active', None, 'host1')
        self.assertEqual([], self.pop_sent())
        self.assertEqual(server_moves.ERROR, self.status(move))

    def test_deleted_server_holds_no_claim(self):
        self.accept()
        self.delete()
        self.terminate()

        self.run_late()

        self.assertEqual({}, self.places)

    def test_late_claim_is_released(self):
        self.accept(status=server_moves.ACCEPTED)
        self.run_late()
        self.claims.claim([mover.claims_base.Claim(
            migrations.consumer(self.uuid), self.there, {'VCPU': 1})])

        self.run_late()

        self.assertEqual({'own': 'host1'}, self.places)

    def test_unreachable_host_does_not_block_the_end_of_a_move(self):
        move = self.accept()
        self.compute.failure = amqp_exc.AccessRefused('wrong password')

        self.run_late()

        self.assertIn('AccessRefused', self.logs.output)
        self.assertNotIn('Traceback', self.logs.output)
        self.assertEqual(server_moves.ERROR, self.status(move))

    def test_failed_end_of_a_migration_delays_no_other_migration(self):
        for broken in (0, 1):
            moves = [self.accept(), self.accept_another()]
            mend = self.break_claims_of(moves[broken])

            self.run_late()

            self.assertEqual([server_moves.ERROR] * 2,
                             [self.status(move) for move in moves])
            names = [move.uuid for move in moves]
            self.assertEqual(
                {names[broken]}, {*self.claims.claims_of(names)})
            self.assertIn(
                f'[instance: {moves[broken].instance_uuid}] Could not end '
                f'the {moves[broken].migration_type}', self.logs.output)
            mend()
            self.run_late()
            self.assertEqual({}, self.claims.claims_of(names))

    def test_failed_release_of_a_late_claim_delays_no_other_release(self):
        ended = [self.accept(status=server_moves.ACCEPTED),
                 self.accept_another()]
        # The first time they are ended, and then looked at for a while.
        self.run_late()
        self.run_late()
        late = [move.uuid for move in ended]
        for name, move in zip(late, ended):
            mend = self.break_claims_of(move)
            self.claims.claim([
                mover.claims_base.Claim(each, self.there, {'VCPU': 1})
                for each in late])

            self.run_late(1)

            self.assertEqual({name}, {*self.claims.claims_of(late)})
            self.assertIn(
                f'[instance: {move.instance_uuid}] Could not release the '
                'claims of an ended move', self.logs.output)
            mend()
            self.run_late(1)
            self.assertEqual({}, self.claims.claims_of(late))

    def accept_another(self):
        """Have a move of another server accepted."""
        first = self.uuid, self.instance
        [self.uuid] = samples.uuids(1)
        self.instance = samples.instance(self.uuid, build_attempts=1)
        with self.cell.writer() as connection:
            instances.create(connection, [self.instance], self.clock.now())
        self.build()
        move = self.accept()
        self.uuid, self.instance = first
        return move

    def break_claims_of(self, move):
        """Have the claim store fail for a move; return what mends it."""
        release = self.claims.release

        def broken(consumers):
            consumers = list(consumers)
            if move.uuid in consumers:
                raise KeyError('as told')
            release(consumers)

        self.claims.release = broken
        return lambda: setattr(self.claims, 'release', release)


USER = context.member('user', 'project')


class TestNetworkCleanup(TestCase):

    def setUp(self):
        super().setUp()
        self.cell = self.useFixture(databases.CellDatabase()).database
        self.network = networks.make(fake.FakeNetworks)
        self.leftovers = recovery.NetworkCleanup(
            self.cell, deallocation.NetworkDeallocation(
                self.network, self.cell, clock.FakeClock()), batch=2)

    def make(self, **values):
        instance = samples.instance(samples.uuids(1)[0])
        with self.cell.writer() as connection:
            instances.create(connection, [instance], samples.NOW)
            samples.put(connection, instance.uuid,
                        {'network_allocated': True, **values})
        self.network.allocate_for_instance(USER, instance, None, 'host1')
        return instance.uuid

    def test_networks_of_ended_servers_only_are_freed(self):
        live = self.make(vm_state='active', host='host1')
        waiting = self.make()
        for _ in range(3):
            self.make(deleted=1, vm_state='deleted')
            self.make(vm_state='error', task_state=None)

        self.leftovers.run()

        self.assertEqual({live, waiting}, set(self.network.allocated()))

    def test_failed_deallocation_is_repeated_and_delays_no_other(self):
        uuids = sorted(self.make(vm_state='error') for _ in range(5))
        self.network.fail('deallocate', 2)

        self.leftovers.run()
        self.assertEqual(set(uuids[:2]), set(self.network.allocated()))

        self.leftovers.run()
        self.assertEqual({}, self.network.allocated())

    def test_freed_networks_are_not_freed_again(self):
        self.make(vm_state='error')
        self.leftovers.run()
        self.network.fail('deallocate', 1)

        self.leftovers.run()

        self.assertNotIn('Could not deallocate networks', self.logs.output)

    def test_plugin_is_called_in_the_name_of_the_owner(self):
        self.make(vm_state='error')
        asked = []
        self.network.deallocate_for_instance = (
            lambda context, instance: asked.append(context))

        self.leftovers.run()

        self.assertEqual([('user', 'project')], [
            (each.user_id, each.project_id) for each in asked])


class TestStalledMigrationCasts(StalledMigrationsTestCase):

    def test_host_gets_the_server_and_the_move(self):
        move = self.accept()

        self.run_late()

        # The source may have stopped the server.
        for host, sent in zip(('host2', 'host1'), self.compute.sent,
                              strict=True):
            self.assertEqual(
                ('migrate_out', host, self.uuid, move.uuid),
                (sent.method, sent.host, sent.arguments['instance'].uuid,
                 sent.arguments['migration_uuid']))
            self.assertTrue(sent.context.is_admin)

    def test_fault_names_the_move_the_deadline_and_the_conductor(self):
        self.accept()

        self.run_late()

        table = models.instance_faults
        with self.cell.reader() as connection:
            fault = connection.execute(table.select()).one()
        self.assertEqual('conductor', fault.host)
        self.assertIn('migration', fault.message)
        self.assertIn(f'{DEADLINE_S} seconds', fault.message)

    def test_host_without_a_message_gets_no_end_of_the_move(self):
        for fields in ({'dest_compute': None, 'dest_node': None},
                       {'dest_compute': 'host1', 'dest_node': 'node1'}):
            move = self.accept(**fields)

            self.run_late()

            self.assertEqual([], self.sent)
            self.assertEqual(server_moves.ERROR, self.status(move))

    def test_rebuilt_server_is_sent_to_no_other_host(self):
        move = self.accept(server_moves.REBUILD, dest_compute='host1',
                           dest_node='node1')
        self.transit('begin_rebuild')
        self.transit('finish_rebuild')
        self.end(move, server_moves.MOVED)

        self.run_late()

        self.assertEqual(server_moves.DONE, self.status(move))
        self.assertEqual([], self.sent)

    def test_deleted_shelved_server_is_sent_to_no_host(self):
        move = self.accept(server_moves.SHELVE, dest_compute=None)
        with self.cell.writer() as connection:
            instances.delete(connection, self.uuid, self.clock.now())

        self.run_late()

        self.assertEqual([], self.sent)
        self.assertEqual(server_moves.ERROR, self.status(move))


class TestStalledMigrationHosts(StalledMigrationsTestCase):

    def test_message_is_repeated_to_a_recently_reported_host(self):
        self.accept(ask=False, status=server_moves.FINISHED)
        for late_s, expected in ((DOWN_S - 1, 1), (DOWN_S, 0)):
            self.clock.advance(DEADLINE_S + 1)
            self.report()
            self.clock.advance(late_s)
            self.stalled.run()

            self.assertEqual(expected, len(self.sent))
            self.compute.sent.clear()

    def test_message_to_shelve_is_repeated_when_due(self):
        self.accept(server_moves.SHELVE, dest_compute=None)
        self.run_late()
        self.stalled.run()
        self.assertEqual(1, len(self.sent))

        self.run_late()

        self.assertEqual(
            [('shelve_offload_instance', 'host1')] * 2, self.sent)

    def test_concurrently_updated_migration_is_skipped(self):
        self.accept(ask=False, status=server_moves.FINISHED)
        for _ in range(2):
            move = server_moves.Migration(
                samples.uuids(1)[0], self.uuid, server_moves.MIGRATION,
                server_moves.FINISHED, 'host1', 'node1', 'host2', 'node2')
            with self.cell.writer() as connection:
                server_moves.create(connection, move, mover.agents.USER,
                                    self.clock.now())
        cast, first = self.compute.cast, []

        def news(*args, **arguments):
            # The host has cleaned up after all moves.
            if not first:
                first.append(None)
                with self.cell.writer() as connection:
                    connection.execute(models.migrations.update().values(
                        updated_at=self.clock.now()))
            cast(*args, **arguments)

        self.compute.cast = news
        self.run_late()

        self.assertEqual(1, len(self.sent))


class TestStalledMigrationLimits(StalledMigrationsTestCase):

    def test_migrations_of_a_run_are_limited(self):
        for _ in range(3):
            self.accept(ask=False, status=server_moves.FINISHED)
        stalled = self.make_stalled(moves_max=2)

        self.run_late(stalled=stalled)
        self.assertEqual(2, len(self.sent))
        stalled.run()
        self.assertEqual(3, len(self.sent))

    def test_late_claims_are_searched_until_the_deadline(self):
        for seconds, places in (
                (DEADLINE_S, {'own': 'host1'}),
                (2 * DEADLINE_S, {'own': 'host1'}),
                (2 * DEADLINE_S + 1, {'own': 'host1', 'move': 'host2'})):
            move = self.accept()
            self.claims.release([mover.migrations.consumer(self.uuid)])
            self.end(move)
            self.transit('revert_migrate')
            self.claims.claim([mover.claims_base.Claim(
                mover.migrations.consumer(self.uuid), self.there,
                {'VCPU': 1})])
            self.clock.advance(seconds)

            self.stalled.run()

            self.assertEqual(places, self.places)
            self.claims.release([mover.migrations.consumer(self.uuid)])


class TestInterruptedDeletions(base.TestCase):

    def setUp(self):
        super().setUp()
        self.killed = True
        self.deletion = Deletion(
            self.database, self.targets, lambda: self.compute, self.claims,
            self.clock, 60, self.reach)

    def reach(self, step):
        if self.killed:
            raise Killed

    def begin(self, cell='cell1'):
        """Begin to delete a server on a host; return its uuid."""
        self.chosen = {'cell1': ['a1'], 'cell2': ['b1']}[cell]
        [uuid] = self.accept()
        self.task().run(base.USER, [uuid])
        self.assertRaises(Killed, self.deletion.run, base.USER, uuid)
        return uuid

    def make(self, name='conductor', executor=None):
        return recovery.InterruptedDeletions(
            self.database, self.deletion, name,
            executor or futurist.SynchronousExecutor())

    def continue_late(self, **options):
        self.killed = False
        self.clock.advance(deletion.LEASE_S)
        self.make(**options).run()

    def states(self, *uuids):
        return [self.row(uuid).vm_state for uuid in uuids]

    def test_interrupted_deletion_is_continued_after_its_lease(self):
        uuid = self.begin()
        self.killed = False

        self.make().run()
        self.assertEqual(['building'], self.states(uuid))
        self.continue_late()

        self.assertEqual(['deleted'], self.states(uuid))
        self.assertIsNone(self.holds(uuid))
        self.continue_late()
        self.assertEqual(
            1, self.logs.output.count('Continuing the interrupted deletion'))

    def test_silent_cell_delays_no_other_cell(self):
        silent, here = self.begin('cell2'), self.begin('cell1')
        self.break_cell('cell2')

        self.continue_late()

        self.assertEqual(
            ['building', 'deleted'], self.states(silent, here))
        self.mend_cell('cell2')
        self.continue_late()
        self.assertEqual(['deleted'], self.states(silent))

    def test_failing_deletion_does_not_stop_the_rest(self):
        broken, other = sorted([self.begin(), self.begin()])
        release = self.claims.release

        def fail(consumers):
            if broken in (consumers := list(consumers)):
                raise KeyError(broken)
            release(consumers)

        self.claims.release = fail
        self.continue_late()

        self.assertIsNone(self.holds(other))
        self.claims.release = release
        self.continue_late()
        self.assertIsNone(self.holds(broken))

    def test_conductors_continue_different_deletions(self):
        uuids = [self.begin() for _ in range(3)]
        self.clock.advance(deletion.LEASE_S)
        now = self.database.timestamp()
        with self.database.reader() as connection:
            found = leases.list_interrupted_deletions(connection, now, 2)
        taken = []
        for name in 'one', 'two':
            with self.database.writer() as connection:
                taken.append(leases.take_deletions(
                    connection, found, name, now, now + deletion.LEASE_S))

        self.assertEqual([found, []], taken)
        self.assertEqual(2, len({*found} & {*uuids}))


class Killed(BaseException):
    """Ends a call like a killed process."""
