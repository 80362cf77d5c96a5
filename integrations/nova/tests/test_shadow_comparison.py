# SPDX-License-Identifier: Apache-2.0
"""Selections of two schedulers are compared."""

import pathlib
import tempfile
import unittest
import weakref

from cellsched import clock
from cellsched.db import session
from cellsched.filters import compute
from cellsched.scheduler.decision import pipeline
from cellsched.scheduler.decision import ranking
from cellsched.testing import builders
from cellsched.weighers import resources
from cellsched_nova.shadow import comparison

Outcome = comparison.Outcome


class TestCase(unittest.TestCase):

    def setUp(self):
        # The last host has most memory and is disabled.
        self.hosts = builders.hosts(
            free_ram_mb=[1024, 2048, 4096, 4096, 8192],
            vcpus_used=[0, 0, 2, 2, 0],
            service_disabled=[False] * 4 + [True])
        self.uuids = list(self.hosts['uuid'])
        self.pipeline = pipeline.Pipeline(
            [builders.plugin(compute.ComputeFilter)],
            [builders.plugin(resources.RAMWeigher),
             builders.plugin(resources.CPUWeigher,
                             cpu_weight_multiplier=0.1)])

    def host_ranking(self, **wishes):
        request = builders.request(**wishes)
        found = self.pipeline.candidates(self.hosts, request)
        self.ranking = self.pipeline.weigh(request, found)
        return comparison.HostRanking(self.hosts, found, self.ranking)

    def compare(self, ours, novas, **named):
        ours, novas = (None if place is None else self.uuids[place]
                       for place in (ours, novas))
        return comparison.compare(ours, novas, self.host_ranking(), **named)


class TestCompare(TestCase):

    def test_same_host_agrees(self):
        verdict = self.compare(2, 2)

        self.assertIs(Outcome.SAME, verdict.outcome)
        self.assertTrue(verdict.outcome.agrees)

    def test_host_of_equal_weight_agrees(self):
        verdict = self.compare(2, 3)

        self.assertEqual((Outcome.EQUAL, ''),
                         (verdict.outcome, verdict.reason))

    def test_host_of_less_weight_has_the_weigher_as_reason(self):
        verdict = self.compare(2, 0)

        self.assertEqual((Outcome.WEIGHT, 'RAMWeigher'),
                         (verdict.outcome, verdict.reason))
        self.assertRegex(verdict.detail, '^rank [34], .*RAMWeigher .*'
                                         'CPUWeigher -')
        self.assertFalse(verdict.outcome.agrees)

    def test_host_of_the_random_subset_of_nova_agrees(self):
        self.assertIs(Outcome.WEIGHT, self.compare(2, 1).outcome)
        verdict = self.compare(2, 1, subset_size=3)

        self.assertIs(Outcome.EQUAL, verdict.outcome)
        self.assertIn('random selection', verdict.reason)

    def test_rejected_host_has_the_filter_as_reason(self):
        verdict = self.compare(2, 4)

        self.assertEqual((Outcome.REJECTED, 'ComputeFilter'),
                         (verdict.outcome, verdict.reason))

    def test_unknown_host_is_rejected(self):
        verdict = comparison.compare(
            self.uuids[0], builders.CELL, self.host_ranking())

        self.assertEqual((Outcome.REJECTED, 'host not known'),
                         (verdict.outcome, verdict.reason))

    def test_missing_host_has_the_filter_of_nova_s_host_as_reason(self):
        verdict = self.compare(None, 4, text='none had room')

        self.assertEqual((Outcome.NONE, 'ComputeFilter', 'none had room'),
                         (verdict.outcome, verdict.reason, verdict.detail))
        self.assertEqual('none had room', comparison.compare(
            None, self.uuids[0], None, text='none had room').reason)

    def test_host_missing_in_nova_has_a_separate_outcome(self):
        self.assertIs(Outcome.MORE, self.compare(2, None).outcome)
        self.assertIs(Outcome.NEITHER, self.compare(None, None).outcome)


