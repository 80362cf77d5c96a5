# SPDX-License-Identifier: Apache-2.0
"""What a scheduler answers over RPC, asked by its client."""

import uuid

from oslo_messaging.notify import _impl_test as recorded

from cellsched import context
from cellsched import exception
from cellsched.notify import notifier
from cellsched import objects
from cellsched.rpc import scheduler as scheduler_rpc
from cellsched.scheduler.drivers import base as drivers
from cellsched.scheduler import service
from cellsched.testing import builders
from tests.unit.db import samples
from tests.unit.rpc import base

ATTEMPTS_MAX = 3
INSTANCES_MAX = 4

CONTEXT = context.RequestContext(project_id='project')


class Driver(drivers.Driver):
    """Chooses host1 and as many others as it is asked for."""

    error = None
    asking = staticmethod(lambda: None)

    def __init__(self):
        super().__init__(None, None)
        self.asked = []

    def select_destinations(self, context, request, instance_uuids,
                            alternates):
        self.asking()
        self.asked.append((context, request, instance_uuids, alternates))
        if self.error is not None:
            raise self.error
        return [[self.selection(number + 1)
                 for number in range(alternates + 1)] for _ in instance_uuids]

    @staticmethod
    def selection(number):
        return objects.Selection(
            compute_node_uuid=str(uuid.UUID(int=number)),
            service_host=f'host{number}', nodename=f'node{number}',
            limits=objects.SchedulerLimits(
                numa_topology=None, vcpu=16, disk_gb=None, memory_mb=None))


class SchedulerTestCase(base.RPCTestCase):

    def setUp(self):
        super().setUp()
        self.driver = Driver()
        self.conf.set_override('transport_url', f'{self.world}/told')
        self.conf.set_override(
            'driver', ['test'], 'oslo_messaging_notifications')
        recorded.reset()
        self.addCleanup(recorded.reset)
        self.serve(service.Scheduler(
            self.driver, ATTEMPTS_MAX, INSTANCES_MAX, notifier.Notifier(
                self.transports.notifications(), 'host0', 'unversioned',
                [])), scheduler_rpc.TOPIC)
        self.client = scheduler_rpc.SchedulerAPI(self.transport)
        self.uuids = samples.uuids(2)

    def select(self, spec_obj=None, instance_uuids=None, **options):
        """Send what is given as it is, whatever it is."""
        return self.client.call(
            CONTEXT, 'select_destinations', '4.5', spec_obj=(
                spec_obj if spec_obj is not None else builders.request()),
            instance_uuids=(instance_uuids if instance_uuids is not None
                            else self.uuids), **options)


class TestNotifications(SchedulerTestCase):

    def told(self):
        return [message['event_type'].rpartition('.')[2]
                for _, message, _, _ in recorded.NOTIFICATIONS]

    def test_start_and_success_are_told(self):
        self.select()

        self.assertEqual(['start', 'end'], self.told())
        _, message, _, _ = recorded.NOTIFICATIONS[0]
        self.assertEqual(
            ('scheduler.host0', 'scheduler.select_destinations.start'),
            (message['publisher_id'], message['event_type']))

    def test_start_is_told_before_the_driver_is_asked(self):
        told = []
        self.driver.asking = lambda: told.extend(self.told())

        self.select()

        self.assertEqual(['start'], told)

    def test_of_what_has_no_success_only_the_start_is_told(self):
        for error in (exception.NoValidHost(
                reason='x', placed=0, rejections=[]), KeyError('x')):
            recorded.reset()
            self.driver.error = error
            self.assertRaises(type(error), self.select)

            self.assertEqual(['start'], self.told())

    def test_of_bad_input_nothing_is_told(self):
        self.assertRaises(exception.InvalidField, self.select,
                          instance_uuids=[])

        self.assertEqual([], self.told())


