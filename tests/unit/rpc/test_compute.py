# SPDX-License-Identifier: Apache-2.0
import logging
import threading
import uuid

import futurist
import oslo_messaging

from cellsched import context
from cellsched import exception
from cellsched import objects
from cellsched.rpc import compute
from tests.unit.base import TestCase
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

    def test_uuid_of_the_node_is_sent_to_agents_of_version_6_3(self):
        for cap in None, '6.3', '6.2':
            api = compute.ComputeAPI(self.transport, version_cap=cap)

            api.build_and_run_instance(
                self.context, 'there', objects.Instance(uuid=UUID), None, {},
                'node', {}, [], UUID)

            self.assertEqual(
                None if cap == '6.2' else UUID,
                self.agents['there'].next().get('node_uuid'))

    def test_removal_reaches_the_agent_of_the_host(self):
        self.api.terminate_instance(
            self.context, 'here', objects.Instance(uuid=UUID))

        self.assertEqual(UUID, self.agents['here'].next())
        self.assertTrue(self.agents['there'].received.empty())

    def test_moves_are_sent_only_to_agents_of_version_6_1(self):
        api = compute.ComputeAPI(self.transport, version_cap='6.0')

        for move in (api.check_moves, lambda: api.migrate_out(
                self.context, 'here', objects.Instance(uuid=UUID), UUID)):
            error = self.assertRaises(exception.VersionNotSendable, move)

            self.assertIn('this message needs 6.1', str(error))
        self.assertTrue(self.agents['here'].received.empty())
        self.api.check_moves()


class TestComputeAPIs(base.RPCTestCase):

    def test_each_transport_has_a_single_client(self):
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

    def test_unsupported_pin_is_an_error(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, compute.ComputeAPIs,
            version_cap='5.0')

        self.assertEqual('[upgrade_levels] compute', error.field)

    def test_history_of_services_ends_with_the_offered_version(self):
        self.assertEqual(
            compute.VERSION,
            compute.SERVICE_VERSIONS[compute.SERVICE_VERSION])


#: Versions of messages by those of services.
HISTORY = {1: '6.0', 3: '6.1', 4: '6.2'}


class TestComputeCap(TestCase):

    def setUp(self):
        super().setUp()
        self.answers = []
        self.asked = 0

    def ask(self):
        self.asked += 1
        return self.answers.pop(0)

    def cap(self, *answers, pin='auto'):
        self.answers = [
            answer if isinstance(answer, compute.Lowest)
            else compute.Lowest(answer) for answer in answers]
        return compute.ComputeCap(pin, self.ask, HISTORY)

    def test_version_of_messages_follows_the_version_of_services(self):
        for service, message in (
                (1, '6.0'), (2, '6.0'), (3, '6.1'), (4, '6.2')):
            self.assertEqual(message, self.cap(service)())

    def test_pin_is_the_version_without_a_query(self):
        for pin, expected in (('6.0', '6.0'), (None, None)):
            cap = self.cap(pin=pin)

            self.assertEqual(expected, cap())
            self.assertEqual([], cap.periodic(10))
            cap.ask_the_missing()
        self.assertEqual(0, self.asked)

    def test_misspelled_pin_is_an_error(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, self.cap, pin='atuo')

        self.assertEqual('[upgrade_levels] compute', error.field)
        self.assertIn('auto', error.expected)

    def test_versions_are_not_queried_before_use(self):
        self.cap(3)

        self.assertEqual(0, self.asked)

    def test_cells_are_queried_once(self):
        cap = self.cap(3, 4)

        self.assertEqual(['6.1', '6.1'], [cap(), cap()])
        self.assertEqual(1, self.asked)

    def test_threads_waiting_for_the_cap_query_once(self):
        asking, go_on = threading.Event(), threading.Event()

        def ask():
            self.asked += 1
            asking.set()
            go_on.wait(600)
            return compute.Lowest(3)

        cap = compute.ComputeCap('auto', ask, HISTORY)
        with futurist.ThreadPoolExecutor(3) as threads:
            futures = [threads.submit(cap)]
            self.assertTrue(asking.wait(600))
            futures += [threads.submit(cap) for _ in range(2)]
            go_on.set()
            self.assertEqual(['6.1'] * 3, [each.result(30)
                                           for each in futures])
        self.assertEqual(1, self.asked)

    def test_unknown_version_is_the_newest_until_a_service_reports(self):
        cap = self.cap(None, None, 1)

        self.assertEqual(['6.2', '6.2', '6.0', '6.0'],
                         [cap() for _ in range(4)])
        self.assertEqual(3, self.asked)

    def test_reset_version_is_queried_again(self):
        cap = self.cap(1, 4)
        cap()

        cap.forget()

        self.assertEqual('6.2', cap())

    def test_result_of_a_query_before_the_reset_is_dropped(self):
        def ask():
            self.asked += 1
            if self.asked == 1:
                cap.forget()
            return compute.Lowest(self.asked)

        cap = compute.ComputeCap('auto', ask, HISTORY)
        self.assertEqual('6.0', cap())

        cap()

        self.assertEqual(2, self.asked)

    def test_newer_services_alone_are_an_error(self):
        cap = self.cap(5)

        for _ in range(2):
            error = self.assertRaises(exception.ServiceTooOld, cap)
            self.assertEqual((4, 5), (error.known, error.version))

    def test_missing_cells_are_queried_again_periodically(self):
        missing = frozenset(['cell'])
        cap = self.cap(compute.Lowest(4, missing), compute.Lowest(3))
        [(again, interval_s)] = cap.periodic(10)
        again()
        self.assertEqual(0, self.asked)
        self.assertEqual(('6.2', 10), (cap(), interval_s))

        for _ in range(2):
            again()

        self.assertEqual(('6.1', 2), (cap(), self.asked))

    def test_version_is_not_raised_while_other_cells_are_missing(self):
        one, two = frozenset(['one']), frozenset(['two'])
        cap = self.cap(compute.Lowest(3, one), compute.Lowest(4, two),
                       compute.Lowest(None, two))
        cap()

        for _ in range(2):
            cap.ask_the_missing()
            self.assertEqual('6.1', cap())

    def test_found_version_is_logged_once(self):
        logger = logging.getLogger('cellsched')
        self.addCleanup(logger.setLevel, logger.level)
        logger.setLevel(logging.INFO)
        cap = self.cap(3)

        for _ in range(2):
            cap()

        self.assertEqual(1, self.logs.output.count(
            'The oldest compute service that answered has version 3; the '
            'newest known version is 4'))
