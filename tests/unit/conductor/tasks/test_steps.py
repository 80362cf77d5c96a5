# SPDX-License-Identifier: Apache-2.0
"""Asking the scheduler, once for a batch."""

from concurrent import futures
import time

import oslo_messaging
import sqlalchemy as sa

from cellsched.cells import cell0
from cellsched.claims import base as claims_base
from cellsched.conductor.tasks import build_and_schedule
from cellsched.conductor.tasks.saga import Batch
from cellsched.conductor.tasks import steps
from cellsched import context
from cellsched.db.api import build_requests
from cellsched.db.api import instance_groups
from cellsched.db.api import models
from cellsched.db.cell import instances
from cellsched import exception
from cellsched import objects
from tests.unit.conductor import base
from tests.unit.db import samples


class TestSchedule(base.StepTestCase):

    def setUp(self):
        super().setUp()
        self.batch = self.builds(['a1'] * 3)

    def step(self, min_count=1):
        batch = Batch(self.batch, min_count)
        for build in self.batch:
            build.batch = batch
        return steps.Schedule(self.database, self.scheduler, self.claims)

    def held(self):
        return [self.holds(build.uuid) for build in self.batch]

    def test_batch_is_a_single_call_in_order(self):
        self.do(self.step(), self.batch)

        [sent] = self.scheduler.sent
        self.assertEqual(
            [build.uuid for build in self.batch],
            sent.arguments['instance_uuids'])
        self.assertEqual(3, sent.arguments['spec_obj'].num_instances)
        self.assertTrue(sent.arguments['return_objects'])
        self.assertTrue(sent.arguments['return_alternates'])
        self.assertEqual(
            [['a1', 'a2']] * 3,
            [[each.service_host for each in build.selections]
             for build in self.batch])

    def test_repeated_step_claims_once(self):
        for _ in range(2):
            self.do(self.step(), self.batch)

        self.assertEqual(['a1'] * 3, self.held())
        [usage] = self.claims.usages(
            providers=[self.providers['a1']]).usages
        self.assertEqual(3, usage.used['VCPU'])

    def test_repeated_undo_releases_all_claims(self):
        step = self.step()
        self.undo(step, self.batch)
        self.do(step, self.batch)

        for _ in range(2):
            self.undo(step, self.batch)
            self.assertEqual([None] * 3, self.held())

    def test_no_build_is_placed_below_the_minimum(self):
        self.batch += self.builds(['a1'] * 2)

        self.do(self.step(min_count=5), self.batch)

        self.assertEqual([None] * 5, self.held())
        self.assertEqual(1, len(self.scheduler.sent))
        for build in self.batch:
            self.assertIsInstance(build.reason, exception.NoValidHost)

    def test_builds_within_capacity_are_placed_above_the_minimum(self):
        self.batch += self.builds(['a1'] * 2)

        self.do(self.step(min_count=4), self.batch)

        self.assertEqual(['a1'] * 4 + [None], self.held())
        self.assertEqual([False] * 4 + [True],
                         [build.ended for build in self.batch])
        self.assertEqual(
            4, self.scheduler.sent[1].arguments['spec_obj'].num_instances)

    def test_fewer_builds_are_placed_after_a_loss_between_the_calls(self):
        self.batch += self.builds(['a1'] * 2)
        thief = self.builds(['a1'])[0]

        def answer(**arguments):
            if len(self.scheduler.sent) == 2:
                self.claims.claim(base.claims_base.of_selection(
                    thief.uuid, thief.selections[0]))
            return self.answer(**arguments)

        self.scheduler.answer = answer
        self.do(self.step(min_count=3), self.batch)

        self.assertEqual(['a1'] * 3 + [None] * 2, self.held())
        self.assertEqual([False] * 3 + [True] * 2,
                         [build.ended for build in self.batch])
        self.assertEqual(3, len(self.scheduler.sent))

    def test_no_build_is_placed_after_a_loss_below_the_minimum(self):
        self.batch += self.builds(['a1'] * 2)
        thief = self.builds(['a1'])[0]

        def answer(**arguments):
            if len(self.scheduler.sent) == 2:
                self.claims.claim(base.claims_base.of_selection(
                    thief.uuid, thief.selections[0]))
            return self.answer(**arguments)

        self.scheduler.answer = answer
        self.do(self.step(min_count=4), self.batch)

        self.assertEqual([None] * 5, self.held())
        self.assertTrue(all(build.reason for build in self.batch))

    def test_refusal_without_a_count_fails_all_builds(self):
        def answer(**arguments):
            raise exception.NoValidHost(reason='From elsewhere.')

        self.scheduler.answer = answer
        self.do(self.step(), self.batch)

        self.assertTrue(all(build.reason for build in self.batch))


