# SPDX-License-Identifier: Apache-2.0
"""Claims in a model of etcd."""

from concurrent import futures
import contextlib
import itertools
import random
import threading

from cellsched.claims import base as claims
from cellsched.claims import coordination
from cellsched.claims import etcd
from cellsched.claims.etcd import protocol
from cellsched.claims import remote
from cellsched import clock
from cellsched import exception
from cellsched.simulator.servers import etcd as servers
from cellsched.testing import clock as fake
from cellsched.testing.suite import claims as suite
from tests.unit import base
from tests.unit.claims.etcd import base as on_model
from tests.unit.claims import model


class TestEtcdClaims(
        on_model.OnModel, suite.ClaimStoreSuite, base.TestCase):

    def make_store(self):
        # Racing threads are to let each other go on.
        return super().make_store(clock=clock.Clock())


class TestEtcdModel(on_model.OnModel, model.ModelTests, base.TestCase):
    pass


class TestRequests(on_model.TestCase):

    def setUp(self):
        super().setUp()
        self.store_client, self.sent = self.client, self.client.sent
        self.peer = self.make_store()
        self.store.set_inventory('h', {'VCPU': claims.Inventory(100)})
        self.names = iter('abcdefghijklmnopqrstuvwxyz')

    def requests(self, call):
        """Return the requests of a call."""
        del self.sent[:]
        call()
        return [*self.sent]

    def claim(self, store=None):
        (store or self.store).claim([
            claims.Claim(next(self.names), 'h', {'VCPU': 1})])

    def used(self):
        [usage] = self.peer.usages(providers=['h']).usages
        return usage.used['VCPU'], usage.consumers

    def test_claim_by_a_current_cache_is_a_single_request(self):
        self.assertEqual(1, len(self.requests(self.claim)))

    def test_claim_by_an_outdated_cache_is_two_requests(self):
        self.claim(self.peer)

        self.assertEqual(2, len(self.requests(self.claim)))

    def test_contended_host_is_read_before_a_claim(self):
        self.claim(self.peer)
        self.claim()
        self.claim(self.peer)

        look, claim = self.requests(self.claim)

        self.assertNotIn(protocol.Put, map(type, look.success))
        self.assertIn(protocol.Put, map(type, claim.success))
        self.assertEqual((4, 4), self.used())

    def test_host_without_contention_is_not_read(self):
        self.claim(self.peer)
        self.claim()
        self.clock.advance(coordination.CONTENDED_S)

        self.assertEqual(1, len(self.requests(self.claim)))

    def test_claims_by_an_outdated_cache_respect_the_capacity(self):
        self.store.set_inventory('h', {'VCPU': claims.Inventory(5)})
        self.claim(self.peer)
        self.claim()
        for _ in range(3):
            self.claim(self.peer)

        self.assertRaises(exception.ClaimRefused, self.claim)

        self.assertEqual((5, 5), self.used())

    def test_feed_without_changes_reads_two_keys(self):
        token = self.store.usages().token

        [request] = self.requests(lambda: self.store.usages(token))

        self.assertEqual((protocol.Get(b'/cellsched/p/'),
                          protocol.Get(b'/cellsched/counted')),
                         request.success)

    def test_call_without_names_is_no_request(self):
        for call in (lambda: self.store.claims_of([]),
                     lambda: self.store.release([]),
                     lambda: self.store.usages(providers=[])):
            self.assertEqual([], self.requests(call))

    def test_feed_keeps_the_result_of_a_later_claim(self):
        token = self.store.usages().token
        self.claim(self.peer)
        client = self.store_client

        def send(request):
            answer = on_model.ModelClient.send(client, request)
            if isinstance(request, protocol.Changes):
                self.claim()
            return answer

        client.send = send
        self.store.usages(token)
        del client.send
        self.clock.advance(coordination.CONTENDED_S)

        self.assertEqual(1, len(self.requests(self.claim)))

    def test_first_feed_has_a_change_during_its_reads(self):
        store = self.make_store()
        client, send = self.client, self.client.send

        def interfere(request):
            if any(getattr(op, 'end', b'') for op in request.success):
                client.send = send
                self.claim(self.peer)
            return send(request)

        client.send = interfere

        [usage] = store.usages().usages

        self.assertEqual(1, usage.consumers)

    def test_feed_reads_changed_keys(self):
        token = self.store.usages().token
        self.claim(self.peer)

        requests = self.requests(lambda: self.store.usages(token))

        self.assertEqual([protocol.Transaction, protocol.Changes],
                         [*map(type, requests)])

    def test_feed_after_a_compaction_has_the_changes(self):
        self.store.set_inventory('other', {})
        token = self.store.usages().token
        self.claim(self.peer)
        self.claim(self.peer)
        self.model.compact()

        self.assertEqual(['h'], [
            usage.provider for usage in self.store.usages(token).usages])

    def test_feed_after_a_token_of_another_cluster_has_all_providers(self):
        token = self.store.usages().token
        self.model.cluster = '2'

        self.assertEqual(['h'], [
            usage.provider for usage in self.store.usages(token).usages])


