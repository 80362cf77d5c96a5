# SPDX-License-Identifier: Apache-2.0
"""From accepted requests to builds in cells: every end that there is."""

from concurrent import futures
import copy
import pathlib

from amqp import exceptions as amqp_exc
import futurist
from oslo_config import cfg
import oslo_messaging
from oslo_serialization import jsonutils
import sqlalchemy as sa

from cellsched.cells import cell0
from cellsched.claims import base as claims_base
from cellsched.claims import sql
from cellsched.conductor import recovery
from cellsched.conductor.tasks import build_and_schedule
from cellsched.conductor.tasks import lease
from cellsched.db.api import build_requests
from cellsched.db.api import models as api_models
from cellsched.db.cell import instances
from cellsched.db import session
from cellsched import exception
from cellsched.quota import noop
from tests.unit.conductor import base
from tests.unit.db import samples


class TestBuildAndSchedule(base.TestCase):

    def test_build_goes_to_the_cell_of_its_host(self):
        [uuid] = self.accept()

        self.task().run(base.USER, [uuid])

        self.assertBuilding('cell1', uuid)
        self.assertEqual([('a1', uuid)], self.sent())
        self.assertEqual('a1', self.holds(uuid))

    def test_effects_of_a_build_are_in_a_readable_order(self):
        [uuid] = self.accept()
        seen = []

        def look():
            seen.append((self.holds(uuid), self.mapped(uuid),
                         [*self.rows(uuid)], self.requested(uuid),
                         len(self.sent())))

        for place in range(len(base.DONE)):
            [uuid] = self.accept()
            self.compute.clients.clear()
            self.task_with(place, look).run(base.USER, [uuid])

        self.assertEqual([
            (None, None, [], True, 0),
            ('a1', None, [], True, 0),
            ('a1', None, [], True, 0),
            ('a1', 'cell1', [], True, 0),
            ('a2', 'cell1', ['cell1'], True, 0),
            ('a2', 'cell1', ['cell1'], False, 0),
            ('a2', 'cell1', ['cell1'], False, 1),
        ], seen)

    def answer(self, **arguments):
        """Go to the second host when the first is full."""
        try:
            return super().answer(**arguments)
        except exception.NoValidHost:
            if self.chosen != ['a1', 'a2']:
                raise
            self.chosen = ['a2', 'a3']
            return super().answer(**arguments)

    def test_batch_is_split_over_its_cells(self):
        uuids = self.accept(2)

        def answer(instance_uuids, **arguments):
            return [[self.selection(host)] for host in ('b1', 'a1')]

        self.scheduler.answer = answer
        for uuid, host in zip(uuids, ('b1', 'a1')):
            self.claims.claim(base.claims_base.of_selection(
                uuid, self.selection(host)))
        self.task().run(base.USER, uuids)

        self.assertBuilding('cell2', uuids[0])
        self.assertBuilding('cell1', uuids[1])

    def test_slow_cell_delays_its_own_builds_only(self):
        slow, other = self.accept(2)
        task = self.task()
        cell = self.targets.database(self.cells['cell1'])
        with futures.ThreadPoolExecutor(1) as threads:
            with cell.writer():
                self.chosen = ['a1']
                waits = threads.submit(task.run, base.USER, [slow])
                while self.mapped(slow) is None:
                    self.assertFalse(waits.done())
                self.chosen = ['b1']
                task.run(base.USER, [other])

                self.assertBuilding('cell2', other)
                self.assertFalse(waits.done())
            waits.result(60)
        self.assertBuilding('cell1', slow)

    def test_deleted_or_leased_requests_are_skipped(self):
        gone, taken = self.accept(2)
        self.delete(gone)
        with self.database.writer() as connection:
            build_requests.lease(
                connection, [taken], 'other', self.clock.timestamp(),
                self.clock.timestamp() + 1)

        self.task().run(base.USER, [gone, taken, base.samples.uuids(1)[0]])

        self.assertEqual([], self.scheduler.sent)
        self.assertTrue(self.requested(taken))

    def test_repeated_message_does_not_repeat_the_build(self):
        [uuid] = self.accept()
        self.task().run(base.USER, [uuid])

        self.clock.advance(base.LEASE_S * 2)
        self.task().run(base.USER, [uuid])

        self.assertBuilding('cell1', uuid)
        self.assertEqual(1, len(self.scheduler.sent))


