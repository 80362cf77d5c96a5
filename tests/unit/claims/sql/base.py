# SPDX-License-Identifier: Apache-2.0
"""A database of claims for a test."""

import pathlib

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
