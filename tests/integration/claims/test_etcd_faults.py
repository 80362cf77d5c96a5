# SPDX-License-Identifier: Apache-2.0
"""Claims in etcd with killed members and broken connections."""

import collections
from concurrent import futures
import contextlib
import random
import socket
import threading
import uuid

from cellsched.claims import base as claims
from cellsched.claims import etcd
from cellsched.claims.etcd import client
from cellsched.claims.etcd import options
from cellsched.claims.etcd import protocol
from cellsched.claims import remote
from cellsched import clock
from cellsched import exception
from cellsched.simulator.servers import etcd as models
from tests.integration import base
from tests.integration import etcd as servers
from tests.integration import serving
from tests import profile

CALLERS = 8

#: What a server has room for, in all.
HOSTS, ROOM = 4, 12


class Proxy:
    """A proxy between clients and a member, which can stop.

    :param port: port of the member
    """

    def __init__(self, port):
        self._port = port
        self._listener = socket.create_server((serving.ADDRESS, 0))
        self.port = self._listener.getsockname()[1]
        #: Whether answers are kept back, and connections then broken.
        self.drops = threading.Event()
        #: Whether answers are kept back, and nothing else happens.
        self.stalls = threading.Event()
        self.dropped = threading.Event()
        self._open = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                ours, _ = self._listener.accept()
                theirs = socket.create_connection(
                    (serving.ADDRESS, self._port))
                self._open += [ours, theirs]
                for pair in (ours, theirs, False), (theirs, ours, True):
                    threading.Thread(
                        target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source, target, is_answer):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if is_answer and self.drops.is_set():
                    self.dropped.set()
                    break
                if is_answer and self.stalls.is_set():
                    self.dropped.set()
                    continue
                target.sendall(data)
            for each in source, target:
                each.shutdown(socket.SHUT_RDWR)


class FaultCase(base.TestCase):
    """A test with its own server and stores on it."""

    kind = servers.Etcd

    def setUp(self):
        super().setUp()
        self.server = self.own(self.kind)
        self.url = self.server.url('claims')

    def make_store(self, url=None, timeout_s=2.0):
        endpoints = options.place(url or self.url)
        made = client.EtcdClient(endpoints, timeout_s)
        self.addCleanup(made.close)
        store = etcd.EtcdClaims(
            made, clock.Clock(), random.Random(), endpoints.prefix,
            url or self.url, retry_timeout_s=base.PATIENCE_S)
        store.sync()
        return store

    def make_client(self):
        made = client.EtcdClient(options.place(self.url))
        self.addCleanup(made.close)
        return made

    def make_hosts(self, store, count=HOSTS, room=ROOM):
        hosts = [str(uuid.uuid4()) for _ in range(count)]
        for host in hosts:
            store.set_inventory(host, {'VCPU': claims.Inventory(room)})
        return hosts

    def through_proxy(self, number=0):
        """Return a proxy of a member, and the URL of the proxy."""
        proxy = Proxy(self.server.port[f'client{number}'])
        self.addCleanup(proxy.close)
        return proxy, f'etcd://{serving.ADDRESS}:{proxy.port}/' + (
            self.url.rpartition('/')[2])

    def claims_of(self, hosts, count):
        return [claims.Claim(str(uuid.uuid4()), hosts[number % len(hosts)],
                             {'VCPU': 1}) for number in range(count)]

    def churn(self, hosts, meanwhile):
        """Claim more than fits in several threads during a failure.

        Returns the consumers whose claims succeeded, and all other ones.
        """
        requested = self.claims_of(hosts, 2 * HOSTS * ROOM)
        begun = threading.Semaphore(0)
        watched = threading.Event()

        def call(number):
            store, won = self.make_store(), []
            for claim in requested[number::CALLERS]:
                with contextlib.suppress(exception.ClaimRefused):
                    store.claim([claim])
                    won.append(claim.consumer)
                begun.release()
            return won

        def watch():
            store, token = self.make_store(), None
            while not watched.is_set():
                changes = store.usages(token)
                token = changes.token
                for usage in changes.usages:
                    self.assertLessEqual(usage.used['VCPU'], ROOM)

        with futures.ThreadPoolExecutor(CALLERS + 1) as pool:
            watching = pool.submit(watch)
            calls = [pool.submit(call, number) for number in range(CALLERS)]
            for _ in range(CALLERS):
                begun.acquire(timeout=self.timeout_s)
            meanwhile()
            won = [name for each in calls for name in each.result()]
            watched.set()
            watching.result()
        return won, {claim.consumer for claim in requested} - {*won}

    def check_churn(self, meanwhile):
        store = self.make_store()
        hosts = self.make_hosts(store)

        won, lost = self.churn(hosts, meanwhile)

        self.assertEqual(HOSTS * ROOM, len(won))
        self.assertEqual({*won}, {*store.claims_of(won)})
        self.assertEqual({}, store.claims_of(lost))
        for host in hosts:
            self.assertFalse(store.recount(host))