class TestScheduleTogether(base.StepTestCase):

    def setUp(self):
        super().setUp()
        self.step = steps.Schedule(self.database, self.scheduler, self.claims)
        self.batch = self.builds(['a1'] * 3)
        for build in self.batch:
            build.alike = 'a request'
            build.batch = Batch([build])
            build.selections = []

    def do_together(self, answers=(), waiting=2):
        """Do the step for each build; the others arrive in the first call.

        :param answers: errors of the calls, None for a normal answer
        :param waiting: number of builds that wait for the end of the first
            call
        """
        answers = list(answers)

        def answer(**arguments):
            if len(self.scheduler.sent) == 1:
                calls.extend(pool.submit(self.step.do, [build])
                             for build in self.batch[1:])
                while sum(len(group._waiting) for group in
                          list(self.step._groups.values())) < waiting:
                    time.sleep(0.001)
            error = answers.pop(0) if answers else None
            if error is not None:
                raise error
            return self.answer(**arguments)

        calls = []
        self.scheduler.answer = answer
        with futures.ThreadPoolExecutor(2) as pool:
            self.step.do(self.batch[:1])
        return [call.exception() for call in calls]

    def sent(self):
        return [sent.arguments['instance_uuids']
                for sent in self.scheduler.sent]

    def test_requests_added_during_a_call_share_the_next_call(self):
        self.do_together()

        first, *rest = [build.uuid for build in self.batch]
        [alone, together] = self.sent()
        self.assertEqual([first], alone)
        self.assertEqual(sorted(rest), sorted(together))
        self.assertEqual(
            2, self.scheduler.sent[1].arguments['spec_obj'].num_instances)
        for build in self.batch:
            self.assertEqual('a1', self.holds(build.uuid))
            self.assertEqual('a1', build.selections[0].service_host)
            self.assertEqual(1, build.spec.num_instances)

    def test_builds_refused_together_are_scheduled_alone(self):
        self.do_together(
            [None, exception.NoValidHost(reason='Two do not fit.'), None,
             exception.NoValidHost(reason='One does not fit.')])

        self.assertEqual([1, 2, 1, 1], list(map(len, self.sent())))
        [failed] = [build for build in self.batch if build.ended]
        self.assertEqual('One does not fit.', failed.reason.reason)

    def test_silence_is_the_error_of_all(self):
        silence = oslo_messaging.MessagingTimeout('no answer')

        errors = self.do_together([None, silence, silence])

        # The call is repeated once.
        self.assertEqual([1, 2, 2], list(map(len, self.sent())))
        for error in errors:
            self.assertIsInstance(error, oslo_messaging.MessagingTimeout)
            self.assertIs(silence, error.__cause__)
        self.assertIsNot(*errors)

    def test_different_requests_share_no_call(self):
        _, other, foreign = self.batch
        other.alike = 'another request'
        foreign.context = context.member('another user', 'project')

        self.do_together(waiting=0)

        self.assertEqual([1, 1, 1], list(map(len, self.sent())))

    def test_batches_and_repetitions_share_no_call(self):
        calls = []
        self.step._ask_together = calls.append
        again, *both = self.batch
        again.tries = 2

        for batch in ([again], both):
            self.step.do(batch)

        self.assertEqual([1, 2], list(map(len, self.sent())))
        self.assertEqual([], calls)


