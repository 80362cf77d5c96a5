# SPDX-License-Identifier: Apache-2.0
"""Builds and deletions by a compute agent, in every order."""

from concurrent import futures
import gc
import pathlib
import threading
from unittest import mock

from amqp import exceptions as amqp_exc
import fixtures
from oslo_concurrency import lockutils
import oslo_messaging
from oslo_serialization import jsonutils

from cellsched.claims import base as claims_base
from cellsched import clock
from cellsched.compute import agent
from cellsched.compute import guests
from cellsched.compute import places
from cellsched.compute import progress
from cellsched.db.cell import build_casts
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import instance_children
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db.cell import on_host
from cellsched.db.cell import server_moves
from cellsched.db.cell import services
from cellsched import exception
from cellsched.hardware import description
from cellsched.hardware import documents
from cellsched import migrations
from cellsched import objects
from cellsched.objects import child_providers
from tests.unit import base
from tests.unit.compute import agents
from tests.unit.db import samples


def busy(*args):
    raise exception.ServiceBusy(waiting=1)


class TestBuild(agents.AgentTestCase):

    def test_server_becomes_active_here(self):
        self.build()

        self.assertState('active', None, 'host1')
        row = self.row
        self.assertEqual(
            ('node1', progress.RUNNING, self.clock.now()),
            (row.node, row.power_state, row.launched_at))
        self.assertEqual([(self.uuid, 'node1')], self.driver.spawned)
        self.assertTrue(self.holds)

    def test_repeated_message_builds_once(self):
        for _ in range(3):
            self.build()

        self.assertState('active', None, 'host1')
        self.assertEqual(1, len(self.driver.spawned))
        self.assertTrue(self.holds)

    def test_message_repeated_during_the_build_builds_once(self):
        go_on = self.driver.hold_builds()
        with futures.ThreadPoolExecutor(2) as threads:
            try:
                builds = [threads.submit(self.build) for _ in range(2)]
                self.assertTrue(self.driver.reached.wait(agents.DEADLINE_S))
            finally:
                go_on.set()
            for build in builds:
                build.result(agents.DEADLINE_S)

        self.assertState('active', None, 'host1')
        self.assertEqual(1, len(self.driver.spawned))

    def test_server_cast_to_two_agents_is_built_once(self):
        other = self.make_agent('host2', self.make_driver())

        self.build()
        self.build(by=other)

        self.assertState('active', None, 'host1')
        self.assertTrue(self.holds)

    def test_message_of_another_attempt_is_ignored(self):
        self.build(tried=2)

        self.assertState('building', 'scheduling', None)
        self.assertEqual([], self.driver.spawned)
        self.assertTrue(self.holds)

    def test_message_without_retry_properties_builds(self):
        self.build(retry=False)

        self.assertState('active', None, 'host1')


class TestDeletion(agents.AgentTestCase):

    def test_deleted_server_is_not_built(self):
        self.assertIsNone(self.delete())
        # A conductor claimed after the deletion.
        self.claims.claim([claims_base.Claim(
            self.uuid, self.provider, {'VCPU': 1})])

        self.build()

        self.assertEqual([], self.driver.spawned)
        self.assertGone()

    def check_deletion_while(self, spawning):
        """Delete while the driver is at it; the message follows."""
        go_on = self.driver.hold_builds()
        with futures.ThreadPoolExecutor(2) as threads:
            try:
                build = threads.submit(self.build)
                self.assertTrue(self.driver.reached.wait(agents.DEADLINE_S))
                self.assertEqual('host1', self.delete())
                deletion = threads.submit(self.terminate)
                futures.wait([deletion], 0.05)
                # A driver does one thing with a server at a time.
                self.assertFalse(deletion.done())
                spawning()
            finally:
                go_on.set()
            build.result(agents.DEADLINE_S)
            deletion.result(agents.DEADLINE_S)

        self.assertGone()
        self.assertEqual([], self.conductor.sent)
        self.assertIsNone(self.fault)

    def test_deletion_during_a_build_removes_the_server(self):
        self.check_deletion_while(lambda: None)

    def test_deletion_during_a_failing_build_prevents_a_retry(self):
        def spawning():
            self.driver.error = exception.BuildFailed(uuid='x', reason='y')

        self.check_deletion_while(spawning)

    def test_deletion_during_an_aborting_build_has_no_fault(self):
        def spawning():
            self.driver.error = KeyError()

        self.check_deletion_while(spawning)

    def test_deletion_with_a_lost_message_destroys_the_guest(self):
        self.driver.when_up = self.delete

        self.build()

        self.assertState('building', 'deleting', 'host1')
        self.assertEqual([], self.driver.list_instances())
        self.terminate()
        self.assertGone()

    def test_running_server_is_deleted_repeatedly(self):
        self.build()
        self.assertEqual('host1', self.delete())

        for _ in range(3):
            self.terminate()
            self.assertGone()

    def test_claim_made_during_the_deletion_is_released(self):
        """Who claims for a move gives it back, if it finds no server."""
        self.build()
        self.delete()
        release = self.claims.release
        conductor = migrations.Migrations(self.claims, 'conductor')
        move = server_moves.Migration(
            samples.uuids(1)[0], self.uuid, server_moves.UNSHELVE)

        def released(consumers):
            self.claims.release = release
            release(consumers)
            self.claims.claim([claims_base.Claim(
                self.uuid, self.provider, {'VCPU': 1})])
            settled.append(threads.submit(
                conductor.release_ended, self.cell, move))
            # It could be done by now if nothing held it up.
            futures.wait(settled, 0.05)

        settled = []
        self.claims.release = released
        with futures.ThreadPoolExecutor(1) as threads:
            self.terminate()

        [each.result() for each in settled]
        self.assertGone()

    def test_hanging_claim_store_locks_no_row(self):
        self.build()
        self.delete()
        release = self.claims.release

        def hang(consumers):
            self.put(display_name='new')
            release(consumers)

        self.claims.release = hang
        self.terminate()

        self.assertEqual('new', self.row.display_name)
        self.assertGone()

    def test_deletion_is_resumed_after_a_failed_release(self):
        self.build()
        self.delete()
        release = self.claims.release
        self.claims.release = mock.Mock(
            side_effect=exception.ClaimStoreFailed(reason='it hangs'))
        self.assertRaises(exception.DatabaseUnreachable, self.terminate)
        self.assertState('active', 'deleting', 'host1')

        self.claims.release = release
        self.agent.resume_soon()

        self.assertGone()

    def test_build_message_after_the_deletion_is_ignored(self):
        self.build()
        self.delete()
        self.terminate()

        self.build()

        self.assertGone()
        self.assertEqual(1, len(self.driver.spawned))

    def test_deletion_message_before_the_build_message_wins(self):
        self.terminate()
        self.build()

        self.assertEqual([], self.driver.spawned)
        self.assertGone()


