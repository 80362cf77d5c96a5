# SPDX-License-Identifier: Apache-2.0
"""A move ends when its server is deleted, whoever selects its host."""

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.db.cell import server_moves
from cellsched.wiring import services
from tests.functional import base
from tests.functional import moving
from tests import profile


class TestMovesOfDeletedServers(moving.TestCase):

    def setUp(self):
        super().setUp()
        self.start({'cell1': self.hosts('a1', 'a2')})

    def killed_at(self, step, move, uuid, *args):
        """Move a server with a conductor that is killed at a step."""
        self.done.clear()
        self.at[step] = self.kill
        move(base.ADMIN, uuid, *args)
        self.until(lambda: step in self.done, f'{step} is done')

    def shelved(self):
        uuid = self.active()
        self.moves.shelve(base.USER, uuid)
        self.assertRests('shelved_offloaded', None, uuid)
        self.until(lambda: 'MoveClaim' in self.done, 'the claims are released')
        return uuid

    def test_move_waiting_for_a_scheduler_ends_with_its_server(self):
        uuid = self.active()
        self.killed_at('MovePrepare', self.moves.migrate, uuid)
        self.assertEqual([server_moves.PREPARING], self.statuses(uuid))

        self.delete(uuid)

        self.assertIsGone(uuid)
        self.assertEqual([server_moves.ERROR], self.statuses(uuid))

    @profile.full_only('a migration ends by default')
    def test_unshelving_waiting_for_a_scheduler_ends_with_its_server(self):
        uuid = self.shelved()
        self.killed_at('MovePrepare', self.moves.unshelve, uuid)

        self.delete(uuid)

        self.assertIsGone(uuid)
        self.assertNotIn(server_moves.PREPARING, self.statuses(uuid))

    @profile.full_only('unit tests of the recovery release claims')
    def test_claims_of_an_ended_move_are_released(self):
        uuid = self.shelved()
        self.killed_at('MoveSelect', self.moves.unshelve, uuid)
        self.assertNotEqual({}, self.holding(uuid))

        self.delete(uuid)
        self.strand()

        self.assertIsGone(uuid)

    def test_unended_move_of_a_deleted_server_is_named_and_ended(self):
        """Another program left the move."""
        uuid = self.active()
        self.killed_at('MovePrepare', self.moves.migrate, uuid)
        self.delete(uuid)
        self.assertIsGone(uuid)
        for status in server_moves.PREPARING, server_moves.MOVED:
            self.put_status(uuid, status)

            self.assertEqual(
                [('move-stranded', uuid)],
                [(each.kind, each.of) for each in self.audit().remaining])
            self.assertEqual([], self.audit(fix=True).remaining)

            self.assertNotIn(status, self.statuses(uuid))

    def put_status(self, uuid, status):
        table = models.migrations
        parts = self.world.api.parts
        with parts.targets.database(
                self.cells()['cell1']).writer() as connection:
            connection.execute(sa.update(table).where(
                table.c.instance_uuid == uuid).values(status=status))

    def audit(self, fix=False):
        return services.auditor(self.world.api.parts).run(0, fix)
