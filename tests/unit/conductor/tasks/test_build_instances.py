# SPDX-License-Identifier: Apache-2.0
"""Trying a build on another host of its cell."""

from amqp import exceptions as amqp_exc
from oslo_config import cfg
import oslo_messaging

from cellsched.claims import base as claims_base
from cellsched.conductor.tasks import build_instances
from cellsched.db.cell import build_casts
from cellsched.db.cell import instances
from cellsched import exception
from cellsched.network import deallocation
from cellsched.network import fake
from cellsched import objects
from cellsched.testing import builders
from tests.unit.conductor import base
from tests.unit.db import samples
from tests.unit.network import networks
from tests.unit.notify import recorder

ATTEMPTS_MAX = 3


class RescheduleCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cell = self.targets.database(self.cells['cell1'])
        self.agents = self.compute.get('cell1')
        self.task = self.make_task()
        self.uuid = self.handed_on()

    def make_task(self, **options):
        return build_instances.BuildInstances(
            self.cell, self.agents, self.claims, self.clock, 'conductor',
            ATTEMPTS_MAX, **options)

    def handed_on(self, tried=1):
        """Return a server whose build failed on as many hosts as tried."""
        [uuid] = samples.uuids(1)
        with self.cell.writer() as connection:
            instances.create(connection, [samples.instance(
                uuid, build_attempts=tried, task_state=None)],
                self.clock.now())
        return uuid

    def try_next(self, *hosts, uuid=None, tried=1, reason='It broke.',
                 spec=None):
        first = [['a9', 'node-a9']]
        self.task.run(
            base.USER, [samples.instance(uuid or self.uuid)],
            {'retry': {'num_attempts': tried, 'hosts': first,
                       'exc_reason': reason}},
            spec or objects.RequestSpec(),
            [[self.selection(host) for host in hosts]])


