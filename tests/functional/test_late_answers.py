# SPDX-License-Identifier: Apache-2.0
"""Answers of a scheduler after the deadline of the caller."""

import threading

import fixtures

from cellsched.scheduler.selection.claims import ClaimQueue
from tests.functional import base
from tests.functional import moving
from tests.functional import post
from tests.functional import repeating


class TestLateAnswers(repeating.TestCase):
    """The scheduler answers after the deadline of the caller."""

    def setUp(self):
        #: What schedulers wait for before they claim, and before they answer.
        self.may_claim, self.may_answer = threading.Event(), threading.Event()
        #: What they have chosen and not claimed.
        self.chosen = []
        super().setUp()
        self.addCleanup(self.go_on)
        claim = ClaimQueue.claim_all

        def late(queue, requests, wait_s):
            self.chosen.extend(requests)
            self.may_claim.wait(post.TIMEOUT_S)
            claim(queue, requests, wait_s)

        self.useFixture(fixtures.MonkeyPatch(
            'cellsched.scheduler.selection.claims.ClaimQueue.claim_all',
            late))

    def reach(self, step):
        if step == 'Select':
            self.may_answer.wait(post.TIMEOUT_S)
        super().reach(step)

    def go_on(self):
        self.may_claim.set()
        self.may_answer.set()

    def choosing(self):
        """Have schedulers wait from now on, when they have chosen."""
        self.chosen.clear()
        self.may_claim.clear()

    def have_chosen(self, count):
        # Requests that come again wait until the first of them is answered.
        self.until(lambda: len(self.chosen) == count,
                   f'{count} places are chosen')

    def given_up(self, step, count):
        """Have all callers give up, until so many have."""
        self.post.patient = False
        self.until(lambda: self.done.count(step) == count,
                   f'{count} callers have given up')
        self.post.patient = True

    def test_build_with_a_late_answer(self):
        for times in self.each_time():
            self.may_claim.set()
            self.may_answer.clear()
            [[kept], [deleted]] = self.create(), self.create()
            for uuid in (kept, deleted):
                self.until(lambda uuid=uuid: self.holding(uuid),
                           f'{uuid} has its place')
            self.given_up('undone Schedule', 2)
            self.delete(deleted)

            self.goes_on(times, kept, deleted)

    def test_build_with_a_late_claim(self):
        for times in self.each_time():
            self.choosing()
            [[kept], [deleted]] = self.create(), self.create()
            self.have_chosen(2)
            self.given_up('undone Schedule', 2)
            self.delete(deleted)
            self.assertEqual({}, self.holding(kept))
            self.go_on()
            self.post.quiet()
            for uuid in (kept, deleted):
                self.assertEqual([uuid], list(self.holding(uuid)))

            self.goes_on(times, kept, deleted)

    def goes_on(self, times, kept, deleted):
        self.go_on()
        self.post.quiet()
        self.assertEqual([], self.running(kept))
        self.release_leaked()
        self.assertIsGone(deleted)

        self.recover(moving.LATE_S)

        self.rests('active', 'a1', kept)
        # Who gave up had asked twice.
        self.assertEqual(5, self.post.count()[repeating.SELECT])
        self.assertDelivered(times)

    def test_move_with_a_late_claim(self):
        for times in self.each_time():
            self.go_on()
            staying, moved, deleted = uuids = self.create(min_count=3)
            self.settled(uuids)
            self.post.quiet()
            self.choosing()
            for uuid in uuids:
                self.moves.migrate(base.ADMIN, uuid)
            self.have_chosen(3)
            self.given_up('MoveGiveUp', 3)
            self.delete(deleted)
            self.assertIsGone(deleted)
            # What comes of its deletion later would give back what follows.
            self.until(
                lambda: times == self.post.delivered[repeating.TERMINATE],
                'all is done that was said of its deletion')
            self.go_on()
            self.post.quiet()
            for uuid in (staying, moved):
                self.assertEqual({uuid, self.move_uuids(uuid)[0]},
                                 set(self.holding(uuid)))
            self.assertEqual(1, len(self.holding(deleted)))

            self.moves.migrate(base.ADMIN, moved)
            self.post.quiet()
            self.release_leaked()
            self.is_gone(deleted)
            self.rests('active', 'a2', moved)
            self.rests('active', 'a1', staying)
            self.assertEqual(5, self.post.count()[repeating.SELECT])
            self.assertDelivered(times)
