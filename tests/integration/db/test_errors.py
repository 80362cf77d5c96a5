# SPDX-License-Identifier: Apache-2.0
"""What a server says is one of our errors, whichever driver brings it."""

import contextlib
import threading

import fixtures
import sqlalchemy as sa

from cellsched.clock import Clock
from cellsched.db import engines
from cellsched.db import session
from cellsched import exception
from cellsched.testing import clock
from tests.integration.db import base
from tests.unit import racing

METADATA = sa.MetaData()
THINGS = sa.Table('things_that_fail', METADATA,
                  sa.Column('name', sa.String(9)),
                  sa.UniqueConstraint('name', name='uniq_things0name'))


class ErrorTests:

    #: SQL: which process of the server serves the connection, what ends
    #: another one, whether it is still there, what lets deadlocks be found
    #: soon, and what has an index or a type made anew.
    own_process = end_process = find_process = find_deadlocks = change = None

    #: SQL: the limits of a session, in the order of engines.LIMITS, and what
    #: takes longer than a tenth of a second.
    limits = limited = slow = None

    #: What is said of an account with its password.
    account = None

    clock = None

    def setUp(self):
        super().setUp()
        self.other = self.open(max_pool_size=1)
        with self.database.writer() as connection:
            METADATA.drop_all(connection)
            METADATA.create_all(connection)

    def open(self, url=None, **options):
        database = session.Database(url or self.database.url, 'API', {
            'connection_parameters': self.parameters, 'retry_interval': 0,
            **options}, clock=self.clock or Clock())
        self.addCleanup(database.close)
        return database

    def add(self, *names, database=None):
        with (database or self.database).writer() as connection:
            connection.execute(
                sa.insert(THINGS), [{'name': name} for name in names])

    def process(self, database=None):
        with (database or self.other).reader() as connection:
            return connection.execute(self.own_process).scalar_one()

    def end(self, process):
        """End a connection at the server, and see it gone."""
        with self.database.reader() as connection:
            connection.execute(self.end_process, {'pid': process})
            while connection.execute(
                    self.find_process, {'pid': process}).all():
                pass

    def test_broken_constraint_is_named(self):
        self.add('a')

        error = self.assertRaises(
            exception.ConstraintViolated, self.add, 'b', 'a')

        self.assertEqual(['name'], error.__cause__.columns)
        self.add('b')

    def test_sessions_have_the_limits_of_the_options(self):
        def limits(database):
            with database.reader() as connection:
                return [f'{value}' for value in
                        connection.execute(self.limits).one()]

        own = limits(self.open())
        limited = self.open(
            lock_timeout=3.0, statement_timeout=20.0,
            idle_transaction_timeout=2.0)

        self.assertEqual(self.limited, limits(limited))
        self.assertEqual(own, limits(self.open(
            lock_timeout=0, statement_timeout=0, idle_transaction_timeout=0)))
        with limited.for_long_statements() as unlimited:
            self.assertEqual(
                [self.limited[0], *own[1:]], limits(unlimited))

    def test_statement_timeout_is_a_busy_database(self):
        database = self.open(statement_timeout=0.1)

        def wait(use):
            with use() as connection:
                connection.execute(self.slow)

        for use in database.reader, database.writer:
            self.assertRaises(exception.DatabaseBusy, wait, use)
        self.process(database)

    def test_locks_of_a_stopped_client_end_with_its_session(self):
        self.add('a')
        stopped = self.open(idle_transaction_timeout=1.0)

        def stop():
            with stopped.writer() as connection:
                connection.execute(sa.update(THINGS).values(name='b'))
                # It does nothing now, as if it was stopped.
                with self.other.writer() as other:
                    other.execute(sa.update(THINGS).values(name='c'))
                connection.execute(sa.update(THINGS).values(name='d'))

        self.assertRaises(exception.DatabaseUnreachable, stop)

        with self.other.reader() as connection:
            self.assertEqual(['c'], connection.execute(
                sa.select(THINGS.c.name)).scalars().all())
        self.process(stopped)

    def test_missing_table_is_an_error_naming_the_sync_command(self):
        with self.database.writer() as connection:
            METADATA.drop_all(connection)

        error = self.assertRaises(exception.SchemaOutOfDate, self.add, 'a')

        self.assertIn('things_that_fail', str(error))
        self.assertIn('cellsched-manage api_db sync', str(error))

    def test_loser_of_a_deadlock_may_retry(self):
        self.add('a', 'b')
        both = threading.Barrier(2)

        def lock(connection, name):
            connection.execute(
                sa.update(THINGS).where(THINGS.c.name == name)
                .values(name=name))

        def transaction(*names):
            with self.database.writer() as connection:
                connection.execute(self.find_deadlocks)
                lock(connection, names[0])
                both.wait(self.timeout_s)
                lock(connection, names[1])

        outcomes = racing.race(
            lambda: transaction('a', 'b'), lambda: transaction('b', 'a'))

        self.assertEqual({type(None), exception.TransactionLost},
                         {type(outcome) for outcome in outcomes})

    def test_closed_connection_is_replaced(self):
        for use in self.other.reader, self.other.writer:
            self.end(self.process())

            error = self.assertRaises(
                exception.DatabaseUnreachable, self.add, 'a',
                database=self.other)

            self.assertNotIn(self.account, str(error))
            self.process()

            def end_amid():
                with use() as connection:
                    self.end(connection.execute(self.own_process).scalar_one())
                    connection.execute(self.own_process)

            self.assertRaises(exception.DatabaseUnreachable, end_amid)
            self.process()

    def test_connections_to_a_restarted_server_are_replaced(self):
        self.clock = clock.FakeClock()
        for idle_s, failures in ((0, 1), (engines.TRUSTED_S, 0)):
            database = self.open(max_pool_size=3)
            for process in self.processes(database):
                self.end(process)
            self.clock.advance(idle_s)

            for _ in range(failures):
                self.assertRaises(exception.DatabaseUnreachable,
                                  self.process, database)
            self.assertEqual(3, len(self.processes(database)))

    def processes(self, database):
        """Return the server's processes for three connections at a time."""
        with contextlib.ExitStack() as stack:
            return {
                stack.enter_context(database.reader()).scalar(self.own_process)
                for _ in range(3)}

    def test_error_for_a_missing_database_hides_the_password(self):
        for place in self.database.url + '_not', self.unreachable_url():
            error = self.assertRaises(
                exception.DatabaseUnreachable, self.process, self.open(place))

            self.assertIn(f'{self.account.partition(":")[0]}:****@',
                          str(error))
            self.assertNotIn(self.account, str(error))

    def unreachable_url(self):
        """Return a URL of a port at which nobody may listen."""
        return sa.make_url(self.database.url).set(
            port=1).render_as_string(hide_password=False)

    def test_change_of_a_table_costs_a_statement_no_more_than_once(self):
        def names():
            with self.other.reader() as connection:
                return connection.execute(sa.select(THINGS)).scalars().all()

        self.add('a')
        for _ in range(10):
            names()
        with self.database.writer() as connection:
            connection.execute(self.change)

        try:
            names()
        except exception.TransactionLost:
            # It was prepared for the table as it was.
            pass
        self.assertEqual(['a'], names())


