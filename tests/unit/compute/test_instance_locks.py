# SPDX-License-Identifier: Apache-2.0
"""Locks of instances."""

import gc

from oslo_concurrency import lockutils

from cellsched import clock
from cellsched.compute import instance_locks
from tests.unit import base


class Counting(clock.Clock):
    """A clock that counts the semaphores it makes."""

    def __init__(self):
        self.made = 0

    def semaphore(self, value):
        self.made += 1
        return super().semaphore(value)


class TestSemaphores(base.TestCase):

    def setUp(self):
        super().setUp()
        self.semaphores = instance_locks.Semaphores(clock.Clock())

    def lock(self, name):
        return lockutils.lock(
            name, semaphores=self.semaphores, blocking=False)

    def test_one_name_is_locked_once(self):
        with self.lock('host-a'):
            self.assertRaises(lockutils.AcquireLockFailedException,
                              self.lock('host-a').__enter__)

    def test_released_lock_can_be_taken_again(self):
        with self.lock('host-a'):
            pass
        with self.lock('host-a'):
            self.assertIsNotNone(self.semaphores.get('host-a'))

    def test_other_names_are_not_locked(self):
        with self.lock('host-a'), self.lock('host-b'):
            self.assertIsNot(self.semaphores.get('host-a'),
                             self.semaphores.get('host-b'))

    def test_semaphores_are_made_by_the_clock(self):
        counting = Counting()

        instance_locks.Semaphores(counting).get('host-a')

        self.assertEqual(1, counting.made)

    def test_semaphore_that_nobody_uses_is_forgotten(self):
        counting = Counting()
        semaphores = instance_locks.Semaphores(counting)
        for _ in range(2):
            semaphores.get('host-a')
            gc.collect()

        self.assertEqual(2, counting.made)