class TestHostRanking(TestCase):

    def test_later_claim_does_not_change_the_ranking(self):
        host_ranking = self.host_ranking()
        self.ranking.detach()
        before = host_ranking.weight(self.uuids[2])

        self.hosts.take(2, {'MEMORY_MB': 4096})

        self.assertEqual(before, host_ranking.weight(self.uuids[2]))
        self.assertEqual(0, host_ranking.better(self.uuids[2]))

    def test_best_host_is_none_if_all_are_rejected(self):
        self.assertIsNone(self.host_ranking(memory_mb=10 ** 9).best)
        self.assertIn(self.host_ranking().best, self.uuids[2:4])

    def test_ranking_references_no_hosts_or_stages(self):
        request = builders.request()
        stage = builders.plugin(compute.ComputeFilter)
        found = pipeline.Pipeline([stage], ()).candidates(self.hosts, request)
        host_ranking = comparison.HostRanking(
            self.hosts, found, ranking.Ranking(found.filtered.hosts))
        kept = [weakref.ref(each) for each in (self.hosts, stage)]

        del found, stage, self.hosts, self.pipeline, request

        self.assertEqual([None, None], [each() for each in kept])
        self.assertIsNotNone(host_ranking.best)


SERVER = '10000000-0000-4000-8000-000000000000'


def stored(at, outcome=Outcome.SAME, reason='', request_id='req-1',
           instance=SERVER):
    return comparison.Comparison(
        at, request_id, instance, 'host1', 'host2',
        comparison.Verdict(outcome, reason, 'rank 2'), 0.25, 1)


class TestComparisonStore(unittest.TestCase):

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = pathlib.Path(directory.name, 'records')
        self.store = self.open()

    def open(self, **options):
        databases = session.Databases(clock.Clock())
        self.addCleanup(databases.close)
        return comparison.ComparisonStore(databases.get(
            f'sqlite:///{self.path}', 'records'), 100.0, **options)

    def test_read_creates_no_database(self):
        self.assertEqual([], self.store.groups())
        self.assertEqual([], list(self.store.find(SERVER)))
        self.assertFalse(self.path.exists())

    def test_comparison_is_found_by_server_and_by_request(self):
        one = stored(1000.0)
        self.store.add(one)

        for name in (SERVER, 'req-1'):
            self.assertEqual([one], list(self.open().find(name)))
        self.assertEqual([], list(self.store.find('req-2')))

    def test_groups_are_counted_and_the_newest_is_an_example(self):
        for at in 1000.0, 1001.0:
            self.store.add(stored(at))
        rejected = stored(1002.0, Outcome.REJECTED, 'ComputeFilter')
        self.store.add(rejected)

        same, other = self.store.groups()

        self.assertEqual((Outcome.SAME, 2, 1000.0, 1001.0, 1001.0),
                         (same.outcome, same.requests, same.first_at,
                          same.last_at, same.example.compared_at))
        self.assertEqual((Outcome.REJECTED, 'ComputeFilter', rejected),
                         (other.outcome, other.reason, other.example))

    def test_expired_comparison_is_removed(self):
        for at in 1000.0, 1050.0, 1120.0:
            self.store.add(stored(at))
        self.store.purge(1120.0)

        self.assertEqual([1120.0, 1050.0], [
            each.compared_at for each in self.store.find(SERVER)])

    def test_first_added_comparison_removes_expired_comparisons(self):
        self.store.add(stored(1000.0))
        self.open().add(stored(2000.0))

        self.assertEqual(1, len(self.store.find(SERVER)))

    def test_oldest_comparisons_above_the_limit_are_removed(self):
        store = self.open(rows_max=2)
        for at in range(5):
            store.add(stored(1000.0 + at))
        store.purge(1004.0)

        self.assertEqual([1004.0, 1003.0], [
            each.compared_at for each in store.find(SERVER)])

    def test_long_reason_is_cut(self):
        self.store.add(stored(1000.0, Outcome.NONE, 'x' * 1000))

        [one] = self.store.find(SERVER)
        self.assertEqual('x' * 255, one.verdict.reason)
