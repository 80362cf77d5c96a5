# SPDX-License-Identifier: Apache-2.0
"""Claims in SQL databases, and the same writes with the drivers alone."""

import contextlib
import pathlib
import sqlite3
import sys
import tempfile
import zlib

import psycopg2
import pymysql
import sqlalchemy as sa

from cellsched.claims import sql
from cellsched.claims.sql import schema
from cellsched.db import session
from stores import base

# The test suite has the code to start the servers.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from tests.integration import mariadb  # noqa: E402
from tests.integration import servers  # noqa: E402

#: The plain statements, in which ``?`` is a parameter.
INSERT = ('INSERT INTO allocations (consumer, ordinal, provider, '
          'resource_class, amount, project_id, user_id) VALUES ')
TAKE = ('UPDATE inventories SET used = used + ? WHERE provider = ? '
        'AND resource_class = ? AND used + ? <= capacity')
GIVE_BACK = ('UPDATE inventories SET used = used - ? WHERE provider = ? '
             'AND resource_class = ?')
MOVE = 'UPDATE feed_lanes SET position = position + 1 WHERE lane = ?'
NOTE = ('UPDATE providers SET consumers = consumers + ?, lane = ?, position '
        '= (SELECT position FROM feed_lanes WHERE lane = ?) WHERE uuid = ?')
DELETE = 'DELETE FROM allocations WHERE consumer = ?'

#: Usage above the capacity, by the inventories and by the allocations.
OVERSOLD = """
    SELECT i.capacity, i.used, COALESCE(SUM(a.amount), 0)
    FROM inventories i LEFT JOIN allocations a
        ON a.provider = i.provider AND a.resource_class = i.resource_class
    GROUP BY i.provider, i.resource_class, i.capacity, i.used"""


class SQL(base.Kind):
    """Claims in a SQL database with a URL for SQLAlchemy."""

    #: The parameter marker of the driver.
    mark = '%s'

    def counting(self, parts):
        plain = sql.database(parts.conf, parts.databases)
        database = CountingDatabase(
            plain.url, plain.schema, plain.options, clock=parts.clock)
        return base.CountingClaims(
            sql.SQLClaims(database), database.begun)

    def address(self, url):
        return {'url': url, 'options': f'[claims]\nconnection = {url}\n'}

    def version(self, address):
        with contextlib.closing(self.connect(address)) as connection:
            cursor = connection.cursor()
            cursor.execute(self.ask_version)
            [text] = cursor.fetchone()
        return f'{self.label} {text.partition("-")[0].partition(" ")[0]}'

    def plain(self, address):
        return Plain(self, address)

    @contextlib.contextmanager
    def observer(self, address):
        with contextlib.closing(self.connect(address)) as connection:
            def oversold():
                cursor = connection.cursor()
                cursor.execute(OVERSOLD)
                rows = cursor.fetchall()
                connection.rollback()
                return sum(max(used - capacity, int(amount) - capacity, 0)
                           for capacity, used, amount in rows)

            yield oversold


class PostgreSQL(SQL):

    label = 'PostgreSQL'
    ask_version = 'SHOW server_version'
    #: Errors for a transaction that lost to another one.
    losses = (psycopg2.errors.DeadlockDetected,
              psycopg2.errors.SerializationFailure)

    @contextlib.contextmanager
    def served(self):
        with servers.part_of(servers.PostgreSQL, durable=True) as part:
            yield self.address(servers.by_psycopg(part.url('claims')))

    def connect(self, address):
        return psycopg2.connect(
            address['url'].replace('postgresql+psycopg:', 'postgresql:'))

    def begin(self, cursor):
        """Do nothing: the driver begins with the first statement."""

    def settle(self, address):
        """Update the planner's statistics, as autovacuum does later."""
        with contextlib.closing(self.connect(address)) as connection:
            connection.autocommit = True
            connection.cursor().execute('VACUUM ANALYZE')


class MariaDB(SQL):

    label = 'MariaDB'
    ask_version = 'SELECT VERSION()'
    losses = (pymysql.err.OperationalError,)

    @contextlib.contextmanager
    def served(self):
        with servers.part_of(mariadb.MariaDB, durable=True) as part:
            yield self.address(part.url('claims'))

    def connect(self, address):
        url = sa.engine.make_url(address['url'])
        return pymysql.connect(
            host=url.host, port=url.port, user=url.username,
            password=url.password, database=url.database)

    begin = PostgreSQL.begin


class SQLite(SQL):

    label = 'SQLite'
    ask_version = 'SELECT sqlite_version()'
    mark = '?'
    losses = ()

    @contextlib.contextmanager
    def served(self):
        with tempfile.TemporaryDirectory() as directory:
            yield self.address(f'sqlite:///{directory}/claims')

    def connect(self, address):
        connection = sqlite3.connect(
            address['url'].removeprefix('sqlite:///'), timeout=60,
            isolation_level=None)
        # As in the store: each commit writes the log to the disk.
        connection.execute('PRAGMA synchronous = FULL')
        return connection

    def begin(self, cursor):
        cursor.execute('BEGIN IMMEDIATE')


class CountingDatabase(session.Database):
    """A database that counts writing transactions."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        # A list, because threads can append at the same time.
        self._begun = []

    def writer(self):
        self._begun.append(None)
        return super().writer()

    def reader(self):
        # The base class calls each_alone(), which counts in this class.
        return super().each_alone()

    def each_alone(self):
        self._begun.append(None)
        return super().each_alone()

    def begun(self):
        """Return the number of writing transactions."""
        return len(self._begun)


class Plain(base.Plain):
    """One statement after the other, in one transaction."""

    def __init__(self, kind, address):
        super().__init__()
        self._kind = kind
        self._connection = kind.connect(address)
        self._cursor = self._connection.cursor()

    def claim(self, takes):
        while True:
            try:
                self._kind.begin(self._cursor)
                for take in takes:
                    self._take(take)
                self._connection.commit()
                return
            except self._kind.losses:
                self._connection.rollback()
                self.lost += 1
            except base.Refused:
                self._connection.rollback()
                raise

    def _take(self, take):
        lane = lane_of(take.consumer)
        rows = [(take.consumer, number, take.provider, name, amount,
                 None if number else base.PROJECT,
                 None if number else base.USER)
                for number, (name, amount) in enumerate(
                    take.resources.items())]
        self._execute(
            INSERT + ', '.join(['(?, ?, ?, ?, ?, ?, ?)'] * len(rows)),
            *(value for row in rows for value in row))
        for name, amount in take.resources.items():
            self._execute(TAKE, amount, take.provider, name, amount)
            if not self._cursor.rowcount:
                raise base.Refused()
        self._execute(MOVE, lane)
        self._execute(NOTE, 1, lane, lane, take.provider)

    def release(self, takes):
        self._kind.begin(self._cursor)
        for take in sorted(takes, key=lambda take: take.provider):
            self._execute(DELETE, take.consumer)
            for name, amount in take.resources.items():
                self._execute(GIVE_BACK, amount, take.provider, name)
            self._execute(NOTE, -1, 0, 0, take.provider)
        self._connection.commit()

    def close(self):
        self._connection.close()

    def _execute(self, statement, *values):
        self._cursor.execute(
            statement.replace('?', self._kind.mark), values)


def lane_of(consumer):
    """Return the feed lane that the store would advance."""
    return zlib.crc32(consumer.encode()) % schema.LANES
