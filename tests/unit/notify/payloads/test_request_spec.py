# SPDX-License-Identifier: Apache-2.0
import json

from cellsched.notify.payloads import request_spec
from cellsched import objects
from tests.unit import base
from tests.unit.notify import wire
from tests.unit.objects import wire as objects_wire


#: The fields of each versioned payload.
FIELDS = {
    'availability_zone', 'flavor', 'force_hosts', 'force_nodes',
    'ignore_hosts', 'image', 'instance_group', 'instance_uuid',
    'num_instances', 'numa_topology', 'pci_requests', 'project_id',
    'requested_destination', 'retry', 'scheduler_hints', 'security_groups',
    'user_id',
}


class TestVersioned(base.TestCase):

    def made(self, *uuids, **changes):
        return request_spec.versioned(
            wire.request(**changes), uuids)['nova_object.data']

    def test_secrets_are_omitted(self):
        request = wire.request()

        sent = json.dumps(request.obj_to_primitive())
        payload = json.dumps([request_spec.versioned(request, []),
                              request_spec.legacy(request, [])])

        for secret in wire.SECRETS:
            self.assertIn(secret, sent)
            self.assertNotIn(secret, payload)

    def test_empty_request_has_every_field(self):
        payload = request_spec.versioned(
            objects.RequestSpec(), [])['nova_object.data']

        self.assertEqual(FIELDS, set(payload))
        self.assertEqual({'num_instances': 1, 'security_groups': []},
                         {name: value for name, value in payload.items()
                          if value is not None})

    def test_full_request_has_no_more_fields(self):
        self.assertEqual(FIELDS, set(self.made()))

    def test_caller_supplies_the_unset_uuid_and_number(self):
        payload = request_spec.versioned(
            objects.RequestSpec(), [wire.OTHER, wire.INSTANCE])

        self.assertEqual(
            (wire.OTHER, 2),
            (payload['nova_object.data']['instance_uuid'],
             payload['nova_object.data']['num_instances']))

    def test_set_fields_of_the_request_take_precedence(self):
        payload = self.made(wire.OTHER)

        self.assertEqual((wire.INSTANCE, 2),
                         (payload['instance_uuid'], payload['num_instances']))

    def test_first_forced_host_and_node_are_sent(self):
        payload = self.made(force_hosts=['h1', 'h2'], force_nodes=[])

        self.assertEqual('h1', payload['force_hosts'])
        self.assertIsNone(payload['force_nodes'])

    def test_destination_without_a_host_has_no_host(self):
        payload = self.made(requested_destination=objects_wire.envelope(
            'Destination', '1.4', node=None, aggregates=['1']))

        self.assertEqual(
            {'aggregates': ['1']},
            payload['requested_destination']['nova_object.data'])

    def test_cell_is_sent_without_its_urls(self):
        cell = self.made()['requested_destination']['nova_object.data']['cell']

        self.assertEqual(
            {'uuid': wire.CELL, 'name': 'cell1', 'disabled': False},
            cell['nova_object.data'])

    def test_group_with_only_a_uuid_is_sent(self):
        payload = self.made(instance_group=objects_wire.envelope(
            'InstanceGroup', '1.11', uuid=wire.GROUP))

        fields = payload['instance_group']['nova_object.data']
        self.assertEqual((wire.GROUP, {}, None), (
            fields['uuid'], fields['rules'], fields['policy']))

    def test_request_is_not_modified(self):
        request = wire.request()
        before = json.dumps(request.obj_to_primitive())

        request_spec.versioned(request, [wire.OTHER])
        request_spec.legacy(request, [wire.OTHER])

        self.assertEqual(before, json.dumps(request.obj_to_primitive()))


