# SPDX-License-Identifier: Apache-2.0
"""The suite of resource classes finds what is wrong."""

import itertools

from cellsched.testing.suite import resource_classes as suite
from tests.unit.objects import test_resources
from tests.unit.testing.suite import runner


class Suite(suite.ResourceClassSuite):
    """Is the suite over a class that has this name."""

    name = 'CUSTOM_SEATS'


class TestResourceClassSuite(test_resources.ClassTestCase):

    def setUp(self):
        super().setUp()
        self.install(('CUSTOM_SEATS', 'tests.unit.objects.'
                      'test_resources:Seats'))

    def assertFinds(self, expected, amount_taken=None, **wrong):
        """Check which test finds what is wrong."""
        if amount_taken is not None:
            wrong['amount_taken'] = lambda self, amount: amount_taken(amount)
        kind = type('Wrong', (test_resources.Seats,),
                    {'__doc__': 'Is wrong.'} | wrong)
        self.assertIn(expected, runner.failures(Suite, kind))

    def test_sound_class_passes(self):
        self.assertEqual(
            set(), runner.failures(
                Suite, test_resources.Seats))

    def test_uninstalled_class_is_detected(self):
        self.assertFinds('test_entry_point_has_the_name_of_a_resource_class')

    def test_class_without_documentation_is_found(self):
        self.assertFinds('test_class_has_documentation', __doc__=None)

    def test_unusable_class_is_detected(self):
        self.assertFinds('test_resource_class_can_be_used', word='x' * 41)
        self.assertFinds('test_resource_class_can_be_used',
                         __init__=lambda self, it: None)

    def test_charge_below_the_demand_is_detected(self):
        for taken in (lambda amount: amount - 1, float,
                      lambda amount: amount // 8 * 8):
            self.assertFinds(
                'test_taken_amount_is_whole_and_at_least_the_demand',
                taken)

    def test_changing_charge_is_detected(self):
        counter = itertools.count()
        self.assertFinds('test_same_demand_takes_the_same_everywhere',
                         lambda amount: amount + next(counter))

    def test_charge_decreasing_with_the_demand_is_detected(self):
        self.assertFinds('test_larger_demand_takes_no_less',
                         lambda amount: amount + 9 * (amount % 2))

    def test_charge_of_a_charge_above_the_first_is_detected(self):
        self.assertFinds('test_taken_amount_as_a_demand_is_taken_unchanged',
                         lambda amount: amount + 1)
