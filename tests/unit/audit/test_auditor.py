# SPDX-License-Identifier: Apache-2.0

import dataclasses
from unittest import mock

from cellsched.audit import state
from cellsched.claims import base as claims_base
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_mappings
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import server_moves
from tests.unit.audit import base
from tests.unit.db import samples


class TestSettling(base.TestCase):

    def test_finding_gone_at_the_second_pass_is_not_reported(self):
        uuid = self.deleted()
        self.clock.meanwhile = lambda: self.claims.release([uuid])

        self.assertClean()
        self.assertEqual([base.SETTLE_S], self.clock.slept)

    def test_finding_new_at_the_second_pass_is_not_reported(self):
        first, second = self.deleted(), self.running('cell2', 'b1')

        def meanwhile():
            self.write(self.database, instance_mappings.mark_deleted,
                       [second], samples.NOW)
            self.offer('cell2', 'b1', 0)

        self.clock.meanwhile = meanwhile

        self.assertFound(('S4', 'claim-leaked', first, 'cell1'))


class TestCellsDown(base.TestCase):

    def test_down_cell_is_the_only_finding_about_its_servers(self):
        self.running()
        # A leak, which only the cell knows.
        self.take(self.failed('cell1'), 'a1')
        leaked = self.deleted('cell2', 'b1')
        self.take_down('cell1')
        cell = self.by_name['cell1'].uuid

        report = self.assertFound(
            ('S2', 'cell-unreachable', cell, 'cell1'),
            ('S4', 'claim-leaked', leaked, 'cell2'))
        self.assertIn('cannot be reached', report.remaining[0].text)

        self.assertFound(('S2', 'cell-unreachable', cell, 'cell1'), fix=True)

    def test_unmapped_server_is_not_buried_while_a_cell_is_down(self):
        uuid = self.accept()
        self.forget(uuid)
        self.take_down('cell2')

        self.assertFound(('S2', 'cell-unreachable',
                          self.by_name['cell2'].uuid, 'cell2'), fix=True)

        self.assertEqual(set(), self.rows(uuid))

    def test_down_cell0_is_a_finding(self):
        self.failed()
        self.take_down('cell0')

        self.assertFound(('S2', 'cell-unreachable',
                          self.by_name['cell0'].uuid, 'cell0'), fix=True)

    def test_recovered_cell_is_checked_by_the_next_audit(self):
        leaked = self.deleted()
        self.take_down('cell1')
        self.audit()
        self.bring_back('cell1')

        self.assertFound(('S4', 'claim-leaked', leaked, 'cell1'))

    def test_cell_recovered_at_the_second_pass_is_no_finding(self):
        self.take_down('cell1')
        self.clock.meanwhile = lambda: self.bring_back('cell1')

        self.assertClean()
        self.assertEqual([base.SETTLE_S], self.clock.slept)

    def test_cell_with_a_failure_during_the_audit_is_a_finding(self):
        uuid = self.deleted()
        self.clock.meanwhile = lambda: self.take_down('cell1')

        report = self.audit()

        self.assertEqual(
            {('cell-unreachable', self.by_name['cell1'].uuid)},
            {(each.kind, each.of) for each in report.remaining
             if each.of != uuid})

    def test_cell_with_a_failure_during_repairs_is_a_finding(self):
        [provider] = samples.uuids(1)
        self.claims.set_inventory(
            provider, {'VCPU': claims_base.Inventory(4)})
        self.deleted()
        release = self.claims.release

        def fail(consumers):
            release(consumers)
            self.take_down('cell2')

        with mock.patch.object(self.claims, 'release', fail):
            report = self.audit(fix=True)

        self.assertEqual(
            {('provider-unknown', provider),
             ('cell-unreachable', self.by_name['cell2'].uuid)},
            {(each.kind, each.of) for each in report.remaining})
        self.assertEqual(
            ['claim-leaked'], [each.kind for each in report.repaired])


