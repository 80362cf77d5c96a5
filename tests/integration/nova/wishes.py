# SPDX-License-Identifier: Apache-2.0
"""What Nova's client asks for, and hosts that it gets for that.

Callers that are pinned to other releases ask for the same in other forms.
"""

from oslo_utils import uuidutils

from tests.integration.nova import answering
from tests.integration.nova import base

NO_VALID_HOST = 'nova.exception.NoValidHost'


class Wishes(base.TestCase):

    def test_group_is_kept_apart_over_requests(self):
        members, found = base.new(6), []
        told = {'uuid': uuidutils.generate_uuid(), 'policy': 'anti-affinity'}
        for number, uuid in enumerate(members[:5]):
            found += base.hosts(self.selected([uuid], group={
                **told, 'members': members[:number + 1], 'hosts': found}))

        self.assertEqual(sorted(answering.HOSTS), sorted(found))
        error = self.refused(members[5:], group={
            **told, 'members': members, 'hosts': found})
        self.assertIn(NO_VALID_HOST, error['mro'])
        self.assertIn('server group', error['message'])

    def test_group_is_kept_apart_within_a_request(self):
        members = base.new(5)

        found = self.selected(members, group=group('anti-affinity', members))

        self.assertEqual(sorted(answering.HOSTS), sorted(base.hosts(found)))

    def test_group_may_have_as_many_on_a_host_as_its_rule_says(self):
        members = base.new(10)

        found = base.hosts(self.selected(members, group=group(
            'anti-affinity', members, rules={'max_server_per_host': '2'})))

        self.assertEqual(sorted([*answering.HOSTS, *answering.HOSTS]),
                         sorted(found))

    def test_group_is_kept_together(self):
        for found in self.selected_by_all(3, group=group(
                'affinity', base.new(1), ['c2-b'])):
            self.assertEqual(('c2-b',) * 3, found)

    def test_requested_host_is_chosen(self):
        for target in ({'host': 'c2-b'}, {'host': 'c2-b', 'node': 'c2-b'}):
            for found in self.selected_by_all(3, destination=target):
                self.assertEqual(('c2-b',) * 3, found)

    def test_requested_cell_is_kept(self):
        for cell in answering.ZONES:
            for found in self.selected_by_all(3, destination={
                    'host': '', 'cell': self.world.cells[cell]}):
                self.assertEqual(
                    [cell] * 3, [answering.HOSTS[host] for host in found])

    def test_requested_place_that_is_not_there_is_refused(self):
        cell1 = self.world.cells['cell1']
        for target in ({'host': 'nowhere'}, {'host': 'c1-a', 'node': 'c1-b'},
                       {'host': 'c2-a', 'cell': cell1}):
            for error in self.refused_by_all(destination=target):
                self.assertIn(NO_VALID_HOST, error['mro'])

    def test_forced_host_is_taken(self):
        for forced in ({'force_hosts': ['c2-c']}, {'force_nodes': ['c2-c']},
                       {'force_hosts': ['c2-c'], 'force_nodes': ['c2-c']}):
            for found in self.selected_by_all(3, **forced):
                self.assertEqual(('c2-c',) * 3, found)

    def test_forced_host_that_is_not_there_is_refused(self):
        for error in self.refused_by_all(force_hosts=['nowhere']):
            self.assertIn(NO_VALID_HOST, error['mro'])

    def test_ignored_hosts_are_left_out(self):
        ignored = sorted({*answering.HOSTS} - {'c2-b'})

        for found in self.selected_by_all(3, ignore_hosts=ignored):
            self.assertEqual(('c2-b',) * 3, found)

    def test_zone_is_kept(self):
        for found in self.selected_by_all(3, zone='east'):
            self.assertEqual(
                ['cell2'] * 3, [answering.HOSTS[host] for host in found])

    def test_hosts_that_a_build_was_tried_on_are_left_out(self):
        tried = [[host, host] for host in answering.HOSTS if host != 'c1-b']

        for found in self.selected_by_all(3, retry={
                'num_attempts': 2, 'hosts': tried}):
            self.assertEqual(('c1-b',) * 3, found)

    def test_what_no_stage_reads_is_refused_by_its_name(self):
        for name, asked in (
                ('hw:numa_nodes', {'flavor': {
                    **base.SMALL, 'extra_specs': {'hw:numa_nodes': '1'}}}),
                ('hw_cpu_policy', {'image': {'properties': {
                    'hw_cpu_policy': 'dedicated'}}}),
                ('numa_topology', {'numa_memory_mb': 512})):
            for error in self.refused_by_all(**asked):
                self.assertIn(NO_VALID_HOST, error['mro'])
                self.assertIn(name, error['message'])

    def test_resource_class_that_no_host_has_is_refused_by_its_name(self):
        for name, reason in (('resources', 'lack VGPU (by 1 VGPU)'), (
                'resources1', 'lack a provider of 1 VGPU (by 1 VGPU)')):
            for error in self.refused_by_all(flavor={
                    **base.SMALL, 'extra_specs': {f'{name}:VGPU': '1'}}):
                self.assertIn(NO_VALID_HOST, error['mro'])
                self.assertIn(reason, error['message'])

    def test_hint_that_a_filter_reads_is_followed(self):
        others = base.new(4)
        taken = base.hosts(self.selected(
            others, group=group('anti-affinity', others)))
        [left] = {*answering.HOSTS} - {*taken}

        # One value of a hint has another form in the older requests.
        for found in self.selected_by_all(
                3, scheduler_hints={'different_host': others}):
            self.assertEqual((left,) * 3, found)
        for found in self.selected_by_all(
                5, scheduler_hints={'different_host': others[:1]}):
            self.assertNotIn(taken[0], found)

    def test_hint_of_the_group_is_no_matter(self):
        # Nova leaves it in, beside the group that it stands for.
        told = group('affinity', base.new(1), ['c2-b'])

        for found in self.selected_by_all(
                3, group=told, scheduler_hints={'group': [told['uuid']]}):
            self.assertEqual(('c2-b',) * 3, found)

    def test_hint_that_steers_past_checks_is_refused_by_its_name(self):
        for error in self.refused_by_all(
                force_hosts=['c2-b'],
                scheduler_hints={'_nova_check_type': ['rebuild']}):
            self.assertIn('nova.exception.NoValidHost', error['mro'])
            self.assertIn('_nova_check_type', error['message'])

    def test_hint_that_nothing_reads_is_refused_by_its_name(self):
        for error in self.refused_by_all(scheduler_hints={'hue': ['blue']}):
            self.assertIn('nova.exception.NoValidHost', error['mro'])
            self.assertIn('hue', error['message'])


def group(policy, members, hosts=(), **more):
    """Return a group as Nova's conductor tells of it."""
    return {'uuid': uuidutils.generate_uuid(), 'policy': policy,
            'members': members, 'hosts': list(hosts), **more}
