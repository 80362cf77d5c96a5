# SPDX-License-Identifier: Apache-2.0
"""The steps of a build, done again and undone, alone and with other builds."""

from concurrent import futures
import threading
import time

from amqp import exceptions as amqp_exc
from oslo_config import cfg
import oslo_messaging
import sqlalchemy as sa

from cellsched.cells import cell0
from cellsched.claims import base as claims_base
from cellsched.conductor.tasks import build_and_schedule
from cellsched.conductor.tasks.saga import Batch
from cellsched.conductor.tasks.saga import Outcome
from cellsched.conductor.tasks import steps
from cellsched import context
from cellsched.db.api import build_requests
from cellsched.db.api import instance_groups
from cellsched.db.api import models as api_models
from cellsched.db.cell import build_casts
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched import exception
from cellsched.notify import notifiers
from cellsched import objects
from cellsched.quota import noop
from tests.unit.conductor import base
from tests.unit.db import samples
from tests.unit.notify import recorder


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

    def lose_capacity_between_calls(self):
        """Have another build claim on the host before the second call."""
        thief = self.builds(['a1'])[0]

        def answer(**arguments):
            if len(self.scheduler.sent) == 2:
                self.claims.claim(base.claims_base.of_selection(
                    thief.uuid, thief.selections[0]))
            return self.answer(**arguments)

        self.scheduler.answer = answer

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
        self.lose_capacity_between_calls()
        self.do(self.step(min_count=3), self.batch)

        self.assertEqual(['a1'] * 3 + [None] * 2, self.held())
        self.assertEqual([False] * 3 + [True] * 2,
                         [build.ended for build in self.batch])
        self.assertEqual(3, len(self.scheduler.sent))

    def test_no_build_is_placed_after_a_loss_below_the_minimum(self):
        self.batch += self.builds(['a1'] * 2)
        self.lose_capacity_between_calls()
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
                sa.update(api_models.build_requests).values(buried=True))

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


class DecideCase(base.StepTestCase):

    def step(self):
        return steps.Decide(
            self.database, self.targets, self.wrong_clock,
            base.LEASE_S)


class TestDecide(DecideCase):

    def decided(self, batch):
        return [self.mapped(build.uuid) for build in batch]

    def test_repeated_decision_sets_the_cell_of_the_host(self):
        batch = self.builds(['a1', 'b1'])

        for _ in range(2):
            self.do(self.step(), batch)
            self.assertEqual(['cell1', 'cell2'], self.decided(batch))
            self.assertFalse(any(build.ended for build in batch))

    def test_repeated_undo_removes_the_cell(self):
        batch = self.builds(['a1', 'b1'])
        self.undo(self.step(), batch)
        self.do(self.step(), batch)

        for _ in range(2):
            self.undo(self.step(), batch)
            self.assertEqual([None, None], self.decided(batch))

    def test_decision_of_another_is_not_overwritten(self):
        build, free = batch = self.builds(['a1', 'a1'])
        self.decide(build.uuid, 'cell2')

        self.do(self.step(), batch)

        self.assertEqual(['cell2', 'cell1'], self.decided(batch))
        self.assertEqual((True, False), (build.finished, build.deleted))
        self.assertFalse(free.ended)

    def test_decision_of_another_is_not_undone(self):
        [build] = self.builds(['a1'])
        self.decide(build.uuid, 'cell2')

        self.undo(self.step(), [build])

        self.assertEqual('cell2', self.mapped(build.uuid))

    def test_deleted_server_gets_no_cell(self):
        build, free = batch = self.builds(['a1', 'a1'])
        self.delete(build.uuid)

        self.do(self.step(), batch)

        self.assertEqual([None, 'cell1'], self.decided(batch))
        self.assertEqual((False, True), (build.finished, build.deleted))

    def test_conductor_without_the_lease_does_not_decide(self):
        batch = self.builds(['a1', 'a1'])
        self.clock.advance(base.LEASE_S)
        self.lease([batch[0].uuid], base.OTHER)

        self.do(self.step(), batch)

        self.assertEqual([None, 'cell1'], self.decided(batch))
        self.assertEqual((True, False),
                         (batch[0].finished, batch[0].deleted))

    def test_decision_renews_the_lease(self):
        [build] = self.builds(['a1'])
        self.clock.advance(base.LEASE_S - 1)
        self.do(self.step(), [build])

        self.clock.advance(base.LEASE_S - 1)
        self.assertEqual([], self.lease([build.uuid], base.OTHER))
        self.clock.advance(1)
        self.assertEqual(1, len(self.lease([build.uuid], base.OTHER)))


