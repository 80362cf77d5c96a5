# SPDX-License-Identifier: Apache-2.0
"""Selections of two schedulers are compared."""

import unittest
import weakref

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

    def standings(self, **wishes):
        request = builders.request(**wishes)
        found = self.pipeline.candidates(self.hosts, request)
        self.ranking = self.pipeline.weigh(request, found)
        return comparison.HostRanking(self.hosts, found, self.ranking)

    def compare(self, ours, novas, **named):
        ours, novas = (None if place is None else self.uuids[place]
                       for place in (ours, novas))
        return comparison.compare(ours, novas, self.standings(), **named)


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
            self.uuids[0], builders.CELL, self.standings())

        self.assertEqual((Outcome.REJECTED, 'host not known'),
                         (verdict.outcome, verdict.reason))

    def test_missing_host_has_the_filter_of_nova_s_host_as_reason(self):
        verdict = self.compare(None, 4, text='none had room')

        self.assertEqual((Outcome.NONE, 'ComputeFilter', 'none had room'),
                         (verdict.outcome, verdict.reason, verdict.detail))
        self.assertEqual('none had room', comparison.compare(
            None, self.uuids[0], None, text='none had room').reason)

    def test_host_found_only_here_has_its_own_outcome(self):
        self.assertIs(Outcome.MORE, self.compare(2, None).outcome)
        self.assertIs(Outcome.NEITHER, self.compare(None, None).outcome)


class TestHostRanking(TestCase):

    def test_later_claim_does_not_change_it(self):
        standings = self.standings()
        self.ranking.detach()
        before = standings.weight(self.uuids[2])

        self.hosts.take(2, {'MEMORY_MB': 4096})

        self.assertEqual(before, standings.weight(self.uuids[2]))
        self.assertEqual(0, standings.better(self.uuids[2]))

    def test_best_host_is_none_if_all_are_rejected(self):
        self.assertIsNone(self.standings(memory_mb=10 ** 9).best)
        self.assertIn(self.standings().best, self.uuids[2:4])

    def test_it_references_neither_hosts_nor_stages(self):
        request = builders.request()
        stage = builders.plugin(compute.ComputeFilter)
        found = pipeline.Pipeline([stage], ()).candidates(self.hosts, request)
        standings = comparison.HostRanking(
            self.hosts, found, ranking.Ranking(found.filtered.hosts))
        kept = [weakref.ref(each) for each in (self.hosts, stage)]

        del found, stage, self.hosts, self.pipeline, request

        self.assertEqual([None, None], [each() for each in kept])
        self.assertIsNotNone(standings.best)