class TestFailure(agents.AgentTestCase):

    def fail(self, error):
        self.driver.error = error
        return error

    def test_failed_build_is_rescheduled_with_its_alternates(self):
        reason = self.fail(exception.BuildFailed(
            uuid=self.uuid, reason='it broke'))

        self.build(hosts=['host2', 'host3'])

        [sent] = self.conductor.sent
        self.assertEqual('build_instances', sent.method)
        arguments = sent.arguments
        self.assertEqual(
            [self.uuid], [each.uuid for each in arguments['instances']])
        self.assertEqual(
            [['host2', 'host3']],
            [[each.service_host for each in hosts]
             for hosts in arguments['host_lists']])
        self.assertEqual(
            {'retry': {'num_attempts': 1, 'hosts': [['host1', 'node1']],
                       'exc_reason': str(reason)}, 'limits': {}},
            arguments['filter_properties'])
        self.assertState('building', None, None)
        self.assertIsNone(self.row.node)
        self.assertFalse(self.holds)

    def test_claim_is_released_before_the_build_is_rescheduled(self):
        self.fail(exception.BuildFailed(uuid=self.uuid, reason='it broke'))
        seen = []
        release = self.claims.release

        def look(consumers):
            seen.append((self.row.host, len(self.conductor.sent)))
            release(consumers)

        self.claims.release = look
        self.build()

        self.assertEqual([('host1', 0)], seen)

    def test_failed_build_keeps_the_claim_of_another_host(self):
        self.fail(exception.BuildFailed(uuid=self.uuid, reason='it broke'))

        def moved():
            self.put(host='host2')

        self.driver.when_up = moved
        self.build()

        self.assertState('building', 'spawning', 'host2')
        self.assertTrue(self.holds)
        self.assertEqual([], self.conductor.sent)

    def test_claim_of_a_build_moved_in_the_withdrawal_is_restored(self):
        self.fail(exception.BuildFailed(uuid=self.uuid, reason='it broke'))
        transfer = self.claims.transfer

        def moved(source, target):
            self.claims.transfer = transfer
            self.put(host='host2')
            return transfer(source, target)

        self.claims.transfer = moved
        self.build()

        self.assertState('building', 'spawning', 'host2')
        self.assertTrue(self.holds)
        self.assertEqual([], self.conductor.sent)

    def test_build_moved_after_the_withdrawal_is_not_rescheduled(self):
        self.fail(exception.BuildFailed(uuid=self.uuid, reason='it broke'))
        release = self.claims.release

        def moved(consumers):
            release(consumers)
            self.put(host='host2')

        self.claims.release = moved
        self.build()

        self.assertState('building', 'spawning', 'host2')
        self.assertEqual([], self.conductor.sent)

    def test_deletion_during_a_reschedule_wins(self):
        self.fail(exception.BuildFailed(uuid=self.uuid, reason='it broke'))
        release = self.claims.release

        def delete_first(consumers):
            self.claims.release = release
            self.assertEqual('host1', self.delete())
            release(consumers)

        self.claims.release = delete_first
        self.build()

        self.assertState('building', 'deleting', 'host1')
        self.assertEqual([], self.conductor.sent)
        self.terminate()
        self.assertGone()

    def test_message_repeated_before_the_reschedule_is_ignored(self):
        self.fail(exception.BuildFailed(uuid=self.uuid, reason='it broke'))
        self.build()
        self.driver.error = None

        self.build()

        self.assertState('building', None, None)
        self.assertEqual(1, len(self.driver.spawned))
        self.assertEqual(1, len(self.conductor.sent))

    def test_message_repeated_after_the_reschedule_is_ignored(self):
        self.fail(exception.BuildFailed(uuid=self.uuid, reason='it broke'))
        self.build()
        self.driver.error = None
        self.put(
            build_attempts=2, task_state='scheduling', now=self.clock.now())

        self.build(tried=1)
        self.assertState('building', 'scheduling', None)
        self.build(tried=2, by=self.make_agent('host2'))
        self.assertState('active', None, 'host2')

    def test_build_without_retry_properties_ends_in_error(self):
        self.fail(exception.BuildFailed(uuid=self.uuid, reason='it broke'))

        self.build(retry=False)

        self.assertState('error', None, None)
        self.assertIn('it broke', self.fault)
        self.assertFalse(self.holds)
        self.assertEqual([], self.conductor.sent)

    def test_aborted_build_ends_in_error_with_the_reason(self):
        self.fail(exception.BuildAborted(uuid=self.uuid, reason='bad image'))

        self.build(hosts=['host2'])

        self.assertState('error', None, None)
        self.assertEqual(
            f'The build of {self.uuid} was aborted: bad image', self.fault)
        self.assertFalse(self.holds)
        self.assertEqual([], self.conductor.sent)

    def test_unexpected_error_hides_its_text_from_users(self):
        self.fail(RuntimeError('at /secret/path of host1'))

        self.build(hosts=['host2'])

        self.assertState('error', None, None)
        self.assertIn('that operators find in the logs', self.fault)
        self.assertNotIn('secret', self.fault)
        self.assertNotIn('host1', self.fault)
        self.assertFalse(self.holds)
        self.assertIn('/secret/path', self.logs.output)

    def test_failed_build_waits_for_a_conductor(self):
        self.fail(exception.BuildFailed(uuid=self.uuid, reason='it broke'))
        self.conductor.failure = amqp_exc.AccessRefused('wrong password')

        self.build()

        self.assertIn('AccessRefused', self.logs.output)
        self.assertNotIn('Traceback', self.logs.output)
        self.assertState('building', None, None)

    def test_conductor_with_a_timed_out_message_keeps_the_build(self):
        self.fail(exception.BuildFailed(uuid=self.uuid, reason='it broke'))

        def fail(*args):
            self.put(
                build_attempts=2, task_state='scheduling',
                now=self.clock.now())
            raise oslo_messaging.MessagingTimeout()

        self.conductor.build_instances = fail
        self.build()

        self.assertState('building', 'scheduling', None)