class TestDecideAgain(DecideCase):
    """A conductor decided on cell2 and died; the next one goes to cell1."""

    def setUp(self):
        super().setUp()
        [earlier] = self.builds(['b1'], base.OTHER)
        self.uuid = earlier.uuid
        self.decide(self.uuid, 'cell2')
        self.write_rows([earlier])
        self.build = self.take_over(self.uuid, 'a1', 'cell2')

    def test_decision_for_another_cell_removes_the_earlier_row(self):
        for _ in range(2):
            self.do(self.step(), [self.build])

            self.assertEqual('cell1', self.mapped(self.uuid))
            self.assertEqual({}, self.rows(self.uuid))
            self.assertFalse(self.build.ended)

    def test_same_cell_is_kept_with_its_rows(self):
        self.build.cell = self.cells['cell2']

        self.do(self.step(), [self.build])

        self.assertEqual('cell2', self.mapped(self.uuid))
        self.assertEqual(['cell2'], [*self.rows(self.uuid)])
        self.assertFalse(self.build.ended)

    def test_build_fails_while_the_earlier_cell_is_unwritable(self):
        self.break_cell('cell2')
        self.build.earlier = self.mapping('cell2')

        self.do(self.step(), [self.build])

        self.assertEqual('cell2', self.mapped(self.uuid))
        self.assertEqual(['cell2'], [*self.rows(self.uuid)])
        self.assertTrue(self.build.reason)

    def test_rollback_reverts_the_earlier_decision(self):
        for _ in range(2):
            self.undo(self.step(), [self.build])

            self.assertIsNone(self.mapped(self.uuid))

    def test_undo_removes_the_rows_of_the_earlier_attempt(self):
        step = steps.WriteRows(
            self.database, self.targets, self.wrong_clock,
            base.LEASE_S)

        for _ in range(2):
            self.undo(step, [self.build])

            self.assertEqual({}, self.rows(self.uuid))

    def test_conductor_without_the_lease_does_not_revert(self):
        self.build.owner = base.OTHER
        self.do(self.step(), [self.build])

        self.assertEqual('cell2', self.mapped(self.uuid))
        self.assertEqual(['cell2'], [*self.rows(self.uuid)])
        self.assertTrue(self.build.finished)


class TestFindCell(base.StepTestCase):

    def test_cell_comes_from_the_host_and_not_from_the_selection(self):
        batch = self.builds(['a1', 'b1'])
        for build in batch:
            build.cell = None
        step = steps.FindCell(self.database, self.claims)

        for _ in range(2):
            self.do(step, batch)
            self.assertEqual(['cell1', 'cell2'],
                             [build.cell.name for build in batch])

    def find(self, *hosts):
        """Have one build's hosts looked up, beside another one's."""
        for host in {*hosts} - self.providers.keys():
            self.add_provider(host)
        build, other = self.builds(['a1', 'a1'])
        build.selections = [self.selection(host) for host in hosts]
        build.cell = None
        self.claims.release([build.uuid])
        self.claims.claim(claims_base.of_selection(
            build.uuid, build.selections[0]))

        self.do(steps.FindCell(self.database, self.claims), [build, other])

        self.assertIsNone(other.reason)
        self.assertEqual('cell1', other.cell.name)
        return build

    def fill(self, host):
        self.claims.claim([claims_base.Claim(
            samples.uuids(1)[0], self.providers[host], {'VCPU': 4})])

    def test_alternate_is_claimed_in_place_of_an_unmapped_host(self):
        build = self.find('x9', 'a2', 'a3')

        self.assertIsNone(build.reason)
        self.assertEqual(
            ('cell1', ['a2', 'a3'], 'a2'),
            (build.cell.name,
             [each.service_host for each in build.selections],
             self.holds(build.uuid)))
        [held] = self.claims.claims_of([build.uuid])[build.uuid]
        self.assertEqual(
            ('project', 'user'), (held.project_id, held.user_id))

    def test_unmapped_and_full_alternates_are_skipped(self):
        self.fill('a2')

        build = self.find('x9', 'x8', 'a2', 'x7', 'a3')

        self.assertEqual(
            (['a3'], 'a3'),
            ([each.service_host for each in build.selections],
             self.holds(build.uuid)))

    def test_build_without_remaining_hosts_is_deferred(self):
        self.fill('a2')
        for hosts in (['x9'], ['x9', 'x8'], ['x9', 'a2']):
            build = self.find(*hosts)

            self.assertIsInstance(
                build.reason, exception.HostMappingNotFound)
            self.assertEqual(('x9', True, None), (
                build.reason.host, build.to_retry, self.holds(build.uuid)))


