# SPDX-License-Identifier: Apache-2.0
"""Audits: two passes, repairs and a report; releases of leaked claims."""

import dataclasses
from unittest import mock

from cellsched.audit import auditor
from cellsched.audit import findings
from cellsched.audit import state
from cellsched.claims import base as claims_base
from cellsched.db.api import host_mappings
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import instances
from cellsched.db.cell import server_moves
from cellsched import exception
from cellsched import migrations
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
            self.mark_deleted(second)
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
        self.mark_deleted(last)
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
            ('cell-unreachable', cell, cell, None),
            (found.kind, found.of, found.cell_uuid, found.action))
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


class TestLeakedClaims(base.TestCase):

    def setUp(self):
        super().setUp()
        self.leaked = auditor.LeakedClaims(self.reader, self.repairs)

    def test_leaked_claims_go_at_the_second_look(self):
        uuids = [self.deleted(), self.failed(), self.failed('cell2')]
        for uuid in uuids[1:]:
            self.take(uuid, 'b1')
        running, accepted = self.running(), self.accept()
        self.take(accepted, 'a2')

        self.assertEqual(0, self.leaked.release_leaked())
        self.assertEqual({*uuids}, {*self.claims.claims_of(uuids)})
        self.assertEqual(3, self.leaked.release_leaked())

        self.assertEqual({running, accepted}, {*self.claims.consumers()})
        self.assertEqual(0, self.leaked.release_leaked())

    def test_interrupted_leak_of_a_claim_is_counted_anew(self):
        uuid = self.failed('cell1')
        self.take(uuid, 'a1')
        self.leaked.release_leaked()
        self.change_row(uuid, 'cell1', task_state='rebuilding')
        self.leaked.release_leaked()
        self.change_row(uuid, 'cell1', task_state=None)

        self.assertEqual(0, self.leaked.release_leaked())
        self.assertEqual(1, self.leaked.release_leaked())

    def test_foreign_claims_stay(self):
        rest = samples.uuids(3)
        for uuid in rest:
            self.take(uuid, 'a2')

        for _ in range(3):
            self.assertEqual(0, self.leaked.release_leaked())
        self.assertEqual({*rest}, {*self.claims.consumers()})

    def test_claims_of_a_down_cell_stay(self):
        self.deleted()
        self.take_down('cell1')

        for _ in range(3):
            self.assertEqual(0, self.leaked.release_leaked())

    def test_claims_of_ended_migrations_are_released(self):
        over, on = self.running(), self.running()
        self.take(self.move(over, status=server_moves.DONE), 'a2')
        self.take(self.move(on), 'a2')

        self.leaked.release_leaked()
        self.assertEqual(1, self.leaked.release_leaked())

        self.assertEqual(3, len(self.claims.consumers()))

    def test_withdrawn_claims_of_a_stopped_process_are_restored(self):
        lost, twice, gone = self.running(), self.running(), self.deleted()
        held = self.claims.claims_of([lost, twice])
        for uuid in (lost, twice, gone):
            self.claims.transfer(uuid, migrations.consumer(uuid))
        self.take(twice, 'a2')
        [foreign] = samples.uuids(1)
        self.take(foreign, 'a2')

        self.assertEqual(0, self.leaked.release_leaked())
        self.leaked.release_leaked()

        self.assertEqual({lost, twice, foreign}, {*self.claims.consumers()})
        self.assertEqual(held[lost][0].provider,
                         self.claims.claims_of([lost])[lost][0].provider)

    def test_servers_are_searched_for_a_new_consumer_only(self):
        reads = []
        pages = self.reader.pages
        self.reader.pages = lambda query: reads.append(query) or pages(query)
        self.running()
        for expected in (0, 1, 1, 2, 2):
            if expected > len(reads):
                self.take(*samples.uuids(1), 'a2')
            self.leaked.release_leaked()
            self.assertEqual(expected, len(reads))

    def test_claim_to_move_a_deleted_server_goes(self):
        uuid = self.deleted()
        self.claims.release([uuid])
        self.take(self.move(uuid, status=server_moves.DONE), 'a2')

        self.leaked.release_leaked()
        self.assertEqual(1, self.leaked.release_leaked())

        self.assertEqual([], self.claims.consumers())

    def test_failure_of_a_look_is_not_the_last(self):
        uuid = self.deleted()
        database, self.reader.database = self.reader.database, None
        self.leaked.run()
        self.reader.database = database

        self.leaked.run()
        self.leaked.run()

        self.assertEqual({}, self.claims.claims_of([uuid]))


class Unlisted:
    """A store that does not list its consumers."""

    def __init__(self, store):
        self.asked = []
        self.capabilities = store.capabilities - {
            claims_base.Capability.CONSUMER_LIST}
        self._store = store

    def __getattr__(self, name):
        return getattr(self._store, name)

    def consumers(self, after='', limit=1000):
        raise NotImplementedError()

    def consumers_of(self, provider):
        return [consumer for consumer, held in self._store.claims_of(
            self._store.consumers()).items()
            if any(claim.provider == provider for claim in held)]

    def claims_of(self, consumers):
        asked = list(consumers)
        self.asked += asked
        return self._store.claims_of(asked)


class TestLeakedClaimsOfNoList(TestLeakedClaims):

    def setUp(self):
        super().setUp()
        self.store = self.reader.claims = Unlisted(self.claims)

    def test_only_servers_with_claims_are_read(self):
        uuid, moved = self.running(), self.running()
        name = self.move(moved)
        self.take(name, 'a2')

        self.leaked.release_leaked()

        self.assertEqual({uuid, moved, name}, {*self.store.asked})


class TestFailingReleases(base.TestCase):

    def test_failed_release_does_not_stop_other_releases(self):
        uuids = [self.failed(cell) for cell in ('cell1', 'cell1', 'cell2')]
        for uuid in uuids:
            self.take(uuid, 'b1')
        release = self.claims.release
        for broken in uuids:
            leaked = auditor.LeakedClaims(self.reader, self.repairs)

            def fail(consumers, broken=broken):
                if broken in consumers:
                    raise exception.DatabaseUnreachable(
                        schema='claims', url='sqlite://', reason='as told')
                release(consumers)

            self.claims.release = fail
            leaked.release_leaked()
            self.assertEqual(
                len(self.claims.consumers()) - 1, leaked.release_leaked())

            self.assertEqual([broken], self.claims.consumers())
            self.assertIn(f'[instance: {broken}] Could not release the claim',
                          self.logs.output)
            self.claims.release = release
            self.assertEqual(
                [0, 1], [leaked.release_leaked() for _ in range(2)])
            for uuid in uuids:
                self.take(uuid, 'b1')
