# SPDX-License-Identifier: Apache-2.0
"""Networks of builds on a host: given, kept for the next one, taken back."""

from cellsched.db.cell import instances
from cellsched import exception
from cellsched import objects
from tests.unit.compute import agents
from tests.unit.db import samples


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

    def test_server_has_networks_on_its_host(self):
        self.build()

        self.assertNetworks('host1')

    def test_row_says_so_before_they_are_given(self):
        seen = []
        allocate = self.network.allocate_for_instance

        def look(*arguments):
            seen.append(self.row.network_allocated)
            allocate(*arguments)

        self.network.allocate_for_instance = look
        self.build()

        self.assertEqual([True], seen)

    def test_wishes_of_the_user_come_along(self):
        self.agent.build_and_run_instance(
            agents.USER, self.instance, objects.RequestSpec(
                requested_networks=['one']),
            {'retry': {'num_attempts': 1, 'hosts': []}}, 'node1', {}, [])

        [record] = self.network.records
        self.assertEqual(['one'], record['requested_networks'])

    def test_they_are_there_before_the_server_is(self):
        self.driver.when_up = lambda: self.assertNetworks('host1')

        self.build()

        self.assertState('active', None, 'host1')

    def test_next_host_sets_up_what_was_kept(self):
        self.driver.error = self.broke()
        self.build()
        self.assertNetworks()
        self.handed_on()

        self.build(tried=2, by=self.make_agent('host2', self.make_driver()))

        self.assertState('active', None, 'host2')
        self.assertNetworks('host2')
        self.assertEqual([('allocate', 'host1'), ('cleanup', 'host1'),
                          ('setup', 'host2')], self.calls())

    def test_driver_that_says_so_has_them_given_anew(self):
        self.deallocate_on_reschedule()
        self.driver.error = self.broke()
        self.build()
        self.assertNoNetworks()
        self.handed_on()

        self.build(tried=2, by=self.make_agent('host2', self.make_driver()))

        self.assertNetworks('host2')
        self.assertEqual([('allocate', 'host1'), ('deallocate', None),
                          ('allocate', 'host2')], self.calls())

    def test_host_gives_up_its_networks_before_the_build_may_go_on(self):
        for anew, method in ((False, 'cleanup_instance_network_on_host'),
                             (True, 'deallocate_for_instance')):
            self.conf.set_override(
                'deallocate_networks_on_reschedule', anew, 'fake_virt')
            with self.cell.writer() as connection:
                samples.put(connection, self.uuid, {
                    'host': None, 'task_state': 'scheduling'})
            self.driver.error = self.broke()
            seen = []
            setattr(self.network, method,
                    lambda *arguments: seen.append(self.row.host))

            self.build()

            self.assertEqual(['host1'], seen)

    def test_next_host_gives_networks_that_the_last_one_had_not_yet(self):
        # It died after it had said so.
        with self.cell.writer() as connection:
            samples.put(connection, self.uuid, {
                'network_allocated': True, 'build_attempts': 2})

        self.build(tried=2)

        self.assertNetworks('host1')

    def test_networks_that_fail_have_the_build_go_on_elsewhere(self):
        self.network.fail('allocate', 1)

        self.build()

        [sent] = self.conductor.sent
        self.assertIn('was told to fail', sent.arguments[
            'filter_properties']['retry']['exc_reason'])
        self.assertEqual(1, self.outcomes.failed_in_a_row('node1'))
        self.assertEqual([], self.driver.spawned)
        self.assertState('building', None, None)
        self.handed_on()
        self.build(tried=2, by=self.make_agent('host2'))
        self.assertNetworks('host2')

    def test_networks_that_cannot_be_set_up_go_on_elsewhere_too(self):
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

    def test_plugin_that_breaks_ends_the_build_in_error(self):
        def broken(*arguments):
            raise KeyError('secret')

        self.network.allocate_for_instance = broken

        self.build()

        self.assertState('error', None, None)
        self.assertNotIn('secret', self.fault)
        self.assertFalse(self.holds)

    def test_host_that_cannot_clean_up_hands_the_build_on_all_the_same(self):
        self.driver.error = self.broke()
        self.network.fail('cleanup', 1)

        self.build()

        self.assertState('building', None, None)
        self.assertEqual(1, len(self.conductor.sent))
        self.assertIn('Could not clean up networks', self.logs.output)

    def test_networks_that_must_go_and_do_not_go_on_the_next_host(self):
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

    def test_server_in_error_has_none(self):
        self.driver.error = exception.BuildAborted(uuid='x', reason='y')

        self.build()

        self.assertState('error', None, None)
        self.assertNoNetworks()

    def test_row_of_a_server_in_error_says_what_could_not_be_taken_back(self):
        self.driver.error = exception.BuildAborted(uuid='x', reason='y')
        self.network.fail('deallocate', 1)

        self.build()

        self.assertState('error', None, None)
        self.assertFalse(self.holds)
        self.assertNetworks('host1')

    def test_row_of_a_deleted_server_says_what_could_not_be_taken_back(self):
        self.build()
        self.delete()
        self.network.fail('deallocate', 1)

        self.terminate()

        self.assertNotEqual(0, self.row.deleted)
        self.assertFalse(self.holds)
        self.assertNetworks('host1')

    def end_elsewhere(self, end):
        """Build, while somebody thinks that this host is dead."""
        def end_it():
            with self.cell.writer() as connection:
                end(connection)

        self.driver.when_up = end_it
        self.build()
        self.assertEqual([], self.driver.list_instances())

    def test_build_that_was_ended_meanwhile_leaves_no_networks(self):
        self.end_elsewhere(lambda connection: instances.fail(
            connection, self.uuid, self.broke(), 'x', self.clock.now()))

        self.assertNoNetworks()

    def test_build_that_was_deleted_meanwhile_leaves_no_networks(self):
        self.end_elsewhere(lambda connection: instances.delete(
            connection, self.uuid, self.clock.now()))

        self.assertNoNetworks()

    def test_build_that_moved_on_meanwhile_keeps_them_elsewhere(self):
        self.end_elsewhere(lambda connection: samples.put(
            connection, self.uuid, {'host': 'host2'}))

        self.assertNetworks()