class TestAlternatives(on_model.TestCase):
    """Claims of the first host with room."""

    HOSTS = 'ghi'

    def setUp(self):
        super().setUp()
        self.peer = self.make_store()
        self.sent = []
        self.store = self.make_store()
        for name in self.HOSTS:
            self.store.set_inventory(name, {'VCPU': claims.Inventory(3)})
        self.store.usages()
        self.names = (f'consumer-{number}' for number in itertools.count())

    def request(self, hosts, amount=1):
        name = next(self.names)
        return [[claims.Claim(name, host, {'VCPU': amount})]
                for host in hosts]

    def requests(self, call):
        """Return the requests of a call, and its result."""
        del self.client.sent[:]
        result = call()
        return [*self.client.sent], result

    def used(self):
        return {each.provider: each.used['VCPU']
                for each in self.make_store().usages().usages}

    def test_full_hosts_are_skipped_in_a_single_request(self):
        self.store.claim_each([self.request('g', 3), self.request('h', 3)])

        sent, outcome = self.requests(
            lambda: self.store.claim_any(self.request('ghi')))

        self.assertEqual(1, len(sent))
        self.assertEqual(2, outcome.chosen)
        self.assertEqual([0, 1], sorted(outcome.refusals))
        self.assertEqual({'g': 3, 'h': 3, 'i': 1}, self.used())

    def test_host_with_room_again_is_not_passed_over(self):
        [[claim], _] = full = self.request('gh', 3)
        self.store.claim_any(full)
        self.peer.release([claim.consumer])

        sent, outcome = self.requests(
            lambda: self.store.claim_any(self.request('gh')))

        self.assertEqual(0, outcome.chosen)
        self.assertEqual(2, len(sent))

    def test_claim_after_a_lost_last_place_is_on_the_next_host(self):
        for store in self.store, self.peer:
            store.claim_any(self.request('g'))
        self.store.claim_any(self.request('h'))
        self.store.usages()
        self.peer.claim_any(self.request('g'))

        sent, outcome = self.requests(
            lambda: self.store.claim_any(self.request('gh')))

        self.assertEqual(1, outcome.chosen)
        self.assertEqual(3, self.used()['g'])
        self.assertLessEqual(len(sent), 2)

    def test_lock_of_a_host_is_held_after_a_conflict_only(self):
        held = []

        class Locks(coordination.ContentionLock):
            @contextlib.contextmanager
            def held(self, providers):
                held.append([*filter(self.is_contended, providers)])
                yield
                held.append('free')

        self.store = self.make_store(locks=Locks(self.clock))
        self.store.usages()
        self.store.claim_any(self.request('g'))
        self.assertEqual([], held)
        self.peer.claim_any(self.request('g'))

        self.store.claim_any(self.request('g'))

        self.assertEqual([['g'], 'free'], held)

    def check_two_requests(self, taken):
        """Claim the last place of a contended host, and one of the next."""
        self.peer.claim_any(self.request('g'))
        self.store.claim_any(self.request('g'))
        for _ in range(taken):
            self.peer.claim_any(self.request('g'))

        outcomes = self.store.claim_each(
            [self.request('gh'), self.request('h')])

        # The server refuses a transaction that may write one host twice.
        self.assertEqual([taken, 0], [each.chosen for each in outcomes])
        self.assertEqual({'g': 3, 'h': 1 + taken, 'i': 0}, self.used())

    def test_fallback_host_may_have_another_claim(self):
        self.check_two_requests(taken=0)

    def test_claims_of_the_next_host_are_made_after_a_conflict(self):
        self.check_two_requests(taken=1)

    def test_claims_of_several_hosts_are_a_single_request(self):
        sent, outcomes = self.requests(lambda: self.store.claim_each(
            [self.request(hosts) for hosts in ('g', 'h', 'ig', 'g', 'hi')]))

        self.assertEqual(1, len(sent))
        self.assertEqual([0] * 5, [each.chosen for each in outcomes])
        self.assertEqual({'g': 2, 'h': 2, 'i': 1}, self.used())

    def test_changed_host_costs_a_single_request(self):
        self.peer.claim_any(self.request('g'))

        sent, outcomes = self.requests(lambda: self.store.claim_each(
            [self.request('g'), self.request('h')]))

        self.assertEqual([0, 0], [each.chosen for each in outcomes])
        self.assertEqual(2, len(sent))
        self.assertEqual({'g': 2, 'h': 1, 'i': 0}, self.used())

    def test_more_requests_than_fit_are_several_requests(self):
        for name in self.HOSTS:
            self.store.set_inventory(name, {'VCPU': claims.Inventory(500)})

        sent, outcomes = self.requests(lambda: self.store.claim_each(
            [self.request('ghi') for _ in range(200)]))

        self.assertEqual([0] * 200, [each.chosen for each in outcomes])
        self.assertEqual(2, len(sent))

    def test_waiting_claims_share_a_request(self):
        self.store.set_inventory('g', {'VCPU': claims.Inventory(500)})
        arrived = WaitingClock(8)
        self.store = self.make_store(clock=arrived)
        self.store.usages()
        with self.lock, futures.ThreadPoolExecutor(8) as pool:
            # The first claim waits for the server, the others for the first.
            running = [pool.submit(self.store.claim, self.request('g')[0])
                       for _ in range(8)]
            self.assertTrue(arrived.all.wait(600))
            self.lock.release()
            futures.wait(running)
            self.lock.acquire()

        self.assertEqual([1] * 8, [each.result() for each in running])
        puts = [len([op for op in each.success if isinstance(
            op, protocol.Put)]) for each in self.client.sent]
        self.assertEqual([3, 9], [count for count in puts if count > 2])

    def test_each_thread_gets_its_own_error(self):
        arrived = WaitingClock(3)

        class Client(on_model.ModelClient):
            def send(self, request):
                super().send(request)
                raise remote.NotSent('no member answers')

        self.store = etcd.EtcdClaims(
            Client(self.model, self.lock), arrived, random.Random(1))
        with self.lock, futures.ThreadPoolExecutor(3) as pool:
            running = [pool.submit(self.store.claim, self.request('g')[0])
                       for _ in range(3)]
            self.assertTrue(arrived.all.wait(600))
            self.lock.release()
            futures.wait(running)
            self.lock.acquire()

        errors = [each.exception() for each in running]
        for error in errors:
            self.assertIn('no member answers', str(error))
        self.assertEqual(3, len(set(map(id, errors))))

    def test_claim_behind_a_silent_server_ends_in_time(self):
        arrived = WaitingClock(2)
        self.store = self.make_store(clock=arrived, retry_timeout_s=0.01)
        with self.lock, futures.ThreadPoolExecutor(2) as pool:
            running = [pool.submit(self.store.claim, self.request('g')[0])
                       for _ in range(2)]
            done, _ = futures.wait(running, 600, futures.FIRST_COMPLETED)
            [error] = [each.exception() for each in done]
            self.lock.release()
            futures.wait(running)
            self.lock.acquire()

        self.assertIsInstance(error, exception.DatabaseUnreachable)
        self.assertIn('other calls of this process', str(error))


