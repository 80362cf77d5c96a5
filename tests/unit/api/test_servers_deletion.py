# SPDX-License-Identifier: Apache-2.0
"""Deleting servers, whatever is being done with them."""

import sqlalchemy as sa

from cellsched.db.api import build_requests
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched import exception
from tests.unit.api import test_servers
from tests.unit.db import samples


class TestDeletion(test_servers.ServersTestCase):

    def setUp(self):
        super().setUp()
        [self.uuid] = self.create(tags=['a'])

    def delete(self):
        self.servers.delete(self.context, self.uuid)

    def deleted(self, cell):
        """Return whether there is a row, and only a deleted one."""
        rows = self.read(self.targets.database(cell), lambda connection:
                         connection.execute(sa.select(
                             models.instances.c.deleted)).scalars().all())
        return bool(rows) and all(rows)

    def test_late_row_of_a_deleted_server_is_not_created(self):
        request = self.read(self.database, build_requests.get, self.uuid)
        self.decide(self.uuid, self.cell)

        self.delete()

        self.assertTrue(self.deleted(self.cell))
        self.assertEqual([], self.write(
            self.targets.database(self.cell), instances.create,
            [request.instance], samples.NOW))
        self.assertIsNone(self.row(self.uuid, self.cell))

    def test_server_unbound_from_its_host_meanwhile_is_deleted(self):
        self.put(self.uuid, self.cell, task_state='spawning', host='h1')

        def leave(conn, cursor, statement, *others):
            if statement.startswith('SELECT instances'):
                conn.connection.cursor().execute(
                    'UPDATE instances SET host = NULL, task_state = NULL '
                    'WHERE host = ?', ('h1',))

        # It goes right after it was seen to be there.
        engine = self.targets.database(self.cell).engine
        sa.event.listen(engine, 'after_cursor_execute', leave)
        try:
            self.servers._deletion.run(self.context, self.uuid)
        finally:
            sa.event.remove(engine, 'after_cursor_execute', leave)

        self.assertTrue(self.deleted(self.cell))
        self.assertEqual({}, self.compute.clients)

    def test_retried_server_is_deleted_from_cell0(self):
        cell0 = self.cells.cell0()
        self.put(self.uuid, cell0, vm_state='error', task_state=None)
        self.servers.retry(self.context, self.uuid)
        self.assertIsNotNone(self.row(self.uuid, cell0))

        self.delete()

        self.assertIsNone(self.row(self.uuid, cell0))
        self.assertEqual([], self.servers.list(self.context).servers)
        self.assertRaises(exception.InstanceNotFound, self.delete)

    def test_steps_are_reported(self):
        told = []
        self.servers._reached = told.append
        self.servers._deletion._reached = told.append

        [self.uuid] = self.create()
        self.delete()

        self.assertEqual(['Accept', 'Tell', 'Delete'], told)
