# SPDX-License-Identifier: Apache-2.0
"""Claims in a Cassandra with failures."""

from concurrent import futures
import contextlib
import os
import random
import signal
import socket
import threading
import unittest
import uuid

from oslo_utils import strutils

from cellsched.claims import base as claims
from cellsched.claims import cassandra
from cellsched.claims.cassandra import client
from cellsched.claims.cassandra import options
from cellsched.claims.cassandra import requests
from cellsched import clock
from cellsched import exception
from cellsched.testing.suite import claim_cases
from tests.integration import base
from tests.integration import cassandra as server
from tests.integration.claims import test_cassandra
from tests.integration import serving
from tests import profile

#: Has the tests run that need three nodes, and a minute to start them.
VARIABLE = 'CELLSCHED_CASSANDRA_CLUSTER'

#: Room for less than is asked for.
ROOM = 40
THREADS = 4


class FaultCase(claim_cases.ClaimStoreCase, base.TestCase):

    def open_at(self, url, retry_timeout_s=base.PATIENCE_S, **changed):
        """Return a store with its own connections."""
        made = client.CassandraClient(
            options.address(url), test_cassandra.configured(
                timeout=2.0, **changed), clock.Clock())
        self.addCleanup(made.close)
        return cassandra.CassandraClaims(
            made, clock.Clock(), random.Random(),
            retry_timeout_s=retry_timeout_s, abandoned_s=0.5, place=url)

    def claim_under(self, url, fault):
        """Claim and release in threads during a failure.

        The outcomes are checked afterwards.
        """
        stores = [self.open_at(url) for _ in range(2)]
        stores[0].sync()
        providers = [self.make_provider(stores[0], VCPU=ROOM)
                     for _ in range(2)]
        held, lock = {}, threading.Lock()
        under_way, over = threading.Event(), threading.Event()

        def churn(number):
            chance = random.Random(number)
            store = stores[number % 2]
            done = 0
            while not over.is_set() or done < 5:
                name = f'{number}-{done}'
                batch = [claims.Claim(name, provider, {'VCPU': 1})
                         for provider in chance.sample(
                             providers, chance.choice((1, 1, 2)))]
                with contextlib.suppress(exception.ClaimRefused):
                    store.claim(batch)
                    with lock:
                        held[name] = self.by_provider(batch)
                if chance.random() < 0.6:
                    with lock:
                        names = [each for each in held
                                 if each.startswith(f'{number}-')][:2]
                    store.release(names)
                    with lock:
                        for each in names:
                            del held[each]
                done += 1
                if done == 5:
                    under_way.set()

        with futures.ThreadPoolExecutor(THREADS) as pool:
            running = [pool.submit(churn, number)
                       for number in range(THREADS)]
            try:
                under_way.wait(self.timeout_s)
                fault()
            finally:
                over.set()
            for each in running:
                each.result()
        self.check_claims(self.open_at(url), providers, held)

    def check_claims(self, store, providers, held):
        reported = store.claims_of([*held])
        self.assertEqual(held, {
            name: self.by_provider(batch) for name, batch in reported.items()})
        for provider in providers:
            taken = sum(provider in each for each in held.values())
            self.assertLessEqual(taken, ROOM)
            self.assertUsed(store, provider, taken, VCPU=taken)
            self.assertFalse(store.recount(provider))
        store.release([*held])
        store.claim([self.make_claim(provider, VCPU=ROOM)
                     for provider in providers])


@profile.full_only('a real server that dies; by default a model does')
class TestKilledServer(FaultCase):

    def test_claims_continue_after_a_restart_without_losses(self):
        node = self.useFixture(base.installed(
            lambda: server.Cassandra(durable=True)))
        self.show_output_of(node.processes[0])

        def kill():
            node.kill()
            node.start()

        self.claim_under(node.url('claims'), kill)


@unittest.skipUnless(
    strutils.bool_from_string(os.environ.get(VARIABLE, '')),
    f'three nodes take long to start; {VARIABLE}=1 has them')
