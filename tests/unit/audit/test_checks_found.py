# SPDX-License-Identifier: Apache-2.0
"""Findings about the fate, the claims and the tasks of a server."""

from cellsched.audit import checks
from cellsched.audit.checks import Expected
from cellsched.audit import findings
from cellsched.audit import state
from cellsched.db.cell import audit_queries
from cellsched.db.cell import server_moves
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
        for each, (*_, action, text, advice) in zip(found, expected):
            self.assertEqual('server', each.of)
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
        self.requested(rows={CELL: known.unrun()})
        self.requested(rows={CELL: known.row(), OTHER: known.row()})

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
        self.requested(
            ('request-left', OTHER, Action.FORGET, '', ''),
            rows={CELL: known.unrun(), OTHER: known.row()})


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


class TestExpectedClaims(base.TestCase):

    def assertExpected(self, expected, **fields):
        self.assertIs(
            expected, checks.expected_claims(known.server(**fields)), fields)

    def test_running_server_holds_a_claim(self):
        self.assertExpected(Expected.CLAIM)

    def test_claim_of_an_unmapped_server_is_undecided(self):
        self.assertExpected(Expected.UNKNOWN, mapping=None)
        self.assertExpected(Expected.UNKNOWN, mapping=None, rows={})

    def test_server_in_build_may_hold_any_claim(self):
        for cell in None, CELL, CELL0:
            self.assertExpected(
                Expected.EITHER, mapping=known.mapped(cell), requested=True)

    def test_claim_of_a_server_in_two_cells_is_undecided(self):
        rows = {CELL: known.buried(), OTHER: known.row()}
        self.assertExpected(Expected.UNKNOWN, rows=rows)

        rows[OTHER] = known.row(deleted=True)
        self.assertExpected(Expected.NONE, rows=rows)

    def test_claim_of_a_server_in_a_silent_cell_is_undecided(self):
        self.assertExpected(Expected.UNKNOWN, unheard=frozenset([CELL]))
        self.assertExpected(Expected.CLAIM, unheard=frozenset([OTHER]))

    def test_deleted_server_in_no_cell_holds_no_claim(self):
        for cell in None, CELL:
            for deleted, expected in ((True, Expected.NONE),
                                      (False, Expected.UNKNOWN)):
                self.assertExpected(expected, rows={},
                                    mapping=known.mapped(cell, deleted))

    def test_buried_server_holds_no_claim(self):
        for rows in {}, {CELL0: known.buried()}:
            self.assertExpected(
                Expected.NONE, mapping=known.mapped(CELL0), rows=rows)

    def test_state_of_a_row_determines_the_expected_claim(self):
        for expected, row in (
                (Expected.NONE, known.row(deleted=True)),
                (Expected.NONE, known.row(deleted=True,
                                          task_state='deleting')),
                (Expected.EITHER, known.row(task_state='deleting')),
                (Expected.NONE, known.buried()),
                (Expected.EITHER, known.buried(host='host1')),
                (Expected.EITHER, known.buried(task_state='rebuilding')),
                (Expected.EITHER, known.buried(moving=True)),
                (Expected.NONE, known.buried(vm_state='shelved_offloaded')),
                (Expected.EITHER, known.buried(vm_state='shelved_offloaded',
                                               task_state='spawning')),
                (Expected.CLAIM, known.row()),
                (Expected.CLAIM, known.unrun()),
                (Expected.CLAIM, known.row(task_state='spawning')),
                (Expected.EITHER, known.unrun(task_state=None)),
                (Expected.EITHER, known.unrun(task_state='spawning'))):
            self.assertIs(expected, checks.expected_in_cell(row), row)
            self.assertExpected(expected, rows={CELL: row})


class TestMoveLeaks(base.TestCase):

    def assertLeaks(self, expected, **fields):
        facts = known.server(**{'moved': known.claims('node2'), **fields})
        self.assertIs(expected, checks.move_leaks(
            facts, checks.expected_claims(facts)), fields)

    def test_claim_off_the_host_leaks_without_a_move(self):
        self.assertLeaks(True)
        self.assertLeaks(False, moved=[])

    def test_claim_stays_where_the_server_is_moved(self):
        for fields in {'moving': True}, {'task_state': 'resize_prep'}:
            self.assertLeaks(False, rows={CELL: known.row(**fields)})
            self.assertLeaks(True, rows={
                CELL: known.row(deleted=True, **fields)})

    def test_claim_of_a_migration_of_a_deleted_server_leaks(self):
        self.assertLeaks(
            True, mapping=known.mapped(deleted=True), rows={})
        self.assertLeaks(
            True, mapping=known.mapped(None, deleted=True), rows={})

    def test_undecided_claim_stays(self):
        self.assertLeaks(False, mapping=None)
        self.assertLeaks(False, requested=True)
        self.assertLeaks(False, unheard=frozenset([CELL]))


