# SPDX-License-Identifier: Apache-2.0
"""Requests of Nova's client, and the selected hosts.

Callers with a pin send the same requests in older forms.
"""

from oslo_utils import uuidutils

from tests.integration.nova import base
from tests.integration.nova import scheduler

NO_VALID_HOST = 'nova.exception.NoValidHost'


class Selections(base.TestCase):

    def test_anti_affinity_holds_over_several_requests(self):
        members, found = base.new(6), []
        fields = {'uuid': uuidutils.generate_uuid(), 'policy': 'anti-affinity'}
        for number, uuid in enumerate(members[:5]):
            found += base.hosts(self.selected([uuid], group={
                **fields, 'members': members[:number + 1], 'hosts': found}))

        self.assertEqual(sorted(scheduler.HOSTS), sorted(found))
        error = self.refused(members[5:], group={
            **fields, 'members': members, 'hosts': found})
        self.assertIn(NO_VALID_HOST, error['mro'])
        self.assertIn('server group', error['message'])

    def test_anti_affinity_holds_within_a_request(self):
        members = base.new(5)

        found = self.selected(members, group=group('anti-affinity', members))

        self.assertEqual(sorted(scheduler.HOSTS), sorted(base.hosts(found)))

    def test_rule_of_a_group_limits_its_servers_on_a_host(self):
        members = base.new(10)

        found = base.hosts(self.selected(members, group=group(
            'anti-affinity', members, rules={'max_server_per_host': '2'})))

        self.assertEqual(sorted([*scheduler.HOSTS, *scheduler.HOSTS]),
                         sorted(found))

    def test_affinity_holds(self):
        for found in self.selected_by_all(3, group=group(
                'affinity', base.new(1), ['c2-b'])):
            self.assertEqual(('c2-b',) * 3, found)

    def test_requested_host_is_selected(self):
        for target in ({'host': 'c2-b'}, {'host': 'c2-b', 'node': 'c2-b'}):
            for found in self.selected_by_all(3, destination=target):
                self.assertEqual(('c2-b',) * 3, found)

    def test_requested_cell_is_used(self):
        for cell in scheduler.ZONES:
            for found in self.selected_by_all(3, destination={
                    'host': '', 'cell': self.world.cells[cell]}):
                self.assertEqual(
                    [cell] * 3, [scheduler.HOSTS[host] for host in found])

    def test_unknown_requested_host_is_refused(self):
        cell1 = self.world.cells['cell1']
        for target in ({'host': 'nowhere'}, {'host': 'c1-a', 'node': 'c1-b'},
                       {'host': 'c2-a', 'cell': cell1}):
            for error in self.refused_by_all(destination=target):
                self.assertIn(NO_VALID_HOST, error['mro'])

    def test_forced_host_is_selected(self):
        for forced in ({'force_hosts': ['c2-c']}, {'force_nodes': ['c2-c']},
                       {'force_hosts': ['c2-c'], 'force_nodes': ['c2-c']}):
            for found in self.selected_by_all(3, **forced):
                self.assertEqual(('c2-c',) * 3, found)

    def test_unknown_forced_host_is_refused(self):
        for error in self.refused_by_all(force_hosts=['nowhere']):
            self.assertIn(NO_VALID_HOST, error['mro'])

    def test_ignored_hosts_are_skipped(self):
        ignored = sorted({*scheduler.HOSTS} - {'c2-b'})

        for found in self.selected_by_all(3, ignore_hosts=ignored):
            self.assertEqual(('c2-b',) * 3, found)

    def test_requested_zone_is_used(self):
        for found in self.selected_by_all(3, zone='east'):
            self.assertEqual(
                ['cell2'] * 3, [scheduler.HOSTS[host] for host in found])

    def test_hosts_of_earlier_attempts_are_skipped(self):
        tried = [[host, host] for host in scheduler.HOSTS if host != 'c1-b']

        for found in self.selected_by_all(3, retry={
                'num_attempts': 2, 'hosts': tried}):
            self.assertEqual(('c1-b',) * 3, found)

    def test_unsupported_requirement_is_refused_by_its_name(self):
        for name, asked in (
                ('hw:numa_nodes', {'flavor': {
                    **base.SMALL, 'extra_specs': {'hw:numa_nodes': '1'}}}),
                ('hw_cpu_policy', {'image': {'properties': {
                    'hw_cpu_policy': 'dedicated'}}}),
                ('numa_topology', {'numa_memory_mb': 512})):
            for error in self.refused_by_all(**asked):
                self.assertIn(NO_VALID_HOST, error['mro'])
                self.assertIn(name, error['message'])

    def test_missing_resource_class_is_refused_by_its_name(self):
        for name, reason in (('resources', 'lack VGPU (by 1 VGPU)'), (
                'resources1', 'lack a provider of 1 VGPU (by 1 VGPU)')):
            for error in self.refused_by_all(flavor={
                    **base.SMALL, 'extra_specs': {f'{name}:VGPU': '1'}}):
                self.assertIn(NO_VALID_HOST, error['mro'])
                self.assertIn(reason, error['message'])

    def test_hint_of_a_filter_is_used(self):
        members = base.new(4)
        taken = base.hosts(self.selected(
            members, group=group('anti-affinity', members)))
        [remaining] = {*scheduler.HOSTS} - {*taken}

        # Older requests have another form for a hint with one value.
        for found in self.selected_by_all(
                3, scheduler_hints={'different_host': members}):
            self.assertEqual((remaining,) * 3, found)
        for found in self.selected_by_all(
                5, scheduler_hints={'different_host': members[:1]}):
            self.assertNotIn(taken[0], found)

    def test_hint_of_the_group_is_ignored(self):
        # Nova sends the hint in addition to the group.
        affinity = group('affinity', base.new(1), ['c2-b'])

        for found in self.selected_by_all(
                3, group=affinity,
                scheduler_hints={'group': [affinity['uuid']]}):
            self.assertEqual(('c2-b',) * 3, found)

    def test_internal_hint_is_refused_by_its_name(self):
        for error in self.refused_by_all(
                force_hosts=['c2-b'],
                scheduler_hints={'_nova_check_type': ['rebuild']}):
            self.assertIn('nova.exception.NoValidHost', error['mro'])
            self.assertIn('_nova_check_type', error['message'])

    def test_unknown_hint_is_refused_by_its_name(self):
        for error in self.refused_by_all(scheduler_hints={'hue': ['blue']}):
            self.assertIn('nova.exception.NoValidHost', error['mro'])
            self.assertIn('hue', error['message'])


def group(policy, members, hosts=(), **more):
    """Return a group as Nova's conductor sends it."""
    return {'uuid': uuidutils.generate_uuid(), 'policy': policy,
            'members': members, 'hosts': list(hosts), **more}
