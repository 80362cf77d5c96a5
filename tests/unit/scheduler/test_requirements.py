# SPDX-License-Identifier: Apache-2.0
"""What requests ask for and nothing reads."""

import json
import pathlib
import re

import hypothesis
from hypothesis import strategies as st
from testtools import matchers

from cellsched import context
from cellsched import exception
from cellsched.filters import base as filters
from cellsched.network import fake
from cellsched.network import noop
from cellsched import objects
from cellsched import plugins
from cellsched.scheduler.decision import capacity
from cellsched.scheduler.decision import mandatory_stages
from cellsched.scheduler.decision import pipeline
from cellsched.scheduler import requirements
from cellsched.testing import builders
from tests.unit import base
from tests.unit.network import networks
from tests.unit.scheduler import prefiltering

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
    'requested_resources': {'requested_resources': [{}]},
    'request_level_params.root_required': {'request_level_params': {
        'nova_object.data': {'root_required': ['X']}}},
    'ignore_hosts': {'ignore_hosts': ['a']},
}

NAMES = st.sampled_from([*ASKING, *(
    each.name for each in requirements.REQUIREMENTS)])


def unread(*reads, **wishes):
    return requirements.RequirementCheck(reads).names(
        builders.request(**wishes))


class TestUnread(base.TestCase):

    def test_plain_request_has_no_unread_demand(self):
        self.assertEqual([], unread())
        self.assertEqual([], unread(**PLAIN))
        self.assertEqual([], unread(image=None, extra_specs={}))

    def test_unread_demand_has_its_name_and_meaning(self):
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

    def test_all_unread_demands_are_listed(self):
        self.assertEqual(3, len(unread(
            extra_specs={'hw:numa_nodes': '2', 'resources:VGPU': '1',
                         'hw:cpu_policy': 'shared'},
            image={'hw_numa_nodes': 2, 'hw_vif_model': 'virtio'})))

    def test_read_demands_are_not_listed(self):
        for name, wishes in ASKING.items():
            self.assertEqual(1, len(unread(**wishes)))
            for reads in (name, name[:-1] + '*', name + '*',
                          requirements.find(name).name):
                self.assertEqual([], unread(reads, **wishes))
            for reads in (name[:-1], name + 'x', name[1:], 'x*'):
                self.assertEqual(1, len(unread(reads, **wishes)), reads)

    def test_values_without_a_demand_are_not_listed(self):
        for wishes in ({'extra_specs': {'hw:cpu_policy': 'shared'}},
                       {'image': {'hw_mem_encryption': False}},
                       {'request_level_params': {'same_subtree': []}},
                       {'ignore_hosts': []}):
            self.assertEqual([], unread(**wishes), wishes)

    def test_document_of_a_named_demand_is_not_listed_again(self):
        topology = {'numa_topology': {'cells': [1]}}
        nodes = {**topology, 'extra_specs': {'hw:numa_nodes': '1'}}
        devices = {'pci_requests': {'requests': [{}]}}
        for names, reads, wishes in (
                (['numa_topology'], [], topology),
                (['hw:numa_nodes'], [], nodes),
                (['hw_numa_nodes'], [], {
                    **topology, 'image': {'hw_numa_nodes': 1}}),
                (['numa_topology'], ['flavor.extra_specs.hw:*'], nodes),
                (['hw:cpu_policy', 'numa_topology'], [], {
                    **topology, 'extra_specs': {'hw:cpu_policy': 'mixed'}}),
                (['pci_requests'], [], devices),
                (['pci_passthrough:alias'], [], {
                    **devices, 'extra_specs': {
                        'pci_passthrough:alias': 'a:1'}})):
            self.assertEqual(names, [
                line.partition(' (')[0].split()[-1]
                for line in unread(*reads, **wishes)])

    def test_names_of_cells_and_devices(self):
        named = set()
        for each in requirements.REQUIREMENTS:
            if each.what in (
                    'a NUMA topology', 'dedicated CPUs', 'realtime CPUs',
                    'a policy of CPU threads', 'a CPU for emulator threads',
                    'memory pages of a size', 'NUMA cells near its networks',
                    'PCI devices', 'PCI devices near its CPUs'):
                named.add(each.name)
        both = ('numa_nodes', 'numa_cpus.*', 'numa_mem.*', 'cpu_policy',
                'cpu_thread_policy', 'cpu_realtime_mask', 'mem_page_size',
                'pci_numa_affinity_policy')

        self.assertEqual({
            *(f'flavor.extra_specs.hw:{name}' for name in (
                *both, 'cpu_dedicated_mask', 'cpu_realtime',
                'emulator_threads_policy')),
            *(f'image.properties.hw_{name}' for name in (
                *both, 'numa_cpus', 'numa_mem')),
            'flavor.extra_specs.pci_passthrough:alias', 'numa_topology',
            'network_metadata', 'pci_requests'}, named)

    def test_reading_unscoped_extra_specs_reads_only_unscoped(self):
        self.assertEqual(1, len(unread(requirements.UNSCOPED, extra_specs={
            'ssd': 'x', 'capabilities:ssd': 'x', 'hide_hypervisor_id': 'x'})))

    def test_reading_a_suffix_reads_only_groups_of_the_suffix(self):
        [told] = unread('flavor.extra_specs.resources1:*', extra_specs={
            'resources1:VGPU': '1', 'resources2:VGPU': '1'})

        self.assertIn('resources2:VGPU', told)

    def test_reading_all_groups_reads_only_suffixed_keys(self):
        reads = requirements.GROUP.name, requirements.TRAIT_GROUP.name
        specs = {'resources1:VGPU': '1', 'trait_A:CUSTOM_A': 'required'}
        others = {'resources:VGPU': '1', 'trait:CUSTOM_A': 'required',
                  'resourceful': 'yes', 'traits': 'yes'}

        self.assertEqual([], unread(*reads, extra_specs=specs))
        self.assertEqual(4, len(unread(
            *reads, extra_specs={**specs, **others})))

    def test_name_is_shown_in_a_short_line(self):
        [told] = unread(extra_specs={'capabilities:\r\n' + 'x' * 10_000: ''})

        self.assertTrue(told.isprintable())
        self.assertLess(len(told), 130)

    def test_long_name_is_shortened(self):
        for length, end in ((60, 'x ('), (61, 'x… (')):
            name = 'capabilities:'.ljust(length, 'x')
            self.assertEqual(
                [f'flavor extra spec {name[:59]}{end}a capability of the '
                 'host)'], unread(extra_specs={name: ''}))

    @hypothesis.given(
        st.sets(NAMES, max_size=4),
        st.sets(st.sampled_from([*ASKING]), max_size=4))
    def test_listed_demands_are_demanded_and_unread(self, reads, asked):
        wishes = {}
        for name in asked:
            for field, value in ASKING[name].items():
                wishes[field] = ({**wishes.get(field, {}), **value}
                                 if isinstance(value, dict) else value)

        told = unread(*reads, **wishes)

        self.assertEqual(
            {name.rpartition('properties.')[2].removeprefix(
                requirements.EXTRA_SPEC) for name in asked
             if not reads & {name, requirements.find(name).name}
             and not any(read.endswith('*') and name.startswith(read[:-1])
                         for read in reads)},
            {' '.join(line.partition(' (')[0].split()[2:]).removeprefix(
                'spec ') for line in told})


