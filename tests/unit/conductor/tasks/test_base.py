# SPDX-License-Identifier: Apache-2.0
"""Running steps over a batch of builds, and undoing them."""

import contextlib

import oslo_messaging

from cellsched.conductor.tasks import base as tasks
from cellsched import context
from cellsched import exception
from cellsched import objects
from tests.unit import base

CONTEXT = context.admin()


class Failure(Exception):
    pass


def lost():
    return exception.TransactionLost(schema='API', reason='a deadlock')


class Step(tasks.Step):
    """Notes what is done and undone; ``doing`` and ``undoing`` do it."""

    name = ''

    def __init__(self, name, notes, doing=None, undoing=None):
        self.name = name
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


def end(uuid, **fields):
    """Return a function that ends one build of a batch."""
    def doing(builds):
        for build in builds:
            if build.uuid == uuid:
                for name, value in fields.items():
                    setattr(build, name, value)
    return doing


def fail(builds):
    raise Failure('as told')


class TestRun(base.TestCase):

    def setUp(self):
        super().setUp()
        self.notes = []
        self.builds = [
            tasks.Build(
                objects.BuildRequest(instance_uuid=uuid), None, CONTEXT)
            for uuid in 'abc']
        self.a, self.b, self.c = self.builds

    def step(self, name, doing=None, undoing=None):
        return Step(name, self.notes, doing, undoing)

    def run_steps(self, *steps, least=1, **options):
        return tasks.run(steps, tasks.Batch(self.builds, least), **options)

    def test_steps_are_done_in_order_for_all(self):
        gone_on = self.run_steps(self.step('1'), self.step('2'))

        self.assertEqual(['do 1 abc', 'do 2 abc'], self.notes)
        self.assertEqual(self.builds, gone_on)

    def test_what_ended_is_undone_in_reverse_and_the_rest_goes_on(self):
        gone_on = self.run_steps(
            self.step('1'), self.step('2', end('b', failed=Failure())),
            self.step('3'))

        self.assertEqual(
            ['do 1 abc', 'do 2 abc', 'undo 2 b', 'undo 1 b', 'do 3 ac'],
            self.notes)
        self.assertEqual([self.a, self.c], gone_on)
        self.assertTrue(self.b.to_bury)

    def test_what_was_deleted_is_undone_and_not_buried(self):
        self.run_steps(
            self.step('1'), self.step('2', end('a', deleted=True)))

        self.assertEqual(
            ['do 1 abc', 'do 2 abc', 'undo 2 a', 'undo 1 a'], self.notes)
        self.assertFalse(self.a.to_bury)

    def test_what_somebody_finished_is_neither_undone_nor_buried(self):
        gone_on = self.run_steps(
            self.step('1'),
            self.step('2', end('a', failed=Failure(), finished=True)))

        self.assertEqual(['do 1 abc', 'do 2 abc'], self.notes)
        self.assertEqual([self.b, self.c], gone_on)
        self.assertFalse(self.a.to_bury)

    def test_exception_fails_all_that_still_live(self):
        gone_on = self.run_steps(
            self.step('1', end('a', deleted=True)), self.step('2', fail),
            self.step('3'))

        self.assertEqual(
            ['do 1 abc', 'undo 1 a', 'do 2 bc', 'undo 2 bc', 'undo 1 bc'],
            self.notes)
        self.assertEqual([], gone_on)
        self.assertIsNone(self.a.failed)
        self.assertEqual('as told', str(self.b.failed))
        self.assertIs(self.b.failed, self.c.failed)

    def test_wrong_request_fails_without_a_traceback(self):
        def refuse(builds):
            raise exception.InvalidField(
                where='request', field='hint', expected='a number')

        self.run_steps(self.step('1', refuse))

        self.assertEqual('request: hint: a number', str(self.a.failed))
        self.assertNotIn('Traceback', self.logs.output)

    def test_exception_does_not_hide_an_earlier_failure(self):
        first = Failure('first')

        def doing(builds):
            end('a', failed=first)(builds)
            fail(builds)

        self.run_steps(self.step('1', doing))

        self.assertIs(first, self.a.failed)
        self.assertEqual('as told', str(self.b.failed))

    def test_fence_saves_from_undoing_what_is_somebody_elses(self):
        asked = []

        @contextlib.contextmanager
        def fence(builds):
            asked.extend(build.uuid for build in builds)
            self.b.finished = True
            yield

        self.run_steps(self.step('1'), self.step('2', fail), fence=fence)

        self.assertEqual(['a', 'b', 'c'], asked)
        self.assertEqual(
            ['do 1 abc', 'do 2 abc', 'undo 2 ac', 'undo 1 ac'], self.notes)
        self.assertEqual(
            [True, False, True], [build.to_bury for build in self.builds])

    def test_nothing_is_undone_where_the_fence_fails(self):
        self.run_steps(self.step('1'), self.step('2', fail), fence=fail)

        self.assertEqual(['do 1 abc', 'do 2 abc'], self.notes)
        self.assertEqual(
            [True] * 3, [build.unclear for build in self.builds])
        self.assertFalse(self.a.to_bury)

    def test_undo_that_fails_keeps_the_steps_before_it(self):
        self.run_steps(
            self.step('1'), self.step('2', undoing=fail),
            self.step('3', end('b', failed=Failure())), self.step('4'))

        self.assertEqual(
            ['do 1 abc', 'do 2 abc', 'do 3 abc', 'undo 3 b', 'undo 2 b',
             'do 4 ac'], self.notes)
        self.assertTrue(self.b.unclear)
        self.assertFalse(self.b.to_bury)
        self.assertFalse(self.a.unclear)

    def test_too_few_are_none(self):
        first = Failure('first')
        gone_on = self.run_steps(
            self.step('1'), self.step('2', end('b', failed=first)),
            self.step('3'), least=3)

        self.assertEqual(
            ['do 1 abc', 'do 2 abc', 'undo 2 abc', 'undo 1 abc'], self.notes)
        self.assertEqual([], gone_on)
        self.assertEqual(
            [first] * 3, [build.failed for build in self.builds])

    def test_what_users_delete_is_not_missed(self):
        gone_on = self.run_steps(
            self.step('1', end('b', deleted=True)), self.step('2'), least=3)

        self.assertEqual([self.a, self.c], gone_on)

    def test_what_is_past_undoing_is_not_failed_with_others(self):
        last = self.step('1', end('b', failed=Failure()))
        last.final = True

        self.assertEqual([self.a, self.c], self.run_steps(last, least=3))

    def test_what_nobody_answered_is_put_off(self):
        def doing(builds):
            raise oslo_messaging.MessagingTimeout()

        self.run_steps(self.step('1'), self.step('2', doing))

        self.assertEqual(
            ['do 1 abc', 'do 2 abc', 'undo 2 abc', 'undo 1 abc'], self.notes)
        for build in self.builds:
            self.assertEqual((True, False), (build.later, build.to_bury))

    def test_too_few_are_put_off_together(self):
        self.run_steps(
            self.step('1', end('b', failed=Failure(), later=True)), least=3)

        self.assertEqual([False] * 3, [each.to_bury for each in self.builds])

    def test_none_is_put_off_where_one_failed_for_good(self):
        def doing(builds):
            end('a', failed=Failure(), later=True)(builds)
            end('b', failed=Failure())(builds)

        self.run_steps(self.step('1', doing), least=3)

        self.assertEqual([True] * 3, [each.to_bury for each in self.builds])

    def test_no_step_is_done_for_nobody(self):
        self.assertEqual([], self.run_steps(
            self.step('1', fail), self.step('2')))

        self.assertNotIn('do 2 ', self.notes)

    def test_step_that_lost_to_another_transaction_is_done_again(self):
        losses = [lost(), lost()]

        def doing(builds):
            end('a', failed=Failure())(builds)
            if losses:
                raise losses.pop()

        gone_on = self.run_steps(self.step('1', doing))

        self.assertEqual(
            ['do 1 abc', 'do 1 bc', 'do 1 bc', 'undo 1 a'], self.notes)
        self.assertEqual([self.b, self.c], gone_on)

    def test_step_that_loses_for_ever_fails(self):
        def doing(builds):
            raise lost()

        self.assertEqual([], self.run_steps(self.step('1', doing)))

        self.assertIsInstance(self.a.failed, exception.TransactionLost)
        self.assertEqual(5, self.notes.count('do 1 abc'))
