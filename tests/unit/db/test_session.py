# SPDX-License-Identifier: Apache-2.0
"""Databases: opened once each, read and written through connections."""

from concurrent import futures
import contextlib
from importlib import metadata
import socket
import sqlite3
import sys
import threading
import types

from oslo_db import exception as db_exc
import sqlalchemy as sa

from cellsched import clock
from cellsched.conf import loader
from cellsched.db import session
from cellsched import exception
from cellsched.testing.clock import FakeClock
from tests.unit import base
from tests.unit.db import recording

THREADS = 8

METADATA = sa.MetaData()
THINGS = sa.Table('things', METADATA, sa.Column('name', sa.String(36)),
                  sa.UniqueConstraint('name', name='uniq_things0name'))


class DatabaseCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = self.temporary_directory() / 'test.db'
        self.database = self.open()
        with self.database.writer() as connection:
            METADATA.create_all(connection)

    def open(self, url=None, **options):
        database = session.Database(
            url or f'sqlite:///{self.path}', 'claims', options,
            clock=clock.Clock())
        self.addCleanup(database.close)
        return database

    def add(self, name, database=None):
        with (database or self.database).writer() as connection:
            connection.execute(sa.insert(THINGS).values(name=name))

    def names(self, database=None):
        with (database or self.database).reader() as connection:
            return sorted(connection.execute(sa.select(THINGS.c.name))
                          .scalars())


class TestDatabase(DatabaseCase):

    def test_writer_commits_at_the_end(self):
        with self.database.writer() as connection:
            connection.execute(sa.insert(THINGS).values(name='a'))
            for reader in self.database, self.open():
                self.assertEqual([], self.names(reader))

        self.assertEqual(['a'], self.names())

    def test_error_rolls_the_writer_back(self):
        # A connection that was used by a reader writes in a transaction, too.
        self.names()

        def write():
            with self.database.writer() as connection:
                connection.execute(sa.insert(THINGS).values(name='a'))
                raise KeyError('b')

        self.assertRaises(KeyError, write)

        self.assertEqual([], self.names())

    def test_broken_constraint_is_named(self):
        self.add('a')

        error = self.assertRaises(
            exception.ConstraintViolated, self.add, 'a')

        self.assertIn('things.name', error.reason)
        self.assertIsInstance(error.__cause__, db_exc.DBDuplicateEntry)
        self.add('b')

    def test_database_is_opened_at_first_use(self):
        database = self.open(f'sqlite:///{self.path}.new')
        self.assertFalse(self.path.with_name('test.db.new').exists())

        with database.reader():
            pass

        self.assertTrue(self.path.with_name('test.db.new').exists())

    def test_closed_database_opens_again(self):
        self.add('a')
        self.database.close()
        self.database.close()

        self.assertEqual(['a'], self.names())

    def test_statements_have_a_comment_if_configured(self):
        for wanted in True, False:
            database = self.open(connection_trace=wanted)
            with recording.recorded(database) as statements:
                self.names(database)

            self.assertEqual(
                wanted, f'-- {__name__}.names' in statements[0][0],
                statements)

    def test_repr_has_no_password(self):
        database = self.open('mysql+pymysql://me:p@ss:w/rd@there/claims')

        self.assertEqual(
            'Database(claims, mysql+pymysql://me:****@there/claims)',
            repr(database))


