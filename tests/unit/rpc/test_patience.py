# SPDX-License-Identifier: Apache-2.0
import fixtures
from oslo_config import cfg
import oslo_messaging
from oslo_messaging._drivers import impl_rabbit

from cellsched.conf import loading
from cellsched import context
from cellsched.rpc import client
from cellsched.rpc import patience
from cellsched.rpc import server
from cellsched.rpc import transport
from tests.unit import base


class Endpoint:

    def echo(self, context, text):
        return text


class TestPatience(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = cfg.ConfigOpts()
        self.conf([], default_config_files=[], default_config_dirs=[])
        loading.register_messaging(self.conf)
        self.transports = transport.Transports(self.conf)
        self.addCleanup(self.transports.close)
        #: How long connections waited for messages, at most.
        self.waits = []
        consume = impl_rabbit.Connection.consume

        def counted(connection, timeout=None):
            self.waits.append(timeout)
            return consume(connection, timeout)

        self.useFixture(fixtures.MonkeyPatch(
            'oslo_messaging._drivers.impl_rabbit.Connection.consume',
            counted))

    def call(self, transport_):
        served = server.server(transport_, 'topic', 'host', [Endpoint()])
        served.start()
        try:
            return client.Client(transport_, 'topic', '1.0').call(
                context.admin(), 'echo', text='said')
        finally:
            served.stop()
            served.wait()

    def test_nobody_looks_for_work_between_messages(self):
        self.assertEqual(
            'said', self.call(self.transports.get('kombu+memory://')))

        self.assertLessEqual(2, len(self.waits))
        self.assertLessEqual(patience.LEAST_S, min(self.waits))

    def test_transports_of_others_stay_as_they_are(self):
        others = oslo_messaging.get_rpc_transport(
            self.conf, 'kombu+memory://')
        self.addCleanup(others.cleanup)

        self.call(others)

        self.assertGreater(patience.LEAST_S, min(self.waits))