class TestRule(base.TestCase):

    def refusal(self, ignored=False, **wishes):
        return requirements.RequirementCheck([], ignored).refusal(
            builders.request(**wishes), CONTEXT)

    def test_request_without_unread_demands_is_accepted(self):
        for ignored in (False, True):
            self.assertIsNone(self.refusal(ignored, **PLAIN))

        self.assertEqual('', self.logs.output)

    def test_refusal_names_the_unread_demands(self):
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

    def test_refusal_counts_demands_beyond_the_named(self):
        for asked, end in (
                (10, 'resources9:X (resources of a numbered group).'),
                (11, 'group) and 1 more.')):
            self.assertThat(str(self.refusal(extra_specs={
                f'resources{number}:X': '1' for number in range(asked)})),
                matchers.EndsWith(end))

    def test_ignored_demand_is_logged_as_a_warning(self):
        self.assertIsNone(self.refusal(True, ignore_hosts=['a']))

        [line] = self.logs.output.splitlines()
        self.assertIn(CONTEXT.request_id, line)
        self.assertIn('request field ignore_hosts (other hosts)', line)


class TestNames(base.TestCase):

    def test_names_and_patterns_are_known(self):
        for known in ('numa_topology', 'flavor.extra_specs.hw:numa_nodes',
                      'flavor.extra_specs.resources*',
                      'flavor.extra_specs.resources{group}:*',
                      'image.properties.hw_numa_*', 'request_level_params.*',
                      'flavor.extra_specs.quota:cpu_shares'):
            self.assertTrue(requirements.is_known(known), known)
        for unknown in ('numa_topologie', 'image.properties.hw_nmua_*',
                        'request_level_param', 'numa_topologie*'):
            self.assertFalse(requirements.is_known(unknown), unknown)


