# SPDX-License-Identifier: Apache-2.0
"""Archiving of deleted servers, beside running builds."""

import contextlib
import io
import json

import sqlalchemy as sa

from cellsched.cli import app
from cellsched.db.api import models as api_models
from cellsched.db.cell import models as cell_models
from cellsched import exception
from tests.functional import base


class TestArchive(base.TestCase):

    def setUp(self):
        super().setUp()
        self.deploy({'cell1': ['a1', 'a2'], 'cell2': ['b1']})

    def manage(self, *argv):
        """Run a command; return its exit code, what it says, and errors."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = app.Manage(out, err).run([
                '--config-file',
                str(self.world.directory / 'etc' / 'api.conf'), *argv])
        return code, out.getvalue(), err.getvalue()

    def known(self):
        with self.world.api.parts.database.reader() as connection:
            return set(connection.execute(sa.select(
                api_models.instance_mappings.c.instance_uuid)).scalars())

    def deleted_rows(self):
        """Return how many servers all cells know that are deleted."""
        parts = self.world.api.parts
        count = 0
        for cell in parts.cells.all():
            with parts.targets.database(cell).reader() as connection:
                count += connection.execute(
                    sa.select(sa.func.count())
                    .select_from(cell_models.instances)
                    .where(cell_models.instances.c.deleted != 0)).scalar()
        return count

    def test_deleted_servers_go_and_all_else_is_well(self):
        running, *deleted = self.built(min_count=4)
        [buried] = self.built(flavor='huge')
        waiting, = self.unheard().servers.create(base.USER, 'late', 'small')
        gone = [*(found.uuid for found in deleted), buried.uuid, waiting]
        for uuid in gone:
            self.delete(uuid)
            self.gone(uuid)
            self.assertHoldsNothing(uuid)
        self.assertEqual(4, self.deleted_rows())

        code, out, err = self.manage(
            'db', 'archive_deleted_rows', '--all-cells', '--settle=0',
            '--until-complete', '--verbose')

        self.assertEqual((0, ''), (code, err))
        self.assertIn('API database: instance_mappings: 1 rows', out)
        self.assertEqual({running.uuid}, self.known())
        self.assertEqual(0, self.deleted_rows())
        for uuid in gone:
            self.assertRaises(exception.InstanceNotFound, self.delete, uuid)
        code, out, err = self.manage('audit', '--settle=0', '-f', 'json')
        self.assertEqual((0, [], ''), (code, json.loads(out), err))
        [another] = self.built()
        self.assertEqual('ACTIVE', another.status)
        self.assertEqual('ACTIVE', self.get(running.uuid).status)

    def test_recently_deleted_server_stays(self):
        [found] = self.built()
        self.delete(found.uuid)
        self.gone(found.uuid)

        self.assertEqual((0, '', ''), self.manage(
            'db', 'archive_deleted_rows', '--all-cells'))

        self.assertEqual(1, self.deleted_rows())
        self.assertEqual({found.uuid}, self.known())
