# SPDX-License-Identifier: Apache-2.0
"""The report of an audit: all findings, in order, and their repairs."""

from cellsched.audit import findings
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instances
from cellsched import exception
from tests.unit.audit import base
from tests.unit.db import samples


class TestReport(base.TestCase):

    def test_findings_come_in_the_order_of_invariants(self):
        self.offer('cell1', 'a1', 8)
        leaked = sorted(self.deleted() for _ in range(2))
        lost = self.accept()
        self.forget(lost)
        unexplained = self.failed('cell1', fault=False)
        self.claims._used[self.providers['a1']]['VCPU'] = 1

        report = self.audit()

        self.assertEqual(
            [('S1', self.providers['a1']), ('S13', unexplained), ('S2', lost),
             *(('S4', uuid) for uuid in leaked)],
            [(each.invariant, each.of) for each in report.remaining])
        self.assertEqual([], report.repaired)

    def test_findings_of_an_invariant_are_in_order_of_kinds(self):
        first, last = sorted(self.running('cell1', 'a1') for _ in range(2))
        self.claims.release([first])
        self.write(self.database, instance_mappings.mark_deleted, [last],
                   samples.NOW)
        self.write(self.cell('cell1'), instances.delete, last, samples.NOW)

        self.assertEqual(
            [('claim-leaked', last), ('unclaimed', first)],
            [(each.kind, each.of) for each in self.audit().remaining])

    def test_report_has_examples_of_foreign_consumers(self):
        self.offer('cell1', 'a2', 20)
        rest = sorted(samples.uuids(12))
        for uuid in rest:
            self.take(uuid, 'a2')

        report = self.audit()

        self.assertEqual((12, rest[:10]),
                         (report.foreign, report.examples))

    def test_foreign_consumers_of_a_single_pass_are_not_counted(self):
        self.deleted()
        stays, goes, comes = sorted(samples.uuids(3))
        self.take(stays, 'a2')
        self.take(goes, 'a2')

        def meanwhile():
            self.claims.release([goes])
            self.take(comes, 'a2')

        self.clock.meanwhile = meanwhile

        report = self.audit()

        self.assertEqual((1, [stays]), (report.foreign, report.examples))

    def test_down_cell_is_reported_with_advice(self):
        self.take_down('cell1')

        [found] = self.audit().remaining

        cell = self.by_name['cell1'].uuid
        self.assertEqual(
            ('cell-unreachable', cell, 'cell1', cell, None),
            (found.kind, found.of, found.cell, found.cell_uuid,
             found.action))
        self.assertIn('make its database available', found.advice)

    def test_size_is_the_total_of_the_progress(self):
        self.running()
        self.accept()
        self.failed()
        gone = self.deleted()
        self.claims.release([gone])

        # Four mappings, and the rows of two that are not deleted.
        self.assertEqual(6, self.auditor.size())


class TestRepairs(base.TestCase):

    def test_failed_repair_does_not_stop_other_repairs(self):
        uuids = sorted(self.deleted() for _ in range(3))
        release = self.claims.release
        for error in (KeyError('as told'), exception.DatabaseUnreachable(
                schema='claims', url='sqlite://', reason='as told')):
            for broken in uuids:
                def fail(consumers, broken=broken, error=error):
                    if broken in consumers:
                        raise error
                    release(consumers)

                self.claims.release = fail
                report = self.audit(fix=True)

                self.assertEqual(
                    ([broken], sorted({*uuids} - {broken})),
                    ([each.of for each in report.remaining],
                     [each.of for each in report.repaired]))
                self.assertIn(
                    f'[instance: {broken}] Could not repair claim-leaked',
                    self.logs.output)
                self.claims.release = release
                self.audit(fix=True)
                for uuid in uuids:
                    self.take(uuid, 'a1')

    def test_repair_continues_with_the_findings_after_a_repair(self):
        uuid = self.accept()
        self.put_row(uuid, 'cell1', vm_state='error', task_state=None)
        self.forget(uuid)
        self.take(uuid, 'a1')
        self.unmap(uuid)

        # It is mapped, its row goes, it is buried, its claim is released.
        report = self.audit(fix=True)

        self.assertEqual([], report.remaining)
        self.assertEqual(['row-unmapped'],
                         [each.kind for each in report.repaired])
        self.assertEqual({'cell0'}, self.rows(uuid))
        self.assertEqual({}, self.held(uuid))
        self.assertClean()


class TestFinding(base.base.base.TestCase):

    def test_repair_or_the_need_of_an_operator_is_reported(self):
        found = findings.Finding(
            'claim-leaked', 'server', '', action=findings.Action.RELEASE)
        self.assertEqual('release the claim', found.repair)
        found = findings.Finding('row-lost', 'server', '', advice='look.')
        self.assertEqual('none is safe: look.', found.repair)

    def test_findings_of_servers_differ_from_other_findings(self):
        for kind, expected in (
                ('claim-leaked', True), ('row-lost', True),
                ('task-stranded', True), ('no-reason', True),
                ('cell-unreachable', False), ('host-elsewhere', False),
                ('host-unmapped', False), ('miscounted:VCPU', False),
                ('provider-unknown', False)):
            found = findings.Finding(kind, 'of', '')
            self.assertEqual(expected, found.is_of_server, kind)
            self.assertEqual((kind, 'of', None), found.key)

    def test_invariant_of_a_kind_does_not_depend_on_its_resource(self):
        self.assertEqual('S1', findings.Finding(
            'over-capacity:CUSTOM:X', 'of', '').invariant)
        self.assertEqual('L1', findings.Finding(
            'move-stranded', 'of', '').invariant)
