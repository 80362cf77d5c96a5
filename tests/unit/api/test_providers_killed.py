# SPDX-License-Identifier: Apache-2.0
"""Sharing providers, where the process ends in between."""

from cellsched import exception
from tests.unit.api import sharing


class TestKilled(sharing.TestCase):
    """The process may end anywhere; what is done again is done then."""

    def killed_everywhere(self, call):
        """Yield after each moment where the call is killed, if it is."""
        for calls in range(20):
            self.store.calls = calls
            try:
                call()
            except sharing.Killed:
                self.store.calls = None
                yield calls
                continue
            finally:
                self.store.calls = None
            self.assertLess(0, calls)
            return
        self.fail('it never comes to an end')

    def test_creation_is_finished_by_being_repeated(self):
        for _ in self.killed_everywhere(self.create):
            made = self.create()
            self.assertEqual({'DISK_GB': 1000}, self.capacity(made.uuid))
            self.delete()

    def test_change_is_finished_by_being_repeated(self):
        made = self.create()
        values = iter(range(2000, 3000))
        for _ in self.killed_everywhere(lambda: self.update(
                inventories={'DISK_GB': {'total': next(values)}})):
            value = next(values)
            self.update(inventories={'DISK_GB': {'total': value}})
            self.assertEqual({'DISK_GB': value}, self.capacity(made.uuid))

    def test_change_of_the_name_can_be_repeated_by_the_old_name(self):
        made = self.create()
        for _ in self.killed_everywhere(lambda: self.update(
                new_name='new', inventories={'DISK_GB': {'total': 5}})):
            if self.named() == ['new']:
                # All was done, and only the answer was lost.
                self.assertEqual({'DISK_GB': 5}, self.capacity(made.uuid))
                self.update('new', new_name='pool')
            self.update(inventories={'DISK_GB': {'total': 1000}})

    def test_deletion_is_finished_by_being_repeated(self):
        self.create()
        for _ in self.killed_everywhere(self.delete):
            if self.named():
                self.delete()
            self.assertEqual([], self.named())
            made = self.create()
        self.assertEqual({}, self.capacity(made.uuid))

    def test_killed_deletion_is_reverted_by_a_change(self):
        made = self.create()
        for _ in self.killed_everywhere(self.delete):
            if not self.named():
                made = self.create()
            self.update()
            self.assertEqual({'DISK_GB': 1000}, self.capacity(made.uuid))

    def test_refused_deletion_is_taken_back_by_being_repeated(self):
        made = self.create()
        self.store.before_change = lambda: self.claim(made.uuid, DISK_GB=1)
        self.store.calls = 2
        self.assertRaises(sharing.Killed, self.delete)
        self.store.calls = None

        self.assertRaises(exception.ResourceProviderInUse, self.delete)

        self.assertEqual({'DISK_GB': 1000}, self.capacity(made.uuid))
