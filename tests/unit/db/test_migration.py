# SPDX-License-Identifier: Apache-2.0
"""Schemas: their histories, brought up to date by alembic."""

from concurrent import futures
import itertools
import threading

import fixtures
import sqlalchemy as sa

from cellsched.claims.sql import schema as claims
from cellsched import clock
from cellsched.db import api
from cellsched.db import cell
from cellsched.db import migration
from cellsched.db.schema import Schema
from cellsched.db import session
from cellsched.db import tokens
from cellsched import exception
from tests.unit import base
from tests.unit.db import drift
from tests.unit.db import released

REVISION = '''
from alembic import op
import sqlalchemy as sa

revision = '{revision}'
down_revision = {previous!r}


def upgrade():
    op.create_table('{table}', sa.Column('id', sa.Integer()))
    {then}
'''

_packages = itertools.count()


class TestSchema(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_directory()
        self.useFixture(fixtures.PythonPathEntry(str(self.directory)))
        self.database = self.open('test.db')

    def open(self, name):
        database = session.Database(
            f'sqlite:///{self.directory}/{name}', 'claims',
            clock=clock.Clock())
        self.addCleanup(database.close)
        return database

    def make_schema(self, name='claims', tables=('one',), then='pass'):
        """Return a schema whose versions make a table each."""
        package = f'history{next(_packages)}'
        versions = self.directory / package / 'migrations' / 'versions'
        versions.mkdir(parents=True)
        (self.directory / package / '__init__.py').write_text('')
        (versions.parent / 'env.py').write_text(
            'from cellsched.db import migration\nmigration.run()\n')
        for previous, table in zip((None, *tables), tables):
            (versions / f'{table}_.py').write_text(REVISION.format(
                revision=f'{name}{table}', table=table,
                previous=previous and f'{name}{previous}',
                then=then if table == tables[-1] else 'pass'))
        return Schema(
            name, package, sa.MetaData(), f'{name}{tables[-1]}')

    def tables(self, database=None):
        with (database or self.database).reader() as connection:
            return set(sa.inspect(connection).get_table_names())

    def test_empty_database_has_no_version(self):
        self.assertIsNone(self.make_schema().version(self.database))
        self.assertEqual(set(), self.tables())

    def test_version_of_an_empty_database_needs_no_error(self):
        (self.directory / 'test.db').touch()
        failed = []
        sa.event.listen(
            self.database.engine, 'handle_error', failed.append)

        self.assertIsNone(self.make_schema().version(self.database))
        self.assertEqual([], failed)

    def test_check_creates_no_database(self):
        self.assertRaises(exception.SchemaOutOfDate,
                          self.make_schema().check, self.database)

        self.assertFalse((self.directory / 'test.db').exists())

    def test_sync_creates_the_tables(self):
        schema = self.make_schema(tables=('one', 'two'))

        schema.sync(self.database)

        self.assertEqual(
            {'one', 'two', 'alembic_version_claims'}, self.tables())
        self.assertEqual('claimstwo', schema.version(self.database))

    def test_sync_stops_at_a_version_and_continues(self):
        schema = self.make_schema(tables=('one', 'two', 'three'))

        schema.sync(self.database, 'claimstwo')

        self.assertEqual('claimstwo', schema.version(self.database))
        self.assertNotIn('three', self.tables())
        schema.sync(self.database)
        self.assertEqual('claimsthree', schema.version(self.database))

    def test_sync_does_not_downgrade(self):
        schema = self.make_schema(tables=('one', 'two'))
        schema.sync(self.database)

        schema.sync(self.database, 'claimsone')

        self.assertEqual('claimstwo', schema.version(self.database))

    def test_unknown_version_is_an_error_listing_versions(self):
        schema = self.make_schema(tables=('one', 'two'))

        for version in 'nothing', 'claimsone:claimstwo', '+1', '':
            error = self.assertRaises(
                exception.InvalidField, schema.sync, self.database, version)

            self.assertEqual('version', error.field)
            self.assertIn('claimstwo, claimsone', error.detail)
        self.assertEqual(set(), self.tables())

    def test_failed_version_keeps_the_previous_version(self):
        schema = self.make_schema(
            tables=('one', 'two'), then='raise KeyError("no")')

        self.assertRaises(KeyError, schema.sync, self.database)

        self.assertNotIn('two', self.tables())
        self.assertNotEqual('claimstwo', schema.version(self.database))

    def test_two_histories_share_a_database(self):
        own = self.make_schema()
        other = self.make_schema(name='API', tables=('two', 'three'))

        own.sync(self.database)
        other.sync(self.database)

        self.assertEqual('claimsone', own.version(self.database))
        self.assertEqual('APIthree', other.version(self.database))

    def test_threads_sync_databases_at_once(self):
        schemas = [self.make_schema(tables=('one', 'two')) for _ in range(6)]
        databases = [self.open(f'{number}.db') for number in range(6)]
        start = threading.Barrier(6)

        def sync(schema, database):
            start.wait()
            schema.sync(database)

        with futures.ThreadPoolExecutor(6) as threads:
            list(threads.map(sync, schemas, databases))

        for schema, database in zip(schemas, databases):
            self.assertEqual('claimstwo', schema.version(database))
            self.assertLessEqual({'one', 'two'}, self.tables(database))

    def test_error_for_an_old_database_names_the_sync_command(self):
        schema = self.make_schema(tables=('one', 'two'))

        error = self.assertRaises(
            exception.SchemaOutOfDate, schema.check, self.database)
        self.assertIn('version none, not claimstwo', str(error))
        schema.sync(self.database, 'claimsone')
        error = self.assertRaises(
            exception.SchemaOutOfDate, schema.check, self.database)

        self.assertIn('version claimsone, not claimstwo', str(error))
        self.assertIn('run: cellsched-manage claims_db sync', str(error))
        self.assertIn(f'{self.directory}/test.db', str(error))
        schema.sync(self.database)
        schema.check(self.database)

    def test_database_of_a_newer_release_is_refused(self):
        self.make_schema(tables=('one', 'two')).sync(self.database)
        schema = self.make_schema(tables=('one',))

        self.assertRaises(
            exception.SchemaOutOfDate, schema.check, self.database)
        error = self.assertRaises(
            exception.InvalidField, schema.sync, self.database)
        self.assertIn("unknown version 'claimstwo'", str(error))

    def test_head_of_each_schema_is_the_newest_of_its_history(self):
        for schema in (api.SCHEMA, cell.SCHEMA, claims.SCHEMA):
            self.assertEqual(
                migration.versions(schema.package)[0], schema.head)

    def test_path_may_contain_a_percent_sign(self):
        self.directory = self.directory / '100%'
        self.directory.mkdir()
        self.useFixture(fixtures.PythonPathEntry(str(self.directory)))
        schema = self.make_schema()

        schema.sync(self.database)

        self.assertEqual('claimsone', schema.version(self.database))


class TestReleased(base.TestCase):
    """A database of release 1.0 can be upgraded to every later release."""

    def open(self, name):
        database = session.Database(
            f'sqlite:///{self.temporary_directory()}/{name}.db',
            released.SCHEMAS[name].name, clock=clock.Clock())
        self.addCleanup(database.close)
        return database

    def test_upgrade_keeps_the_rows_and_creates_the_newest_tables(self):
        for name, schema in released.SCHEMAS.items():
            database = self.open(name)
            rows = released.create(database, name)
            self.assertEqual(rows, released.read(database, name))

            schema.sync(database)

            self.assertEqual(rows, released.read(database, name))
            self.assertEqual([], drift.differences(database, schema), name)
            schema.check(database)

    def test_sync_of_the_newest_version_only_reads(self):
        for name, schema in released.SCHEMAS.items():
            database = self.open(name)
            released.create(database, name)
            statements = self.recorded()

            schema.sync(database)

            self.assertNotEqual([], statements)
            self.assertEqual([], [
                each for each in statements
                if not each.lstrip().startswith(
                    ('BEGIN', 'SELECT', 'PRAGMA'))])

    def recorded(self):
        """Return a list that receives the statements of all engines."""
        statements = []

        def note(*args):
            statements.append(args[2])

        sa.event.listen(sa.Engine, 'before_cursor_execute', note)
        self.addCleanup(
            sa.event.remove, sa.Engine, 'before_cursor_execute', note)
        return statements

    def test_tokens_may_come_before_the_schema(self):
        for name in 'cell', 'claims':
            database = self.open(name)
            with database.writer() as connection:
                tokens.create(connection)

            released.SCHEMAS[name].sync(database)

            self.assertEqual([], drift.differences(
                database, released.SCHEMAS[name]))

    def test_first_revision_does_not_change(self):
        for name in released.SCHEMAS:
            self.assertEqual(
                released.REVISIONS[name],
                migration.versions(released.SCHEMAS[name].package)[-1])
            for dialect in released.DIALECTS:
                self.assertEqual(
                    released.stored(name, dialect),
                    [*released.statements(name, dialect)], (name, dialect))