class TestWriteRows(base.StepTestCase):

    def step(self):
        return steps.WriteRows(
            self.database, self.targets, self.wrong_clock,
            base.LEASE_S)

    def actions(self, cell):
        with self.targets.database(self.cells[cell]).reader() as connection:
            return connection.execute(sa.select(
                models.instance_actions.c.instance_uuid,
                models.instance_actions.c.action,
                models.instance_actions.c.request_id)).all()

    def test_times_are_by_the_clocks_of_databases(self):
        [build] = batch = self.builds(['a1'])
        build.tries = 2
        self.clock.advance(base.LEASE_S / 2)

        self.do(self.step(), batch)

        self.assertEqual(self.clock.timestamp() + base.LEASE_S,
                         self.leased_until(build))
        with self.targets.database(build.cell).reader() as connection:
            self.assertEqual(
                self.clock.timestamp(),
                build_casts.get(connection, build.uuid).cast_at)

    def test_repeated_step_writes_a_single_row(self):
        one, other = batch = self.builds(['a1', 'b1'])

        for _ in range(2):
            self.do(self.step(), batch)

        self.assertEqual(['cell1'], [*self.rows(one.uuid)])
        self.assertEqual(['cell2'], [*self.rows(other.uuid)])
        row = self.row(one.uuid)
        self.assertEqual(
            ('building', 'scheduling', None, 'zone-a1', 1),
            (row.vm_state, row.task_state, row.host, row.availability_zone,
             row.build_attempts))
        self.assertEqual(
            [(one.uuid, 'create', base.USER.request_id)],
            self.actions('cell1'))

    def test_properties_of_the_image_are_kept_once(self):
        [build] = self.builds(['a1'])
        build.spec.image = objects.ImageMeta(
            properties=objects.ImageMetaProps(os_distro='x'))

        for _ in range(2):
            self.do(self.step(), [build])

        table = models.instance_system_metadata
        with self.targets.database(self.cells['cell1']).reader() as connection:
            self.assertEqual(
                [(build.uuid, 'image_os_distro', 'x')],
                connection.execute(sa.select(
                    table.c.instance_uuid, table.c.key, table.c.value)).all())

    def test_repeated_undo_removes_all_rows(self):
        batch = self.builds(['a1', 'b1'])
        self.undo(self.step(), batch)
        self.do(self.step(), batch)

        for _ in range(2):
            self.undo(self.step(), batch)
            self.assertEqual(
                [{}, {}], [self.rows(build.uuid) for build in batch])
            self.assertEqual([], self.actions('cell1'))

    def test_existing_row_is_unchanged(self):
        [build] = batch = self.builds(['a1'])
        self.do(self.step(), batch)
        cell = self.targets.database(self.cells['cell1'])
        with cell.writer() as connection:
            connection.execute(sa.update(models.instances).values(
                vm_state='active', host='a1'))

        self.do(self.step(), batch)

        self.assertEqual('active', self.row(build.uuid).vm_state)

    def test_unreachable_cell_fails_its_own_builds_only(self):
        self.point('cell2', 'sqlite:////nowhere/at/all.sqlite')
        self.check_failing_cell(exception.DatabaseUnreachable)

    def test_cell_without_tables_fails_its_own_builds_only(self):
        self.point('cell2', f'sqlite:///{self.temporary_directory()}/new')
        self.check_failing_cell(exception.SchemaOutOfDate)

    def test_read_only_cell_fails_its_own_builds_only(self):
        self.break_cell('cell2')
        self.check_failing_cell(Exception)

    def check_failing_cell(self, kind):
        one, other, third = batch = self.builds(['a1', 'b1', 'a2'])
        for build in batch:
            build.cell = None
        self.do(steps.FindCell(self.database, self.claims), batch)

        self.do(self.step(), batch)

        self.assertIsInstance(other.reason, kind)
        self.assertEqual({}, self.rows(other.uuid))
        for build in (one, third):
            self.assertIsNone(build.reason)
            self.assertEqual(['cell1'], [*self.rows(build.uuid)])