@profile.by_default(
    'test_lost_answer_is_found_out',
    'test_follower_behind_a_compaction_gets_all_changes',
    'test_unreachable_server_is_named',
    reason='a real server that dies; by default a model does')
class TestMember(FaultCase):

    def test_claims_survive_a_killed_member(self):
        def restart():
            self.server.kill()
            self.server.start()

        self.check_churn(restart)

    def test_lost_answer_is_found_out(self):
        direct = self.make_store()
        host, = self.make_hosts(direct, 1)
        proxy, url = self.through_proxy()
        store = self.make_store(url)
        store.usages()
        # The host is in the cache, so the next request is the claim.
        proxy.drops.set()
        batch = self.claims_of([host], 1)

        with futures.ThreadPoolExecutor(1) as pool:
            claiming = pool.submit(store.claim, batch)
            self.assertTrue(proxy.dropped.wait(self.timeout_s))
            proxy.drops.clear()
            claiming.result(self.timeout_s)

        self.assertEqual({batch[0].consumer}, {*direct.claims_of(
            [batch[0].consumer])})
        [usage] = direct.usages(providers=[host]).usages
        self.assertEqual((1, 1), (usage.used['VCPU'], usage.consumers))

    def test_follower_behind_a_compaction_gets_all_changes(self):
        store, follower = self.make_store(), self.make_store()
        hosts = self.make_hosts(store)
        token = follower.usages().token
        batch = self.claims_of(hosts[:2], 2)
        store.claim(batch)
        store.release([batch[0].consumer])
        # The compaction removes the writes before the last one.
        store.claim(self.claims_of(hosts[:1], 1))
        self.server.compact()

        reported = {usage.provider: usage.used['VCPU']
                    for usage in follower.usages(token).usages}

        self.assertEqual({hosts[0]: 1, hosts[1]: 1}, reported)

    def test_feed_continues_after_a_stalled_connection(self):
        proxy, url = self.through_proxy()
        direct = self.make_store()
        follower = self.make_store(
            f'etcd://{url[7:].partition("/")[0]},{self.url[7:]}', 1.0)
        hosts = self.make_hosts(direct)
        token = follower.usages().token
        direct.claim(self.claims_of(hosts[:1], 1))
        changes = follower.usages(token)
        self.assertEqual([hosts[0]], [
            usage.provider for usage in changes.usages])
        direct.claim(self.claims_of(hosts[1:2], 1))
        proxy.stalls.set()

        changes = follower.usages(changes.token)

        self.assertEqual([hosts[1]], [
            usage.provider for usage in changes.usages])

    def test_unreachable_server_is_named(self):
        store = etcd.EtcdClaims(
            client.EtcdClient(options.place(self.url)), clock.Clock(),
            random.Random(), url=self.url, retry_timeout_s=0)
        self.server.kill()

        error = self.assertRaises(exception.DatabaseUnreachable, store.check)

        self.assertIn(self.url, str(error))


class TestUsers(FaultCase):

    def store_of(self, user):
        endpoints = options.place(self.url)
        sender = client.EtcdClient(endpoints, user=user)
        self.addCleanup(sender.close)
        store = etcd.EtcdClaims(
            sender, clock.Clock(), random.Random(), endpoints.prefix)
        store.sync()
        return store

    def test_user_is_logged_in_again_by_a_restarted_member(self):
        self.server.add_root('secret')
        store = self.store_of(('root', 'secret'))
        # A member forgets tokens when it ends.
        self.server.kill()
        for process in self.server.processes:
            process.start()
        store.check()
        self.make_hosts(store, 1)
        self.assertEqual(1, len(store.usages().usages))

        for user in None, ('root', 'wrong'):
            other = client.EtcdClient(options.place(self.url), user=user)
            self.addCleanup(other.close)
            answer = other.send(protocol.Transaction(
                success=(protocol.Get(b'a'),)))
            self.assertIsInstance(answer, protocol.Refusal)
            self.assertNotIn('wrong', answer.reason)

    def test_user_may_be_configured_before_users_are_needed(self):
        store = self.store_of(('root', 'secret'))
        token = store.usages().token
        [host] = self.make_hosts(store, 1)
        self.assertEqual([host], [
            each.provider for each in store.usages(token).usages])

        self.server.add_root('secret')

        store.claim(self.claims_of([host], 1))
        self.assertEqual(1, store.usages().usages[0].used['VCPU'])


