# SPDX-License-Identifier: Apache-2.0
"""A database of claims for a test."""

from cellsched.claims.sql import schema
from cellsched import clock
from cellsched.db import session
from tests.unit import base


class TestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.url = f'sqlite:///{self.temporary_directory()}/claims.db'

    def make_database(self, synced=True):
        database = session.Database(self.url, 'claims', clock=clock.Clock())
        self.addCleanup(database.close)
        if synced:
            schema.SCHEMA.sync(database)
        return database
