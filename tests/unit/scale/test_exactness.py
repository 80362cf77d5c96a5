# SPDX-License-Identifier: Apache-2.0
"""Simulated schedulers agree with the figures of real ones."""

from cellsched.scale import exactness
from tests.unit import base


class TestFillUp(base.TestCase):

    def test_exact_stores_sell_each_place_once(self):
        for store in 'postgresql', 'etcd':
            found = exactness.fill_up(
                store, exactness.Size(4, clients=8, hosts=2))

            self.assertEqual((52, 52, 0, 0), (
                found.places, found.claims, found.oversold,
                found.refused_although_it_fitted), store)

    def test_schedulers_without_claims_sell_places_twice(self):
        found = exactness.fill_up(
            'nova-legacy', exactness.Size(4, clients=8, hosts=2))

        self.assertGreater(found.claims, 2 * found.places)
