# SPDX-License-Identifier: Apache-2.0
"""Builds and deletions by a compute agent, in every order."""

from concurrent import futures

from cellsched.claims import base as claims_base
from cellsched.compute import progress
from cellsched import exception
from cellsched import migrations
from tests.unit.compute import agents


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

    def test_message_that_comes_again_builds_nothing(self):
        for _ in range(3):
            self.build()

        self.assertState('active', None, 'host1')
        self.assertEqual(1, len(self.driver.spawned))
        self.assertTrue(self.holds)

    def test_message_that_comes_again_meanwhile_builds_nothing(self):
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

    def test_two_agents_that_are_told_build_once(self):
        other = self.make_agent('host2', self.make_driver())

        self.build()
        self.build(by=other)

        self.assertState('active', None, 'host1')
        self.assertTrue(self.holds)

    def test_message_of_another_try_builds_nothing(self):
        self.build(tried=2)

        self.assertState('building', 'scheduling', None)
        self.assertEqual([], self.driver.spawned)
        self.assertTrue(self.holds)

    def test_message_without_a_word_of_retries_builds(self):
        self.build(retry=False)

        self.assertState('active', None, 'host1')


class TestDeletion(agents.AgentTestCase):

    def test_what_was_deleted_before_is_not_built(self):
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

    def test_what_is_deleted_meanwhile_does_not_come_back(self):
        self.check_deletion_while(lambda: None)

    def test_what_is_deleted_meanwhile_and_fails_is_not_handed_on(self):
        def spawning():
            self.driver.error = exception.BuildFailed(uuid='x', reason='y')

        self.check_deletion_while(spawning)

    def test_what_is_deleted_meanwhile_and_aborts_is_no_error(self):
        def spawning():
            self.driver.error = KeyError()

        self.check_deletion_while(spawning)

    def test_deletion_whose_message_is_lost_leaves_nothing_running(self):
        self.driver.when_up = self.delete

        self.build()

        self.assertState('building', 'deleting', 'host1')
        self.assertEqual([], self.driver.list_instances())
        self.terminate()
        self.assertGone()

    def test_what_runs_is_deleted_however_often(self):
        self.build()
        self.assertEqual('host1', self.delete())

        for _ in range(3):
            self.terminate()
            self.assertGone()

    def test_claim_that_comes_in_the_middle_is_given_back(self):
        """Who claims for a move gives it back, if it finds no server."""
        self.build()
        self.delete()
        release = self.claims.release
        conductor = migrations.Migrations(self.claims, 'conductor')

        def released(consumers):
            self.claims.release = release
            release(consumers)
            self.claims.claim([claims_base.Claim(
                self.uuid, self.provider, {'VCPU': 1})])
            settled.append(threads.submit(
                conductor.release_ended, self.cell, self.uuid))
            # It could be done by now if nothing held it up.
            futures.wait(settled, 0.05)

        settled = []
        self.claims.release = released
        with futures.ThreadPoolExecutor(1) as threads:
            self.terminate()

        [each.result() for each in settled]
        self.assertGone()

    def test_build_message_after_the_deletion_builds_nothing(self):
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