class WaitingClock(fake.FakeClock):
    """A clock that notices the waits for its locks.

    :ivar all: set when as many threads as expected wait, or need not wait
    """

    def __init__(self, count):
        super().__init__()
        self.all = threading.Event()
        self._count = count

    def lock(self):
        return WaitingLock(self)

    def note(self):
        self._count -= 1
        if not self._count:
            self.all.set()


class WaitingLock:

    def __init__(self, clock):
        self._clock = clock
        self._lock = threading.Lock()
        self.release = self._lock.release

    def acquire(self, timeout=-1):
        if timeout >= 0:
            self._clock.note()
        return self._lock.acquire(timeout=timeout)

    def __enter__(self):
        self._lock.acquire()

    def __exit__(self, *exc):
        self._lock.release()


class TestServer(on_model.TestCase):

    def test_old_release_is_refused(self):
        self.model.version = '3.3.27'

        error = self.assertRaises(
            exception.ConfigurationInvalid, self.store.check)

        self.assertIn('3.3.27', str(error))
        for version in '3.4.0', '3.10.1', '4.0.0-rc.1':
            self.model.version = version
            self.store.check()

    def test_unprepared_store_is_refused_with_the_command(self):
        self.client.model = servers.EtcdModel()

        error = self.assertRaises(
            exception.SchemaOutOfDate, self.store.check)

        self.assertIn('cellsched-manage claims_db sync', str(error))

    def test_refusal_by_the_server_is_an_error_with_its_reason(self):
        store = self.make_store(
            client=on_model.ModelClient(servers.EtcdModel(ops_max=2)))

        error = self.assertRaises(
            exception.DatabaseError, store.claims_of, ['a', 'b'])

        self.assertIn('too many operations', str(error))

    def test_recount_sets_figures_right(self):
        self.store.set_inventory('h', {'VCPU': claims.Inventory(9)})
        self.store.claim([claims.Claim('a', 'h', {'VCPU': 2})])
        key = b'/cellsched/p/h'
        [found] = self.model.read(key)
        self.model.answer(protocol.Transaction(success=(protocol.Put(
            key, found.value.replace(b'"VCPU":2', b'"VCPU":3')),)))

        self.assertEqual([True, False], [
            self.store.recount('h') for _ in range(2)])

        [usage] = self.store.usages(providers=['h']).usages
        self.assertEqual(2, usage.used['VCPU'])


