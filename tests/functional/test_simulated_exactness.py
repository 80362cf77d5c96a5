# SPDX-License-Identifier: Apache-2.0
"""Simulated schedulers agree with real ones, as far as the page says."""

import csv
import pathlib

from benchmarks import simulated_exactness as exactness
from tests.functional import base
from tests import profile

MEASURED = (pathlib.Path(__file__).resolve().parents[2]
            / 'doc/source/admin/exactness.csv')

#: The rows of the page whose rate the simulation reaches within 20 %.
AGREEING = {('postgresql', 1), ('postgresql', 16), ('mariadb', 1),
            ('mariadb', 16)}


class TestFillUp(base.TestCase):

    def test_exact_stores_sell_each_place_once(self):
        for store in 'postgresql', 'etcd':
            found = exactness.fill_up(
                store, exactness.Size(4, clients=8, hosts=2))

            self.assertEqual((52, 52, 0, 0), (
                found.places, found.claims, found.oversold,
                found.refused_although_it_fitted), store)

    @profile.full_only('test_run has the late refusals of one scheduler')
    def test_schedulers_without_claims_sell_places_twice(self):
        found = exactness.fill_up(
            'nova-legacy', exactness.Size(4, clients=8, hosts=2))

        self.assertGreater(found.claims, 2 * found.places)

    @profile.full_only('a test of one store runs in the default profile')
    def test_simulated_rates_agree_with_measured_rates(self):
        with open(MEASURED, encoding='utf-8', newline='') as file:
            rows = {(row['store'], int(row['schedulers'])): float(
                row['claims_per_second']) for row in csv.DictReader(file)}
        for store, schedulers in sorted(AGREEING):
            found = exactness.fill_up(store, exactness.Size(schedulers))

            self.assertAlmostEqual(
                1, found.claims_per_second / rows[store, schedulers],
                delta=0.2, msg=f'{store}, {schedulers}')
