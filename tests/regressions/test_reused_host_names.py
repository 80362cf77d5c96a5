# SPDX-License-Identifier: Apache-2.0
"""A machine that only has the name of another one gets nothing of it."""

from cellsched.cells import maintenance
from cellsched.db.api import host_mappings
from cellsched import exception
from cellsched.standalone import deployment
from cellsched.virt import fake
from tests.functional import base
from tests.regressions import machines


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
        return driver, self.elsewhere()

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

    def test_host_is_in_no_aggregate_after_it_is_unmapped(self):
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
        self.built()
        with self.world.api.parts.database.reader() as connection:
            self.assertEqual({'a1', 'A1'}, set(host_mappings.get_many(
                connection, ['a1', 'A1'])))