class TestLegacy(base.TestCase):

    def made(self, *uuids, **changes):
        return request_spec.legacy(
            wire.request(**changes), uuids)['request_spec']

    def test_empty_request_is_sent(self):
        payload = request_spec.legacy(objects.RequestSpec(), [])

        self.assertEqual(
            {'request_spec': {
                'num_instances': 1, 'image': {}, 'instance_properties': {},
                'instance_type': {}}}, payload)

    def test_instance_has_the_requested_uuid(self):
        payload = request_spec.legacy(objects.RequestSpec(), [wire.OTHER])

        self.assertEqual({'uuid': wire.OTHER},
                         payload['request_spec']['instance_properties'])

    def test_absent_properties_are_sent_as_null(self):
        payload = self.made(image=None, numa_topology=None, pci_requests=None)

        self.assertEqual({}, payload['image'])
        self.assertIsNone(payload['instance_properties']['numa_topology'])
        self.assertIsNone(payload['instance_properties']['pci_requests'])

    def test_sizes_of_the_flavor_are_properties_of_the_instance(self):
        self.assertEqual(
            {'root_gb': 20, 'ephemeral_gb': 0, 'memory_mb': 2048, 'vcpus': 1},
            {name: self.made()['instance_properties'][name] for name in (
                'root_gb', 'ephemeral_gb', 'memory_mb', 'vcpus')})


class TestHardware(base.TestCase):

    def test_missing_hardware_is_none(self):
        self.assertIsNone(request_spec.numa_topology(None, wire.INSTANCE))
        self.assertIsNone(request_spec.pci_requests(None, wire.INSTANCE))

    def test_default_instance_is_the_instance_of_the_request(self):
        topology = request_spec.numa_topology(
            wire.NUMA_TOPOLOGY, wire.OTHER)
        requests = request_spec.pci_requests(wire.PCI_REQUESTS, wire.OTHER)

        self.assertEqual(
            wire.OTHER, topology['nova_object.data']['instance_uuid'])
        self.assertEqual(
            wire.INSTANCE, requests['nova_object.data']['instance_uuid'])

    def test_numa_cell_without_a_cpu_topology_is_sent(self):
        payload = request_spec.numa_topology(
            {'cells': [{'id': 3}]}, wire.INSTANCE)

        [cell] = payload['nova_object.data']['cells']
        self.assertEqual(3, cell['nova_object.data']['id'])
        self.assertIsNone(cell['nova_object.data']['cpu_topology'])
        self.assertIsNone(cell['nova_object.data']['cpuset'])


class TestImage(base.TestCase):

    def test_missing_image_is_empty(self):
        self.assertIsNone(request_spec.versioned_image(None))
        self.assertEqual({}, request_spec.legacy_image(None))

    def test_image_object_and_its_wire_form_have_the_same_payload(self):
        loaded = objects.ImageMeta.obj_from_primitive(wire.IMAGE_META)

        self.assertEqual(request_spec.versioned_image(wire.IMAGE_META),
                         request_spec.versioned_image(loaded))
        self.assertEqual(request_spec.legacy_image(wire.IMAGE_META),
                         request_spec.legacy_image(loaded))

    def test_plain_dict_of_an_image_is_read(self):
        payload = request_spec.versioned_image(
            {'id': wire.IMAGE, 'properties': {'a': 'b'}})

        fields = payload['nova_object.data']
        self.assertEqual(wire.IMAGE, fields['id'])
        self.assertIsNone(fields['name'])
        self.assertEqual({'a': 'b'}, fields['properties']['nova_object.data'])

    def test_unlisted_field_is_not_sent(self):
        payload = request_spec.versioned_image({'password': 's3cret'})

        self.assertNotIn('s3cret', str(payload))

    def test_password_of_the_image_store_is_masked(self):
        for payload in (request_spec.versioned_image(wire.IMAGE_META),
                        request_spec.legacy_image(wire.IMAGE_META)):
            self.assertIn('swift://images:****@store.test', str(payload))

    def test_times_have_the_format_of_each_payload(self):
        payload = request_spec.versioned_image(
            wire.IMAGE_META)['nova_object.data']

        self.assertEqual('2026-01-02T03:04:05Z', payload['created_at'])
        self.assertEqual('2026-01-02T03:04:05.000000',
                         request_spec.legacy_image(
                             wire.IMAGE_META)['created_at'])
