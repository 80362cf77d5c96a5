# SPDX-License-Identifier: Apache-2.0
"""What the builds on a host came to."""

from concurrent import futures

from cellsched.compute import progress
from tests.unit import base


class TestOutcomes(base.TestCase):

    def setUp(self):
        super().setUp()
        self.outcomes = progress.Outcomes()

    def test_nothing_has_failed_at_first(self):
        self.assertEqual(0, self.outcomes.failed_in_a_row('node1'))

    def test_failures_count_until_a_build_succeeds(self):
        for expected in (1, 2, 3):
            self.outcomes.failed('node1')
            self.assertEqual(
                expected, self.outcomes.failed_in_a_row('node1'))

        for _ in range(2):
            self.outcomes.succeeded('node1')
            self.assertEqual(0, self.outcomes.failed_in_a_row('node1'))

    def test_nodes_have_failures_of_their_own(self):
        self.outcomes.failed('node1')
        self.outcomes.failed('node2')
        self.outcomes.succeeded('node1')

        self.assertEqual((0, 1), tuple(map(
            self.outcomes.failed_in_a_row, ('node1', 'node2'))))

    def test_no_failure_of_several_threads_is_lost(self):
        def fail(_):
            for _ in range(500):
                self.outcomes.failed('node1')

        with futures.ThreadPoolExecutor(4) as threads:
            list(threads.map(fail, range(4)))

        self.assertEqual(2000, self.outcomes.failed_in_a_row('node1'))
