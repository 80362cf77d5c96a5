# SPDX-License-Identifier: Apache-2.0
"""Findings about the fate of a server, for each state."""

from cellsched.audit import checks
from cellsched.audit import findings
from cellsched.audit import state
from cellsched import exception
from tests.unit.audit import known
from tests.unit import base

Action = findings.Action
CELL, OTHER, CELL0 = known.CELL, known.OTHER, known.CELL0
SPEC_LOST = 'restore the row of request_specs'
TWO_RUN = 'stop the other one'


class TestCase(base.TestCase):

    check = staticmethod(checks.check_fate)

    def assertFinds(self, *expected, **fields):
        """Check findings: kind, cell, action, words of text and advice."""
        found = list(self.check(known.server(**fields)))

        self.assertEqual(
            [each[:3] for each in expected],
            [(each.kind, each.cell_uuid, each.action) for each in found])
        for each, (_, cell, action, text, advice) in zip(found, expected):
            self.assertEqual('server', each.of)
            self.assertEqual(
                '' if cell is None else known.NAMES.get(cell, cell), each.cell)
            self.assertIn(text, each.text)
            if action is None:
                self.assertTrue(advice)
            self.assertIn(advice, each.advice)


class TestUnmapped(TestCase):

    def test_request_and_each_row_is_found(self):
        self.assertFinds(
            ('request-unmapped', None, Action.MAP, 'no mapping', ''),
            ('row-unmapped', CELL, Action.MAP, 'does not know it', ''),
            mapping=None, requested=True,
            rows={OTHER: known.row(deleted=True), CELL: known.row()})
        self.assertFinds(mapping=None, rows={})

    def test_cell_without_a_name_goes_by_its_uuid(self):
        [found] = checks.check_fate(known.server(mapping=None, names={}))

        self.assertEqual(CELL, found.cell)


class TestDeleted(TestCase):

    def test_row_without_a_host_is_deleted(self):
        self.assertFinds(
            ('deleted-visible', CELL, Action.DELETE, 'its cell shows it', ''),
            ('deleted-visible', OTHER, None, '', 'delete it once more'),
            mapping=known.mapped(deleted=True), requested=False,
            rows={CELL: known.unrun(), OTHER: known.row()})

    def test_deleted_row_does_not_keep_another_row(self):
        for fields in {'deleted': True}, {'task_state': 'deleting'}:
            self.assertFinds(
                ('deleted-visible', OTHER, Action.DELETE, '', ''),
                mapping=known.mapped(deleted=True),
                rows={CELL: known.row(**fields), OTHER: known.unrun()})

    def test_request_goes(self):
        self.assertFinds(
            ('request-of-deleted', None, Action.FORGET, 'build request', ''),
            mapping=known.mapped(deleted=True), rows={}, requested=True)


class TestRequested(TestCase):

    def requested(self, *expected, cell=None, **fields):
        self.assertFinds(*expected, **{
            'mapping': known.mapped(cell), 'requested': True, 'rows': {},
            **fields})

    def test_build_in_progress_has_no_finding(self):
        for cell in None, CELL, CELL0:
            self.requested(cell=cell)
        self.requested(cell=CELL, rows={CELL: known.unrun()})
        self.requested(rows={CELL: known.row()})

    def test_unreadable_request_is_buried_before_a_build(self):
        broken = exception.RequestUnreadable(
            uuid='server', what='build request', problem='cannot be read')
        for action, cell, rows in (
                (Action.BURY_REQUEST, None, {}),
                (Action.BURY_REQUEST, CELL0, {CELL0: known.buried()}),
                (None, CELL, {}), (None, None, {CELL: known.unrun()})):
            self.requested(
                ('request-unreadable', None, action,
                 'its build request cannot be read', 'began before'),
                cell=cell, rows=rows, broken=broken)

    def test_request_of_a_running_server_is_removed_alone(self):
        self.requested(
            ('row-elsewhere', CELL, None, 'is being built', TWO_RUN),
            ('request-left', OTHER, Action.FORGET, 'built once more', ''),
            cell=OTHER, rows={CELL0: known.buried(), CELL: known.row(),
                              OTHER: known.row()})
        self.requested(
            ('request-left', OTHER, Action.FORGET, '', ''),
            cell=OTHER, rows={CELL: known.unrun(), OTHER: known.row()})