class TestDeletion(base.TestCase):

    def test_deletion_of_a_build_request_leaves_no_row_or_claim(self):
        for place in range(base.REQUEST_GONE):
            [uuid] = self.accept()

            self.task_with(place, lambda: self.delete(uuid)).run(
                base.USER, [uuid])

            self.assertCleared(uuid)
            self.assertEqual([], self.sent(), base.DONE[place])

    def test_deletion_after_the_build_request_deletes_the_server(self):
        for place in range(base.REQUEST_GONE, len(base.DONE)):
            [uuid] = self.accept()

            self.task_with(place, lambda: self.delete(uuid)).run(
                base.USER, [uuid])

            # The agent finds it deleted when it is told to build it.
            self.assertEqual(('cell1', 'deleted'), (
                self.mapped(uuid), self.row(uuid).vm_state))
            self.assertIsNone(self.holds(uuid))

    def test_deletion_of_a_build_does_not_affect_its_batch(self):
        for place in range(base.REQUEST_GONE):
            self.claims.release(uuid for _, uuid in self.sent())
            gone, kept = self.accept(2)

            self.task_with(place, lambda: self.delete(gone)).run(
                base.USER, [gone, kept])

            self.assertCleared(gone)
            self.assertBuilding('cell1', kept)

    def test_deletion_wins_over_a_failure(self):
        for place in range(base.REQUEST_GONE):
            [uuid] = self.accept()

            def both():
                self.delete(uuid)
                base.fail()

            self.task_with(place, both).run(base.USER, [uuid])

            self.assertCleared(uuid)


class TestFailure(base.TestCase):

    def test_failure_before_the_end_of_the_request_is_buried(self):
        for place in range(base.REQUEST_GONE):
            uuids = self.accept(2)

            self.task_with(place, base.fail).run(base.USER, uuids)

            for uuid in uuids:
                self.assertBuried(uuid, 'has a different claim')
                self.assertNotIn('secret', self.reason(uuid))

    def test_request_without_a_valid_host_is_buried_with_the_reason(self):
        def answer(**arguments):
            raise exception.NoValidHost(reason='Of 3 hosts 3 lack memory.')

        self.scheduler.answer = answer
        [uuid] = self.accept()

        self.task().run(base.USER, [uuid])

        self.assertBuried(uuid, 'Of 3 hosts 3 lack memory.')

    def answer_gone(self, *alternates):
        """Have the first build go to a host whose mapping has gone."""
        self.add_provider('x9')

        def answer(instance_uuids, **arguments):
            chosen = [
                [self.selection(host) for host in hosts] for hosts in (
                    ['x9', *alternates], ['a1'])[:len(instance_uuids)]]
            for uuid, (first, *_) in zip(instance_uuids, chosen):
                self.claims.claim(
                    base.claims_base.of_selection(uuid, first))
            return chosen

        self.scheduler.answer = answer

    def test_host_without_a_mapping_is_skipped(self):
        self.answer_gone('a3')
        lost, found = self.accept(2)

        self.task().run(base.USER, [lost, found])

        for uuid, host in (lost, 'a3'), (found, 'a1'):
            self.assertBuilding('cell1', uuid)
            self.assertEqual(host, self.holds(uuid))
            self.assertIn((host, uuid), self.sent())

    def test_build_without_another_host_is_retried(self):
        self.answer_gone()
        lost, found = self.accept(2)

        self.task().run(base.USER, [lost, found])

        self.assertBuilding('cell1', found)
        self.assertEqual(({}, True, None), (
            self.rows(lost), self.requested(lost), self.holds(lost)))

        self.claims.release([found])
        self.scheduler.answer = self.answer
        self.clock.advance(base.LEASE_S)
        self.task().run(base.USER, [lost])
        self.assertBuilding('cell1', lost)

    def test_transient_failure_of_the_scheduler_is_a_reason_to_retry(self):
        def answer(**arguments):
            self.answer(**arguments)
            raise failure

        for failure in (oslo_messaging.MessagingTimeout(),
                        amqp_exc.AccessRefused('password'),
                        cfg.RequiredOptError('lock_path'),
                        oslo_messaging.RemoteError('RequiredOptError', 'text'),
                        exception.ConfigurationInvalid(field='f')):
            self.scheduler.answer = answer
            [uuid] = self.accept()
            self.task().run(base.USER, [uuid])

            self.assertEqual(({}, None, True, None), (
                self.rows(uuid), self.mapped(uuid), self.requested(uuid),
                self.holds(uuid)))
            self.assertIn(exception.kind_of(failure), self.logs.output)
            self.assertNotIn('Traceback', self.logs.output)

            self.scheduler.answer = self.answer
            self.clock.advance(base.LEASE_S)
            self.task().run(base.USER, [uuid])
            self.assertBuilding('cell1', uuid)
            self.claims.release([uuid])

    def test_unwritable_cell_fails_its_own_builds_only(self):
        self.point('cell1', 'sqlite:////nowhere/at/all.sqlite')
        lost, found = self.accept(2)
        claims = {lost: 'a1', found: 'b1'}

        def answer(instance_uuids, **arguments):
            for uuid, host in claims.items():
                self.claims.claim(base.claims_base.of_selection(
                    uuid, self.selection(host)))
            return [[self.selection(host)] for host in claims.values()]

        self.scheduler.answer = answer
        self.task().run(base.USER, [lost, found])

        self.assertBuilding('cell2', found)
        # Nothing was written there, so it may go elsewhere.
        self.assertEqual((None, True, None), (
            self.mapped(lost), self.requested(lost), self.holds(lost)))

    def test_build_waits_for_a_cell_lost_during_its_write(self):
        self.break_cell('cell1')
        [uuid] = self.accept()

        self.task().run(base.USER, [uuid])

        # What was written there is not known; its claim keeps the place.
        self.assertEqual(('cell1', True, 'a1'), (
            self.mapped(uuid), self.requested(uuid), self.holds(uuid)))

    def test_least_number_is_kept(self):
        uuids = self.accept(6, min_count=5)

        self.task().run(base.USER, uuids)

        for uuid in uuids:
            self.assertBuried(uuid, 'Full.')

    def test_builds_beyond_the_capacity_are_buried(self):
        uuids = self.accept(6, min_count=3)

        self.task().run(base.USER, uuids)

        for uuid in uuids[:4]:
            self.assertBuilding('cell1', uuid)
        self.compute.clients.clear()
        for uuid in uuids[4:]:
            self.assertBuried(uuid, 'Full.')