class TestBuildInstances(RescheduleCase):

    def fill(self, host):
        self.claims.claim([claims_base.Claim(
            f'filler-{host}', self.providers[host], {'VCPU': 4})])

    def claim(self, host):
        self.claims.claim(claims_base.of_selection(
            self.uuid, self.selection(host)))

    def delete_row(self):
        with self.cell.writer() as connection:
            self.assertTrue(instances.delete(
                connection, self.uuid, self.clock.now(), host=None))

    def assertInError(self, reason):
        row = self.row(self.uuid)
        self.assertEqual(('error', None), (row.vm_state, row.host))
        self.assertIn(reason, self.reason(self.uuid))
        self.assertIsNone(self.holds(self.uuid))
        self.assertEqual([], self.agents.sent)

    def test_next_host_is_claimed_and_gets_the_cast(self):
        self.try_next('a1', 'a2', 'a3')

        [sent] = self.agents.sent
        self.assertEqual(('build_and_run_instance', 'a1'),
                         (sent.method, sent.host))
        self.assertEqual('node-a1', sent.arguments['node'])
        self.assertEqual(
            {'retry': {'num_attempts': 2,
                       'hosts': [['a9', 'node-a9'], ['a1', 'node-a1']]},
             'limits': {}},
            sent.arguments['filter_properties'])
        self.assertEqual(['a2', 'a3'], [
            each.service_host for each in sent.arguments['host_list']])
        self.assertEqual('a1', self.holds(self.uuid))
        [held] = self.claims.claims_of([self.uuid])[self.uuid]
        self.assertEqual(
            ('project', 'user'), (held.project_id, held.user_id))
        row = self.row(self.uuid)
        self.assertEqual(('building', 'scheduling', None, 2), (
            row.vm_state, row.task_state, row.host, row.build_attempts))

    def test_host_without_room_is_passed_over(self):
        self.fill('a1')

        self.try_next('a1', 'a2', 'a3')

        [sent] = self.agents.sent
        self.assertEqual('a2', sent.host)
        self.assertEqual(['a3'], [
            each.service_host for each in sent.arguments['host_list']])
        self.assertEqual('a2', self.holds(self.uuid))

    def test_host_against_the_group_policy_is_skipped(self):
        spec = builders.request(group={'policy': 'anti-affinity'})
        [other] = samples.uuids(1)
        self.claims.claim(claims_base.of_selection(
            other, self.selection('a1'), spec.instance_group))

        self.try_next('a1', 'a2', spec=spec)

        self.assertEqual('a2', self.holds(self.uuid))
        late = claims_base.of_selection(
            samples.uuids(1)[0], self.selection('a2'), spec.instance_group)
        self.assertRaises(
            exception.GroupPolicyViolated, self.claims.claim, late)

    def test_server_ends_in_error_on_full_hosts(self):
        self.fill('a1')
        self.fill('a2')

        self.try_next('a1', 'a2')

        self.assertInError('Exhausted all hosts available')

    def test_server_ends_in_error_without_an_alternate_host(self):
        self.try_next()

        self.assertInError('Exhausted all hosts available')

    def test_server_ends_in_error_after_the_last_attempt(self):
        self.uuid = self.handed_on(tried=ATTEMPTS_MAX)

        self.try_next('a1', tried=ATTEMPTS_MAX)

        self.assertInError(
            f'Exceeded max scheduling attempts {ATTEMPTS_MAX} for instance '
            f'{self.uuid}. Last exception: It broke.')
        self.assertEqual(ATTEMPTS_MAX, self.row(self.uuid).build_attempts)

    def test_repeated_message_does_not_repeat_the_cast(self):
        for _ in range(3):
            self.try_next('a1', 'a2')

        self.assertEqual(1, len(self.agents.sent))
        self.assertEqual('a1', self.holds(self.uuid))
        self.assertEqual(2, self.row(self.uuid).build_attempts)

    def test_repeated_message_after_the_end_is_ignored(self):
        self.try_next()
        reason = self.reason(self.uuid)

        self.try_next('a1')

        self.assertInError(reason)

    def test_message_of_an_earlier_attempt_is_ignored(self):
        self.uuid = self.handed_on(tried=2)

        self.try_next('a1', tried=1)

        self.assertEqual([], self.agents.sent)
        self.assertIsNone(self.holds(self.uuid))

    def test_build_in_another_state_is_not_rescheduled(self):
        for state in ({'task_state': 'scheduling'},
                      {'task_state': 'spawning', 'host': 'a1'},
                      {'task_state': None, 'host': 'a1'},
                      {'vm_state': 'active', 'host': 'a1'}):
            [self.uuid] = samples.uuids(1)
            with self.cell.writer() as connection:
                instances.create(connection, [samples.instance(
                    self.uuid, build_attempts=1,
                    **{'task_state': None, **state})], self.clock.now())

            self.try_next('a2')

            self.assertEqual([], self.agents.sent)
            self.assertIsNone(self.holds(self.uuid))

    def test_deleted_server_does_not_claim(self):
        self.delete_row()

        self.try_next('a1')

        self.assertEqual([], self.agents.sent)
        self.assertIsNone(self.holds(self.uuid))

    def test_deletion_during_a_failed_claim_leaves_no_claim(self):
        self.claim('a1')
        claim = self.claims.claim

        def delete_first(claims):
            self.delete_row()
            claim(claims)
            raise oslo_messaging.MessagingTimeout()

        self.claims.claim = delete_first
        self.try_next('a1')

        self.assertEqual('deleted', self.row(self.uuid).vm_state)
        self.assertIsNone(self.holds(self.uuid))

    def test_server_deleted_after_its_claim_has_no_stored_message(self):
        claim = self.claims.claim

        def delete_first(claims):
            self.delete_row()
            return claim(claims)

        self.claims.claim = delete_first
        self.try_next('a1')

        with self.cell.reader() as connection:
            self.assertIsNone(build_casts.get(connection, self.uuid))

    def test_late_conductor_leaves_the_claim_of_a_later_attempt(self):
        self.claim('a2')
        transfer = self.claims.transfer

        def go_on(source, target):
            self.claims.transfer = transfer
            with self.cell.writer() as connection:
                samples.put(connection, self.uuid, {
                    'host': 'a2', 'task_state': 'spawning',
                    'build_attempts': 3})
            return transfer(source, target)

        self.claims.transfer = go_on
        self.try_next('a1')

        self.assertEqual('a2', self.holds(self.uuid))
        self.assertEqual([], self.agents.sent)

    def kept(self):
        with self.cell.reader() as connection:
            return build_casts.BuildMessage.read(
                build_casts.get(connection, self.uuid))

    def test_cast_to_an_agent_is_stored(self):
        self.fill('a1')

        self.try_next('a1', 'a2', 'a3')

        [sent] = self.agents.sent
        kept = self.kept()
        self.assertEqual('a2', kept.chosen.service_host)
        self.assertEqual(
            ['a3'], [each.service_host for each in kept.host_list])
        self.assertEqual(
            sent.arguments['filter_properties'], kept.filter_properties)

    def test_failed_cast_to_an_agent_is_repeated(self):
        self.assert_repeated_after(amqp_exc.AccessRefused('wrong password'))

    def test_cast_with_an_invalid_option_is_repeated(self):
        self.assert_repeated_after(cfg.RequiredOptError('lock_path'))

    def assert_repeated_after(self, failure):
        self.agents.failure = failure

        self.try_next('a1')

        self.assertIn(type(failure).__name__, self.logs.output)
        self.assertNotIn('Traceback', self.logs.output)
        row = self.row(self.uuid)
        self.assertEqual(('building', 'scheduling', 2), (
            row.vm_state, row.task_state, row.build_attempts))
        self.assertEqual('a1', self.holds(self.uuid))
        self.assertEqual('a1', self.kept().chosen.service_host)

    def test_build_waits_for_an_unreachable_claim_store(self):
        def unreachable(consumers):
            raise exception.DatabaseUnreachable(
                schema='claims', url='', reason='gone')

        self.claims.release = unreachable
        self.try_next('a1')

        row = self.row(self.uuid)
        self.assertEqual(('building', 'scheduling', 2), (
            row.vm_state, row.task_state, row.build_attempts))

    def test_agent_with_a_timed_out_cast_keeps_the_build(self):
        for failure in oslo_messaging.MessagingTimeout(), ValueError():
            self.uuid = self.handed_on()

            def fail(*args, failure=failure, **arguments):
                with self.cell.writer() as connection:
                    samples.put(
                        connection, self.uuid,
                        {'host': 'a1', 'task_state': 'spawning'},
                        self.clock.now())
                raise failure

            self.agents.build_and_run_instance = fail
            self.try_next('a1')

            self.assertEqual('building', self.row(self.uuid).vm_state)
            self.assertEqual('a1', self.holds(self.uuid))

    def test_error_of_the_claim_store_ends_the_build(self):
        self.claims.claim = None

        self.try_next('a1')

        self.assertInError('that operators find in the logs')

    def test_missing_retry_properties_count_as_a_single_attempt(self):
        self.task.run(base.USER, [samples.instance(self.uuid)], {}, None,
                      [[self.selection('a1')]])

        [sent] = self.agents.sent
        self.assertEqual(
            {'num_attempts': 2, 'hosts': [['a1', 'node-a1']]},
            sent.arguments['filter_properties']['retry'])

    def test_servers_are_rescheduled_with_their_own_hosts(self):
        other = self.handed_on()

        self.task.run(
            base.USER,
            [samples.instance(self.uuid), samples.instance(other)],
            build_casts.BuildMessage.first(
                [self.selection('a3')], None).filter_properties, None,
            [[self.selection('a1')], [self.selection('a2')]])

        self.assertEqual([('a1', self.uuid), ('a2', other)], self.sent())


