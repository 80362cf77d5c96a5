# SPDX-License-Identifier: Apache-2.0
"""RPC clients that send nothing."""

import oslo_messaging

from cellsched import context
from cellsched import objects
from cellsched.testing import builders
from cellsched.testing import clients
from tests.unit import base
from tests.unit.db import samples

CONTEXT = context.admin()


class TestClients(base.TestCase):

    def test_scheduler_returns_the_configured_answer(self):
        def answer(instance_uuids, **arguments):
            return [[objects.Selection(service_host=uuid)]
                    for uuid in instance_uuids]

        scheduler = clients.FakeScheduler(answer)

        [[chosen]] = scheduler.select_destinations(
            CONTEXT, builders.request(vcpus=3), ['a'])

        self.assertEqual('a', chosen.service_host)
        [sent] = scheduler.sent
        self.assertEqual(('select_destinations', None),
                         (sent.method, sent.host))
        self.assertEqual(3, sent.arguments['spec_obj'].flavor.vcpus)
        self.assertTrue(sent.arguments['return_alternates'])

    def test_agents_and_conductors_record_their_messages(self):
        [uuid] = samples.uuids(1)
        instance = samples.instance(uuid)
        compute, conductor = clients.FakeCompute(), clients.FakeConductor()

        compute.terminate_instance(CONTEXT, 'host1', instance)
        conductor.build_and_schedule(CONTEXT, [uuid])
        instance.host = 'changed later'

        [sent] = compute.sent
        self.assertEqual(
            (CONTEXT, 'terminate_instance', 'host1', uuid, None),
            (sent.context, sent.method, sent.host,
             sent.arguments['instance'].uuid,
             sent.arguments['instance'].get('host')))
        [sent] = conductor.sent
        self.assertEqual(
            ('build_and_schedule', None, {'instance_uuids': [uuid]}),
            (sent.method, sent.host, sent.arguments))

    def test_clients_fail_as_configured(self):
        conductor = clients.FakeConductor()
        conductor.failure = oslo_messaging.MessagingTimeout()
        self.assertRaises(
            oslo_messaging.MessagingTimeout, conductor.build_and_schedule,
            CONTEXT, [])
        self.assertEqual([], conductor.sent)

        conductor.failure = None
        conductor.build_and_schedule(CONTEXT, [])
        self.assertEqual(1, len(conductor.sent))

    def test_each_transport_has_a_client(self):
        every = clients.FakeComputeAPIs()

        self.assertIs(every.get('a'), every.get('a'))
        self.assertIsNot(every.get('a'), every.get('b'))
        self.assertEqual({'a', 'b'}, set(every.clients))

    def test_unserializable_argument_is_refused(self):
        self.assertRaises(
            ValueError, clients.FakeConductor().build_and_schedule, CONTEXT,
            [object()])