class TestShapes(SchedulerTestCase):

    def hosts(self, **options):
        return [[each.service_host for each in place]
                for place in self.select(**options)]

    def test_objects_with_alternates(self):
        self.assertEqual(
            [['host1', 'host2', 'host3']] * 2,
            self.hosts(return_objects=True, return_alternates=True))

    def test_objects_without_alternates(self):
        self.assertEqual([['host1']] * 2, self.hosts(return_objects=True))

    def test_dicts_are_the_default(self):
        for options in ({}, {'return_alternates': True},
                        {'return_objects': False}):
            self.assertEqual(
                [{'host': 'host1', 'nodename': 'node1',
                  'limits': {'vcpu': 16}}] * 2, self.select(**options))
            self.assertEqual(0, self.driver.asked[-1][3])

    def test_driver_is_told_what_was_asked(self):
        self.client.select_destinations(
            CONTEXT, builders.request(vcpus=7), self.uuids)

        [(context, request, uuids, alternates)] = self.driver.asked
        self.assertEqual(CONTEXT.request_id, context.request_id)
        self.assertEqual(
            (7, self.uuids, 2), (request.flavor.vcpus, uuids, alternates))

    def test_caller_of_an_older_version_is_answered(self):
        for version in ('4.0', '4.4'):
            self.assertEqual(2, len(self.client.call(
                CONTEXT, 'select_destinations', version,
                spec_obj=builders.request(), instance_uuids=self.uuids)))

    def test_refusal_travels_with_its_reasons_and_is_not_logged(self):
        self.driver.error = exception.NoValidHost(
            reason='Of 1 host 1 lacks memory.', placed=1,
            rejections=[{'by': 'x', 'hosts': 1, 'reason': 'lacks memory'}])

        error = self.assertRaises(exception.NoValidHost, self.select)

        self.assertEqual(1, error.kwargs['placed'])
        self.assertEqual('lacks memory',
                         error.kwargs['rejections'][0]['reason'])
        self.assertNotIn('Traceback', self.logs.output)

    def test_error_that_nobody_expected_is_logged(self):
        self.driver.error = KeyError('what?')

        self.assertRaises(KeyError, self.select)

        self.assertIn('Traceback', self.logs.output)


class TestBadInput(SchedulerTestCase):

    def assertRefused(self, field, **arguments):
        error = self.assertRaises(
            exception.InvalidField, self.select, **arguments)

        self.assertEqual(field, error.kwargs['field'])
        self.assertIn(f'select_destinations: {field}: ', str(error))
        self.assertEqual([], self.driver.asked)
        self.assertNotIn('Traceback', self.logs.output)

    def test_request_must_be_a_request_spec(self):
        for bad in ('', 7, {}, {'flavor': {}}, [builders.request()],
                    builders.request().flavor):
            self.assertRefused('spec_obj', spec_obj=bad)

    def test_request_must_have_a_flavor(self):
        self.assertRefused(
            'spec_obj.flavor', spec_obj=objects.RequestSpec(id=1))

    def test_flavor_must_have_its_sizes(self):
        for name in ('vcpus', 'memory_mb', 'root_gb'):
            fields = {'vcpus': 1, 'memory_mb': 1, 'root_gb': 1}
            del fields[name]
            self.assertRefused(
                f'spec_obj.flavor.{name}', spec_obj=objects.RequestSpec(
                    flavor=objects.Flavor(**fields)))

    def test_instances_must_be_uuids(self):
        good = self.uuids[0]
        for bad in (good, 'x', {}, {good: good}, 7, True, [7], [None],
                    [[good]], ['x'], [good, 'x' * 1_000_000], [good[:-1]],
                    [good.upper()], [good.replace('-', '')],
                    [f'urn:uuid:{good}'], [f'{{{good}}}'], [good + '\n']):
            self.assertRefused('instance_uuids', instance_uuids=bad)

    def test_instances_must_be_some_and_not_too_many(self):
        for bad in ([], samples.uuids(INSTANCES_MAX + 1)):
            self.assertRefused('instance_uuids', instance_uuids=bad)
        self.assertEqual(INSTANCES_MAX, len(self.select(
            instance_uuids=samples.uuids(INSTANCES_MAX))))

    def test_instances_must_differ(self):
        self.assertRefused('instance_uuids',
                           instance_uuids=self.uuids[:1] * 2)
