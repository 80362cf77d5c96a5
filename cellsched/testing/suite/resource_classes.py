# SPDX-License-Identifier: Apache-2.0
"""Tests that every resource class must pass."""

from typing import ClassVar

from cellsched.objects import resources
from cellsched import plugins
from cellsched.testing.suite.base import PluginSuite

#: Small ones, those around powers of two and of ten, and the largest.
AMOUNTS = sorted({
    *range(1, 70), *(root ** power + more for root in (2, 10)
                     for power in range(1, 31) for more in (-1, 0, 1)
                     if 1 <= root ** power + more < 2 ** 31 - 1),
    2 ** 31 - 1})


class ResourceClassSuite(PluginSuite):
    """The contract of a subclass of ``resource_classes.ResourceClass``."""

    #: The name of its entry point.
    name: ClassVar[str]

    def test_entry_point_has_the_name_of_a_resource_class(self) -> None:
        self.assertTrue(resources.is_known(self.name), self.name)
        self.assertIs(self.plugin, plugins.load(
            plugins.RESOURCE_CLASSES, self.name))

    def test_resource_class_can_be_used(self) -> None:
        resources.check_class(self.name, self.plugin)
        self.plugin()

    def test_taken_amount_is_whole_and_at_least_the_demand(self) -> None:
        made = self.plugin()
        for amount in AMOUNTS:
            taken = made.amount_taken(amount)
            self.assertIs(int, type(taken), amount)
            self.assertGreaterEqual(taken, amount)

    def test_same_demand_takes_the_same_everywhere(self) -> None:
        made, other = self.plugin(), self.plugin()
        first = [made.amount_taken(amount) for amount in AMOUNTS]
        self.assertEqual(first, [
            other.amount_taken(amount) for amount in reversed(AMOUNTS)][::-1])

    def test_larger_demand_takes_no_less(self) -> None:
        made = self.plugin()
        taken = [made.amount_taken(amount) for amount in AMOUNTS]
        self.assertEqual(sorted(taken), taken)

    def test_taken_amount_as_a_demand_is_taken_unchanged(self) -> None:
        made = self.plugin()
        for amount in AMOUNTS:
            taken = made.amount_taken(amount)
            if taken < 2 ** 31:
                self.assertEqual(taken, made.amount_taken(taken))
