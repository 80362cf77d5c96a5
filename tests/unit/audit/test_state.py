# SPDX-License-Identifier: Apache-2.0
"""Reading the states of servers with failures."""

from concurrent import futures
import threading

import sqlalchemy as sa

from cellsched.audit import auditor
from cellsched.audit import state
from cellsched.cells import gather
from cellsched import clock
from cellsched.db.api import models
from tests.unit.audit import base


class TestReader(base.TestCase):

    def test_silent_cell_is_recorded_with_the_reason(self):
        uuid = self.running()
        released = threading.Event()
        target_cell = self.targets.target_cell

        def slow(context, cell):
            if cell.name == 'cell1':
                released.wait(600)
            return target_cell(context, cell)

        self.targets.target_cell = slow
        executor = futures.ThreadPoolExecutor(4)
        self.addCleanup(executor.shutdown)
        self.addCleanup(released.set)
        reader = state.StateReader(
            self.database, self.cells, gather.Gatherer(
                executor, self.targets, clock.Clock(), timeout_s=0.5),
            self.claims)
        reader.begin()

        found = reader.servers([uuid])[uuid]

        cell = self.by_name['cell1'].uuid
        self.assertEqual({cell: 'it did not answer in time'}, reader.unheard)
        self.assertIn(cell, found.unheard)
        self.assertEqual({}, dict(found.rows))

    def test_cell_without_a_name_goes_by_its_uuid(self):
        cell = self.by_name['cell1']
        table = models.cell_mappings
        with self.database.writer() as connection:
            connection.execute(sa.update(table).where(
                table.c.id == cell.id).values(name=None))
        self.cells.refresh()

        names = self.reader.names()

        self.assertEqual(cell.uuid, names[cell.uuid])
        self.assertEqual('cell2', names[self.by_name['cell2'].uuid])

    def test_claims_are_not_released_without_a_shared_store(self):
        self.reader.claims = None
        leaked = auditor.LeakedClaims(self.reader, self.repairs)

        self.assertEqual(0, leaked.release_leaked())


class TestCell0(base.TestCase):

    def test_server_in_a_cell_is_not_buried(self):
        uuid = self.running()
        self.map_to(uuid, 'cell0')

        self.audit(fix=True)

        self.assertEqual({'cell1'}, self.rows(uuid))
