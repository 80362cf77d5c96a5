# SPDX-License-Identifier: Apache-2.0
import uuid

import oslo_messaging

from cellsched import context
from cellsched import exception
from cellsched import objects
from cellsched.rpc import compute
from tests.unit.rpc import base

UUID = str(uuid.UUID(int=1))


class Agent(base.Recorder):

    target = oslo_messaging.Target(version=compute.VERSION)

    def build_and_run_instance(self, context, **arguments):
        self.received.put(arguments)

    def terminate_instance(self, context, instance):
        self.received.put(instance.uuid)


class TestComputeAPI(base.RPCTestCase):

    def setUp(self):
        super().setUp()
        self.api = compute.ComputeAPI(self.transport)
        self.context = context.RequestContext()
        self.agents = {host: Agent() for host in ('here', 'there')}
        for host, agent in self.agents.items():
            self.serve(agent, compute.TOPIC, host)

    def test_build_reaches_the_agent_of_the_host(self):
        alternate = objects.Selection(
            compute_node_uuid=UUID, service_host='b', nodename='n',
            cell_uuid=UUID)

        self.api.build_and_run_instance(
            self.context, 'there', objects.Instance(uuid=UUID),
            objects.RequestSpec(instance_uuid=UUID), {'retry': {}}, 'node',
            {'vcpu': 4}, [alternate])

        received = self.agents['there'].next()
        self.assertTrue(self.agents['here'].received.empty())
        self.assertEqual(UUID, received['instance'].uuid)
        self.assertEqual(UUID, received['request_spec'].instance_uuid)
        self.assertEqual('b', received['host_list'][0].service_host)
        self.assertEqual(
            ({'retry': {}}, 'node', {'vcpu': 4}),
            (received['filter_properties'], received['node'],
             received['limits']))

    def test_removal_reaches_the_agent_of_the_host(self):
        self.api.terminate_instance(
            self.context, 'here', objects.Instance(uuid=UUID))

        self.assertEqual(UUID, self.agents['here'].next())
        self.assertTrue(self.agents['there'].received.empty())

    def test_moves_are_sent_to_agents_that_know_them_only(self):
        api = compute.ComputeAPI(self.transport, version_cap='6.0')

        for move in (api.check_moves, lambda: api.migrate_out(
                self.context, 'here', objects.Instance(uuid=UUID), UUID)):
            error = self.assertRaises(exception.VersionNotSendable, move)

            self.assertIn('this needs 6.1', str(error))
        self.assertTrue(self.agents['here'].received.empty())
        self.api.check_moves()


class TestComputeAPIs(base.RPCTestCase):

    def test_each_transport_has_one_client(self):
        apis = compute.ComputeAPIs()
        other = self.transports.get(f'{self.world}/other')

        self.assertIs(apis.get(self.transport), apis.get(self.transport))
        self.assertIsNot(apis.get(self.transport), apis.get(other))

    def test_client_reaches_the_agents_of_its_own_cell(self):
        apis = compute.ComputeAPIs()
        agents = {}
        for name in ('one', 'two'):
            agents[name] = Agent()
            self.serve(agents[name], compute.TOPIC, 'host',
                       self.transports.get(f'{self.world}/{name}'))

        apis.get(self.transports.get(f'{self.world}/two')).terminate_instance(
            context.RequestContext(), 'host', objects.Instance(uuid=UUID))

        self.assertEqual(UUID, agents['two'].next())
        self.assertTrue(agents['one'].received.empty())

    def test_pin_holds_for_every_cell(self):
        caps = ['5.9', '6.0']
        apis = compute.ComputeAPIs(version_cap=lambda: caps[0])
        agent = Agent()
        self.serve(agent, compute.TOPIC)
        remove = apis.get(self.transport).terminate_instance
        arguments = (context.RequestContext(), 'host',
                     objects.Instance(uuid=UUID))

        self.assertRaises(exception.VersionNotSendable, remove, *arguments)
        del caps[0]
        remove(*arguments)

        self.assertEqual(UUID, agent.next())
        self.assertTrue(agent.received.empty())

    def test_pin_that_cannot_be_is_an_error_at_once(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, compute.ComputeAPIs,
            version_cap='5.0')

        self.assertEqual('[upgrade_levels] compute', error.field)

    def test_history_of_services_ends_with_what_is_offered(self):
        self.assertEqual(
            compute.VERSION,
            compute.SERVICE_VERSIONS[compute.SERVICE_VERSION])