class TestClusterLosingANode(FaultCase):

    #: Seconds after which the driver has not yet given up a node that hangs.
    soon_s = 25.0

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = cls.of_class(base.installed(server.CassandraCluster))

    def setUp(self):
        super().setUp()
        self.keyspace = f'claims_{random.getrandbits(32):08x}'
        self.url = self.cluster.url(self.keyspace)

    def test_claims_continue_during_and_after_the_loss_of_a_node(self):
        def lose():
            self.cluster.processes[2].kill()
            store = self.open_at(self.url)
            provider = self.make_provider(store, VCPU=8)
            store.claim([self.make_claim(provider, VCPU=8)])
            self.cluster.start()

        self.claim_under(self.url, lose)

    def test_claims_continue_beside_a_hanging_node(self):
        def hang():
            # It is asked first for each of these.
            providers = self.providers_of(2, 5)
            store = self.open_at(self.url, retry_timeout_s=self.soon_s)
            for provider in providers:
                store.set_inventory(provider, {'VCPU': claims.Inventory(1)})
            group = self.cluster.processes[2].pid
            os.killpg(group, signal.SIGSTOP)
            try:
                for provider in providers:
                    store.claim([self.make_claim(provider, VCPU=1)])
            finally:
                os.killpg(group, signal.SIGCONT)

        self.claim_under(self.url, hang)

    def test_partition_has_a_single_coordinator_unless_avoided(self):
        self.open_at(self.url).sync()
        connected = [self.connect() for _ in range(2)]

        first = self.coordinators(connected)
        self.assertEqual(1, len(first))
        for _, nodes in connected:
            nodes.avoid(*first)

        second = self.coordinators(connected)
        self.assertEqual(1, len(second))
        self.assertNotEqual(first, second)

    def connect(self):
        """Return a session of the driver, as a client makes it."""
        conf = test_cassandra.configured()
        nodes = client.NodeOrder(conf, clock.Clock())
        cluster = client.make_cluster(
            options.address(self.url), conf, nodes)
        self.addCleanup(cluster.shutdown)
        return cluster.connect(), nodes

    def coordinators(self, connected):
        """Return the nodes used for a partition."""
        found = set()
        for session, _ in connected:
            read = session.prepare(
                requests.READ_FIGURES.format(self.keyspace))
            for _ in range(20):
                future = session.execute_async(read, ['provider'])
                future.result()
                found.add(future.coordinator_host)
        return found

    def providers_of(self, number, count):
        """Return providers whose first replica is on a node."""
        session, _ = self.connect()
        metadata = session.cluster.metadata
        address = self.cluster.addresses()[number]
        found = []
        while len(found) < count:
            provider = str(uuid.uuid4())
            first, *_ = metadata.get_replicas(
                self.keyspace, provider.encode())
            if first.address == address:
                found.append(provider)
        return found


class Proxy:
    """A proxy between a client and a server, which can cut connections.

    :param port: port of the server
    """

    def __init__(self, port):
        self._port = port
        self._listener = socket.create_server((serving.ADDRESS, 0))
        self.port = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._word = None
        self._left = 0
        self._open = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, word, number):
        """Cut a client off after it has sent a word some times.

        The request arrives at the server, and the answer is lost.
        """
        with self._lock:
            self._word, self._left = word.encode(), number

    def has_cut(self):
        return self._word is None

    def close(self):
        self._listener.close()
        for each in self._open:
            each.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                ours, _ = self._listener.accept()
                theirs = socket.create_connection(
                    (serving.ADDRESS, self._port))
                self._open += [ours, theirs]
                deaf = threading.Event()
                for target, args in ((self._send, (ours, theirs, deaf)),
                                     (self._answer, (theirs, ours, deaf))):
                    threading.Thread(
                        target=target, args=args, daemon=True).start()

    def _send(self, ours, theirs, deaf):
        with contextlib.suppress(OSError):
            while data := ours.recv(65536):
                cuts = self._counts(data)
                if cuts:
                    deaf.set()
                theirs.sendall(data)
        _shut(theirs)

    def _counts(self, data):
        with self._lock:
            if self._word is None or self._word not in data:
                return False
            self._left -= 1
            if self._left:
                return False
            self._word = None
            return True

    def _answer(self, theirs, ours, deaf):
        with contextlib.suppress(OSError):
            while data := theirs.recv(65536):
                if deaf.is_set():
                    break
                ours.sendall(data)
        _shut(ours)


def _shut(end):
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@profile.full_only(
    'a real server whose answers are lost; by default a model loses them')
class TestClientCutOff(test_cassandra.OnCassandra, FaultCase):

    def setUp(self):
        super().setUp()
        self.proxy = Proxy(self.server.port['cql'])
        self.addCleanup(self.proxy.close)
        self.far = self.open_far()

    def open_far(self):
        """Return a store behind the proxy."""
        return self.open_at(
            f'cassandra://{serving.ADDRESS}:{self.proxy.port}/'
            f'{self.keyspace}')

    def test_claim_with_a_lost_answer_is_resolved(self):
        near = self.make_store()
        one, two = (self.make_provider(near, VCPU=2) for _ in range(2))
        for number in 1, 2:
            for providers in [one], [one, two]:
                consumer = f'consumer-{number}-{len(providers)}'
                batch = [claims.Claim(consumer, provider, {'VCPU': 2})
                         for provider in providers]
                self.far.claims_of(['anybody'])
                self.proxy.cut(consumer, number)

                self.far.claim(batch)

                self.assertTrue(self.proxy.has_cut())
                for provider in providers:
                    self.assertUsed(near, provider, 1, VCPU=2)
                    self.assertFalse(near.recount(provider))
                near.release([consumer])

    def test_release_with_a_lost_answer_is_resolved(self):
        near = self.make_store()
        provider = self.make_provider(near, VCPU=2)
        for number in 2, 3, 4:
            claim = self.make_claim(provider, VCPU=2)
            near.claim([claim])
            self.far.claims_of(['anybody'])
            self.proxy.cut(claim.consumer, number)

            self.far.release([claim.consumer])

            self.assertTrue(self.proxy.has_cut())
            self.assertUsed(near, provider, 0)
            self.assertFalse(near.recount(provider))
