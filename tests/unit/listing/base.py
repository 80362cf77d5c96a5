# SPDX-License-Identifier: Apache-2.0
"""A test with servers in cells, and a listing of them."""

from concurrent import futures

from cellsched.cells import gather
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instances
from cellsched.listing import query
from cellsched.listing import servers as listing
from tests.unit.cells import base
from tests.unit.db import samples


class TestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cell0 = self.add_cell0()
        self.cell1 = self.add_cell('cell1')
        self.cell2 = self.add_cell('cell2')
        self.executor = futures.ThreadPoolExecutor(5)
        self.addCleanup(self.executor.shutdown)
        self.reader = self.make_reader(self.targets)

    def make_reader(self, targets, timeout_s=30, clock=None,
                    policy=listing.ListingPolicy()):
        gatherer = gather.Gatherer(
            self.executor, targets, clock or self.clock, timeout_s)
        return listing.ServerListing(
            self.database, self.cells, gatherer, policy)

    def accept(self, count=1, **fields):
        uuids = sorted(samples.uuids(count), reverse=True)
        samples.accept(self.database, uuids,
                       fields.get('created_at', samples.NOW), **fields)
        return uuids

    def put(self, cell, count=1, **fields):
        """Put servers into a cell; return their uuids."""
        uuids = self.accept(count, **fields)
        self.decide(cell, uuids)
        self.add_rows(cell, uuids, **fields)
        self.write(self.database, build_requests.delete, uuids)
        return uuids

    def decide(self, cell, uuids):
        self.write(self.database, instance_mappings.decide, uuids, cell.id,
                   samples.NOW)

    def add_rows(self, cell, uuids, **fields):
        self.write(
            self.targets.database(cell), instances.create,
            [samples.instance(uuid, **fields) for uuid in uuids], samples.NOW)

    def get(self, uuid):
        return self.reader.get(self.context, uuid)

    def list_all(self, limit=100, **options):
        context = options.get('context', self.context)
        return self.reader.list(context, query.ServerQuery(
            query.parse_filters({}, None if context.is_admin
                                else context.project_id), limit=limit))

    def listed(self, **options):
        return [found.uuid for found in self.list_all(**options).servers]

    def take_down(self, cell):
        samples.set_cell_url(self.database, cell.name)
        self.cells.refresh()
