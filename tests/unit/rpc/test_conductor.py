# SPDX-License-Identifier: Apache-2.0
import uuid

import oslo_messaging

from cellsched import context
from cellsched import exception
from cellsched import objects
from cellsched.rpc import conductor
from tests.unit.rpc import base

UUID = str(uuid.UUID(int=1))


class Conductor(base.Recorder):

    target = oslo_messaging.Target(
        namespace=conductor.NAMESPACE, version=conductor.VERSION)

    def build_and_schedule(self, context, instance_uuids):
        self.received.put(instance_uuids)

    def build_instances(self, context, **arguments):
        self.received.put(arguments)


class TestConductorAPI(base.RPCTestCase):

    def setUp(self):
        super().setUp()
        self.api = conductor.ConductorAPI(self.transport)
        self.context = context.RequestContext()
        self.conductor = Conductor()

    def test_moves_are_sent_to_conductors_that_know_them_only(self):
        self.serve(self.conductor, conductor.TOPIC)
        api = conductor.ConductorAPI(self.transport, version_cap='1.19')

        for move in (api.rebuild_instance, api.migrate_server,
                     api.unshelve_instance):
            error = self.assertRaises(
                exception.VersionNotSendable, move, self.context, UUID, UUID)

            self.assertIn('this message needs 1.20', str(error))

    def test_accepted_builds_reach_a_conductor(self):
        self.serve(self.conductor, conductor.TOPIC)

        self.api.build_and_schedule(self.context, (UUID,))

        self.assertEqual([UUID], self.conductor.next())

    def test_builds_wait_for_a_conductor(self):
        self.api.build_and_schedule(self.context, [UUID])

        self.serve(self.conductor, conductor.TOPIC)

        self.assertEqual([UUID], self.conductor.next())

    def test_retried_builds_arrive_with_the_remaining_alternates(self):
        self.serve(self.conductor, conductor.TOPIC)
        alternate = objects.Selection(
            compute_node_uuid=UUID, service_host='b', nodename='n',
            cell_uuid=UUID)

        self.api.build_instances(
            self.context, [objects.Instance(uuid=UUID)],
            {'retry': {'num_attempts': 1, 'hosts': [['a', 'n']]}},
            objects.RequestSpec(instance_uuid=UUID), [(alternate,)])

        received = self.conductor.next()
        self.assertEqual(UUID, received['instances'][0].uuid)
        self.assertEqual([['a', 'n']],
                         received['filter_properties']['retry']['hosts'])
        self.assertEqual(UUID, received['request_spec'].instance_uuid)
        self.assertEqual('b', received['host_lists'][0][0].service_host)

    def test_hand_over_needs_the_version_that_has_it(self):
        held = conductor.ConductorAPI(self.transport, version_cap='1.18')
        self.serve(self.conductor, conductor.TOPIC)

        self.assertRaises(
            exception.VersionNotSendable, held.build_instances, self.context,
            [], {}, objects.RequestSpec(), [])
        held.build_and_schedule(self.context, [UUID])

        self.assertEqual([UUID], self.conductor.next())
        self.assertTrue(self.conductor.received.empty())

    def test_cap_below_the_required_version_is_an_error(self):
        self.assertRaises(
            exception.ConfigurationInvalid, conductor.ConductorAPI,
            self.transport, version_cap='1.18', version_min='1.19')

    def test_pin_that_cannot_be_is_an_error_at_once(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, conductor.ConductorAPI,
            self.transport, version_cap='pike')

        self.assertEqual('[upgrade_levels] conductor', error.field)
