# SPDX-License-Identifier: Apache-2.0

import sqlalchemy as sa

from cellsched.db.api import models
from cellsched import objects
from tests.unit.cli import test_server


class TestCell(test_server.ServerTestCase):

    def setUp(self):
        super().setUp()
        # A scheduler does so too, some time.
        self.cloud.api.parts.discovery.discover()
        [made] = self.create('web', '--flavor', 'small', '--wait').data
        self.addCleanup(self.server, 'delete', made['ID'], '--wait')

    def cell(self, *argv):
        return self.shell('cell', *argv)

    def update(self, **values):
        table = models.cell_mappings
        with self.cloud.api.parts.database.writer() as connection:
            before = connection.execute(sa.select(
                table.c.database_connection, table.c.disabled)
                .where(table.c.name == 'cell1')).one()._asdict()
            connection.execute(sa.update(table).where(
                table.c.name == 'cell1').values(values))
        return before

    def test_cells_are_listed_with_their_counts(self):
        cell0, cell1 = self.cell('list', '-f', 'json').data

        self.assertEqual(
            ('cell0', objects.CELL0_UUID, 'enabled', 'up', 0, 0, 0),
            tuple(cell0.values()))
        self.assertEqual(
            ('cell1', 'enabled', 'up', 2, 2, 1), tuple(
                cell1[name] for name in ('Name', 'Status', 'State', 'Hosts',
                                         'Hosts Up', 'Servers')))

    def test_cell_is_shown_by_name_or_uuid(self):
        shown = self.cell('show', 'cell1', '-f', 'json').data

        self.assertEqual(
            shown, self.cell('show', shown['uuid'], '-f', 'json').data)
        self.assertEqual(('up', '', 2), (
            shown['state'], shown['reason'], shown['hosts']))
        self.assertIn('sqlite:///', shown['database_connection'])

    def test_unreachable_cell_is_down_with_its_reason(self):
        before = self.update(
            disabled=True,
            database_connection='sqlite:////nowhere/cell1.sqlite')
        self.addCleanup(self.update, **before)

        ran = self.cell('list', '-f', 'json')

        self.assertEqual(0, ran.code)
        self.assertIn('warning: cell cell1 did not answer: a database',
                      ran.err)
        self.assertEqual(
            ('disabled', 'down', 2, None, 1), tuple(
                ran.data[1][name] for name in (
                    'Status', 'State', 'Hosts', 'Hosts Up', 'Servers')))

    def test_unknown_cell_is_named(self):
        self.assertEnds(1, self.cell('show', 'nix'), 'nix.')
        self.assertEnds(1, self.cell('show', 'cel1'), 'did you mean cell1?')
        self.assertEnds(1, self.cell('show', '\n'), 'printable')
