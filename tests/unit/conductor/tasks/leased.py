# SPDX-License-Identifier: Apache-2.0
"""Builds that were leased and placed."""

import sqlalchemy as sa

from cellsched.conductor.tasks.build import Build
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.api import models
from tests.unit.conductor import base

ME, OTHER = 'me', 'other'


class StepTestCase(base.TestCase):

    def builds(self, hosts, owner=ME, **fields):
        """Return builds that were leased and placed, one on each host."""
        uuids = self.accept(len(hosts), **fields)
        leased = self.lease(uuids, owner)
        builds = [Build(entry.request, entry.spec, base.USER, owner)
                  for entry in leased]
        for build, host in zip(builds, hosts):
            build.selections = [self.selection(host)]
            build.cell = next(
                self.cells[cell] for cell, there in base.CELLS.items()
                if host in there)
        return builds

    def lease(self, uuids, owner):
        now = self.clock.timestamp()
        with self.database.writer() as connection:
            return build_requests.lease(
                connection, uuids, owner, now, now + base.LEASE_S)

    def leased_until(self, build):
        """Return seconds since the epoch."""
        table = models.build_requests
        with self.database.reader() as connection:
            return connection.execute(
                sa.select(table.c.lease_expires_at).where(
                    table.c.instance_uuid == build.uuid)).scalar_one()

    def decide(self, uuid, cell):
        with self.database.writer() as connection:
            instance_mappings.decide(
                connection, [uuid], self.cells[cell].id, self.clock.now())

    def do(self, step, builds):
        step.do(builds)

    def undo(self, step, builds):
        with self.database.writer() as connection:
            step.undo(connection, builds)