class TestUndecided(TestCase):

    def undecided(self, *expected, rows, **fields):
        self.assertFinds(
            *expected, mapping=known.mapped(None), rows=rows, **fields)

    def test_row_with_a_host_is_mapped_and_other_rows_are_removed(self):
        decide = ('undecided', CELL, Action.DECIDE, 'is mapped to none', '')
        self.undecided(decide, rows={CELL: known.row()})
        self.undecided(
            ('two-cells', OTHER, Action.PURGE, 'another one too', ''), decide,
            rows={CELL: known.row(), OTHER: known.unrun()})
        self.undecided(
            ('cell-and-cell0', CELL0, Action.PURGE, 'another cell too', ''),
            decide, rows={CELL: known.row(), CELL0: known.buried()})

    def test_two_rows_with_hosts_are_reported_only(self):
        self.undecided(
            ('two-cells', CELL, None, '', TWO_RUN),
            ('two-cells', OTHER, None, '', TWO_RUN),
            rows={CELL: known.row(), OTHER: known.row()})
        self.undecided(
            ('cell-and-cell0', CELL, None, 'cell0 too', TWO_RUN),
            ('cell-and-cell0', OTHER, None, 'cell0 too', TWO_RUN),
            ('cell-and-cell0', CELL0, None, '', TWO_RUN),
            rows={CELL: known.row(), OTHER: known.row(),
                  CELL0: known.buried()})

    def test_rows_without_a_host_are_not_mapped(self):
        self.undecided(
            ('undecided', CELL, Action.PURGE, 'is not being built', ''),
            rows={CELL: known.unrun()})
        self.undecided(
            ('two-cells', CELL, None, '', TWO_RUN),
            ('two-cells', OTHER, None, '', TWO_RUN),
            rows={CELL: known.unrun(), OTHER: known.unrun()})
        self.undecided(
            ('cell-and-cell0', CELL, None, '', TWO_RUN),
            ('cell-and-cell0', CELL0, None, '', TWO_RUN),
            rows={CELL: known.unrun(), CELL0: known.buried()})

    def test_buried_server_is_mapped_to_cell0(self):
        self.undecided(
            ('undecided', CELL0, Action.DECIDE, 'is mapped to none', ''),
            rows={CELL0: known.buried(), CELL: known.row(deleted=True)})

    def test_server_without_a_row_is_buried_if_all_cells_answer(self):
        self.undecided(
            ('no-fate', None, Action.BURY, 'is not being built', ''), rows={})
        self.undecided(rows={}, unheard=frozenset([OTHER]))


