# SPDX-License-Identifier: Apache-2.0
"""The versions of compute services, over cells of which some are down."""

import socket

import futurist

from cellsched.cells import gather
from cellsched import clock
from cellsched.db.cell import services
from cellsched import objects
from cellsched.rpc import compute
from tests.unit.cells import base
from tests.unit.db import samples

#: Long for a SQLite file, short for who waits for what hangs.
TIMEOUT_S = 2.0


class TestOverCells(base.TestCase):

    def setUp(self):
        super().setUp()
        executor = futurist.ThreadPoolExecutor(4)
        self.addCleanup(executor.shutdown, wait=False)
        self.gatherer = gather.Gatherer(
            executor, self.targets, clock.Clock(), TIMEOUT_S)

    def add(self, name, *reported, **fields):
        """Add a cell with a host of each of these versions."""
        cell = self.add_cell(name, **fields)
        for version in reported:
            self.write(
                self.targets.database(cell), services.report,
                samples.uuids(1)[0], f'{name}-{version}', services.COMPUTE,
                'compute', samples.NOW, version)
        return cell

    def lowest(self):
        return gather.lowest_compute(self.cells, self.gatherer)

    def test_lowest_of_all_cells_is_found(self):
        self.add('one', 3, 5)
        self.add('two', 4, 2)
        self.add('three', 9)

        self.assertEqual(compute.Lowest(2), self.lowest())

    def test_disabled_cells_count_and_cell0_does_not(self):
        self.add('one', 3)
        self.add('two', 2, disabled=True)
        self.add('cell0', 1, uuid=objects.CELL0_UUID)

        self.assertEqual(2, self.lowest().version)

    def test_lowest_version_is_unknown_without_reported_versions(self):
        self.add('one', 0)
        self.add('two')

        self.assertEqual(compute.Lowest(), self.lowest())

    def test_down_cell_is_omitted_and_logged(self):
        self.add('one', 3)
        down = self.add_cell(
            'two', database_connection='sqlite:////nowhere/at/all.sqlite')

        self.assertEqual(
            compute.Lowest(3, frozenset([down.uuid])), self.lowest())
        self.assertIn(f'Cell {down.identity} does not answer: '
                      'DatabaseUnreachable', self.logs.output)

    def test_hanging_cell_is_omitted_and_logged(self):
        # It takes who connects, and never says a word.
        listening = socket.create_server(('127.0.0.1', 0))
        self.addCleanup(listening.close)
        port = listening.getsockname()[1]
        self.add('one', 3)
        hanging = self.add_cell(
            'two',
            database_connection=f'mysql+pymysql://u:secret@127.0.0.1:{port}/d')

        for _ in range(2):
            self.assertEqual(
                compute.Lowest(3, frozenset([hanging.uuid])),
                self.lowest())

        self.assertIn(f'Cell {hanging.identity} does not answer: it took',
                      self.logs.output)
        self.assertNotIn('secret', self.logs.output)