class TestOutcomes(agents.AgentTestCase):

    def failed(self, node='node1'):
        return self.outcomes.failed_in_a_row(node)

    def test_failed_and_aborted_builds_are_counted(self):
        for error in (exception.BuildFailed, exception.BuildAborted):
            self.driver.error = error(uuid=self.uuid, reason='it broke')
            before = self.failed()
            self.build()
            self.assertEqual(before + 1, self.failed())
            self.put(task_state='scheduling', now=self.clock.now())

        self.assertEqual(0, self.failed('node2'))

    def test_success_ends_the_row(self):
        self.outcomes.failed('node1')
        self.outcomes.failed('node2')

        self.build()

        self.assertEqual((0, 1), (self.failed(), self.failed('node2')))

    def test_skipped_build_is_not_counted(self):
        self.outcomes.failed('node1')
        self.delete()

        self.build()

        self.assertEqual(1, self.failed())


class TestNetworks(agents.AgentTestCase):

    def broke(self):
        return exception.BuildFailed(uuid=self.uuid, reason='it broke')

    def deallocate_on_reschedule(self):
        self.conf.set_override(
            'deallocate_networks_on_reschedule', True, 'fake_virt')

    def handed_on(self, tried=2):
        """Let a conductor take the build up that was handed on."""
        with self.cell.writer() as connection:
            self.assertTrue(instances.transit(
                connection, self.uuid, 'try_next', self.clock.now(),
                {'build_attempts': tried}))

    def calls(self):
        return [(each['call'], each['host']) for each in self.network.records]

    def test_row_records_the_networks_before_their_allocation(self):
        seen = []
        allocate = self.network.allocate_for_instance

        def look(*arguments):
            seen.append(self.row.network_allocated)
            allocate(*arguments)

        self.network.allocate_for_instance = look
        self.build()

        self.assertEqual([True], seen)

    def test_requested_networks_are_passed_on(self):
        self.agent.build_and_run_instance(
            agents.USER, self.instance, objects.RequestSpec(
                requested_networks=['one']),
            {'retry': {'num_attempts': 1, 'hosts': []}}, 'node1', {}, [])

        [record] = self.network.records
        self.assertEqual(['one'], record['requested_networks'])

    def test_networks_are_allocated_before_the_spawn(self):
        self.driver.when_up = lambda: self.assertNetworks('host1')

        self.build()

        self.assertState('active', None, 'host1')

    def test_next_host_sets_up_the_kept_networks(self):
        self.driver.error = self.broke()
        self.build()
        self.assertNetworks()
        self.handed_on()

        self.build(tried=2, by=self.make_agent('host2', self.make_driver()))

        self.assertState('active', None, 'host2')
        self.assertNetworks('host2')
        self.assertEqual([('allocate', 'host1'), ('cleanup', 'host1'),
                          ('setup', 'host2')], self.calls())

    def test_driver_can_require_new_networks_on_a_reschedule(self):
        self.deallocate_on_reschedule()
        self.driver.error = self.broke()
        self.build()
        self.assertNoNetworks()
        self.handed_on()

        self.build(tried=2, by=self.make_agent('host2', self.make_driver()))

        self.assertNetworks('host2')
        self.assertEqual([('allocate', 'host1'), ('deallocate', None),
                          ('allocate', 'host2')], self.calls())

    def test_networks_are_cleaned_up_before_the_reschedule(self):
        for anew, method in ((False, 'cleanup_instance_network_on_host'),
                             (True, 'deallocate_for_instance')):
            self.conf.set_override(
                'deallocate_networks_on_reschedule', anew, 'fake_virt')
            self.put(host=None, task_state='scheduling')
            self.driver.error = self.broke()
            seen = []
            setattr(self.network, method,
                    lambda *arguments: seen.append(self.row.host))

            self.build()

            self.assertEqual(['host1'], seen)

    def test_next_host_allocates_recorded_missing_networks(self):
        # It died after it had said so.
        self.put(network_allocated=True, build_attempts=2)

        self.build(tried=2)

        self.assertNetworks('host1')

    def test_failed_allocation_of_networks_reschedules_the_build(self):
        self.network.fail('allocate', 1)

        self.build()

        [sent] = self.conductor.sent
        self.assertIn('is configured to fail', sent.arguments[
            'filter_properties']['retry']['exc_reason'])
        self.assertEqual(1, self.outcomes.failed_in_a_row('node1'))
        self.assertEqual([], self.driver.spawned)
        self.assertState('building', None, None)
        self.handed_on()
        self.build(tried=2, by=self.make_agent('host2'))
        self.assertNetworks('host2')

    def test_failed_setup_of_networks_reschedules_the_build(self):
        self.driver.error = self.broke()
        self.build()
        self.driver.error = None
        self.handed_on()
        self.network.fail('setup', 1)

        self.build(tried=2, by=self.make_agent('host2'))
        self.assertState('building', None, None)
        self.handed_on(tried=3)
        self.build(tried=3, by=self.make_agent('host3'))

        self.assertState('active', None, 'host3')
        self.assertNetworks('host3')

    def test_unexpected_network_error_ends_the_build_in_error(self):
        def broken(*arguments):
            raise KeyError('secret')

        self.network.allocate_for_instance = broken

        self.build()

        self.assertState('error', None, None)
        self.assertNotIn('secret', self.fault)
        self.assertFalse(self.holds)

    def test_failed_network_cleanup_does_not_stop_the_reschedule(self):
        self.driver.error = self.broke()
        self.network.fail('cleanup', 1)

        self.build()

        self.assertState('building', None, None)
        self.assertEqual(1, len(self.conductor.sent))
        self.assertIn('Could not clean up networks', self.logs.output)

    def test_failed_deallocation_is_repeated_by_the_next_host(self):
        self.deallocate_on_reschedule()
        self.driver.error = self.broke()
        self.network.fail('deallocate', 1)
        self.build()
        self.assertState('building', None, None)
        self.assertNetworks()
        self.handed_on()

        self.build(tried=2, by=self.make_agent('host2', self.make_driver()))

        self.assertNetworks('host2')
        self.assertEqual(
            [('deallocate', None), ('allocate', 'host2')], self.calls()[-2:])

    def test_server_in_error_has_no_networks(self):
        self.driver.error = exception.BuildAborted(uuid='x', reason='y')

        self.build()

        self.assertState('error', None, None)
        self.assertNoNetworks()

    def test_row_in_error_records_the_failed_deallocation(self):
        self.driver.error = exception.BuildAborted(uuid='x', reason='y')
        self.network.fail('deallocate', 1)

        self.build()

        self.assertState('error', None, None)
        self.assertFalse(self.holds)
        self.assertNetworks('host1')

    def test_deleted_row_records_the_failed_deallocation(self):
        self.build()
        self.delete()
        self.network.fail('deallocate', 1)

        self.terminate()

        self.assertNotEqual(0, self.row.deleted)
        self.assertFalse(self.holds)
        self.assertNetworks('host1')

    def end_elsewhere(self, end):
        """Build, while somebody thinks that this host is dead."""
        def finish():
            with self.cell.writer() as connection:
                end(connection)

        self.driver.when_up = finish
        self.build()
        self.assertEqual([], self.driver.list_instances())

    def test_concurrently_failed_build_leaves_no_networks(self):
        self.end_elsewhere(lambda connection: instances.fail(
            connection, self.uuid, self.broke(), 'x', self.clock.now(),
            'event'))

        self.assertNoNetworks()

    def test_concurrently_deleted_build_leaves_no_networks(self):
        self.end_elsewhere(lambda connection: instances.delete(
            connection, self.uuid, self.clock.now()))

        self.assertNoNetworks()

    def test_concurrently_moved_build_keeps_its_networks(self):
        self.end_elsewhere(lambda connection: samples.put(
            connection, self.uuid, {'host': 'host2'}))

        self.assertNetworks()


