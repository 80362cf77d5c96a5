# SPDX-License-Identifier: Apache-2.0
"""Servers of the in-process transport for which the same threads work."""

from concurrent import futures
import threading

import oslo_messaging

from cellsched.rpc import local_pool
from cellsched.rpc import server
from tests.unit.rpc import base
from tests.unit.rpc import test_local


class TestPooledServers(base.LocalTestCase):

    def setUp(self):
        super().setUp()
        self.pool = futures.ThreadPoolExecutor(2)
        self.addCleanup(self.pool.shutdown)

    def pooled(self, endpoint, host):
        made = local_pool.PooledServer(
            self.transport, base.TOPIC(server=host),
            server.server(
                self.transport, 'topic', host, [endpoint]).dispatcher,
            self.pool)
        made.start()
        self.addCleanup(self.end, made)
        return made

    def to(self, host):
        return self.client(target=base.TOPIC(server=host))

    def test_each_gets_its_own_messages(self):
        one, two = test_local.Endpoint(), test_local.Endpoint()
        self.pooled(one, 'one')
        self.pooled(two, 'two')

        self.to('one').cast({}, 'note', value=1)
        self.to('two').cast({}, 'note', value=2)

        self.assertEqual((1, 2), (one.next(), two.next()))
        self.assertEqual(5, self.to('two').call({}, 'echo', value=5))

    def test_error_travels_to_the_caller(self):
        self.pooled(test_local.Endpoint(), 'one')

        self.assertRaises(oslo_messaging.RemoteError, self.to('one').call,
                          {}, 'missing')

    def test_what_was_taken_is_done_when_it_has_ended(self):
        endpoint = base.Late()
        pooled = self.pooled(endpoint, 'one')
        answers = []
        caller = threading.Thread(target=lambda: answers.append(
            self.to('one').call({}, 'ask')))
        caller.start()
        # It is in the pool before the call is waited for.
        for _ in iter(lambda: pooled.is_busy, True):
            pass

        pooled.stop()
        endpoint.go_on.set()
        pooled.wait()
        caller.join()

        self.assertEqual(['late'], answers)
        self.assertFalse(pooled.is_busy)

    def test_what_comes_later_waits_for_the_next(self):
        first, second = test_local.Endpoint(), test_local.Endpoint()
        pooled = self.pooled(first, 'one')
        pooled.stop()

        self.to('one').cast({}, 'note', value=1)
        self.pooled(second, 'one')

        self.assertEqual(1, second.next())
        self.assertTrue(first.received.empty())