class TestURLs(base.TestCase):

    def test_missing_driver_is_named_with_its_extra(self):
        for url, module, extra in (
                ('postgresql+psycopg://me:s3cr3t@there/api', 'psycopg',
                 'postgresql'),
                ('postgresql+psycopg2://me:s3cr3t@there/api', 'psycopg2',
                 'psycopg2'),
                ('mysql+pymysql://me:s3cr3t@there/api', 'pymysql', 'mysql'),
                ('mariadb+pymysql://me:s3cr3t@there/api', 'pymysql',
                 'mysql')):
            with self.subTest(url=url), without(module):
                error = self.assertRaises(
                    exception.ConfigurationInvalid,
                    session.Databases(clock.Clock()).get, url, 'API')

                self.assertIn('of an installed driver; ', str(error))
                self.assertIn(f'cellsched[{extra}]', str(error))
                self.assertNotIn('s3cr3t', str(error))
                self.assertNotIn('\n', str(error))

    def test_several_hosts_belong_into_the_query(self):
        for backend, expected in (
                ('postgresql+psycopg', 'several as ?host=HOST:PORT'),
                ('mysql+pymysql', 'that of a proxy')):
            error = self.assertRaises(
                exception.ConfigurationInvalid,
                session.Databases(clock.Clock()).get,
                f'{backend}://me:s3cr3t@one:5432,two:5432/api', 'API')

            self.assertIn(expected, str(error))
            self.assertNotIn('s3cr3t', str(error))

    def test_wrong_parameter_is_refused_in_a_single_line(self):
        for url in (
                'mysql+pymysql://me:s3cr3t@127.0.0.1/x?nosuch=1',
                'mysql+pymysql://me:s3cr3t@127.0.0.1/x?charset=nosuch',
                'mysql+pymysql://me:s3cr3t@127.0.0.1/x?ssl_ca=/nosuch.pem',
                'mysql+pymysql://me:s3cr3t@/x?host=127.0.0.1&host=127.0.0.2',
                'postgresql+psycopg://me:s3cr3t@127.0.0.1/x?passwordd=x',
                'postgresql+psycopg://me:s3cr3t@127.0.0.1/x?'
                'connect_timeout=abc'):
            with self.subTest(url=url):
                database = session.Databases(clock.Clock()).get(url, 'API')

                error = self.assertRaises(
                    exception.ConfigurationInvalid, database.timestamp)

                self.assertEqual('API database connection', error.field)
                self.assertNotIn('s3cr3t', str(error))
                self.assertNotIn('\n', str(error))
        self.assertNotIn('Traceback', self.logs.output)

    def test_extras_are_defined_by_the_package(self):
        extras = metadata.metadata('cellsched').get_all('Provides-Extra')

        self.assertLessEqual({'mysql', 'postgresql', 'psycopg2'}, {*extras})


@contextlib.contextmanager
def without(module):
    """Have a module that is not installed, as far as imports can tell."""
    hidden = {name: sys.modules.pop(name) for name in list(sys.modules)
              if name.partition('.')[0] == module}
    sys.modules[module] = None
    try:
        yield
    finally:
        del sys.modules[module]
        sys.modules.update(hidden)


class TestErrors(DatabaseCase):

    def test_unreachable_database_is_named_without_its_password(self):
        with socket.socket() as taken:
            # Nobody listens here, and nobody else can.
            taken.bind(('127.0.0.1', 0))
            place = f'127.0.0.1:{taken.getsockname()[1]}'
            for driver in ('postgresql+psycopg2', 'postgresql+psycopg',
                           'mysql+pymysql'):
                database = self.open(
                    f'{driver}://me:s%40cret@{place}/claims',
                    retry_interval=0)
                for use in database.reader, database.writer:
                    error = self.assertRaises(
                        exception.DatabaseUnreachable, use().__enter__)

                    self.assertIn(f'{driver}://me:****@{place}', str(error))
                    self.assertIn('refused', str(error))
                    self.assertNotIn('s@cret', str(error))
                    self.assertNotIn('s%40cret', str(error))

    def test_database_file_in_no_directory_is_unreachable(self):
        database = self.open(
            f'sqlite:///{self.path}/none/test.db', retry_interval=0)

        error = self.assertRaises(
            exception.DatabaseUnreachable, self.names, database)

        self.assertIn('unable to open', str(error))

    def test_missing_table_without_a_command_is_a_plain_error(self):
        other = session.Database(
            f'sqlite:///{self.path}', 'records', clock=clock.Clock())
        self.addCleanup(other.close)
        with other.writer() as connection:
            METADATA.drop_all(connection)

        error = self.assertRaises(
            exception.DatabaseError, self.names, other)

        self.assertIs(exception.DatabaseError, type(error))

    def test_lost_write_is_repeated(self):
        for kind in exception.ConnectionLost, exception.TransactionLost:
            losses = [kind(schema='claims', url='there', reason='lost')] * 2

            def write(connection, name, losses=losses):
                if losses:
                    raise losses.pop()
                return name

            self.assertEqual('a', self.database.write(write, 'a'))
            self.assertEqual([], losses)

    def test_lost_write_fails_after_its_attempts(self):
        tries = []

        def lose(connection, kind):
            tries.append(kind)
            raise kind(schema='claims', url='there', reason='lost')

        for kind, times in (
                (exception.ConnectionLost, 3), (exception.TransactionLost, 3),
                (exception.DatabaseBusy, 1),
                (exception.DatabaseUnreachable, 1)):
            self.assertRaises(kind, self.database.write, lose, kind)
            self.assertEqual(times, tries.count(kind))

    def test_mistake_in_a_statement_has_its_cause(self):
        def mistake():
            with self.database.reader() as connection:
                connection.execute(sa.text('SELECT nothing FROM things'))

        error = self.assertRaises(exception.DatabaseError, mistake)

        self.assertIs(exception.DatabaseError, type(error))
        self.assertIsInstance(error.__cause__, sa.exc.OperationalError)

    def test_error_of_a_server_is_translated(self):
        def fail(error):
            with self.database.writer():
                raise error

        for error, expected in (
            (sa.exc.OperationalError('UPDATE', {}, Exception('disk full')),
             exception.DatabaseError),
            (sa.exc.InterfaceError('UPDATE', {}, Exception('odd')),
             exception.DatabaseError),
            (sa.exc.OperationalError(
                'UPDATE', {}, Exception('gone'), connection_invalidated=True),
             exception.ConnectionLost),
            # PostgreSQL may lose a serialization as late as at a commit.
            (sa.exc.OperationalError(
                'UPDATE', {}, types.SimpleNamespace(sqlstate='40001')),
             exception.TransactionLost),
            (sa.exc.OperationalError(
                'UPDATE', {}, types.SimpleNamespace(args=(1205, 'waited'))),
             exception.DatabaseBusy),
            # As a driver raises them, for example when autocommit is set.
            (sqlite3.InterfaceError('closed'), exception.ConnectionLost),
            (sqlite3.OperationalError('gone'), exception.ConnectionLost),
            (KeyError(1205), KeyError),
            (ValueError(1020), ValueError),
        ):
            raised = self.assertRaises(expected, fail, error)
            self.assertIs(expected, type(raised))


