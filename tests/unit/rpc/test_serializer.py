# SPDX-License-Identifier: Apache-2.0
import json
import uuid

from oslo_context import context as oslo_context
from oslo_versionedobjects import exception as ovo_exception

from cellsched import context
from cellsched import objects
from cellsched.rpc import serializer
from tests.unit import base

UUID = str(uuid.UUID(int=1))


class SerializerTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.serializer = serializer.Serializer()
        self.context = context.RequestContext(
            user_id='user', project_id='project', roles=['member'],
            request_id='req-1', global_request_id='req-0', is_admin=False)

    def travel(self, entity):
        sent = json.dumps(
            self.serializer.serialize_entity(self.context, entity))
        return self.serializer.deserialize_entity(
            self.context, json.loads(sent))


class TestEntities(SerializerTestCase):

    def selection(self, host='host'):
        return objects.Selection(
            compute_node_uuid=UUID, service_host=host, nodename='node',
            cell_uuid=UUID, allocation_request=None,
            limits=objects.SchedulerLimits(vcpu=4))

    def test_object_arrives_as_an_object(self):
        arrived = self.travel(self.selection())

        self.assertIsInstance(arrived, objects.Selection)
        self.assertEqual('host', arrived.service_host)
        self.assertEqual(4, arrived.limits.vcpu)

    def test_nested_objects_are_deserialized(self):
        arrived = self.travel(
            {'lists': [[self.selection('a')], (self.selection('b'), 1)]})

        self.assertEqual('a', arrived['lists'][0][0].service_host)
        self.assertEqual('b', arrived['lists'][1][0].service_host)
        self.assertEqual(1, arrived['lists'][1][1])

    def test_unset_field_is_received_unset(self):
        self.assertFalse(self.travel(self.selection()).obj_attr_is_set(
            'availability_zone'))

    def test_envelope_is_novas(self):
        sent = self.serializer.serialize_entity(
            self.context, self.selection())

        self.assertEqual('Selection', sent['nova_object.name'])
        self.assertEqual('nova', sent['nova_object.namespace'])
        self.assertEqual('1.1', sent['nova_object.version'])

    def test_plain_data_is_received_unchanged(self):
        entity = {'a': [1, 2.5, None, True, 'text', {'b': []}]}

        self.assertEqual(entity, self.travel(entity))

    def test_set_arrives_as_a_list(self):
        self.assertEqual(['one'], self.travel({'one'}))

    def test_newer_minor_version_is_read(self):
        sent = self.serializer.serialize_entity(
            self.context, self.selection())
        sent['nova_object.version'] = '1.99'
        sent['nova_object.data']['of_tomorrow'] = 1

        arrived = self.serializer.deserialize_entity(self.context, sent)

        self.assertEqual('host', arrived.service_host)

    def test_newer_major_version_is_refused(self):
        sent = self.serializer.serialize_entity(
            self.context, self.selection())
        sent['nova_object.version'] = '2.0'

        self.assertRaises(
            ovo_exception.IncompatibleObjectVersion,
            self.serializer.deserialize_entity, self.context, sent)

    def test_object_of_an_unknown_class_is_unchanged(self):
        unknown = {'nova_object.name': 'NetworkRequestList',
                   'nova_object.namespace': 'nova',
                   'nova_object.version': '1.1',
                   'nova_object.data': {'objects': []}}

        self.assertEqual(
            [unknown],
            self.serializer.deserialize_entity(self.context, [unknown]))


class TestContexts(SerializerTestCase):

    def travel(self, sent):
        return self.serializer.deserialize_context(
            json.loads(json.dumps(self.serializer.serialize_context(sent))))

    def test_context_is_received_unchanged(self):
        arrived = self.travel(self.context)

        self.assertIsInstance(arrived, context.RequestContext)
        self.assertEqual(self.context.to_dict(), arrived.to_dict())

    def test_administrator_is_received_as_administrator(self):
        self.assertTrue(self.travel(context.admin()).is_admin)
        self.assertFalse(self.travel(self.context).is_admin)

    def test_cell_does_not_travel(self):
        cell_context = self.context.for_cell(context.CellTarget(
            uuid=UUID, name='cell', database=object(), open_transport=object))

        sent = self.serializer.serialize_context(cell_context)

        self.assertNotIn('cell', sent)
        self.assertIsNone(self.travel(cell_context).cell)

    def test_cell_in_a_message_is_ignored(self):
        sent = self.serializer.serialize_context(self.context)
        sent['cell'] = {'database': 'mysql://elsewhere'}

        self.assertIsNone(self.serializer.deserialize_context(sent).cell)

    def test_context_with_fields_of_novas_is_read(self):
        sent = self.serializer.serialize_context(self.context)
        sent.update(user_id='user', read_deleted='no', quota_class=None,
                    service_catalog=[], remote_address='127.0.0.1')

        arrived = self.serializer.deserialize_context(sent)

        self.assertEqual('user', arrived.user_id)
        self.assertEqual('req-1', arrived.request_id)

    def test_thread_logs_the_request_of_its_message(self):
        for number in range(2):
            self.context.request_id = f'req-{number}'
            self.travel(self.context)

            self.assertEqual(f'req-{number}',
                             oslo_context.get_current().request_id)