class TestWriteRowsAgain(base.StepTestCase):
    """A conductor wrote a build and died; the next one has leased it."""

    def setUp(self):
        super().setUp()
        [earlier] = self.builds(['a1'], base.OTHER)
        self.uuid = earlier.uuid
        self.step().do([earlier])
        self.build = self.take_over(self.uuid, 'a2', 'cell1')

    def step(self):
        return steps.WriteRows(
            self.database, self.targets, self.clock, base.LEASE_S)

    def test_repeated_write_renews_the_lease(self):
        self.clock.advance(base.LEASE_S - 1)
        self.do(self.step(), [self.build])

        self.clock.advance(base.LEASE_S - 1)
        self.assertEqual([], self.lease([self.uuid], base.OTHER))
        self.clock.advance(1)
        self.assertEqual(1, len(self.lease([self.uuid], base.OTHER)))

    def test_row_has_the_zone_of_the_new_host(self):
        self.do(self.step(), [self.build])

        self.assertEqual('zone-a2', self.row(self.uuid).availability_zone)

    def test_conductor_without_the_lease_does_not_write(self):
        self.clock.advance(base.LEASE_S)
        self.lease([self.uuid], base.OTHER)

        self.do(self.step(), [self.build])

        self.assertEqual((True, False, None), (
            self.build.finished, self.build.deleted, self.build.reason))
        self.assertEqual('zone-a1', self.row(self.uuid).availability_zone)

    def test_deleted_server_is_not_written(self):
        self.delete(self.uuid)

        self.do(self.step(), [self.build])

        self.assertTrue(self.build.deleted)
        self.assertEqual('zone-a1', self.row(self.uuid).availability_zone)

    def test_deleted_row_stays(self):
        """A deletion of an interrupted build can come before its request."""
        with self.targets.database(self.cells['cell1']).writer() as cell:
            instances.delete(cell, self.uuid, self.clock.now())

        self.do(self.step(), [self.build])

        row = self.row(self.uuid)
        self.assertEqual(
            ('deleted', 'zone-a1'), (row.vm_state, row.availability_zone))
        with self.targets.database(self.cells['cell1']).reader() as cell:
            self.assertIsNone(build_casts.get(cell, self.uuid))

    def test_server_on_a_host_is_unchanged(self):
        """A restored API database has the request again."""
        cell = self.targets.database(self.cells['cell1'])
        with cell.writer() as connection:
            connection.execute(sa.update(models.instances).values(
                vm_state='active', host='a1'))
        before = self.row(self.uuid)

        self.do(self.step(), [self.build])
        self.undo(self.step(), [self.build])

        self.assertEqual(before, self.row(self.uuid))

    def test_request_is_leased_during_the_write(self):
        """Else it could be of another one, and handed over already."""
        waiting, written = [], []
        database = self.targets.database

        def lease():
            self.lease([self.uuid], base.OTHER)
            written.append(self.row(self.uuid).availability_zone)

        def slow(cell):
            if not waiting:
                self.clock.advance(base.LEASE_S * 2)
                waiting.append(threads.submit(lease))
                # It waits for the transaction that this is done in.
                futures.wait(waiting, 0.2)
            return database(cell)

        self.targets.database = slow
        with futures.ThreadPoolExecutor(1) as threads:
            self.do(self.step(), [self.build])
            waiting[0].result(60)

        self.assertEqual(['zone-a2'], written)