class TestDecided(TestCase):

    def test_server_in_its_mapped_cell_has_no_finding(self):
        self.assertFinds()
        self.assertFinds(unheard=frozenset([CELL]), rows={})
        self.assertFinds(mapping=known.mapped(CELL0),
                         rows={CELL0: known.buried()})
        self.assertFinds(rows={CELL: known.row(deleted=True)})

    def test_second_rows_without_a_host_are_removed(self):
        self.assertFinds(
            ('two-cells', OTHER, Action.PURGE, '', ''),
            rows={CELL: known.row(), OTHER: known.unrun()})
        self.assertFinds(
            ('two-cells', OTHER, None, '', TWO_RUN),
            rows={CELL: known.row(), OTHER: known.row()})
        self.assertFinds(
            ('cell-and-cell0', CELL0, Action.PURGE, '', ''),
            rows={CELL: known.row(), CELL0: known.buried()})
        self.assertFinds(
            ('cell-and-cell0', CELL, Action.PURGE, '', ''),
            ('cell-and-cell0', OTHER, None, '', TWO_RUN),
            mapping=known.mapped(CELL0),
            rows={CELL: known.unrun(), OTHER: known.row(),
                  CELL0: known.buried()})

    def test_row_of_a_buried_deleted_server_is_removed(self):
        self.assertFinds(
            ('cell-and-cell0', CELL, Action.PURGE, 'cell0 too', ''),
            mapping=known.mapped(CELL0),
            rows={CELL: known.unrun(), CELL0: known.buried(deleted=True)})

    def test_lost_row_is_restored_in_cell0_only(self):
        self.assertFinds(
            ('row-lost', CELL, None, '', 'restore the database'), rows={})
        self.assertFinds(
            ('row-lost', CELL0, Action.BURY, '', ''),
            mapping=known.mapped(CELL0), rows={})
        self.assertFinds(
            ('row-lost', CELL, None, '', 'restore the database'),
            rows={CELL0: known.buried()})

    def test_mapping_is_repaired_if_host_and_claims_agree(self):
        right = {'rows': {OTHER: known.row()}, 'host_cells': {'host1': OTHER}}
        self.assertFinds(
            ('row-elsewhere', OTHER, Action.REMAP, '', ''), **right)
        self.assertFinds(
            ('row-elsewhere', OTHER, Action.REMAP, '', ''),
            **{**right, 'mapping': known.mapped(CELL0)})
        self.assertFinds(
            ('row-elsewhere', OTHER, Action.REMAP, '', ''),
            rows={OTHER: known.row(children=frozenset({'gpu0'}))},
            host_cells={'host1': OTHER}, shared=frozenset({'pool'}),
            claims=known.claims('gpu0', 'pool'))
        for wrong in (
                {'host_cells': {}}, {'host_cells': {'host1': CELL}},
                {'claims': []}, {'claims': known.claims('node2')},
                {'claims': known.claims('node1', 'node2')},
                {'claims': known.claims('pool'),
                 'shared': frozenset({'pool'})},
                {'moved': known.claims('node2')},
                {'unheard': frozenset(['third'])},
                {'rows': {OTHER: known.row(moving=True)}},
                {'rows': {OTHER: known.row(task_state='spawning')}},
                {'rows': {OTHER: known.row(), CELL0: known.buried()}}):
            self.assertFinds(
                ('row-elsewhere', OTHER, None, 'which does not have it',
                 'map it to the cell that it is in'), **{**right, **wrong})

    def test_row_elsewhere_without_a_host_is_reported_only(self):
        self.assertFinds(
            ('row-elsewhere', OTHER, None, '', 'find out what became of it'),
            rows={OTHER: known.unrun()})
        self.assertFinds(
            ('row-elsewhere', OTHER, None, '', 'the cell that it is in'),
            rows={OTHER: known.row(host=None, provider=None)})

    def test_rows_in_two_other_cells_are_reported_only(self):
        self.assertFinds(
            ('row-elsewhere', OTHER, None, '', 'that it is in'),
            ('row-elsewhere', 'third', None, '', 'that it is in'),
            rows={OTHER: known.row(), 'third': known.row()},
            host_cells={'host1': OTHER})

    def test_server_without_specification_cannot_be_moved(self):
        for size, kind in ((state.MISSING, 'spec-missing'),
                           (state.UNREADABLE, 'spec-unreadable')):
            self.assertFinds(
                (kind, CELL, None, size.problem, SPEC_LOST), size=size)
            self.assertFinds(
                size=size, rows={CELL: known.row(deleted=True)})
            self.assertFinds(size=size, mapping=known.mapped(CELL0),
                             rows={CELL0: known.buried()})
        self.assertFinds(size=None)


class TestReasons(TestCase):

    check = staticmethod(checks.check_faults)

    def test_error_is_to_have_a_reason(self):
        failed = known.row(vm_state='error', reason='why')
        self.assertFinds(rows={CELL: failed})
        for reason in None, '', ' ':
            self.assertFinds(
                ('no-reason', CELL, Action.EXPLAIN, 'without a fault', ''),
                rows={CELL: known.row(vm_state='error', reason=reason)})

    def test_buried_server_has_an_action(self):
        for fields, kinds in (
                ({}, []), ({'failed_action': False}, ['no-action']),
                ({'reason': None}, ['no-reason']),
                ({'reason': None, 'failed_action': False},
                 ['no-reason', 'no-action'])):
            self.assertFinds(
                *((kind, CELL0, Action.EXPLAIN, '', '') for kind in kinds),
                mapping=known.mapped(CELL0),
                rows={CELL0: known.buried(**fields)})

    def test_running_and_pending_servers_have_no_finding(self):
        failed = known.row(vm_state='error')
        for fields in (
                {'rows': {}},
                {'rows': {CELL: known.row()}},
                {'rows': {CELL: known.row(vm_state='error', deleted=True)}},
                {'rows': {CELL: known.row(vm_state='error',
                                          task_state='rebuilding')}},
                {'rows': {CELL: failed}, 'requested': True},
                {'rows': {CELL: failed}, 'mapping': None},
                {'rows': {CELL: failed}, 'mapping': known.mapped(None)},
                {'rows': {CELL: failed}, 'mapping': known.mapped(OTHER)}):
            self.assertFinds(**fields)
