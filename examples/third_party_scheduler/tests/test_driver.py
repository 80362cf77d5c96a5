# SPDX-License-Identifier: Apache-2.0
"""Tests of the packing driver."""

import unittest

from cellsched.testing.suite import scheduler_drivers
from third_party_scheduler import driver


class TestPackingScheduler(
        scheduler_drivers.SchedulerDriverSuite, unittest.TestCase):

    plugin = driver.PackingScheduler

    def test_servers_of_one_request_fill_a_host(self):
        servers = self.make_servers(scheduler_drivers.VCPUS)

        hosts = {first.service_host for first, *_ in self.select(servers)}

        self.assertEqual(1, len(hosts))
