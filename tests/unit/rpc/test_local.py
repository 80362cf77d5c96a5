# SPDX-License-Identifier: Apache-2.0
import concurrent.futures
import threading
import uuid

import fixtures
import hypothesis
from hypothesis import strategies
import oslo_messaging

from tests import profile
from tests.unit.rpc import base

JSON = strategies.recursive(
    strategies.none() | strategies.booleans() | strategies.integers()
    | strategies.floats(allow_nan=False) | strategies.text(),
    lambda inner: strategies.lists(inner, max_size=4)
    | strategies.dictionaries(strategies.text(), inner, max_size=4),
    max_leaves=20)


class Endpoint(base.Recorder):
    """What the tests call."""

    def echo(self, context, value):
        return value

    def spoil(self, context, value):
        value['spoilt'] = True
        self.reply = {'fine': True}
        return self.reply

    def note(self, context, value):
        self.received.put(value)

    def strange(self, context):
        return object()


class TestMessages(base.LocalTestCase):

    def test_call_returns_what_the_server_returns(self):
        self.start(Endpoint())

        self.assertEqual([1, {'a': None}], self.client().call(
            {}, 'echo', value=[1, {'a': None}]))

    def test_whatever_json_can_say_arrives_as_it_was(self):
        self.start(Endpoint())
        client = self.client()

        @profile.few_examples
        @hypothesis.given(value=JSON)
        def check(value):
            self.assertEqual(value, client.call({}, 'echo', value=value))

        check()

    def test_server_and_caller_share_nothing(self):
        endpoint = Endpoint()
        self.start(endpoint)
        value = {'spoilt': False}

        reply = self.client().call({}, 'spoil', value=value)

        self.assertEqual({'spoilt': False}, value)
        self.assertEqual({'fine': True}, reply)
        self.assertIsNot(endpoint.reply, reply)

    def test_tuple_arrives_as_a_list(self):
        self.start(Endpoint())

        self.assertEqual(
            [1, 2], self.client().call({}, 'echo', value=(1, 2)))

    def test_what_json_cannot_say_is_not_sent(self):
        endpoint = Endpoint()
        self.start(endpoint)

        self.assertRaises(
            ValueError, self.client().cast, {}, 'note', value=object())
        self.assertTrue(endpoint.received.empty())

    def test_caller_hears_of_a_reply_that_json_cannot_say(self):
        self.start(Endpoint())

        error = self.assertRaises(
            ValueError, self.client().call, {}, 'strange')

        self.assertIn('object', str(error))
        self.assertIn('not JSON serializable', self.logs.output)

    def test_each_of_many_callers_gets_its_own_reply(self):
        self.start(Endpoint())
        client = self.client()

        def ask(number):
            return client.call({}, 'echo', value=number)

        with concurrent.futures.ThreadPoolExecutor(8) as callers:
            self.assertEqual(
                list(range(400)), list(callers.map(ask, range(400))))

    def test_cast_to_nobody_waits_for_a_server(self):
        endpoint = Endpoint()
        for number in range(10):
            self.client().cast({}, 'note', value=number)

        self.start(endpoint, threads=1)

        self.assertEqual(
            list(range(10)), [endpoint.next() for _ in range(10)])

    def test_messages_are_taken_in_the_order_in_which_they_were_sent(self):
        endpoint = Endpoint()
        self.start(endpoint, threads=1)

        for number in range(100):
            self.client().cast({}, 'note', value=number)

        self.assertEqual(
            list(range(100)), [endpoint.next() for _ in range(100)])

    def test_no_thread_belongs_to_a_transport(self):
        before = threading.active_count()

        other = self.transports.get(f'{self.world}/other')
        self.listen(lambda incoming: None, other)
        self.client(other).cast({}, 'note', value=1)

        self.assertEqual(before, threading.active_count())

    def test_more_messages_than_may_wait_are_refused(self):
        self.useFixture(
            fixtures.MonkeyPatch('cellsched.rpc.local.WAITING_MAX', 2))
        self.client().cast({}, 'note', value=1)
        self.client().cast({}, 'note', value=2)

        error = self.assertRaises(
            oslo_messaging.MessageDeliveryFailure,
            self.client().cast, {}, 'note', value=3)

        self.assertIn('topic topic', str(error))