class TestNetworks(RescheduleCase):

    def setUp(self):
        super().setUp()
        self.network = networks.make(fake.FakeNetworks)
        self.task = self.make_task(free=deallocation.NetworkDeallocation(
            self.network, self.cell, self.clock).free)
        with self.cell.writer() as connection:
            instances.update(connection, self.uuid,
                             {'network_allocated': True}, self.clock.now())
        self.network.allocate_for_instance(
            base.USER, samples.instance(self.uuid), None, 'a9')

    def allocated(self):
        return (self.row(self.uuid).network_allocated,
                self.uuid in self.network.allocated())

    def test_continued_build_keeps_its_networks(self):
        self.try_next('a1')

        self.assertEqual((True, True), self.allocated())

    def test_failed_build_has_no_networks(self):
        self.try_next()

        self.assertEqual('error', self.row(self.uuid).vm_state)
        self.assertEqual((False, False), self.allocated())

    def test_row_records_the_failed_rollback(self):
        self.network.fail('deallocate', 1)

        self.try_next()

        self.assertEqual('error', self.row(self.uuid).vm_state)
        self.assertEqual((True, True), self.allocated())

    def test_late_message_keeps_the_networks(self):
        with self.cell.writer() as connection:
            samples.put(connection, self.uuid, {
                'vm_state': 'active', 'host': 'a1'})

        self.try_next()

        self.assertEqual((True, True), self.allocated())


FAILED = 'compute_task.build_instances.error'


class TestNotifications(RescheduleCase):

    def setUp(self):
        super().setUp()
        self.told = self.useFixture(recorder.NotificationRecorder())
        self.task = self.make_task(notifier=self.told.notifier)

    def test_build_without_alternates_is_notified_once(self):
        for _ in range(2):
            self.try_next()

        [(event, data)] = self.told.all()
        self.assertEqual((FAILED, self.uuid), (event, data['instance_uuid']))
        self.assertEqual(
            'MaxRetriesExceeded',
            data['reason']['nova_object.data']['exception'])

    def test_continued_build_is_not_notified(self):
        self.try_next('a1')

        self.assertEqual([], self.told.events())