#: What ``tests/integration/nova/names.py`` prints; a test there runs it.
NOVA_NAMES = pathlib.Path(__file__).with_name('nova_names.json')

NO_REQUIREMENTS = frozenset().union(*requirements.NO_REQUIREMENTS.values())

#: Names that Nova's requests have no more, or only in their older forms.
OTHERS = {'image.properties.hw_numa_cpus.*', 'image.properties.hw_numa_mem.*',
          'image.properties.trait:*', 'image.properties.architecture',
          'image.properties.hypervisor_type', 'image.properties.vm_mode',
          'image.properties.hypervisor_version_requires',
          'flavor.extra_specs.unscoped', 'requested_resources.other'}

DEDICATED = {'hw:cpu_policy': 'dedicated'}
TPM = {'hw:tpm_version': '2.0'}
UEFI = {'hw_firmware_type': 'uefi'}


def recorded():
    """Yield the names of Nova's, with something in their open parts."""
    known = json.loads(NOVA_NAMES.read_text())
    for prefix, kind in ((requirements.EXTRA_SPEC, 'extra_specs'),
                         (requirements.PROPERTY, 'image_properties'),
                         ('', 'request_fields')):
        for name in known[kind]:
            yield prefix + re.sub(r'\{\w+\}', '1', name)
            yield prefix + re.sub(r'\{\w+\}', 'x', name.replace(
                '{group}', '').replace('{filter}', ':x:y'))


def demands(name, value, extra_specs=None, image=None, **fields):
    """Return whether a value asks for something."""
    if name.startswith(requirements.EXTRA_SPEC):
        extra_specs = {name.removeprefix(requirements.EXTRA_SPEC): value,
                       **(extra_specs or {})}
    elif name.startswith(requirements.PROPERTY):
        image = {name.removeprefix(requirements.PROPERTY): value,
                 **(image or {})}
    request = builders.request(
        extra_specs=extra_specs or {}, image=image, **fields)
    return requirements.find(name).when.holds(value, request)


class TestNovaNames(base.TestCase):

    def test_each_name_of_nova_is_classified(self):
        for name in recorded():
            found = requirements.find(name)
            self.assertNotEqual(found is None, name not in NO_REQUIREMENTS)
            if found is not None:
                self.assertNotEqual(requirements.UNSCOPED, found.name, name)

    def test_each_name_of_the_catalogue_is_a_name_of_nova(self):
        names = {*recorded()}
        found = {each.name for each in map(requirements.find, names) if each}

        self.assertEqual(set(), NO_REQUIREMENTS - names)
        self.assertEqual(
            OTHERS, {each.name for each in requirements.REQUIREMENTS} - found)

    def test_each_demand_is_found_by_a_name_of_its_own(self):
        for each in requirements.REQUIREMENTS:
            if each.pattern is None:
                self.assertIs(
                    each, requirements.find(each.name.replace('*', 'x')))
        self.assertEqual(len(requirements.REQUIREMENTS), len(
            {each.name for each in requirements.REQUIREMENTS}))

    def test_names_unknown_to_nova_are_no_demands(self):
        for name in ('flavor.extra_specs.licence:product',
                     'flavor.extra_specs.resources!:X',
                     'flavor.extra_specs.hw:new', 'flavor.extra_specs.:x',
                     'image.properties.os_new', 'new'):
            self.assertIsNone(requirements.find(name), name)

    def test_groups_are_found_by_any_suffix(self):
        for suffix in ('', '1', '_GPU', '-', 'a' * 64):
            for text in ('VGPU', 'CUSTOM_X', '', 'a:b', 'x\n'):
                self.assertEqual(
                    requirements.GROUP if suffix else requirements.RESOURCES,
                    requirements.find(
                        f'flavor.extra_specs.resources{suffix}:{text}'))
                self.assertEqual(
                    requirements.TRAIT_GROUP if suffix
                    else requirements.find('flavor.extra_specs.trait:x'),
                    requirements.find(
                        f'flavor.extra_specs.trait{suffix}:{text}'))

    def test_shipped_stages_read_known_names(self):
        known = NO_REQUIREMENTS | {
            each.name for each in requirements.REQUIREMENTS}
        stages = [*mandatory_stages.destination_stages(1.0),
                  *mandatory_stages.REQUEST_STAGES,
                  capacity.Capacity,
                  *plugins.load_shipped(plugins.FILTERS).values()]

        for stage in stages:
            self.assertEqual(set(), stage.reads - known, stage)
        self.assertEqual(frozenset(), filters.Filter.reads)


