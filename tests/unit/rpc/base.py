# SPDX-License-Identifier: Apache-2.0
"""The base of the tests of messages: a world of its own for each."""

import queue
import threading
import uuid

from oslo_config import cfg
import oslo_messaging

from cellsched import clock
from cellsched.rpc import server
from cellsched.rpc import transport
from tests.unit import base

#: Longer than anything here takes; a test that waits so long has failed.
DEADLINE_S = 600

TOPIC = oslo_messaging.Target(topic='topic')


class Recorder:
    """An endpoint that keeps what it is sent."""

    def __init__(self):
        self.received = queue.Queue()

    def next(self):
        """Return what was sent next, when it is there."""
        return self.received.get(timeout=DEADLINE_S)


class Late:
    """An endpoint that answers when those who hurry are gone."""

    def __init__(self):
        self.go_on = threading.Event()

    def ask(self, context, **arguments):
        self.go_on.wait(1)
        return 'late'


class RPCTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        # A configuration that knows what oslo.messaging needs, and no more.
        self.conf = cfg.ConfigOpts()
        self.conf([], default_config_files=[], default_config_dirs=[])
        self.transports = transport.Transports(self.conf)
        self.addCleanup(self.transports.close)
        self.conf.set_override('rpc_response_timeout', DEADLINE_S)
        self.world = f'local://{uuid.uuid4().hex}'
        self.transport = self.transports.get(f'{self.world}/cell')

    def serve(self, endpoint, topic='topic', host='host', transport=None,
              threads=None):
        """Start a server that goes with the test."""
        made = server.server(
            transport or self.transport, topic, host, [endpoint],
            clock.Clock().timestamp)
        made.start(override_pool_size=threads)
        self.addCleanup(self.end, made)
        return made

    def end(self, made):
        made.stop()
        made.wait()

    def end_soon(self, made):
        """End a server of oslo.messaging; its idle threads take a second."""
        made.stop()
        threading.Thread(target=made.wait, daemon=True).start()


class LocalTestCase(RPCTestCase):
    """The base of tests with nothing but oslo.messaging in between."""

    def client(self, transport=None, target=TOPIC, **options):
        return oslo_messaging.get_rpc_client(
            transport or self.transport, target, **options)

    def start(self, endpoint, host='host', transport=None, target=TOPIC,
              threads=None):
        made = oslo_messaging.get_rpc_server(
            transport or self.transport, target(server=host), [endpoint])
        made.start(override_pool_size=threads)
        self.addCleanup(self.end_soon, made)
        return made

    def listen(self, taken, transport=None, host='host'):
        """Have a function take what arrives, in the sender's thread."""
        listener = (transport or self.transport)._listen(
            TOPIC(server=host), 1, None)
        listener.start(lambda incoming: taken(incoming[0]))
        self.addCleanup(listener.stop)
        return listener
