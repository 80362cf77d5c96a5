# SPDX-License-Identifier: Apache-2.0
"""Moves of servers that are nowhere, and steps that are told."""

from cellsched.conductor.tasks import move as move_task
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instances
from cellsched.db.cell import server_moves
from cellsched import exception
from tests.unit.conductor import base
from tests.unit.db import samples


class TestMove(base.TestCase):

    def setUp(self):
        super().setUp()
        self.steps = []
        self.scheduler.answer = self.refuse

    def refuse(self, **arguments):
        raise exception.NoValidHost(reason='Full.')

    def run_move(self, uuid, move_uuid):
        move_task.Move(
            self.database, self.targets, self.scheduler, self.compute,
            self.claims, 'conductor', reached=self.steps.append,
        ).run(base.USER, uuid, move_uuid)

    def test_server_that_has_no_cell_is_left_alone(self):
        [accepted], [unknown] = self.accept(), samples.uuids(1)
        for uuid in (accepted, unknown):
            self.run_move(uuid, samples.uuids(1)[0])

        self.assertEqual([], self.scheduler.sent)
        self.assertEqual([], self.steps)
        self.assertNotIn('Traceback', self.logs.output)

    def accept_move(self):
        """Have a move of a server of cell1 accepted."""
        [uuid] = self.accept()
        cell = self.cells['cell1']
        with self.database.writer() as connection:
            instance_mappings.decide(
                connection, [uuid], cell.id, samples.NOW)
        move = server_moves.Migration(
            samples.uuids(1)[0], uuid, server_moves.MIGRATION,
            source_compute='a1', source_node='node-a1')
        with self.writer() as connection:
            instances.create(connection, [samples.instance(
                uuid, vm_state='active', task_state=None, host='a1',
                node='node-a1')], samples.NOW)
            instances.transit(connection, uuid, move.kind.ask, samples.NOW)
            server_moves.create(connection, move, base.USER, samples.NOW)
        return move

    def writer(self):
        return self.targets.database(self.cells['cell1']).writer()

    def status(self, move):
        with self.writer() as connection:
            return server_moves.get(connection, move.uuid).status

    def test_end_is_told_when_it_was_made(self):
        move = self.accept_move()

        self.run_move(move.instance_uuid, move.uuid)

        self.assertEqual('MoveGiveUp', self.steps[-1])
        self.assertEqual(server_moves.ERROR, self.status(move))

    def test_move_of_a_server_that_has_gone_names_it(self):
        move = self.accept_move()
        with self.writer() as connection:
            instances.delete(connection, move.instance_uuid, samples.NOW)

        self.run_move(move.instance_uuid, move.uuid)

        self.assertEqual(server_moves.ERROR, self.status(move))
        reason = exception.InstanceNotFound(uuid=move.instance_uuid)
        self.assertIn(f'is given up: {reason}', self.logs.output)

    def test_what_nobody_expected_gives_the_move_up_too(self):
        def fail(**arguments):
            raise KeyError('as told')

        self.scheduler.answer = fail
        move = self.accept_move()

        self.run_move(move.instance_uuid, move.uuid)

        self.assertEqual(server_moves.ERROR, self.status(move))
        self.assertIsNone(self.row(move.instance_uuid).task_state)
        self.assertIn('as told', self.logs.output)

    def test_reason_names_the_server_that_waits_for_a_move_no_more(self):
        move = self.accept_move()

        def meanwhile(**arguments):
            with self.writer() as connection:
                samples.put(connection, move.instance_uuid,
                            {'task_state': 'shelving'})
            selection = self.selection('a2')
            selection.cell_uuid = self.cells['cell1'].uuid
            return [[selection]]

        self.scheduler.answer = meanwhile
        self.run_move(move.instance_uuid, move.uuid)

        self.assertEqual(server_moves.ERROR, self.status(move))
        reason = exception.InstanceNotFound(uuid=move.instance_uuid)
        self.assertIn(f'is given up: {reason}', self.logs.output)