@profile.full_only('the unit tests of the client have the same answers')
class TestWebTokens(TestUsers):

    kind = servers.EtcdWithWebTokens

    def test_user_is_logged_in_again_after_a_change_of_users(self):
        """Such a token has the revision of all users."""
        self.server.add_root('secret')
        store = self.store_of(('root', 'secret'))
        [host] = self.make_hosts(store, 1)
        for name in 'first', 'second':
            self.add_user(name)
            store.claim(self.claims_of([host], 1))

        self.assertEqual(2, store.usages().usages[0].used['VCPU'])

    def add_user(self, name):
        admin = self.server.client()
        token = admin.post(admin.get_url('/auth/authenticate'), json={
            'name': 'root', 'password': 'secret'})['token']
        admin.session.headers['Authorization'] = token
        admin.post(admin.get_url('/auth/user/add'),
                   json={'name': name, 'password': 'secret'})


class TestCluster(FaultCase):

    kind = servers.EtcdCluster

    def test_claims_survive_the_loss_of_a_member(self):
        def lose_leader():
            leader = self.server.client().status()['leader']
            for number in self.server.members:
                status = self.server.client(number).status()
                if status['header']['member_id'] == leader:
                    self.server.processes[number].kill()

        self.check_churn(lose_leader)


class TestModel(FaultCase):
    """The model answers as the server does."""

    def test_same_requests_have_the_same_answers(self):
        chance = random.Random(1)
        sender, model = self.make_client(), models.EtcdModel()
        prefix = options.place(self.url).prefix.encode() + b'm/'
        keys = [prefix + bytes([each]) for each in b'abcdef']
        before = self.revision(sender)
        model.revision = before
        kinds = collections.Counter()
        for _ in range(150):
            request = self.request(chance, model, keys)
            expected = model.answer(request)
            answer = sender.send(request)
            if isinstance(answer, protocol.TransactionOutcome):
                kinds[answer.succeeded] += 1
                self.assertEqual((expected.succeeded, expected.found),
                                 (answer.succeeded, answer.found))
            else:
                kinds[type(answer)] += 1
                self.assertEqual(expected.code, answer.code)
        self.assertEqual({True, False, protocol.Refusal}, {*kinds})
        last = max(kv.revision for kv in model.read(prefix, prefix + b'z'))
        changes = protocol.Changes(prefix, prefix + b'z', before, last)
        self.assertEqual(model.answer(changes), sender.send(changes))

    def revision(self, sender):
        return sender.send(protocol.Transaction()).revision

    def request(self, chance, model, keys):
        def compares():
            for key in chance.sample(keys, chance.randint(0, 2)):
                found = model.read(key)
                revision = found[0].revision if found else 0
                if chance.random() < 0.3:
                    yield protocol.Compare(key, 0, chance.choice((b'', b'x')))
                else:
                    yield protocol.Compare(
                        key, revision + (chance.random() < 0.3))

        def ops():
            for key in chance.sample(keys, chance.randint(0, 4)):
                kind = chance.random()
                if kind < 0.4:
                    yield protocol.Put(key, chance.choice((b'', b'x')))
                elif kind < 0.6:
                    yield protocol.Delete(key)
                elif kind < 0.8:
                    yield protocol.Get(key)
                else:
                    yield protocol.Get(key, keys[-1], chance.randint(0, 2))
            if chance.random() < 0.03:
                yield from [protocol.Get(keys[0])] * 130
            if chance.random() < 0.05:
                yield protocol.Put(keys[0], b'1')

        return protocol.Transaction(
            tuple(compares()), (*ops(), *(
                protocol.Transaction(success=tuple(ops()))
                for _ in range(chance.randint(0, 1)))), tuple(ops()))

    def test_compacted_changes_are_reported_as_compacted(self):
        sender = self.make_client()
        for number in range(5):
            last = sender.send(protocol.Transaction(
                success=(protocol.Put(b'/x/a', b'%d' % number),))).revision
        self.server.compact()

        for after, kind in ((last - 4, protocol.CompactedAnswer),
                            (last - 2, protocol.CompactedAnswer),
                            (last - 1, protocol.ChangesAnswer)):
            answer = sender.send(
                protocol.Changes(b'/x/', b'/x0', after, last))
            self.assertIsInstance(answer, kind)

    def test_request_to_an_absent_member_is_not_sent(self):
        port = self.useFixture(serving.Port()).number
        sender = client.EtcdClient(
            options.place(f'etcd://{serving.ADDRESS}:{port}'))

        self.assertRaises(
            remote.NotSent, sender.send, protocol.MemberStatus())
        self.assertRaises(
            remote.NotSent, sender.send, protocol.Changes(b'a', b'b', 1, 2))
