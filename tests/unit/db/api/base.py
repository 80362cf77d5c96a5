# SPDX-License-Identifier: Apache-2.0
"""A test with an API database."""

from cellsched.testing import databases
from tests.unit import base


class TestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.database = self.make_database()

    def make_database(self):
        return self.useFixture(databases.APIDatabase()).database

    def write(self, query, *args, **kwargs):
        """Run a query in a transaction of its own."""
        with self.database.writer() as connection:
            return query(connection, *args, **kwargs)

    def read(self, query, *args, **kwargs):
        with self.database.reader() as connection:
            return query(connection, *args, **kwargs)
