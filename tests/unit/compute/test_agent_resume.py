# SPDX-License-Identifier: Apache-2.0
"""An agent that was killed takes up what it left lying."""

from concurrent import futures

from oslo_serialization import jsonutils

from cellsched.claims import base as claims_base
from cellsched.db.cell import build_casts
from cellsched.db.cell import instances
from cellsched import exception
from cellsched import objects
from tests.unit.compute import agents
from tests.unit.db import samples


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

    def test_build_that_was_begun_goes_on(self):
        self.check_killed_at('Begin')
        [record] = self.network.records
        self.assertEqual(['one'], record['requested_networks'])

    def test_build_with_networks_goes_on(self):
        self.check_killed_at('GiveNetworks')

    def test_server_that_runs_already_is_finished(self):
        self.check_killed_at('Spawn')

    def test_server_that_runs_keeps_networks_that_are_of_this_host(self):
        self.conf.set_override(
            'deallocate_networks_on_reschedule', True, 'fake_virt')

        self.check_killed_at('Spawn')

    def test_server_that_is_finished_is_left_alone(self):
        self.check_killed_at('Finish')
        self.assertEqual(1, len(self.driver.spawned))

    def test_message_that_comes_again_meanwhile_builds_nothing_twice(self):
        after = self.kill_at('Begin')
        self.build(by=after)
        self.assertEqual([], self.driver.spawned)

        after.resume()

        self.assertActiveOnce()
        self.assertEqual(1, len(self.driver.spawned))

    def test_build_that_fails_the_second_time_is_handed_on(self):
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

    def test_build_whose_message_is_lost_ends_in_error(self):
        after = self.kill_at('Spawn')
        self.forget_message()

        after.resume()

        self.assertState('error', None, None)
        self.assertIn('interrupted', self.fault)
        self.assertEqual([], self.driver.list_instances())
        self.assertFalse(self.holds)
        self.assertNoNetworks()

    def test_message_for_another_host_does_not_count(self):
        after = self.kill_at('Begin')
        self.forget_message()
        with self.cell.writer() as connection:
            build_casts.create(connection, [self.cast(host='host2')])

        after.resume()

        self.assertState('error', None, None)

    def test_build_whose_claim_was_given_back_is_not_built_here(self):
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

    def test_build_whose_claim_is_of_another_host_is_not_built_here(self):
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

    def test_build_that_was_cut_off_from_its_database_goes_on_soon(self):
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

    def test_nothing_is_looked_for_where_nothing_was_cut_off(self):
        agent = self.kill_at('Begin')

        agent.resume_soon()

        self.assertState('building', 'spawning', 'host1')

    def test_build_that_was_handed_on_is_left_to_the_conductors(self):
        self.driver.error = exception.BuildFailed(uuid='x', reason='broke')
        after = self.kill_at('HandOn')
        self.driver.error = None

        after.resume()

        self.assertState('building', None, None)
        self.assertEqual([], self.conductor.sent)

    def test_build_that_is_going_on_is_left_alone(self):
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

    def test_builds_of_other_hosts_are_left_alone(self):
        after = self.kill_at('Begin')
        with self.cell.writer() as connection:
            samples.put(connection, self.uuid, {'host': 'host2'})

        after.resume()

        self.assertState('building', 'spawning', 'host2')
        self.assertEqual([], self.driver.spawned)

    def test_what_changed_since_it_was_looked_for_is_left_alone(self):
        for values in ({'host': 'host2'}, {'task_state': 'deleting'},
                       {'vm_state': 'active', 'task_state': None}):
            self.driver.spawned.clear()
            with self.cell.writer() as connection:
                samples.put(connection, self.uuid, {
                    'vm_state': 'building', 'task_state': 'scheduling',
                    'host': None})
            after = self.kill_at('Begin')

            def change(values=values):
                # The agent asks its driver last.
                with self.cell.writer() as connection:
                    samples.put(connection, self.uuid, values)
                return []

            self.driver.list_instances = change
            after.resume()

            self.assertEqual([], self.driver.spawned)
            self.assertTrue(self.holds)

    def test_deletion_that_changed_since_is_left_alone(self):
        self.build()
        self.delete()

        def change():
            with self.cell.writer() as connection:
                samples.put(connection, self.uuid, {'host': 'host2'})
            return []

        self.driver.list_instances = change
        self.agent.resume()

        self.assertState('active', 'deleting', 'host2')
        self.assertTrue(self.holds)

    def test_one_that_cannot_be_taken_up_holds_no_other_up(self):
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
        self.assertIn(f'Could not resume instance {broken.uuid}',
                      self.logs.output)

    def test_deletion_is_done(self):
        self.build()
        self.delete()

        self.make_agent('host1').resume()

        self.assertGone()

    def test_deletion_that_was_stopped_is_done(self):
        self.build()
        self.delete()

        self.kill_at('Destroy', self.terminate).resume()

        self.assertGone()

    def test_deletion_that_was_stopped_late_leaves_nothing(self):
        self.build()
        self.delete()

        self.kill_at('Terminate', self.terminate).resume()

        self.assertGone()


class TestStrays(agents.AgentTestCase):

    def left_with(self, **values):
        """Let the driver have the server, and the row say otherwise."""
        self.driver.spawn(self.instance, 'node1')
        self.network.allocate_for_instance(
            agents.USER, self.instance, None, 'host1')
        with self.cell.writer() as connection:
            samples.put(connection, self.uuid, {
                'network_allocated': True, 'task_state': None, **values})

    def test_deleted_server_is_removed(self):
        self.left_with(vm_state='deleted', deleted=1, host='host1')

        self.agent.resume()

        self.assertEqual([], self.driver.list_instances())
        self.assertNoNetworks()

    def test_server_of_another_host_is_removed_and_keeps_its_networks(self):
        self.left_with(vm_state='active', host='host2')

        self.agent.resume()

        self.assertEqual([], self.driver.list_instances())
        self.assertNetworks()

    def test_server_that_is_built_on_no_host_is_removed(self):
        for task_state in None, 'scheduling':
            self.left_with(vm_state='building', task_state=task_state)

            self.agent.resume()

            self.assertEqual([], self.driver.list_instances())

    def test_what_belongs_here_stays(self):
        for values in ({'vm_state': 'active'}, {'vm_state': 'error'},
                       {'vm_state': 'active', 'task_state': 'rebuilding'}):
            self.left_with(host='host1', **values)

            self.agent.resume()

            self.assertEqual([self.uuid], self.driver.list_instances())
            self.assertNetworks('host1')

    def test_what_is_being_moved_stays(self):
        for task_state in 'resize_migrating', 'rebuild_spawning':
            self.left_with(vm_state='active', task_state=task_state,
                           host='host2')

            self.agent.resume()

            self.assertEqual([self.uuid], self.driver.list_instances())

    def test_server_in_error_that_is_on_no_host_stays(self):
        self.left_with(vm_state='error', host=None)

        self.agent.resume()

        self.assertEqual([self.uuid], self.driver.list_instances())

    def test_server_that_the_cell_does_not_know_stays(self):
        foreign = objects.Instance(uuid=samples.uuids(1)[0])
        self.driver.spawn(foreign, 'node1')

        self.agent.resume()

        self.assertEqual([foreign.uuid], self.driver.list_instances())
