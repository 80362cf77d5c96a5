# SPDX-License-Identifier: Apache-2.0
"""Deleted servers are archived in all cells, whatever breaks it off."""

from concurrent import futures
import datetime

import sqlalchemy as sa

from cellsched.audit import archive
from cellsched.cells import gather
from cellsched.claims import base as claims_base
from cellsched.claims import memory
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.api import models as api_models
from cellsched.db.cell import hosts
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched.db.cell import services
from cellsched import exception
from cellsched import migrations
from tests.unit.cells import base
from tests.unit.db import samples
from tests.unit import racing

END = samples.LATER + datetime.timedelta(days=1)

PROVIDER = 'provider'


class TestArchiver(base.TestCase):

    def setUp(self):
        super().setUp()
        self.claims = memory.MemoryClaims()
        self.claims.set_inventory(
            PROVIDER, {'VCPU': claims_base.Inventory(100)})
        self.by_name = {'cell0': self.add_cell0(), **{
            name: self.add_cell(name) for name in ('cell1', 'cell2')}}
        self.archiver = self.make()

    def make(self):
        executor = futures.ThreadPoolExecutor(4)
        self.addCleanup(executor.shutdown)
        return archive.Archiver(
            self.database, self.cells, gather.Gatherer(
                executor, self.targets, self.clock, timeout_s=30), self.claims)

    def cell(self, name):
        return self.targets.database(self.by_name[name])

    def deleted(self, cell='cell1'):
        """Return a server that was built in a cell and is deleted."""
        uuid, = samples.uuids(1)
        samples.accept(self.database, [uuid])
        self.write(self.database, instance_mappings.decide, [uuid],
                   self.by_name[cell].id, samples.NOW)
        self.write(self.database, build_requests.delete, [uuid])
        self.write(self.database, instance_mappings.mark_deleted, [uuid],
                   samples.NOW)
        self.write(self.cell(cell), instances.create,
                   [samples.instance(uuid)], samples.NOW)
        self.write(self.cell(cell), instances.delete, uuid, samples.LATER)
        return uuid

    def archive(self, max_rows=1000, **options):
        return self.archiver.archive(
            self.archiver.cells(), END, max_rows, **options)

    def uuids(self, database, column):
        return set(self.read(database, lambda connection: connection.execute(
            sa.select(column)).scalars().all()))

    def there(self, cell='cell1'):
        return self.uuids(self.cell(cell), models.instances.c.uuid)

    def archived(self, cell='cell1'):
        return self.uuids(self.cell(cell),
                          models.SHADOWS[models.instances].c.uuid)

    def mapped(self):
        return self.uuids(self.database,
                          api_models.instance_mappings.c.instance_uuid)

    def test_every_cell_is_archived_and_the_servers_are_forgotten(self):
        made = {cell: self.deleted(cell) for cell in self.by_name}

        report = self.archive()

        for cell, uuid in made.items():
            self.assertEqual((set(), {uuid}), (
                self.there(cell), self.archived(cell)))
            self.assertEqual(1, report.rows[cell, 'instances'])
        self.assertEqual(set(), self.mapped())
        self.assertEqual(({}, set()), (report.failed, report.kept))
        self.assertEqual({}, self.archive().rows)

    def test_deleted_rows_without_a_server_are_archived(self):
        self.write(self.cell('cell2'), services.report, samples.uuids(1)[0],
                   'b1', services.COMPUTE, 'compute', samples.NOW)
        self.write(self.cell('cell2'), hosts.delete, 'b1', samples.LATER)

        self.assertEqual({('cell2', 'services'): 1}, self.archive().rows)

    def test_cell_may_be_named_by_its_database(self):
        for cell in self.by_name:
            self.deleted(cell)
        url = self.by_name['cell2'].database_connection

        self.archiver.archive(self.archiver.cells(url), END, 1000)

        self.assertEqual([1, 1, 0], [
            len(self.there(cell)) for cell in self.by_name])
        self.assertRaises(exception.ConfigurationInvalid,
                          self.archiver.cells, 'sqlite:////else')

    def test_number_of_archived_servers_respects_max_rows(self):
        for cell in ('cell1', 'cell1', 'cell2'):
            self.deleted(cell)

        report = self.archive(max_rows=1)

        self.assertEqual(2, len(self.mapped()))
        self.assertEqual(1, sum(
            count for (_, table), count in report.rows.items()
            if table == 'instances'))

    def test_servers_of_several_batches_go(self):
        uuids = {self.deleted() for _ in range(5)}
        told = []

        self.archive(max_rows=25, progress=told.append)

        self.assertEqual(uuids, self.archived())
        self.assertEqual([2, 4, 5], told)

    def test_progress_reaches_the_size(self):
        for cell in self.by_name:
            self.deleted(cell)
        told = []

        self.assertEqual(3, self.archiver.size(self.archiver.cells(), END))
        self.archive(progress=told.append)

        self.assertEqual(3, told[-1])
        self.assertEqual(sorted(told), told)

    def test_server_with_claims_stays_until_the_release(self):
        uuid, moved, other = (self.deleted() for _ in range(3))
        for name in (uuid, migrations.consumer(moved)):
            self.claims.claim([
                claims_base.Claim(name, PROVIDER, {'VCPU': 1})])

        self.assertEqual({uuid, moved}, self.archive().kept)

        self.assertEqual({uuid, moved}, self.there())
        self.assertEqual({uuid, moved}, self.mapped())
        self.assertEqual({other}, self.archived())
        self.claims.release([uuid, migrations.consumer(moved)])
        self.assertEqual(set(), self.archive().kept)
        self.assertEqual(set(), self.there())

    def test_server_with_a_build_request_stays(self):
        uuid = self.deleted()
        table = api_models.build_requests
        made, = samples.accept(self.database, samples.uuids(1))
        with self.database.writer() as connection:
            connection.execute(
                sa.update(table).where(table.c.instance_uuid == made.uuid)
                .values(instance_uuid=uuid))

        self.assertEqual({uuid}, self.archive().kept)

        self.assertEqual({uuid}, self.there())
        self.assertIn(uuid, self.mapped())

    def test_next_run_continues_an_interrupted_run(self):
        uuid = self.deleted()
        self.write(self.database, instance_mappings.forget, [uuid],
                   self.by_name['cell1'].id)

        self.archive()

        self.assertEqual((set(), {uuid}), (self.there(), self.archived()))

    def test_deleted_row_of_a_server_in_another_cell_goes_alone(self):
        uuid = self.deleted('cell1')
        table = api_models.instance_mappings
        with self.database.writer() as connection:
            connection.execute(sa.update(table).values(
                cell_id=self.by_name['cell2'].id, queued_for_delete=False))
        self.write(self.cell('cell2'), instances.create,
                   [samples.instance(uuid)], samples.NOW)

        self.archive()

        self.assertEqual({uuid}, self.mapped())
        self.assertEqual((set(), {uuid}), (
            self.there('cell1'), self.there('cell2')))

    def unplaced(self):
        """Return a server that was deleted before it had a cell."""
        uuid, = samples.uuids(1)
        samples.accept(self.database, [uuid])
        self.write(self.database, build_requests.delete, [uuid])
        self.write(self.database, instance_mappings.mark_deleted, [uuid],
                   samples.LATER)
        return uuid

    def test_servers_deleted_without_a_cell_are_forgotten(self):
        unplaced = {self.unplaced() for _ in range(3)}
        wanted, = samples.uuids(1)
        samples.accept(self.database, [wanted])

        self.archiver.archive(self.archiver.cells()[:2], END, 1000)
        self.archiver.archive(self.archiver.cells(), samples.LATER, 1000)
        self.assertEqual({*unplaced, wanted}, self.mapped())
        reports = [self.archive(max_rows=2) for _ in range(3)]

        self.assertEqual({wanted}, self.mapped())
        self.assertEqual(
            [{('API database', 'instance_mappings'): 2},
             {('API database', 'instance_mappings'): 1}, {}],
            [report.rows for report in reports])

    def test_unplaced_server_with_a_row_or_a_claim_is_kept(self):
        with_row, with_claim, other = (self.unplaced() for _ in range(3))
        self.write(self.cell('cell2'), instances.create,
                   [samples.instance(with_row)], samples.NOW)
        self.claims.claim([
            claims_base.Claim(with_claim, PROVIDER, {'VCPU': 1})])

        report = self.archive()

        self.assertEqual({with_row, with_claim}, report.kept)
        self.assertEqual({with_row, with_claim}, self.mapped())

    def test_server_without_a_cell_is_kept_while_a_cell_fails(self):
        uuid = self.unplaced()
        self.add_cell('broken', database_connection='sqlite:////no/where')
        self.cells.refresh()

        self.archive()

        self.assertEqual({uuid}, self.mapped())

    def test_concurrent_runs_archive_each_row_once(self):
        uuids = {self.deleted() for _ in range(20)}

        reports = racing.race(*[self.archive] * 3)

        self.assertEqual(uuids, self.archived())
        self.assertEqual(20, sum(
            report.rows['cell1', 'instances'] for report in reports))
        self.assertEqual(set(), self.there())

    def test_failed_cell_is_named_and_other_cells_continue(self):
        uuid = self.deleted('cell2')
        self.add_cell('broken', database_connection='sqlite:////no/where')
        self.cells.refresh()

        for done in (self.archive(),
                     self.archiver.purge(self.archiver.cells())):
            self.assertEqual({'broken'}, done.failed.keys())
            self.assertIn('cannot be reached', done.failed['broken'])
        self.assertNotIn(uuid, self.mapped())

    def test_purge_removes_archived_rows(self):
        for cell in self.by_name:
            self.deleted(cell)
        self.archive()

        kept = self.archiver.purge(self.archiver.cells(), samples.LATER)
        gone = self.archiver.purge(self.archiver.cells())

        self.assertEqual({}, kept.rows)
        self.assertEqual(
            {*self.by_name}, {cell for cell, _ in gone.rows})
        self.assertEqual([set()] * 3, [
            self.archived(cell) for cell in self.by_name])
