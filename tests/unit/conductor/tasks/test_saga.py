# SPDX-License-Identifier: Apache-2.0
"""Running steps over a batch of builds, and undoing them."""

from concurrent import futures
import contextlib
import itertools
import threading

from oslo_config import cfg
import oslo_messaging

from cellsched.conductor.tasks import saga
from cellsched import context
from cellsched import exception
from cellsched import objects
from tests.unit import base

CONTEXT = context.admin()

Outcome = saga.Outcome


class Failure(Exception):
    pass


def lost():
    return exception.TransactionLost(schema='API', reason='a deadlock')


class Step(saga.Step):
    """Notes what is done and undone; ``doing`` and ``undoing`` do it."""

    name = ''

    def __init__(
        self, name, notes, doing=None, undoing=None, batched=False
    ):
        self.name = name
        self.batched = batched
        self.notes = notes
        self.doing = doing
        self.undoing = undoing

    def do(self, builds):
        self.note('do', builds)
        if self.doing:
            self.doing(builds)

    def undo(self, connection, builds):
        self.note('undo', builds)
        if self.undoing:
            self.undoing(builds)

    def note(self, what, builds):
        self.notes.append(
            f'{what} {self.name} {"".join(build.uuid for build in builds)}')


def end(uuid, outcome=Outcome.FAILED, reason=None):
    """Return a function that ends one build of a batch."""
    def doing(builds):
        for build in builds:
            if build.uuid == uuid:
                build.end(outcome, reason)
    return doing


def fail(builds):
    raise Failure('as told')


