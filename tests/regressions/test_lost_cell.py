# SPDX-License-Identifier: Apache-2.0
"""A cell whose database is lost for good can be taken out of the cloud."""

import io

import sqlalchemy as sa

from cellsched.cli import app
from cellsched.db.api import build_requests
from cellsched.db.api import models
from cellsched import exception
from tests.functional import base


class TestLostCell(base.TestCase):

    def setUp(self):
        super().setUp()
        self.deploy({'cell1': ['a1'], 'cell2': ['b1']})
        self.servers = self.built(min_count=4)
        self.lost = [each.uuid for each in self.servers
                     if each.cell == 'cell1']
        self.assertEqual(2, len(self.lost))
        self.cell = self.cells()['cell1'].uuid

    def delete_cell(self, *args):
        """Return the exit code and the output of the command."""
        conf = str(self.world.directory / 'etc' / 'api.conf')
        out = io.StringIO()
        code = app.Manage(out, out).run([
            '--config-file', conf, 'cell_v2', 'delete_cell', '--cell_uuid',
            self.cell, *args])
        return code, out.getvalue()

    def test_lost_cell_is_removed_with_its_servers(self):
        self.take_down('cell1')

        self.assertEqual(0, self.delete_cell('--force')[0])

        page = self.world.api.servers.list(base.USER)
        self.assertEqual(
            {'ACTIVE'}, {each.status for each in page.servers})
        self.assertEqual([], page.down_cells)
        self.assertEqual(2, len(page.servers))
        for uuid in self.lost:
            self.assertEqual([], self.held(uuid))
            self.assertRaises(exception.InstanceNotFound, self.get, uuid)
        self.assertNotIn('cell1', self.cells())
        self.assertEqual(['b1'], [
            each.host for each in
            self.world.api.services.list(
                base.ADMIN, 'nova-compute').services])
        self.assertEqual(['cell2'], [each.cell for each in self.built()])
        self.assertEqual(1, self.delete_cell('--force')[0])

    def test_losses_are_shown_and_kept_without_force(self):
        self.take_down('cell1')

        code, text = self.delete_cell()

        self.assertEqual(2, code)
        for part in ('1 hosts, 2 servers and 0 deleted servers',
                     'project project: 2 servers', 'Nothing was removed',
                     '--force', 'does not answer'):
            self.assertIn(part, text)
        self.assertIn('cell1', self.cells())
        self.assertEqual(4, len(self.listed()))
        self.assertNotEqual([], self.held(self.lost[0]))

    def test_cell_with_a_reachable_database_is_not_removed(self):
        code, text = self.delete_cell('--force')

        self.assertEqual(3, code)
        self.assertIn('delete or move the servers first', text)
        self.assertEqual(4, len(self.listed()))
        self.assertNotEqual([], self.held(self.lost[0]))

    def test_unfinished_build_goes_to_another_cell(self):
        uuid = self.lost[0]
        table = models.build_requests
        with self.world.api.parts.database.writer() as connection:
            connection.execute(sa.insert(table).values(
                instance_uuid=uuid, project_id='project'))
        self.assertIsNotNone(self.requested(uuid))
        self.take_down('cell1')

        self.assertEqual(0, self.delete_cell('--force')[0])

        self.assertIsNone(self.mapped(uuid))
        self.assertEqual([], self.held(uuid))
        with self.world.api.parts.database.reader() as connection:
            self.assertEqual(
                {uuid}, set(build_requests.present(connection, self.lost)))