class TestForeign(base.TestCase):

    def test_foreign_claims_are_counted_and_stay(self):
        self.running()
        rest = sorted(samples.uuids(3))
        for uuid in rest:
            self.take(uuid, 'a2')

        report = self.audit(fix=True)

        self.assertEqual(([], 3, rest),
                         (report.remaining, report.foreign, report.examples))
        self.assertEqual({*rest}, {*self.claims.claims_of(rest)})


class TestCapacity(base.TestCase):

    def test_release_of_leaked_claims_repairs_overcommit(self):
        uuid = self.deleted()
        host = self.providers['a1']
        self.offer('cell1', 'a1', 0)

        self.assertFound(
            ('S4', 'claim-leaked', uuid, 'cell1'),
            *(('S1', f'over-capacity:{name}', host, '')
              for name in base.SIZE))
        report = self.audit(fix=True)
        self.assertEqual(([], 4), (report.remaining, len(report.repaired)))


class TestFigures(base.TestCase):

    def test_wrong_counters_of_the_store_are_repaired(self):
        self.running()
        host = self.providers['a1']
        self.claims._used[host]['VCPU'] = 3
        self.claims._consumers[host] = 2

        self.assertMends(('S1', 'miscounted:VCPU', host, ''),
                         ('S1', 'miscounted-consumers', host, ''))

    def test_repair_of_figures_waits_for_no_server(self):
        host, uuid = self.providers['a1'], self.deleted()
        self.claims._used[host]['VCPU'] = 3

        self.assertMends(('S1', 'miscounted:VCPU', host, ''),
                         ('S4', 'claim-leaked', uuid, 'cell1'))


class TestProviders(base.TestCase):

    def test_capacity_other_than_the_nodes_is_found(self):
        host = self.providers['a1']
        self.claims.set_inventory(host, {
            'VCPU': claims_base.Inventory(6),
            'MEMORY_MB': claims_base.Inventory(2048),
            'DISK_GB': claims_base.Inventory(38),
            'CUSTOM_THING': claims_base.Inventory(7)})

        report = self.assertFound(
            ('S1', 'wrong-capacity:VCPU', host, 'cell1'),
            ('S1', 'wrong-capacity:DISK_GB', host, 'cell1'), fix=True)

        self.assertEqual([], report.repaired)

    def test_reserved_and_ratio_of_a_node_are_no_finding(self):
        self.write(self.cell('cell1'), compute_nodes.save, '', 'a1',
                   'node-a1', {'memory_mb_used': 48,
                               'ram_allocation_ratio': 1.5}, samples.NOW)
        self.claims.set_inventory(self.providers['a1'], {
            'VCPU': claims_base.Inventory(4),
            'MEMORY_MB': claims_base.Inventory(2048, 48, 1.5),
            'DISK_GB': claims_base.Inventory(40)})

        self.assertClean()

    def test_provider_without_a_node_stays(self):
        [lost, held] = samples.uuids(2)
        self.claims.set_inventory(lost, {'VCPU': claims_base.Inventory(4)})
        self.providers['gone'] = held
        self.claims.set_inventory(held, {'VCPU': claims_base.Inventory(1)})
        self.take(samples.uuids(1)[0], 'gone', VCPU=1)
        self.claims.set_inventory(held, {})

        self.assertKept(('S1', 'provider-unknown', lost, ''),
                        ('S1', 'provider-unknown', held, ''),
                        ('S1', 'over-capacity:VCPU', held, ''))

    def test_provider_without_inventories_is_no_finding(self):
        self.claims.set_inventory(samples.uuids(1)[0], {})

        self.assertClean()

    def test_unknown_provider_is_no_finding_while_a_cell_is_down(self):
        self.claims.set_inventory(
            samples.uuids(1)[0], {'VCPU': claims_base.Inventory(4)})
        self.take_down('cell1')

        self.assertFound(('S2', 'cell-unreachable',
                          self.by_name['cell1'].uuid, 'cell1'), fix=True)

    def test_host_added_during_the_audit_is_no_finding(self):
        [uuid] = samples.uuids(1)
        self.claims.set_inventory(uuid, {
            name: claims_base.Inventory(4 * amount)
            for name, amount in base.SIZE.items()})
        self.clock.meanwhile = lambda: self.write(
            self.cell('cell2'), compute_nodes.save, uuid, 'b2', 'node-b2', {
                **samples.NODE, 'vcpus': 4, 'memory_mb': 2048,
                'local_gb': 40, 'memory_mb_used': 0, 'local_gb_used': 0,
                'cpu_allocation_ratio': 1.0}, samples.NOW)

        self.assertClean()


