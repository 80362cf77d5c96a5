# SPDX-License-Identifier: Apache-2.0
"""The suite of weighers finds what is wrong."""

import numpy as np
from oslo_config import cfg

from cellsched.testing import builders
from cellsched.testing.suite import weighers as suite
from cellsched.weighers import resources
from tests.unit import base
from tests.unit.testing.suite import runner


class Suite(suite.WeigherSuite):
    """Is the suite over a weigher that nobody installed."""

    installed = False


class TestWeigherSuite(base.TestCase):

    def assertFinds(self, expected, **wrong):
        """Check which test finds what is wrong."""
        kind = type('Wrong', (resources.RAMWeigher,),
                    {'__doc__': 'Is wrong.'} | wrong)
        self.assertIn(expected, runner.failures(Suite, kind))

    def test_sound_weigher_passes(self):
        self.assertEqual(set(), runner.failures(
            suite.WeigherSuite, resources.RAMWeigher))

    def test_scores_of_the_wrong_shape_are_found(self):
        self.assertFinds('test_answer_has_an_entry_for_each_host',
                         score=lambda *args: np.ones(3))

    def test_scores_other_than_finite_numbers_are_detected(self):
        for value in (np.nan, np.inf, 'a', None):
            self.assertFinds(
                'test_scores_are_finite_numbers',
                score=lambda self, hosts, _: np.array([value] * len(hosts)))

    def test_local_weigher_depending_on_other_hosts_is_detected(self):
        def part_of_all(self, hosts, request):
            return hosts['free_ram_mb'] / len(hosts)

        self.assertFinds('test_local_answers_depend_on_no_other_host',
                         score=part_of_all)

    def test_weigher_returning_none_passes(self):
        kind = type('Right', (resources.RAMWeigher,), {
            '__doc__': 'Is right.', 'score': lambda *args: None})

        self.assertEqual(set(), runner.failures(Suite, kind))

    def test_multiplier_without_an_option_is_found(self):
        self.assertFinds('test_multiplier_is_an_option_with_its_default',
                         opts=classmethod(lambda cls: []))
        self.assertFinds(
            'test_multiplier_is_an_option_with_its_default',
            opts=classmethod(lambda cls: [
                cfg.FloatOpt(cls.multiplier_name, default=3.0)]))

    def test_multiplier_of_the_wrong_shape_is_found(self):
        self.assertFinds('test_multiplier_is_for_all_hosts_or_for_each',
                         multiplier=lambda *args: np.ones(3))

    def test_empty_range_of_bounds_is_detected(self):
        self.assertFinds('test_bounds_are_in_order', minval=1, maxval=1)


class TestAssertScores(Suite, base.TestCase):

    plugin = resources.RAMWeigher

    def test_scores_are_compared(self):
        hosts = builders.hosts(free_ram_mb=[1, 2])

        self.assertScores([1, 2], hosts)
        self.assertRaises(AssertionError, self.assertScores, [2, 1], hosts)