class TestSharedFile(base.TestCase):
    """A transaction on the API database keeps the claims from any other."""

    def setUp(self):
        super().setUp()
        shared = session.Database(
            self.database.url, 'claims', clock=self.clock)
        self.addCleanup(shared.close)
        self.claims = sql.SQLClaims(shared)
        self.claims.sync()
        for provider in self.providers.values():
            self.claims.set_inventory(provider, {
                name: claims_base.Inventory(4 * amount)
                for name, amount in base.SIZE.items()})

    def task(self, **options):
        return super().task(limits=build_and_schedule.TaskLimits(
            base.LEASE_S, fenced=False), **options)

    def test_failed_build_holds_no_claim_after_any_step(self):
        for place in range(1, base.REQUEST_GONE):
            [uuid] = self.accept()

            self.task_with(place, base.fail).run(base.USER, [uuid])

            self.assertBuried(uuid, 'different claim')

    def test_deleted_server_holds_no_claim(self):
        [uuid] = self.accept()

        self.task_with(base.DONE.index('schedule'), lambda: self.delete(
            uuid)).run(base.USER, [uuid])

        self.assertCleared(uuid)

    def test_build_finished_by_another_conductor_keeps_its_claim(self):
        [uuid] = self.accept()

        def run_elsewhere():
            self.clock.advance(base.LEASE_S)
            self.task().run(base.USER, [uuid])
            base.fail()

        self.task_with(base.DONE.index('schedule'), run_elsewhere).run(
            base.USER, [uuid])

        self.assertBuilding('cell1', uuid)


class TestPurge(base.StepTestCase):

    def test_unwritable_cell_does_not_stop_the_purge(self):
        first, second = builds = self.builds(['a1', 'b1'])
        with self.targets.database(second.cell).writer() as connection:
            instances.create(
                connection, [samples.instance(second.uuid)], samples.NOW)
        first.cell = copy.copy(first.cell)
        first.cell.database_connection = 'sqlite:////nowhere/gone.sqlite'

        self.task()._purge(builds)

        self.assertIn(f'rows of instances {first.uuid}',
                      self.logs.output)
        self.assertEqual({}, self.rows(second.uuid))


