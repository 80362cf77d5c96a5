# SPDX-License-Identifier: Apache-2.0
"""Requests are restored from notifications and the API database."""

from nova import objects as nova_objects

from cellsched_nova.shadow import requests
from tests import specs


class TestCase(specs.TestCase):

    def read(self, payload):
        return requests.read(self.context, payload, specs.CONF)


class TestVersioned(TestCase):

    def test_request_is_restored(self):
        request = self.keep(specs.spec(
            {'trait:CUSTOM_A': 'required'}, is_bfv=True,
            availability_zone='north', scheduler_hints={'query': ['[]']}))

        read = self.read(specs.versioned(request))

        self.assertEqual(((), specs.SERVER), (read.missing, read.instance))
        for name in ('flavor', 'image'):
            expected, found = getattr(request, name), getattr(read.spec, name)
            for each in (expected, found):
                # The order in the notification is undefined.
                each.obj_reset_changes(recursive=True)
            self.assertEqual(expected.obj_to_primitive(),
                             found.obj_to_primitive())
        for name in ('is_bfv', 'availability_zone', 'scheduler_hints',
                     'num_instances', 'project_id'):
            self.assertEqual(getattr(request, name),
                             getattr(read.spec, name), name)

    def test_missing_fields_are_named(self):
        request = self.keep(specs.spec())
        request.ignore_hosts = ['host1']
        request.force_hosts = ['host2']
        request.num_instances = 3
        request.requested_destination = nova_objects.Destination(
            host='host2', node='node2', cell=None)

        found = self.read(specs.versioned(request)).spec

        self.assertEqual((['host1'], ['host2'], None, 3, 'host2', 'node2'), (
            found.ignore_hosts, found.force_hosts, found.force_nodes,
            found.num_instances, found.requested_destination.host,
            found.requested_destination.node))

    def test_group_is_read_from_the_notification(self):
        request = self.keep(specs.spec())
        request.instance_group = nova_objects.InstanceGroup(
            uuid=specs.MEMBER, name='apart', user_id='user',
            project_id='project', policy='anti-affinity',
            members=[specs.SERVER, specs.SECOND], hosts=['host1'],
            rules={'max_server_per_host': '2'})

        group = self.read(specs.versioned(request)).spec.instance_group

        self.assertEqual(
            ('anti-affinity', [specs.SERVER, specs.SECOND], ['host1'],
             {'max_server_per_host': 2}),
            (group.policy, group.members, group.hosts, group.rules))

    def test_flavor_of_a_resize_counts_with_its_topology(self):
        request = self.keep(specs.spec())
        request.flavor = specs.spec({'hw:numa_nodes': '2'}).flavor
        request.flavor.vcpus, request.flavor.flavorid = 2, '2'

        found = self.read(specs.versioned(request)).spec

        self.assertEqual((2, 2, 'x86_64'), (
            found.flavor.vcpus, len(found.numa_topology.cells),
            found.image.properties.hw_architecture))

    def test_devices_of_a_device_profile_are_missing(self):
        request = self.keep(specs.spec({'accel:device_profile': 'gpu'}))

        self.assertEqual(('devices of a device profile',),
                         self.read(specs.versioned(request)).missing)

    def test_deleted_request_is_unknown(self):
        self.assertRaises(requests.RequestUnknown, self.read,
                          specs.versioned(specs.spec()))

    def test_invalid_payload_is_unknown(self):
        request = self.keep(specs.spec())
        for payload in ({}, {'request_spec': None}, {
                'nova_object.name': 'RequestSpecPayload',
                'nova_object.data': {'instance_uuid': request.instance_uuid}}):
            self.assertRaises(requests.RequestUnknown, self.read, payload)


class TestUnversioned(TestCase):

    def test_build_has_all_fields(self):
        request = self.keep(specs.spec(
            {'trait:CUSTOM_A': 'required'}, force_hosts=['host2'],
            scheduler_hints={'query': ['[]']}))

        read = self.read(specs.unversioned(request))

        self.assertEqual((), read.missing)
        self.assertEqual(
            (['host2'], {'query': ['[]']}, {'trait:CUSTOM_A': 'required'}),
            (read.spec.force_hosts, read.spec.scheduler_hints,
             read.spec.flavor.extra_specs))

    def test_move_lacks_its_destinations(self):
        request = self.keep(specs.spec())
        cell = nova_objects.CellMapping(
            self.context.elevated(), uuid=specs.MEMBER, name='north',
            transport_url='fake://', database_connection='sqlite://')
        cell.create()
        mapping = nova_objects.InstanceMapping.get_by_instance_uuid(
            self.context.elevated(), request.instance_uuid)
        mapping.cell_mapping = cell
        mapping.save()

        [missing] = self.read(specs.unversioned(request)).missing

        self.assertIn('destinations', missing)

    def test_flavor_of_a_resize_counts(self):
        request = self.keep(specs.spec())
        request.flavor = specs.spec({'trait:CUSTOM_B': 'required'}).flavor
        request.flavor.memory_mb = 2048

        flavor = self.read(specs.unversioned(request)).spec.flavor

        self.assertEqual((2048, {'trait:CUSTOM_B': 'required'}),
                         (flavor.memory_mb, flavor.extra_specs))
