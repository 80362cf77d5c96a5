# SPDX-License-Identifier: Apache-2.0
"""Tests that every filter must pass.

::

    class TestMyFilter(filters.FilterSuite, unittest.TestCase):

        plugin = my_filter.MyFilter

        def test_host_at_its_limit_is_rejected(self):
            hosts = builders.hosts(num_instances=[1, 2, 3])

            self.assertKeeps([True, False, False], hosts, my_limit=2)
"""

from collections.abc import Sequence
import re
from typing import Any

import numpy as np

from cellsched.filters import base
from cellsched.hosts import view
from cellsched import objects
from cellsched import plugins
from cellsched.scheduler.explanation import diagnosis
from cellsched.scheduler import requirements
from cellsched.testing import builders
from cellsched.testing.suite import plugins as suite

#: Two of them in one reason leave a reader to count.
_NEGATIVE = re.compile(
    r"\b(cannot|lacks?|never|no|none|not|un(?!der|i|til)\w+|without)\b|n't\b")

_REASON_LENGTH_MAX = 60


class FilterSuite(suite.ColumnPluginSuite):
    """Tests of the filter class in ``plugin``."""

    namespace = plugins.FILTERS
    method = 'keep'
    neutral = True

    def assertKeeps(
        self, expected: Sequence[bool], hosts: view.Hosts,
        request: objects.RequestSpec | None = None, **options: Any,
    ) -> None:
        """Check which hosts the filter keeps, with these options."""
        self.check_answer(expected, hosts, request, options)

    def test_mask_is_of_booleans(self) -> None:
        for _, mask in self.answers(10):
            self.assertEqual(np.dtype(bool), mask.dtype)

    def test_reason_reads_well(self) -> None:
        reason = builders.plugin(self.plugin).reason
        self.assertTrue(0 < len(reason) <= _REASON_LENGTH_MAX, reason)
        self.assertTrue(reason[0].islower() and reason[-1] != '.', reason)
        self.assertFalse(re.search(r'[\n%{}]', reason), reason)
        self.assertLess(len(_NEGATIVE.findall(reason)), 2, reason)

    def test_reason_begins_with_a_verb(self) -> None:
        reason = builders.plugin(self.plugin).reason
        self.assertNotEqual(reason, diagnosis.plural(reason))

    def test_hints_are_for_users(self) -> None:
        for hint in self.plugin.hints:
            self.assertFalse(hint.startswith('_'), hint)

    def test_reads_are_demands(self) -> None:
        for name in self.plugin.reads:
            self.assertTrue(requirements.is_known(name), name)

    def test_located_instances_are_texts(self) -> None:
        plugin = builders.plugin(self.plugin)
        for request in self.make_requests():
            if plugin.applies(request):
                for instance in plugin.located(request):
                    self.assertIsInstance(instance, str)

    def test_shortfall_has_an_entry_for_each_host(self) -> None:
        plugin = builders.plugin(self.plugin)
        for request in self.make_requests():
            hosts = self.make_hosts(10)
            answer = None
            if plugin.applies(request):
                with self.reading():
                    answer = plugin.shortfall(hosts, request)
            if answer is not None:
                amounts, unit = answer
                self.assertEqual((10,), amounts.shape)
                self.assertIsInstance(unit, str)

    def test_each_host_has_a_single_reason(self) -> None:
        plugin = builders.plugin(self.plugin)
        if type(plugin).reasons is base.Filter.reasons:
            return
        for request in self.make_requests():
            hosts = self.make_hosts(10)
            if plugin.applies(request):
                with self.reading():
                    masks = [each.hosts for each
                             in plugin.reasons(hosts, request)]
                self.assertEqual(
                    [1] * 10, np.sum(masks, axis=0, dtype=int).tolist())