class TestClaims(TestCase):

    check = staticmethod(checks.check_claims)

    def assertFinds(self, *expected, **fields):
        """Check findings: kind, action, and words of text and advice."""
        super().assertFinds(*(
            (kind, CELL, *more) for kind, *more in expected), **fields)

    def test_server_with_its_claim_has_no_finding(self):
        self.assertFinds()
        self.assertFinds(size=None)
        self.assertFinds(size=state.MISSING)

    def test_leaks_name_the_nodes(self):
        self.assertFinds(
            ('claim-leaked', Action.RELEASE, 'claim on node3', ''),
            ('move-claim-leaked', Action.RELEASE_MOVE, 'claim on node2', ''),
            rows={CELL: known.buried()},
            claims=known.claims('node3', 'node4'),
            moved=known.claims('node2', 'node4'))

    def test_server_rightly_without_a_claim_has_no_finding(self):
        self.assertFinds(rows={CELL: known.buried()}, claims=[])

    def test_server_without_a_claim_claims_on_its_node(self):
        self.assertFinds(
            ('unclaimed', Action.CLAIM, 'holds no claim', ''), claims=[])
        self.assertFinds(
            ('unclaimed', None, 'holds no claim', 'its provider is not known'),
            claims=[], rows={CELL: known.row(provider=None)})
        self.assertFinds(
            claims=[], moved=known.claims('node2'),
            rows={CELL: known.row(moving=True)})

    def test_server_without_resources_has_no_finding(self):
        self.assertFinds(claims=[], size=state.ServerSize({}))
        self.assertFinds(
            ('unclaimed', Action.CLAIM, '', ''), claims=[],
            size=state.MISSING)

    def test_claim_elsewhere_is_reported_with_the_nodes(self):
        for size, action, advice in (
                (state.ServerSize(known.SIZE), Action.RECLAIM, ''),
                (None, Action.RECLAIM, ''),
                (state.MISSING, None, 'specification is missing')):
            self.assertFinds(
                ('claim-elsewhere', action,
                 'is on node1, and holds a claim on node2, node3', advice),
                claims=known.claims('node3', 'node2'), size=size)

    def test_second_claim_is_reported_with_the_nodes(self):
        for size, action, advice in (
                (state.ServerSize(known.SIZE), Action.RECLAIM, ''),
                (state.MISSING, None, 'specification is missing')):
            self.assertFinds(
                ('claim-second', action,
                 'is on node1, and holds a claim on node2, node3 too',
                 advice),
                claims=known.claims('node3', 'node1', 'node2'), size=size)

    def test_claim_of_another_amount_is_reported_with_the_amounts(self):
        self.assertFinds(
            ('claim-amount', Action.RECLAIM,
             'needs 512 MEMORY_MB, 1 VCPU, and holds a claim of '
             '10 DISK_GB, 2 VCPU', ''),
            claims=known.claims('node1', VCPU=2, DISK_GB=10))

    def test_claims_on_children_and_shared_providers_are_right(self):
        rows = {CELL: known.row(
            children=frozenset({'gpu0', 'gpu1'}))}
        size = state.ServerSize({'VCPU': 1}, grouped={'VGPU': 2})
        root = known.claims('node1', VCPU=1)
        for more in (known.claims('gpu0', VGPU=2),
                     known.claims('gpu0', 'gpu1', VGPU=1),
                     known.claims('gpu1', 'pool', VGPU=1)):
            self.assertFinds(rows=rows, size=size, claims=root + more,
                             shared=frozenset({'pool', 'other'}))
        # Nothing of it need be of the node itself.
        self.assertFinds(rows=rows, claims=known.claims('gpu0'))

    def test_amounts_of_all_providers_are_added_up(self):
        rows = {CELL: known.row(children=frozenset({'gpu0'}))}
        for size, action, advice in (
                (state.ServerSize({'VCPU': 1, 'VGPU': 2}), Action.RECLAIM,
                 ''),
                (state.ServerSize({'VCPU': 1}, grouped={'VGPU': 2}), None,
                 'migrate it')):
            self.assertFinds(
                ('claim-amount', action, 'needs 1 VCPU, 2 VGPU, and holds a '
                 'claim of 1 VCPU, 1 VGPU', advice), rows=rows, size=size,
                claims=known.claims('node1', VCPU=1)
                + known.claims('gpu0', VGPU=1))

    def test_claim_on_another_nodes_child_is_elsewhere(self):
        rows = {CELL: known.row(children=frozenset({'gpu0'}))}
        grouped = state.ServerSize({'VCPU': 1}, grouped={'VGPU': 1})
        self.assertFinds(
            ('claim-elsewhere', Action.RECLAIM, 'a claim on gpu9', ''),
            rows=rows, claims=known.claims('gpu9'))
        self.assertFinds(
            ('claim-elsewhere', None, 'a claim on gpu9',
             'only a scheduler chooses'),
            rows=rows, claims=known.claims('gpu9', VGPU=1), size=grouped)
        self.assertFinds(
            ('claim-second', None, 'holds a claim on gpu9 too',
             'only a scheduler chooses'), rows=rows, size=grouped,
            claims=known.claims('gpu9', 'node1', VCPU=1))

    def test_claim_on_a_shared_provider_does_not_locate_a_server(self):
        shared = frozenset({'pool'})
        self.assertFinds(
            ('claim-elsewhere', Action.RECLAIM, 'holds no claim there', ''),
            claims=known.claims('pool', DISK_GB=1), shared=shared)
        self.assertFinds(claims=known.claims('pool'), shared=shared)

    def test_right_claim_stays_after_the_release_of_a_wrong_claim(self):
        self.assertFinds(
            ('claim-second', Action.RECLAIM, 'holds a claim on gpu9 too', ''),
            rows={CELL: known.row(children=frozenset({'gpu0'}))},
            size=state.ServerSize({'VCPU': 1}, grouped={'VGPU': 1}),
            claims=known.claims('node1', VCPU=1)
            + known.claims('gpu0', 'gpu9', VGPU=1))

    def test_groups_are_not_claimed_anew(self):
        self.assertFinds(
            ('unclaimed', None, 'holds no claim',
             'choose'), claims=[],
            size=state.ServerSize({}, grouped={'VGPU': 1}))

    def test_changing_server_holds_its_claim_on_any_host(self):
        for fields in ({'provider': None}, {'task_state': 'resize_prep'},
                       {'moving': True}, {'vm_state': None},
                       {'vm_state': 'building'}):
            self.assertFinds(
                claims=known.claims('node2'),
                rows={CELL: known.row(**fields)})
        self.assertFinds(
            ('move-claim-leaked', Action.RELEASE_MOVE, 'node3', ''),
            claims=known.claims('node2'), moved=known.claims('node3'))

    def test_server_without_a_known_host_has_no_finding(self):
        self.assertFinds(mapping=None, claims=[])
        self.assertFinds(unheard=frozenset([CELL]),
                         moved=known.claims('node2'))
        self.assertFinds(mapping=known.mapped(None), rows={})


PREPARING = audit_queries.MoveRow(server_moves.MIGRATION, 'preparing')
MOVED = audit_queries.MoveRow(server_moves.MIGRATION, server_moves.MOVED)


class TestTasks(TestCase):

    check = staticmethod(checks.check_tasks)

    def assertFinds(self, kind=None, *expected, row, cell=CELL, **fields):
        """Check for a finding: kind, action, words of text and advice."""
        super().assertFinds(*([(kind, CELL, *expected)] if kind else []), **{
            'mapping': known.mapped(cell), 'rows': {cell: row}, **fields})

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
        self.assertFinds(row=stranded, mapping=known.mapped(OTHER))
        self.assertFinds(row=stranded, cell=CELL0)
        self.assertFinds(row=stranded, requested=True)
        self.assertFinds(row=known.row(
            task_state='resize_prep', deleted=True))

    def test_server_in_no_state_has_no_task_to_take_back(self):
        self.assertIsNone(checks.reverting(known.row(vm_state=None)))
        self.assertIsNone(checks.reverting(known.row()))
        self.assertEqual(
            ('revert_migrate', 'migration'),
            checks.reverting(known.row(task_state='resize_prep')))