class TestSQLite(DatabaseCase):

    def test_threads_reading_before_writing_all_succeed(self):
        start = threading.Barrier(THREADS)

        def work(worker):
            start.wait()
            for number in range(10):
                with self.database.writer() as connection:
                    count = connection.execute(sa.select(
                        sa.func.count()).select_from(THINGS)).scalar()
                    connection.execute(
                        sa.insert(THINGS).values(name=f'{count}'))

        with futures.ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(work, range(THREADS)))

        # Nobody counted while another one was about to add.
        self.assertEqual(
            {str(number) for number in range(10 * THREADS)},
            set(self.names()))

    def test_writer_has_the_lock_before_its_first_read(self):
        impatient = sqlite3.connect(self.path, timeout=0)
        self.addCleanup(impatient.close)
        with self.database.writer() as connection:
            connection.execute(sa.select(THINGS)).all()

            self.assertRaises(sqlite3.OperationalError, impatient.execute,
                              "INSERT INTO things VALUES ('a')")

    def test_timeout_of_the_write_lock_is_an_error(self):
        with self.database.reader() as connection:
            connection.exec_driver_sql('PRAGMA busy_timeout=0')
        other = sqlite3.connect(self.path, isolation_level=None)
        self.addCleanup(other.close)
        other.execute('BEGIN IMMEDIATE')

        error = self.assertRaises(exception.DatabaseBusy, self.add, 'a')
        self.assertIn('locked', str(error))

        other.execute('COMMIT')
        self.add('a')
        self.assertEqual(['a'], self.names())

    def test_writer_does_not_wait_for_a_reader(self):
        self.add('a')
        with self.database.reader() as connection:
            rows = connection.execute(sa.select(THINGS)).all()
            self.add('b')

            # Each statement of a reader stands alone.
            self.assertEqual(1, len(rows))
            self.assertEqual(
                2, len(connection.execute(sa.select(THINGS)).all()))

    def test_foreign_keys_are_kept(self):
        with self.database.reader() as connection:
            self.assertEqual(1, connection.execute(
                sa.text('PRAGMA foreign_keys')).scalar())


class TestStuckDatabase(base.TestCase):
    """A database that answers nothing."""

    def setUp(self):
        super().setUp()
        self.time = FakeClock()
        self.database = session.Database(
            'sqlite://', 'cell', {'max_pool_size': 6}, clock=self.time)
        self.addCleanup(self.database.close)

    def test_threads_above_the_limit_are_refused(self):
        for _ in range(5):
            self.database.enter()
        self.time.advance(3)

        error = self.assertRaises(
            exception.DatabaseUnreachable, self.database.enter)

        self.assertIn('5 requests wait', str(error))

    def test_answering_database_has_no_limit_of_threads(self):
        for _ in range(50):
            self.database.enter()
            self.time.advance(3)
            self.database.leave()
            self.database.enter()

        with self.database.reader() as connection:
            self.assertEqual(1, connection.execute(sa.select(1)).scalar())

        self.time.advance(3)
        self.assertRaises(
            exception.DatabaseUnreachable, self.database.enter)

    def test_threads_below_the_limit_wait_without_a_deadline(self):
        for _ in range(3):
            self.database.enter()
            self.time.advance(100)

        self.assertRaises(
            exception.DatabaseUnreachable, self.database.enter)

    def test_database_is_used_again_after_an_answer(self):
        for _ in range(3):
            self.database.enter()
        self.time.advance(3)
        self.assertRaises(exception.DatabaseUnreachable, self.database.reader(
        ).__enter__)
        self.database.leave()

        with self.database.reader() as connection:
            self.assertEqual(1, connection.execute(sa.select(1)).scalar())


