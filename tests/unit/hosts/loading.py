# SPDX-License-Identifier: Apache-2.0
"""A host table that is read from a small deployment."""

import sqlalchemy as sa

from tests.unit import base
from tests.unit.hosts import world


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
        if column in ('cell', 'availability_zone'):
            return table.text(column, int(value))
        return value

    def change(self, cell, table, host, **values):
        with self.world.writer(cell) as connection:
            connection.execute(
                sa.update(table).where(table.c.host == host).values(**values))
