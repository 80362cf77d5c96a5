# SPDX-License-Identifier: Apache-2.0
import queue
import uuid

import oslo_messaging

from cellsched import context
from cellsched import exception
from cellsched import objects
from cellsched.rpc import conductor
from cellsched.rpc import server
from tests.unit.conductor import base as conductor_base
from tests.unit.db import samples
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

    def test_moves_are_sent_only_to_conductors_of_version_1_20(self):
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

    def test_hand_over_requires_its_version(self):
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

    def test_unsupported_pin_is_an_error(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, conductor.ConductorAPI,
            self.transport, version_cap='pike')

        self.assertEqual('[upgrade_levels] conductor', error.field)


class Task:
    """Keeps what it is told to run."""

    def __init__(self):
        self.received = queue.Queue()

    def run(self, *arguments, **named):
        self.received.put((*arguments, *named.values()))

    def next(self):
        return self.received.get(timeout=base.DEADLINE_S)


class TestEndpoints(conductor_base.TestCase):

    def setUp(self):
        super().setUp()
        self.transport = self.transports.get(f'local://{uuid.uuid4().hex}/x')
        self.client = conductor.ConductorAPI(self.transport)

    def serve(self, *endpoints):
        made = server.server(
            self.transport, conductor.TOPIC, 'host', endpoints)
        made.start()
        self.addCleanup(made.wait)
        self.addCleanup(made.stop)

    def test_super_conductor_builds_and_schedules(self):
        task = Task()
        self.serve(conductor.SuperConductor(task.run))
        uuids = samples.uuids(2)

        self.client.build_and_schedule(conductor_base.USER, uuids)

        context, told = task.next()
        self.assertEqual(uuids, told)
        self.assertEqual(conductor_base.USER.request_id, context.request_id)

    def test_move_gets_its_arguments_or_defaults(self):
        task = Task()
        self.serve(conductor.MovingConductor(task.run))

        for method, options, expected in (
                ('rebuild_instance', {'image_ref': 'image', 'host': 'a2'},
                 ['a2', 'image']),
                ('rebuild_instance', {}, [None, None]),
                ('migrate_server', {'host': 'a2', 'rebuild': True},
                 ['a2', True]),
                ('migrate_server', {}, [None, False]),
                ('unshelve_instance', {}, [])):
            getattr(self.client, method)(
                conductor_base.USER, 'server', 'move', **options)

            context, *arguments = task.next()
            self.assertEqual(['server', 'move', *expected], arguments)
            self.assertEqual(
                conductor_base.USER.request_id, context.request_id)

    def build_instances(self):
        [uuid] = samples.uuids(1)
        self.client.build_instances(
            conductor_base.USER, [samples.instance(uuid)], {'retry': {}}, None,
            [[self.selection('a1'), self.selection('a2')]])
        return uuid

    def check_build_instances(self, task):
        uuid = self.build_instances()

        context, [instance], properties, spec, [hosts] = task.next()
        self.assertEqual(conductor_base.USER.request_id, context.request_id)
        self.assertEqual(
            (uuid, {'retry': {}}, None, ['a1', 'a2']),
            (instance.uuid, properties, spec,
             [each.service_host for each in hosts]))

    def test_cell_conductor_builds_instances(self):
        task = Task()
        self.serve(conductor.CellConductor(task.run))

        self.check_build_instances(task)

    def test_conductor_of_a_single_cell_has_both_roles(self):
        above, below = Task(), Task()
        self.serve(conductor.SuperConductor(above.run),
                   conductor.CellConductor(below.run))

        self.client.build_and_schedule(conductor_base.USER, [])
        self.check_build_instances(below)
        self.assertEqual([], above.next()[1])