class Killed(BaseException):
    """The process ends here."""


class TestResume(agents.AgentTestCase):

    def setUp(self):
        super().setUp()
        with self.cell.writer() as connection:
            build_casts.create(connection, [self.cast()])

    def cast(self, **fields):
        return build_casts.BuildCast(**{
            'instance_uuid': self.uuid, 'host': 'host1', 'node': 'node1',
            'cast_at': 1.0, 'message': jsonutils.dumps({
                'selections': [
                    objects.Selection(
                        service_host=host, nodename='node1',
                        compute_node_uuid=provider).obj_to_primitive()
                    for host, provider in (
                        ('host1', self.provider), ('host2', 'other'))],
                'request_spec': objects.RequestSpec(
                    instance_uuid=self.uuid,
                    requested_networks=['one']).obj_to_primitive(),
                'filter_properties': {
                    'limits': {}, 'retry': {
                        'num_attempts': 1, 'hosts': [['host1', 'node1']]}}}),
            **fields})

    def forget_message(self):
        with self.cell.writer() as connection:
            build_casts.drop(connection, [self.uuid])

    def kept(self):
        with self.cell.reader() as connection:
            return build_casts.get(connection, self.uuid) is not None

    def kill_at(self, step, do=None):
        """Have an agent do something and be killed; return the next one."""
        def reached(name):
            if name == step:
                raise Killed()

        dying = self.make_agent('host1', reached=reached)
        self.assertRaises(Killed, do or self.build, by=dying)
        return self.make_agent('host1')

    def assertActiveOnce(self):
        self.assertState('active', None, 'host1')
        self.assertEqual([self.uuid], self.driver.list_instances())
        self.assertTrue(self.holds)
        self.assertNetworks('host1')
        self.assertFalse(self.kept())

    def check_killed_at(self, step):
        after = self.kill_at(step)

        for _ in range(2):
            after.resume()

        self.assertActiveOnce()
        [record] = self.network.records
        self.assertEqual('allocate', record['call'])

    def test_begun_build_is_resumed(self):
        self.check_killed_at('Begin')
        [record] = self.network.records
        self.assertEqual(['one'], record['requested_networks'])

    def test_build_with_networks_is_resumed(self):
        self.check_killed_at('GiveNetworks')

    def test_build_with_a_running_guest_is_finished(self):
        self.check_killed_at('Spawn')

    def test_build_with_a_running_guest_keeps_its_networks(self):
        self.conf.set_override(
            'deallocate_networks_on_reschedule', True, 'fake_virt')

        self.check_killed_at('Spawn')

    def test_finished_build_is_not_resumed(self):
        self.check_killed_at('Finish')
        self.assertEqual(1, len(self.driver.spawned))

    def test_message_repeated_before_the_resumption_builds_once(self):
        after = self.kill_at('Begin')
        self.build(by=after)
        self.assertEqual([], self.driver.spawned)

        after.resume()

        self.assertActiveOnce()
        self.assertEqual(1, len(self.driver.spawned))

    def test_failed_resumed_build_is_rescheduled(self):
        after = self.kill_at('Begin')
        self.driver.error = exception.BuildFailed(uuid='x', reason='broke')

        after.resume()

        [sent] = self.conductor.sent
        self.assertEqual([['host2']], [
            [each.service_host for each in hosts]
            for hosts in sent.arguments['host_lists']])
        retry = sent.arguments['filter_properties']['retry']
        self.assertEqual(1, retry['num_attempts'])
        self.assertEqual(['one'],
                         sent.arguments['request_spec'].requested_networks)
        self.assertEqual('project', sent.context.project_id)
        self.assertEqual('small', sent.arguments['instances'][0].flavor.name)
        self.assertState('building', None, None)
        self.assertFalse(self.holds)

    def test_interrupted_build_without_a_message_ends_in_error(self):
        after = self.kill_at('Spawn')
        self.forget_message()

        after.resume()

        self.assertState('error', None, None)
        self.assertIn('interrupted', self.fault)
        self.assertEqual([], self.driver.list_instances())
        self.assertFalse(self.holds)
        self.assertNoNetworks()

    def test_abort_is_resumed_after_a_failed_release(self):
        aborted = exception.BuildAborted(uuid=self.uuid, reason='bad image')
        self.driver.error = aborted
        release = self.claims.release
        self.claims.release = self.claims.transfer = busy

        self.assertRaises(exception.ServiceBusy, self.build)

        self.assertState('building', 'spawning', 'host1')
        self.assertTrue(self.holds)
        del self.claims.transfer
        self.claims.release = release
        self.driver.error = aborted
        self.agent.resume()
        self.assertState('error', None, None)
        self.assertFalse(self.holds)

    def test_message_for_another_host_does_not_count(self):
        after = self.kill_at('Begin')
        self.forget_message()
        with self.cell.writer() as connection:
            build_casts.create(connection, [self.cast(host='host2')])

        after.resume()

        self.assertState('error', None, None)

    def test_interrupted_build_without_a_claim_is_rescheduled(self):
        # It was killed while it handed the build on.
        self.driver.error = exception.BuildFailed(uuid='x', reason='broke')
        release = self.claims.release

        def die(consumers):
            release(consumers)
            raise Killed()

        self.claims.release = die
        self.assertRaises(Killed, self.build)
        self.claims.release = release
        self.driver.error = None

        self.make_agent('host1').resume()

        self.assertState('building', None, None)
        self.assertEqual(1, len(self.conductor.sent))
        self.assertEqual(1, len(self.driver.spawned))
        self.assertNetworks()

    def test_interrupted_build_with_a_foreign_claim_is_rescheduled(self):
        """A scheduler that was asked twice claims when it was given back."""
        killed = self.kill_at('Begin')
        other = samples.uuids(1)[0]
        self.claims.set_inventory(other, {'VCPU': claims_base.Inventory(8)})
        self.claims.release([self.uuid])
        self.claims.claim([claims_base.Claim(self.uuid, other, {'VCPU': 1})])

        killed.resume()

        self.assertState('building', None, None)
        self.assertEqual(1, len(self.conductor.sent))
        self.assertEqual([], self.driver.spawned)
        self.assertEqual({}, self.claims.claims_of([self.uuid]))

    def test_build_is_resumed_after_a_lost_database(self):
        left = ['Spawn']

        def reached(step):
            if step in left:
                left.remove(step)
                raise exception.DatabaseUnreachable(
                    schema='cell', url='x', reason='it restarts')

        agent = self.make_agent('host1', reached=reached)
        self.assertRaises(
            exception.DatabaseUnreachable, self.build, by=agent)
        self.assertState('building', 'spawning', 'host1')

        left.append('Spawn')
        agent.resume_soon()
        self.assertState('building', 'spawning', 'host1')
        agent.resume_soon()

        self.assertActiveOnce()

    def test_build_begins_after_a_lost_database(self):
        path = pathlib.Path(self.cell.url.removeprefix('sqlite:///'))
        away = path.with_name('away')
        agent = self.make_agent('host1')
        self.cell.close()
        path.rename(away)
        path.mkdir()
        for call in self.build, self.build:
            self.assertRaises(
                exception.DatabaseUnreachable, call, by=agent)
        self.assertRaises(exception.DatabaseUnreachable, agent.resume_soon)
        path.rmdir()
        away.rename(path)
        self.assertState('building', 'scheduling', None)

        agent.resume_soon()
        agent.resume_soon()

        self.assertActiveOnce()

    def test_resume_soon_skips_builds_without_a_database_error(self):
        agent = self.kill_at('Begin')

        agent.resume_soon()

        self.assertState('building', 'spawning', 'host1')

    def test_rescheduled_build_is_not_resumed(self):
        self.driver.error = exception.BuildFailed(uuid='x', reason='broke')
        after = self.kill_at('HandOn')
        self.driver.error = None

        after.resume()

        self.assertState('building', None, None)
        self.assertEqual([], self.conductor.sent)

    def test_build_in_progress_is_not_resumed(self):
        go_on = self.driver.hold_builds()
        with futures.ThreadPoolExecutor(1) as threads:
            try:
                build = threads.submit(self.build)
                self.assertTrue(self.driver.reached.wait(agents.DEADLINE_S))
                self.agent.resume()
                self.assertState('building', 'spawning', 'host1')
            finally:
                go_on.set()
            build.result(agents.DEADLINE_S)

        self.assertActiveOnce()
        self.assertEqual(1, len(self.driver.spawned))

    def test_builds_of_other_hosts_are_not_resumed(self):
        after = self.kill_at('Begin')
        self.put(host='host2')

        after.resume()

        self.assertState('building', 'spawning', 'host2')
        self.assertEqual([], self.driver.spawned)

    def test_concurrently_changed_build_is_not_resumed(self):
        for values in ({'host': 'host2'}, {'task_state': 'deleting'},
                       {'vm_state': 'active', 'task_state': None}):
            self.driver.spawned.clear()
            self.put(vm_state='building', task_state='scheduling', host=None)
            after = self.kill_at('Begin')

            def change(values=values):
                # The agent asks its driver last.
                self.put(**values)
                return []

            self.driver.list_instances = change
            after.resume()

            self.assertEqual([], self.driver.spawned)
            self.assertTrue(self.holds)

    def test_deletion_on_another_host_is_not_resumed(self):
        self.build()
        self.delete()

        def change():
            self.put(host='host2')
            return []

        self.driver.list_instances = change
        self.agent.resume()

        self.assertState('active', 'deleting', 'host2')
        self.assertTrue(self.holds)

    def test_unreadable_build_does_not_stop_the_resumption(self):
        after = self.kill_at('Begin')
        broken = samples.instance(samples.uuids(1)[0])
        with self.cell.writer() as connection:
            instances.create(connection, [broken], self.clock.now())
            samples.put(connection, broken.uuid, {
                'host': 'host1', 'task_state': 'spawning'})
            build_casts.create(connection, [
                self.cast(instance_uuid=broken.uuid, message='{')])

        after.resume()

        self.assertActiveOnce()
        self.assertIn(f'[instance: {broken.uuid}] Could not resume work',
                      self.logs.output)

    def test_deletion_is_resumed(self):
        self.build()
        self.delete()

        self.make_agent('host1').resume()

        self.assertGone()

    def test_interrupted_deletion_is_resumed(self):
        self.build()
        self.delete()

        self.kill_at('Destroy', self.terminate).resume()

        self.assertGone()

    def test_late_interrupted_deletion_is_finished(self):
        self.build()
        self.delete()

        self.kill_at('Terminate', self.terminate).resume()

        self.assertGone()