class KeysTestCase(on_model.TestCase):
    """A test that writes keys of the store."""

    def setUp(self):
        super().setUp()
        for name in 'hi':
            self.store.set_inventory(name, {'VCPU': claims.Inventory(4)})
        self.take('a', 'h')
        self.take('b', 'i')

    def take(self, consumer, provider, store=None):
        (store or self.store).claim(
            [claims.Claim(consumer, provider, {'VCPU': 1})])

    def put(self, key, value):
        key = f'/cellsched/{key}'.encode()
        found = self.model.read(key)
        self.model.answer(protocol.Transaction(
            success=(protocol.Put(key, value),)))
        return found[0].value if found else None

    def delete(self, key):
        self.model.answer(protocol.Transaction(success=(
            protocol.Delete(f'/cellsched/{key}'.encode()),)))

    def capacities(self, token=None):
        return {each.provider: each.capacity.get('VCPU', 0)
                for each in self.store.usages(token).usages}

    def used(self):
        return {each.provider: (each.used.get('VCPU', 0), each.consumers)
                for each in self.make_store().usages().usages}


class TestUnreadableKeys(KeysTestCase):
    """A key that cannot be read leaves out its own record only."""

    JUNK = (b'', b'junk', b'[]', b'{"a":5}', b'\xff', b'[' * 100000,
            b'{"i":{"VCPU":["x"]},"u":{},"n":0,"b":{},"c":0}',
            b'{"i":{"VCPU":[1,0,NaN]},"u":{},"n":0,"b":{},"c":0}',
            b'{"i":{"VCPU":[1,0,1.0,1,1,0]},"u":{},"n":0,"b":{},"c":0}',
            b'{"i":{"VCPU":[4]},"u":{"VCPU":"1"},"n":0,"b":{},"c":0}',
            b'{"i":[],"u":{},"n":0,"b":{},"c":0}',
            b'{"i":{"VCPU":[4]},"u":{},"n":0,"b":{},"c":0,"v":2}')

    def test_unreadable_provider_is_omitted_until_its_repair(self):
        for junk in self.JUNK:
            with self.subTest(junk=junk[:80]):
                right = self.put('p/h', junk)

                peer = self.make_store()

                self.assertEqual({'h': 0, 'i': 4}, {
                    each.provider: each.capacity.get('VCPU', 0)
                    for each in peer.usages().usages})
                self.assertRaises(exception.ClaimRefused, self.take,
                                  'c', 'h', peer)
                self.take('c', 'i', peer)
                self.assertEqual(['/cellsched/p/h'],
                                 [each.record for each in peer.problems()])
                self.assertIn('key /cellsched/p/h', self.logs.output)
                self.put('p/h', right)
                self.assertEqual(4, {
                    each.provider: each.capacity.get('VCPU', 0)
                    for each in peer.usages().usages}['h'])
                self.assertEqual([], peer.problems())
                self.take('d', 'h', peer)
                peer.release(['c', 'd'])

    def test_feed_reports_a_manually_repaired_provider(self):
        right = self.put('p/h', b'junk')
        self.take('c', 'i')
        token = self.store.usages().token
        self.assertEqual(0, self.capacities()['h'])

        self.put('p/h', right)

        self.assertEqual({'h': 4}, self.capacities(token))

    def test_inventory_does_not_overwrite_unreadable_provider(self):
        self.put('p/h', b'{"v":2}')

        error = self.assertRaises(
            exception.ClaimStoreFailed, self.make_store().set_inventory, 'h',
            {'VCPU': claims.Inventory(9)})

        self.assertIn('/cellsched/p/h', str(error))
        self.assertIn('version 1', str(error))
        self.assertEqual(b'{"v":2}', self.put('p/h', b'{}'))

    def test_release_of_unreadable_provider_is_counted_once_mended(self):
        right = self.put('p/h', b'junk')

        self.make_store().release(['a'])
        self.assertEqual({}, self.store.claims_of(['a']))
        self.assertEqual(b'junk', self.put('p/h', right))

        [usage] = self.store.usages(providers=['h']).usages
        self.assertEqual(1, usage.consumers)
        self.store.usages()
        self.assertEqual((0, 0), self.used()['h'])

    def test_unreadable_consumer_is_omitted(self):
        for junk in self.JUNK:
            with self.subTest(junk=junk[:80]):
                right = self.put('c/a', junk)

                self.assertEqual(['b'], [*self.store.claims_of(['a', 'b'])])
                self.assertEqual(['b'], self.store.consumers())
                error = self.assertRaises(
                    exception.ClaimStoreFailed, self.take, 'a', 'i')
                self.assertIn('/cellsched/c/a', str(error))
                self.assertRaises(exception.ClaimStoreFailed,
                                  self.store.transfer, 'a', 'z')
                self.assertFalse(self.store.recount('h'))
                self.put('c/a', right)
                self.assertEqual(['a', 'b'], self.store.consumers())

    def test_release_beside_an_unreadable_consumer_succeeds(self):
        self.put('c/a', b'{"a":5}')

        error = self.assertRaises(
            exception.ClaimStoreFailed, self.store.release, ['a', 'b'])

        self.assertIn('/cellsched/c/a', str(error))
        self.assertEqual([], self.store.consumers())
        self.assertEqual(b'{"a":5}', self.put('c/a', b''))

    def test_key_with_invalid_utf8_is_skipped(self):
        for kind in b'p', b'c', b'g':
            self.model.answer(protocol.Transaction(success=(
                protocol.Put(b'/cellsched/%s/\xff' % kind, b'junk'),)))

        self.take('c', 'h')

        self.assertEqual({'h': 4, 'i': 4}, self.capacities())
        self.assertEqual(['a', 'b', 'c'], self.store.consumers())

    def test_unreadable_group_keeps_its_own_claims_only(self):
        joins = claims.Membership('g', 'host', claims.AFFINITY)
        self.store.claim([claims.Claim('m', 'h', {'VCPU': 1}, joins)])
        self.put('g/g', b'junk')

        self.assertRaises(
            exception.ClaimStoreFailed, self.store.claim,
            [claims.Claim('n', 'h', {'VCPU': 1}, joins)])
        self.take('c', 'h')
        self.store.release(['m'])

        self.assertEqual({}, self.store.claims_of(['m']))
        self.assertEqual(b'junk', self.put('g/g', b''))

    def test_group_may_have_the_id_of_a_provider(self):
        joins = claims.Membership('h', 'host', claims.ANTI_AFFINITY)
        self.store.claim([claims.Claim('m', 'h', {'VCPU': 1}, joins)])

        self.assertRaises(
            exception.GroupPolicyViolated, self.store.claim,
            [claims.Claim('n', 'i', {'VCPU': 1}, joins)])


