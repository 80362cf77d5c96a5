# SPDX-License-Identifier: Apache-2.0
"""Aiming a context at a cell."""

import hypothesis
from hypothesis import strategies as st
from oslo_config import cfg

from cellsched.cells import target
from cellsched.db import session
from cellsched import exception
from cellsched.rpc import transport
from tests.unit.base import TestCase
from tests.unit.cells import base
from tests.unit.db import samples


SECRET = 's3cr3t'


class TestTargets(base.TestCase):

    def test_aimed_context_has_the_ways_into_the_cell(self):
        cell = self.add_cell('east')

        cell_context = self.targets.target_cell(self.context, cell)

        self.assertEqual((cell.uuid, cell.identity),
                         (cell_context.cell.uuid, cell_context.cell.name))
        self.assertEqual([], self.read(
            cell_context.cell.database, samples.listed))
        self.assertIs(self.transports.get(cell.transport_url),
                      cell_context.cell.transport)

    def test_aimed_context_is_a_copy_of_the_request(self):
        cell = self.add_cell('east')

        cell_context = self.targets.target_cell(self.context, cell)

        self.assertIsNone(self.context.cell)
        self.assertEqual(self.context.to_dict(), cell_context.to_dict())

    def test_aimed_context_can_be_aimed_elsewhere(self):
        east, west = self.add_cell('east'), self.add_cell('west')
        cell_context = self.targets.target_cell(self.context, east)

        other = self.targets.target_cell(cell_context, west)

        self.assertEqual(east.uuid, cell_context.cell.uuid)
        self.assertEqual(west.uuid, other.cell.uuid)
        self.assertIsNot(cell_context.cell.database, other.cell.database)

    def test_ways_are_opened_once(self):
        cell = self.add_cell('east')

        one, other = (self.targets.target_cell(self.context, cell).cell
                      for _ in range(2))

        self.assertIs(one.database, other.database)
        self.assertIs(one.transport, other.transport)
        self.assertIs(one.database, self.targets.database(cell))

    def test_cell0_has_no_transport(self):
        for url in 'none:///', 'NONE:':
            cell_context = self.targets.target_cell(
                self.context, self.add_cell('cell0', transport_url=url))

            self.assertIsNone(cell_context.cell.transport)
            self.assertIsNotNone(cell_context.cell.database)

    def test_cell_without_a_transport_is_an_error(self):
        cell = self.add_cell('east', transport_url='')

        error = self.assertRaises(
            exception.ConfigurationInvalid, self.targets.target_cell,
            self.context,
            cell)

        self.assertIn(cell.identity, str(error))

    def test_invalid_urls_are_errors_without_passwords(self):
        for field, url in (
                ('transport_url', f'nothing://u:{SECRET}@h/'),
                ('transport_url', f'rabbit://u:{SECRET}@h:port/'),
                ('database_connection', f'nothing://u:{SECRET}@h/'),
                ('database_connection', f'mysql+pymysql://u:a@{SECRET}@h/'),
                ('database_connection', SECRET)):
            cell = samples.cell('east', **{field: url})

            error = self.assertRaises(
                exception.ConfigurationInvalid, self.targets.target_cell,
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

        cell_context = targets.target_cell(self.context, cell).cell

        self.assertEqual(own.database_connection, cell_context.database.url)
        self.assertIs(transports.get(f'local://{self.world}/east'),
                      cell_context.transport)

    def test_template_without_a_configured_url_is_an_error(self):
        cell = self.add_cell('east', database_connection='sqlite:///{path}')

        error = self.assertRaises(exception.ConfigurationInvalid,
                                  self.targets.target_cell, self.context, cell)

        self.assertIn('[database] connection', str(error))


OWN = 'rabbit://me:s%7Bcr@h1:5672,you:other@[::1]:5673/vhost?ssl=1#end'

_TEXT = st.text('abc%{}:@/?#', max_size=12)


class TestFill(TestCase):

    def fill(self, url, own=OWN):
        return target.fill(url, lambda: own, '[DEFAULT] transport_url')

    def test_fields_are_parts_of_the_own_url(self):
        for field, expected in (
                ('scheme', 'rabbit'), ('username', 'me'),
                ('password', 's%7Bcr'), ('hostname', 'h1'), ('port', '5672'),
                ('path', 'vhost'), ('query', 'ssl=1'), ('fragment', 'end'),
                ('username1', 'me'), ('username2', 'you'),
                ('password2', 'other'), ('hostname2', '[::1]'),
                ('port2', '5673')):
            self.assertEqual(f'x{expected}y', self.fill(f'x{{{field}}}y'))

    def test_template_replaces_parts_of_the_own_url(self):
        self.assertEqual(
            'rabbit://me:s%7Bcr@h1:5672/cell1?ssl=1', self.fill(
                '{scheme}://{username}:{password}@{hostname}:{port}/cell1'
                '?{query}'))

    def test_path_of_an_absolute_file_stays_absolute(self):
        self.assertEqual('sqlite:////srv/main.sqlite', self.fill(
            'sqlite:///{path}', 'sqlite:////srv/main.sqlite'))

    def test_missing_part_of_the_own_url_is_an_error(self):
        for field in ('username', 'password', 'hostname', 'port',
                      'hostname2'):
            error = self.assertRaises(
                exception.ConfigurationInvalid, self.fill,
                f'rabbit://{{{field}}}/', 'sqlite:///file')

            self.assertIn('[DEFAULT] transport_url: the URL has no '
                          f'{field}, which', str(error))

    def test_missing_query_of_the_own_url_is_empty(self):
        self.assertEqual('x//h/?', self.fill('x//h/?{query}', 'rabbit://h'))

    @hypothesis.given(_TEXT)
    def test_url_without_fields_is_unchanged(self, text):
        self.assertEqual(text, target.fill(
            text, lambda: self.fail('asked'), 'option'))


class TestCheck(TestCase):

    def test_only_fields_are_accepted_in_braces(self):
        for good in ('rabbit://u:p@h/v', 'rabbit://u:%7B@h/v',
                     '{scheme}://{username2}:{password2}@{hostname2}/x'):
            target.check(good, 'transport_url')
        for bad in ('{}', '{user}', '{username0}', 'a{', 'a}', '{{path}}'):
            self.assertRaises(exception.InvalidField, target.check,
                              f'rabbit://{bad}', 'transport_url')