class TestGuests(agents.AgentTestCase):

    def put_guest(self, **values):
        """Let the driver have the server, and the row say otherwise."""
        self.driver.spawn(self.instance, 'node1')
        self.network.allocate_for_instance(
            agents.USER, self.instance, None, 'host1')
        with self.cell.writer() as connection:
            samples.put(connection, self.uuid, {
                'network_allocated': True, 'task_state': None, **values})
            services.report(connection, samples.uuids(1)[0], 'host1',
                            services.COMPUTE, 'compute', self.clock.now())

    def move(self, **values):
        """Record a move of the server from this host, which is over."""
        self.clock.advance(1)
        with self.cell.writer() as connection:
            server_moves.create(connection, server_moves.Migration(
                samples.uuids(1)[0], self.uuid, **{
                    'migration_type': server_moves.MIGRATION,
                    'status': server_moves.FINISHED,
                    'source_compute': 'host1', 'dest_compute': 'host2',
                    **values}), agents.USER, self.cell.now())

    def reported(self):
        """Return the guests and the servers that the host reports."""
        with self.cell.reader() as connection:
            report = on_host.load(
                services.list_guests(connection)['host1'])
        return {each.uuid: (each.fate.value, each.host)
                for each in report.unexplained}, report.missing

    def assertStays(self, fate, host=None):
        log = self.useFixture(fixtures.FakeLogger())

        self.agent.resume()
        self.agent.resume()

        self.assertEqual([self.uuid], self.driver.list_instances())
        self.assertEqual({self.uuid: {'host1'}}, self.network.allocated())
        self.assertEqual(({self.uuid: (fate, host)}, []), self.reported())
        self.assertEqual(1, log.output.count(self.uuid))

    def test_guest_deleted_on_this_host_is_removed(self):
        for host in 'host1', None:
            self.put_guest(vm_state='deleted', deleted=1, host=host)

            self.agent.resume()

            self.assertEqual([], self.driver.list_instances())
            self.assertNoNetworks()

    def test_guest_deleted_on_another_host_stays(self):
        self.put_guest(vm_state='deleted', deleted=1, host='host2')

        self.assertStays('unplaced', 'host2')

    def test_guest_of_a_moved_server_is_removed_without_its_networks(self):
        self.put_guest(vm_state='active', host='host2')
        self.move()

        self.agent.resume()

        self.assertEqual([], self.driver.list_instances())
        self.assertNetworks()
        self.assertEqual(({}, []), self.reported())

    def test_server_of_another_host_stays_without_a_record(self):
        self.put_guest(vm_state='active', host='host2')

        self.assertStays('elsewhere', 'host2')

    def test_guest_newer_than_the_migration_stays(self):
        self.move()
        self.clock.advance(1)
        self.put_guest(vm_state='active', host='host2')

        self.assertStays('elsewhere', 'host2')

    def test_guest_of_a_build_without_a_host_stays(self):
        for task_state in None, 'scheduling':
            self.put_guest(vm_state='building', task_state=task_state)

            self.agent.resume()

            self.assertEqual([self.uuid], self.driver.list_instances())
            self.assertEqual(
                ({self.uuid: ('unplaced', None)}, []), self.reported())

    def fail_build(self, arrives):
        """Give up a build on a host whose agent starts again.

        :param arrives: whether the guest had arrived; None if the host has no
            file of it
        """
        directory = self.temporary_directory()
        former, present = [guests.Guests(
            'host1', self.cell, self.driver, self.clock, kept)
            for kept in (guests.GuestFiles(directory), None)]
        if arrives is not None:
            former.spawn(self.instance, 'node1')
            if arrives:
                former.arrive(self.uuid)
            present = guests.Guests(
                'host1', self.cell, self.driver, self.clock,
                guests.GuestFiles(directory))
        self.agent = self.make_agent('host1', guests_=present)
        self.put_guest(vm_state='building', task_state='scheduling')
        self.clock.advance(1)
        with self.cell.writer() as connection:
            instance_history.create_all(
                connection, {self.uuid: agents.USER}, 'create',
                self.clock.now())
            instance_history.give_up(
                connection, self.uuid, 'host1', self.clock.now(),
                exception.BuildFailed(uuid=self.uuid, reason='x'))
        self.agent.resume()
        return guests.GuestFiles(directory).list_all()

    def test_guest_of_a_build_failed_on_this_host_is_removed(self):
        self.assertEqual([], self.fail_build(arrives=False))

        self.assertEqual([], self.driver.list_instances())

    def test_possibly_arrived_guest_stays(self):
        # The database of the cell can be older than the end of its build.
        for arrives in True, None:
            self.assertEqual([], self.fail_build(arrives))

            self.assertEqual([self.uuid], self.driver.list_instances())
            self.assertEqual(
                ({self.uuid: ('unplaced', None)}, []), self.reported())

    def test_file_of_an_active_guest_is_removed(self):
        unfinished = guests.GuestFiles(self.temporary_directory())
        unfinished.add(self.uuid)
        self.agent = self.make_agent('host1', guests_=guests.Guests(
            'host1', self.cell, self.driver, self.clock, unfinished))
        self.put_guest(vm_state='active', host='host1')

        self.agent.resume()

        self.assertEqual([], unfinished.list_all())

    def test_failed_writes_of_guest_files_are_logged(self):
        path = pathlib.Path(self.temporary_directory(), 'unfinished')
        path.touch()
        unfinished = guests.GuestFiles(str(path.parent))

        unfinished.add(self.uuid)
        unfinished.remove(self.uuid)

        self.assertEqual(2, self.logs.output.count(
            f'[instance: {self.uuid}] Could not change the file of the guest '
            f'in {path}: '))

    def test_files_are_named_by_uuids_only(self):
        directory = self.temporary_directory()
        unfinished = guests.GuestFiles(f'{directory}/state')
        kept = pathlib.Path(directory, 'kept')
        kept.touch()

        for name in '../../kept', '..', '', str(kept):
            unfinished.remove(name)
            unfinished.add(name)

        self.assertTrue(kept.exists())
        self.assertEqual([], unfinished.list_all())

    def test_guest_of_this_host_stays(self):
        for values in ({'vm_state': 'active'}, {'vm_state': 'error'},
                       {'vm_state': 'active', 'task_state': 'rebuilding'}):
            self.put_guest(host='host1', **values)

            self.agent.resume()

            self.assertEqual([self.uuid], self.driver.list_instances())
            self.assertNetworks('host1')
            self.assertEqual(({}, []), self.reported())

    def test_guest_of_a_moving_server_stays(self):
        self.put_guest(vm_state='active', task_state='resize_migrating',
                       host='host2')
        self.move(status=server_moves.MIGRATING)

        self.agent.resume()

        self.assertEqual([self.uuid], self.driver.list_instances())
        self.assertEqual(({}, []), self.reported())

    def test_unknown_guest_stays(self):
        self.put_guest(vm_state='active', host='host1')
        foreign = objects.Instance(uuid=samples.uuids(1)[0])
        self.driver.spawn(foreign, 'node1')

        self.agent.resume()

        self.assertEqual(sorted([self.uuid, foreign.uuid]),
                         self.driver.list_instances())
        self.assertEqual(
            ({foreign.uuid: ('unknown', None)}, []), self.reported())

    def test_server_without_its_guest_is_reported(self):
        self.put_guest(vm_state='active', host='host1')
        self.driver.destroy(self.instance)

        self.agent.resume()

        self.assertEqual(({}, [self.uuid]), self.reported())

        self.driver.spawn(self.instance, 'node1')
        self.agent.resume()

        self.assertEqual(({}, []), self.reported())

    def test_locked_server_is_not_reported(self):
        self.put_guest(vm_state='active', host='host2')

        with lockutils.lock(f'host1-{self.uuid}'):
            self.agent.resume()

        self.assertEqual(({}, []), self.reported())


