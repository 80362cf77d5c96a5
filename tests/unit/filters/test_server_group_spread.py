# SPDX-License-Identifier: Apache-2.0
"""ServerGroupSpreadFilter."""

import random

import hypothesis
from hypothesis import strategies as st
import numpy as np

from cellsched import exception
from cellsched.filters import num_instances
from cellsched.filters import server_group_spread
from cellsched.scheduler.decision import pipeline
from cellsched.scheduler.selection.selector import SelectionPolicy
from cellsched.scheduler.selection.selector import Selector
from cellsched.testing import builders
from cellsched.testing.suite import filters
from cellsched.weighers import resources
from tests.unit import base
from tests.unit import strategies

MEMBERS = strategies.UUIDS
CELLS = ['a', 'a', 'b', 'b', 'c']

#: Uuids of cells.
ONE, TWO, THREE = (f'10000000-0000-4000-8000-{number:012}'
                   for number in range(3))


def requested(rules=None, hints=None, members=MEMBERS, **fields):
    return builders.request(
        group={'members': list(members), 'rules': rules or {}},
        hints=hints or {}, **fields)


def placed(*rows):
    """Return where members are, one in each of these rows."""
    return dict(zip(MEMBERS, rows))


class TestServerGroupSpreadFilter(filters.FilterSuite, base.TestCase):

    plugin = server_group_spread.ServerGroupSpreadFilter

    def make_requests(self):
        return [builders.request(), requested({'spread': 'az'}),
                builders.request(hints={'spread': 'host', 'max_skew': '2'})]

    def test_domain_may_be_ahead_by_the_skew(self):
        for skew, expected, *rows in (
                (None, 'aabbc'), (None, 'bbc', 0), (None, 'bb', 0, 4),
                (None, 'aabbc', 0, 2, 4), (None, 'bbc', 0, 1),
                (2, 'aabbc', 0), (2, 'bbc', 0, 1), (2, 'aabbc', 0, 1, 2, 4),
                (3, 'bbc', 0, 0, 1), (1000, 'aabbc', 0, 0, 0, 0)):
            rules = {'spread': 'cell'}
            if skew:
                rules['max_skew'] = str(skew)
            with self.subTest(skew=skew, rows=rows):
                self.assertKeeps(
                    [cell in expected for cell in CELLS],
                    builders.hosts(cell=CELLS, located=placed(*rows)),
                    requested(rules))

    def test_domains_are_cells_zones_or_hosts(self):
        hosts = builders.hosts(
            cell=['a', 'a', 'b', 'b'], located=placed(0),
            availability_zone=['x', 'y', 'x', 'y'])

        for domain, expected in (('cell', [False, False, True, True]),
                                 ('az', [False, True, False, True]),
                                 ('host', [False, True, True, True])):
            self.assertKeeps(expected, hosts, requested({'spread': domain}))
            self.assertKeeps(
                expected, hosts, requested(hints={'spread': domain}))

    def test_domain_without_remaining_hosts_does_not_count(self):
        hosts = builders.hosts(cell=CELLS, located=placed(0, 2))
        plugin = builders.plugin(self.plugin)
        request = requested({'spread': 'cell'})

        for rows, expected in (([0, 1, 2, 3], [True] * 4),
                               ([0, 4], [False, True]), ([1], [True]),
                               ([3, 4], [False, True]), ([], [])):
            self.assertEqual(expected, plugin.keep(
                hosts.at(np.array(rows, dtype='int64')), request).tolist())
        self.assertTrue(self.plugin.by_row)

    def test_domain_rejected_by_another_filter_does_not_count(self):
        hosts = builders.hosts(
            cell=CELLS, num_instances=[0, 0, 0, 0, 9], located=placed(0, 2))
        pipeline_ = pipeline.Pipeline([
            builders.plugin(num_instances.NumInstancesFilter,
                            max_instances_per_host=9),
            builders.plugin(self.plugin)], [])

        found = pipeline_.candidates(hosts, requested({'spread': 'cell'}))

        self.assertEqual([0, 1, 2, 3], found.rows.tolist())

    def test_rules_and_hints_hold_together(self):
        hosts = builders.hosts(cell=['a', 'a', 'b'], located=placed(0, 2))
        rules = {'spread': 'cell'}

        self.assertKeeps([True, True, True], hosts, requested(rules))
        self.assertKeeps([False, True, False], hosts, requested(
            rules, {'spread': 'host'}))
        self.assertKeeps([True, True, True], hosts, requested(
            rules, {'spread': 'host', 'max_skew': '2'}))
        self.assertKeeps([False, True, False], hosts, requested(
            {'spread': 'host'}, {'spread': 'cell'}))

    def test_max_skew_of_the_rules_does_not_apply_to_the_hint(self):
        hosts = builders.hosts(2, located=placed(0))
        rules = {'spread': 'cell', 'max_skew': '5'}

        self.assertKeeps([False, True], hosts, requested(
            rules, {'spread': 'host'}))

    def test_group_without_spread_is_not_filtered(self):
        plugin = builders.plugin(self.plugin)

        for request in (builders.request(), requested(),
                        requested({'max_server_per_host': '2'})):
            self.assertFalse(plugin.applies(request))

    def test_spread_hint_without_group_rejects_no_host(self):
        self.assertKeeps(
            [True, True], builders.hosts(2, located=placed(0)),
            builders.request(hints={'spread': 'host'}))

    def test_moved_server_does_not_count_in_its_domain(self):
        hosts = builders.hosts(cell=['a', 'b'], located=placed(0, 1))
        rules = {'spread': 'cell'}

        self.assertKeeps([True, False], hosts, requested(
            rules, instance_uuid=MEMBERS[0]))
        self.assertKeeps([True, True], hosts, requested(
            rules, instance_uuid=MEMBERS[0], num_instances=2))

    def test_bad_hint_is_named(self):
        for hints, expected in (
                ({'spread': 'rack'}, 'spread: expected one of cell, az, host'),
                ({'spread': ['cell', 'az']}, 'spread: expected one of'),
                ({'spread': ['cell'] * 100_000}, 'spread: expected one of'),
                ({'spread': '__class__'}, 'spread: expected one of'),
                ({'max_skew': '2'}, 'spread: expected one of'),
                *(({'spread': 'cell', 'max_skew': skew},
                   'max_skew: expected a whole number from 1 to 1000')
                  for skew in ('0', '-1', '1001', '1.0', 'nan', '', ' 1',
                               '\u0661', ['1', '2'], '1' * 100_000))):
            error = self.assertRaises(
                exception.InvalidField, self.assertKeeps, [], builders.hosts(),
                requested(hints=hints))
            self.assertIn(f'scheduler_hints.{expected}', str(error))
            self.assertLess(len(str(error)), 200)

    def test_bad_rule_is_named(self):
        for name, text in (('spread', 'rack'), ('max_skew', '0'),
                           ('max_skew', '9' * 100_000)):
            error = self.assertRaises(
                exception.InvalidField, self.assertKeeps, [], builders.hosts(),
                requested({'spread': 'cell', name: text}))
            self.assertIn(f'rules.{name}', str(error))

    def test_verdict_depends_on_earlier_choices_and_may_reopen(self):
        self.assertFalse(self.plugin.run_filter_once_per_request)
        self.assertFalse(self.plugin.local)
        self.assertTrue(self.plugin.reopens)

    def test_servers_of_a_request_use_each_domain_in_turn(self):
        hosts = builders.hosts(
            cell=[ONE, ONE, TWO, THREE, THREE],
            free_ram_mb=[16384, 16000, 4096, 2048, 1024])
        request = requested(hints={'spread': 'cell'}, num_instances=8)
        selector = Selector(
            pipeline.Pipeline(
                [builders.plugin(self.plugin)],
                [builders.plugin(resources.RAMWeigher)]),
            SelectionPolicy(random.Random(1)), hosts, request)

        for uuid in MEMBERS:
            self.assertTrue(selector.choose(uuid, None, last=False))

        cells = [each.cell_uuid for each, in selector.selections(0)]
        self.assertEqual([ONE, TWO, THREE] * 2 + [ONE, TWO], cells)

    @hypothesis.given(
        hosts=strategies.hosts(), members=st.sets(st.sampled_from(MEMBERS)),
        domain=st.sampled_from(['cell', 'az', 'host']),
        skew=st.integers(1, 4))
    def test_column_verdict_equals_row_verdicts(
            self, hosts, members, domain, skew):
        attribute = {'cell': 'cell', 'az': 'availability_zone',
                     'host': 'uuid'}[domain]
        counts = {}

        def count(host, request):
            name = getattr(host, attribute)
            counts[name] = counts.get(name, 0) + len(
                members.intersection(host.instances))

        def passes(host, request):
            return counts[getattr(host, attribute)] + 1 - min(
                counts.values()) <= skew

        request = requested({'spread': domain, 'max_skew': str(skew)},
                            members=members)
        strategies.kept_by_rows(count, hosts, request)
        self.assertEqual(
            strategies.kept_by_rows(passes, hosts, request),
            strategies.kept_by_columns(
                builders.plugin(self.plugin), hosts, request))
