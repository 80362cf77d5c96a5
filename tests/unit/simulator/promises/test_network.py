# SPDX-License-Identifier: Apache-2.0
"""Brokers of a simulation, between oslo.messaging's clients and servers."""

import oslo_messaging

from cellsched import clock
from cellsched import context
from cellsched import exception
from cellsched.rpc import client
from cellsched.rpc import server
from cellsched.simulator import engine
from cellsched.simulator.promises import network
from cellsched.simulator.promises import stores
from tests.unit.rpc import base

BROKER = 'local://simulated/api'


class Endpoint:

    def __init__(self):
        self.said = []

    def say(self, context, what):
        self.said.append(what)
        return {'said': what}

    def fail(self, context):
        raise exception.CellMappingNotFound(uuid='u')


class World(stores.Gate, engine.Engine):
    """Has messages delivered when the calling process waits."""

    def __init__(self, test):
        super().__init__()
        self._test = test

    def post(self, message):
        self._test.network.messages.append(message)
        self.call_at(self.now, lambda: self._test.deliver())


class TestNetwork(base.RPCTestCase):

    def setUp(self):
        super().setUp()
        self.network = network.Network()
        self.targets = []
        self.endpoint = Endpoint()
        self.world = World(self)
        self.simulated = network.SimulatedTransports(self.conf, lambda url: (
            network.SimulatedDriver(self.conf, url, self.world,
                                    self.targets.append)))
        self.server = server.server(
            self.simulated.get(BROKER), 'topic', 'host', [self.endpoint],
            clock.Clock().timestamp)
        self.addCleanup(self.server.wait)
        self.addCleanup(self.server.stop)
        self.server.start()
        self.client = client.Client(
            self.simulated.get(BROKER), 'topic', '1.0', timeout_s=5)

    def call(self, method, **arguments):
        """Return the answer to a call of a process."""
        answers = []
        self.world.spawn(lambda: answers.append(
            self.client.call(context.admin(), method, **arguments)))
        self.world.run(10)
        return answers.pop()

    def deliver(self):
        [target] = self.targets
        listener = network.Listener(
            BROKER, target, self.server.dispatcher, self)
        while self.network.messages:
            letter = self.network.messages.pop(0)
            self.assertTrue(listener.hears(letter))
            listener.receive(letter, stores.Gate())

    def test_server_announces_its_target_at_the_start(self):
        [target] = self.targets

        self.assertEqual(('topic', 'host'), (target.topic, target.server))

    def test_call_returns_the_result_of_the_server(self):
        self.assertEqual({'said': 'x'}, self.call('say', what='x'))

    def test_call_raises_the_error_of_the_server(self):
        error = self.assertRaises(
            exception.CellMappingNotFound, self.call, 'fail')

        self.assertEqual('u', error.uuid)

    def test_call_to_a_stopped_server_times_out(self):
        self.deliver = self.network.messages.clear

        self.assertRaises(oslo_messaging.MessagingTimeout, self.call, 'say',
                          what='x')
        self.assertEqual(5, self.world.now)

    def test_cast_waits_for_its_delivery(self):
        self.client.cast(context.admin(), 'say', what='x')

        self.assertEqual([], self.endpoint.said)
        self.deliver()
        self.assertEqual(['x'], self.endpoint.said)

    def test_second_reply_to_a_message_is_ignored(self):
        self.client.cast(context.admin(), 'say', what='x')
        [letter] = self.network.messages
        letter.call = network.SimulatedCall(
            engine.SimulatedEvent(self.world), reply='first')

        self.deliver()

        self.assertEqual('first', letter.call.reply)

    def test_server_on_another_host_does_not_hear(self):
        self.client.cast(context.admin(), 'say', '1.0', 'there', what='x')
        [target] = self.targets
        [letter] = self.network.messages

        self.assertFalse(network.Listener(
            BROKER, target, self.server.dispatcher, self).hears(letter))
