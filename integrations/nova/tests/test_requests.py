# SPDX-License-Identifier: Apache-2.0
"""Requests are converted, and have reasons against columns."""

import unittest

from nova import context as nova_context
from nova import objects as nova_objects

from cellsched import exception
from cellsched.scheduler import requirements
from cellsched.testing import builders
from cellsched_nova import requests

nova_objects.register_all()

SERVER, SECOND = (
    f'10000000-0000-4000-8000-00000000000{number}' for number in range(2))

#: Requirements that the mandatory filters read.
READS = frozenset({
    'flavor.extra_specs.resources:*', 'flavor.extra_specs.trait:*'})


def spec(extra_specs=None, **fields):
    flavor = nova_objects.Flavor(
        id=1, flavorid='1', name='small', vcpus=1, memory_mb=512, root_gb=1,
        ephemeral_gb=0, swap=0, extra_specs=extra_specs or {})
    image = nova_objects.ImageMeta(properties=nova_objects.ImageMetaProps())
    return nova_objects.RequestSpec(**{
        'flavor': flavor, 'image': image, 'num_instances': 5,
        'project_id': 'project', 'instance_uuid': SECOND,
        'numa_topology': None, 'pci_requests': None,
        'requested_resources': [], 'instance_group': None,
        'scheduler_hints': {}, **fields})


class TestRead(unittest.TestCase):

    def test_instances_of_other_calls_are_ignored(self):
        request = requests.read(spec(), [SERVER])

        self.assertEqual((1, SERVER),
                         (request.num_instances, request.instance_uuid))

    def test_resources_are_read_from_the_flavor(self):
        request = requests.read(spec({'resources:VGPU': '1'}), [SERVER])

        self.assertEqual({'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1,
                          'VGPU': 1}, request.resources())

    def test_instances_are_members_of_their_group(self):
        group = nova_objects.InstanceGroup(
            policy='anti-affinity', members=[SERVER], hosts=[], rules={})

        request = requests.read(
            spec(instance_group=group), [SERVER, SECOND])

        self.assertEqual([SERVER, SECOND], request.instance_group.members)

    def test_remote_managed_port_requires_the_trait_of_its_hosts(self):
        networks = nova_objects.NetworkRequestList(objects=[
            nova_objects.NetworkRequest(port_id=SERVER)])
        for managed, traits in ('False', []), (
                'True', ['COMPUTE_REMOTE_MANAGED_PORTS']):
            requested = nova_objects.InstancePCIRequests(requests=[
                nova_objects.InstancePCIRequest(count=1, spec=[
                    {'remote_managed': managed}])])
            request = requests.read(spec(
                requested_networks=networks, pci_requests=requested), [SERVER])

            params = request.get('request_level_params') or {}
            self.assertEqual(traits, params.get(
                'nova_object.data', {}).get('root_required', []))


class TestBeyondColumns(unittest.TestCase):

    def why(self, request, classes=(), routed=False):
        return requests.beyond_columns(
            request, requests.read(request, [SERVER]),
            requirements.RequirementCheck(READS), frozenset(classes),
            routed)

    def test_plain_request_is_decided_on_columns(self):
        self.assertEqual([], self.why(spec({'trait:CUSTOM_A': 'required'})))

    def test_request_with_groups_is_beyond_columns(self):
        group = nova_objects.RequestGroup(
            requester_id='port', resources={'VCPU': 1})

        self.assertEqual(['groups of resources'],
                         self.why(spec(requested_resources=[group]))[:1])
        self.assertIn('groups of the flavor',
                      self.why(spec({'resources1:VGPU': '1'})))

    def test_request_with_unread_devices_is_beyond_columns(self):
        requested = nova_objects.InstancePCIRequests(requests=[
            nova_objects.InstancePCIRequest(count=1, spec=[])])

        [why] = self.why(spec(pci_requests=requested))

        self.assertIn('pci_requests', why)

    def test_request_with_an_empty_list_of_devices_is_plain(self):
        requested = nova_objects.InstancePCIRequests(requests=[])

        self.assertEqual([], self.why(spec(pci_requests=requested)))

    def test_request_with_an_unread_numa_topology_is_beyond_columns(self):
        topology = nova_objects.InstanceNUMATopology(cells=[])

        [why] = self.why(spec(numa_topology=topology))

        self.assertIn('numa_topology', why)

    def test_class_of_child_or_sharing_providers_is_beyond_columns(self):
        self.assertIn('DISK_GB of child or sharing providers',
                      self.why(spec(), classes=['DISK_GB', 'VGPU']))

    def test_extra_spec_without_a_column_is_beyond_columns(self):
        [why] = self.why(spec({'hw:mem_encryption': 'true'}))

        self.assertIn('hw:mem_encryption', why)

    def test_invalid_amount_is_beyond_columns(self):
        [why] = self.why(spec({'resources:VGPU': 'many'}))

        self.assertIn('resources:VGPU', why)


class TestWrite(unittest.TestCase):

    def write(self, **wishes):
        return requests.write(
            nova_context.get_admin_context(), builders.request(**wishes),
            SERVER)

    def test_request_is_as_from_the_api(self):
        made = self.write(
            extra_specs={'trait:CUSTOM_A': 'required'}, memory_mb=1024,
            image={'hw_architecture': 'x86_64'}, hints={'same_host': [SECOND]},
            ignore_hosts=['n1'], availability_zone='north')

        self.assertEqual(
            (SERVER, 1024, {'trait:CUSTOM_A': 'required'}, 'x86_64',
             {'same_host': [SECOND]}, ['n1'], 'north', 'project', []),
            (made.instance_uuid, made.flavor.memory_mb,
             made.flavor.extra_specs, made.image.properties.hw_architecture,
             made.scheduler_hints, made.ignore_hosts, made.availability_zone,
             made.project_id, made.requested_resources))

    def test_default_number_of_instances_is_1(self):
        asked = builders.request()
        del asked.num_instances

        made = requests.write(
            nova_context.get_admin_context(), asked, SERVER)

        self.assertEqual(1, made.num_instances)

    def test_written_request_can_be_read_unchanged(self):
        asked = builders.request(extra_specs={'resources:VGPU': '1'})

        read = requests.read(requests.write(
            nova_context.get_admin_context(), asked, SERVER), [SERVER])

        self.assertEqual(asked.resources(), read.resources())

    def test_numa_topology_is_computed(self):
        made = self.write(vcpus=2, memory_mb=1024,
                          extra_specs={'hw:numa_nodes': '2'})

        self.assertEqual(2, len(made.numa_topology.cells))

    def test_given_groups_are_kept(self):
        group = nova_objects.RequestGroup(
            requester_id='port', resources={'VGPU': 1})

        made = self.write(requested_resources=[group.obj_to_primitive()])

        self.assertEqual({'VGPU': 1}, made.requested_resources[0].resources)

    def test_request_rejected_by_the_api_is_rejected(self):
        for name, value in (('hw:numa_nodes', '0'),
                            ('pci_passthrough:alias', 'none:1')):
            with self.assertRaises(exception.Invalid):
                self.write(extra_specs={name: value})
