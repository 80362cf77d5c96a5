# SPDX-License-Identifier: Apache-2.0
"""A machine that only has the name of another one gets nothing of it."""

import futurist

from cellsched.cells import maintenance
from cellsched.conductor import recovery
from cellsched.db.api import host_mappings
from cellsched.db.cell import services
from cellsched import exception
from cellsched import objects
from cellsched.rpc import client
from cellsched.rpc import compute
from cellsched.rpc import conductor as conductor_rpc
from cellsched.standalone import deployment
from cellsched.virt import fake
from tests.functional import base
from tests.functional import test_recovery
from tests.regressions import machines


class TestWaitingBuild(machines.TestCase):
    """A build is cast to a host before the host gets another name."""

    def setUp(self):
        super().setUp()
        self.begin({'cell1': ['a1']}, conductor={'cast_timeout': 600})
        [self.provider] = self.provider_of('a1')
        # A conductor claims for the server, and dies before it casts.
        [self.uuid] = self.unheard().servers.create(
            base.USER, 'server', 'small')
        self.assertRaises(
            test_recovery.Death, self.task(test_recovery.dying_after(
                len(test_recovery.STEPS))).run, base.USER, [self.uuid])
        self.restart(self.stop_agent('a1'), 'cell1', 'a1', 'renamed')
        self.world.api.parts.discovery.discover()
        self.world.api.services.set(
            base.ADMIN, 'renamed', machines.COMPUTE, forced_down=False)

    def test_machine_with_a_reused_name_does_not_build(self):
        conf = self.conf_of('cell1', 'a1', state_path=self.other_directory())
        other = fake.FakeDriver(conf, base.CLOCK)
        self.start_agent(other, conf)
        self.assertNotEqual([self.provider], self.provider_of('a1'))

        # The message that waited under the name.
        transports = self.world.api.parts.transports
        client.Client(
            transports.get(self.cells()['cell1'].transport_url),
            compute.TOPIC, compute.VERSION,
        ).call(base.USER, 'build_and_run_instance', None, 'a1',
               instance=objects.Instance(uuid=self.uuid), request_spec=None,
               filter_properties={'retry': {
                   'num_attempts': 1, 'hosts': [['a1', 'a1']]}},
               node='a1', limits={}, host_list=[], node_uuid=self.provider)

        self.assertEqual([], other.list_instances())
        self.assertIsNone(self.row(self.uuid).host)
        self.assertEqual([self.provider], [
            claim.provider for claim in self.held(self.uuid)])

        self.assertBuiltUnderTheNewName()

    def test_conductor_casts_again_to_the_new_name(self):
        self.assertBuiltUnderTheNewName()

    def assertBuiltUnderTheNewName(self):
        parts = self.world.api.parts
        recovery.StalledBuilds(
            parts.database, parts.cells, parts.gatherer, parts.targets,
            parts.compute, conductor_rpc.ConductorAPIs(),
            recovery.RetryPolicy(0.0, 4, 60), futurist.SynchronousExecutor(),
        ).run()

        [found] = self.settled([self.uuid])
        self.assertEqual(('ACTIVE', 'renamed'), (found.status, found.host))
        self.assertEqual([self.provider], [
            claim.provider for claim in self.held(self.uuid)])
        self.assertClaimsMatch()


