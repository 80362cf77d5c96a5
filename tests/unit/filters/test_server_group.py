# SPDX-License-Identifier: Apache-2.0
"""ServerGroupAffinityFilter and ServerGroupAntiAffinityFilter."""

import hypothesis
from hypothesis import strategies as st

from cellsched import exception
from cellsched.filters import server_group
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.filters import agreeing
from tests.unit import strategies

A, B, C, OTHER, *_ = strategies.UUIDS

MEMBERS = st.lists(st.sampled_from(strategies.UUIDS), max_size=6)

NAMES = st.lists(st.sampled_from(['alpha', 'Gamma', 'gone']), max_size=2)


def requested(policy, members=(A, B, C), hosts=(), rules=None, **fields):
    return builders.request(group={
        'policy': policy, 'members': list(members), 'hosts': list(hosts),
        'rules': rules or {}}, **fields)


class TestServerGroupAffinityFilter(
        agreeing.Agreeing, filters.FilterSuite, base.TestCase):

    plugin = server_group.ServerGroupAffinityFilter

    def make_requests(self):
        return [builders.request(), requested('affinity'),
                requested('affinity', hosts=['host2'])]

    def test_host_has_to_run_a_member(self):
        for expected, located, names in (
                ([True, True, True], {}, []),
                ([True, True, True], {OTHER: 1}, []),
                ([False, True, False], {A: 1}, []),
                ([False, True, False], {A: 1, B: 1, OTHER: 0}, []),
                ([True, True, False], {A: 1, B: 0}, []),
                ([False, False, True], {}, ['host3']),
                ([False, False, True], {}, ['Host3']),
                ([True, False, True], {A: 0}, ['host3', 'gone']),
                ([False, False, False], {}, ['gone'])):
            with self.subTest(located=located, names=names):
                self.assertKeeps(
                    expected, builders.hosts(3, located=located),
                    requested('affinity', hosts=names))

    def test_member_on_a_vanished_host_rejects_all_hosts(self):
        hosts = builders.table(2).view(
            builders.NOW, {A: 'a host that is gone'})

        self.assertKeeps([False, False], hosts, requested('affinity'))

    def test_members_in_other_cells_count(self):
        self.assertKeeps(
            [False, False, True],
            builders.hosts(cell=['a', 'a', 'b'], located={A: 2}),
            requested('affinity'))

    def test_other_policies_are_ignored(self):
        hosts = builders.hosts(2, located={A: 0})

        for policy in (None, 'anti-affinity', 'soft-affinity', 'unknown'):
            self.assertKeeps([True, True], hosts, requested(policy))
        self.assertKeeps([True, True], hosts,
                         builders.request(instance_group=None))

    def test_verdict_depends_on_earlier_choices(self):
        self.assertFalse(self.plugin.run_filter_once_per_request)
        self.assertFalse(self.plugin.local)

    def test_next_server_of_a_request_follows_the_first(self):
        hosts = builders.hosts(3)
        self.assertKeeps([True] * 3, hosts, requested('affinity'))

        hosts.take(2, {}, A)

        self.assertKeeps([False, False, True], hosts, requested('affinity'))

    @hypothesis.given(
        hosts=strategies.hosts(), members=MEMBERS, names=NAMES)
    def test_column_verdict_equals_row_verdicts(self, hosts, members, names):
        on = [instance for uuid in hosts['uuid']
              for instance in hosts.instances_on(uuid) if instance in members]

        def passes(host, request):
            return not (on or names) or host.host in names or (
                not set(host.instances).isdisjoint(members))

        self.assertAgrees(
            passes, hosts, requested('affinity', members, names))


class TestServerGroupAntiAffinityFilter(
        agreeing.Agreeing, filters.FilterSuite, base.TestCase):

    plugin = server_group.ServerGroupAntiAffinityFilter

    def make_requests(self):
        return [builders.request(), requested('anti-affinity')]

    def test_host_has_to_run_less_than_its_share(self):
        located = {A: 0, B: 1, C: 1, OTHER: 2}

        for expected, rules in (
                ([False, False, True, True], {}),
                ([True, False, True, True], {'max_server_per_host': '2'}),
                ([True, True, True, True], {'max_server_per_host': '3'})):
            with self.subTest(rules=rules):
                self.assertKeeps(
                    expected, builders.hosts(4, located=located),
                    requested('anti-affinity', rules=rules))

    def test_host_named_by_the_caller_counts_as_a_member(self):
        hosts = builders.hosts(3, located={A: 0})

        for expected, rules, names in (
                ([False, False, True], {}, ['HOST2', 'gone']),
                ([True, True, True], {'max_server_per_host': '2'},
                 ['host1'])):
            self.assertKeeps(expected, hosts, requested(
                'anti-affinity', hosts=names, rules=rules))

    def test_bad_rule_is_named(self):
        for text in ('0', '-1', '1.5', 'nan', '', 'x' * 100_000,
                     '9' * 100_000):
            error = self.assertRaises(
                exception.InvalidField, self.assertKeeps, [], builders.hosts(),
                requested('anti-affinity',
                          rules={'max_server_per_host': text}))
            self.assertIn('rules.max_server_per_host: expected a whole number',
                          str(error))

    def test_moved_server_may_remain_on_its_host(self):
        hosts = builders.hosts(3, located={A: 0, B: 1})

        self.assertKeeps([True, False, True], hosts, requested(
            'anti-affinity', instance_uuid=A))

    def test_instance_uuid_of_several_servers_counts_as_a_member(self):
        hosts = builders.hosts(3, located={A: 0, B: 1})

        self.assertKeeps([False, False, True], hosts, requested(
            'anti-affinity', instance_uuid=A, num_instances=2))

    def test_own_server_is_looked_up(self):
        located = builders.plugin(self.plugin).located(
            requested('anti-affinity', [A], instance_uuid=B))

        self.assertEqual({A, B}, set(located))

    def test_other_policies_are_ignored(self):
        hosts = builders.hosts(2, located={A: 0})

        for policy in (None, 'affinity', 'soft-anti-affinity', 'unknown'):
            self.assertKeeps([True, True], hosts, requested(policy))

    def test_placement_changes_the_verdict_on_its_host_alone(self):
        self.assertFalse(self.plugin.run_filter_once_per_request)
        self.assertTrue(self.plugin.local)

    def test_next_server_of_a_request_avoids_the_first(self):
        hosts = builders.hosts(3)
        request = requested('anti-affinity', instance_uuid=A, num_instances=3)

        hosts.take(2, {}, A)

        self.assertKeeps([True, True, False], hosts, request)

    @hypothesis.given(
        hosts=strategies.hosts(), members=MEMBERS, most=st.integers(1, 3),
        own=st.sampled_from(strategies.UUIDS), names=NAMES)
    def test_column_verdict_equals_row_verdicts(
            self, hosts, members, most, own, names):
        def passes(host, request):
            return own in host.instances or len(
                set(host.instances) & set(members)) < most and not (
                    most == 1 and host.host in names)

        self.assertAgrees(passes, hosts, requested(
            'anti-affinity', dict.fromkeys(members), names, instance_uuid=own,
            rules={'max_server_per_host': str(most)}))
