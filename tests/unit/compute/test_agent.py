# SPDX-License-Identifier: Apache-2.0
"""What a compute agent does with servers, in every order of things."""

from concurrent import futures
import threading

from oslo_config import cfg
import oslo_messaging
import sqlalchemy as sa

from cellsched.claims import base as claims_base
from cellsched.claims import memory
from cellsched.compute import agent
from cellsched import context
from cellsched.db.cell import instance_faults
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched import exception
from cellsched import objects
from cellsched.testing import clients
from cellsched.testing import clock
from cellsched.testing import databases
from cellsched.virt import fake
from tests.unit import base
from tests.unit.db import samples

USER = context.RequestContext(user_id='user', project_id='project')

DEADLINE_S = 30


class Driver(fake.FakeDriver):
    """Says when a build has come to it; ``error`` is what builds end in."""

    error = None

    def __init__(self, conf, clock):
        super().__init__(conf, clock)
        self.spawned = []
        self.reached = threading.Event()

    def spawn(self, instance, node):
        self.spawned.append((instance.uuid, node))
        self.reached.set()
        super().spawn(instance, node)
        if self.error is not None:
            self.destroy(instance)
            raise self.error


class AgentTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cell = self.useFixture(databases.CellDatabase()).database
        self.clock = clock.FakeClock()
        self.claims = memory.MemoryClaims()
        self.provider = samples.uuids(1)[0]
        self.claims.set_inventory(
            self.provider, {'VCPU': claims_base.Inventory(8)})
        self.conductor = clients.Conductor()
        self.driver = self.make_driver()
        self.agent = self.make_agent('host1')
        [self.uuid] = samples.uuids(1)
        self.instance = samples.instance(self.uuid, build_attempts=1)
        with self.cell.writer() as connection:
            instances.create(connection, [self.instance], self.clock.now())
        self.claims.claim([claims_base.Claim(
            self.uuid, self.provider, {'VCPU': 1})])

    def make_driver(self):
        conf = cfg.ConfigOpts()
        conf.register_opts(fake.FakeDriver.opts(), group='fake_virt')
        conf([], default_config_files=[], default_config_dirs=[])
        return Driver(conf, self.clock)

    def make_agent(self, host, driver=None):
        return agent.Agent(host, self.cell, self.claims,
                           driver or self.driver, self.conductor, self.clock)

    def build(self, tried=1, hosts=(), by=None, retry=True):
        properties = {'limits': {}}
        if retry:
            properties['retry'] = {
                'num_attempts': tried, 'hosts': [['host1', 'node1']]}
        (by or self.agent).build_and_run_instance(
            USER, instance=self.instance, request_spec=None,
            filter_properties=properties, node='node1', limits={},
            host_list=[objects.Selection(
                service_host=host, nodename=host) for host in hosts])

    def terminate(self):
        self.agent.terminate_instance(USER, instance=self.instance)

    def delete(self):
        """Delete the server as the API does; return who is to be told."""
        with self.cell.writer() as connection:
            if instances.delete(
                    connection, self.uuid, self.clock.now(), host=None):
                self.claims.release([self.uuid])
                return None
            instances.update(connection, self.uuid,
                             {'task_state': 'deleting'}, self.clock.now())
            return instances.get(connection, self.uuid).host

    @property
    def row(self):
        with self.cell.reader() as connection:
            return connection.execute(
                sa.select(models.instances)
                .where(models.instances.c.uuid == self.uuid)).one()

    @property
    def fault(self):
        with self.cell.reader() as connection:
            return instance_faults.latest(
                connection, [self.uuid]).get(self.uuid)

    @property
    def holds(self):
        return bool(self.claims.held([self.uuid]))

    def assertState(self, *expected):
        row = self.row
        self.assertEqual(expected, (row.vm_state, row.task_state, row.host))

    def assertGone(self):
        self.assertEqual(('deleted', None), (
            self.row.vm_state, self.row.task_state))
        self.assertNotEqual(0, self.row.deleted)
        self.assertFalse(self.holds)
        self.assertEqual([], self.driver.list_instances())


class TestBuild(AgentTestCase):

    def test_server_becomes_active_here(self):
        self.build()

        self.assertState('active', None, 'host1')
        row = self.row
        self.assertEqual(
            ('node1', agent.RUNNING, self.clock.now()),
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
                self.assertTrue(self.driver.reached.wait(DEADLINE_S))
            finally:
                go_on.set()
            for build in builds:
                build.result(DEADLINE_S)

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


class TestDeletion(AgentTestCase):

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
                self.assertTrue(self.driver.reached.wait(DEADLINE_S))
                self.assertEqual('host1', self.delete())
                deletion = threads.submit(self.terminate)
                spawning()
            finally:
                go_on.set()
            build.result(DEADLINE_S)
            deletion.result(DEADLINE_S)

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
        self.driver.spawn = lambda *args: self.delete()

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


class TestFailure(AgentTestCase):

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
            instances.update(
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
        self.assertIn('RuntimeError', self.fault)
        self.assertNotIn('secret', self.fault)
        self.assertNotIn('host1', self.fault)
        self.assertFalse(self.holds)
        self.assertIn('/secret/path', self.logs.output)

    def test_build_that_no_conductor_can_be_told_of_ends_in_error(self):
        self.fail(exception.BuildFailed(uuid=self.uuid, reason='it broke'))
        self.conductor.failure = oslo_messaging.MessageDeliveryFailure('x')

        self.build()

        self.assertState('error', None, None)
        self.assertIn('it broke', self.fault)

    def test_conductor_that_was_told_all_the_same_keeps_the_build(self):
        self.fail(exception.BuildFailed(uuid=self.uuid, reason='it broke'))

        def told(*args):
            with self.cell.writer() as connection:
                instances.update(
                    connection, self.uuid,
                    {'build_attempts': 2, 'task_state': 'scheduling'},
                    self.clock.now())
            raise oslo_messaging.MessagingTimeout()

        self.conductor.build_instances = told
        self.build()

        self.assertState('building', 'scheduling', None)
