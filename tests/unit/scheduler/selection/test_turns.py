# SPDX-License-Identifier: Apache-2.0
from cellsched.scheduler.selection.turns import Turns
from cellsched.testing import clock as fake_clock
from tests.unit import base


class Lock:
    """A lock that is free after some attempts.

    :param attempted: called at each attempt
    """

    def __init__(self, free_after, attempted):
        self.free_after = free_after
        self.attempted = attempted
        self.attempts = 0
        self.is_held = False

    def acquire(self, timeout):
        self.attempts += 1
        self.attempted()
        self.is_held = self.attempts > self.free_after
        return self.is_held

    def release(self):
        assert self.is_held
        self.is_held = False


class TestTurns(base.TestCase):

    def turns(self, free_after, others_go_on):
        """Return the turns and their lock."""
        clock = fake_clock.FakeClock()
        lock = Lock(free_after, lambda: others_go_on and self.other_turn())
        clock.lock = lambda: lock
        made = Turns(clock)
        self.other_turn = lambda: setattr(
            made, 'number', made.number + 1)
        return made, lock

    def test_turn_ends_with_its_context(self):
        turns, lock = self.turns(0, False)

        with turns.taken():
            self.assertTrue(lock.is_held)
        self.assertFalse(lock.is_held)
        self.assertEqual(1, turns.number)

    def test_request_waits_while_other_ones_take_their_turns(self):
        turns, lock = self.turns(5, True)

        with turns.taken():
            self.assertEqual((6, True), (lock.attempts, lock.is_held))

    def test_request_does_without_a_turn_in_the_end(self):
        turns, lock = self.turns(1000, True)

        with turns.taken():
            self.assertEqual((10, False), (lock.attempts, lock.is_held))

    def test_request_does_without_a_turn_if_no_other_one_gets_one(self):
        turns, lock = self.turns(1000, False)

        with turns.taken():
            self.assertEqual((1, False), (lock.attempts, lock.is_held))