class TestBurial(base.TestCase):

    def lease(self, uuid):
        self.clock.advance(base.LEASE_S * 2)
        now = self.clock.timestamp()
        with self.database.writer() as connection:
            return build_requests.lease(
                connection, [uuid], 'next', now, now + base.LEASE_S)

    def task(self, **options):
        return super().task(reached=self.reached, **options)

    def reached(self, step):
        if step.startswith('undone') and self.then:
            self.then.pop()()

    def fail(self, uuid, then):
        """Have a build fail, and something done when that is undone."""
        self.then = [then]
        self.task_with(1, base.fail).run(base.USER, [uuid])
        self.assertEqual([], self.then)

    def test_build_leased_by_another_conductor_is_skipped(self):
        [uuid] = self.accept()
        leased = []

        self.fail(uuid, lambda: leased.extend(self.lease(uuid)))

        self.assertEqual(1, len(leased))
        self.assertEqual(
            ({}, None, True),
            (self.rows(uuid), self.mapped(uuid), self.requested(uuid)))

    def test_build_finished_by_another_conductor_is_not_buried(self):
        [uuid] = self.accept()

        def run_next():
            self.clock.advance(base.LEASE_S * 2)
            self.task().run(base.USER, [uuid])

        self.fail(uuid, run_next)

        self.assertBuilding('cell1', uuid)

    def test_build_with_an_expired_lease_is_buried_late(self):
        [uuid] = self.accept()

        self.fail(uuid, lambda: self.clock.advance(base.LEASE_S * 2))

        self.assertBuried(uuid, 'different claim')


class TestRecovery(base.TestCase):

    def run_late(self, uuids, **options):
        self.clock.advance(base.LEASE_S)
        self.task(**options).run(base.USER, uuids)

    def test_build_of_a_dead_conductor_is_finished_after_any_step(self):
        for place in range(base.REQUEST_GONE):
            self.claims.release(uuid for _, uuid in self.sent())
            [uuid] = self.accept()
            self.assertRaises(base.Death, self.task_with(
                place, base.die).run, base.USER, [uuid])
            self.assertTrue(self.requested(uuid))

            self.run_late([uuid])

            self.assertBuilding('cell1', uuid)

    def test_recovered_build_in_another_cell_leaves_no_row(self):
        for place in range(base.REQUEST_GONE):
            self.chosen = ['b1']
            [uuid] = self.accept()
            self.assertRaises(base.Death, self.task_with(
                place, base.die).run, base.USER, [uuid])

            self.claims.release([uuid])
            self.chosen = ['a1']
            self.run_late([uuid])

            self.assertBuilding('cell1', uuid)
            self.claims.release([uuid])

    def test_recovered_build_without_a_valid_host_is_buried(self):
        for place in range(base.REQUEST_GONE):
            self.chosen = ['b1']
            [uuid] = self.accept()
            self.assertRaises(base.Death, self.task_with(
                place, base.die).run, base.USER, [uuid])

            self.clock.advance(base.LEASE_S)
            self.task_with(1, base.fail).run(base.USER, [uuid])

            self.assertBuried(uuid, 'has a different claim')

    def test_recovered_build_waits_for_its_earlier_cell(self):
        self.chosen = ['b1']
        [uuid] = self.accept()
        self.assertRaises(base.Death, self.task_with(
            base.DONE.index('write rows'), base.die).run, base.USER, [uuid])
        self.claims.release([uuid])
        self.chosen = ['a1']

        self.break_cell('cell2')
        self.run_late([uuid])
        self.run_late([uuid])
        self.assertEqual(
            (['cell2'], 'cell2', True),
            ([*self.rows(uuid)], self.mapped(uuid), self.requested(uuid)))

        self.mend_cell('cell2')
        self.run_late([uuid])
        self.assertBuilding('cell1', uuid)

    def test_burial_waits_for_cell0(self):
        self.break_cell('cell0')
        [uuid] = self.accept()
        self.task_with(0, base.fail).run(base.USER, [uuid])
        self.assertEqual(({}, True), (self.rows(uuid), self.requested(uuid)))

        self.mend_cell('cell0')
        self.clock.advance(base.LEASE_S)
        self.task_with(0, base.fail).run(base.USER, [uuid])

        self.assertBuried(uuid, 'has a different claim')

    def test_build_is_finished_after_half_a_burial(self):
        self.break_cell('cell0')
        [uuid] = self.accept()
        self.task_with(0, base.fail).run(base.USER, [uuid])

        self.mend_cell('cell0')
        self.run_late([uuid])

        self.assertBuilding('cell1', uuid)

    def test_burial_without_a_cell0_waits(self):
        with self.database.writer() as connection:
            connection.execute(
                sa.delete(api_models.cell_mappings)
                .where(api_models.cell_mappings.c.name == 'cell0'))
        [uuid] = self.accept()

        self.task_with(0, base.fail).run(base.USER, [uuid])

        self.assertTrue(self.requested(uuid))
        self.assertIsNone(self.holds(uuid))

    def test_slow_conductor_does_not_undo_a_newer_build(self):
        for place in range(base.REQUEST_GONE):
            self.claims.release(uuid for _, uuid in self.sent())
            [uuid] = self.accept()

            def run_elsewhere():
                self.run_late([uuid])
                base.fail()

            self.task_with(place, run_elsewhere).run(base.USER, [uuid])

            self.assertBuilding('cell1', uuid)

    def test_slow_conductor_does_not_build_a_buried_server(self):
        late = self.task_with(1, base.fail)
        for place in range(base.DONE.index('write rows')):
            [uuid] = self.accept()

            def run_elsewhere():
                self.clock.advance(base.LEASE_S)
                late.run(base.USER, [uuid])

            self.task_with(place, run_elsewhere).run(base.USER, [uuid])

            self.assertEqual(
                (['cell0'], 'cell0', False),
                ([*self.rows(uuid)], self.mapped(uuid), self.requested(uuid)))
            self.assertEqual([], self.sent())

    def test_build_in_rollback_cannot_be_leased(self):
        [uuid] = self.accept()
        task = self.task_with(1, lambda: (
            self.clock.advance(base.LEASE_S * 2), base.fail()))
        taken, after_undo = [], []
        release = self.claims.release

        def lease():
            with self.database.writer() as connection:
                taken.append(build_requests.lease(
                    connection, [uuid], 'next', self.clock.timestamp(),
                    self.clock.timestamp() + 1))
            self.assertEqual([[uuid]], after_undo)

        def look(consumers):
            self.clock.advance(base.LEASE_S * 2)
            waiting.append(threads.submit(lease))
            # It waits for the transaction that this is done in.
            self.assertRaises(
                futures.TimeoutError, waiting[0].result, 0.2)
            after_undo.append(list(consumers))
            release(consumers)

        waiting = []
        with futures.ThreadPoolExecutor(1) as threads:
            self.claims.release = look
            task.run(base.USER, [uuid])
            waiting[0].result(60)

        # Whoever was first, it is not built, for its claim is gone.
        self.assertEqual(1, len(taken))
        self.assertIsNone(self.holds(uuid))
        self.assertEqual([], self.sent())


