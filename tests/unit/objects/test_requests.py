# SPDX-License-Identifier: Apache-2.0
"""What a caller asks the scheduler for."""

import copy
import json

from cellsched import exception
from cellsched.hardware import aliases
from cellsched import objects
from cellsched.testing import builders
from tests.unit import base
from tests.unit.db import samples
from tests.unit.objects import wire


class TestRequestSpec(base.TestCase):

    def test_hint_is_a_list(self):
        spec = objects.RequestSpec(scheduler_hints={'group': ['a', 'b']})

        self.assertEqual(['a', 'b'], spec.hint('group'))

    def test_missing_hint_is_empty(self):
        for spec in (objects.RequestSpec(),
                     objects.RequestSpec(scheduler_hints=None),
                     objects.RequestSpec(scheduler_hints={'group': []})):
            self.assertEqual([], spec.hint('group'))

    def test_changing_a_hint_does_not_change_the_request(self):
        spec = objects.RequestSpec(scheduler_hints={'group': ['a']})

        spec.hint('group').append('b')

        self.assertEqual(['a'], spec.hint('group'))

    def test_hint_is_read_as_by_filters_written_for_nova(self):
        spec = objects.RequestSpec(
            scheduler_hints={'one': ['a'], 'two': ['a', 'b'], 'none': []})

        self.assertEqual('a', spec.get_scheduler_hint('one'))
        self.assertEqual(['a', 'b'], spec.get_scheduler_hint('two'))
        self.assertEqual([], spec.get_scheduler_hint('none', 'x'))
        self.assertIsNone(spec.get_scheduler_hint('three'))
        for hints in ({}, {'scheduler_hints': None}):
            self.assertEqual('x', objects.RequestSpec(
                **hints).get_scheduler_hint('one', 'x'))

    def test_image_property_is_read_from_the_image_if_present(self):
        properties = objects.ImageMetaProps(hw_architecture='x86_64')
        spec = objects.RequestSpec(
            image=objects.ImageMeta(properties=properties))

        self.assertEqual('x86_64', spec.image_property('hw_architecture'))
        self.assertIsNone(spec.image_property('img_hv_type'))
        for image in (None, objects.ImageMeta(),
                      objects.ImageMeta(properties=None)):
            self.assertIsNone(objects.RequestSpec(
                image=image).image_property('hw_architecture'))
        self.assertEqual(
            'any', objects.RequestSpec().image_property('x', 'any'))

    def resources(self, is_bfv=False, **flavor):
        return objects.RequestSpec(
            flavor=samples.flavor(**flavor), is_bfv=is_bfv).resources()

    def test_resources_are_read_from_the_flavor(self):
        for fact, is_bfv, disk_gb, flavor in (
                ('disks are added up', False, 15, {'ephemeral_gb': 5}),
                ('a volume takes no disk of the host', True, 5,
                 {'ephemeral_gb': 5}),
                ('a class without an amount is not requested', True, 0, {}),
                ('an extra spec applies to a server on a volume', True, 7,
                 {'extra_specs': {'resources:DISK_GB': '7'}})):
            with self.subTest(fact):
                self.assertEqual(
                    {'VCPU': 2, 'MEMORY_MB': 512,
                     **({'DISK_GB': disk_gb} if disk_gb else {})},
                    self.resources(is_bfv, vcpus=2, memory_mb=512, root_gb=10,
                                   **flavor))

    def test_swap_is_taken_in_whole_gigabytes(self):
        for swap, disk_gb in ((0, 10), (1, 11), (1024, 11), (1025, 12)):
            self.assertEqual(
                disk_gb, self.resources(root_gb=10, swap=swap)['DISK_GB'])

    def test_extra_specs_override_the_amount_of_a_class(self):
        said = {'resources:VCPU': '4', 'resources:DISK_GB': '0',
                'resources:CUSTOM_X': '2', 'resources:VGPU': '0'}
        for is_bfv in False, True:
            self.assertEqual(
                {'VCPU': 4, 'MEMORY_MB': 512, 'CUSTOM_X': 2},
                self.resources(is_bfv, vcpus=2, memory_mb=512, root_gb=10,
                               extra_specs=said))

    def test_dedicated_cpus_replace_vcpus(self):
        for specs, cpus in (
                ({'hw:cpu_policy': 'shared'}, {'VCPU': 4}),
                ({'hw:cpu_policy': 'dedicated'}, {'PCPU': 4}),
                ({'hw:cpu_policy': 'dedicated',
                  'hw:emulator_threads_policy': 'isolate'}, {'PCPU': 5}),
                ({'hw:cpu_policy': 'mixed', 'hw:cpu_dedicated_mask': '2-3',
                  'hw:emulator_threads_policy': 'isolate'},
                 {'VCPU': 2, 'PCPU': 3}),
                ({'resources:PCPU': '4'}, {'PCPU': 4}),
                ({'resources1:PCPU': '4'}, {}),
                ({'resources:PCPU': '0'}, {'VCPU': 4}),
                ({'resources1:VGPU': '1'}, {'VCPU': 4})):
            self.assertEqual(
                {**cpus, 'MEMORY_MB': 512, 'DISK_GB': 10},
                self.resources(vcpus=4, memory_mb=512, root_gb=10,
                               extra_specs=specs), specs)

    def test_image_asks_for_dedicated_cpus(self):
        self.assertEqual({'PCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1},
                         builders.request(image={
                             'hw_cpu_policy': 'dedicated'}).resources())

    def test_flavor_with_the_fields_needed_is_enough(self):
        flavor = objects.Flavor(vcpus=1, memory_mb=512, root_gb=10)

        self.assertEqual(
            {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 10},
            objects.RequestSpec(flavor=flavor).resources())


GPUS = aliases.by_name([
    '{"name": "gpu", "vendor_id": "10de", "product_id": "1db4"}'])


def cells(topology):
    return [(sorted(each.cpus | each.pcpus), each.memory_mb)
            for each in topology.cells] if topology else None


class TestHardware(base.TestCase):

    def test_traits_of_policies(self):
        for image, specs, traits in (
                ({}, {}, {}), ({'os_type': 'linux'}, {'quota:vif': '1'}, {}),
                ({}, {'hw:cpu_thread_policy': 'isolate'},
                 {'HW_CPU_HYPERTHREADING': 'forbidden'}),
                ({'hw_cpu_thread_policy': 'require',
                  'hw_pci_numa_affinity_policy': 'socket'}, {},
                 {'HW_CPU_HYPERTHREADING': 'required',
                  'COMPUTE_SOCKET_PCI_NUMA_AFFINITY': 'required'}),
                ({}, {'hw:pci_numa_affinity_policy': 'required'}, {})):
            self.assertEqual(traits, builders.request(
                image=image, extra_specs=specs).hardware_traits())

    def test_documents_follow_the_flavor_and_the_image(self):
        request = builders.request(
            vcpus=4, extra_specs={'pci_passthrough:alias': 'gpu:2'},
            image={'hw_numa_nodes': 2})

        self.assertTrue(request.add_hardware(GPUS))

        read = objects.RequestSpec.obj_from_primitive(
            json.loads(json.dumps(request.obj_to_primitive())))
        self.assertEqual([([0, 1], 256), ([2, 3], 256)],
                         cells(read.guest_topology()))
        [gpus] = read.device_requests()
        self.assertEqual(('gpu', 2, 'legacy'),
                         (gpus.alias, gpus.count, gpus.affinity))
        self.assertEqual('InstanceNUMATopology',
                         read.numa_topology['nova_object.name'])
        self.assertFalse(read.add_hardware(GPUS))

    def test_plain_request_has_no_documents(self):
        request = builders.request(
            image={'os_type': 'linux'}, extra_specs={'quota:vif_limit': '1'})

        self.assertFalse(request.add_hardware(GPUS))

        for name in 'numa_topology', 'pci_requests':
            self.assertFalse(request.obj_attr_is_set(name))
        self.assertIsNone(request.guest_topology())
        self.assertEqual((), request.device_requests())

    def test_present_documents_stay(self):
        topology = {'cells': [{'id': 0, 'cpuset': [0], 'memory': 64}]}
        devices = [{'count': 1, 'spec': [], 'alias_name': 'card'}]
        request = builders.request(
            numa_topology=topology, pci_requests=devices, extra_specs={
                'hw:numa_nodes': '1', 'pci_passthrough:alias': 'gpu:1'})

        self.assertFalse(request.add_hardware(GPUS))

        self.assertEqual((topology, devices),
                         (request.numa_topology, request.pci_requests))
        self.assertEqual([([0], 64)], cells(request.guest_topology()))

    def test_devices_of_ports_follow_devices_of_the_flavor(self):
        port = wire.as_sent(
            'InstancePCIRequest', '1.4', count=1, request_id='port',
            requester_id='id', spec=[{'physical_network': 'red'}])
        for given in ([port], json.dumps([port]), wire.as_sent(
                'InstancePCIRequests', '1.1', requests=[port])):
            request = builders.request(pci_requests=given, extra_specs={
                'pci_passthrough:alias': 'gpu:1'})

            self.assertTrue(request.add_hardware(GPUS))

            self.assertEqual(['gpu', None], [
                each.alias for each in request.device_requests()])
            self.assertEqual(port, request.pci_requests['nova_object.data'][
                'requests'][1])
            self.assertFalse(request.add_hardware(GPUS))

    def test_topology_of_a_request_without_the_document(self):
        for numa_topology in {}, {'numa_topology': None}:
            self.assertEqual([([0], 512)], cells(builders.request(
                extra_specs={'resources:PCPU': '1'},
                **numa_topology).guest_topology()))

    def test_missing_devices_of_the_flavor_are_refused(self):
        for devices in ({}, {'pci_requests': None},
                        {'pci_requests': {'requests': [
                            {'count': 1, 'spec': [], 'alias_name': None}]}}):
            error = self.assertRaises(
                exception.InvalidField, builders.request(extra_specs={
                    'pci_passthrough:alias': 'gpu:1'},
                    **devices).device_requests)
            self.assertEqual('pci_requests', error.field)

    def test_invalid_request_gets_no_document(self):
        request = builders.request(extra_specs={
            'hw:numa_nodes': '1', 'pci_passthrough:alias': 'tpu:1'})

        self.assertRaises(
            exception.HardwareRequestInvalid, request.add_hardware, GPUS)

        self.assertFalse(request.obj_attr_is_set('numa_topology'))

    def test_request_of_each_version_is_read(self):
        topology = wire.as_sent('InstanceNUMATopology', '1.3', cells=[
            wire.as_sent('InstanceNUMACell', '1.4', id=0, cpuset=[0, 1],
                         memory=64, cpu_policy='dedicated')])
        for minor in range(16):
            request = objects.RequestSpec.obj_from_primitive({
                'nova_object.name': 'RequestSpec',
                'nova_object.namespace': 'nova',
                'nova_object.version': f'1.{minor}',
                'nova_object.data': {
                    'numa_topology': topology, 'pci_requests': {
                        'nova_object.name': 'InstancePCIRequests',
                        'nova_object.data': {'requests': []}}}})
            self.assertEqual(
                [([0, 1], 64)], cells(request.guest_topology()))


class TestSchedulerLimits(base.TestCase):

    def test_dict_has_the_set_limits(self):
        self.assertEqual({}, objects.SchedulerLimits().to_dict())
        self.assertEqual(
            {'vcpu': 4, 'numa_topology': {'a': 1}},
            objects.SchedulerLimits(vcpu=4, disk_gb=None,
                                    numa_topology={'a': 1}).to_dict())


def read(**data):
    sample = copy.deepcopy(wire.GROUP)
    sample['nova_object.data'].update(data)
    return objects.InstanceGroup.obj_from_primitive(sample)


class TestInstanceGroup(base.TestCase):

    def test_rules_are_texts_on_the_wire_and_numbers_when_read(self):
        group = objects.InstanceGroup(rules={
            'max_server_per_host': 3, 'max_skew': '1', 'spread': 'az'})

        self.assertEqual(
            {'max_server_per_host': 3, 'max_skew': 1, 'spread': 'az'},
            group.rules)
        self.assertEqual(
            {'max_server_per_host': '3', 'max_skew': '1', 'spread': 'az'},
            group.obj_to_primitive()['nova_object.data']['_rules'])

    def test_default_rules_are_empty(self):
        for group in (objects.InstanceGroup(), read(_rules={}),
                      read(_rules=None)):
            self.assertEqual({}, group.rules)

    def test_unknown_rules_are_passed_on(self):
        group = read(_rules={'newer': 'x'})

        self.assertEqual({}, group.rules)
        self.assertEqual({'newer': 'x'}, group.obj_to_primitive()[
            'nova_object.data']['_rules'])

    def test_rule_out_of_bounds_is_refused(self):
        for name, values in (
                ('max_server_per_host',
                 ('0', '-1', 'x', '', '1.5', str(2 ** 31), '9' * 10000)),
                ('max_skew', ('0', '1001', '\u0661')),
                ('spread', ('rack', ''))):
            for value in values:
                error = self.assertRaises(
                    exception.InvalidField, read, _rules={name: value})

                self.assertEqual(('InstanceGroup', f'rules.{name}'),
                                 (error.where, error.field))

    def test_rules_at_the_bounds_are_accepted(self):
        for name, values in (('max_server_per_host', (1, 2 ** 31 - 1)),
                             ('max_skew', (1, 1000))):
            for value in values:
                self.assertEqual(
                    {name: value}, read(_rules={name: str(value)}).rules)

    def test_policy_of_older_senders_is_in_the_list(self):
        sample = copy.deepcopy(wire.GROUP)
        sample['nova_object.version'] = '1.10'
        del sample['nova_object.data']['policy']
        del sample['nova_object.data']['_rules']

        group = objects.InstanceGroup.obj_from_primitive(sample)

        self.assertEqual('anti-affinity', group.policy)

    def test_malformed_fields_are_named(self):
        for name, value in (('members', 7), ('policy', [1]),
                            ('_rules', ['x'])):
            error = self.assertRaises(
                exception.InvalidField, read, **{name: value})

            self.assertEqual(
                ('InstanceGroup', name), (error.where, error.field))


class TestSelection(base.TestCase):

    def test_allocation_request_is_in_the_form_of_placement(self):
        text = objects.Selection.allocation(wire.UUID, {'VCPU': 1})

        self.assertEqual(
            {'allocations': {wire.UUID: {'resources': {'VCPU': 1}}},
             'mappings': {'': [wire.UUID]}}, json.loads(text))

    def test_requested_amounts_are_read_from_the_allocation_request(self):
        selection = objects.Selection(
            allocation_request=objects.Selection.allocation(
                wire.UUID, {'VCPU': 1, 'MEMORY_MB': 512}))

        self.assertEqual({wire.UUID: {'VCPU': 1, 'MEMORY_MB': 512}},
                         selection.requested())

    def test_selection_without_allocation_request_requests_no_amounts(self):
        for selection in (
                objects.Selection(), objects.Selection(
                    allocation_request=None),
                objects.Selection.obj_from_primitive(wire.SELECTION)):
            self.assertEqual({}, selection.requested())

    def test_older_callers_get_host_node_and_limits(self):
        selection = objects.Selection.obj_from_primitive(wire.SELECTION)
        self.assertEqual({'host': 'h1', 'nodename': 'n1', 'limits': {}},
                         selection.to_dict())

        selection.limits.memory_mb = 512
        self.assertEqual({'memory_mb': 512}, selection.to_dict()['limits'])

        selection.limits = None
        self.assertEqual({}, selection.to_dict()['limits'])


def read_image(sample):
    return objects.ImageMeta.obj_from_primitive(sample)


def changed(sample, **data):
    sample = copy.deepcopy(sample)
    sample['nova_object.data'].update(data)
    return sample


class TestImageMeta(base.TestCase):

    def test_image_of_a_volume_has_properties_alone(self):
        image = read_image(wire.as_sent(
            'ImageMeta', '1.8', properties=wire.IMAGE_PROPS))

        self.assertIsNone(image.get('id'))
        self.assertEqual('x86_64', image.properties.hw_architecture)

    def test_malformed_field_is_named(self):
        for name in 'min_ram', 'min_disk', 'size', 'properties':
            error = self.assertRaises(
                exception.InvalidField, read_image,
                changed(wire.IMAGE, **{name: ['x']}))

            self.assertEqual(('ImageMeta', name), (error.where, error.field))

    def test_unread_field_may_have_any_value(self):
        sample = changed(wire.IMAGE, created_at='soon', tags={'a': 1})

        self.assertEqual(
            wire.without_changes(sample),
            wire.without_changes(read_image(sample).obj_to_primitive()))


class TestImageMetaProps(base.TestCase):

    def test_properties_are_read_by_name(self):
        properties = read_image(wire.IMAGE).properties

        self.assertEqual('x86_64', properties.hw_architecture)
        self.assertEqual('x86_64', properties.get('hw_architecture'))
        self.assertIs(False, properties.get('img_hidden', True))
        self.assertIn('hw_architecture', properties)
        self.assertEqual(wire.IMAGE_PROPS['nova_object.data'],
                         dict(properties.items()))

    def test_missing_property_is_not_set(self):
        properties = read_image(wire.IMAGE).properties

        self.assertNotIn('os_distro', properties)
        self.assertIsNone(properties.get('os_distro'))
        self.assertEqual('none', properties.get('os_distro', 'none'))
        self.assertRaises(AttributeError, getattr, properties, 'os_distro')

    def test_unknown_properties_and_newer_versions_are_passed_on(self):
        sample = changed(wire.IMAGE_PROPS, hw_newer={'a': [1, None]},
                         context=1, self=2, get=3, fields=4)
        sample['nova_object.version'] = '1.99'

        again = read_image(changed(wire.IMAGE, properties=sample))

        self.assertEqual(
            wire.without_changes(sample), wire.without_changes(
                again.properties.obj_to_primitive()))
        self.assertEqual(3, again.properties.get('get'))

    def test_properties_can_be_given(self):
        properties = objects.ImageMetaProps(**{'context': 1, 'trait:X': 'y'})

        self.assertEqual({'context': 1, 'trait:X': 'y'},
                         dict(properties.items()))

    def test_copy_has_properties_of_its_own(self):
        spec = objects.RequestSpec(image=read_image(wire.IMAGE))

        copied = copy.deepcopy(spec).image.properties
        copied.hw_numa_cpus.append([2])

        self.assertEqual('x86_64', copied.hw_architecture)
        self.assertEqual(
            [[0], [1]], spec.image.properties.hw_numa_cpus)
        self.assertEqual('x86_64', copy.copy(copied).hw_architecture)

    def test_properties_other_than_a_mapping_are_refused(self):
        sample = copy.deepcopy(wire.IMAGE)
        for data in ([], 'x', None, 7):
            sample['nova_object.data']['properties']['nova_object.data'] = data

            error = self.assertRaises(
                exception.InvalidField, read_image, sample)

            self.assertEqual('ImageMetaProps', error.where)
