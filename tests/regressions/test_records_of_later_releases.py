# SPDX-License-Identifier: Apache-2.0
"""A request specification of a later release costs no running server."""

import sqlalchemy as sa

from cellsched.db.api import models
from cellsched.db.cell import models as cell_models
from cellsched import exception
from tests.functional import base
from tests.functional import moving
from tests.regressions import machines


class TestRequestSpecs(moving.TestCase):

    def setUp(self):
        super().setUp()
        self.start({'cell1': self.hosts('a1', 'a2')})
        self.uuid = self.active()
        self.host = self.row(self.uuid).host
        self.text = self.spec()

    def spec(self, text=None):
        """Return the stored specification; replace it with a text."""
        table = models.request_specs
        with self.world.api.parts.database.writer() as connection:
            found = connection.execute(sa.select(table.c.spec)).scalar_one()
            if text is not None:
                connection.execute(sa.update(table).values(spec=text))
        return found

    def versioned(self, version):
        now = '"nova_object.version": "'
        before, _, after = self.text.rpartition(now)
        return f'{before}{now}{version}"{after.partition(chr(34))[2]}'

    def check_stays(self, problem):
        for move in self.moves.rebuild, self.moves.shelve:
            error = self.assertRaises(
                exception.RequestUnreadable, move, base.ADMIN, self.uuid)
            self.assertIn(problem, str(error))
        self.moves.migrate(base.ADMIN, self.uuid)
        self.assertRests('active', self.host, self.uuid)
        self.assertIn(problem, self.faults(self.uuid)[-1])

    def check_moves(self):
        self.moves.rebuild(base.ADMIN, self.uuid)
        self.assertRests('active', self.host, self.uuid)
        self.moves.migrate(base.ADMIN, self.uuid)
        self.assertRests('active', self.other(self.host), self.uuid)

    def test_server_keeps_its_guest_until_the_record_can_be_read(self):
        for text, problem in ((self.versioned('9.0'), 'a later release'),
                              ('{"a": 5', 'cannot be read')):
            self.spec(text)
            self.check_stays(problem)
        self.spec(self.text)
        self.check_moves()

    def test_unshelved_server_stays_shelved(self):
        self.moves.shelve(base.ADMIN, self.uuid)
        self.assertRests('shelved_offloaded', None, self.uuid)
        self.spec(self.versioned('9.0'))

        self.moves.unshelve(base.ADMIN, self.uuid)

        self.assertRests('shelved_offloaded', None, self.uuid)

    def test_newer_minor_version_is_read(self):
        self.spec(self.versioned('1.99'))

        self.check_moves()


class TestFlavors(machines.TestCase):
    """The flavor of a server in its cell cannot be read."""

    def setUp(self):
        super().setUp()
        self.begin({'cell1': ['a1', 'a2']})
        self.uuid = self.active()
        self.host = self.row(self.uuid).host
        parts = self.world.agents[self.host].parts
        with parts.cell_database.writer() as connection:
            connection.execute(sa.update(cell_models.instance_extra).values(
                flavor=sa.func.replace(
                    cell_models.instance_extra.c.flavor,
                    'nova_object.version": "1.', 'nova_object.version": "9.')))

    def test_server_is_shown_and_migrates(self):
        self.moves.migrate(base.ADMIN, self.uuid)
        self.assertRests('active', self.other(self.host), self.uuid)
        details = self.world.api.details.get(base.ADMIN, self.uuid)
        self.assertEqual(1, len(details.moves))
