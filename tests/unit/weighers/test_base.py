# SPDX-License-Identifier: Apache-2.0
"""The contract of a weigher."""

from cellsched.testing import builders
from cellsched.weighers import base as weighers
from cellsched.weighers import resources
from tests.unit import base


class TestWeigher(base.TestCase):

    def test_name_is_that_of_the_class(self):
        self.assertEqual(
            'RAMWeigher', builders.plugin(resources.RAMWeigher).name)

    def test_weigher_must_score(self):
        self.assertRaises(
            TypeError, type('Partial', (weighers.Weigher,), {}), None)

    def test_multiplier_is_that_of_the_option(self):
        plugin = builders.plugin(
            resources.RAMWeigher, ram_weight_multiplier=-2.5)

        self.assertEqual(-2.5, plugin.multiplier(builders.hosts()))

    def test_aggregates_override_it_for_their_hosts(self):
        plugin = builders.plugin(resources.RAMWeigher)
        hosts = builders.hosts(aggregates=[
            (builders.aggregate(1, ram_weight_multiplier='3'),
             builders.aggregate(2, ram_weight_multiplier='2')),
            (builders.aggregate(3, ram_weight_multiplier='many'),), ()])

        self.assertEqual([2.0, 1.0, 1.0], plugin.multiplier(hosts).tolist())

    def test_option_may_have_a_least_value(self):
        for least in (None, 0.0):
            kind = type('Some', (weighers.Weigher,), {
                'multiplier_name': 'some', 'multiplier_min': least,
                'multiplier_default': 4.0, 'score': None})
            (option,) = kind.opts()

            self.assertEqual(('some', 4.0, least), (
                option.name, option.default, option.type.min))

    def test_weigher_asks_for_nothing_unless_it_says_so(self):
        plugin = type('Whole', (weighers.Weigher,), {
            'multiplier_name': 'x', 'score': None})(None)

        self.assertTrue(plugin.applies(builders.request()))
        self.assertEqual([], list(plugin.located(builders.request())))
        self.assertEqual((None, None, False, False), (
            plugin.minval, plugin.maxval, plugin.local, plugin.by_row))
