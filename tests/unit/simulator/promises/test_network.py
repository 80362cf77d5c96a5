# SPDX-License-Identifier: Apache-2.0
"""Brokers of a simulation, between oslo.messaging's clients and servers."""

import types

import oslo_messaging

from cellsched import clock
from cellsched import context
from cellsched import exception
from cellsched.rpc import client
from cellsched.rpc import server
from cellsched.simulator import engine
from cellsched.simulator.promises import network
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


class World(engine.Engine):
    """Has messages delivered when the calling process waits."""

    def __init__(self, test):
        super().__init__()
        self._test = test

    def enter(self, what):
        """Let no other process run."""

    def post(self, message):
        self._test.messages.append(message)
        self.call_at(self.now, lambda: self._test.deliver())


class TestNetwork(base.RPCTestCase):

    def setUp(self):
        super().setUp()
        self.messages = []
        self.endpoint = Endpoint()
        self.world = World(self)
        process = types.SimpleNamespace(
            conf=self.conf, world=self.world, life=lambda: lambda: True)
        transport = network.SimulatedTransports(process).get(BROKER)
        self.listener = network.Listener(BROKER, server.server(
            transport, 'topic', 'host', [self.endpoint],
            clock.Clock().timestamp), process)
        self.client = client.Client(transport, 'topic', '1.0', timeout_s=5)

    def call(self, method, **arguments):
        """Return the answer to a call of a process."""
        answers = []
        self.world.spawn(lambda: answers.append(
            self.client.call(context.admin(), method, **arguments)))
        self.world.run(10)
        return answers.pop()

    def deliver(self):
        while self.messages:
            letter = self.messages.pop(0)
            self.assertTrue(self.listener.hears(letter))
            self.listener.receive(letter)

    def test_call_returns_the_result_of_the_server(self):
        self.assertEqual({'said': 'x'}, self.call('say', what='x'))

    def test_call_raises_the_error_of_the_server(self):
        error = self.assertRaises(
            exception.CellMappingNotFound, self.call, 'fail')

        self.assertEqual('u', error.uuid)

    def test_call_to_a_stopped_server_times_out(self):
        self.deliver = self.messages.clear

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
        [letter] = self.messages
        letter.call = network.SimulatedCall(
            engine.SimulatedEvent(self.world), reply='first')

        self.deliver()

        self.assertEqual('first', letter.call.reply)

    def test_server_on_another_host_does_not_hear(self):
        self.client.cast(context.admin(), 'say', '1.0', 'there', what='x')
        [letter] = self.messages

        self.assertFalse(self.listener.hears(letter))
