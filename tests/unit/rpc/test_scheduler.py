# SPDX-License-Identifier: Apache-2.0
import uuid

import oslo_messaging

from cellsched import context
from cellsched import exception
from cellsched import objects
from cellsched.rpc import scheduler
from tests.unit.rpc import base

UUID = str(uuid.UUID(int=1))
OTHER = str(uuid.UUID(int=2))

REJECTIONS = [
    {'by': 'ComputeFilter', 'hosts': 3, 'reason': 'is down'},
    {'by': 'claims', 'hosts': 1, 'reason': 'lacks 512 MEMORY_MB'},
]


class Scheduler(base.Recorder):

    target = oslo_messaging.Target(version=scheduler.VERSION)

    def __init__(self, answer):
        super().__init__()
        self._answer = answer

    @oslo_messaging.expected_exceptions(exception.NoValidHost)
    def select_destinations(self, context, **arguments):
        self.received.put((context, arguments))
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class TestSchedulerAPI(base.RPCTestCase):

    def setUp(self):
        super().setUp()
        self.api = scheduler.SchedulerAPI(self.transport)
        self.context = context.RequestContext(request_id='req-1')
        self.spec = objects.RequestSpec(num_instances=2, instance_uuid=UUID)

    def answering(self, answer):
        endpoint = Scheduler(answer)
        self.serve(endpoint, scheduler.TOPIC)
        return endpoint

    def select(self, **options):
        return self.api.select_destinations(
            self.context, self.spec, (UUID, OTHER), **options)

    def test_answer_is_a_list_of_places_for_each_instance(self):
        places = [objects.Selection(service_host=host, nodename='n',
                                    compute_node_uuid=UUID, cell_uuid=UUID)
                  for host in ('a', 'b', 'c')]
        self.answering([[places[0], places[2]], [places[1]]])

        chosen = self.select()

        self.assertEqual(
            [['a', 'c'], ['b']],
            [[place.service_host for place in each] for each in chosen])
        self.assertIsInstance(chosen[0][0], objects.Selection)

    def test_answer_may_be_dicts(self):
        places = [{'host': 'a', 'nodename': 'n', 'limits': {}}]
        self.answering(places)

        self.assertEqual(places, self.select(return_objects=False))

    def test_scheduler_receives_what_was_asked(self):
        endpoint = self.answering([])

        self.select(return_alternates=False)

        received, arguments = endpoint.next()
        self.assertEqual('req-1', received.request_id)
        self.assertEqual(2, arguments.pop('spec_obj').num_instances)
        self.assertEqual(
            {'instance_uuids': [UUID, OTHER], 'return_objects': True,
             'return_alternates': False}, arguments)

    def test_message_is_what_nova_sends(self):
        sent = []

        def take(incoming):
            sent.append(incoming[0].message)
            incoming[0].reply([])

        listener = self.transport._listen(
            oslo_messaging.Target(topic='scheduler', server='host'), 1, None)
        listener.start(take)
        self.addCleanup(listener.stop)

        self.select()

        spec = sent[0]['args'].pop('spec_obj')
        self.assertEqual('RequestSpec', spec['nova_object.name'])
        self.assertEqual(
            [{'method': 'select_destinations', 'version': '4.5',
              'args': {'instance_uuids': [UUID, OTHER],
                       'return_objects': True, 'return_alternates': True}}],
            sent)

    def test_nobody_finding_a_host_arrives_with_the_reasons(self):
        self.answering(exception.NoValidHost(
            reason='There are not enough hosts available.',
            rejections=REJECTIONS))

        error = self.assertRaises(exception.NoValidHost, self.select)

        self.assertEqual(REJECTIONS, error.kwargs['rejections'])
        self.assertEqual(REJECTIONS, error.rejections)
        self.assertEqual('There are not enough hosts available.',
                         error.reason)
        self.assertEqual(500, error.code)
        self.assertEqual(
            'No valid host was found. There are not enough hosts available.',
            error.format_message())
        self.assertTrue(str(error).startswith(error.format_message()))

    def test_kind_of_finding_no_host_survives(self):
        self.answering(exception.MaxRetriesExceeded(reason='Three times.'))

        error = self.assertRaises(exception.MaxRetriesExceeded, self.select)

        self.assertEqual(
            'Exceeded maximum number of retries. Three times.',
            error.format_message())

    def test_bad_input_arrives_with_its_field(self):
        self.answering(exception.InvalidField(
            where='request', field='num_instances', expected='at most 1000'))

        error = self.assertRaises(exception.InvalidField, self.select)

        self.assertEqual('num_instances', error.field)
        self.assertEqual('request: num_instances: at most 1000',
                         error.format_message())

    def assertGivesUp(self, **options):
        endpoint = base.Late()
        endpoint.select_destinations = endpoint.ask
        endpoint.target = Scheduler.target
        self.serve(endpoint, scheduler.TOPIC)
        self.addCleanup(endpoint.go_on.set)
        self.api = scheduler.SchedulerAPI(self.transport, **options)

        self.assertRaises(oslo_messaging.MessagingTimeout, self.select)

    def test_call_ends_with_its_timeout(self):
        self.assertGivesUp(timeout_s=0.01)

    def test_call_ends_without_a_sign_of_life(self):
        self.assertGivesUp(
            timeout_s=base.DEADLINE_S, call_monitor_timeout_s=0.01)
