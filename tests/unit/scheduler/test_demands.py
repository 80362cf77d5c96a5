# SPDX-License-Identifier: Apache-2.0
"""What requests ask for and nothing reads."""

import hypothesis
from hypothesis import strategies as st
from testtools import matchers

from cellsched import context
from cellsched.scheduler import demand_catalogue as catalogue
from cellsched.scheduler import demands
from cellsched.testing import builders
from tests.unit import base

CONTEXT = context.RequestContext()

PLAIN = {
    'image': {'os_type': 'linux', 'hw_disk_bus': 'virtio'},
    'extra_specs': {'quota:cpu_shares': '3', 'hw:watchdog_action': 'reset'},
    'numa_topology': None, 'pci_requests': {'requests': []},
    'requested_resources': [], 'request_level_params': {'root_required': []}}

#: Of each kind of place where something can be asked for.
ASKING = {
    'flavor.extra_specs.hw:numa_nodes': {'extra_specs': {
        'hw:numa_nodes': '2'}},
    'flavor.extra_specs.resources1:VGPU': {'extra_specs': {
        'resources1:VGPU': '1'}},
    'flavor.extra_specs.capabilities:a:b': {'extra_specs': {
        'capabilities:a:b': 'x'}},
    'flavor.extra_specs.ssd': {'extra_specs': {'ssd': 'x'}},
    'image.properties.hw_numa_nodes': {'image': {'hw_numa_nodes': 2}},
    'numa_topology': {'numa_topology': {'cells': []}},
    'request_level_params.root_required': {'request_level_params': {
        'nova_object.data': {'root_required': ['X']}}},
    'ignore_hosts': {'ignore_hosts': ['a']},
}

NAMES = st.sampled_from([*ASKING, *(
    each.name for each in catalogue.DEMANDS)])


def unread(*reads, **wishes):
    return demands.Unread(reads).names(builders.request(**wishes))


class TestUnread(base.TestCase):

    def test_plain_request_asks_for_nothing(self):
        self.assertEqual([], unread())
        self.assertEqual([], unread(**PLAIN))
        self.assertEqual([], unread(image=None, extra_specs={}))

    def test_name_and_what_it_asks_for_are_told(self):
        for wishes, told in (
                ({'extra_specs': {'hw:numa_nodes': '2'}},
                 'flavor extra spec hw:numa_nodes (a NUMA topology)'),
                ({'image': {'hw_cpu_policy': 'dedicated'}},
                 'image property hw_cpu_policy (dedicated CPUs)'),
                ({'pci_requests': {'requests': [1]}},
                 'request field pci_requests (PCI devices)'),
                ({'request_level_params': {'same_subtree': [['a']]}},
                 'request field request_level_params.same_subtree (providers '
                 'near each other)')):
            self.assertEqual([told], unread(**wishes))

    def test_all_that_is_asked_for_is_told(self):
        self.assertEqual(3, len(unread(
            extra_specs={'hw:numa_nodes': '2', 'resources:VGPU': '1',
                         'hw:cpu_policy': 'shared'},
            image={'hw_numa_nodes': 2, 'hw_vif_model': 'virtio'})))

    def test_what_is_read_is_not_told(self):
        for name, wishes in ASKING.items():
            self.assertEqual(1, len(unread(**wishes)))
            for reads in (name, name[:-1] + '*', name + '*',
                          demands.find(name).name):
                self.assertEqual([], unread(reads, **wishes))
            for reads in (name[:-1], name + 'x', name[1:], 'x*'):
                self.assertEqual(1, len(unread(reads, **wishes)), reads)

    def test_value_that_asks_for_nothing_is_not_told(self):
        for asked, wishes in (
                (0, {'extra_specs': {'hw:cpu_policy': 'shared'}}),
                (1, {'extra_specs': {'hw:cpu_policy': 'dedicated'}}),
                (0, {'image': {'hw_cpu_policy': 'shared'}}),
                (1, {'image': {'hw_cpu_policy': 'dedicated'}}),
                (0, {'extra_specs': {'hw:mem_encryption': 'no'}}),
                (0, {'image': {'hw_mem_encryption': False}}),
                (1, {'image': {'hw_mem_encryption': True}}),
                (0, {'request_level_params': {'same_subtree': []}}),
                (0, {'ignore_hosts': []})):
            self.assertEqual(asked, len(unread(**wishes)), wishes)

    def test_value_may_ask_for_something_beside_another_only(self):
        networks = {'network_metadata': {'tunneled': {'numa_nodes': [0]}}}
        for asked, wishes in (
                (0, {'extra_specs': {'hw:tpm_model': 'tpm-tis'}}),
                (2, {'extra_specs': {'hw:tpm_model': 'tpm-tis',
                                     'hw:tpm_version': '2.0'}}),
                (0, {'image': {'hw_tpm_model': 'tpm-tis'}}),
                (2, {'image': {'hw_tpm_model': 'tpm-tis',
                               'hw_tpm_version': '2.0'}}),
                (0, networks),
                (2, {**networks, 'numa_topology': {'cells': [1]}})):
            self.assertEqual(asked, len(unread(**wishes)), wishes)

    def test_reading_unscoped_extra_specs_reads_no_others(self):
        self.assertEqual(1, len(unread(catalogue.UNSCOPED, extra_specs={
            'ssd': 'x', 'capabilities:ssd': 'x', 'hide_hypervisor_id': 'x'})))

    def test_reading_groups_by_one_suffix_reads_no_others(self):
        [told] = unread('flavor.extra_specs.resources1:*', extra_specs={
            'resources1:VGPU': '1', 'resources2:VGPU': '1'})

        self.assertIn('resources2:VGPU', told)

    def test_reading_all_groups_reads_nothing_without_a_suffix(self):
        reads = catalogue.GROUP.name, catalogue.TRAIT_GROUP.name
        specs = {'resources1:VGPU': '1', 'trait_A:CUSTOM_A': 'required'}
        others = {'resources:VGPU': '1', 'trait:CUSTOM_A': 'required',
                  'resourceful': 'yes', 'traits': 'yes'}

        self.assertEqual([], unread(*reads, extra_specs=specs))
        self.assertEqual(4, len(unread(
            *reads, extra_specs={**specs, **others})))

    def test_name_is_told_on_one_short_line(self):
        [told] = unread(extra_specs={'capabilities:\r\n' + 'x' * 10_000: ''})

        self.assertTrue(told.isprintable())
        self.assertLess(len(told), 130)

    def test_name_is_cut_where_it_is_too_long(self):
        for length, end in ((60, 'x ('), (61, 'x… (')):
            name = 'capabilities:'.ljust(length, 'x')
            self.assertEqual(
                [f'flavor extra spec {name[:59]}{end}a capability of the '
                 'host)'], unread(extra_specs={name: ''}))

    @hypothesis.settings(
        suppress_health_check=[hypothesis.HealthCheck.too_slow])
    @hypothesis.given(
        st.sets(NAMES, max_size=4),
        st.sets(st.sampled_from([*ASKING]), max_size=4))
    def test_what_is_told_is_asked_and_not_read(self, reads, asked):
        wishes = {}
        for name in asked:
            for field, value in ASKING[name].items():
                wishes[field] = ({**wishes.get(field, {}), **value}
                                 if isinstance(value, dict) else value)

        told = unread(*reads, **wishes)

        self.assertEqual(
            {name.rpartition('properties.')[2].removeprefix(
                catalogue.EXTRA_SPEC) for name in asked
             if not reads & {name, demands.find(name).name}
             and not any(read.endswith('*') and name.startswith(read[:-1])
                         for read in reads)},
            {' '.join(line.partition(' (')[0].split()[2:]).removeprefix(
                'spec ') for line in told})


