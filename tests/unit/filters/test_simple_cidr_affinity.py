# SPDX-License-Identifier: Apache-2.0
"""SimpleCIDRAffinityFilter."""

import hypothesis
from hypothesis import strategies as st

from cellsched import exception
from cellsched.filters import simple_cidr_affinity
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.filters import agreeing
from tests.unit import strategies


def request(near, cidr=()):
    return builders.request(
        hints={'build_near_host_ip': near, 'cidr': cidr})


class TestSimpleCIDRAffinityFilter(
        agreeing.Agreeing, filters.FilterSuite, base.TestCase):

    plugin = simple_cidr_affinity.SimpleCIDRAffinityFilter

    def make_requests(self):
        return [builders.request(), request('10.0.0.1', '/30')]

    def make_hosts(self, count):
        return builders.hosts(
            host_ip=[f'10.0.0.{row}' for row in range(count)])

    def test_host_must_be_in_the_network(self):
        hosts = builders.hosts(host_ip=[
            '10.0.0.1', '10.0.0.200', '10.0.1.1', 'fd00::1', 'fd00::1:0:1',
            None, 'junk'])
        for expected, near, cidr in (
                ([1, 1, 0, 0, 0, 0, 0], '10.0.0.7', ()),
                ([1, 1, 1, 0, 0, 0, 0], '10.0.0.7', '/16'),
                ([1, 1, 1, 0, 0, 0, 0], '10.0.0.7', '/255.255.0.0'),
                ([1, 0, 0, 0, 0, 0, 0], '10.0.0.1', '/32'),
                ([1, 1, 1, 0, 0, 0, 0], '10.0.0.1', '/0'),
                ([0, 0, 0, 1, 0, 0, 0], 'fd00::2', '/112'),
                ([0, 0, 0, 1, 1, 0, 0], 'fd00::2', ()),
                ([0, 0, 0, 1, 1, 0, 0], '::', '/0')):
            with self.subTest(near=near, cidr=cidr):
                self.assertKeeps(
                    list(map(bool, expected)), hosts, request(near, cidr))

    def test_request_without_hints_is_not_filtered(self):
        plugin = builders.plugin(self.plugin)

        for nothing in ((), ''):
            self.assertFalse(plugin.applies(request(nothing, nothing)))

    def test_prefix_length_without_an_address_is_refused(self):
        plugin = builders.plugin(self.plugin)
        for near in ((), ''):
            asked = request(near, '/24')
            self.assertTrue(plugin.applies(asked))

            error = self.assertRaises(exception.InvalidField, plugin.keep,
                                      builders.hosts(2), asked)

            self.assertEqual(
                'scheduler_hints.build_near_host_ip', error.field)

    def test_bad_hint_is_refused(self):
        near = ('x', '10.0.0.256', '10.0.0.01', '10.0.0.1/24', '10.0.0',
                '1' * 10_000_000, '10.0.0.\u0661', '10.0.0.1\n', '167772161',
                'fe80::1%eth0', ['10.0.0.1', '10.0.0.2'], "' OR 1=1 --")
        cidr = ('24', '/33', '/-1', '/x', '/', '//24', '/24\n', '/\u0662',
                '/24/24', '/' + '9' * 10_000_000, '/255.0.255.0',
                ['/24', '/24'])
        for hint, values in (('build_near_host_ip', near), ('cidr', cidr)):
            for value in values:
                with self.subTest(hint=hint, value=str(value)[:60]):
                    hints = {'build_near_host_ip': '10.0.0.1', hint: value}
                    error = self.assertRaises(
                        exception.InvalidField,
                        builders.plugin(self.plugin).keep, builders.hosts(2),
                        builders.request(hints=hints))
                    self.assertEqual(f'scheduler_hints.{hint}', error.field)
                    self.assertLess(len(str(error)), 200)

    @hypothesis.given(
        hosts=strategies.hosts(host_ip=st.integers(0, 255).map(
            lambda number: f'10.0.{number % 2}.{number}')),
        last=st.integers(0, 255), size=st.integers(24, 32))
    def test_column_verdict_equals_row_verdicts(self, hosts, last, size):
        def passes(host, request):
            *start, end = map(int, host.host_ip.split('.'))
            shift = 32 - size
            return start == [10, 0, 0] and end >> shift == last >> shift

        self.assertAgrees(
            passes, hosts, request(f'10.0.0.{last}', f'/{size}'))
