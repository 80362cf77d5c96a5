# SPDX-License-Identifier: Apache-2.0
"""What a scheduler answers over RPC, asked by its client."""

import oslo_messaging
from oslo_messaging.notify import _impl_test as recorded

from cellsched import exception
from cellsched import objects
from cellsched.testing import builders
from tests.unit.scheduler import services


class TestNotifications(services.SchedulerTestCase):

    def sent(self):
        return [message['event_type'].rpartition('.')[2]
                for _, message, _, _ in recorded.NOTIFICATIONS]

    def test_start_and_success_are_notified(self):
        self.select()

        self.assertEqual(['start', 'end'], self.sent())
        _, message, _, _ = recorded.NOTIFICATIONS[0]
        self.assertEqual(
            ('scheduler.host0', 'scheduler.select_destinations.start'),
            (message['publisher_id'], message['event_type']))

    def test_start_is_notified_before_the_driver_runs(self):
        told = []
        self.driver.asking = lambda: told.extend(self.sent())

        self.select()

        self.assertEqual(['start'], told)

    def test_failed_request_notifies_only_the_start(self):
        for error, answer in (
                (exception.NoValidHost(reason='x', placed=0, rejections=[]),
                 exception.NoValidHost),
                (KeyError('x'), exception.PluginFailed),
                (oslo_messaging.MessagingTimeout('x'),
                 oslo_messaging.RemoteError)):
            recorded.reset()
            self.driver.error = error
            self.assertRaises(answer, self.select)

            self.assertEqual(['start'], self.sent())

    def test_invalid_request_is_not_notified(self):
        self.assertRaises(exception.InvalidField, self.select,
                          instance_uuids=[])

        self.assertEqual([], self.sent())


class TestShapes(services.SchedulerTestCase):

    def test_objects_have_alternates_on_request(self):
        for alternates, hosts in ((True, ['host1', 'host2', 'host3']),
                                  (False, ['host1'])):
            self.assertEqual([hosts] * 2, [
                [each.service_host for each in place]
                for place in self.select(
                    return_objects=True, return_alternates=alternates)])

    def test_dicts_are_the_default(self):
        for options in ({}, {'return_alternates': True},
                        {'return_objects': False}):
            self.assertEqual(
                [{'host': 'host1', 'nodename': 'node1',
                  'limits': {'vcpu': 16}}] * 2, self.select(**options))
            self.assertEqual(0, self.driver.asked[-1][3])

    def test_driver_receives_the_request(self):
        self.client.select_destinations(
            services.CONTEXT, builders.request(vcpus=7), self.uuids)

        [(context, request, uuids, alternates)] = self.driver.asked
        self.assertEqual(services.CONTEXT.request_id, context.request_id)
        self.assertEqual(
            (7, self.uuids, 2), (request.flavor.vcpus, uuids, alternates))

    def test_refusal_travels_with_its_reasons_and_is_not_logged(self):
        self.driver.error = exception.NoValidHost(
            reason='Of 1 host 1 lacks memory.', placed=1,
            rejections=[{'by': 'x', 'hosts': 1, 'reason': 'lacks memory'}])

        error = self.assertRaises(exception.NoValidHost, self.select)

        self.assertEqual(1, error.kwargs['placed'])
        self.assertEqual('lacks memory',
                         error.kwargs['rejections'][0]['reason'])
        self.assertNotIn('Traceback', self.logs.output)

    def test_failing_driver_is_named_and_its_error_is_logged(self):
        for error in KeyError('what?'), SystemExit('what?'):
            self.driver.error = error

            failure = self.assertRaises(exception.PluginFailed, self.select)

            name = type(self.driver).__name__
            self.assertEqual(f'Scheduler driver {name} failed.',
                             failure.format_message())
            # What callers are sent has the text of no cause.
            self.assertNotIn('what?', str(failure))
            self.assertIn(f'{type(error).__name__}: ', self.logs.output)
            self.assertIn('what?', self.logs.output)

    def test_failing_filter_is_named_and_its_error_is_logged(self):
        failed = exception.PluginFailed(kind='Filter', plugin='FooFilter')
        failed.__cause__ = ValueError('what?')
        self.driver.error = failed

        failure = self.assertRaises(exception.PluginFailed, self.select)

        self.assertEqual('Filter FooFilter failed.',
                         failure.format_message())
        self.assertNotIn('what?', str(failure))
        self.assertIn('ValueError: what?', self.logs.output)


class TestBadInput(services.SchedulerTestCase):

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

    def test_instances_must_be_uuids(self):
        good = self.uuids[0]
        for bad in (good, 'x', {}, {good: good}, 7, True, [7], [None],
                    [[good]], ['x'], [good, 'x' * 1_000_000], [good[:-1]],
                    [good.upper()], [good.replace('-', '')],
                    [f'urn:uuid:{good}'], [f'{{{good}}}'], [good + '\n']):
            self.assertRefused('instance_uuids', instance_uuids=bad)


class TestDemands(services.SchedulerTestCase):
    """A driver of somebody else's, which says what it reads."""

    driver_attributes = {'reads': frozenset({'flavor.extra_specs.hw:*'})}

    def test_demand_unread_by_the_driver_is_refused(self):
        for wishes, name in (
                ({'numa_topology': {'cells': []}}, 'numa_topology'),
                ({'image': {'hw_numa_nodes': 1}}, 'hw_numa_nodes'),
                ({'ignore_hosts': ['x']}, 'ignore_hosts')):
            error = self.assertRaises(
                exception.NoValidHost, self.select,
                builders.request(**wishes))
            self.assertIn(f' {name} (', str(error))
        self.assertEqual([], self.driver.asked)

    def test_unreadable_documents_are_refused_by_their_field(self):
        for field, value in (
                ('numa_topology', {'cells': [5]}), ('numa_topology', 'x'),
                ('pci_requests', {'requests': [{'count': 'many'}]})):
            error = self.assertRaises(
                exception.InvalidField, self.select,
                builders.request(**{field: value}))
            self.assertEqual(field, error.field)
        self.assertRaises(
            exception.HardwareRequestInvalid, self.select, builders.request(
                extra_specs={'hw:cpu_policy': 'shared'},
                image={'hw_cpu_policy': 'dedicated'}))
        self.assertEqual([], self.driver.asked)

    def test_demand_read_by_the_driver_is_passed_on(self):
        self.select(builders.request(extra_specs={'hw:numa_nodes': '1'}))

        self.assertEqual(1, len(self.driver.asked))


class TestIgnoring(services.SchedulerTestCase):

    options = {'ignores_hints': True, 'ignores_demands': True}
    driver_attributes = {'reads': frozenset(), 'hints': frozenset({'known'})}

    def test_demands_get_to_the_driver_with_a_warning(self):
        self.select(builders.request(ignore_hosts=['x']))

        self.assertEqual(1, len(self.driver.asked))
        self.assertIn('request field ignore_hosts', self.logs.output)

    def test_hints_get_to_the_driver(self):
        self.select(builders.request(hints={'odd': 'x', 'known': 'x'}))

        [(_, request, _, _)] = self.driver.asked
        self.assertEqual(['x'], request.hint('odd'))
