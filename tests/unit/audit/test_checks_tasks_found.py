# SPDX-License-Identifier: Apache-2.0
"""Findings about abandoned tasks, for each state of a server."""

from cellsched.audit import checks
from cellsched.audit import findings
from cellsched.db.cell import audit_queries
from cellsched.db.cell import server_moves
from tests.unit.audit import known
from tests.unit import base

Action = findings.Action

PREPARING = audit_queries.MoveRow(server_moves.MIGRATION, 'preparing')
MOVED = audit_queries.MoveRow(server_moves.MIGRATION, server_moves.MOVED)


class TestTasks(base.TestCase):

    def assertFinds(self, *expected, row, cell=known.CELL, **fields):
        """Check for a finding: kind, action, words of text and advice."""
        found = list(checks.check_tasks(known.server(**{
            'mapping': known.mapped(cell), 'rows': {cell: row}, **fields})))

        self.assertEqual(len(expected) // 4, len(found), found)
        for each in found:
            kind, action, text, advice = expected
            self.assertEqual(
                (kind, 'server', 'cell1', known.CELL, action),
                (each.kind, each.of, each.cell, each.cell_uuid, each.action))
            self.assertIn(text, each.text)
            self.assertIn(advice, each.advice)

    def test_deletion_waits_for_an_existing_host(self):
        self.assertFinds(row=known.row(task_state='deleting'))
        self.assertFinds(
            'deleting-stranded', Action.DELETE, 'its host is not there', '',
            row=known.row(task_state='deleting', served=False))
        self.assertFinds(
            'deleting-stranded', Action.DELETE, 'is on no host', '',
            row=known.unrun(task_state='deleting'))

    def test_deletion_goes_before_all_else(self):
        self.assertFinds(row=known.row(task_state='deleting', move=PREPARING))
        self.assertFinds(row=known.row(
            vm_state='building', task_state='deleting'))

    def test_move_is_reported_with_its_kind_and_status(self):
        for vm_state, why in (('active', 'does not wait for it'),
                              ('error', 'is in ERROR')):
            self.assertFinds(
                'move-stranded', Action.GIVE_UP,
                'has a move (migration, preparing), and ' + why, '',
                row=known.row(vm_state=vm_state, move=PREPARING))

    def test_migration_with_a_waiting_server_has_no_finding(self):
        self.assertFinds(row=known.row(
            task_state='resize_prep', move=PREPARING))
        self.assertFinds(row=known.row(
            task_state='resize_migrating', move=MOVED))
        self.assertFinds(row=known.row(move=MOVED))
        self.assertFinds(row=known.row(
            move=audit_queries.MoveRow('live-migration', 'preparing')))

    def test_build_waits_for_its_host(self):
        advice = 'if the host is gone for good, delete it'
        for action, row in (
                (Action.FAIL, known.unrun()),
                (Action.FAIL, known.unrun(task_state=None)),
                (Action.FAIL, known.unrun(task_state='spawning')),
                (None, known.unrun(host='host1')),
                (None, known.unrun(vm_state=None)),
                (None, known.unrun(task_state='networking'))):
            self.assertFinds('build-stranded', action,
                             'no host has received the build', advice, row=row)
        self.assertFinds(row=known.unrun(cast=True))
        self.assertFinds(row=known.unrun(vm_state=None, cast=True))

    def test_task_is_reported_by_its_name(self):
        self.assertFinds(
            'task-stranded', Action.TAKE_BACK, 'has the task resize_prep',
            '', row=known.row(task_state='resize_prep'))
        self.assertFinds(
            'task-stranded', None, 'has the task rescuing',
            'find out which program set this task',
            row=known.row(task_state='rescuing'))

    def test_server_at_rest_is_right(self):
        self.assertFinds(row=known.row())

    def test_server_in_no_cell_has_no_finding(self):
        stranded = known.row(task_state='resize_prep')
        self.assertFinds(row=stranded, mapping=None)
        self.assertFinds(row=stranded, mapping=known.mapped(None))
        self.assertFinds(row=stranded, mapping=known.mapped(known.OTHER))
        self.assertFinds(row=stranded, cell=known.CELL0)
        self.assertFinds(row=stranded, requested=True)
        self.assertFinds(row=known.row(
            task_state='resize_prep', deleted=True))

    def test_server_in_no_state_has_no_task_to_take_back(self):
        self.assertIsNone(checks.reverting(known.row(vm_state=None)))
        self.assertIsNone(checks.reverting(known.row()))
        self.assertEqual(
            ('revert_migrate', 'migration'),
            checks.reverting(known.row(task_state='resize_prep')))