class TestResumeChildren(agents.AgentTestCase):

    def kill(self, reached=None):
        raise Killed()

    def test_build_with_a_claim_on_a_child_only_is_resumed(self):
        child = child_providers.uuid_of(self.provider, 'numa0')
        chosen = objects.Selection(
            service_host='host1', nodename='node1',
            compute_node_uuid=self.provider)
        with self.cell.writer() as connection:
            compute_nodes.save(
                connection, self.provider, 'host1', 'node1',
                samples.NODE | {'providers': child_providers.dump([
                    child_providers.Child(child, 'numa0')])}, samples.NOW)
            build_casts.create(connection, [build_casts.BuildCast(
                self.uuid, 'host1', 'node1', jsonutils.dumps({
                    'selections': [chosen.obj_to_primitive()],
                    'request_spec': objects.RequestSpec(
                        instance_uuid=self.uuid).obj_to_primitive(),
                    'filter_properties': {'limits': {}, 'retry': {
                        'num_attempts': 1,
                        'hosts': [['host1', 'node1']]}}}), 1.0)])
        self.claims.set_inventory(child, {'VCPU': claims_base.Inventory(8)})
        self.claims.release([self.uuid])
        self.claims.claim([claims_base.Claim(self.uuid, child, {'VCPU': 1})])
        self.assertRaises(Killed, self.build, by=self.make_agent(
            'host1', reached=self.kill))

        self.make_agent('host1').resume()

        self.assertState('active', None, 'host1')
        self.assertEqual([], self.conductor.sent)


