# SPDX-License-Identifier: Apache-2.0
"""Freed capacity and pending selections count in decisions."""

from nova import exception as nova_exception

from cellsched_nova import decision
from tests import test_decision


class TestFreedCapacity(test_decision.TestCase):

    def read(self, free_mb):
        """Simulate a read of hosts with this much free memory."""
        hosts = self.parts.hosts
        hosts.table.put(hosts.table.view(0)['uuid'][:1], {
            'free_ram_mb': free_mb, 'available:MEMORY_MB': free_mb})
        hosts.readings += 1

    def test_freed_capacity_is_used_even_if_seen_late(self):
        self.parts.hosts.freed = [
            lambda: self.read(1024), lambda: self.read(4096)]

        [[chosen]] = self.select(self.spec(4096))

        self.assertEqual('a', chosen.service_host)

    def test_request_without_freed_capacity_is_refused(self):
        self.parts.hosts.freed = [
            lambda: self.read(1024), lambda: None, lambda: self.read(4096)]

        self.assertRaises(
            nova_exception.NoValidHost, self.select, self.spec(4096))

    def test_search_for_freed_capacity_is_limited(self):
        self.parts.hosts.freed = looks = [
            lambda: self.read(1024) for _ in range(20)]

        self.assertRaises(
            nova_exception.NoValidHost, self.select, self.spec(4096))
        self.assertGreater(len(looks), 10)


class TestPendingSelection(test_decision.TestCase):

    def test_claimed_selection_counts_as_claimed(self):
        self.select(self.spec())

        self.assertEqual([True], self.parts.hosts.confirmed)
        self.assertEqual(1, len(self.store.claims))

    def test_selection_without_instances_counts_as_not_claimed(self):
        decision.RequestDecision(
            self.parts, self.context, self.spec(num_instances=1), None, 0
        ).select()

        self.assertEqual([False], self.parts.hosts.confirmed)
        self.assertEqual([], self.store.claims)
