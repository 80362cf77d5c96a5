# SPDX-License-Identifier: Apache-2.0
"""Builds that fail on their host: handed on, or in error."""

from amqp import exceptions as amqp_exc
import oslo_messaging

from cellsched import exception
from tests.unit.compute import agents
from tests.unit.db import samples


class TestFailure(agents.AgentTestCase):

    def fail(self, error):
        self.driver.error = error
        return error

    def test_failed_build_is_handed_on_with_its_alternates(self):
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

    def test_claim_is_given_back_before_the_build_may_go_on(self):
        self.fail(exception.BuildFailed(uuid=self.uuid, reason='it broke'))
        seen = []
        release = self.claims.release

        def look(consumers):
            seen.append((self.row.host, len(self.conductor.sent)))
            release(consumers)

        self.claims.release = look
        self.build()

        self.assertEqual([('host1', 0)], seen)

    def test_claim_of_a_build_that_is_elsewhere_by_now_is_kept(self):
        self.fail(exception.BuildFailed(uuid=self.uuid, reason='it broke'))

        def moved():
            with self.cell.writer() as connection:
                samples.put(connection, self.uuid, {'host': 'host2'})

        self.driver.when_up = moved
        self.build()

        self.assertState('building', 'spawning', 'host2')
        self.assertTrue(self.holds)
        self.assertEqual([], self.conductor.sent)

    def test_deletion_while_it_is_handed_on_wins(self):
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

    def test_message_that_comes_again_before_a_conductor_builds_nothing(self):
        self.fail(exception.BuildFailed(uuid=self.uuid, reason='it broke'))
        self.build()
        self.driver.error = None

        self.build()

        self.assertState('building', None, None)
        self.assertEqual(1, len(self.driver.spawned))
        self.assertEqual(1, len(self.conductor.sent))

    def test_message_that_comes_again_after_a_conductor_builds_nothing(self):
        self.fail(exception.BuildFailed(uuid=self.uuid, reason='it broke'))
        self.build()
        self.driver.error = None
        with self.cell.writer() as connection:
            samples.put(
                connection, self.uuid,
                {'build_attempts': 2, 'task_state': 'scheduling'},
                self.clock.now())

        self.build(tried=1)
        self.assertState('building', 'scheduling', None)
        self.build(tried=2, by=self.make_agent('host2'))
        self.assertState('active', None, 'host2')

    def test_build_without_a_word_of_retries_ends_in_error(self):
        self.fail(exception.BuildFailed(uuid=self.uuid, reason='it broke'))

        self.build(retry=False)

        self.assertState('error', None, None)
        self.assertIn('it broke', self.fault)
        self.assertFalse(self.holds)
        self.assertEqual([], self.conductor.sent)

    def test_aborted_build_ends_in_error_and_says_why(self):
        self.fail(exception.BuildAborted(uuid=self.uuid, reason='bad image'))

        self.build(hosts=['host2'])

        self.assertState('error', None, None)
        self.assertEqual(
            f'The build of {self.uuid} was aborted: bad image', self.fault)
        self.assertFalse(self.holds)
        self.assertEqual([], self.conductor.sent)

    def test_error_that_nobody_expected_tells_users_its_kind_only(self):
        self.fail(RuntimeError('at /secret/path of host1'))

        self.build(hosts=['host2'])

        self.assertState('error', None, None)
        self.assertIn('that operators find in the logs', self.fault)
        self.assertNotIn('secret', self.fault)
        self.assertNotIn('host1', self.fault)
        self.assertFalse(self.holds)
        self.assertIn('/secret/path', self.logs.output)

    def test_build_that_no_conductor_can_be_told_of_waits_for_one(self):
        self.fail(exception.BuildFailed(uuid=self.uuid, reason='it broke'))
        self.conductor.failure = amqp_exc.AccessRefused('wrong password')

        self.build()

        self.assertIn('AccessRefused', self.logs.output)
        self.assertNotIn('Traceback', self.logs.output)
        self.assertState('building', None, None)

    def test_conductor_that_was_told_all_the_same_keeps_the_build(self):
        self.fail(exception.BuildFailed(uuid=self.uuid, reason='it broke'))

        def told(*args):
            with self.cell.writer() as connection:
                samples.put(
                    connection, self.uuid,
                    {'build_attempts': 2, 'task_state': 'scheduling'},
                    self.clock.now())
            raise oslo_messaging.MessagingTimeout()

        self.conductor.build_instances = told
        self.build()

        self.assertState('building', 'scheduling', None)


class TestOutcomes(agents.AgentTestCase):

    def failed(self, node='node1'):
        return self.outcomes.failed_in_a_row(node)

    def test_builds_that_fail_in_whatever_way_are_counted(self):
        for error in (exception.BuildFailed, exception.BuildAborted):
            self.driver.error = error(uuid=self.uuid, reason='it broke')
            before = self.failed()
            self.build()
            self.assertEqual(before + 1, self.failed())
            with self.cell.writer() as connection:
                samples.put(
                    connection, self.uuid,
                    {'task_state': 'scheduling'}, self.clock.now())

        self.assertEqual(0, self.failed('node2'))

    def test_success_ends_the_row(self):
        self.outcomes.failed('node1')
        self.outcomes.failed('node2')

        self.build()

        self.assertEqual((0, 1), (self.failed(), self.failed('node2')))

    def test_build_that_is_passed_over_is_not_counted(self):
        self.outcomes.failed('node1')
        self.delete()

        self.build()

        self.assertEqual(1, self.failed())