class TestMending(KeysTestCase):
    """Records that contradict each other are found and corrected."""

    def test_member_without_claims_is_removed(self):
        joins = claims.Membership('g', 'host', claims.ANTI_AFFINITY)
        self.store.claim([claims.Claim('m', 'h', {'VCPU': 1}, joins)])
        self.delete('c/m')
        self.assertEqual(['/cellsched/g/g'], [
            each.record for each in self.store.problems()])

        self.store.mend()

        self.assertEqual([], self.store.problems())
        self.store.claim([claims.Claim('n', 'h', {'VCPU': 1}, joins)])

    def test_marks_of_an_earlier_version_are_ignored(self):
        for key in 'p/h', 'c/a':
            value = self.model.read(f'/cellsched/{key}'.encode())[0].value
            self.put(key, value.replace(b'"b":{}', b'"b":{"gone":1}').replace(
                b'"b":""', b'"b":"gone"'))

        self.assertEqual(['a'], [*self.store.claims_of(['a'])])
        self.take('a', 'h')
        self.store.release(['a'])
        self.assertEqual((0, 0), self.used()['h'])

    def test_new_provider_counts_the_claims_of_its_consumers(self):
        self.delete('p/h')

        self.make_store().set_inventory('h', {'VCPU': claims.Inventory(4)})

        self.assertEqual((1, 1), self.used()['h'])

    def test_release_of_a_missing_provider_creates_none(self):
        self.delete('p/h')

        self.make_store().release(['a'])

        self.assertEqual(['i'], [*self.used()])