class TestWriteRowsTogether(base.StepTestCase):

    def write_together(self, batches, write):
        """Write batches, of which all but the first wait for the first.

        :param write: takes the cell, and returns its database
        :returns: the number of writes
        """
        step = steps.WriteRows(
            self.database, self.targets, self.clock, base.LEASE_S)
        begun, go_on, times = threading.Event(), threading.Event(), []

        def slow(cell):
            times.append(cell.name)
            begun.set()
            go_on.wait(DEADLINE_S)
            return write(cell)

        self.targets.database = slow
        with futures.ThreadPoolExecutor(4) as threads:
            self.addCleanup(go_on.set)
            first = threads.submit(step.do, batches[0])
            begun.wait(DEADLINE_S)
            others = [threads.submit(step.do, batch) for batch in batches[1:]]
            [waiting] = step._waiting.values()
            while len(waiting._waiting) + len(times) < 4:
                futures.wait(others, 0.001)
            go_on.set()
            futures.wait([first, *others], DEADLINE_S)
        return len(times)

    def test_builds_for_a_cell_are_written_together(self):
        batches = [self.builds(['a1']) for _ in range(4)]

        self.assertEqual(
            2, self.write_together(batches, self.targets.database))

        for [build] in batches:
            self.assertIsNone(build.reason)
            self.assertEqual(['cell1'], [*self.rows(build.uuid)])

    def test_builds_failed_together_have_separate_errors(self):
        batches = [self.builds(['a1']) for _ in range(4)]
        gone = exception.DatabaseUnreachable(
            schema='cell1', url='there', reason='gone')

        def fail(cell):
            raise gone

        self.assertEqual(2, self.write_together(batches, fail))

        reasons = [build.reason for [build] in batches]
        self.assertEqual({exception.DatabaseUnreachable},
                         set(map(type, reasons)))
        self.assertEqual(4, len(set(map(id, reasons))))


class TestWriteRowsNotifications(base.StepTestCase):

    def setUp(self):
        super().setUp()
        self.told = self.useFixture(recorder.NotificationRecorder('vm_state'))
        self.rows_step = steps.WriteRows(
            self.database, self.targets, self.wrong_clock,
            base.LEASE_S,
            self.told.notifier)

    def test_new_server_is_notified(self):
        batch = self.builds(['a1', 'b1'])

        self.do(self.rows_step, batch)

        self.assertEqual(['instance.update'] * 2, self.told.events())
        self.assertEqual({build.uuid for build in batch},
                         {data['uuid'] for _, data in self.told.all()})
        for _, data in self.told.all():
            self.assertEqual(
                (None, 'building'),
                tuple(data['state_update']['nova_object.data'][name]
                      for name in ('old_state', 'state')))
            self.assertIn('zone-', data['availability_zone'])

    def test_server_of_an_unwritable_cell_is_not_notified(self):
        broken, other = batch = self.builds(['a1', 'b1'])
        self.break_cell('cell1')
        broken.cell = self.mapping('cell1')

        self.do(self.rows_step, batch)

        self.assertEqual([other.uuid],
                         [data['uuid'] for _, data in self.told.all()])

    def test_deleted_server_has_a_start_and_an_end_notification(self):
        deleted, failed = batch = self.builds(['a1', 'a2'])
        self.do(self.rows_step, batch)
        deleted.end(Outcome.DELETED)
        seen = []
        self.told.hear = lambda event: seen.append(
            (event, self.row(deleted.uuid).vm_state))

        self.undo(self.rows_step, batch)

        self.assertEqual([('instance.delete.start', 'building'),
                          ('instance.delete.end', 'deleted')], seen)
        self.assertEqual([deleted.uuid] * 2, [
            data['uuid'] for event, data in self.told.all()
            if event.startswith('instance.delete')])
        self.assertEqual({}, self.rows(failed.uuid))


