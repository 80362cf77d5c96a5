# SPDX-License-Identifier: Apache-2.0
"""Moves of servers."""

import datetime

from cellsched import context
from cellsched.db.cell import instances
from cellsched.db.cell import server_moves
from cellsched.db.cell import states
from tests.unit.db.cell import base
from tests.unit.db import samples

USER = context.member('user', 'project')

SECOND = datetime.timedelta(seconds=1)


class TestMigrations(base.TestCase):

    def setUp(self):
        super().setUp()
        self.uuids = samples.uuids(3)
        self.write(instances.create, [
            samples.instance(uuid) for uuid in self.uuids], samples.NOW)

    def create(self, number, uuid=None, at=samples.NOW, **fields):
        move = server_moves.Migration(**{
            'uuid': f'move{number}', 'instance_uuid': uuid or self.uuids[0],
            'migration_type': server_moves.MIGRATION, **fields})
        self.write(server_moves.create, move, USER, at)
        return move

    def get(self, uuid='move1'):
        return self.read(server_moves.get, uuid)

    def test_move_is_stored_as_created(self):
        move = self.create(1, source_compute='a1', source_node='n1')

        self.assertEqual(move, self.get())
        self.assertIsNone(self.get('move2'))

    def test_move_advances_only_from_the_expected_status(self):
        self.create(1)
        self.assertFalse(self.write(
            server_moves.advance, 'move1', [server_moves.PREPARING], 'done',
            samples.NOW))

        for again in (True, False):
            self.assertEqual(again, self.write(
                server_moves.advance, 'move1', [server_moves.ACCEPTED],
                server_moves.PREPARING, samples.NOW, dest_compute='a2'))

        self.assertEqual(('preparing', 'a2'), (
            self.get().status, self.get().dest_compute))

    def test_move_is_live_until_the_claims_are_right(self):
        for number, status in enumerate((
                *server_moves.LIVE, server_moves.FINISHED, server_moves.DONE,
                server_moves.ERROR)):
            self.create(number, status=status)
            found = self.read(server_moves.live, self.uuids[0])

            self.assertEqual(
                f'move{number}' if status in server_moves.LIVE else None,
                found and found.uuid)
            self.assertIsNone(self.read(server_moves.live, self.uuids[1]))
            if found:
                self.write(server_moves.advance, found.uuid, [status], 'done',
                           samples.NOW)

    def test_unfinished_moves_are_listed_oldest_first(self):
        late = samples.NOW + SECOND
        for number, (at, status) in enumerate((
                (samples.NOW, server_moves.MIGRATING),
                (samples.NOW - SECOND, server_moves.FINISHED),
                (samples.NOW, server_moves.DONE),
                (samples.NOW, server_moves.ERROR),
                (late, server_moves.MIGRATING))):
            self.create(number, at=at, status=status)
        self.create(5, migration_type='resize')

        self.assertEqual(['move1', 'move0'], [
            each.uuid for each in
            self.read(server_moves.list_before, late, 10)])
        self.assertEqual(['move1'], [
            each.uuid for each in
            self.read(server_moves.list_before, late, 1)])

    def test_move_is_touched_by_a_single_caller(self):
        self.create(1, status=server_moves.FINISHED)
        late = samples.NOW + SECOND

        for again in (True, False):
            self.assertEqual(again, self.write(
                server_moves.touch, 'move1', late, late))

        self.create(2, status=server_moves.ERROR)
        self.assertFalse(self.write(
            server_moves.touch, 'move2', late, late))

    def test_aborted_moves_are_listed(self):
        for number, (uuid, at) in enumerate((
                (self.uuids[0], 0), (self.uuids[0], 1), (self.uuids[1], 9))):
            self.create(number, uuid, samples.NOW + at * SECOND,
                        status=server_moves.ERROR)
        self.create(4, self.uuids[2])

        self.assertEqual([self.uuids[0]] * 2, [
            move.instance_uuid for move in self.read(
                server_moves.list_given_up, samples.NOW,
                samples.NOW + 5 * SECOND)])

    def test_host_cleans_up_after_departed_servers(self):
        self.create(1, status=server_moves.FINISHED, source_compute='a1')
        self.create(2, status=server_moves.MIGRATING, source_compute='a1')
        self.create(3, status=server_moves.FINISHED, source_compute='a2')

        self.assertEqual(['move1'], [
            each.uuid for each in self.read(server_moves.list_left, 'a1')])

    def test_transitions_of_each_kind_follow_from_each_other(self):
        for kind in server_moves.KINDS.values():
            asked = self.states_after(kind.ask)
            begun = self.states_after(kind.begin) if kind.begin else asked
            if kind.begin:
                self.assertEqual(
                    asked, states.TRANSITIONS[kind.begin].before)
            self.assertLessEqual(
                begun, states.TRANSITIONS[kind.finish].before)
            self.assertLessEqual(asked | begun,
                                 states.TRANSITIONS[kind.revert].before)

    def states_after(self, transition):
        after = states.TRANSITIONS[transition].after
        return {states.State(vm_state, after.task_state) for vm_state in (
            [after.vm_state] if after.vm_state else states.EVACUABLE)}