class TestErrors(ErrorTests, base.APITestCase):

    own_process = sa.text('SELECT pg_backend_pid()')
    end_process = sa.text('SELECT pg_terminate_backend(:pid)')
    find_process = sa.text('SELECT 1 FROM pg_stat_activity WHERE pid = :pid')
    find_deadlocks = sa.text("SET LOCAL deadlock_timeout = '10ms'")
    change = sa.text(
        'ALTER TABLE things_that_fail ALTER name TYPE varchar(10)')
    limits = sa.text(
        "SELECT current_setting('lock_timeout'), "
        "current_setting('statement_timeout'), "
        "current_setting('idle_in_transaction_session_timeout')")
    limited = ['3s', '20s', '2s']
    slow = sa.text('SELECT pg_sleep(60)')
    account = 'postgres:postgres'

    def test_statements_are_planned_for_the_current_size_of_tables(self):
        with self.database.reader() as connection:
            mode = connection.execute(
                sa.text("SELECT current_setting('plan_cache_mode')")).scalar()

        self.assertEqual('force_custom_plan', mode)

    def test_connection_to_a_former_primary_is_replaced(self):
        """Also one that only reads, and is never idle."""
        self.clock = clock.FakeClock()
        database = self.open(max_pool_size=1)
        with database.reader() as connection:
            former = connection.execute(self.own_process).scalar_one()
            connection.exec_driver_sql(
                'SET default_transaction_read_only = on')
        self.clock.advance(engines.TRUSTED_S / 2)
        self.assertEqual(former, self.process(database))
        self.clock.advance(engines.TRUSTED_S / 2)

        self.assertNotEqual(former, self.process(database))

    def test_text_is_unicode_in_any_environment(self):
        self.useFixture(fixtures.EnvironmentVariable(
            'PGCLIENTENCODING', 'LATIN1'))

        self.add('\u4e16\u754c', database=self.open())

        with self.database.reader() as connection:
            self.assertEqual('\u4e16\u754c', connection.execute(
                sa.select(THINGS)).scalar())


class TestMariaDBErrors(base.OnMariaDB, ErrorTests, base.APITestCase):

    own_process = sa.text('SELECT CONNECTION_ID()')
    end_process = sa.text('KILL :pid')
    find_process = sa.text(
        'SELECT 1 FROM information_schema.processlist WHERE id = :pid')
    # It always finds them at once.
    find_deadlocks = sa.text('SELECT 1')
    change = sa.text(
        'ALTER TABLE things_that_fail MODIFY name varchar(10)')
    limits = sa.text(
        'SELECT @@innodb_lock_wait_timeout, @@max_statement_time, '
        '@@idle_transaction_timeout')
    limited = ['3', '20.0', '2']
    slow = sa.text(
        'SELECT SUM(a.seq * b.seq) FROM seq_1_to_1000000 a, '
        'seq_1_to_1000000 b')
    account = 'mariadb:mariadb'

    def test_session_waits_for_writes_of_other_nodes(self):
        with self.open(mysql_wsrep_sync_wait=1).reader() as connection:
            self.assertEqual(1, connection.execute(
                sa.text('SELECT @@wsrep_sync_wait')).scalar())

    def test_lock_timeout_may_be_retried(self):
        self.add('a')

        def wait(timeout_s):
            with self.other.writer() as connection:
                connection.execute(sa.text(
                    f'SET innodb_lock_wait_timeout = {timeout_s}'))
                connection.execute(
                    sa.update(THINGS).values(name='b'))

        with self.database.writer() as connection:
            connection.execute(sa.select(THINGS).with_for_update())
            error = self.assertRaises(exception.DatabaseBusy, wait, 0)

        self.assertIn('Lock wait timeout', str(error))
        wait(50)
