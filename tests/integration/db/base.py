# SPDX-License-Identifier: Apache-2.0
"""Databases of this project on a real server."""

import sqlalchemy as sa

from cellsched.db import api
from cellsched.db import cell
from cellsched.db import session
from tests.integration import base
from tests.integration import servers


class TestCase(base.TestCase):
    """A test whose database is on PostgreSQL.

    The tests of a class share it; each finds it empty.
    """

    #: The schema of the database.
    schema = None

    #: More of what its driver is told.
    parameters = ''

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.database = session.Database(
            cls.by_driver(cls.part_of_class(servers.PostgreSQL).url(
                'database')),
            cls.schema.name, {'max_pool_size': 20,
                              'connection_parameters': cls.parameters})
        cls.addClassCleanup(cls.database.close)
        cls.schema.sync(cls.database)

    @staticmethod
    def by_driver(url):
        """Return the URL for the driver that the test is about."""
        return url

    def make_database(self):
        # Lanes of feeds are made once, by migrations.
        tables = ', '.join(name for name in self.schema.metadata.tables
                           if not name.endswith('_lanes'))
        with self.database.writer() as connection:
            connection.execute(sa.text(
                f'TRUNCATE {tables} RESTART IDENTITY CASCADE'))
        return self.database


class APITestCase(TestCase):

    schema = api.SCHEMA


class CellTestCase(TestCase):

    schema = cell.SCHEMA