class TestTurns(agents.AgentTestCase):

    def check(self, builds_max, wanted, at_once):
        """Let so many builds come; see how many are done at the same time."""
        begun = threading.Semaphore(0)
        agent = self.make_agent(
            'host1', builds_max=builds_max,
            reached=lambda step: step == 'Begin' and begun.release())
        uuids = samples.uuids(wanted)
        with self.cell.writer() as connection:
            instances.create(connection, map(samples.instance, uuids),
                             self.clock.now())
        go_on = self.driver.hold_builds()
        with futures.ThreadPoolExecutor(wanted) as threads:
            try:
                builds = [threads.submit(
                    agent.build_and_run_instance, agents.USER,
                    samples.instance(uuid), None, {}, 'node1', {}, [])
                    for uuid in uuids]
                for _ in range(at_once):
                    self.assertTrue(begun.acquire(timeout=agents.DEADLINE_S))
                futures.wait(builds, 0.05)
                self.assertFalse(begun.acquire(blocking=False))
            finally:
                go_on.set()
            for build in builds:
                build.result(agents.DEADLINE_S)
        self.assertEqual(sorted(uuids), self.driver.list_instances())

    def test_builds_at_a_time_are_limited(self):
        self.check(builds_max=2, wanted=5, at_once=2)

    def test_builds_at_a_time_are_unlimited_without_a_bound(self):
        self.check(builds_max=0, wanted=5, at_once=5)


class Counting(clock.Clock):
    """A clock that counts the semaphores it makes."""

    def __init__(self):
        self.made = 0

    def semaphore(self, value):
        self.made += 1
        return super().semaphore(value)


class TestSemaphores(base.TestCase):

    def setUp(self):
        super().setUp()
        self.semaphores = agent.Semaphores(clock.Clock())

    def lock(self, name):
        return lockutils.lock(
            name, semaphores=self.semaphores, blocking=False)

    def test_locked_name_cannot_be_locked_again(self):
        with self.lock('host-a'):
            self.assertRaises(lockutils.AcquireLockFailedException,
                              self.lock('host-a').__enter__)

    def test_released_lock_can_be_taken_again(self):
        with self.lock('host-a'):
            pass
        with self.lock('host-a'):
            self.assertIsNotNone(self.semaphores.get('host-a'))

    def test_other_names_are_not_locked(self):
        with self.lock('host-a'), self.lock('host-b'):
            self.assertIsNot(self.semaphores.get('host-a'),
                             self.semaphores.get('host-b'))

    def test_unused_semaphore_is_forgotten(self):
        counting = Counting()
        semaphores = agent.Semaphores(counting)
        for _ in range(2):
            semaphores.get('host-a')
            gc.collect()

        self.assertEqual(2, counting.made)


