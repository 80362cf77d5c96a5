# SPDX-License-Identifier: Apache-2.0
"""ComputeFilter and RetryFilter."""

import hypothesis
from hypothesis import strategies

from cellsched.filters import compute
from cellsched import objects
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.filters import agreeing
from tests.unit.hosts import rows
from tests.unit import strategies as generated


def keeps(row, service_down_time):
    """Return what the filter says of one host."""
    if row['service_disabled'] or row['forced_down']:
        return False
    return abs(builders.NOW - row['last_seen_up']) <= service_down_time


class TestComputeFilter(filters.FilterSuite, base.TestCase):

    plugin = compute.ComputeFilter

    def test_disabled_or_forced_down_service_is_rejected(self):
        hosts = builders.hosts(
            service_disabled=[False, True, False, True],
            forced_down=[False, False, True, True])

        self.assertKeeps([True, False, False, False], hosts)

    def test_service_is_down_after_service_down_time(self):
        hosts = builders.hosts(now=1000.0, last_seen_up=[
            1000.0, 940.0, 939.9, 0.0])

        self.assertKeeps([True, True, False, False], hosts)
        self.assertKeeps([True, False, False, False], hosts,
                         service_down_time=10)

    def test_report_from_the_far_future_does_not_count(self):
        hosts = builders.hosts(now=1000.0, last_seen_up=[1060.0, 1060.1])

        self.assertKeeps([True, False], hosts)

    @hypothesis.given(table=rows.ROWS, down_time=strategies.integers(1, 4000))
    def test_column_verdict_equals_row_verdicts(self, table, down_time):
        self.assertKeeps(
            [keeps(row, down_time) for row in table], rows.hosts(table),
            service_down_time=down_time)


def requested(*tried):
    """Return a request that was tried on these hosts and nodes."""
    return builders.request(retry=objects.SchedulerRetries(
        num_attempts=len(tried), hosts=objects.ComputeNodeList(objects=[
            objects.ComputeNode(host=host, hypervisor_hostname=node)
            for host, node in tried])))


class TestRetryFilter(agreeing.Agreeing, filters.FilterSuite, base.TestCase):

    plugin = compute.RetryFilter

    def make_requests(self):
        return [builders.request(), requested(('host2', 'host2'))]

    def test_tried_host_is_rejected(self):
        for expected, *tried in (
                ([True, True, True],),
                ([False, True, True], ('a', 'a1')),
                ([True, False, True], ('a', 'a2')),
                ([False, False, True], ('a', 'a1'), ('a', 'a2')),
                ([True, True, False], ('b', 'b1')),
                ([True, True, True], ('b', 'a1')),
                ([True, True, True], ('A', 'a1')),
                ([True, True, True], ('gone', 'gone')),
                ([True, True, True], (None, 'a1')),
                ([False, False, True], ('a', None))):
            with self.subTest(tried=tried):
                self.assertKeeps(
                    expected, builders.hosts(
                        host=['a', 'a', 'b'], nodename=['a1', 'a2', 'b1']),
                    requested(*tried))

    def test_first_attempt_is_not_filtered(self):
        plugin = builders.plugin(self.plugin)

        for request in (builders.request(), builders.request(retry=None),
                        requested()):
            self.assertFalse(plugin.applies(request))

    @hypothesis.given(
        hosts=generated.hosts(), tried=strategies.lists(strategies.tuples(
            strategies.sampled_from(['alpha', 'beta', 'gamma', 'Gamma']),
            strategies.sampled_from(['host1', 'host2', 'host3', None])),
            max_size=4))
    def test_column_verdict_equals_row_verdicts(self, hosts, tried):
        self.assertAgrees(
            lambda host, _: (host.host, host.nodename) not in tried
            and (host.host, None) not in tried, hosts, requested(*tried))