class TestRelease(base.StepTestCase):

    def step(self):
        return steps.Release(
            self.database, self.targets, noop.NoopQuotaDriver(None, None),
            self.clock)

    def rename(self, uuid, name='renamed'):
        with self.database.writer() as connection:
            build_requests.revise(
                connection, uuid, lambda request: setattr(
                    request.instance, 'display_name', name))

    def test_request_is_deleted_and_the_build_continues(self):
        batch = self.builds(['a1', 'b1'])

        self.do(self.step(), batch)

        self.assertEqual(
            [False] * 2, [self.requested(build.uuid) for build in batch])
        self.assertFalse(any(build.ended for build in batch))

    def test_finished_build_is_completed_and_not_deleted(self):
        batch = self.builds(['a1', 'b1'])
        self.do(self.step(), batch)

        self.do(self.step(), batch)

        self.assertEqual(
            [(True, False)] * 2,
            [(build.finished, build.deleted) for build in batch])

    def test_server_deleted_by_its_user_is_deleted(self):
        gone, there = batch = self.builds(['a1', 'b1'])
        self.decide(gone.uuid, 'cell1')
        self.delete(gone.uuid)

        self.do(self.step(), batch)

        self.assertEqual((False, True), (gone.finished, gone.deleted))
        self.assertFalse(there.ended)

    def test_request_leased_by_another_conductor_stays(self):
        batch = self.builds(['a1', 'b1'])
        self.clock.advance(base.LEASE_S)
        self.lease([batch[0].uuid], base.OTHER)

        self.do(self.step(), batch)

        self.assertEqual([True, False],
                         [self.requested(build.uuid) for build in batch])
        self.assertEqual((True, False),
                         (batch[0].finished, batch[0].deleted))

    def test_expired_lease_without_a_new_owner_is_valid(self):
        [build] = batch = self.builds(['a1'])
        self.clock.advance(base.LEASE_S * 2)

        self.do(self.step(), batch)

        self.assertFalse(self.requested(build.uuid))
        self.assertFalse(build.ended)

    def test_concurrent_change_is_applied_in_the_cell(self):
        changed, other = batch = self.builds(['a1', 'b1'])
        self.write_rows(batch)
        self.rename(changed.uuid)

        self.do(self.step(), batch)

        self.assertEqual('renamed', self.row(changed.uuid).display_name)
        self.assertNotEqual('renamed', self.row(other.uuid).display_name)
        for build in batch:
            self.assertFalse(self.requested(build.uuid))
            self.assertFalse(build.ended)

    def release_with_failed_change(self, least):
        """Release two builds, the first of which was changed meanwhile."""
        changed, _ = batch = self.builds(['a1', 'b1'])
        together = Batch(batch, least)
        for build in batch:
            build.batch = together
        self.write_rows(batch)
        self.rename(changed.uuid)
        database = self.targets.database

        def away(cell):
            if cell.id == changed.cell.id:
                raise exception.DatabaseUnreachable(
                    schema='cell', url='x', reason='away')
            return database(cell)

        self.targets.database = away
        self.do(self.step(), batch)
        return batch

    def test_failed_change_in_the_cell_is_retried(self):
        changed, other = self.release_with_failed_change(least=1)

        self.assertTrue(changed.to_retry)
        self.assertTrue(self.requested(changed.uuid))
        self.assertFalse(other.ended)
        self.assertFalse(self.requested(other.uuid))

    def test_failed_change_keeps_the_requests_of_a_whole_batch(self):
        """One that was built alone would be fewer than were asked for."""
        batch = self.release_with_failed_change(least=2)

        self.assertEqual(
            [(True, True)] * 2,
            [(build.to_retry, self.requested(build.uuid))
             for build in batch])

    def test_request_is_leased_during_the_change_in_its_cell(self):
        """Its user may change the row once another one has released it."""
        [build] = batch = self.builds(['a1'])
        self.write_rows(batch)
        self.rename(build.uuid)
        database, waiting = self.targets.database, []

        def take_up():
            self.lease([build.uuid], base.OTHER)
            with self.database.writer() as connection:
                build_requests.delete(connection, [build.uuid], base.OTHER)
            with database(build.cell).writer() as connection:
                instances.update(connection, build.uuid, {
                    'display_name': 'newest'}, self.clock.now())

        def slow(cell):
            if not waiting:
                self.clock.advance(base.LEASE_S * 2)
                waiting.append(threads.submit(take_up))
                # It waits for the transaction that this is done in.
                futures.wait(waiting, 0.2)
            return database(cell)

        self.targets.database = slow
        with futures.ThreadPoolExecutor(1) as threads:
            self.do(self.step(), batch)
            waiting[0].result(60)

        self.assertEqual('newest', self.row(build.uuid).display_name)

    def test_undo_does_not_restore_the_request(self):
        batch = self.builds(['a1'])
        self.do(self.step(), batch)

        self.undo(self.step(), batch)

        self.assertFalse(self.requested(batch[0].uuid))


