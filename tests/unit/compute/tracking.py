# SPDX-License-Identifier: Apache-2.0
"""A tracker with its cell, a claim store, and a driver that it asks."""

import json

from oslo_config import cfg
from oslo_utils import uuidutils
import sqlalchemy as sa

from cellsched.claims import memory
from cellsched.compute import host_name
from cellsched.compute import places
from cellsched.compute import progress
from cellsched.compute.provider_config import ProviderConfig
from cellsched.compute import tracker
from cellsched.conf import default
from cellsched.testing import clock
from cellsched.testing import databases
from cellsched.virt import base as virt
from tests.unit import base


class Driver:
    """Has the nodes that a test gives it."""

    supports_migration = False

    def __init__(self):
        self.found = {'node1': virt.NodeResources(4, 8192, 100, 'kind', 7)}

    def nodes(self):
        return self.found


class Claims(memory.MemoryClaims):
    """Counts what it is told."""

    said = 0
    failure = None

    def set_inventory(self, provider, inventory):
        if self.failure is not None:
            raise self.failure
        self.said += 1
        super().set_inventory(provider, inventory)


class TrackerTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.clock = clock.FakeClock()
        self.cell = self.useFixture(
            databases.CellDatabase(self.clock)).database
        self.claims = Claims()
        self.driver = Driver()
        self.outcomes = progress.Outcomes()

    def tracker(self, provider_config=None, new_uuid=None, name=None,
                state=None, places_=None, **options):
        conf = cfg.ConfigOpts()
        conf.register_opts(default.OPTS)
        conf([], default_config_files=[], default_config_dirs=[])
        for option, value in {'host': 'host1', **options}.items():
            conf.set_override(option, value)
        return tracker.Tracker(
            conf, self.cell, self.claims, self.driver, self.outcomes,
            new_uuid or uuidutils.generate_uuid,
            provider_config or ProviderConfig(None),
            name or host_name.HostName(conf.host, self.cell, self.clock, 60),
            state or host_name.StateFile(self.temporary_directory()),
            places_ or places.Places())

    def offer(self, **fields):
        """Let the driver have a node of 4 CPUs, 8 GB and 100 GB of disk."""
        self.driver.found = {'node1': virt.NodeResources(
            4, 8192, 100, **fields)}

    def provider_files(self, identification, **fields):
        """Return files of the operator with fields of a provider."""
        path = self.temporary_directory() / 'a.yaml'
        path.write_text(json.dumps({
            'meta': {'schema_version': '1.0'}, 'providers': [
                {'identification': identification, **fields}]}))
        return ProviderConfig(str(path.parent))

    def rows(self, table):
        with self.cell.reader() as connection:
            return connection.execute(
                sa.select(table).order_by(table.c.id)).all()
