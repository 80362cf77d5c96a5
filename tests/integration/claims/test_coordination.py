# SPDX-License-Identifier: Apache-2.0
"""The lock of contended providers, in the database of processes."""

import threading

from oslo_config import cfg

from cellsched.claims import coordination
from cellsched import clock
from cellsched.conf import opts
from cellsched.db import session
from cellsched import exception
from tests.integration import base
from tests.integration import mariadb
from tests.integration import servers


def start(function):
    threading.Thread(target=function, daemon=True).start()


class LocksTestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = cfg.ConfigOpts()
        opts.register_opts(self.conf)
        self.conf.set_override('connection', self.connection(), 'api_database')

    def make(self):
        """Return the lock of a process that had a conflict."""
        databases = session.Databases(clock.Clock())
        self.addCleanup(databases.close)
        locks = coordination.ContentionLock(
            clock.Clock(), coordination.lock_of(self.conf, databases),
            start)
        locks.note_conflict(['p'])
        return locks

    def check(self):
        """Two processes use a lock in turn, and one waits for a second."""
        self.patch(coordination, 'WAIT_S', 600.0)
        locks, events, ended = [self.make(), self.make()], [], []

        def use(number):
            for _ in range(3):
                with locks[number].held(['p']):
                    events.append(number)
                    events.append(number)
            ended.append(number)

        threads = [threading.Thread(target=use, args=[number])
                   for number in range(2)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual([0, 1], sorted(ended))
        self.assertEqual(events[::2], events[1::2])
        with locks[0].held(['p']):
            self.patch(coordination, 'WAIT_S', 0.5)
            for _ in range(2):
                with locks[1].held(['p']):
                    events.append('without')
        self.assertEqual(['without'] * 2, events[-2:])


class TestSQLite(LocksTestCase):

    def connection(self):
        return f'sqlite:///{self.directory}/api'

    def test_processes_wait_for_a_limited_time(self):
        self.check()


class TestMariaDB(LocksTestCase):

    def connection(self):
        return self.part_of(mariadb.MariaDB).url('api')

    def test_processes_wait_for_a_limited_time(self):
        self.check()


class TestPostgreSQL(LocksTestCase):

    def connection(self):
        return self.part_of(servers.PostgreSQL).url('api')

    def test_processes_wait_for_a_limited_time(self):
        self.check()

    def test_lock_is_held_beyond_the_limit_of_idle_transactions(self):
        databases = session.Databases(clock.Clock())
        self.addCleanup(databases.close)
        database = databases.get(self.connection(), 'API', {
            'idle_transaction_timeout': 0.05})
        with database.lock('claims', 1.0):
            threading.Event().wait(0.3)
            with self.assertRaises(exception.DatabaseBusy):
                with database.lock('claims', 0.01):
                    pass
