# SPDX-License-Identifier: Apache-2.0
"""RetryFilter."""

import hypothesis
from hypothesis import strategies as st

from cellsched.filters import retry
from cellsched import objects
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.filters import agreeing
from tests.unit import strategies


def requested(*tried):
    """Return a request that was tried on these hosts and nodes."""
    return builders.request(retry=objects.SchedulerRetries(
        num_attempts=len(tried), hosts=objects.ComputeNodeList(objects=[
            objects.ComputeNode(host=host, hypervisor_hostname=node)
            for host, node in tried])))


class TestRetryFilter(agreeing.Agreeing, filters.FilterSuite, base.TestCase):

    plugin = retry.RetryFilter

    def make_requests(self):
        return [builders.request(), requested(('host2', 'host2'))]

    def test_host_that_was_tried_is_rejected(self):
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

    def test_first_try_is_not_asked_about(self):
        plugin = builders.plugin(self.plugin)

        for request in (builders.request(), builders.request(retry=None),
                        requested()):
            self.assertFalse(plugin.applies(request))

    @hypothesis.given(
        hosts=strategies.hosts(), tried=st.lists(st.tuples(
            st.sampled_from(['alpha', 'beta', 'gamma', 'Gamma']),
            st.sampled_from(['host1', 'host2', 'host3', None])), max_size=4))
    def test_column_verdict_is_that_of_each_row(self, hosts, tried):
        self.assertAgrees(
            lambda host, _: (host.host, host.nodename) not in tried
            and (host.host, None) not in tried, hosts, requested(*tried))
