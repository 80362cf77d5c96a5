# SPDX-License-Identifier: Apache-2.0
"""Texts of findings about providers and hosts."""

from cellsched.audit import checks
from cellsched.audit import findings
from cellsched.claims import base as claims_base
from cellsched.db.api import aggregates
from cellsched.db.api import host_mappings
from cellsched.db.api import shared_providers
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import instances
from cellsched.db.cell import on_host
from cellsched.db.cell import services
from cellsched.hardware import units
from cellsched.objects import child_providers
from tests.unit.audit import base
from tests.unit.db import samples


class TestProviders(base.TestCase):

    def found(self):
        return list(checks.check_providers(self.reader, self.claims))

    def put(self, provider, **amounts):
        self.claims.set_inventory(provider, {
            name: claims_base.Inventory(amount)
            for name, amount in amounts.items()})

    def test_wrong_capacity_is_reported_with_host_and_figures(self):
        host = self.providers['b1']
        self.put(host, VCPU=6, MEMORY_MB=2048, DISK_GB=40)

        [found] = self.found()

        self.assertEqual(
            ('wrong-capacity:VCPU', host, 'cell2', findings.Action.RECOUNT,
             'is b1, which offers 4 of VCPU, and the claim store has 6'),
            (found.kind, found.of, self.cell_of(found), found.action,
             found.text))

    def test_capacity_may_be_a_little_off(self):
        for vcpus, expected in ((2, 1), (3, 0), (5, 0), (6, 1)):
            self.put(self.providers['a1'], VCPU=vcpus, MEMORY_MB=2048,
                     DISK_GB=40)

            self.assertEqual(expected, len(self.found()), vcpus)

    def test_large_capacity_may_be_off_by_a_share(self):
        self.write(self.cell('cell1'), compute_nodes.save, '', 'a1',
                   'node-a1', {'memory_mb': 1_000_000}, samples.NOW)
        for off, expected in ((-11, 1), (-10, 0), (10, 0), (11, 1)):
            self.put(self.providers['a1'], VCPU=4,
                     MEMORY_MB=1_000_000 + off, DISK_GB=40)

            self.assertEqual(expected, len(self.found()), off)

    def test_provider_missing_in_the_store_is_empty(self):
        self.put(self.providers['a1'], VCPU=4, MEMORY_MB=2048)

        self.assertIn('offers 40 of DISK_GB, and the claim store has 0',
                      [each.text for each in self.found()][0])

    def test_children_and_shared_providers_are_known(self):
        child, pool, aggregate = samples.uuids(3)
        for name, provider in (('gpu0', child), ('pool', pool)):
            self.providers[name] = provider
            self.put(provider, VCPU=2)
            self.take(samples.uuids(1)[0], name, VCPU=1)
        self.assertEqual(
            {child, pool}, {each.of for each in self.found()})

        self.write(self.cell('cell2'), compute_nodes.save, '', 'b1',
                   'node-b1', {'providers': child_providers.dump([
                       child_providers.Child(child, 'gpu0')])}, samples.NOW)
        self.write(self.database, aggregates.create, aggregate, 'rack', [],
                   {}, samples.NOW)
        self.write(self.database, shared_providers.create,
                   shared_providers.SharedProvider(
                       pool, 'pool', aggregate,
                       inventories={'VCPU': claims_base.Inventory(2)}),
                   samples.NOW)
        self.reader.begin()

        self.assertEqual([], self.found())

    def test_unknown_provider_is_reported_with_its_claims(self):
        [lost] = samples.uuids(1)
        self.providers['gone'] = lost
        self.put(lost, VCPU=2)
        for uuid in samples.uuids(2):
            self.take(uuid, 'gone', VCPU=1)

        [found] = self.found()

        self.assertEqual(
            ('provider-unknown', lost, '', None),
            (found.kind, found.of, self.cell_of(found), found.action))
        self.assertIn('claims of 2 consumers', found.text)
        self.assertIn('let the agent of its host report', found.advice)

    def share(self, **amounts):
        """Share a provider in the API database only."""
        east, pool = samples.uuids(2)
        self.write(self.database, aggregates.create, east, 'east', [], {},
                   samples.NOW)
        self.write(self.database, shared_providers.create,
                   shared_providers.SharedProvider(
                       pool, 'pool', east, frozenset(), {
                           name: claims_base.Inventory(amount)
                           for name, amount in amounts.items()}),
                   samples.NOW)
        return pool

    def test_wrong_shared_capacity_is_reported_with_figures(self):
        pool = self.share(DISK_GB=100, CUSTOM_X=3)

        for has, expected in (
                (None, {'CUSTOM_X': (3, 0), 'DISK_GB': (100, 0)}),
                ({'DISK_GB': 101, 'CUSTOM_X': 3}, {'DISK_GB': (100, 101)}),
                ({'DISK_GB': 100, 'CUSTOM_X': 3, 'VCPU': 1},
                 {'VCPU': (0, 1)})):
            if has is not None:
                self.put(pool, **has)
            self.assertEqual({
                (f'wrong-capacity:{name}', pool, None,
                 f'is shared as pool, which has {shared} of {name}, and the '
                 f'claim store has {stored}')
                for name, (shared, stored) in expected.items()
            }, {(each.kind, each.of, each.action, each.text)
                for each in self.found()})
        self.assertEqual('cellsched provider set pool',
                         self.found()[0].advice)


