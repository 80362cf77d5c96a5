# SPDX-License-Identifier: Apache-2.0
"""Sizes of hosts, as they are remembered from one request to the next."""

import itertools

from cellsched.scheduler.decision import capacity
from cellsched.testing import builders
from tests.unit import base

#: What the smallest of these hosts has of each class.
SMALLEST = {'VCPU': 2, 'MEMORY_MB': 2048, 'DISK_GB': 20}


class TestRememberedSizes(base.TestCase):

    def hosts(self):
        return builders.hosts(
            vcpus_total=[2, 8], total_usable_ram_mb=[2048, 8192],
            total_usable_disk_gb=[20, 80])

    def keep(self, hosts, resource, amount):
        kept = capacity.Size(resource, amount).keep(hosts, builders.request())
        return None if kept is None else kept.tolist()

    def test_each_class_has_its_own(self):
        for first, second in itertools.permutations(SMALLEST, 2):
            hosts = self.hosts()
            for resource in (first, second, first):
                least = SMALLEST[resource]
                self.assertIsNone(self.keep(hosts, resource, least))
                self.assertEqual(
                    [False, True], self.keep(hosts, resource, least + 1))

    def test_amount_below_the_smallest_host_is_not_compared(self):
        self.assertIsNone(self.keep(self.hosts(), 'VCPU', 2))

    def test_empty_table_rejects_no_host(self):
        self.assertIsNone(self.keep(builders.hosts(0), 'VCPU', 10))
