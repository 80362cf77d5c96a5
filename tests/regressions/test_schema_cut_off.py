# SPDX-License-Identifier: Apache-2.0
"""Upgrades of schemas that are cut off, or that meet another upgrade."""

from concurrent import futures
import os
import signal
import subprocess
import sys
import threading

import sqlalchemy as sa

from cellsched.claims.sql import schema as claims
from cellsched import clock
from cellsched.db import api
from cellsched.db import cell
from cellsched.db import migration
from cellsched.db import session
from cellsched import exception
from cellsched.testing.clock import FakeClock
from tests.integration import base
from tests.integration import mariadb
from tests.integration import servers
from tests import profile
from tests.unit.db import drift

SCHEMAS = {'api': api.SCHEMA, 'cell': cell.SCHEMA, 'claims': claims.SCHEMA}

FEEDS = {'api': api.models.FEED, 'cell': cell.models.FEED,
         'claims': claims.FEED}


class _CutOff(BaseException):
    """The process ends here."""


class _Statements:
    """Counts the statements of all engines, and ends before one of them.

    :param end: number of the statement, from 1
    :param cut: called before that statement
    """

    def __init__(self, end, cut):
        self.count = 0
        self._end = end
        self._cut = cut

    def __enter__(self):
        sa.event.listen(sa.Engine, 'before_cursor_execute', self._look)
        return self

    def __exit__(self, *exc_info):
        sa.event.remove(sa.Engine, 'before_cursor_execute', self._look)

    def _look(self, *args):
        self.count += 1
        if self.count == self._end:
            self._cut()


def cut():
    raise _CutOff


class ObservedClock(clock.Clock):
    """The machine's clock; says when somebody waits."""

    def __init__(self):
        self.waited = threading.Event()

    def sleep(self, seconds):
        self.waited.set()
        super().sleep(0.01)


class CutOffTests:

    #: The kind of the server.
    kind = None

    #: The distance of the statements before which an upgrade is cut off.
    step = 1

    def setUp(self):
        super().setUp()
        self.server = self.part_of(self.kind)

    def open(self, name, of_clock=None, database=None):
        made = session.Database(
            self.server.url(database or name), SCHEMAS[name].name,
            clock=of_clock or clock.Clock())
        self.addCleanup(made.close)
        return made

    def check_complete(self, name, database):
        schema = SCHEMAS[name]
        schema.check(database)
        self.assertEqual([], drift.differences(database, schema))
        names = drift.constraints(database)
        for table in schema.metadata.tables.values():
            self.assertLessEqual(
                {index.name for index in table.indexes}, names[table.name])
        with database.reader() as connection:
            # Raises if a lane is missing.
            FEEDS[name].token(connection)

    def cut_off(self, name, database, end):
        """Return whether an upgrade ended before a statement."""
        with _Statements(end, cut):
            try:
                SCHEMAS[name].sync(database)
            except _CutOff:
                return True
            finally:
                database.close()
        return False

    def check_cut_off(self, name):
        database = self.open(name)
        end = 1
        while self.cut_off(name, database, end):
            end += self.step
        self.assertGreater(end, 20)
        self.check_complete(name, database)

    def test_claims_schema_is_completed(self):
        self.check_cut_off('claims')

    def test_api_schema_is_completed(self):
        self.check_cut_off('api')

    def test_cell_schema_is_completed(self):
        self.check_cut_off('cell')

    def test_second_upgrade_waits_for_the_first(self):
        observed = ObservedClock()
        waiting = self.open('claims', observed)
        first = self.open('claims')
        with futures.ThreadPoolExecutor(1) as executor:
            with first.writer() as connection:
                lock = migration.LOCKS[connection.dialect.name]
                self.assertTrue(lock.take_lock(connection))
                second = executor.submit(claims.SCHEMA.sync, waiting)
                self.assertTrue(observed.waited.wait(60))
                self.assertFalse(second.done())
            # The lock of MariaDB belongs to a connection.
            first.close()
            second.result(60)
        self.check_complete('claims', waiting)

    def test_wait_ends_with_the_owner_of_the_lock(self):
        first = self.open('claims')
        waiting = self.open('claims', FakeClock())
        with first.writer() as connection:
            lock = migration.LOCKS[connection.dialect.name]
            lock.take_lock(connection)

            error = self.assertRaises(
                exception.DatabaseBusy, claims.SCHEMA.sync, waiting)

            self.assertIn(
                f'connection {lock.lock_holder(connection)}', str(error))
        self.assertIsNone(claims.SCHEMA.version(waiting))

    @profile.full_only('processes; by default one thread waits for another')
    def test_processes_upgrade_at_once(self):
        for name in SCHEMAS:
            database = self.open(name, database=f'{name}_at_once')
            with futures.ThreadPoolExecutor(3) as executor:
                ended = [each.result() for each in [
                    executor.submit(self.sync_in_process, name, database.url)
                    for _ in range(3)]]

            self.assertEqual([(0, '')] * 3, ended)
            self.check_complete(name, database)

    @profile.full_only('processes; by default an error ends the upgrade')
    def test_upgrade_of_a_killed_process_can_be_completed(self):
        for name in SCHEMAS:
            database = self.open(name, database=f'{name}_killed')
            end = 1
            while True:
                code, output = self.sync_in_process(name, database.url, end)
                if code != -signal.SIGKILL:
                    break
                end += 1
            self.assertEqual((0, ''), (code, output))
            self.assertGreater(end, 20)
            self.check_complete(name, database)

    def sync_in_process(self, name, url, end=0):
        """Upgrade in a process; return its exit code and error output.

        :param end: number of the statement at which it kills itself
        """
        ended = subprocess.run(
            [sys.executable, '-W', 'ignore', '-m', __name__, name, url,
             str(end)], capture_output=True, text=True, timeout=300)
        return ended.returncode, ended.stderr


@profile.by_default(
    'test_second_upgrade_waits_for_the_first',
    reason='PostgreSQL undoes an upgrade; MariaDB has the first proof')
class TestOnPostgreSQL(CutOffTests, base.TestCase):

    kind = servers.PostgreSQL


class TestOnMariaDB(CutOffTests, base.TestCase):

    kind = mariadb.MariaDB

    step = profile.size(30, 1)

    def test_tables_of_another_program_are_named(self):
        database = self.open('claims')
        self.assertTrue(self.cut_off('claims', database, 12))
        with database.writer() as connection:
            connection.execute(sa.text('DROP TABLE IF EXISTS allocations'))
            connection.execute(sa.text('CREATE TABLE allocations (n INT)'))

        error = self.assertRaises(
            exception.WrongDatabase, claims.SCHEMA.sync, database)

        self.assertIn('collation: allocations. If', str(error))
        self.assertIn('drop these tables and repeat', str(error))
        self.assertIsNone(claims.SCHEMA.version(database))
        with database.writer() as connection:
            connection.execute(sa.text('DROP TABLE allocations'))
        claims.SCHEMA.sync(database)
        self.check_complete('claims', database)


def main(name, url, end):
    """Upgrade a database; kill this process at a statement."""
    with _Statements(
            int(end), lambda: os.kill(os.getpid(), signal.SIGKILL)):
        SCHEMAS[name].sync(session.Database(
            url, SCHEMAS[name].name, clock=clock.Clock()))


if __name__ == '__main__':
    main(*sys.argv[1:])