class TestHosts(base.TestCase):

    def test_host_without_its_mapping_is_reported_only(self):
        self.write(self.cell('cell1'), compute_nodes.mark_mapped,
                   [self.providers['a1']])
        table = host_mappings.models.host_mappings
        self.write(self.database, lambda connection: connection.execute(
            table.delete()))

        # The others were never mapped, as far as their nodes say.
        self.assertKept(('S3', 'host-unmapped', 'a1', 'cell1'))

    def test_host_outside_its_mapped_cell_is_reported_only(self):
        self.add_host('cell2', 'a1')

        self.assertKept(('S3', 'host-elsewhere', 'a1', 'cell2'))


class TestStoreRecords(base.TestCase):

    def test_unreadable_record_is_reported_and_stays(self):
        uuid = self.running()
        provider = self.providers['a1']
        self.claims.problems = lambda: [claims_base.StoreProblem(
            f'p/{provider}', 'cannot be read', 'restore it', provider)]
        # Its counters are not known.
        self.claims.set_inventory(provider, {})

        report = self.assertFound(('S1', 'store-record', f'p/{provider}', ''),
                                  fix=True)

        self.assertEqual('none is safe: restore it',
                         report.remaining[0].repair)
        self.assertEqual([uuid], [*self.claims.claims_of([uuid])])

    def test_invalid_amounts_do_not_stop_the_audit(self):
        uuid, other = self.running(), self.running('cell2', 'b1')
        read, usages = self.claims.claims_of, self.claims.usages

        def claims_of(consumers):
            found = read(consumers)
            return {name: [dataclasses.replace(
                each, resources={'VCPU': 'junk'}) for each in claims]
                if name == uuid else claims for name, claims in found.items()}

        self.claims.claims_of = claims_of
        self.claims.usages = lambda *args, **kwargs: dataclasses.replace(
            usages(*args, **kwargs), usages=[
                dataclasses.replace(each, used={'VCPU': None})
                if each.provider == self.providers['a2'] else each
                for each in usages(*args, **kwargs).usages])

        found = {(each.kind, each.of) for each in self.audit().remaining}

        self.assertLessEqual({
            ('store-record', uuid),
            ('store-record', f'provider {self.providers["a2"]}')}, found)
        self.assertNotIn(other, [of for _, of in found])

    def test_inconsistent_record_is_repaired(self):
        problems = [claims_base.StoreProblem('g/1', 'has a member too many')]
        self.claims.problems = lambda: list(problems)
        self.claims.mend = problems.clear

        report = self.audit(fix=True)

        self.assertEqual((['g/1'], []), (
            [each.of for each in report.repaired], report.remaining))


class TestRun(base.TestCase):

    def test_only_reported_findings_are_repaired(self):
        uuid = self.deleted()
        name = self.move(uuid, status=server_moves.DONE)
        self.take(name, 'a2')
        [move] = [each for each in self.audit().remaining
                  if each.kind == 'move-claim-leaked']

        self.auditor._repair([move])

        self.assertEqual({uuid}, {*self.claims.claims_of([uuid, name])})

    def test_progress_goes_to_the_end(self):
        for _ in range(3):
            self.running()
        self.failed()
        reported = []

        self.auditor.run(0, progress=reported.append)

        self.assertEqual(sorted(reported), reported)
        self.assertEqual(self.auditor.size(), reported[-1])
        # It is told of the first pages, and not when all is over.
        self.assertIn(2, reported)

    def test_without_claims_the_rest_is_checked(self):
        reader = state.StateReader(
            self.database, self.cells, self.reader._gatherer, None)
        self.auditor._reader = reader
        self.deleted()
        uuid = self.failed('cell1', fault=False)

        self.assertFound(('S13', 'no-reason', uuid, 'cell1'))