class TestDatabases(base.TestCase):

    def setUp(self):
        super().setUp()
        self.databases = session.Databases(clock.Clock())
        self.addCleanup(self.databases.close)

    def test_database_is_made_once_for_a_schema(self):
        database = self.databases.get('sqlite:////a.db', 'API')

        self.assertIs(database, self.databases.get('sqlite:////a.db', 'API'))
        self.assertIsNot(
            database, self.databases.get('sqlite:////a.db', 'claims'))
        self.assertIsNot(
            database, self.databases.get('sqlite:////b.db', 'API'))

    def test_url_of_no_database_is_an_error_without_its_password(self):
        for url in ('nonsense', 'postgresql+none://me:secret@there/api',
                    'oracle+none://me:secret@there/api',
                    'postgresql://me:secret@there:port/api', ''):
            error = self.assertRaises(
                exception.ConfigurationInvalid, self.databases.get, url, 'API')

            self.assertEqual('API database connection', error.field)
            self.assertNotIn('secret', str(error))

    def test_unquoted_password_is_not_read_as_a_host(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid, self.databases.get,
            'postgresql+psycopg2://me:a@secret@there/api', 'API')

        self.assertIn('%40', str(error))
        self.assertNotIn('secret', str(error))


class TestEngineOptions(base.TestCase):

    def options(self, text, group='database'):
        path = self.temporary_directory() / 'cellsched.conf'
        path.write_text(text)
        return session.engine_options(
            loader.load(files=[str(path)], dirs=[]), group)

    def test_set_options_are_passed_to_the_engine(self):
        options = self.options(
            '[database]\nmax_pool_size = 7\nmax_retries = 3\n')

        self.assertEqual(7, options['max_pool_size'])
        self.assertEqual(3, options['max_retries'])
        self.assertNotIn('connection', options)
        self.assertEqual(5, options['pool_timeout'])

    def test_pool_has_a_connection_for_each_thread_by_default(self):
        text = ('[DEFAULT]\nexecutor_thread_pool_size = 20\n'
                'cell_worker_thread_pool_size = 3\n'
                '[api_database]\nmax_pool_size = 0\n')

        self.assertEqual(23, self.options(text)['max_pool_size'])
        self.assertEqual(
            0, self.options(text, 'api_database')['max_pool_size'])


#: By how much the server is ahead of the process.
AHEAD_S = 600.0


class Server:
    """A connection to a server that has a clock, and counts questions."""

    def __init__(self, own, delay_s=0.0):
        self.clock = own
        self.ahead_s = AHEAD_S
        self.delay_s = delay_s
        self.questions = 0
        self.dialect = self
        self.name = 'postgresql'

    def exec_driver_sql(self, query):
        self.questions += 1
        self.clock.advance(self.delay_s / 2)
        said = self.clock.timestamp() + self.ahead_s
        self.clock.advance(self.delay_s / 2)
        return Answer(said)

    def rollback(self):
        pass


class Answer:

    def __init__(self, said):
        self.said = said

    def scalar_one(self):
        return self.said


class TestServerClock(base.TestCase):

    def setUp(self):
        super().setUp()
        self.own = FakeClock()
        self.clock = session.ServerClock(self.own)

    def test_clock_without_a_query_has_no_time(self):
        self.assertIsNone(self.clock.timestamp())

    def test_time_follows_the_clock_of_the_server(self):
        self.clock.ask(Server(self.own))
        self.own.advance(5)

        self.assertAlmostEqual(
            self.own.timestamp() + AHEAD_S, self.clock.timestamp(), 3)

    def test_half_of_the_query_time_is_subtracted(self):
        self.clock.ask(Server(self.own, delay_s=4.0))

        self.assertAlmostEqual(
            self.own.timestamp() + AHEAD_S, self.clock.timestamp(), 3)

    def test_server_is_queried_again_after_the_spacing(self):
        server = Server(self.own)
        for _ in range(3):
            self.clock.ask(server)
        self.assertEqual(1, server.questions)
        server.ahead_s = -AHEAD_S
        self.own.advance(session.SPACING_S)

        self.clock.ask(server)

        self.assertEqual(2, server.questions)
        self.assertAlmostEqual(
            self.own.timestamp() - AHEAD_S, self.clock.timestamp(), 3)
