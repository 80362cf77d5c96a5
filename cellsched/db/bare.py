# SPDX-License-Identifier: Apache-2.0
"""Connections of a driver itself, for what is done all the time.

To check one out of SQLAlchemy's pool and to give it back was a quarter of what
a claim took of the scheduler's CPU.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
from typing import Any

import sqlalchemy as sa

from cellsched import clock as clock_

#: Seconds after which a connection that nobody needed is used no more: what
#: is between it and its server may have forgotten it.
IDLE_S = 60.0

#: How many stay open while nobody uses them.
IDLE_MAX = 4

_CLOCK = clock_.Clock()


class NoneIdle(Exception):
    """No connection is open that nobody uses."""


class Connection:
    """A connection of the driver, ``raw``.

    :param generation: how often all were closed before
    :ivar prepared: names of statements that were prepared, by their texts
    """

    def __init__(self, raw: Any, now: float, generation: int) -> None:
        self.raw = raw
        self.generation = generation
        self.prepared: dict[bytes, bytes] = {}
        self.made_at = self.used_at = now


class Connections:
    """Connections whose statements are each a transaction of their own.

    They are made by a pool, and leave it.

    :param connect: checks one out of the pool
    :param recycle_s: how old they may get; there is no bound below zero
    """

    def __init__(
        self, connect: Callable[[], sa.PoolProxiedConnection],
        recycle_s: float = -1.0,
    ) -> None:
        self._connect = connect
        self._recycle_s = recycle_s
        self._generation = 0
        #: Those that nobody uses; what was used last comes last.
        self._idle: list[Connection] = []

    @contextlib.contextmanager
    def one(
        self, is_harmless: Callable[[Exception], bool], idle: bool = False
    ) -> Iterator[Connection]:
        """Give one that nobody else uses.

        :param is_harmless: whether it is as good as before after an error;
            after another one, all are closed
        :param idle: open none; that may take long
        :raises NoneIdle: none is open, and none may be opened
        """
        connection = self._take(idle)
        try:
            yield connection
        except BaseException as exc:
            if isinstance(exc, Exception) and is_harmless(exc):
                self._keep(connection)
            else:
                connection.raw.close()
                self.close()
            raise
        self._keep(connection)

    def close(self) -> None:
        """Close all; those that are in use, when they are given back."""
        self._generation += 1
        while (idle := self._pop()) is not None:
            idle.raw.close()

    def _take(self, idle_only: bool) -> Connection:
        now, generation = _CLOCK.monotonic(), self._generation
        while (idle := self._pop()) is not None:
            if self._is_good(idle, now):
                return idle
            idle.raw.close()
        if idle_only:
            raise NoneIdle()
        pooled = self._connect()
        raw: Any = pooled.driver_connection
        pooled.detach()
        raw.autocommit = True
        return Connection(raw, now, generation)

    def _is_good(self, idle: Connection, now: float) -> bool:
        return (not idle.raw.closed and now - idle.used_at < IDLE_S
                and not 0 <= self._recycle_s <= now - idle.made_at)

    def _keep(self, connection: Connection) -> None:
        if (len(self._idle) < IDLE_MAX
                and connection.generation == self._generation):
            connection.used_at = _CLOCK.monotonic()
            self._idle.append(connection)
        else:
            connection.raw.close()

    def _pop(self) -> Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None
