# SPDX-License-Identifier: Apache-2.0
import contextlib
import logging
import os

import sqlalchemy as sa
from sqlalchemy import pool

from cellsched.db import engines
from cellsched.testing import clock
from tests.unit import base


class SleepyClock(clock.FakeClock):
    """Notes for how long it was slept."""

    def __init__(self):
        super().__init__()
        self.slept = []

    def sleep(self, seconds):
        self.slept.append(seconds)
        super().sleep(seconds)


class OpeningTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.clock = SleepyClock()

    def open(self, url=None, **options):
        url = url or f'sqlite:///{self.temporary_directory()}/test.db'
        engine = engines.open_(url, options, self.clock)
        self.addCleanup(engine.dispose)
        return engine


class TestSQLite(OpeningTestCase):

    def pragma(self, engine, name):
        with engine.connect() as connection:
            return connection.exec_driver_sql(f'PRAGMA {name}').scalar()

    def test_commits_wait_for_the_disk_unless_disabled(self):
        full, off = 2, 0
        for options, level in (
            ({}, full),
            ({'sqlite_synchronous': True}, full),
            ({'sqlite_synchronous': False}, off),
        ):
            engine = self.open(**options)
            self.assertEqual(level, self.pragma(engine, 'synchronous'))
            self.assertEqual('wal', self.pragma(engine, 'journal_mode'))

    def test_wait_for_the_lock_of_a_file_has_the_limit_of_the_option(self):
        for options, milliseconds in (
            ({}, 30000), ({'lock_timeout': 0}, 30000),
            ({'lock_timeout': 2.5, 'statement_timeout': 9.0}, 2500),
        ):
            engine = self.open(**options)
            self.assertEqual(
                milliseconds, self.pragma(engine, 'busy_timeout'))

    def test_new_file_is_for_its_owner_only(self):
        self.addCleanup(os.umask, os.umask(0o022))
        directory = self.temporary_directory()
        shared = directory / 'shared.db'
        shared.touch(0o644)
        for name in 'new', 'shared':
            engine = self.open(f'sqlite:///{directory}/{name}.db')
            with engine.begin() as connection:
                connection.exec_driver_sql('CREATE TABLE things (name)')
                modes = {path.name: path.stat().st_mode & 0o777
                         for path in directory.glob(f'{name}.db*')}
            mode = 0o600 if name == 'new' else 0o644
            self.assertEqual({f'{name}.db': mode, f'{name}.db-wal': mode,
                              f'{name}.db-shm': mode}, modes)

    def test_database_in_memory_is_shared_by_all_connections(self):
        engine = self.open('sqlite://')

        with engine.connect() as one, engine.connect() as other:
            one.exec_driver_sql('CREATE TABLE things (name)')
            self.assertEqual(
                [], other.exec_driver_sql('SELECT * FROM things').all())


class TestServers(OpeningTestCase):

    #: Where nobody listens.
    place = '://me@127.0.0.1:1/none'

    url = f'postgresql+psycopg{place}'

    def test_first_connection_is_tried_up_to_max_retries(self):
        for driver in ('postgresql+psycopg', 'postgresql+psycopg2',
                       'mysql+pymysql'):
            for attempts, pauses in ((1, []), (3, [5, 5])):
                self.clock.slept.clear()
                self.assertRaises(
                    sa.exc.OperationalError, self.open,
                    f'{driver}{self.place}', max_retries=attempts,
                    retry_interval=5)
                self.assertEqual(pauses, self.clock.slept)

    def test_engine_without_retries_opens_no_connection(self):
        self.open(self.url, max_retries=0)

        self.assertEqual([], self.clock.slept)

    def test_options_of_the_pool_are_the_pool_s(self):
        engine = self.open(
            self.url, max_retries=0, max_pool_size=3, max_overflow=0,
            pool_timeout=0.5)

        self.assertEqual((3, 0.5), (engine.pool.size(), engine.pool.timeout()))

    def test_parameters_are_not_shown(self):
        self.assertTrue(self.open(self.url, max_retries=0).hide_parameters)


class TestLogLevel(OpeningTestCase):

    def test_debug_option_sets_the_log_level_of_sqlalchemy(self):
        logger = logging.getLogger('sqlalchemy.engine')
        self.addCleanup(logger.setLevel, logger.level)
        for debug, level in ((0, logging.WARNING), (50, logging.INFO),
                             (100, logging.DEBUG)):
            self.open(connection_debug=debug)
            self.assertEqual(level, logger.level)


class TestListen(base.TestCase):

    def setUp(self):
        super().setUp()
        self.clock = clock.FakeClock()
        self.engine = sa.create_engine(
            f'sqlite:///{self.temporary_directory()}/test.db',
            poolclass=pool.QueuePool, pool_use_lifo=True)
        self.addCleanup(self.engine.dispose)
        engines.replace_dead_connections(self.engine, self.clock)

    def use(self, number=1):
        """Return the driver's connections of so many that work at a time."""
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(self.engine.connect())
                           for _ in range(number)]
            for each in connections:
                each.execute(sa.text('SELECT 1'))
            return [each.connection.driver_connection for each in connections]

    def test_working_connection_is_reused(self):
        first = self.use()

        self.clock.advance(engines.TRUSTED_S)

        self.assertEqual(first, self.use())

    def test_connection_lost_while_idle_is_replaced(self):
        first, = self.use()
        first.close()
        self.clock.advance(engines.TRUSTED_S)

        self.assertNotEqual([first], self.use())

    def test_recently_used_connection_is_not_checked(self):
        first, = self.use()
        first.close()
        self.clock.advance(engines.TRUSTED_S / 2)

        self.assertRaises(sa.exc.ProgrammingError, self.use)

    def test_connections_older_than_a_lost_connection_are_replaced(self):
        first = self.use(3)
        first[0].close()
        self.clock.advance(engines.TRUSTED_S)

        self.assertEqual(set(), set(first) & set(self.use(3)))

    def test_connection_lost_in_use_replaces_idle_connections(self):
        first = self.use(3)
        with self.engine.connect() as connection:
            connection.invalidate()

        self.assertEqual(set(), set(first) & set(self.use(3)))

    def test_connection_lost_at_its_first_use_is_replaced_alone(self):
        first = self.use(2)
        with contextlib.ExitStack() as stack:
            for _ in first:
                stack.enter_context(self.engine.connect())
            stack.enter_context(self.engine.connect()).invalidate()

        self.assertEqual(set(first), set(self.use(2)))

    def test_connection_of_the_process_before_a_fork_is_replaced(self):
        first = self.use()
        pid = os.getpid()
        self.patch(os, 'getpid', lambda: pid + 1)

        self.assertNotEqual(first, self.use())


class TestStatementComments(base.TestCase):

    def setUp(self):
        super().setUp()
        self.engine = sa.create_engine('sqlite://')
        self.addCleanup(self.engine.dispose)
        engines.comment_statements(self.engine)
        self.statements = []
        sa.event.listen(
            self.engine, 'before_cursor_execute',
            lambda connection, cursor, text, *others:
            self.statements.append(text))

    def test_comment_names_the_innermost_calls_outside_of_the_library(self):
        with self.engine.connect() as connection:
            self.assertEqual(7, connection.execute(
                sa.text('SELECT :value'), {'value': 7}).scalar())

        statement, = self.statements
        statement, _, comment = statement.partition('  -- ')
        self.assertEqual('SELECT ?', statement)
        calls = comment.split('; ')
        self.assertEqual(3, len(calls))
        self.assertIn(
            f'{__name__}.test_comment_names_the_innermost_calls', calls[0])
        self.assertNotIn('sqlalchemy', comment)
