# SPDX-License-Identifier: Apache-2.0
"""Tests that every weigher must pass.

::

    class TestMyWeigher(weighers.WeigherSuite, unittest.TestCase):

        plugin = my_weigher.MyWeigher

        def test_empty_host_is_best(self):
            hosts = builders.hosts(num_instances=[2, 0])

            self.assertScores([-2, 0], hosts)
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cellsched.hosts import view
from cellsched import objects
from cellsched import plugins
from cellsched.testing import builders
from cellsched.testing.suite import plugins as suite


class WeigherSuite(suite.ColumnPluginSuite):
    """Tests of the weigher class in ``plugin``."""

    namespace = plugins.WEIGHERS
    method = 'score'
    neutral = 0.0

    def assertScores(
        self, expected: Sequence[float], hosts: view.Hosts,
        request: objects.RequestSpec | None = None, **options: Any,
    ) -> None:
        """Check the scores of hosts before they are scaled."""
        self.check_answer(expected, hosts, request, options)

    def test_scores_are_finite_numbers(self) -> None:
        for count in (1, 10):
            for _, scores in self.answers(count):
                self.assertIn(scores.dtype.kind, 'biuf')
                self.assertTrue(np.isfinite(scores).all())

    def test_multiplier_is_an_option_with_its_default(self) -> None:
        plugin = builders.plugin(self.plugin)
        self.assertIn(self.plugin.multiplier_name,
                      [option.name for option in self.plugin.opts()])
        self.assertEqual(
            self.plugin.multiplier_default,
            getattr(plugin.options, self.plugin.multiplier_name))

    def test_multiplier_is_for_all_hosts_or_for_each(self) -> None:
        plugin = builders.plugin(self.plugin)
        for count in (0, 1, 10):
            multiplier = plugin.multiplier(self.make_hosts(count))
            self.assertIn(np.shape(multiplier), [(), (count,)])
            self.assertTrue(np.isfinite(multiplier).all())

    def test_bounds_are_in_order(self) -> None:
        low, high = self.plugin.minval, self.plugin.maxval
        if low is not None and high is not None:
            self.assertLess(low, high)

    def test_scores_of_columns_do_not_depend_on_the_request(self) -> None:
        if not self.plugin.by_columns:
            return
        plugin = builders.plugin(self.plugin)
        hosts = self.make_hosts(10)
        first, *rest = [
            self.ask(plugin, hosts, request).copy()
            for request in self.make_requests() if plugin.applies(request)]
        for answer in rest:
            np.testing.assert_array_equal(first, answer)
