# SPDX-License-Identifier: Apache-2.0
"""DifferentHostFilter and SameHostFilter."""

import uuid

import hypothesis
from hypothesis import strategies

from cellsched import exception
from cellsched.filters import instance_hints
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests import profile
from tests.unit import base
from tests.unit.hosts import rows

SERVERS = [str(uuid.UUID(int=0xabcdef + number)) for number in range(101)]


class HintCase(filters.FilterSuite):
    """Common to both; ``hint`` is what the filter reads.

    ``keeps_named`` tells whether hosts of named servers are kept.
    """

    def request(self, servers):
        return builders.request(hints={self.hint: servers})

    def assertRefuses(self, servers):
        plugin = builders.plugin(self.plugin)
        for question in (plugin.located,
                         lambda asked: plugin.keep(builders.hosts(2), asked)):
            error = self.assertRaises(
                exception.InvalidField, question, self.request(servers))
            self.assertEqual(f'scheduler_hints.{self.hint}', error.field)
            self.assertLess(len(str(error)), 200)
        return error

    def test_request_without_the_hint_is_not_filtered(self):
        plugin = builders.plugin(self.plugin)

        for hints in ({}, {self.hint: []}):
            self.assertFalse(plugin.applies(builders.request(hints=hints)))

    def test_named_servers_are_to_be_located_once_each(self):
        plugin = builders.plugin(self.plugin)
        spellings = [SERVERS[0], SERVERS[0].upper(),
                     SERVERS[0].replace('-', ''), SERVERS[1]]

        self.assertEqual(SERVERS[:2],
                         list(plugin.located(self.request(spellings))))

    def test_more_than_a_hundred_servers_are_refused(self):
        error = self.assertRefuses(SERVERS)

        self.assertIn('100', error.detail)

    def test_text_other_than_a_uuid_is_refused(self):
        for value in ('', 'server1', SERVERS[0] + '\n', SERVERS[0] + ' ',
                      '{' + SERVERS[0] + '}', 'urn:uuid:' + SERVERS[0],
                      SERVERS[0].replace('a', '\u0430'),
                      '\u0661' * 32, 'a' * 10_000_000, '%s%n', '../etc',
                      SERVERS[0].replace('0', '\0')):
            self.assertRefuses([value])
            self.assertRefuses([SERVERS[0], value])

    def expect(self, *is_named):
        """Return the verdicts on hosts with or without a named server."""
        return [each == self.keeps_named for each in is_named]

    def test_host_of_a_named_server_is_decided_on(self):
        hosts = builders.hosts(
            4, located={SERVERS[0]: 1, SERVERS[1]: 3, SERVERS[2]: 0})

        self.assertKeeps(
            self.expect(False, True, False, True), hosts,
            self.request([SERVERS[0], SERVERS[1]]))

    def test_server_on_no_known_host_names_no_host(self):
        self.assertKeeps(self.expect(False, False), builders.hosts(2),
                         self.request(SERVERS[:1]))

    def test_a_hundred_servers_may_be_named(self):
        hosts = builders.hosts(2, located={SERVERS[99]: 0})

        self.assertKeeps(self.expect(True, False), hosts,
                         self.request(SERVERS[:100] * 1000))

    @hypothesis.settings(suppress_health_check=profile.SHARED)
    @hypothesis.given(
        table=rows.ROWS,
        located=strategies.lists(strategies.integers(0, 11), max_size=5),
        named=strategies.lists(strategies.integers(0, 6), max_size=5))
    def test_column_verdict_equals_row_verdicts(self, table, located, named):
        located = {SERVERS[number]: row for number, row in enumerate(located)
                   if row < len(table)}
        theirs = {located.get(SERVERS[number]) for number in named}

        self.assertKeeps(
            [not named or (row in theirs) == self.keeps_named
             for row in range(len(table))],
            rows.hosts(table, located=located),
            self.request([SERVERS[number] for number in named]))


class TestDifferentHostFilter(HintCase, base.TestCase):

    plugin = instance_hints.DifferentHostFilter
    hint, keeps_named = 'different_host', False


class TestSameHostFilter(HintCase, base.TestCase):

    plugin = instance_hints.SameHostFilter
    hint, keeps_named = 'same_host', True
