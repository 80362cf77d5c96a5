# SPDX-License-Identifier: Apache-2.0
"""The claims that a server should hold, for each state."""

from cellsched.audit import checks
from cellsched.audit.checks import Expected
from cellsched.audit import findings
from cellsched.audit import state
from tests.unit.audit import known
from tests.unit import base

Action = findings.Action


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
        for cell in None, known.CELL, known.CELL0:
            self.assertExpected(
                Expected.EITHER, mapping=known.mapped(cell), requested=True)

    def test_claim_of_a_server_in_two_cells_is_undecided(self):
        rows = {known.CELL: known.buried(), known.OTHER: known.row()}
        self.assertExpected(Expected.UNKNOWN, rows=rows)

        rows[known.OTHER] = known.row(deleted=True)
        self.assertExpected(Expected.NONE, rows=rows)

    def test_claim_of_a_server_in_a_silent_cell_is_undecided(self):
        self.assertExpected(Expected.UNKNOWN, unheard=frozenset([known.CELL]))
        self.assertExpected(Expected.CLAIM, unheard=frozenset([known.OTHER]))

    def test_deleted_server_in_no_cell_holds_no_claim(self):
        for cell in None, known.CELL:
            for deleted, expected in ((True, Expected.NONE),
                                      (False, Expected.UNKNOWN)):
                self.assertExpected(expected, rows={},
                                    mapping=known.mapped(cell, deleted))

    def test_buried_server_holds_no_claim(self):
        for rows in {}, {known.CELL0: known.buried()}:
            self.assertExpected(
                Expected.NONE, mapping=known.mapped(known.CELL0), rows=rows)

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
            self.assertExpected(expected, rows={known.CELL: row})


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
            self.assertLeaks(False, rows={known.CELL: known.row(**fields)})
            self.assertLeaks(True, rows={
                known.CELL: known.row(deleted=True, **fields)})

    def test_claim_of_a_migration_of_a_deleted_server_leaks(self):
        self.assertLeaks(
            True, mapping=known.mapped(deleted=True), rows={})
        self.assertLeaks(
            True, mapping=known.mapped(None, deleted=True), rows={})

    def test_undecided_claim_stays(self):
        self.assertLeaks(False, mapping=None)
        self.assertLeaks(False, requested=True)
        self.assertLeaks(False, unheard=frozenset([known.CELL]))


class TestFindings(base.TestCase):

    def assertFinds(self, *expected, **fields):
        """Check findings: kind, action, and words of text and advice."""
        found = list(checks.check_claims(known.server(**fields)))

        self.assertEqual(
            [(kind, action) for kind, action, _, _ in expected],
            [(each.kind, each.action) for each in found])
        for each, (_, _, text, advice) in zip(found, expected):
            self.assertEqual(('server', 'cell1', known.CELL),
                             (each.of, each.cell, each.cell_uuid))
            self.assertIn(text, each.text)
            self.assertIn(advice, each.advice)

    def test_server_with_its_claim_has_no_finding(self):
        self.assertFinds()
        self.assertFinds(size=None)
        self.assertFinds(size=state.MISSING)

    def test_leaks_name_the_nodes(self):
        self.assertFinds(
            ('claim-leaked', Action.RELEASE, 'claim on node3', ''),
            ('move-claim-leaked', Action.RELEASE_MOVE, 'claim on node2', ''),
            rows={known.CELL: known.buried()},
            claims=known.claims('node3', 'node4'),
            moved=known.claims('node2', 'node4'))

    def test_server_rightly_without_a_claim_has_no_finding(self):
        self.assertFinds(rows={known.CELL: known.buried()}, claims=[])

    def test_server_without_a_claim_claims_on_its_node(self):
        self.assertFinds(
            ('unclaimed', Action.CLAIM, 'holds no claim', ''), claims=[])
        self.assertFinds(
            ('unclaimed', None, 'holds no claim', 'its provider is not known'),
            claims=[], rows={known.CELL: known.row(provider=None)})
        self.assertFinds(
            claims=[], moved=known.claims('node2'),
            rows={known.CELL: known.row(moving=True)})

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
        rows = {known.CELL: known.row(
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
        rows = {known.CELL: known.row(children=frozenset({'gpu0'}))}
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
        rows = {known.CELL: known.row(children=frozenset({'gpu0'}))}
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
            rows={known.CELL: known.row(children=frozenset({'gpu0'}))},
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
                rows={known.CELL: known.row(**fields)})
        self.assertFinds(
            ('move-claim-leaked', Action.RELEASE_MOVE, 'node3', ''),
            claims=known.claims('node2'), moved=known.claims('node3'))

    def test_server_without_a_known_host_has_no_finding(self):
        self.assertFinds(mapping=None, claims=[])
        self.assertFinds(unheard=frozenset([known.CELL]),
                         moved=known.claims('node2'))
        self.assertFinds(mapping=known.mapped(None), rows={})