class TestRun(base.TestCase):

    def setUp(self):
        super().setUp()
        self.notes = []
        self.builds = [
            saga.Build(
                objects.BuildRequest(instance_uuid=uuid), None, CONTEXT)
            for uuid in 'abc']
        self.a, self.b, self.c = self.builds

    def step(self, name, doing=None, undoing=None):
        return Step(name, self.notes, doing, undoing)

    def run_steps(self, *steps, least=1, **options):
        return saga.Runner(steps).run(
            saga.Batch(self.builds, least), **options)

    def test_steps_are_done_in_order_for_all(self):
        gone_on = self.run_steps(self.step('1'), self.step('2'))

        self.assertEqual(['do 1 abc', 'do 2 abc'], self.notes)
        self.assertEqual(self.builds, gone_on)

    def test_ended_build_is_rolled_back_in_reverse(self):
        gone_on = self.run_steps(
            self.step('1'), self.step('2', end('b', reason=Failure())),
            self.step('3'))

        self.assertEqual(
            ['do 1 abc', 'do 2 abc', 'undo 2 b', 'undo 1 b', 'do 3 ac'],
            self.notes)
        self.assertEqual([self.a, self.c], gone_on)
        self.assertTrue(self.b.to_bury)

    def test_deleted_build_is_rolled_back_and_not_buried(self):
        self.run_steps(
            self.step('1'), self.step('2', end('a', Outcome.DELETED)))

        self.assertEqual(
            ['do 1 abc', 'do 2 abc', 'undo 2 a', 'undo 1 a'], self.notes)
        self.assertFalse(self.a.to_bury)

    def test_build_finished_elsewhere_is_not_rolled_back(self):
        gone_on = self.run_steps(
            self.step('1'),
            self.step('2', end('a', Outcome.FINISHED, Failure())))

        self.assertEqual(['do 1 abc', 'do 2 abc'], self.notes)
        self.assertEqual([self.b, self.c], gone_on)
        self.assertFalse(self.a.to_bury)

    def test_exception_fails_all_live_builds(self):
        gone_on = self.run_steps(
            self.step('1', end('a', Outcome.DELETED)), self.step('2', fail),
            self.step('3'))

        self.assertEqual(
            ['do 1 abc', 'undo 1 a', 'do 2 bc', 'undo 2 bc', 'undo 1 bc'],
            self.notes)
        self.assertEqual([], gone_on)
        self.assertIsNone(self.a.reason)
        self.assertEqual('as told', str(self.b.reason))
        self.assertIs(self.b.reason, self.c.reason)

    def test_wrong_request_fails_without_a_traceback(self):
        def refuse(builds):
            raise exception.InvalidField(
                where='request', field='hint', expected='a number')

        self.run_steps(self.step('1', refuse))

        self.assertEqual('request: hint: expected a number',
                         str(self.a.reason))
        self.assertNotIn('Traceback', self.logs.output)

    def test_impossible_request_fails_without_a_traceback(self):
        def refuse(builds):
            raise exception.HardwareRequestInvalid(
                error='InvalidRequest', problem='2 CPUs are missing')

        self.run_steps(self.step('1', refuse))

        self.assertEqual('2 CPUs are missing', str(self.a.reason))
        self.assertNotIn('Traceback', self.logs.output)

    def test_exception_does_not_hide_an_earlier_failure(self):
        first = Failure('first')

        def doing(builds):
            end('a', reason=first)(builds)
            fail(builds)

        self.run_steps(self.step('1', doing))

        self.assertIs(first, self.a.reason)
        self.assertEqual('as told', str(self.b.reason))

    def test_fence_prevents_the_rollback_of_another_owner(self):
        asked = []

        @contextlib.contextmanager
        def fence(builds):
            asked.extend(build.uuid for build in builds)
            self.b.end(Outcome.FINISHED)
            yield

        self.run_steps(self.step('1'), self.step('2', fail), fence=fence)

        self.assertEqual(['a', 'b', 'c'], asked)
        self.assertEqual(
            ['do 1 abc', 'do 2 abc', 'undo 2 ac', 'undo 1 ac'], self.notes)
        self.assertEqual(
            [True, False, True], [build.to_bury for build in self.builds])

    def test_failed_fence_prevents_the_rollback(self):
        self.run_steps(self.step('1'), self.step('2', fail), fence=fail)

        self.assertEqual(['do 1 abc', 'do 2 abc'], self.notes)
        self.assertEqual(
            [Outcome.UNKNOWN] * 3, [build.outcome for build in self.builds])
        self.assertFalse(self.a.to_bury)

    def test_failed_undo_ends_the_rollback(self):
        self.run_steps(
            self.step('1'), self.step('2', undoing=fail),
            self.step('3', end('b', reason=Failure())), self.step('4'))

        self.assertEqual(
            ['do 1 abc', 'do 2 abc', 'do 3 abc', 'undo 3 b', 'undo 2 b',
             'do 4 ac'], self.notes)
        self.assertIs(Outcome.UNKNOWN, self.b.outcome)
        self.assertFalse(self.b.to_bury)
        self.assertFalse(self.a.ended)

    def test_batch_below_the_minimum_is_rolled_back(self):
        first = Failure('first')
        gone_on = self.run_steps(
            self.step('1'), self.step('2', end('b', reason=first)),
            self.step('3'), least=3)

        self.assertEqual(
            ['do 1 abc', 'do 2 abc', 'undo 2 abc', 'undo 1 abc'], self.notes)
        self.assertEqual([], gone_on)
        self.assertEqual(
            [first] * 3, [build.reason for build in self.builds])

    def test_deletion_by_a_user_is_noticed(self):
        gone_on = self.run_steps(
            self.step('1', end('b', Outcome.DELETED)), self.step('2'), least=3)

        self.assertEqual([self.a, self.c], gone_on)

    def test_committed_build_does_not_fail_with_its_batch(self):
        last = self.step('1', end('b', reason=Failure()))
        last.final = True

        self.assertEqual([self.a, self.c], self.run_steps(last, least=3))

    def test_unanswered_build_is_deferred(self):
        def doing(builds):
            raise oslo_messaging.MessagingTimeout()

        self.run_steps(self.step('1'), self.step('2', doing))

        self.assertEqual(
            ['do 1 abc', 'do 2 abc', 'undo 2 abc', 'undo 1 abc'], self.notes)
        for build in self.builds:
            self.assertIs(Outcome.RETRY, build.outcome)

    def test_batch_below_the_minimum_is_deferred(self):
        self.run_steps(
            self.step('1', end('b', Outcome.RETRY, Failure())), least=3)

        self.assertEqual([False] * 3, [each.to_bury for each in self.builds])

    def test_permanent_failure_below_the_minimum_defers_no_build(self):
        def doing(builds):
            end('a', Outcome.RETRY, Failure())(builds)
            end('b', reason=Failure())(builds)

        self.run_steps(self.step('1', doing), least=3)

        self.assertEqual([True] * 3, [each.to_bury for each in self.builds])

    def test_no_step_runs_without_builds(self):
        self.assertEqual([], self.run_steps(
            self.step('1', fail), self.step('2')))

        self.assertNotIn('do 2 ', self.notes)

    def test_step_is_repeated_after_a_conflict(self):
        losses = [lost(), lost()]

        def doing(builds):
            end('a', reason=Failure())(builds)
            if losses:
                raise losses.pop()

        gone_on = self.run_steps(self.step('1', doing))

        self.assertEqual(
            ['do 1 abc', 'do 1 bc', 'do 1 bc', 'undo 1 a'], self.notes)
        self.assertEqual([self.b, self.c], gone_on)

    def test_step_with_endless_conflicts_fails(self):
        def doing(builds):
            raise lost()

        self.assertEqual([], self.run_steps(self.step('1', doing)))

        self.assertIsInstance(self.a.reason, exception.TransactionLost)
        self.assertEqual(5, self.notes.count('do 1 abc'))


