# SPDX-License-Identifier: Apache-2.0
"""A database of claims for a test."""

import pathlib

from cellsched.claims import base as claims
from cellsched.claims import sql
from cellsched.claims.sql import schema
from cellsched import clock
from cellsched.db import session
from cellsched.standalone import sqlite_template
from tests.unit import base


class TestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = pathlib.Path(self.temporary_directory(), 'claims.db')
        self.url = f'sqlite:///{self.path}'

    def make_database(self, synced=True):
        if synced and not self.path.exists():
            self.path.write_bytes(sqlite_template.content(schema.SCHEMA))
        database = session.Database(
            self.url, 'claims', {'sqlite_synchronous': False},
            clock=clock.Clock())
        self.addCleanup(database.close)
        return database


class StoreTestCase(TestCase):
    """A test with a store on a database."""

    def setUp(self):
        super().setUp()
        self.database = self.make_database()
        self.store = sql.SQLClaims(self.database)

    def provide(self, *providers, **totals):
        """Set the inventories of providers; they have 8 CPUs by default."""
        for provider in providers:
            self.store.set_inventory(provider, {
                resource: claims.Inventory(total)
                for resource, total in (totals or {'VCPU': 8}).items()})
