# SPDX-License-Identifier: Apache-2.0
"""The lock of contended providers, with files."""

import contextlib
import logging
import threading

from oslo_config import cfg
from tooz import coordination as tooz

from cellsched.claims import coordination
from cellsched import clock
from cellsched.conf import opts
from cellsched.testing import clock as fake_clock
from tests.unit import base


def start(function):
    threading.Thread(target=function, daemon=True).start()


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
        self.url = f'file://{self.temporary_directory()}'

    def make(self, url=None, contended='p'):
        """Return the locks of a process that had a conflict at a provider."""
        locks = coordination.ContentionLock(
            clock.Clock(), self.url if url is None else url, start)
        locks.note_conflict([contended])
        return locks

    def is_free(self):
        """Return whether another process could hold the lock."""
        other = tooz.get_coordinator(self.url, b'other')
        other.start()
        self.addCleanup(other.stop)
        lock = other.get_lock(b'cellsched-claims')
        free = lock.acquire(blocking=False)
        if free:
            lock.release()
        return free

    def test_contended_provider_is_locked_until_the_write(self):
        self.patch(coordination, 'WAIT_S', 60.0)
        locks = self.make()
        for _ in range(3):
            with locks.held(['p', 'q']):
                self.assertFalse(self.is_free())
        # The thread of the lock releases it soon.
        waiting = tooz.get_coordinator(self.url, b'other')
        waiting.start()
        self.addCleanup(waiting.stop)
        lock = waiting.get_lock(b'cellsched-claims')
        self.assertTrue(lock.acquire(blocking=60.0))
        lock.release()

    def test_provider_without_a_conflict_has_no_lock(self):
        with self.make(contended='q').held(['p']):
            self.assertTrue(self.is_free())

    def test_lock_held_elsewhere_is_awaited_once(self):
        waiting = WaitingClock()
        locks = coordination.ContentionLock(
            waiting, self.url, start=lambda hold: None)
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
        holder = tooz.get_coordinator(self.url, b'holder')
        holder.start()
        self.addCleanup(holder.stop)
        lock = holder.get_lock(b'cellsched-claims')
        locks = self.make()
        self.patch(coordination, 'CONTENDED_S', 50.0)
        self.assertTrue(lock.acquire(blocking=False))
        threading.Timer(0.05, lock.release).start()
        with locks.held(['p']):
            pass

        self.assertGreater(self.contended(locks), 40)

    def test_lock_is_waited_for_as_long_as_thirty_writes_take(self):
        fake = fake_clock.FakeClock()
        locks = coordination.ContentionLock(fake, self.url, start)
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

    def test_eager_call_locks_providers_after_another_conflict(self):
        self.patch(coordination, 'WAIT_S', 60.0)
        locks = self.make(contended='q')
        with locks.held(['p'], eager=True):
            self.assertFalse(self.is_free())

    def test_second_caller_waits_as_long_as_the_first(self):
        holder = tooz.get_coordinator(self.url, b'holder')
        holder.start()
        self.addCleanup(holder.stop)
        lock = holder.get_lock(b'cellsched-claims')
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

    def test_failed_backend_is_not_awaited(self):
        self.patch(coordination, 'WAIT_S', 60.0)
        for url in 'nothing://x', 'postgresql://127.0.0.1:1/x':
            with self.subTest(url=url), self.assertLogs(
                    coordination.LOG.logger, logging.WARNING) as logged:
                locks = self.make(url)
                done = []
                for _ in range(3):
                    with locks.held(['p']):
                        done.append(url)
                self.assertEqual([url] * 3, done)
                self.assertEqual(1, len(logged.output))

    def test_error_of_the_writer_releases_the_lock(self):
        self.patch(coordination, 'WAIT_S', 60.0)
        locks = self.make()
        with contextlib.suppress(ValueError), locks.held(['p']):
            raise ValueError
        with locks.held(['p']):
            self.assertFalse(self.is_free())


class TestBackend(base.TestCase):

    def url(self, connection='', backend=None):
        conf = cfg.ConfigOpts()
        opts.register_opts(conf)
        conf.set_override('connection', connection, 'api_database')
        conf.set_override('backend_url', backend, 'coordination')
        return coordination.backend_url(conf)

    def test_database_of_the_process_is_the_default(self):
        for connection, expected in (
                ('postgresql+psycopg://a:b@h:1/d?sslmode=x', ''),
                ('mysql+pymysql://a:b@h/d', 'mysql://a:b@h/d'),
                ('mariadb+pymysql://h/d', 'mysql://h/d'),
                ('sqlite:////var/lib/x.db', 'file:///var/lib/x.db.locks'),
                ('sqlite:///x.db', ''), ('sqlite://', ''), ('', ''),
                ('oracle://h/d', '')):
            self.assertEqual(expected, self.url(connection))

    def test_option_takes_precedence(self):
        self.assertEqual('etcd3+http://h:1', self.url(
            'mysql://h/d', 'etcd3+http://h:1'))
        self.assertEqual('', self.url('mysql://h/d', ''))