class TestRule(base.TestCase):

    def refusal(self, ignored=False, **wishes):
        return demands.Rule([], ignored).refusal(
            builders.request(**wishes), CONTEXT)

    def test_nothing_unread_is_no_matter(self):
        for ignored in (False, True):
            self.assertIsNone(self.refusal(ignored, **PLAIN))

        self.assertEqual('', self.logs.output)

    def test_refusal_names_what_was_asked_for(self):
        error = self.refusal(
            extra_specs={'hw:numa_nodes': '2'}, ignore_hosts=['a'])

        self.assertEqual(
            'No valid host was found. No enabled stage reads what is asked '
            'for: flavor extra spec hw:numa_nodes (a NUMA topology), request '
            'field ignore_hosts (other hosts).', str(error))
        self.assertEqual(([], 0), (error.rejections, error.placed))

    def test_refusal_names_some_of_many(self):
        text = str(self.refusal(extra_specs={
            f'resources{number}:X': '1' for number in range(1000)}))

        self.assertIn('resources9:X (resources of a numbered group) and 990 '
                      'more.',
                      text)
        self.assertNotIn('resources10:X', text)

    def test_refusal_counts_only_what_it_does_not_name(self):
        for asked, end in (
                (10, 'resources9:X (resources of a numbered group).'),
                (11, 'group) and 1 more.')):
            self.assertThat(str(self.refusal(extra_specs={
                f'resources{number}:X': '1' for number in range(asked)})),
                matchers.EndsWith(end))

    def test_what_is_ignored_is_a_warning(self):
        self.assertIsNone(self.refusal(True, ignore_hosts=['a']))

        [line] = self.logs.output.splitlines()
        self.assertIn(CONTEXT.request_id, line)
        self.assertIn('request field ignore_hosts (other hosts)', line)


class TestNames(base.TestCase):

    def test_names_and_their_beginnings_are_known(self):
        for known in ('numa_topology', 'flavor.extra_specs.hw:numa_nodes',
                      'flavor.extra_specs.resources*',
                      'flavor.extra_specs.resources{group}:*',
                      'image.properties.hw_numa_*', 'request_level_params.*',
                      'flavor.extra_specs.quota:cpu_shares'):
            self.assertTrue(demands.is_known(known), known)
        for unknown in ('numa_topologie', 'image.properties.hw_nmua_*',
                        'request_level_param', 'numa_topologie*'):
            self.assertFalse(demands.is_known(unknown), unknown)