class TestRetries(base.TestCase):

    def setUp(self):
        super().setUp()
        self.asked = []

    def silent(self, times):
        """Have the scheduler claim and not answer, so many times."""
        def answer(instance_uuids, **arguments):
            chosen = self.answer(instance_uuids=instance_uuids, **arguments)
            self.asked.append(instance_uuids)
            if len(self.asked) <= times:
                raise oslo_messaging.MessagingTimeout()
            return chosen

        self.scheduler.answer = answer

    def limited(self, **limits):
        return self.task(
            limits=build_and_schedule.TaskLimits(base.LEASE_S, **limits))

    def try_again(self, task, seconds):
        """Let time pass, in which the conductor lives; do what is due."""
        self.clock.advance(seconds)
        task.leases.renew()
        due = task.retries.pop_due()
        for attempt in due:
            task.attempt(attempt)
        return len(due)

    def free(self, uuids):
        """Return what another conductor could take up."""
        now = self.clock.steady()
        with self.database.writer() as connection:
            return [each.request.instance_uuid
                    for each in build_requests.lease(
                        connection, uuids, 'other', now, now + base.LEASE_S)]

    def test_silent_scheduler_is_called_again_in_the_same_attempt(self):
        uuids = self.accept(2)
        self.silent(times=1)
        task = self.task()

        task.run(base.USER, uuids)

        self.assertEqual([uuids, uuids], self.asked)
        for uuid in uuids:
            self.assertBuilding('cell1', uuid)
        self.assertEqual([], task.retries.pop_due())

    def test_transient_failure_is_retried_within_the_lease(self):
        [uuid] = self.accept()
        self.silent(times=2)
        task = self.task()

        task.run(base.USER, [uuid])
        self.assertEqual(0, self.try_again(task, 0.5))
        self.assertEqual({}, self.rows(uuid))
        self.assertEqual(1, self.try_again(task, 0.5))

        self.assertBuilding('cell1', uuid)

    def test_deferred_build_keeps_its_lease(self):
        [uuid] = self.accept()
        self.silent(times=4)
        task = self.limited(retry_delay_s=base.LEASE_S - 1)

        task.run(base.USER, [uuid])
        for _ in range(2):
            self.try_again(task, base.LEASE_S - 1)
            self.assertEqual([], self.free([uuid]))

    def test_build_without_further_attempts_releases_its_lease(self):
        [uuid] = self.accept()
        self.silent(times=100)
        task = self.limited(retries=2)

        task.run(base.USER, [uuid])
        self.assertEqual([1, 1, 0], [
            self.try_again(task, seconds) for seconds in (1, 2, 4)])

        self.assertEqual([uuid], self.free([uuid]))
        self.assertEqual(0, len(task.leases))

    def test_conductor_keeps_builds_while_the_database_is_silent(self):
        [uuid] = self.accept()
        path = pathlib.Path(self.database.url.removeprefix('sqlite:///'))
        link = self.temporary_directory() / 'link'
        link.symlink_to(path.parent)
        database = session.Database(
            f'sqlite:///{link}/{path.name}', 'API', clock=self.clock)
        self.addCleanup(database.close)
        answer = self.scheduler.answer

        def leave(**arguments):
            database.close()
            link.unlink()
            raise oslo_messaging.MessagingTimeout()

        task = self.task(
            database=database, limits=build_and_schedule.TaskLimits(
                base.LEASE_S, retries=0))
        self.scheduler.answer = leave
        task.run(base.USER, [uuid])
        self.assertIn('Could not end the leases', self.logs.output)
        self.scheduler.answer = answer
        link.symlink_to(path.parent)

        self.assertEqual([], self.free([uuid]))
        self.assertEqual(1, self.try_again(task, 1))
        self.assertBuilding('cell1', uuid)

    def test_retry_skips_builds_of_another_conductor(self):
        [uuid] = self.accept()
        self.silent(times=2)
        task = self.task()
        task.run(base.USER, [uuid])
        # This one is stopped, and does not say that it lives.
        self.clock.advance(base.LEASE_S)
        self.assertEqual([uuid], self.free([uuid]))

        for attempt in task.retries.pop_due():
            task.attempt(attempt)

        self.assertEqual({}, self.rows(uuid))
        self.clock.advance(base.LEASE_S - 1)
        task.leases.renew()
        self.clock.advance(1)
        self.assertEqual([uuid], self.free([uuid]))

    def test_failed_part_of_a_batch_is_retried(self):
        self.chosen = ['b1']
        here, there = self.accept(2)
        self.break_cell('cell2')

        def answer(instance_uuids, **arguments):
            return [[self.selection({here: 'a1', there: 'b1'}[uuid])]
                    for uuid in instance_uuids]

        self.scheduler.answer = answer
        for uuid, host in ((here, 'a1'), (there, 'b1')):
            self.claims.claim(base.claims_base.of_selection(
                uuid, self.selection(host)))
        task = self.task()

        task.run(base.USER, [here, there])

        self.assertBuilding('cell1', here)
        self.assertTrue(self.requested(there))
        self.clock.advance(1)
        [attempt] = task.retries.pop_due()
        self.assertEqual([there], attempt.uuids)
        self.mend_cell('cell2')
        task.attempt(attempt)
        self.assertBuilding('cell2', there)

    def test_message_is_kept_while_the_database_is_unreachable(self):
        uuids = self.accept(2)
        there = pathlib.Path(
            self.database.url.removeprefix('sqlite:///'))
        gone = self.temporary_directory() / 'gone'
        away = session.Database(
            f'sqlite:///{gone}/{there.name}', 'API', clock=self.clock)
        self.addCleanup(away.close)
        task = self.task(database=away)

        task.run(base.USER, uuids)
        self.assertIn('DatabaseUnreachable', self.logs.output)
        self.assertNotIn('Traceback', self.logs.output)
        gone.symlink_to(there.parent)
        self.assertEqual(1, self.try_again(task, 1))

        for uuid in uuids:
            self.assertBuilding('cell1', uuid)

    def test_permanent_failure_is_not_retried(self):
        [uuid] = self.accept()
        task = self.task()
        self.scheduler.answer = lambda **arguments: 1 / 0

        task.run(base.USER, [uuid])

        self.assertBuried(uuid, 'an error that operators find')
        self.clock.advance(3600)
        self.assertEqual([], task.retries.pop_due())

    def test_attempt_needs_the_lease_of_its_owner(self):
        """What a recoverer has claimed is built by it, and by nobody else."""
        [uuid] = self.accept()
        self.assertEqual([uuid], self.free([uuid]))

        self.task().attempt(lease.Attempt(base.USER, [uuid], 'someone'))
        self.assertEqual({}, self.rows(uuid))
        self.task().attempt(lease.Attempt(base.USER, [uuid], 'other'))

        self.assertBuilding('cell1', uuid)


