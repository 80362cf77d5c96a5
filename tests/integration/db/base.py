# SPDX-License-Identifier: Apache-2.0
"""Databases of this project on a real server."""

import functools
import os

import sqlalchemy as sa

from cellsched import clock
from cellsched.db import api
from cellsched.db import cell
from cellsched.db import session
from tests.integration import base
from tests.integration import mariadb
from tests.integration import servers


@functools.cache
def shared_url(server, schema):
    """Return the URL of a database that has a schema, on a shared server.

    It is this process's: others share the server, too.
    """
    url = servers.shared(server).url(
        f'process_{os.getpid()}_{schema.name.lower()}')
    database = session.Database(url, schema.name, clock=clock.Clock())
    try:
        schema.sync(database)
    finally:
        database.close()
    return url


def empty_on_postgresql(connection, tables):
    """Remove all rows of tables; numbers of new ones begin at 1."""
    # TRUNCATE writes new files for each table and index, also for those that
    # are empty, which takes longer than most tests.
    statements = (
        'SET LOCAL session_replication_role = replica',
        *(f'DELETE FROM {table.name}' for table in tables),
        *(f"PERFORM setval(pg_get_serial_sequence('{table.name}', "
          f"'{table.autoincrement_column.name}'), 1, false)"
          for table in tables if table.autoincrement_column is not None))
    # A block is one statement; psycopg prepares no more than one.
    connection.execute(sa.text(
        f'DO $$ BEGIN {"; ".join(statements)}; END $$'))


def empty_on_mariadb(connection, tables):
    """Remove all rows of tables; numbers of new ones begin at 1."""
    # To truncate a table is to make it anew, so only those are truncated
    # that have had rows; of the others some have no number to tell by.
    numbered = set(connection.execute(sa.text(
        'SELECT table_name FROM information_schema.tables WHERE '
        'table_schema = DATABASE() AND auto_increment > 1')).scalars())
    connection.execute(sa.text('SET foreign_key_checks = OFF'))
    for table in tables:
        if table.name in numbered:
            connection.execute(sa.text(f'TRUNCATE {table.name}'))
        elif 'id' not in table.c:
            connection.execute(sa.delete(table))
    connection.execute(sa.text('SET foreign_key_checks = ON'))


class TestCase(base.TestCase):
    """A test whose database is on a real server.

    All tests of a schema share it; each finds it empty.
    """

    #: The schema of the database.
    schema = None

    #: The kind of the server.
    server = servers.PostgreSQL

    #: More of what its driver is told.
    parameters = ''

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.database = session.Database(
            cls.by_driver(base.installed(shared_url, cls.server, cls.schema)),
            cls.schema.name, {'max_pool_size': 20,
                              'connection_parameters': cls.parameters},
            clock=clock.Clock())
        cls.addClassCleanup(cls.database.close)

    @staticmethod
    def by_driver(url):
        """Return the URL for the driver that the test is about."""
        return url

    def make_database(self):
        # Lanes of feeds are made once, by migrations.
        tables = [table for table in self.schema.metadata.sorted_tables
                  if not table.name.endswith('_lanes')]
        with self.database.writer() as connection:
            self.empty(connection, tables)
        return self.database

    def empty(self, connection, tables):
        empty_on_postgresql(connection, tables)


class OnMariaDB:
    """Has a test that is otherwise on PostgreSQL on MariaDB."""

    server = mariadb.MariaDB

    def empty(self, connection, tables):
        empty_on_mariadb(connection, tables)


class APITestCase(TestCase):

    schema = api.SCHEMA


class CellTestCase(TestCase):

    schema = cell.SCHEMA
