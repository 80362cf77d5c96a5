# SPDX-License-Identifier: Apache-2.0
"""Tests of the GPU memory filter."""

import json
import unittest

from cellsched import exception
from cellsched.testing import builders
from cellsched.testing.suite import filters
from third_party_filter import gpu_memory


def stats(free_mb):
    return json.dumps({'gpu_memory_free_mb': free_mb})


def request(*hint):
    return builders.request(hints={'gpu_memory_mb': hint})


class TestGPUMemoryFilter(filters.FilterSuite, unittest.TestCase):

    plugin = gpu_memory.GPUMemoryFilter

    # Hosts and requests for the tests of the suite.

    def make_hosts(self, count):
        return builders.hosts(
            count, stats=[stats(1024 * row) for row in range(count)])

    def make_requests(self):
        return [builders.request(), request('2048')]

    # Tests of this filter.

    def test_host_with_exactly_the_requested_amount_is_kept(self):
        hosts = builders.hosts(stats=[stats(2047), stats(2048), stats('4096')])

        self.assertKeeps([False, True, True], hosts, request('2048'))
        self.assertKeeps([False, False, True], hosts, request('2048'),
                         reserve_mb=1)

    def test_request_without_the_hint_keeps_every_host(self):
        self.assertKeeps([True, True], builders.hosts(stats=['', stats(1)]))

    def test_host_with_missing_or_invalid_statistics_is_rejected(self):
        texts = ['', '{}', '[]', 'null', '{', stats(None), stats('much'),
                 stats([1]), stats('nan'), stats('inf'), stats(10 ** 400)]

        self.assertKeeps([False] * len(texts), builders.hosts(stats=texts),
                         request('1'))

    def test_shortfall_of_each_host_is_returned(self):
        filter_ = builders.plugin(self.plugin, reserve_mb=100)
        hosts = builders.hosts(stats=[stats(500), stats(1000)])

        missing, unit = filter_.shortfall(hosts, request('1024'))

        self.assertEqual(([624, 124], 'MB'), (missing.tolist(), unit))

    def test_invalid_hint_is_refused(self):
        for hint in (['much'], ['-1'], ['1.5'], ['1', '2'], ['9' * 10000],
                     ['16777217']):
            with self.subTest(hint=hint[0][:10]):
                with self.assertRaisesRegex(
                        exception.InvalidField, 'gpu_memory_mb'):
                    self.ask(builders.plugin(self.plugin),
                             self.make_hosts(2), request(*hint))