class TestReached(base.TestCase):

    def reached(self):
        steps = []
        [uuid] = self.accept()
        self.task(reached=steps.append).run(base.USER, [uuid])
        return uuid, steps

    def test_steps_of_a_build_are_reported_in_order(self):
        uuid, steps = self.reached()

        self.assertBuilding('cell1', uuid)
        self.assertEqual(
            ['Lease', 'Expire', 'RemoveFromCell0', 'Schedule', 'FindCell',
             'Decide', 'WriteRows', 'Release', 'Cast', 'Bury'], steps)

    def test_steps_of_a_buried_build_are_reported(self):
        def refuse(**arguments):
            raise exception.NoValidHost(reason='Full.')

        self.scheduler.answer = refuse

        uuid, steps = self.reached()

        self.assertBuried(uuid, 'Full.')
        self.assertEqual(['Lease', 'Expire', 'RemoveFromCell0', 'Schedule',
                          'undone Schedule', 'Bury'], steps)


class TestBroken(base.TestCase):

    def spoil(self, uuid, table='build_requests', **values):
        with self.database.writer() as connection:
            samples.spoil(connection, uuid, table, **values)

    def recover(self):
        self.clock.advance(base.LEASE_S)
        recovery.Recoverer(
            self.database, self.task(), base.LEASE_S,
            futurist.SynchronousExecutor()).run()

    def break_in_turn(self):
        """Yield builds of which each is broken in another way."""
        for table, values, reason in (
                ('build_requests', {'instance': 'nonsense'},
                 'The build request of {} cannot be read.'),
                ('request_specs', {'spec': '{}'},
                 'The request specification of {} cannot be read.'),
                ('request_specs', {},
                 'The request specification of {} is missing.')):
            [uuid] = self.accept()
            self.spoil(uuid, table, **values)
            yield uuid, reason.format(uuid)

    def test_unreadable_request_is_buried_with_the_reason(self):
        for uuid, reason in self.break_in_turn():
            self.task().run(base.USER, [uuid])

            self.assertBuried(uuid, reason)
            row = self.row(uuid)
            self.assertEqual(('project', 'user'),
                             (row.project_id, row.user_id))

    def test_unreadable_unmapped_request_does_not_stop_its_batch(self):
        [uuid], [other] = self.accept(), self.accept()
        self.spoil(uuid, instance='nonsense')
        self.spoil(uuid, 'instance_mappings')

        self.task().run(base.USER, [uuid, other])

        self.assertEqual({}, self.rows(uuid))
        self.assertEqual([self.mapped(other)], list(self.rows(other)))

    def test_recoverer_buries_abandoned_requests(self):
        for uuid, reason in self.break_in_turn():
            now = self.clock.timestamp()
            with self.database.writer() as connection:
                build_requests.lease(
                    connection, [uuid], 'dead', now, now + base.LEASE_S)

            self.recover()

            self.assertBuried(uuid, reason)

    def test_request_broken_since_an_earlier_attempt_is_rolled_back(self):
        for place in range(base.REQUEST_GONE):
            [uuid] = self.accept()
            self.assertRaises(base.Death, self.task_with(
                place, base.die).run, base.USER, [uuid])
            self.spoil(uuid, 'request_specs')

            self.recover()

            self.assertBuried(uuid, 'is missing')

    def test_batch_of_an_unreadable_request_is_built(self):
        broken, whole = self.accept(2)
        self.spoil(broken, 'request_specs')

        self.task().run(base.USER, [broken, whole])

        self.assertBuilding('cell1', whole)
        self.assertEqual(['cell0'], [*self.rows(broken)])

    def test_whole_batch_of_an_unreadable_request_is_buried(self):
        uuids = samples.uuids(2)
        samples.accept(self.database, uuids, self.clock.now(), min_count=2)
        self.spoil(uuids[0], 'request_specs')

        self.task().run(base.USER, uuids)

        for uuid in uuids:
            self.assertBuried(uuid, f'{uuids[0]} is missing')

    def make_newer(self, uuid, table, name):
        """Give a record a later major version; return the earlier text."""
        column = api_models.METADATA.tables[table].c[
            'spec' if table == 'request_specs' else 'instance']
        where = column.table.c.instance_uuid == uuid
        with self.database.writer() as connection:
            text = connection.scalar(sa.select(column).where(where))
            primitive = jsonutils.loads(text)
            found = primitive
            if name != primitive['nova_object.name']:
                found = primitive['nova_object.data'][name]
            found['nova_object.version'] = '99.0'
            connection.execute(sa.update(column.table).where(where).values(
                {column.name: jsonutils.dumps(primitive)}))
        return {column.name: text}

    def test_request_of_a_later_release_is_skipped(self):
        for table, name in (
                ('build_requests', 'Instance'), ('build_requests', 'flavor'),
                ('request_specs', 'RequestSpec'), ('request_specs', 'flavor')):
            with self.subTest(table=table, name=name):
                [uuid] = self.accept()
                before = self.make_newer(uuid, table, name)

                self.task().run(base.USER, [uuid])
                self.recover()

                self.assertEqual({}, self.rows(uuid))
                self.assertIn('a later release', self.logs.output)
                # One of that release can lease and build it.
                self.spoil(uuid, table, **before)
                self.task().run(base.USER, [uuid])
                self.assertEqual([self.mapped(uuid)], [*self.rows(uuid)])
                self.assertNotEqual('cell0', self.mapped(uuid))

    def test_whole_batch_of_a_later_release_is_skipped(self):
        uuids = samples.uuids(2)
        samples.accept(self.database, uuids, self.clock.now(), min_count=2)
        self.make_newer(uuids[0], 'request_specs', 'RequestSpec')

        self.task().run(base.USER, uuids)

        for uuid in uuids:
            self.assertEqual({}, self.rows(uuid))

    def test_user_can_delete_an_unreadable_request(self):
        for uuid, _ in self.break_in_turn():
            self.delete(uuid)

            self.assertCleared(uuid)

    def test_user_can_delete_an_interrupted_build(self):
        for place in range(base.REQUEST_GONE):
            [uuid] = self.accept()
            self.assertRaises(base.Death, self.task_with(
                place, base.die).run, base.USER, [uuid])
            self.spoil(uuid, instance='nonsense')

            self.delete(uuid)

            self.assertFalse(self.requested(uuid))
            self.assertIsNone(self.holds(uuid))
            for name in self.rows(uuid):
                database = self.targets.database(self.cells[name])
                with database.reader() as connection:
                    self.assertIsNone(instances.get(connection, uuid))