class TestExtraSpec(base.TestCase):

    def test_flavor_may_have_no_extra_specs(self):
        request = builders.request(extra_specs={'a': 'b'})
        self.assertEqual('b', requirements.extra_spec(request, 'a'))
        for name in 'extra_specs', None:
            if name:
                del request.flavor.extra_specs
            self.assertIsNone(requirements.extra_spec(request, 'b'))


class TestConditions(base.TestCase):
    """A value that asks for nothing must not have a request refused."""

    def assertDemand(self, name, *values, **others):
        for value in values:
            self.assertTrue(demands(name, value, **others), (name, value))

    def assertNoDemand(self, name, *values, **others):
        for value in values:
            self.assertFalse(demands(name, value, **others), (name, value))

    def test_texts_and_numbers_are_demands_unless_empty(self):
        for name in ('flavor.extra_specs.hw:numa_nodes',
                     'flavor.extra_specs.hw:mem_page_size',
                     'flavor.extra_specs.hw:pmem',
                     'flavor.extra_specs.accel:device_profile',
                     'image.properties.hw_numa_nodes',
                     'image.properties.hw_mem_page_size',
                     'image.properties.traits_required',
                     'image.properties.hw_architecture'):
            self.assertDemand(name, '1', 'small')
            self.assertNoDemand(name, '')
        self.assertNoDemand('image.properties.traits_required', [])
        self.assertNoDemand('image.properties.hw_maxphysaddr_bits', 0)

    def test_any_amount_and_capability_is_a_demand(self):
        for name in ('resources:VCPU', 'resources1:VGPU', 'capabilities:x',
                     'aggregate_instance_extra_specs:x', 'ssd'):
            self.assertDemand(f'flavor.extra_specs.{name}', '', '0', '1')

    def test_default_policies_are_no_demand(self):
        for name, usual, others in (
                ('hw:cpu_policy', 'shared', ('dedicated', 'mixed')),
                ('hw:cpu_thread_policy', 'prefer', ('isolate', 'require'))):
            for full in (f'flavor.extra_specs.{name}',
                         f'image.properties.{name.replace(":", "_")}'):
                self.assertDemand(full, *others)
                self.assertNoDemand(full, usual, '')
        name = 'flavor.extra_specs.hw:emulator_threads_policy'
        self.assertDemand(name, 'isolate')
        self.assertNoDemand(name, 'share', '')

    def test_switches_are_demands_if_enabled(self):
        for name in ('flavor.extra_specs.hw:mem_encryption',
                     'flavor.extra_specs.hw:cpu_realtime',
                     'flavor.extra_specs.hw:ephemeral_encryption',
                     'flavor.extra_specs.hw:virtio_packed_ring',
                     'image.properties.hw_mem_encryption',
                     'image.properties.hw_virtio_packed_ring'):
            self.assertDemand(name, 'true', 'True', 'yes', '1', True)
            self.assertNoDemand(name, 'false', 'no', '0', '', 'x', False)

    def test_single_value_of_some_keys_is_a_demand(self):
        for name, value, others in (
                ('flavor.extra_specs.os:secure_boot', 'required',
                 ('disabled', 'optional', '')),
                ('image.properties.os_secure_boot', 'required',
                 ('disabled', 'optional', '')),
                ('flavor.extra_specs.hw:sound_model', 'virtio', ('ac97', '')),
                ('image.properties.hw_sound_model', 'virtio', ('usb', ''))):
            self.assertDemand(name, value)
            self.assertNoDemand(name, *others)

    def test_traits_are_required_or_forbidden(self):
        for name in ('trait:X', 'trait1:X', 'trait_GPU:X'):
            self.assertDemand(
                f'flavor.extra_specs.{name}', 'required', 'forbidden')
            self.assertNoDemand(f'flavor.extra_specs.{name}', 'x', '')

    def test_tpm_model_and_secret_are_demands_with_a_version(self):
        for name, value in (('flavor.extra_specs.hw:tpm_model', 'tpm-crb'),
                            ('flavor.extra_specs.hw:tpm_secret_security',
                             'host'),
                            ('image.properties.hw_tpm_model', 'tpm-tis')):
            self.assertNoDemand(name, value)
            self.assertDemand(name, value, extra_specs=TPM)
            self.assertDemand(name, value, image={'hw_tpm_version': '2.0'})

    def test_models_and_formats_are_demands_with_encryption(self):
        for key, model in (('mem_encryption', 'model'),
                           ('ephemeral_encryption', 'format')):
            for name in (f'flavor.extra_specs.hw:{key}_{model}',
                         f'image.properties.hw_{key}_{model}'):
                self.assertNoDemand(name, 'x')
                self.assertNoDemand(
                    name, 'x', extra_specs={f'hw:{key}': 'false'})
                self.assertDemand(
                    name, 'x', extra_specs={f'hw:{key}': 'true'})
                self.assertDemand(name, 'x', image={f'hw_{key}': True})

    def test_mask_is_a_demand_with_realtime(self):
        for name in ('flavor.extra_specs.hw:cpu_realtime_mask',
                     'image.properties.hw_cpu_realtime_mask'):
            self.assertNoDemand(name, '^0')
            self.assertDemand(
                name, '^0', extra_specs={'hw:cpu_realtime': 'yes'})

    def test_stateless_firmware_is_a_demand_with_uefi(self):
        name = 'image.properties.hw_firmware_stateless'

        self.assertNoDemand(name, True)
        self.assertNoDemand(name, False, image=UEFI)
        self.assertDemand(name, True, 'true', image=UEFI)

    def test_policy_of_devices_is_a_demand_with_devices(self):
        alias = {'pci_passthrough:alias': 'a:1'}
        for name in ('flavor.extra_specs.hw:pci_numa_affinity_policy',
                     'image.properties.hw_pci_numa_affinity_policy'):
            self.assertDemand(name, 'socket')
            self.assertNoDemand(name, 'required', 'legacy', 'preferred')
            self.assertDemand(name, 'required', extra_specs=alias)
            self.assertDemand(name, 'required', pci_requests={'requests': [1]})
            self.assertNoDemand(
                name, 'preferred', 'legacy', extra_specs=alias)

    def test_policy_of_groups_is_a_demand_with_groups(self):
        name = 'flavor.extra_specs.group_policy'

        self.assertNoDemand(name, 'isolate', 'none')
        for others in ({'extra_specs': {'resources1:X': '1'}},
                       {'extra_specs': {'trait1:X': 'required'}},
                       {'requested_resources': [{}]}):
            self.assertDemand(name, 'isolate', **others)
            self.assertNoDemand(name, 'none', **others)

    def test_nonempty_documents_of_nova_are_demands(self):
        def envelope(requests):
            return {'nova_object.name': 'InstancePCIRequests',
                    'nova_object.data': {'requests': requests}}

        self.assertDemand('pci_requests', {'requests': [1]}, envelope([1]),
                          [1], 'x')
        self.assertNoDemand('pci_requests', {'requests': []},
                            envelope([]), envelope(None), {}, [], None)

    def test_networks_are_a_demand_with_a_numa_topology(self):
        there = {'physnets': ['a'], 'tunneled': False}
        numa = {'numa_topology': {'cells': [1]}}

        self.assertNoDemand('network_metadata', there)
        self.assertDemand(
            'network_metadata', there, {'tunneled': True}, **numa)
        self.assertNoDemand('network_metadata', {
            'physnets': [], 'tunneled': False}, **numa)