class TestFullServer(KeysTestCase):
    """etcd without space accepts deletions only."""

    def setUp(self):
        super().setUp()
        self.model.is_full = True

    def tearDown(self):
        self.model.is_full = False
        super().tearDown()

    def test_release_on_a_full_server_is_counted_later(self):
        joins = claims.Membership('g', 'host', claims.ANTI_AFFINITY)
        self.model.is_full = False
        self.store.claim([claims.Claim('m', 'h', {'VCPU': 1}, joins)])
        self.model.is_full = True

        self.store.release(['a', 'm'])

        self.assertEqual({}, self.store.claims_of(['a', 'm']))
        self.store.usages()
        self.assertEqual((2, 2), self.used_with_space()['h'])
        self.assertIn('alarm NOSPACE', self.logs.output)
        self.clock.advance(60)
        self.make_peer(self.store).usages()
        self.assertEqual((0, 0), self.used()['h'])
        self.store.claim([claims.Claim('n', 'h', {'VCPU': 4}, joins)])

    def used_with_space(self):
        self.model.is_full = False
        return {each.provider: (each.used.get('VCPU', 0), each.consumers)
                for each in self.store.usages(providers=['h']).usages}

    def test_claim_refused_by_wrong_counters_succeeds(self):
        self.store.release(['a'])
        self.model.is_full = False

        self.assertEqual(1, self.make_store().claim(
            [claims.Claim('n', 'h', {'VCPU': 4})]))

    def test_claim_names_the_alarm(self):
        error = self.assertRaises(
            exception.ClaimStoreFailed, self.take, 'c', 'h')

        self.assertIn('NOSPACE', str(error))
        self.assertEqual({'a', 'b'}, {*self.store.claims_of('abc')})