class TestJointSteps(base.TestCase):

    def setUp(self):
        super().setUp()
        self.notes = []
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.pool = futures.ThreadPoolExecutor(8)
        self.addCleanup(self.pool.shutdown)

    def batched(self, name, doing=None, undoing=None):
        return Step(name, self.notes, doing, undoing, batched=True)

    def wait(self, builds):
        """Have the first batch wait until all others have come."""
        if not self.begun.is_set():
            self.begun.set()
            self.assertTrue(self.go_on.wait(600))

    def race(self, *steps, names=('a', 'bc', 'd'), least=1, **options):
        """Run a batch of builds for each name, all at the same time.

        :returns: those that went through every step
        """
        runner = saga.Runner([self.batched('0', self.wait), *steps])
        first, *others = [saga.Batch([
            saga.Build(
                objects.BuildRequest(instance_uuid=uuid), None, CONTEXT)
            for uuid in each], least) for each in names]
        asked = [self.pool.submit(runner.run, first, **options)]
        self.assertTrue(self.begun.wait(600))
        asked += [self.pool.submit(runner.run, each, **options)
                  for each in others]
        while len(runner._together._waiting) < len(others):
            pass
        self.go_on.set()
        return ''.join(sorted(
            build.uuid for each in asked for build in each.result(60)))

    def joined(self):
        """Return what became of those that came while the first waited.

        The order in which they came is not known.
        """
        return [' '.join([*words, ''.join(sorted(builds))])
                for *words, builds in map(str.split, self.notes)
                if 'a' not in builds]

    def test_batches_added_during_a_step_continue_together(self):
        self.assertEqual(
            'abcd', self.race(self.batched('1'), self.batched('2')))

        self.assertEqual(['do 0 a', 'do 1 a', 'do 2 a'], self.notes[:3])
        self.assertEqual(
            ['do 0 bcd', 'do 1 bcd', 'do 2 bcd'], self.joined())

    def test_batches_run_separate_steps_alone(self):
        self.race(self.batched('1'), Step('2', self.notes))

        self.assertEqual(
            ['do 0 bcd', 'do 1 bcd', 'do 2 bc', 'do 2 d'],
            sorted(self.joined()))

    def test_ended_build_is_rolled_back_before_its_batch_continues(self):
        self.assertEqual('acd', self.race(
            self.batched('1', end('b', reason=Failure())), self.batched('2')))

        joined = self.joined()
        self.assertIn('do 2 d', joined)
        self.assertEqual(
            ['undo 1 b', 'undo 0 b', 'do 2 c'],
            [each for each in joined[2:] if each != 'do 2 d'])

    def test_batch_below_the_minimum_ends_alone(self):
        self.assertEqual('ad', self.race(
            self.batched('1', end('b', reason=Failure())), self.batched('2'),
            least=2))

        self.assertIn('do 2 d', self.joined())
        self.assertNotIn('do 2 c', self.joined())

    def test_batch_with_a_failed_step_fails_alone(self):
        def doing(builds):
            if 'd' in [build.uuid for build in builds]:
                raise Failure

        self.assertEqual(
            'abc', self.race(self.batched('1', doing), self.batched('2')))

        self.assertEqual(
            ['do 0 bcd', 'do 1 bc', 'do 1 bcd', 'do 1 d', 'do 2 bc',
             'undo 0 d', 'undo 1 d'], sorted(self.joined()))

    def test_joint_step_is_repeated_after_a_conflict(self):
        losses = [lost(), lost()]

        def doing(builds):
            if len(builds) > 1 and losses:
                raise losses.pop()

        self.assertEqual('abcd', self.race(self.batched('1', doing)))

        self.assertEqual(['do 0 bcd', *['do 1 bcd'] * 3], self.joined())

    def test_each_step_of_each_batch_is_reported(self):
        reached = []

        self.race(self.batched('1'), reached=reached.append)

        self.assertEqual(['0', '1', '0', '0', '1', '1'], reached)

    def test_crash_of_the_batch_leader_fails_the_batch(self):
        class Death(BaseException):
            pass

        def doing(builds):
            if len(builds) > 1:
                raise Death

        self.assertRaises(Death, self.race, self.batched('1', doing))
        self.assertEqual(['do 0 bcd', 'do 1 bcd'], self.joined())


