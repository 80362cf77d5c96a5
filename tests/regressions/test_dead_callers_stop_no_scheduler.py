# SPDX-License-Identifier: Apache-2.0
"""Callers die before a scheduler answers, and it answers the living ones."""

import json
import uuid

import kombu
import oslo_messaging

from cellsched.standalone import deployment
from cellsched.wiring import services
from tests.integration import base
from tests.integration import servers

#: As many as a scheduler has threads.
DEAD = 64


class TestCallersWithoutQueues(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        url = self.part_of(servers.RabbitMQ).url('dead-callers')
        world = deployment.Deployment(self.temporary_directory(), [
            deployment.DeployedCell('cell1', [deployment.DeployedHost('a1')])])
        world.start()
        self.addCleanup(world.stop)
        conf = world.conf('api')
        conf.set_override('transport_url', url)
        scheduler = services.scheduler(conf)
        scheduler.start()
        self.addCleanup(scheduler.stop)
        transport = oslo_messaging.get_rpc_transport(conf, url)
        self.addCleanup(transport.cleanup)
        self.client = oslo_messaging.get_rpc_client(
            transport,
            oslo_messaging.Target(topic='scheduler', version='4.0'))
        self.producer = kombu.Producer(self.enterContext(kombu.Connection(
            url.replace('rabbit', 'amqp', 1))))
        self.exchange = conf.control_exchange

    def call_and_die(self) -> None:
        message = {'method': 'nope', 'args': {}, 'version': '4.0',
                   '_msg_id': uuid.uuid4().hex,
                   '_reply_q': f'reply_{uuid.uuid4().hex}'}
        self.producer.publish(
            json.dumps({'oslo.version': '2.0',
                        'oslo.message': json.dumps(message)}),
            exchange=self.exchange, routing_key='scheduler',
            content_type='application/json', content_encoding='utf-8')

    def ask(self) -> None:
        self.assertRaises(
            oslo_messaging.RemoteError,
            self.client.prepare(timeout=150).call, {}, 'nope')

    def test_living_caller_is_answered(self):
        for _ in range(2 * DEAD):
            self.call_and_die()

        self.ask()