class TestAlternates(base.TestCase):

    owner = {'project_id': 'p', 'user_id': 'u'}

    def setUp(self):
        super().setUp()
        [self.uuid] = samples.uuids(1)
        self.claim('a1')
        self.hosts = [self.selection(host) for host in ('a2', 'a3')]
        self.alternates = steps.Alternates(self.claims)

    def claim(self, host):
        self.claims.claim(claims_base.of_selection(
            self.uuid, self.selection(host)))

    def claim_first(self, is_due=True):
        chosen = self.alternates.claim_first(
            objects.Instance(uuid=self.uuid, **self.owner), self.hosts, None,
            lambda: is_due)
        return chosen and chosen.service_host

    def test_first_alternate_with_capacity_is_claimed(self):
        for expected in 'a2', 'a3':
            self.assertEqual((expected, expected),
                             (self.claim_first(), self.holds(self.uuid)))
        self.assertEqual((None, None, []), (
            self.claim_first(), self.holds(self.uuid), self.hosts))

    def test_outdated_call_does_not_claim(self):
        for is_due, held in (False, 'a1'), (None, None):
            self.assertIsNone(self.claim_first(is_due))

            self.assertEqual(held, self.holds(self.uuid))
            self.assertEqual(2, len(self.hosts))

    def test_host_with_locked_rows_is_passed_over(self):
        claim, chosen = self.claims.claim, [*self.hosts]
        locked = {chosen[0].compute_node_uuid}

        def busy(claims):
            if not locked.isdisjoint({each.provider for each in claims}):
                raise exception.ClaimBusy(
                    schema='claims', providers=sorted(locked), reason='locked')
            return claim(claims)

        self.claims.claim = busy
        self.assertEqual('a3', self.claim_first())

        # The last ones may have capacity, so the build is not given up.
        self.hosts, locked = chosen, {
            each.compute_node_uuid for each in chosen}
        error = self.assertRaises(exception.ClaimBusy, self.claim_first)
        self.assertIsInstance(error, exception.DATABASE_UNAVAILABLE)

    def test_claim_has_the_project_and_user_of_the_server(self):
        for owner, expected in (
                (self.owner, ('p', 'u')), ({}, (None, None)),
                ({'project_id': '', 'user_id': None}, (None, None))):
            self.owner = owner
            self.hosts = [self.selection('a2')]
            self.claim_first()

            [held] = self.claims.claims_of([self.uuid])[self.uuid]
            self.assertEqual(expected, (held.project_id, held.user_id))

    def test_host_with_room_is_claimed_once(self):
        claim, made = self.claims.claim, []

        def claimed(claims):
            made.append([each.consumer for each in claims])
            return claim(claims)

        self.claims.claim = claimed
        self.claim_first()

        self.assertEqual([[self.uuid]], made)

    def test_late_claim_of_a_scheduler_is_released(self):
        # It comes after what was held was given back.
        release, late = self.claims.release, ['a1'] * 3

        def released(uuids):
            release(uuids)
            if late:
                self.claim(late.pop())

        self.claims.release = released

        self.assertEqual(('a2', 'a2'),
                         (self.claim_first(), self.holds(self.uuid)))

    def test_endless_claims_of_schedulers_are_a_conflict(self):
        release = self.claims.release

        def released(uuids):
            release(uuids)
            self.claim('a1')

        self.claims.release = released

        self.assertRaises(exception.ClaimConflict, self.claim_first)


DEADLINE_S, ATTEMPTS = 600, 3