class TestAddresses(base.LocalTestCase):

    def test_each_message_goes_to_one_of_several_servers(self):
        endpoints = [Endpoint(), Endpoint(), Endpoint()]
        for number, endpoint in enumerate(endpoints):
            self.start(endpoint, host=f'host{number}')

        for number in range(9):
            self.client().cast({}, 'note', value=number)

        shares = [[endpoint.next() for _ in range(3)]
                  for endpoint in endpoints]
        self.assertEqual(list(range(9)), sorted(sum(shares, [])))

    def test_message_to_a_server_reaches_that_server_only(self):
        there, elsewhere = Endpoint(), Endpoint()
        self.start(there, host='there')
        self.start(elsewhere, host='elsewhere')

        for number in range(4):
            self.client().prepare(server='there').cast(
                {}, 'note', value=number)

        self.assertEqual(
            {0, 1, 2, 3}, {there.next() for _ in range(4)})
        self.assertTrue(elsewhere.received.empty())

    def test_message_to_a_server_waits_for_that_server(self):
        there, elsewhere = Endpoint(), Endpoint()
        self.start(elsewhere, host='elsewhere')
        self.client().prepare(server='there').cast({}, 'note', value=1)

        self.start(there, host='there')

        self.assertEqual(1, there.next())
        self.assertTrue(elsewhere.received.empty())

    def test_fanout_reaches_every_server_once(self):
        endpoints = [Endpoint(), Endpoint()]
        for number, endpoint in enumerate(endpoints):
            self.start(endpoint, host=f'host{number}', threads=1)

        for value in ('first', 'second'):
            self.client().prepare(fanout=True).cast({}, 'note', value=value)

        for endpoint in endpoints:
            self.assertEqual('first', endpoint.next())
            self.assertEqual('second', endpoint.next())
            self.assertTrue(endpoint.received.empty())

    def test_fanout_is_not_kept_for_a_server_that_comes_later(self):
        endpoint = Endpoint()
        self.client().prepare(fanout=True).cast({}, 'note', value='early')

        self.start(endpoint)

        self.client().cast({}, 'note', value='late')
        self.assertEqual('late', endpoint.next())

    def test_receivers_of_a_fanout_share_nothing(self):
        taken = []
        self.listen(taken.append, host='one')
        self.listen(taken.append, host='two')

        self.client().prepare(fanout=True).cast({}, 'note', value=[])

        taken[0].message['args']['value'].append('spoilt')
        self.assertEqual([], taken[1].message['args']['value'])

    def test_fanout_is_for_all_servers_even_if_one_is_named(self):
        endpoint = Endpoint()
        self.start(endpoint)

        self.client().prepare(fanout=True, server='another').cast(
            {}, 'note', value=1)

        self.assertEqual(1, endpoint.next())

    def test_exchanges_do_not_mix(self):
        ours, theirs = Endpoint(), Endpoint()
        self.start(ours)
        self.start(theirs, target=base.TOPIC(exchange='theirs'))

        self.client(target=base.TOPIC(exchange='theirs')).cast(
            {}, 'note', value=1)

        self.assertEqual(1, theirs.next())
        self.assertTrue(ours.received.empty())


class TestWorlds(base.LocalTestCase):

    def assertApart(self, url):
        here, there = Endpoint(), Endpoint()
        other = self.transports.get(url)
        self.start(here)
        self.start(there, transport=other)

        self.client(other).cast({}, 'note', value='there')
        self.client().cast({}, 'note', value='here')

        self.assertEqual('here', here.next())
        self.assertEqual('there', there.next())

    def test_virtual_hosts_do_not_mix(self):
        self.assertApart(f'{self.world}/other')

    def test_hosts_do_not_mix(self):
        self.assertApart(f'local://{uuid.uuid4().hex}/cell')

    def test_ports_do_not_mix(self):
        self.assertApart(f'{self.world}:1/cell')

    def test_transports_of_one_place_meet(self):
        endpoint = Endpoint()
        self.start(endpoint)
        other = oslo_messaging.get_rpc_transport(
            self.conf, f'{self.world}/cell')
        self.addCleanup(other.cleanup)

        self.client(other).cast({}, 'note', value=1)

        self.assertEqual(1, endpoint.next())

    def test_nothing_waits_longer_than_the_last_transport_is_open(self):
        self.client().cast({}, 'note', value='before')
        self.transports.close()
        endpoint = Endpoint()
        again = self.transports.get(f'{self.world}/cell')

        self.start(endpoint, transport=again)

        self.client(again).cast({}, 'note', value='after')
        self.assertEqual('after', endpoint.next())

    def test_what_waits_stays_while_another_transport_is_open(self):
        url = f'{self.world}/cell'
        first = oslo_messaging.get_rpc_transport(self.conf, url)
        self.client(first).cast({}, 'note', value='before')
        first.cleanup()
        endpoint = Endpoint()

        self.start(endpoint)

        self.assertEqual('before', endpoint.next())

    def test_closing_one_transport_twice_closes_no_other(self):
        url = f'{self.world}/cell'
        other = oslo_messaging.get_rpc_transport(self.conf, url)
        self.client().cast({}, 'note', value='kept')
        other.cleanup()
        other.cleanup()
        endpoint = Endpoint()

        self.start(endpoint)

        self.assertEqual('kept', endpoint.next())

    def test_closed_transport_refuses_to_send(self):
        client = self.client()
        self.transports.close()

        self.assertRaises(oslo_messaging.MessageDeliveryFailure,
                          client.cast, {}, 'note', value=1)
