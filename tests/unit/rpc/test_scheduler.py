# SPDX-License-Identifier: Apache-2.0
import uuid

import oslo_messaging

from cellsched import clock
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

    def select_destinations(self, context, **arguments):
        self.received.put((context, arguments))
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


class TestSchedulerAPI(base.RPCTestCase):

    def setUp(self):
        super().setUp()
        self.api = scheduler.SchedulerAPI(
            self.transport, clock.Clock().timestamp)
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

    def test_scheduler_receives_the_request(self):
        endpoint = self.answering([])

        self.select(return_alternates=False)

        received, arguments = endpoint.next()
        self.assertEqual('req-1', received.request_id)
        self.assertEqual(2, arguments.pop('spec_obj').num_instances)
        self.assertEqual(
            {'instance_uuids': [UUID, OTHER], 'return_objects': True,
             'return_alternates': False}, arguments)

    def test_message_equals_the_message_of_nova(self):
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

    def test_no_valid_host_arrives_with_the_reasons(self):
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
        self.assertEqual('request: num_instances: expected at most 1000',
                         error.format_message())

    def assertGivesUp(self, **options):
        endpoint = base.Late()
        endpoint.select_destinations = endpoint.ask
        endpoint.target = Scheduler.target
        self.serve(endpoint, scheduler.TOPIC)
        self.addCleanup(endpoint.go_on.set)
        self.api = scheduler.SchedulerAPI(
            self.transport, clock.Clock().timestamp, **options)

        self.assertRaises(oslo_messaging.MessagingTimeout, self.select)

    def test_call_ends_with_its_timeout(self):
        self.assertGivesUp(timeout_s=0.01)

    def test_heartbeats_are_requested_only_for_many_servers(self):
        asked = []
        listener = self.transport._listen(
            oslo_messaging.Target(topic='scheduler', server='host'), 1, None)
        listener.start(lambda incoming: (
            asked.append(incoming[0].client_timeout),
            incoming[0].reply([])))
        self.addCleanup(listener.stop)
        api = scheduler.SchedulerAPI(self.transport, None, 20, 30)

        for uuids in 1, scheduler.LONG_FROM - 1, scheduler.LONG_FROM:
            api.select_destinations(
                self.context, self.spec, [UUID] * uuids)
        self.spec.num_instances = scheduler.LONG_FROM
        api.select_destinations(self.context, self.spec, [UUID])

        self.assertEqual([None, None, 20, 20], asked)


class TestPins(base.RPCTestCase):
    """What is sent by who is held at a version."""

    def setUp(self):
        super().setUp()
        self.spec = objects.RequestSpec(
            num_instances=2, instance_uuid=UUID, ignore_hosts=['a'])
        self.sent = []
        listener = self.transport._listen(
            oslo_messaging.Target(topic='scheduler', server='host'), 1, None)
        listener.start(self.take)
        self.addCleanup(listener.stop)

    def take(self, incoming):
        self.sent.append(incoming[0].message)
        incoming[0].reply([{'host': 'a', 'nodename': 'n', 'limits': {}}])

    def select(self, cap, objects=False, alternates=False):
        api = scheduler.SchedulerAPI(
            self.transport, clock.Clock().timestamp, version_cap=cap)
        return api.select_destinations(
            context.RequestContext(), self.spec, (UUID, OTHER), objects,
            alternates)

    def assertSends(self, version, arguments, *caps):
        for cap in caps:
            self.assertEqual('a', self.select(cap)[0]['host'])

            message = self.sent.pop()
            self.assertEqual(
                (version, arguments),
                (message['version'], message['args'].keys()))

    def test_each_version_has_its_own_arguments(self):
        self.assertSends(
            '4.5', {'spec_obj', 'instance_uuids', 'return_objects',
                    'return_alternates'}, None, '4.5', 'queens', 'gazpacho')
        self.assertSends(
            '4.4', {'spec_obj', 'instance_uuids'}, '4.4', 'pike')
        self.assertSends(
            '4.3', {'spec_obj'}, '4.3', 'mitaka', 'newton', 'ocata')
        self.assertSends(
            '4.0', {'request_spec', 'filter_properties'}, '4.0', '4.1', '4.2',
            'kilo', 'liberty')

    def test_request_is_two_dicts_for_the_oldest(self):
        self.select('4.0')

        [message] = self.sent
        self.assertEqual(2, message['args']['request_spec']['num_instances'])
        self.assertEqual(
            ['a'], message['args']['filter_properties']['ignore_hosts'])

    def test_unsupported_arguments_of_an_old_version_are_refused(self):
        for cap in ('4.0', '4.3', '4.4', 'pike'):
            for asked in ((True, True), (True, False), (False, True)):
                error = self.assertRaises(
                    exception.SelectionObjectsWithOldRPCVersionNotSupported,
                    self.select, cap, *asked)

                self.assertIn('[upgrade_levels] scheduler', str(error))
                self.assertIn(f'to version {error.version};', str(error))
        self.assertEqual([], self.sent)

    def test_unsupported_pin_is_an_error(self):
        for cap in ('pikee', 'grizzly', '4.6', '5.0'):
            error = self.assertRaises(
                exception.ConfigurationInvalid, scheduler.SchedulerAPI,
                self.transport, clock.Clock().timestamp, version_cap=cap)

            self.assertEqual('[upgrade_levels] scheduler', error.field)

    def test_cap_below_the_required_version_is_an_error(self):
        self.assertRaises(
            exception.ConfigurationInvalid, scheduler.SchedulerAPI,
            self.transport, clock.Clock().timestamp, version_cap='pike',
            version_min='4.5')
