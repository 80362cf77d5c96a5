# SPDX-License-Identifier: Apache-2.0
"""Cells change while services run, and all of them see it."""

import contextlib
import sqlite3

from cellsched.cells import maintenance
from cellsched.standalone import deployment
from cellsched.wiring import services
from tests.functional import base


class TestCellsChange(base.TestCase):

    def setUp(self):
        super().setUp()
        self.deploy({'cell1': ['a1'], 'cell2': ['b1']})
        # Of another process, as the command's.
        parts = services.Components(self.world.conf('api'))
        self.addCleanup(parts.close)
        self.maintenance = maintenance.CellMaintenance(
            parts.database, parts.cells, parts.targets, parts.clock)
        self.uuids = {
            cell.name: cell.uuid for cell in parts.cells.all()}

    def update(self, cell, /, **values):
        return self.maintenance.update(self.uuids[cell], values)

    def cells_of(self, count=4):
        """Build servers; return the cells that they are in."""
        found = self.built(min_count=count)
        self.assertEqual({'ACTIVE'}, {each.status for each in found})
        return {each.cell for each in found}

    def test_new_cell_takes_builds(self):
        self.world.add_cell(deployment.DeployedCell(
            'cell3', [deployment.DeployedHost('c1')]))
        for name in 'cell1', 'cell2':
            self.update(name, disabled=True)

        self.assertEqual({'cell3'}, self.cells_of())

    def test_disabled_cell_gets_no_servers_until_enabled(self):
        self.update('cell1', disabled=True)

        self.assertEqual({'cell2'}, self.cells_of())

        self.update('cell1', disabled=False)
        self.update('cell2', disabled=True)
        self.assertEqual({'cell1'}, self.cells_of())

    def test_renamed_cell_is_shown_with_its_new_name(self):
        [found] = self.built()
        self.update(found.cell, name='orient')

        self.assertEqual('orient', self.get(found.uuid).cell)
        self.assertEqual({'orient'}, {
            each.cell for each in self.world.api.services.list(
                base.ADMIN, host=found.host).services})

    def test_moved_database_is_read_at_its_new_url(self):
        [found] = self.built()
        file = self.world.directory / f'{found.cell}.sqlite'
        moved = file.with_name('moved.sqlite')
        self.update(found.cell, database_connection='sqlite:////gone/x')
        self.assertEqual('UNKNOWN', self.get(found.uuid).status)

        with (contextlib.closing(sqlite3.connect(file)) as source,
              contextlib.closing(sqlite3.connect(moved)) as target):
            source.backup(target)
        self.update(found.cell, database_connection=f'sqlite:///{moved}')

        self.assertEqual('ACTIVE', self.get(found.uuid).status)
