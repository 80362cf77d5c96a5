# SPDX-License-Identifier: Apache-2.0
"""Hosts count as freed, and as chosen, when requests are decided on."""

from nova import exception as nova_exception

from cellsched_nova import decision
from tests import test_decision


class TestFreed(test_decision.TestCase):

    def read(self, free_mb):
        """Have hosts read that have so much memory."""
        hosts = self.parts.hosts
        hosts.table.put(hosts.table.view(0)['uuid'][:1], {
            'free_ram_mb': free_mb, 'available:MEMORY_MB': free_mb})
        hosts.readings += 1

    def test_room_that_was_freed_is_used_however_late_it_is_seen(self):
        self.parts.hosts.freed = [
            lambda: self.read(1024), lambda: self.read(4096)]

        [[chosen]] = self.select(self.spec(4096))

        self.assertEqual('a', chosen.service_host)

    def test_who_finds_none_that_was_freed_is_refused(self):
        self.parts.hosts.freed = [
            lambda: self.read(1024), lambda: None, lambda: self.read(4096)]

        self.assertRaises(
            nova_exception.NoValidHost, self.select, self.spec(4096))

    def test_freed_room_that_others_take_is_not_looked_for_for_ever(self):
        self.parts.hosts.freed = looks = [
            lambda: self.read(1024) for _ in range(20)]

        self.assertRaises(
            nova_exception.NoValidHost, self.select, self.spec(4096))
        self.assertGreater(len(looks), 10)


class TestCounting(test_decision.TestCase):

    def test_choice_counts_as_claimed_where_it_is(self):
        self.select(self.spec())

        self.assertEqual([True], self.parts.hosts.confirmed)
        self.assertEqual(1, len(self.store.claims))

    def test_choice_for_nobody_in_particular_counts_as_not_claimed(self):
        decision.RequestDecision(
            self.parts, self.context, self.spec(num_instances=1), None, 0
        ).select()

        self.assertEqual([False], self.parts.hosts.confirmed)
        self.assertEqual([], self.store.claims)
