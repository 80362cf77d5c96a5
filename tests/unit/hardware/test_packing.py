# SPDX-License-Identifier: Apache-2.0
import unittest

from cellsched.hardware import guest
from cellsched.hardware import host
from cellsched.hardware import packing


class PinTest(unittest.TestCase):
    CORES = tuple(frozenset([number, number + 4]) for number in range(4))

    def pin(self, vcpus, policy=None, pinned=(), emulator=False):
        cell = host.HostCell(
            0, frozenset(), frozenset(range(8)), 1024,
            pinned=frozenset(pinned), siblings=self.CORES)
        pins = packing.pin(cell, guest.GuestCell(
            0, frozenset(), frozenset(range(vcpus)), 64,
            policy=guest.DEDICATED, thread_policy=policy), emulator)
        return pins and ([cpu for _, cpu in pins.cpus], list(pins.reserved))

    def test_threads_of_a_core_go_together(self):
        self.assertEqual(([1, 5, 2], []), self.pin(3, pinned=[4]))

    def test_scattered_threads_serve_without_policy_only(self):
        self.assertEqual(([0, 1, 2], []), self.pin(3, pinned=range(4, 8)))
        self.assertIsNone(self.pin(3, 'require', pinned=range(4, 8)))

    def test_cpu_of_the_emulator_comes_after_the_vcpus(self):
        self.assertEqual(([0, 4], [1]), self.pin(2, emulator=True))

    def test_cores_with_threads_are_not_isolated(self):
        self.assertIsNone(self.pin(2, 'isolate'))
