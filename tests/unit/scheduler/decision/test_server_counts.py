# SPDX-License-Identifier: Apache-2.0
"""Servers that fit hosts whose providers give a part each, counted."""

from unittest import mock

import hypothesis
from hypothesis import strategies as st

from cellsched.scheduler.decision import allocation
from cellsched.scheduler.decision import assignment
from cellsched.scheduler.decision import capacity
from cellsched.scheduler.decision import provider_groups
from cellsched.scheduler.decision import server_counts
from cellsched.testing import builders
from tests import profile
from tests.unit import base
from tests.unit.scheduler.decision import test_provider_groups

Provider = test_provider_groups.Provider
ask = test_provider_groups.ask
make = test_provider_groups.make

more_ = st.lists(st.integers(0, 9), min_size=2, max_size=2)


@st.composite
def hosts_(draw):
    root, *children = draw(test_provider_groups.trees())
    for each in (root, *children):
        each.amounts = dict(zip(test_provider_groups.CLASSES, draw(more_)))
    return [root, *children]


def counts(table, request):
    return capacity.counts(table.view(builders.NOW), request).tolist()


def group(amount):
    """Return a numbered group."""
    return {'resources': {'CUSTOM_A': amount}, 'required_traits': [],
            'forbidden_traits': [], 'in_tree': None, 'aggregates': [],
            'forbidden_aggregates': []}


def placed(table, request):
    """Return how many fit each host, by taking them one after the other."""
    hosts = table.view(builders.NOW)
    wants = provider_groups.asked(hosts, request, request.resources())
    found = [0] * len(hosts)
    for host in range(len(hosts)):
        while (given := allocation.allocate(hosts, host, wants)) is not None:
            hosts.take(host, given.resources)
            found[host] += 1
    return found


class TestServerCounts(base.TestCase):

    @profile.many_examples
    @hypothesis.given(
        hosts=st.lists(hosts_(), min_size=1, max_size=4),
        zones=st.lists(test_provider_groups.zones_, min_size=4, max_size=4),
        pools=st.lists(st.builds(
            Provider, more_, test_provider_groups.traits_, st.none(),
            test_provider_groups.units_), max_size=2),
        amounts=st.fixed_dictionaries(
            {name: st.integers(0, 2)
             for name in test_provider_groups.CLASSES}),
        groups=st.lists(test_provider_groups.groups_(), max_size=3),
        policy=st.sampled_from(['none', 'isolate']),
        near=st.booleans(), traits=st.dictionaries(
            st.sampled_from(test_provider_groups.TRAITS),
            st.sampled_from(['required', 'forbidden'])))
    def test_count_is_that_of_servers_placed_one_after_the_other(
            self, hosts, zones, pools, amounts, groups, policy, near, traits):
        zones = zones[:len(hosts)]
        subtrees = [range(len(groups))] if near and groups else []
        request = ask(amounts, groups, policy, subtrees, traits)
        table = make(hosts, zones, pools)
        view = table.view(builders.NOW)
        hypothesis.assume(provider_groups.asked(
            view, request, request.resources()) is not None)

        self.assertEqual(placed(table, request), counts(table, request))

    def test_what_hosts_share_counts_once(self):
        hosts = [[Provider()] for _ in range(3)]
        table = make(hosts, [{0}, {0}, {0}], [Provider((11, 0))])

        # Each has CPUs for 8; the pool has enough for 5.
        self.assertEqual([5, 0, 0], counts(table, ask({'CUSTOM_A': 2})))
        self.assertEqual([5, 0, 0], counts(table, ask(groups=[group(2)])))

    def test_hosts_that_are_alike_are_looked_at_once(self):
        hosts = [[Provider(), Provider((4, 0)), Provider((4, 0))]
                 for _ in range(50)]
        with mock.patch.object(
                assignment, 'assign', wraps=assignment.assign) as assign:
            self.assertEqual([4] * 50, counts(
                make(hosts), ask(groups=[group(2)])))

        self.assertEqual(5, assign.call_count)

    def test_hosts_that_are_alike_differ_in_their_trees(self):
        hosts = [[Provider(), Provider((4, 0))] for _ in range(2)]
        request = ask(groups=[
            {**group(2), 'in_tree': test_provider_groups.uuid_of(1, 1)}])

        self.assertEqual([0, 2], counts(make(hosts), request))

    def test_what_has_no_end_is_counted_to_a_bound(self):
        request = ask(groups=[group(1)])
        request.flavor.extra_specs |= {
            f'resources:{name}': '0'
            for name in ('VCPU', 'MEMORY_MB', 'DISK_GB')}
        table = make([[Provider()]], [{0}], [Provider((10 ** 6, 0))])
        with mock.patch.object(server_counts, 'ONE_BY_ONE_MAX', 100):
            self.assertEqual([100], counts(table, request))
