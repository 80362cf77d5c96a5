# SPDX-License-Identifier: Apache-2.0
"""A lock between processes, for providers that several of them write.

Concurrent writes of one provider make each other repeat. The lock saves these
repetitions, and nothing depends on it: a store is as exact without it. All
contended providers have one lock, because most writes are of several.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import functools
import threading
from typing import Any
from urllib import parse

from oslo_config import cfg
from oslo_log import log
from oslo_utils import uuidutils

from cellsched.clock import Clock
from cellsched.observability.conditions import Conditions
from cellsched import urls

LOG = log.getLogger(__name__)

#: Seconds for which a provider counts as contended after a conflict. Each
#: process learns by its own conflicts, and must remember until its next write,
#: which many processes and slow writes defer.
CONTENDED_S = 60.0

#: Seconds to wait for it: its holder may be dead, or suspended. If writes
#: take long, it is waited for as many of them, within a bound.
WAIT_S, _WRITES, _WAIT_MOST_S = 1.0, 30, 15.0

#: Weight of the last write in the mean of their durations.
_NEWEST = 0.2

#: If it takes more seconds to acquire, it was held, most likely.
_WAITED_S = 0.01

#: Seconds after which it is released although its write has not ended.
_HELD_S = 60.0

#: Seconds without a lock after the backend has failed.
_PAUSE_S = 60.0

#: The name of the lock, and the number of remembered providers.
_NAME = b'cellsched-claims'
_REMEMBERED_MAX = 10000

#: The schemes of backends that wait for the lock themselves, and the argument
#: with which they do.
_WAITING: dict[str, bool | float] = {'postgresql': True, 'mysql': WAIT_S}

#: Bounds, in seconds, on the pause between two attempts at other backends.
_FIRST_S, _MOST_S = 0.002, 0.05


def backend_url(conf: cfg.ConfigOpts) -> str:
    """Return the URL of the backend of tooz; empty if there is none.

    By default it is that of the API database: named locks of MySQL and
    MariaDB, or files beside a file of SQLite. PostgreSQL has none by default,
    because the driver of tooz is deprecated and needs psycopg2.
    """
    url: str = conf.coordination.backend_url
    if url is not None:
        return url
    scheme, _, rest = (conf.api_database.connection or '').partition('://')
    dialect = scheme.partition('+')[0].replace('mariadb', 'mysql')
    rest = rest.partition('?')[0]
    if dialect == 'sqlite':
        path = rest[1:]
        return f'file://{path}.locks' if path.startswith('/') else ''
    return f'{dialect}://{rest}' if dialect == 'mysql' else ''


def _coordinator(backend_url: str) -> Any:
    """Return a coordinator of tooz that is started."""
    # Few processes need the library, and to import it takes CPU.
    from tooz import coordination

    coordinator = coordination.get_coordinator(
        backend_url, uuidutils.generate_uuid().encode())
    coordinator.start(start_heart=True)
    return coordinator


class _Use:
    """One use of the lock, in a thread of its own.

    :param until: when the caller stops to wait for it
    """

    def __init__(self, clock: Clock, until: float) -> None:
        self.until = until
        #: Set once the lock is acquired, or cannot be.
        self.answered = clock.event()
        #: Set when the lock is not needed any more.
        self.done = clock.event()
        self.ended = clock.event()


class ContentionLock:
    """The lock of contended providers.

    A provider without a recent conflict needs no lock, so that claims on
    different hosts cost nothing more. The lock is waited for no longer than
    ``WAIT_S``; then the caller goes on without it, and so does every later
    one until the lock is free.

    :param backend_url: URL of a backend of tooz; empty for no lock, so that
        only conflicts are remembered
    :param start: runs a function in a new daemon thread
    :param connect: returns the started coordinator of a URL
    """

    def __init__(
        self, clock: Clock, backend_url: str = '',
        start: Callable[[Callable[[], None]], None] | None = None,
        connect: Callable[[str], Any] = _coordinator,
    ) -> None:
        self._clock = clock
        self._url = backend_url
        self._start = start
        self._connect = connect
        self._blocking = _WAITING.get(
            parse.urlsplit(backend_url).scheme.partition('+')[0])
        #: By provider, until when it counts as contended.
        self._contended: dict[str, float] = {}
        #: The latest of these times.
        self._any_until = 0.0
        self._lock = threading.Lock()
        #: The mean duration of writes.
        self._write_s = 0.0
        self._use: _Use | None = None
        self._connecting = clock.lock()
        self._coordinator: Any = None
        self._paused_until = 0.0
        self._conditions = Conditions(LOG, clock.monotonic)
        self._failing = (
            f'The backend {urls.mask(backend_url)} of [coordination] '
            'backend_url fails, and writers of one provider do not wait for '
            'each other')

    @property
    def is_enabled(self) -> bool:
        """True if there is a backend."""
        return self._start is not None and bool(self._url)

    def note_conflict(self, providers: Iterable[str]) -> None:
        """Remember that other writers disturbed a write of providers."""
        with self._lock:
            self._any_until = until = self._clock.monotonic() + CONTENDED_S
            self._contended |= dict.fromkeys(providers, until)
            while len(self._contended) > _REMEMBERED_MAX:
                self._contended.pop(next(iter(self._contended)))

    def is_contended(self, provider: str) -> bool:
        """Return whether a write had a conflict a short time ago."""
        return (self._contended.get(provider, 0.0)
                > self._clock.monotonic())

    @contextlib.contextmanager
    def held(
        self, providers: Iterable[str], eager: bool = False
    ) -> Iterator[bool]:
        """Hold the lock for contended providers, if it is free in time.

        Yields whether there are any: other processes write them, too.

        :param eager: whether a conflict at any provider makes all of them
            contended, because it takes much longer than the lock
        """
        if not self.is_enabled:
            yield False
            return
        began = self._clock.monotonic()
        contended = [each for each in providers if self.is_contended(each)
                     or eager and self._any_until > began]
        if not contended:
            yield False
            return
        use = self._acquire(began + max(WAIT_S, min(
            _WRITES * self._write_s, _WAIT_MOST_S)))
        acquired = self._clock.monotonic()
        try:
            if acquired - began > _WAITED_S:
                self.note_conflict(contended)
            yield True
        finally:
            self._learn(acquired)
            if use is not None:
                use.done.set()

    def _learn(self, since: float) -> None:
        """Learn how long a write took."""
        self._write_s += _NEWEST * (
            self._clock.monotonic() - since - self._write_s)

    def _acquire(self, until: float) -> _Use | None:
        """Wait for the lock; return its use, or None without it."""
        assert self._start is not None
        while self._clock.monotonic() < until:
            use = _Use(self._clock, until)
            with self._lock:
                if self._paused_until > self._clock.monotonic():
                    return None
                earlier = self._use
                if earlier is None:
                    self._use = use
            if earlier is None:
                self._start(functools.partial(self._hold, use))
                use.answered.wait(until - self._clock.monotonic())
                return use
            wait_until = until
            if not earlier.answered.is_set():
                wait_until = min(until, earlier.until)
                if wait_until <= self._clock.monotonic():
                    # An earlier caller has waited for it in vain.
                    return None
            earlier.ended.wait(wait_until - self._clock.monotonic())
        return None

    def _hold(self, use: _Use) -> None:
        """Acquire the lock, and release it after its use."""
        try:
            lock = self._await(use)
            if lock is not None:
                use.answered.set()
                self._conditions.end(self._failing)
                use.done.wait(_HELD_S)
                lock.release()
        except Exception as exc:
            # The errors of the backends' libraries have no common base.
            self._fail(exc)
        finally:
            with self._lock:
                self._use = None
            use.answered.set()
            use.ended.set()

    def _await(self, use: _Use) -> Any:
        """Return the lock, acquired; None if it is not needed."""
        # A dependency of tooz, imported late as tooz itself.
        import tenacity

        coordinator, pause_s = self._connected(), _FIRST_S
        while not use.done.is_set():
            # A lock that was not free is not used again: some count attempts.
            lock = coordinator.get_lock(_NAME)
            try:
                if lock.acquire(blocking=self._blocking or False):
                    return lock
            except tenacity.RetryError:
                # It was not free in time.
                continue
            self._clock.sleep(pause_s)
            pause_s = min(1.5 * pause_s, _MOST_S)
        return None

    def _connected(self) -> Any:
        with self._connecting:
            if self._coordinator is None:
                self._coordinator = self._connect(self._url)
            return self._coordinator

    def _fail(self, error: Exception) -> None:
        """Do without the lock for some time."""
        with self._lock:
            self._paused_until = self._clock.monotonic() + _PAUSE_S
            self._coordinator = None
        self._conditions.occur(self._failing, error)