class TestCast(base.StepTestCase):

    def setUp(self):
        super().setUp()
        self.batch = self.builds(['a1', 'b1', 'a2'])
        self.a1, self.b1, self.a2 = self.batch
        for build in self.batch:
            self.claims.claim(base.claims_base.of_selection(
                build.uuid, build.selections[0]))
        self.write_rows(self.batch)

    def step(self):
        return steps.Cast(
            self.targets, self.compute, self.claims, self.clock, 'conductor',
            notifiers.TaskNotifier())

    def client(self, cell):
        return self.compute.get(
            self.transports.get(self.cells[cell].transport_url))

    def test_cast_uses_the_transport_of_the_cell(self):
        self.a1.selections.append(self.selection('a3'))

        self.do(self.step(), self.batch)

        first, second = self.client('cell1').sent
        [third] = self.client('cell2').sent
        self.assertEqual(['a1', 'a2', 'b1'],
                         [first.host, second.host, third.host])
        arguments = first.arguments
        self.assertEqual(self.a1.uuid, arguments['instance'].uuid)
        self.assertEqual('node-a1', arguments['node'])
        self.assertEqual(
            {'retry': {'num_attempts': 1, 'hosts': [['a1', 'node-a1']]},
             'limits': {}}, arguments['filter_properties'])
        self.assertEqual(
            ['a3'], [each.service_host for each in arguments['host_list']])
        self.assertEqual(self.cells['cell1'].uuid, first.context.cell.uuid)
        self.assertEqual(base.USER.request_id, first.context.request_id)

    def assertInError(self, build, cell):
        self.assertEqual('error', self.rows(build.uuid)[cell].vm_state)
        self.assertIsNone(self.holds(build.uuid))
        self.assertTrue(build.finished)

    def assertSent(self, *builds):
        self.assertEqual(
            {build.uuid for build in builds},
            {each for _, each in self.sent()})
        for build in builds:
            self.assertFalse(build.ended)
            self.assertEqual('building', self.row(build.uuid).vm_state)
            self.assertIsNotNone(self.holds(build.uuid))

    def test_timed_out_cast_waits_in_its_cell(self):
        self.assert_waits_after(oslo_messaging.MessageDeliveryFailure(
            'to amqp://user:secret@broker'))

    def test_cast_refused_by_the_broker_waits_in_its_cell(self):
        self.assert_waits_after(amqp_exc.AccessRefused(
            'to amqp://user:secret@broker'))

    def test_cast_with_an_invalid_option_waits_in_its_cell(self):
        self.assert_waits_after(cfg.RequiredOptError('lock_path'))

    def assert_waits_after(self, failure):
        self.client('cell1').failure = failure

        self.do(self.step(), self.batch)

        [line] = [line for line in self.logs.output.splitlines()
                  if 'Could not cast to the hosts' in line]
        self.assertIn(type(failure).__name__, line)
        self.assertNotIn('secret', self.logs.output)
        self.assertNotIn('Traceback', self.logs.output)
        for build in self.a1, self.a2:
            self.assertEqual(
                ('building', 'scheduling'),
                (self.row(build.uuid).vm_state,
                 self.row(build.uuid).task_state))
            self.assertIsNotNone(self.holds(build.uuid))
        self.assertEqual([self.b1.uuid], [uuid for _, uuid in self.sent()])

    def test_unsendable_cast_ends_in_error(self):
        self.client('cell1').failure = exception.VersionNotSendable(
            topic='compute', version='6.0', cap='5.0')

        self.do(self.step(), self.batch)

        self.assertInError(self.a1, 'cell1')
        self.assertInError(self.a2, 'cell1')
        self.assertSent(self.b1)

    def test_cell_without_a_transport_does_not_block_other_cells(self):
        self.a1.cell = self.a2.cell = self.cells['cell1'].obj_clone()
        self.a1.cell.transport_url = 'bogus://'
        self.a2.cell.transport_url = 'bogus://'

        self.do(self.step(), self.batch)

        self.assertInError(self.a1, 'cell1')
        self.assertInError(self.a2, 'cell1')
        self.assertSent(self.b1)

    def test_unreachable_cell_does_not_block_other_cells(self):
        self.client('cell1').failure = ValueError()
        self.break_cell('cell1')
        for build in self.batch:
            build.cell = None
        self.do(steps.FindCell(self.database, self.claims), self.batch)

        self.do(self.step(), self.batch)

        self.assertSent(self.b1)
        # It is as it was: nobody knows better.
        self.assertEqual('building', self.row(self.a1.uuid).vm_state)
        self.assertEqual('a1', self.holds(self.a1.uuid))

    def test_build_begun_in_spite_of_a_failed_cast_continues(self):
        self.check_continues(host='a1', task_state='spawning')

    def test_build_rescheduled_in_spite_of_a_failed_cast_continues(self):
        self.check_continues(host=None, task_state=None)

    def check_continues(self, **values):
        """Check a build with a failed cast whose row has these values."""
        self.client('cell1').failure = ValueError()
        with self.targets.database(self.cells['cell1']).writer() as connection:
            connection.execute(
                sa.update(models.instances)
                .where(models.instances.c.uuid == self.a1.uuid)
                .values(**values))

        self.do(self.step(), self.batch)

        self.assertEqual('building', self.row(self.a1.uuid).vm_state)
        self.assertEqual('a1', self.holds(self.a1.uuid))
        self.assertInError(self.a2, 'cell1')

    def test_undo_does_not_revert_the_cast(self):
        self.do(self.step(), self.batch)

        self.undo(self.step(), self.batch)

        self.assertSent(*self.batch)


