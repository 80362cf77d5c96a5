# SPDX-License-Identifier: Apache-2.0
"""Tests of the GPU memory weigher."""

import json
import unittest

from cellsched.testing import builders
from cellsched.testing.suite import weighers
from third_party_filter import gpu_weigher

REQUEST = builders.request(hints={'gpu_memory_mb': '1024'})


def stats(free_mb):
    return json.dumps({'gpu_memory_free_mb': free_mb})


class TestGPUMemoryWeigher(weighers.WeigherSuite, unittest.TestCase):

    plugin = gpu_weigher.GPUMemoryWeigher

    # Hosts and requests for the tests of the suite.

    def make_hosts(self, count):
        return builders.hosts(
            count, stats=[stats(1024 * row) for row in range(count)])

    def make_requests(self):
        return [builders.request(), REQUEST]

    # Tests of this weigher.

    def test_host_with_more_free_memory_scores_higher(self):
        hosts = builders.hosts(stats=[stats(2048), stats(4096), '{'])

        self.assertScores([2048, 4096, 0], hosts, REQUEST)

    def test_request_without_the_hint_scores_all_hosts_equally(self):
        hosts = builders.hosts(stats=[stats(1), stats(2)])

        self.assertScores([0, 0], hosts)
