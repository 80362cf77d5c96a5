# SPDX-License-Identifier: Apache-2.0
"""Comparisons are stored for a limited time."""

import pathlib
import tempfile
import unittest

from cellsched import clock
from cellsched.db import session
from cellsched_nova.shadow import comparison as comparing

Outcome = comparing.Outcome
SERVER = '10000000-0000-4000-8000-000000000000'


def comparison(at, outcome=Outcome.SAME, reason='', request_id='req-1',
               instance=SERVER):
    return comparing.Comparison(
        at, request_id, instance, 'host1', 'host2',
        comparing.Verdict(outcome, reason, 'rank 2'), 0.25, 1)


class TestComparisonStore(unittest.TestCase):

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = pathlib.Path(directory.name, 'records')
        self.store = self.open()

    def open(self, **options):
        databases = session.Databases(clock.Clock())
        self.addCleanup(databases.close)
        return comparing.ComparisonStore(databases.get(
            f'sqlite:///{self.path}', 'records'), 100.0, **options)

    def test_read_creates_no_database(self):
        self.assertEqual([], self.store.groups())
        self.assertEqual([], list(self.store.find(SERVER)))
        self.assertFalse(self.path.exists())

    def test_comparison_is_found_by_server_and_by_request(self):
        one = comparison(1000.0)
        self.store.add(one)

        for name in (SERVER, 'req-1'):
            self.assertEqual([one], list(self.open().find(name)))
        self.assertEqual([], list(self.store.find('req-2')))

    def test_groups_are_counted_and_the_newest_is_an_example(self):
        for at in 1000.0, 1001.0:
            self.store.add(comparison(at))
        rejected = comparison(1002.0, Outcome.REJECTED, 'ComputeFilter')
        self.store.add(rejected)

        same, other = self.store.groups()

        self.assertEqual((Outcome.SAME, 2, 1000.0, 1001.0, 1001.0),
                         (same.outcome, same.requests, same.first_at,
                          same.last_at, same.example.compared_at))
        self.assertEqual((Outcome.REJECTED, 'ComputeFilter', rejected),
                         (other.outcome, other.reason, other.example))

    def test_expired_comparison_is_removed(self):
        for at in 1000.0, 1050.0, 1120.0:
            self.store.add(comparison(at))
        self.store.purge(1120.0)

        self.assertEqual([1120.0, 1050.0], [
            each.compared_at for each in self.store.find(SERVER)])

    def test_first_added_comparison_removes_expired_ones(self):
        self.store.add(comparison(1000.0))
        self.open().add(comparison(2000.0))

        self.assertEqual(1, len(self.store.find(SERVER)))

    def test_oldest_of_too_many_comparisons_are_removed(self):
        store = self.open(rows_max=2)
        for at in range(5):
            store.add(comparison(1000.0 + at))
        store.purge(1004.0)

        self.assertEqual([1004.0, 1003.0], [
            each.compared_at for each in store.find(SERVER)])

    def test_long_reason_is_cut(self):
        self.store.add(comparison(1000.0, Outcome.NONE, 'x' * 1000))

        [one] = self.store.find(SERVER)
        self.assertEqual('x' * 255, one.verdict.reason)
