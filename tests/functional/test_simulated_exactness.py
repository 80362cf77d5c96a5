# SPDX-License-Identifier: Apache-2.0
"""Simulated schedulers agree with real ones, as far as the page says."""

import csv
import pathlib
import re

from benchmarks import simulated_exactness as exactness
from tests.functional import base
from tests import profile

PAGES = pathlib.Path(__file__).resolve().parents[2] / 'doc/source/admin'

#: Names of stores on the page, and the first cells of their rows.
ROW = re.compile(r'   \* - (\w+)\n     - ([\d, ]+)\n     - [\d, ]+\n')

#: Rows of the page whose rate a single seed reaches within 20 %, too.
AGREEING = {('postgresql', 1), ('mariadb', 1), ('etcd', 1), ('cassandra', 4)}


def measured():
    """Return measured rates by store and number of schedulers."""
    with open(PAGES / 'exactness.csv', encoding='utf-8', newline='') as file:
        return {(row['store'], int(row['schedulers'])): float(
            row['claims_per_second']) for row in csv.DictReader(file)}


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

    def test_page_compares_with_the_measured_rates(self):
        rows = ROW.findall((PAGES / 'simulation.rst').read_text())
        self.assertEqual(5, len(rows))
        rates = measured()
        self.assertEqual(
            {store: ', '.join(
                f'{rates[store.lower(), count]:.0f}' for count in (1, 4, 16))
             for store, _ in rows},
            dict(rows))

    @profile.full_only('a test of one store runs in the default profile')
    def test_simulated_rates_agree_with_measured_rates(self):
        rates = measured()
        for store, schedulers in sorted(AGREEING):
            found = exactness.fill_up(store, exactness.Size(schedulers))

            self.assertAlmostEqual(
                1, found.claims_per_second / rates[store, schedulers],
                delta=0.2, msg=f'{store}, {schedulers}')