LOST = (Outcome.DELETED, Outcome.FINISHED, Outcome.BUILT_ELSEWHERE)


def make(*outcomes):
    """Return a build that came to these, one after the other."""
    build = saga.Build(
        objects.BuildRequest(instance_uuid='uuid'), None, None)
    for outcome in outcomes:
        build.end(outcome)
    return build


#: How a build comes to each outcome.
WAYS = {
    Outcome.IN_PROGRESS: (),
    Outcome.UNKNOWN: (Outcome.FAILED, Outcome.UNKNOWN),
    **{each: (each,) for each in (
        Outcome.FAILED, Outcome.RETRY, *LOST)}}


class TestBuild(base.TestCase):

    def test_outcomes_have_consequences(self):
        found = {
            outcome: (build.ended, build.to_bury, build.to_retry,
                      build.deleted, build.finished)
            for outcome in Outcome for build in [make(*WAYS[outcome])]}

        self.assertEqual({
            Outcome.IN_PROGRESS: (False, False, False, False, False),
            Outcome.FAILED: (True, True, False, False, False),
            Outcome.RETRY: (True, False, True, False, False),
            Outcome.UNKNOWN: (True, False, True, False, False),
            Outcome.DELETED: (True, False, False, True, False),
            Outcome.FINISHED: (True, False, False, False, True),
            Outcome.BUILT_ELSEWHERE: (True, False, False, False, True)}, found)

    def test_unlisted_outcome_is_refused(self):
        for before, after in itertools.product(Outcome, Outcome):
            build = make(*WAYS[before])
            if after is before or after in saga.TRANSITIONS[before]:
                build.end(after)
                self.assertIs(after, build.outcome)
                continue
            with self.assertRaises(saga.OutcomeConflict) as raised:
                build.end(after, ValueError())
            self.assertEqual(
                ('uuid', before, after),
                (raised.exception.uuid, raised.exception.settled,
                 raised.exception.refused))
            self.assertIs(before, build.outcome)
            self.assertIsNone(build.reason)

    def test_build_ended_elsewhere_cannot_fail(self):
        for outcome in LOST:
            self.assertRaises(
                saga.OutcomeConflict, make(outcome).fail, ValueError())

    def test_first_reason_stays(self):
        build, first = make(), ValueError()
        build.end(Outcome.RETRY, first)
        build.end(Outcome.FAILED, KeyError())

        self.assertIs(first, build.reason)

    def test_build_with_a_transient_failure_is_deferred(self):
        for reason, outcome in (
                (oslo_messaging.MessagingTimeout(), Outcome.RETRY),
                (exception.NoValidHost(reason='Full.'), Outcome.FAILED)):
            build = make()
            build.fail(reason)

            self.assertEqual(
                (outcome, reason), (build.outcome, build.reason))


