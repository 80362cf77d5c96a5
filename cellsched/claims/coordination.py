# SPDX-License-Identifier: Apache-2.0
"""A lock between processes, for providers that several of them write.

Concurrent writes of one provider make each other repeat. The lock saves these
repetitions, and nothing depends on it: a store is as exact without it. All
contended providers have one lock, because most writes are of several. It is a
lock of a database, which all processes have in common.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import functools
import threading
from typing import Any

from oslo_config import cfg
from oslo_log import log

from cellsched.clock import Clock
from cellsched.db import session
from cellsched import exception
from cellsched.observability.conditions import Conditions

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

#: If it takes more seconds to acquire, it was held, most likely. A thread, and
#: the way to the database, take a part of it.
_WAITED_S = 0.1

#: Seconds after which it is released although its write has not ended.
_HELD_S = 60.0

#: Seconds without a lock after its database has failed.
_PAUSE_S = 60.0

#: The name of the lock, and the number of remembered providers.
_NAME = 'claims'
_REMEMBERED_MAX = 10000

_FAILING = ('The lock between processes fails, and writers of one provider do '
            'not wait for each other')

#: Holds the lock; the argument is the number of seconds to wait for it.
#: ``DatabaseBusy`` is raised if it is not free by then.
Acquire = Callable[[float], contextlib.AbstractContextManager[object]]


def lock_of(
    conf: cfg.ConfigOpts, databases: session.Databases
) -> Acquire | None:
    """Return the configured lock; None if there is none.

    An SQLite database in memory has none.

    :raises cellsched.exception.ConfigurationInvalid: the URL is invalid
    """
    url = conf.coordination.connection
    if url is None:
        url = conf.api_database.connection
    if not url:
        return None
    database = databases.get(
        url, 'coordination', session.engine_options(conf, 'api_database'))
    if not database.has_locks:
        return None
    return functools.partial(database.lock, _NAME)


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

    Without a recent conflict no lock is needed, so that claims on different
    hosts cost nothing more. The lock is waited for from one second to fifteen,
    as long as thirty writes take; then the caller goes on without it, and so
    does every later one until the lock is free.

    :param acquire: see :data:`Acquire`; None for no lock, so that only
        conflicts are remembered
    :param start: runs a function in a new thread; required with ``acquire``
    """

    def __init__(
        self, clock: Clock, acquire: Acquire | None = None,
        start: Callable[[Callable[[], None]], Any] | None = None,
    ) -> None:
        self._clock = clock
        self._acquire_in_database = acquire
        self._start = start if acquire is not None else None
        #: By provider, until when it counts as contended.
        self._contended: dict[str, float] = {}
        #: The latest of these times.
        self._any_until = 0.0
        self._lock = threading.Lock()
        #: The mean duration of writes.
        self._write_s = 0.0
        self._use: _Use | None = None
        self._paused_until = 0.0
        self._conditions = Conditions(LOG, clock.monotonic)

    @property
    def is_enabled(self) -> bool:
        """True if processes have a lock."""
        return self._start is not None

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

    @property
    def is_used(self) -> bool:
        """True if a thread of this process holds the lock, or waits for it."""
        return self._use is not None

    @property
    def is_shared(self) -> bool:
        """True if another process wrote a provider a short time ago."""
        return self.is_enabled and self._any_until > self._clock.monotonic()

    @contextlib.contextmanager
    def held(self, providers: Iterable[str] | None = None) -> Iterator[None]:
        """Hold the lock for contended providers, if it is free in time.

        :param providers: None for all: a conflict at any provider counts
        """
        contended = [*filter(self.is_contended, providers or ())]
        if not (contended or providers is None) or not self.is_shared:
            yield
            return
        began = self._clock.monotonic()
        use = self._acquire(began + max(WAIT_S, min(
            _WRITES * self._write_s, _WAIT_MOST_S)))
        acquired = self._clock.monotonic()
        try:
            if acquired - began > _WAITED_S:
                self.note_conflict(contended)
            yield
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
                try:
                    self._start(functools.partial(self._hold, use))
                except RuntimeError as exc:
                    # The process has too many threads.
                    self._fail(exc)
                    self._end(use)
                    return None
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
        assert self._acquire_in_database is not None
        try:
            while not use.done.is_set():
                with (contextlib.suppress(exception.DatabaseBusy),
                      self._acquire_in_database(max(
                          use.until - self._clock.monotonic(), WAIT_S))):
                    use.answered.set()
                    self._conditions.end(_FAILING)
                    use.done.wait(_HELD_S)
                    break
        except Exception as exc:
            # A file system fails in other ways than a database.
            self._fail(exc)
        finally:
            self._end(use)

    def _fail(self, error: Exception) -> None:
        """Do without the lock for some time."""
        with self._lock:
            self._paused_until = self._clock.monotonic() + _PAUSE_S
        self._conditions.occur(_FAILING, error)

    def _end(self, use: _Use) -> None:
        with self._lock:
            self._use = None
        use.answered.set()
        use.ended.set()