class Quotas(noop.NoopQuotaDriver):
    """Refuses a build; what is asked is in ``asked``."""

    def __init__(self, refused):
        self.refused = refused
        self.asked = []

    def admit_all(self, connection, batches):
        self.asked = list(batches)
        return {build.uuid: exception.OverQuota(
            overs='instances', req='1', used='9', allowed='9')
            for batch in self.asked for build in batch.builds
            if build.uuid == self.refused}


class TestReleaseQuota(base.StepTestCase):

    def test_each_batch_is_checked_with_its_own_demand(self):
        first, second = self.builds(['a1', 'a2']), self.builds(['b1'])
        for batch, least in ((first, 2), (second, 1)):
            batch_ = Batch(batch, least)
            for build in batch:
                build.batch = batch_
        quotas = Quotas(first[1].uuid)

        steps.Release(
            self.database, self.targets, quotas, self.clock,
        ).do([*first, *second])

        self.assertEqual(
            [('project', 'user', [build.uuid for build in first], 2),
             ('project', 'user', [build.uuid for build in second], 1)],
            [(batch.project_id, batch.user_id,
              [build.uuid for build in batch.builds], batch.min_count)
             for batch in quotas.asked])
        size = first[0].instance
        self.assertEqual({(size.vcpus, size.memory_mb)}, {
            (build.vcpus, build.memory_mb)
            for batch in quotas.asked for build in batch.builds})
        self.assertIsInstance(first[1].reason, exception.OverQuota)
        self.assertEqual(
            [False, True, False],
            [self.requested(build.uuid) for build in [*first, *second]])


FAILED = 'compute_task.build_instances.error'


class TestCastNotifications(base.StepTestCase):

    def setUp(self):
        super().setUp()
        self.told = self.useFixture(recorder.NotificationRecorder('vm_state'))

    def test_failed_handover_is_reported(self):
        lost, other = batch = self.builds(['a1', 'b1'])
        self.write_rows(batch)
        self.compute.get(self.transports.get(
            self.cells['cell1'].transport_url)).failure = (
                ValueError('no way to amqp://user:s3cret@broker'))

        self.do(steps.Cast(
            self.targets, self.compute, self.claims, self.clock, 'conductor',
            self.told.notifier), batch)

        [(event, data)] = self.told.all()
        self.assertEqual((FAILED, lost.uuid), (event, data['instance_uuid']))
        reason = data['reason']['nova_object.data']
        self.assertEqual('no way to amqp://user:****@broker',
                         reason['exception_message'])
        self.assertNotIn('s3cret', str(data))
        self.assertIsNotNone(data['request_spec'])

    def test_task_reports_a_failed_handover(self):
        [uuid] = self.accept()
        self.compute.get(self.transports.get(
            self.cells['cell1'].transport_url)).failure = ValueError('no way')

        self.task(notifier=self.told.notifier).run(base.USER, [uuid])

        self.assertEqual(
            [uuid], [data['instance_uuid'] for event, data
                     in self.told.all() if event == FAILED])
