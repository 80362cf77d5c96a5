# SPDX-License-Identifier: Apache-2.0
"""A host table that is read from a small deployment."""

import sqlalchemy as sa

from cellsched.db.api import models
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import services
from cellsched.hosts import columns
from tests.unit import base
from tests.unit.db import samples
from tests.unit.hosts import world

CODED = [column for column in columns.STANDARD
         if column.dtype == columns.CODED]


class LoaderTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.world = self.useFixture(world.World('cell1', 'cell2'))
        self.a1 = self.world.add_host('cell1', 'a1')
        self.b1 = self.world.add_host('cell2', 'b1', vcpus=4)
        self.loader = self.world.loader()

    def refresh(self, **options):
        self.world.clock.advance(1)
        self.assertTrue(self.loader.refresh(world.CONTEXT, **options))

    def names(self):
        return sorted(self.loader.table['host'])

    def value(self, host, column):
        table = self.loader.table
        value = table[column][table.row(self.world.providers[host])]
        if table.specs.get(column) in CODED:
            return table.encoding(column).values[value]
        return value

    def view(self):
        return self.loader.table.view(self.world.own_clock.timestamp())

    def available(self, host):
        return self.value(host, 'available:VCPU')

    def save(self, cell, host, **values):
        """Have an agent report its node."""
        with self.world.writer(cell) as connection:
            compute_nodes.save(
                connection, samples.uuids(1)[0], host, host,
                self.world.node_values(8, 8192, 100) | values,
                self.world.clock.now())

    def disable(self, cell, host):
        with self.world.writer(cell) as connection:
            services.set_disabled(
                connection, host, True, 'x', self.world.clock.now())

    def change(self, cell, table, host, **values):
        """Change rows as somebody does who knows of no feed."""
        with self.world.writer(cell) as connection:
            connection.execute(
                sa.update(table).where(table.c.host == host).values(**values))

    def map(self, cell, **values):
        """Change what the API database says of a cell."""
        cells = models.cell_mappings
        with self.world.database.writer() as connection:
            connection.execute(
                sa.update(cells).where(cells.c.name == cell).values(**values))
