# SPDX-License-Identifier: Apache-2.0
"""Runs of scenarios: placements, conflicts, and what a run finds."""

import json
import os
import subprocess
import sys

from cellsched import exception
from cellsched.simulator.capacity import run
from tests import profile
from tests.unit import base
from tests.unit.simulator.capacity import worlds


#: Prints the document of a run.
_PRINTS = """
import json
import sys

from cellsched.simulator.capacity import run

print(json.dumps(run.run(run.read('contention', None, sys.argv[1:]))))
"""


class TestRun(base.TestCase):

    def summary(self, made):
        document = made.go()
        self.assertEqual(
            {'oversold': 0, 'unaccounted': 0}, document['checks'])
        return document['summary']

    def test_servers_are_placed_until_the_hosts_are_full(self):
        for store in ('memory', 'postgresql', 'etcd', 'cassandra',
                      'placement', 'placement-generations'):
            made = worlds.make(
                worlds.arrivals(23), store={'kind': store},
                schedulers={'count': 2, 'threads': 4})

            found = self.summary(made)

            self.assertEqual((23, 20, 3, 0), (
                found['asked'], found['placed'], found['refused'],
                found['refused_although_it_fitted']), store)
            self.assertGreater(found['time_to_place_mean_s'], 0)
            self.assertGreater(found['scheduler_busy_s'], 0)

    def test_place_of_an_ended_server_is_used_again(self):
        for keys in ({}, {'store': {'kind': 'etcd'}},
                     {'schedulers': {'back_to_back': True}}):
            made = worlds.make([
                *worlds.arrivals(20, lifetime_s=10),
                *worlds.arrivals(20, at=60)], **keys)

            found = self.summary(made)

            self.assertEqual((40, 20, 0), (
                found['placed'], found['removed'], found['refused']), keys)

    def test_decisions_back_to_back_take_no_time(self):
        made = worlds.make(
            worlds.arrivals(21), schedulers={'back_to_back': True})

        found = self.summary(made)

        self.assertEqual((20, 1, 0), (
            found['placed'], found['refused'],
            found['time_to_place_mean_s']))
        self.assertEqual([[10, 5120, 0]] * 2, made.deployment.used.tolist())

    def test_servers_at_the_start_are_not_builds_in_progress(self):
        made = worlds.make(worlds.arrivals(5, at=0, spacing_s=0), schedulers={
            'configuration': {'filter_scheduler': {
                **worlds.PACK, 'io_ops_weight_multiplier': -100.0,
                'weight_classes': ['RAMWeigher', 'IoOpsWeigher'],
                'enabled_filters': ['ComputeFilter', 'IoOpsFilter'],
                'max_io_ops_per_host': 1}}})

        made.go()

        self.assertEqual(
            [[0, 0, 0], [5, 2560, 0]], sorted(made.deployment.used.tolist()))

    def test_two_runs_with_a_seed_are_the_same(self):
        keys = {'schedulers': {'count': 3}, 'hosts': worlds.hosts(*[9] * 9),
                'faults': [{'at': 5, 'kind': 'mass-delete'}]}
        first, second, other = (json.dumps(worlds.make(
            worlds.arrivals(90, spacing_s=0.001, lifetime_s=60),
            seed=seed, **keys).go()) for seed in (1, 1, 2))

        self.assertEqual(first, second)
        self.assertNotEqual(first, other)

    @profile.full_only('test_two_runs_with_a_seed_are_the_same repeats a run')
    def test_order_of_sets_does_not_affect_the_run(self):
        """The order of sets of texts is another one in each process."""
        changes = ['store.kind=placement', 'hours=0.0006',
                   'load.batches=[[1.9, 0], [5, 100]]',
                   'load.groups={affinity: 0.5, anti-affinity: 0.5}']
        first, second = (subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', _PRINTS, *changes],
            check=True, capture_output=True, text=True,
            env={**os.environ, 'PYTHONHASHSEED': number}).stdout
            for number in ('1', '2'))

        self.assertEqual(first, second)

    def test_overselling_store_is_found(self):
        for store in ('memory', 'postgresql'):
            made = worlds.make(worlds.arrivals(40), store={
                'kind': store, 'defect': 0.2})

            found = made.go()['checks']

            self.assertGreater(found['oversold'], 0, store)

    def test_lost_claims_are_found(self):
        made = worlds.make(worlds.arrivals(5))
        made.engine.call_at(100, lambda: made.ledger.release([
            next(iter(made.servers)).uuid]))

        self.assertEqual(1, made.go()['checks']['unaccounted'])

    def test_unknown_option_is_refused(self):
        exc = self.assertRaises(
            exception.InvalidField, worlds.make, [], schedulers={
                'configuration': {'scheduler': {'max_atempts': 1}}})

        self.assertIn('max_attempts', str(exc))
        self.assertNotIn('/tmp', str(exc))


class TestPublishedFigures(base.TestCase):
    """Figures that published measurements have."""

    def test_two_packing_schedulers_retry_a_fifth(self):
        """As with Nova's schedulers of old, about 19 % on five hosts."""
        made = worlds.make(
            worlds.arrivals(160), hosts=worlds.hosts(*[40] * 5),
            store={'kind': 'nova-legacy'}, schedulers={
                'count': 2, 'threads': 1, 'decision_ms': 10,
                'configuration': {'scheduler': {'refresh_interval': 0},
                                  'filter_scheduler': worlds.PACK}})

        found = made.go()['summary']

        self.assertAlmostEqual(0.19, found['retries'] / 160, delta=0.04)
        self.assertEqual(160, found['placed'])

    @profile.full_only('the same as with two schedulers of three stores')
    def test_claims_avoid_late_retries(self):
        made = worlds.make(
            worlds.arrivals(90), hosts=worlds.hosts(*[20] * 5),
            schedulers={'count': 2, 'threads': 1, 'decision_ms': 10,
                        'configuration': {'filter_scheduler': worlds.PACK}})

        found = made.go()['summary']

        self.assertEqual((90, 0), (found['placed'], found['conflicts']))

    def test_seldom_reporting_cells_refuse_late(self):
        """As with cells v1: 15 servers, in cells with 12 and 10 places."""
        made = worlds.make(
            worlds.arrivals(15), hosts=worlds.hosts(12, 10),
            store={'kind': 'cells-v1'}, schedulers={'threads': 1})

        found = made.go()['summary']

        self.assertIn(found['conflicts'], (2, 3))
        self.assertEqual((15, found['conflicts']), (
            found['placed'] + found['refused'], found['refused']))


class TestCompare(base.TestCase):

    def test_figures_are_beside_each_other_with_their_change(self):
        rows = run.compare(
            {'summary': {'placed': 3, 'lost': None, 'new': 1}},
            {'summary': {'placed': 2, 'lost': 4, 'old': 0}})

        self.assertEqual(
            [('placed', 3, 2, 0.5), ('lost', None, 4, None),
             ('new', 1, None, None), ('old', None, 0, None)],
            [tuple(row.values()) for row in rows])
