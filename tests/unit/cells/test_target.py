# SPDX-License-Identifier: Apache-2.0
"""Aiming a context at a cell."""

from oslo_config import cfg

from cellsched.cells import target
from cellsched.db import session
from cellsched import exception
from cellsched.rpc import transport
from tests.unit.cells import base
from tests.unit.db import samples

SECRET = 's3cr3t'


class TestTargets(base.TestCase):

    def test_aimed_context_has_the_ways_into_the_cell(self):
        cell = self.add_cell('east')

        aimed = self.targets.aim(self.context, cell)

        self.assertEqual((cell.uuid, cell.identity),
                         (aimed.cell.uuid, aimed.cell.name))
        self.assertEqual([], self.read(
            aimed.cell.database, samples.listed))
        self.assertIs(self.transports.get(cell.transport_url),
                      aimed.cell.transport)

    def test_context_is_a_new_one_of_the_same_request(self):
        cell = self.add_cell('east')

        aimed = self.targets.aim(self.context, cell)

        self.assertIsNone(self.context.cell)
        self.assertEqual(self.context.to_dict(), aimed.to_dict())

    def test_aimed_context_can_be_aimed_elsewhere(self):
        east, west = self.add_cell('east'), self.add_cell('west')
        aimed = self.targets.aim(self.context, east)

        other = self.targets.aim(aimed, west)

        self.assertEqual(east.uuid, aimed.cell.uuid)
        self.assertEqual(west.uuid, other.cell.uuid)
        self.assertIsNot(aimed.cell.database, other.cell.database)

    def test_ways_are_opened_once(self):
        cell = self.add_cell('east')

        one, other = (self.targets.aim(self.context, cell).cell
                      for _ in range(2))

        self.assertIs(one.database, other.database)
        self.assertIs(one.transport, other.transport)
        self.assertIs(one.database, self.targets.database(cell))

    def test_cell0_has_no_transport(self):
        for url in 'none:///', 'NONE:':
            aimed = self.targets.aim(
                self.context, self.add_cell('cell0', transport_url=url))

            self.assertIsNone(aimed.cell.transport)
            self.assertIsNotNone(aimed.cell.database)

    def test_cell_without_a_transport_does_not_get_another_ones(self):
        cell = self.add_cell('east', transport_url='')

        error = self.assertRaises(
            exception.ConfigurationInvalid, self.targets.aim, self.context,
            cell)

        self.assertIn(cell.identity, str(error))

    def test_urls_that_cannot_be_opened_are_errors_without_passwords(self):
        for field, url in (
                ('transport_url', f'nothing://u:{SECRET}@h/'),
                ('transport_url', f'rabbit://u:{SECRET}@h:port/'),
                ('database_connection', f'nothing://u:{SECRET}@h/'),
                ('database_connection', f'mysql+pymysql://u:a@{SECRET}@h/'),
                ('database_connection', SECRET)):
            cell = samples.cell('east', **{field: url})

            error = self.assertRaises(
                exception.ConfigurationInvalid, self.targets.aim,
                self.context, cell)

            self.assertNotIn(SECRET, str(error))

    def test_templates_are_filled_in_from_the_configuration(self):
        own = self.add_cell('own')
        cell = self.add_cell(
            'east', transport_url='local://{hostname}/east',
            database_connection='sqlite:///{path}')
        conf = cfg.ConfigOpts()
        transports = transport.Transports(conf)
        self.addCleanup(transports.close)
        conf([], default_config_files=[], default_config_dirs=[])
        conf.set_override('transport_url', f'local://{self.world}/')
        databases = session.Databases(self.clock)
        self.addCleanup(databases.close)
        targets = target.Targets(databases, transports, {}, (
            own.database_connection))

        aimed = targets.aim(self.context, cell).cell

        self.assertEqual(own.database_connection, aimed.database.url)
        self.assertIs(transports.get(f'local://{self.world}/east'),
                      aimed.transport)

    def test_template_without_a_configured_url_is_an_error_that_says_so(self):
        cell = self.add_cell('east', database_connection='sqlite:///{path}')

        error = self.assertRaises(exception.ConfigurationInvalid,
                                  self.targets.aim, self.context, cell)

        self.assertIn('[database] connection', str(error))