class TestPlaces(agents.AgentTestCase):
    """A server gets NUMA cells and devices of its host."""

    def setUp(self):
        super().setUp()
        self.state = self.temporary_directory()
        self.agent = self.start()
        self.other = samples.uuids(1)[0]

    def start(self, **options):
        """Return an agent of the host, after one that has stopped."""
        self.places = places.Places(places.PlaceFiles(str(self.state)))
        self.places.report('node1', places.NodeHardware(
            'provider', *description.read('test', {
                'cells': [{'id': 0, 'memory_mb': 64, 'dedicated': '0-1'}]})))
        return self.make_agent('host1', guests_=guests.Guests(
            'host1', self.cell, self.driver, self.clock,
            places_=self.places), **options)

    def spec(self, pcpus=2):
        return objects.RequestSpec(
            instance_uuid=self.uuid, numa_topology={'cells': [{
                'id': 0, 'cpuset': [], 'pcpuset': list(range(pcpus)),
                'memory': 32, 'cpu_policy': 'dedicated'}]},
            pci_requests={'requests': []})

    def occupy(self):
        """Have another server take one of the two CPUs."""
        spec = self.spec(1)
        self.places.place(self.other, 'node1', places.request_of(
            spec.numa_topology, None))

    def test_server_keeps_its_cells_until_its_deletion(self):
        self.build(spec=self.spec())
        self.assertEqual([self.uuid], self.places.list_all())

        self.agent = self.start()
        self.agent.resume()
        self.assertEqual([self.uuid], self.places.list_all())
        self.delete()
        self.terminate()

        self.assertEqual([], self.places.list_all())
        self.start()
        self.assertEqual([], self.places.list_all())
        self.assertGone()

    def test_guest_with_other_cpus_than_claimed_is_reported(self):
        self.build(spec=self.spec())
        amounts = {self.uuid: {'CUSTOM_PCPU_0': 1}}
        with self.cell.writer() as connection:
            services.report(connection, samples.uuids(1)[0], 'host1',
                            services.COMPUTE, 'compute', self.clock.now())
        for answers, expected in (
                ([amounts], amounts),
                (exception.DatabaseUnreachable(
                    schema='claims', url='sqlite://', reason='down'), {})):
            self.places.misplaced = mock.Mock(side_effect=answers)

            self.agent.resume()

            with self.cell.reader() as connection:
                self.assertEqual(expected, on_host.load(
                    services.list_guests(connection)['host1']).misplaced)
        self.places.misplaced.assert_called_once_with({self.uuid})

    def test_driver_gets_the_cells_of_the_server(self):
        self.occupy()
        self.build(spec=self.spec(1))

        topology, devices = self.driver.hardware_of(self.uuid)
        [cell] = topology.cells
        self.assertEqual(({0: 1}, 32), (cell.cpu_pinning, cell.memory))
        self.assertEqual((), devices)

    def test_driver_with_reads_allocations_gets_the_claims(self):
        for reads in False, True:
            seen = []
            self.driver.reads_allocations = reads
            placed = guests.Guests(
                'host1', self.cell, self.driver, self.clock,
                places_=places.Places(claims=self.claims))
            self.driver.spawn = lambda instance, node: seen.append(instance)

            placed.spawn(self.instance, 'node1')

            [instance] = seen
            self.assertEqual(
                {self.provider: {'resources': {'VCPU': 1}}} if reads else {},
                instance.allocations)

    def test_lost_file_of_a_guest_is_written_again(self):
        self.build(spec=self.spec())
        for path in (self.state / 'places').iterdir():
            path.unlink()
        self.agent = self.start()
        self.assertEqual([], self.places.list_all())

        self.agent.resume()

        self.assertEqual([self.uuid], self.places.list_all())
        self.assertEqual([self.uuid], [
            path.name for path in (self.state / 'places').iterdir()])

    def test_leaving_guest_without_a_file_stays_without(self):
        self.build(spec=self.spec())
        self.places.remove(self.uuid)
        self.put(host='host1', task_state='resize_prep')

        self.agent.resume()

        self.assertEqual([], self.places.list_all())

    def test_cell_keeps_the_request_of_the_server(self):
        spec = self.spec()

        self.build(spec=spec)

        with self.cell.reader() as connection:
            topology, requests = instance_children.get_hardware(
                connection, self.uuid)
        self.assertEqual(documents.guest_topology(spec.numa_topology),
                         documents.guest_topology(topology))
        self.assertIsNone(requests)

    def test_server_without_cells_and_devices_has_no_place(self):
        self.build(spec=objects.RequestSpec(
            instance_uuid=self.uuid, numa_topology=None,
            pci_requests={'requests': []}))

        self.assertState('active', None, 'host1')
        self.assertEqual([], self.places.list_all())

    def test_server_beyond_the_free_cells_is_rescheduled(self):
        self.occupy()

        self.build(spec=self.spec(), hosts=['host2'])

        self.assertState('building', None, None)
        self.assertEqual([], self.driver.spawned)
        self.assertFalse(self.holds)
        [sent] = self.conductor.sent
        self.assertEqual('build_instances', sent.method)
        self.assertIn(
            'its host has no NUMA cells with enough free CPUs and memory',
            sent.arguments['filter_properties']['retry']['exc_reason'])
        self.assertEqual([self.other], self.places.list_all())
        self.assertEqual({}, self.network.allocated())

    def test_failed_build_frees_its_cells(self):
        self.driver.error = exception.BuildFailed(uuid=self.uuid, reason='no')

        self.build(spec=self.spec())

        self.assertEqual([], self.places.list_all())

    def test_build_in_error_frees_its_cells(self):
        self.driver.error = RuntimeError()

        self.build(spec=self.spec())

        self.assertState('error', None, None)
        self.assertEqual([], self.places.list_all())

    def test_deletion_during_the_build_frees_the_cells(self):
        self.driver.when_up = self.delete

        self.build(spec=self.spec())
        self.terminate()

        self.assertEqual([], self.places.list_all())
        self.assertGone()

    def test_malformed_request_ends_in_error(self):
        spec = self.spec()
        spec.numa_topology = {'cells': 7}

        self.build(spec=spec)

        self.assertState('error', None, None)
        self.assertIn('numa_topology', self.fault)

    def test_interrupted_build_keeps_its_cells(self):
        spec = self.spec()
        with self.cell.writer() as connection:
            build_casts.create(connection, [build_casts.BuildMessage(
                objects.Selection(service_host='host1', nodename='node1',
                                  compute_node_uuid=self.provider),
                [], spec, {'limits': {}}).kept(self.uuid, 1.0)])

        def reached(name):
            if name == 'Spawn':
                raise Killed()

        self.assertRaises(
            Killed, self.build, spec=spec, by=self.start(reached=reached))
        self.agent = self.start()
        self.assertEqual([self.uuid], self.places.list_all())
        self.agent.resume()

        self.assertState('active', None, 'host1')
        self.assertEqual([self.uuid], self.places.list_all())

    def test_lost_database_interrupts_the_build(self):
        def reached(step):
            if step == 'GiveNetworks':
                raise exception.DatabaseUnreachable(
                    schema='cell', url='x', reason='it restarts')

        self.assertRaises(exception.DatabaseUnreachable, self.build,
                          spec=self.spec(), by=self.start(reached=reached))

        self.assertState('building', 'spawning', 'host1')
        self.assertTrue(self.holds)
        self.assertEqual([self.uuid], self.places.list_all())

    def test_cells_without_a_guest_are_free_once_the_server_is_gone(self):
        self.build(spec=self.spec())
        for values, kept in (
                ({}, True), ({'host': 'host2'}, False)):
            self.agent = self.start()
            self.driver.destroy(self.instance)
            with self.cell.writer() as connection:
                samples.put(connection, self.uuid, values or {
                    'host': 'host1'})

            self.agent.resume()

            self.assertEqual(kept, bool(self.places.list_all()))
