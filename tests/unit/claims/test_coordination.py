# SPDX-License-Identifier: Apache-2.0
"""The lock of contended providers."""

import contextlib
import functools
import logging
import threading

from oslo_config import cfg

from cellsched.claims import coordination
from cellsched import clock
from cellsched.conf import opts
from cellsched.db import session
from cellsched import exception
from cellsched.testing import clock as fake_clock
from tests.unit import base


def start(function):
    threading.Thread(target=function, daemon=True).start()


class SharedLock:
    """A lock as of a database, for processes in one process."""

    def __init__(self):
        self.lock = threading.Lock()

    @contextlib.contextmanager
    def __call__(self, wait_s):
        if not self.lock.acquire(timeout=wait_s):
            raise exception.DatabaseBusy(schema='API', reason='held')
        try:
            yield
        finally:
            self.lock.release()


class WaitingClock(fake_clock.FakeClock):
    """A clock on which a wait for an event takes all of its time."""

    def event(self):
        event = threading.Event()

        def wait(timeout):
            if not event.is_set():
                self.advance(timeout)
            return event.is_set()

        event.wait = wait
        return event


class TestContentionLock(base.TestCase):

    def setUp(self):
        super().setUp()
        self.shared = SharedLock()

    def make(self, contended='p'):
        """Return the lock of a process that had a conflict at a provider."""
        locks = coordination.ContentionLock(
            clock.Clock(), self.shared, start)
        locks.note_conflict([contended])
        return locks

    def is_free(self):
        """Return whether another process could hold the lock."""
        return not self.shared.lock.locked()

    def test_contended_provider_is_locked_until_the_write(self):
        self.patch(coordination, 'WAIT_S', 60.0)
        locks = self.make()
        for _ in range(3):
            with locks.held(['p', 'q']):
                self.assertFalse(self.is_free())
        # The thread of the lock releases it soon.
        self.assertTrue(self.shared.lock.acquire(timeout=60))

    def test_provider_without_a_conflict_has_no_lock(self):
        with self.make(contended='q').held(['p']):
            self.assertTrue(self.is_free())

    def test_lock_held_elsewhere_is_awaited_once(self):
        waiting = WaitingClock()
        locks = coordination.ContentionLock(
            waiting, self.shared, start=lambda hold: None)
        locks.note_conflict(['p'])
        until = waiting.monotonic() + coordination.WAIT_S

        with locks.held(['p']):
            self.assertEqual(until, waiting.monotonic())
            with locks.held(['p']):
                self.assertEqual(until, waiting.monotonic())

    def contended(self, locks, provider='p'):
        """Return for how many seconds a provider stays contended."""
        return next(seconds for seconds in range(100) if not (
            locks._contended[provider] > locks._clock.monotonic() + seconds))

    def test_provider_with_an_awaited_lock_stays_contended(self):
        lock = self.shared.lock
        locks = self.make()
        self.patch(coordination, 'CONTENDED_S', 50.0)
        self.assertTrue(lock.acquire(blocking=False))
        threading.Timer(0.2, lock.release).start()
        with locks.held(['p']):
            pass

        self.assertGreater(self.contended(locks), 40)

    def test_lock_is_waited_for_as_long_as_thirty_writes_take(self):
        fake = fake_clock.FakeClock()
        locks = coordination.ContentionLock(fake, self.shared, start)
        waits = []
        locks._acquire = lambda until: waits.append(
            until - fake.monotonic())
        locks.note_conflict(['p'])
        for write_s in 0.01, 2.0, 60.0, 0:
            with locks.held(['p']):
                fake.advance(write_s)
            locks.note_conflict(['p'])

        for expected, seconds in zip((1.0, 1.0, 12.0, 15.0), waits):
            self.assertAlmostEqual(expected, seconds, delta=0.1)

    def test_contended_providers_share_a_lock(self):
        self.patch(coordination, 'WAIT_S', 60.0)
        locks = self.make()
        locks.note_conflict(['q'])
        for providers in ['p'], ['q'], ['r', 'q', 'p']:
            with self.subTest(providers), locks.held(providers):
                self.assertFalse(self.is_free())

    def test_lock_of_all_providers_is_held_after_any_conflict(self):
        self.patch(coordination, 'WAIT_S', 60.0)
        locks = self.make(contended='q')
        with locks.held():
            self.assertFalse(self.is_free())

    def test_second_caller_waits_as_long_as_the_first(self):
        lock = self.shared.lock
        self.patch(coordination, 'WAIT_S', 60.0)
        locks, written, seen = self.make(), [], threading.Event()

        class Ended(threading.Event):
            def wait(self, timeout=None):
                seen.set()
                return super().wait(timeout)

        def write():
            with locks.held(['p']):
                written.append(1)
                seen.set()

        self.assertTrue(lock.acquire(blocking=False))
        first, second = (threading.Thread(target=write) for _ in range(2))
        first.start()
        while not locks._use:
            pass
        locks._use.ended = Ended()
        second.start()
        self.assertTrue(seen.wait(60))

        self.assertEqual([], written)
        lock.release()
        first.join()
        second.join()
        self.assertEqual([1, 1], written)

    def test_failed_database_is_not_awaited(self):
        self.patch(coordination, 'WAIT_S', 60.0)
        for url, expected in (
                ('postgresql+psycopg://h:secret@127.0.0.1:1/x', '127.0.0.1'),
                ('sqlite:////proc/nothing/x', '/proc/nothing')):
            database = session.Databases(clock.Clock()).get(
                url, 'coordination')
            self.shared = functools.partial(database.lock, 'claims')
            with self.subTest(url), self.assertLogs(
                    coordination.LOG.logger, logging.WARNING) as logged:
                locks, written = self.make(), []
                for number in range(3):
                    with locks.held(['p']):
                        written.append(number)

                self.assertEqual([0, 1, 2], written)
                [line] = logged.output
                self.assertIn(expected, line)
                self.assertNotIn('secret', line)

    def test_writer_goes_on_without_a_thread_for_the_lock(self):
        def start(function):
            raise RuntimeError("can't start new thread")

        locks = coordination.ContentionLock(
            clock.Clock(), self.shared, start)
        locks.note_conflict(['p'])
        written = []
        with self.assertLogs(
                coordination.LOG.logger, logging.WARNING) as logged:
            for number in range(2):
                with locks.held(['p']):
                    written.append(number)

        self.assertEqual([0, 1], written)
        self.assertFalse(locks.is_used)
        self.assertEqual(1, len(logged.output))

    def test_error_of_the_writer_releases_the_lock(self):
        self.patch(coordination, 'WAIT_S', 60.0)
        locks = self.make()
        with contextlib.suppress(ValueError), locks.held(['p']):
            raise ValueError
        with locks.held(['p']):
            self.assertFalse(self.is_free())


class TestConfiguredLock(base.TestCase):

    def url(self, api='', connection=None):
        """Return the URL of the database with the lock."""
        conf = cfg.ConfigOpts()
        opts.register_opts(conf)
        conf.set_override('connection', api, 'api_database')
        conf.set_override('connection', connection, 'coordination')
        acquire = coordination.lock_of(
            conf, session.Databases(clock.Clock()))
        return acquire and acquire.func.__self__.url

    def test_api_database_is_the_default(self):
        for url in ('postgresql+psycopg://a:b@h:1/d?sslmode=require',
                    'mysql+pymysql://a:b@h/d', 'sqlite:////var/lib/x.db'):
            self.assertEqual(url, self.url(url))

    def test_memory_and_an_empty_url_have_no_lock(self):
        for api, connection in (
                ('sqlite://', None), ('sqlite:///:memory:', None),
                ('sqlite+pysqlite://', None), ('sqlite:///', None),
                ('sqlite:///file:x.db?uri=true', None), ('', None),
                ('mysql+pymysql://h/d', '')):
            self.assertIsNone(self.url(api, connection))

    def test_option_takes_precedence(self):
        url = 'mysql+pymysql://other/d'
        self.assertEqual(url, self.url('mysql+pymysql://h/d', url))