EAST, WEST = (builders.aggregate(number).uuid for number in (1, 2))


def wished(*pairs):
    """Return networks and ports as they travel."""
    return {'nova_object.name': 'NetworkRequestList', 'nova_object.data': {
        'objects': [{'nova_object.data': {'network_id': network,
                                          'port_id': port}}
                    for network, port in pairs]}}


class Broken(fake.FakeNetworks):
    """Cannot say where segments are."""

    def segment_aggregates(self, context, requested_networks):
        raise exception.NetworkError(uuid='net1', reason='it is unknown')


class TestNetworkNeeds(prefiltering.PrefilterTestCase):

    hosts_ = property(lambda self: builders.hosts(
        aggregates=[(builders.aggregate(1),), (builders.aggregate(2),),
                    (builders.aggregate(1), builders.aggregate(2)), ()],
        traits=[frozenset({requirements.REMOTE_MANAGED})]
        + [frozenset()] * 3))

    def add(self, request, kind=fake.FakeNetworks, routed=True):
        network = networks.make(
            kind, segment_aggregates=f'net1:[{EAST}],net2:[{EAST},{WEST}],'
            f'net3:[{WEST}],net4:[]', remote_managed_ports=['port1'])
        return requirements.NetworkRequirements(network, routed).add(
            context.admin(), request)

    def kept_rows(self, *pairs, routed=True, **fields):
        request = self.add(builders.request(
            requested_networks=wished(*pairs), **fields), routed=routed)
        stages = [*mandatory_stages.destination_stages(60.0), *self.stages()]
        return pipeline.Pipeline([], [], stages).candidates(
            self.hosts_, request).rows.tolist()

    def test_host_is_in_an_aggregate_of_each_routed_network(self):
        for networks_, left in (
                (['net1'], [0, 2]), (['net2'], [0, 1, 2]),
                (['net1', 'net3'], [2]), (['flat'], [0, 1, 2, 3]),
                (['net4'], []), ([], [0, 1, 2, 3])):
            self.assertEqual(left, self.kept_rows(
                *((name, None) for name in networks_)), networks_)

    def test_requested_aggregates_apply_with_network_aggregates(self):
        self.assertEqual([2], self.kept_rows(
            ('net1', None), requested_destination=objects.Destination(
                aggregates=[WEST])))

    def test_routed_networks_are_looked_up_only_if_enabled(self):
        self.assertEqual([0, 1, 2, 3], self.kept_rows(
            ('net1', None), routed=False))

    def test_remote_managed_port_requires_its_trait(self):
        for routed in (False, True):
            self.assertEqual([0], self.kept_rows(
                (None, 'port1'), (None, 'port2'), routed=routed))
            self.assertEqual([0, 1, 2, 3], self.kept_rows(
                (None, 'port2'), routed=routed))

    def test_request_of_the_caller_is_not_modified(self):
        target = objects.Destination(aggregates=[WEST])
        params = {'nova_object.data': {'root_required': ['A']}}
        request = builders.request(
            requested_networks=wished(('net1', 'port1')),
            requested_destination=target, request_level_params=params)

        made = self.add(request)

        self.assertEqual([WEST, EAST], made.requested_destination.aggregates)
        self.assertEqual(
            ['A', requirements.REMOTE_MANAGED],
            made.request_level_params['nova_object.data']['root_required'])
        self.assertEqual([WEST], target.aggregates)
        self.assertEqual(['A'], params['nova_object.data']['root_required'])

    def test_request_without_network_demands_is_returned_unchanged(self):
        plain = builders.request()
        wishing = builders.request(requested_networks=wished(('net1', None)))

        self.assertIs(plain, self.add(plain))
        self.assertIs(wishing, requirements.NetworkRequirements(
            networks.make(noop.NoopNetworks), True).add(
                context.admin(), wishing))

    def test_unknown_network_is_refused(self):
        error = self.assertRaises(
            exception.NoValidHost, self.add, builders.request(
                requested_networks=wished(('net1', None))), Broken)

        self.assertIn('it is unknown', error.reason)