class TestHosts(base.TestCase):

    def found(self):
        return [*checks.check_hosts(self.reader)]

    def forget_hosts(self):
        self.write(self.database, lambda connection: connection.execute(
            host_mappings.models.host_mappings.delete()))

    def test_never_mapped_hosts_are_no_finding(self):
        self.forget_hosts()

        self.assertEqual([], self.found())

    def test_unmapped_host_with_a_mapped_node_is_found(self):
        [other] = samples.uuids(1)
        self.write(self.cell('cell1'), compute_nodes.save, other, 'a1',
                   'node-other', samples.NODE, samples.NOW)
        self.write(self.cell('cell1'), compute_nodes.mark_mapped,
                   [self.providers['a1'], self.providers['a2']])
        self.forget_hosts()

        found = self.found()

        self.assertEqual(
            [('host-unmapped', host, 'cell1', None) for host in ('a1', 'a2')],
            [(each.kind, each.of, self.cell_of(each), each.action)
             for each in found])
        for each in found:
            self.assertIn('discover_hosts', each.advice)

    def test_host_elsewhere_is_reported_with_the_cells(self):
        self.add_host('cell2', 'a1')

        [found] = self.found()

        self.assertEqual(
            ('host-elsewhere', 'a1', 'cell2', None),
            (found.kind, found.of, self.cell_of(found), found.action))
        self.assertIn('mapped to cell1', found.text)
        self.assertIn('report to one of them', found.advice)

    def test_vanished_node_is_reported_without_capacity(self):
        uuid = self.providers['a1']
        self.claims.set_inventory(uuid, {})
        with self.cell('cell1').writer() as connection:
            held = compute_nodes.holder(connection, uuid)
            compute_nodes.mark_vanished(
                connection, held, samples.NOW, delete=False)

        [found] = self.found()

        self.assertEqual(('node-vanished', uuid, 'cell1'), (
            found.kind, found.of, self.cell_of(found)))
        self.assertIn('host a1', found.text)
        self.assertFalse(found.is_of_server)
        self.assertEqual([], list(checks.check_providers(
            self.reader, self.claims)))


class TestGuests(base.TestCase):

    def report(self, host, records=(), missing=(), misplaced=None):
        with self.cell('cell1').writer() as connection:
            services.report(connection, samples.uuids(1)[0], host,
                            services.COMPUTE, 'compute', samples.NOW)
            services.set_guests(connection, host, on_host.dump(
                records, missing, samples.NOW, misplaced))

    def found(self):
        return [(each.kind, each.of, self.cell_of(each), each.action)
                for each in checks.check_guests(self.reader)]

    def put(self, host, **values):
        [uuid] = samples.uuids(1)
        with self.cell('cell1').writer() as connection:
            instances.create(
                connection, [samples.instance(uuid)], samples.NOW)
            samples.put(connection, uuid, {'host': host, **values})
        return uuid

    def test_guests_without_rows_are_found_on_their_host(self):
        elsewhere, deleted = self.put('a2'), self.put('a2', deleted=1)
        [unknown] = samples.uuids(1)
        known = self.put('a1')
        self.report('a1', [
            on_host.GuestRecord(uuid, on_host.Fate.ELSEWHERE, 'a2')
            for uuid in (elsewhere, deleted, unknown, known)])

        # The row of the last one has changed since the report.
        self.assertEqual([
            ('guest-unexplained', uuid, 'cell1', None)
            for uuid in (elsewhere, deleted, unknown)], self.found())

    def test_guests_with_other_cpus_than_claimed_are_found(self):
        claims = {'right': [1], 'wrong': [3], 'none': [], 'gone': None,
                  'elsewhere': [3]}
        uuids = {name: self.put('a2' if name == 'elsewhere' else 'a1')
                 for name in claims}
        self.claims.set_inventory(self.providers['a1'], {
            name: claims_base.Inventory(4)
            for name in ('PCPU', units.cpu(1), units.cpu(3))})
        for name, cpus in claims.items():
            if cpus is not None:
                self.take(uuids[name], 'a1', PCPU=1, **{
                    units.cpu(cpu): 1 for cpu in cpus})
        self.report('a1', misplaced=dict.fromkeys(
            uuids.values(), {units.cpu(1): 1}))

        [found] = checks.check_guests(self.reader)

        self.assertEqual(
            ('claim-misplaced', uuids['wrong'], 'cell1', None,
             'uses CPU 1 on host a1, which its claim does not name'),
            (found.kind, found.of, self.cell_of(found), found.action,
             found.text))
        self.assertIn('migrate', found.advice)
        self.assertFalse(found.is_of_server)

    def test_rows_without_guests_are_found(self):
        here, moved = self.put('a1'), self.put('a2')
        self.report('a1', (), [here, moved])

        self.assertEqual(
            [('guest-missing', here, 'cell1', None)], self.found())