class TestExpire(base.StepTestCase):

    def failed(self, waited_s, tries):
        [build] = self.builds(['a1'])
        build.tries = tries
        self.clock.advance(waited_s)

        self.do(steps.Expire(
            self.database, DEADLINE_S, ATTEMPTS), [build])

        return build.reason

    def test_old_build_with_all_attempts_expires(self):
        reason = self.failed(DEADLINE_S + 1, ATTEMPTS + 1)

        self.assertIsInstance(reason, exception.BuildDeadlineExceeded)
        self.assertEqual(
            'The build was given up after 600 seconds and 3 attempts. It did '
            'not end.', reason.format_message())

    def test_deadline_or_attempts_alone_do_not_expire_a_build(self):
        for waited_s, tries in (
                (DEADLINE_S * 100, ATTEMPTS), (DEADLINE_S, ATTEMPTS * 10)):
            self.assertIsNone(self.failed(waited_s, tries))

    def test_build_without_an_end_is_buried_with_the_last_failure(self):
        task = self.task(limits=build_and_schedule.TaskLimits(
            base.LEASE_S, DEADLINE_S, ATTEMPTS))
        [uuid] = self.accept()
        self.break_cell('cell1')
        for _ in range(DEADLINE_S // base.LEASE_S + 1):
            task.run(base.USER, [uuid])
            self.assertTrue(self.requested(uuid))
            self.clock.advance(base.LEASE_S + 1)
            with self.database.reader() as connection:
                failure = build_requests.get(connection, uuid).failure
            self.assertTrue(failure)
        self.mend_cell('cell1')

        task.run(base.USER, [uuid])

        self.assertBuried(uuid, 'given up after 600 seconds')
        self.assertIn(failure, self.reason(uuid))


class TestRemoveFromCell0(base.StepTestCase):

    def step(self):
        return steps.RemoveFromCell0(
            self.database, cell0.Cell0(
                self.database, self.registry(), self.targets, self.clock,
                'conductor'), base.LEASE_S)

    def buried(self, count):
        """Return builds of which the first ones were retried."""
        batch = self.builds(['a1'] * 3)
        for build in batch[:count]:
            build.request.buried = True
        with self.targets.database(self.cells['cell0']).writer() as found:
            instances.create(
                found, [build.instance for build in batch], self.clock.now())
        return batch

    def mark_buried(self):
        with self.database.writer() as connection:
            connection.execute(
                sa.update(models.build_requests).values(buried=True))

    def is_buried(self, batch):
        with self.database.reader() as connection:
            return [build_requests.get(connection, build.uuid).buried
                    for build in batch]

    def lying(self, batch):
        return [bool(self.rows(build.uuid)) for build in batch]

    def test_retried_record_is_removed_repeatedly(self):
        batch = self.buried(2)

        for _ in range(2):
            self.do(self.step(), batch)
            self.assertEqual([False, False, True], self.lying(batch))
            self.assertFalse(any(build.ended for build in batch))

    def test_lease_starts_anew(self):
        batch = self.buried(1)
        self.clock.advance(base.LEASE_S / 2)

        self.do(self.step(), batch)

        self.assertEqual(
            [base.LEASE_S, base.LEASE_S / 2, base.LEASE_S / 2],
            [self.leased_until(build) - self.clock.timestamp()
             for build in batch])

    def test_removal_from_cell0_is_recorded(self):
        batch = self.buried(1)
        self.mark_buried()

        self.do(self.step(), batch)

        self.assertEqual([False, True, True], self.is_buried(batch))

    def test_newer_record_in_cell0_stays(self):
        batch = self.buried(3)
        self.clock.advance(base.LEASE_S)
        self.lease([batch[0].uuid], base.OTHER)
        self.delete(batch[1].uuid)

        self.do(self.step(), batch)

        self.assertEqual([True, True, False], self.lying(batch))
        self.assertEqual([True, False, False],
                         [build.finished for build in batch])
        self.assertTrue(batch[1].deleted)

    def test_unwritable_cell0_fails_the_step(self):
        batch = self.buried(2)
        self.mark_buried()
        self.break_cell('cell0')

        self.assertRaises(
            exception.DatabaseError, self.do, self.step(), batch)

        self.mend_cell('cell0')
        self.assertEqual([True] * 3, self.lying(batch))
        self.assertEqual([True] * 3, self.is_buried(batch))


class TestScheduleInGroups(base.StepTestCase):

    def setUp(self):
        super().setUp()
        group = objects.InstanceGroup(
            uuid=samples.uuids(1)[0], name='group', project_id='project',
            user_id='user', policy='anti-affinity', rules={'spread': 'az'})
        with self.database.writer() as connection:
            instance_groups.create(connection, group, samples.NOW)
            self.group = instance_groups.get(connection, group.uuid)
        self.batch = self.builds(['a1'] * 2)
        for build in self.batch:
            build.spec.instance_group = self.group
            build.spec.scheduler_hints = {
                'group': [self.group.uuid], 'other': ['x']}
        self.uuids = sorted(samples.uuids(2))
        self.add(self.uuids)

    def add(self, uuids):
        with self.database.writer() as connection:
            instance_groups.add_members(
                connection, self.group.id, uuids, samples.NOW)

    def schedule(self):
        """Schedule the batch; return the last request."""
        self.do(steps.Schedule(
            self.database, self.scheduler, self.claims), self.batch)
        return self.scheduler.sent[-1].arguments['spec_obj']

    def test_request_has_the_current_members(self):
        group = self.schedule().instance_group

        self.assertEqual(
            (self.group.uuid, 'anti-affinity', {'spread': 'az'}, self.uuids),
            (group.uuid, group.policy, group.rules, group.members))

    def test_members_are_read_again_for_each_request(self):
        # The first answer says that only one fits, the second places it.
        answer = self.answer
        [late] = samples.uuids(1)

        def refuse(**arguments):
            self.add([late])
            self.scheduler.answer = answer
            raise exception.NoValidHost(reason='Full.', placed=1)

        self.scheduler.answer = refuse

        self.assertEqual(
            [*self.uuids, late], self.schedule().instance_group.members)

    def test_deleted_group_is_omitted(self):
        with self.database.writer() as connection:
            instance_groups.delete(connection, self.group.uuid)

        spec = self.schedule()

        self.assertIsNone(spec.instance_group)
        self.assertEqual({'other': ['x']}, spec.scheduler_hints)

    def test_request_without_a_group_stays_without(self):
        for build in self.batch:
            build.spec.instance_group = None

        spec = self.schedule()

        self.assertIsNone(spec.instance_group)
        self.assertEqual([self.group.uuid], spec.hint('group'))
