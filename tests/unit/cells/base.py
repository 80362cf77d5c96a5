# SPDX-License-Identifier: Apache-2.0
"""A test with an API database, and cells with databases."""

import uuid

from oslo_config import cfg

from cellsched.cells import registry
from cellsched.cells import target
from cellsched import context
from cellsched.db import session
from cellsched import objects
from cellsched.rpc import transport
from cellsched.testing import clock
from cellsched.testing import databases
from tests.unit import base
from tests.unit.db import samples


class TestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.clock = clock.FakeClock()
        self.context = context.RequestContext(
            user_id='user', project_id='project', overwrite=False)
        self.database = self.useFixture(
            databases.APIDatabase(self.clock)).database
        self.cells = registry.CellRegistry(self.database, self.clock, 60.0)
        self.world = uuid.uuid4().hex
        conf = cfg.ConfigOpts()
        self.transports = transport.Transports(conf)
        conf([], default_config_files=[], default_config_dirs=[])
        self.addCleanup(self.transports.close)
        opened = session.Databases(self.clock)
        self.addCleanup(opened.close)
        self.targets = target.Targets(opened, self.transports)

    def add_cell(self, name, **fields):
        """Map a cell that has a database, and return it."""
        fields = {
            'transport_url': f'local://{self.world}/{name}',
            'database_connection':
                self.useFixture(databases.CellDatabase()).url, **fields}
        return samples.map_cell(self.database, samples.cell(name, **fields))

    def add_cell0(self):
        return self.add_cell('cell0', uuid=objects.CELL0_UUID,
                             transport_url='none:///')

    def write(self, database, query, *args, **kwargs):
        with database.writer() as connection:
            return query(connection, *args, **kwargs)

    def read(self, database, query, *args, **kwargs):
        with database.reader() as connection:
            return query(connection, *args, **kwargs)
