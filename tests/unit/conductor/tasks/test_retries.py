# SPDX-License-Identifier: Apache-2.0
"""Batches that wait until they are tried again."""

from cellsched.conductor.tasks import retries
from cellsched import context
from cellsched.testing import clock
from tests.unit import base

USER = context.member('user', 'project')


class TestRetries(base.TestCase):

    def setUp(self):
        super().setUp()
        self.clock = clock.FakeClock()
        self.retries = retries.Retries(self.clock, 1.0, 3)

    def put_off(self, name, number=0):
        return self.retries.put_off(
            retries.Attempt(USER, [name], 'owner', number))

    def due(self):
        return [(each.uuids, each.number) for each in self.retries.take_due()]

    def test_batch_waits_for_its_time_and_is_given_once(self):
        self.assertTrue(self.put_off('a'))

        self.clock.advance(0.9)
        self.assertEqual([], self.due())
        self.clock.advance(0.1)
        self.assertEqual([(['a'], 1)], self.due())
        self.assertEqual([], self.due())

    def test_each_try_waits_twice_as_long(self):
        for number, seconds in enumerate((1, 2, 4)):
            self.put_off('a', number)
            self.clock.advance(seconds - 0.1)
            self.assertEqual([], self.due(), number)
            self.clock.advance(0.1)
            self.assertEqual([(['a'], number + 1)], self.due())

    def test_batch_that_was_tried_often_enough_is_anybodys(self):
        self.assertFalse(self.put_off('a', 3))

        self.clock.advance(3600)
        self.assertEqual([], self.due())

    def test_first_due_is_given_first(self):
        self.put_off('later', 1)
        self.put_off('sooner', 0)
        self.clock.advance(2)

        self.assertEqual(
            [['sooner'], ['later']], [uuids for uuids, _ in self.due()])

    def test_no_more_wait_than_there_is_room_for(self):
        for number in range(retries.WAITING_MAX):
            self.put_off(str(number))

        self.assertFalse(self.put_off('too many'))
        self.clock.advance(1)
        self.assertEqual(retries.WAITING_MAX, len(self.due()))