class TestBatch(base.TestCase):

    def test_deleted_request_is_no_error(self):
        for outcome in LOST:
            batch = saga.Batch([make(), make(outcome)], 2)
            batch.fail_together()

            self.assertEqual(1, batch.needed)
            self.assertFalse(batch.builds[0].ended)

    def test_builds_below_the_minimum_share_an_outcome(self):
        for failed, others in (
                ([Outcome.FAILED], Outcome.FAILED),
                ([Outcome.RETRY], Outcome.RETRY),
                ([Outcome.RETRY, Outcome.FAILED], Outcome.FAILED)):
            builds = [make(), *map(make, failed)]
            saga.Batch(builds, len(builds)).fail_together()

            self.assertEqual({others}, {each.outcome for each in builds})

    def test_failed_rollback_is_recorded(self):
        builds = [make(), make(Outcome.RETRY), make(
            Outcome.FAILED, Outcome.UNKNOWN)]
        saga.Batch(builds, 3).fail_together()

        self.assertEqual(
            [Outcome.RETRY, Outcome.RETRY, Outcome.UNKNOWN],
            [each.outcome for each in builds])


class TestPasses(base.TestCase):

    def test_transient_errors_differ_from_permanent_errors(self):
        remote = type('DeadlineExceeded_Remote',
                      (exception.DeadlineExceeded,), {})
        for error, passing in (
                (exception.DeadlineExceeded(late_s=600), True),
                (remote(late_s=600), True),
                (exception.HostStateUncertain(hosts=9, known=10), True),
                (exception.CellUnreachable(cell='c', reason='r'), True),
                (exception.TransactionLost(schema='API', reason='r'), True),
                (exception.ClaimStoreFailed(reason='r'), True),
                (exception.ServiceBusy(waiting=9), True),
                (oslo_messaging.RemoteError('ServiceBusy'), True),
                (oslo_messaging.RemoteError('ClaimStoreFailed'), True),
                (oslo_messaging.MessagingTimeout(), True),
                (oslo_messaging.RemoteError('MessagingTimeout'), True),
                (oslo_messaging.RemoteError('DatabaseUnreachable'), True),
                (cfg.RequiredOptError('lock_path'), True),
                (oslo_messaging.RemoteError('RequiredOptError'), True),
                (exception.ConfigurationInvalid(field='f'), True),
                (oslo_messaging.RemoteError('ConfigurationInvalid'), True),
                (exception.PluginNotFound(
                    name='p', namespace='n', named='', available=''), True),
                (exception.SchemaOutOfDate(
                    schema='s', url='', version='1', expected='2',
                    command=''), True),
                (exception.WrongDatabase(schema='s', url='', found=''), True),
                (exception.LimitsUnavailable(reason='r'), True),
                (exception.VersionNotSendable(
                    topic='t', cap='1', version='2'), True),
                (exception.ServiceTooOld(known=1, version=2), True),
                (exception.InvalidField(where='w', field='f'), False),
                (oslo_messaging.RemoteError('KeyError'), False),
                (exception.NoValidHost(reason=''), False),
                (exception.PluginFailed(kind='Filter', plugin='p'), False),
                (RuntimeError(), False)):
            self.assertEqual(
                passing, saga.is_transient(error), repr(error))