class TestReusedName(machines.TestCase):

    def setUp(self):
        super().setUp()
        self.deploy({
            'cell1': [deployment.DeployedHost('a1', availability_zone='az1'),
                      'a2'],
            'cell2': ['b1']}, DEFAULT={'report_interval': 1})
        self.built(availability_zone='nova')  # a1 is mapped by then

    def zone(self):
        return list(self.world.api.aggregates.get(
            base.ADMIN, 'zone:az1').hosts)

    def delete_service(self, host):
        [service] = self.world.api.services.list(
            base.ADMIN, host=host).services
        self.world.api.services.delete(base.ADMIN, service.uuid)

    def another(self, host='a1'):
        """Return the driver and the state directory of a new machine."""
        conf = self.conf_of('cell1', host)
        driver = fake.FakeDriver(conf, base.CLOCK)
        return driver, self.other_directory()

    def test_host_is_in_no_aggregate_after_its_service_is_deleted(self):
        self.assertEqual(['a1'], self.zone())
        [provider] = self.provider_of('a1')
        driver = self.stop_agent('a1')

        self.delete_service('a1')

        self.assertEqual([], self.zone())

        # The same machine is the same node, in no zone.
        self.restart(driver, 'cell1', 'a1')
        self.assertEqual([provider], self.provider_of('a1'))
        self.assertEqual([], self.zone())

    def test_unmapped_host_is_removed_from_its_aggregates(self):
        self.stop_agent('a1')
        parts = self.world.api.parts

        maintenance.CellMaintenance(
            parts.database, parts.cells, parts.targets, parts.clock,
        ).delete_host(self.cells()['cell1'].uuid, 'a1')

        self.assertEqual([], self.zone())

    def test_other_machine_does_not_start_under_the_name(self):
        [provider] = self.provider_of('a1')
        self.stop_agent('a1')
        driver, state = self.another()

        error = self.assertRaises(
            exception.HostIdentityConflict, self.restart, driver, 'cell1',
            'a1', state_path=state)
        self.assertIn(provider, str(error))

        self.delete_service('a1')
        self.restart(driver, 'cell1', 'a1', state_path=state)

        [new] = self.provider_of('a1')
        self.assertNotEqual(provider, new)
        self.assertEqual([], self.zone())

    def test_copy_of_a_state_file_is_refused(self):
        driver, _ = self.another()

        error = self.assertRaises(
            exception.HostIdentityConflict, self.restart, driver, 'cell1',
            'a1', 'copy')

        self.assertIn('host a1 has the same uuid', str(error))
        self.assertEqual([], self.provider_of('copy'))

    def test_name_in_other_capitals_is_another_host(self):
        machine = self.stop_agent('a1')
        driver, state = self.another()

        self.restart(driver, 'cell1', 'a1', 'A1', state_path=state)

        self.assertEqual(1, len(self.provider_of('A1')))
        self.assertNotEqual(self.provider_of('a1'), self.provider_of('A1'))
        self.assertEqual(['a1'], self.zone())
        self.restart(machine, 'cell1', 'a1')
        self.world.api.parts.discovery.discover()
        with self.world.api.parts.database.reader() as connection:
            self.assertEqual({'a1', 'A1'}, set(host_mappings.get_many(
                connection, ['a1', 'A1'])))


class TestDuplicateNameInTwoCells(machines.TestCase):

    def setUp(self):
        super().setUp()
        self.begin({'cell1': ['a1'], 'cell2': ['b1']})
        self.world.api.parts.discovery.discover()
        self.world.api.aggregates.create(base.ADMIN, 'east', {})
        self.world.api.aggregates.add_hosts(base.ADMIN, 'east', ['a1'])
        self.first = self.world.agents['a1']
        conf = self.conf_of(
            'cell2', 'b1', host='a1', state_path=self.other_directory())
        self.second = self.start_agent(
            fake.FakeDriver(conf, base.CLOCK), conf)
        self.assertRaises(exception.HostMappingExists,
                          self.world.api.parts.discovery.discover)

    def services(self):
        return {each.cell: each.uuid for each in self.world.api.services.list(
            base.ADMIN, host='a1').services}

    def end(self, agent):
        agent.stop()
        with agent.parts.cell_database.writer() as connection:
            services.set_forced_down(
                connection, 'a1', True, agent.parts.clock.now())

    def test_service_is_deleted_in_its_own_cell(self):
        before = self.services()
        for agent in self.first, self.second:
            self.end(agent)

        self.world.api.services.delete(base.ADMIN, before['cell2'])

        self.assertEqual({'cell1': before['cell1']}, self.services())
        self.assertEqual(['a1'], self.world.api.aggregates.get(
            base.ADMIN, 'east').hosts)
        self.assertEqual(1, len(self.provider_of('a1')))
        self.assertEqual([], self.provider_of('a1', 'cell2'))

    def test_service_of_an_unmapped_host_is_deleted(self):
        self.end(self.first)
        parts = self.world.api.parts
        maintenance.CellMaintenance(
            parts.database, parts.cells, parts.targets, parts.clock,
        ).delete_host(self.cells()['cell1'].uuid, 'a1')

        self.world.api.services.delete(
            base.ADMIN, self.services()['cell1'])

        self.assertEqual(['cell2'], [*self.services()])
