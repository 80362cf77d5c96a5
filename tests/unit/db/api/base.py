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

    def execute(self, *statement):
        """Execute a statement in a transaction of its own."""
        with self.database.writer() as connection:
            connection.execute(*statement)

    def fetch(self, statement):
        """Return the rows of a query."""
        with self.database.reader() as connection:
            return connection.execute(statement).all()