class Cell0(cell0.Cell0):
    """Notes how many are buried at once."""

    def bury(self, context, instances, *args):
        self.buried.append([each.uuid for each in instances])
        return super().bury(context, instances, *args)


class Quotas(noop.NoopQuotaDriver):
    """Refuses each build for a reason of its own."""

    def admit_all(self, connection, batches):
        return {build.uuid: exception.OverQuota(
            overs='instances', req=1, used=number, allowed=9)
            for batch in batches for number, build in enumerate(batch.builds)}


class TestBurialTogether(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cell0 = Cell0(self.database, self.registry(), self.targets,
                           self.clock, 'conductor')
        self.cell0.buried = []

    def task(self, **options):
        return super().task(cell0=self.cell0, **options)

    def test_builds_with_a_common_reason_are_buried_at_once(self):
        uuids = self.accept(3)

        self.task_with(1, base.fail).run(base.USER, uuids)

        self.assertEqual([uuids], self.cell0.buried)
        for uuid in uuids:
            self.assertBuried(uuid, 'different claim')

    def test_builds_with_different_reasons_are_buried_at_once(self):
        """One that is left, and tried again alone, could be built alone."""
        uuids = self.accept(2)

        self.task(quotas=Quotas(None, None)).run(base.USER, uuids)

        self.assertEqual([uuids], self.cell0.buried)
        for number, uuid in enumerate(uuids):
            self.assertBuried(uuid, f'but already used {number}')
