# SPDX-License-Identifier: Apache-2.0
"""Connections of a driver itself, for what is done all the time.

To check one out of SQLAlchemy's pool and to give it back takes a third as long
as what a claim has to do on it.
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


class _Bare:
    """A connection, since when there is one, and when it was used last."""

    def __init__(self, connection: Any, now: float) -> None:
        self.connection = connection
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
        #: Those that nobody uses; what was used last comes last.
        self._idle: list[_Bare] = []

    @contextlib.contextmanager
    def one(
        self, is_harmless: Callable[[Exception], bool]
    ) -> Iterator[Any]:
        """Give one that nobody else uses.

        :param is_harmless: whether it is as good as before after an error;
            after another one, those that nobody uses are closed too
        """
        bare = self._take()
        try:
            yield bare.connection
        except BaseException as exc:
            if isinstance(exc, Exception) and is_harmless(exc):
                self._keep(bare)
            else:
                bare.connection.close()
                self.close()
            raise
        self._keep(bare)

    def close(self) -> None:
        """Close those that nobody uses."""
        while (bare := self._pop()) is not None:
            bare.connection.close()

    def _take(self) -> _Bare:
        now = _CLOCK.monotonic()
        while (bare := self._pop()) is not None:
            if self._is_good(bare, now):
                return bare
            bare.connection.close()
        pooled = self._connect()
        connection: Any = pooled.driver_connection
        pooled.detach()
        connection.autocommit = True
        return _Bare(connection, now)

    def _is_good(self, bare: _Bare, now: float) -> bool:
        return (not bare.connection.closed and now - bare.used_at < IDLE_S
                and not 0 <= self._recycle_s <= now - bare.made_at)

    def _keep(self, bare: _Bare) -> None:
        if len(self._idle) < IDLE_MAX:
            bare.used_at = _CLOCK.monotonic()
            self._idle.append(bare)
        else:
            bare.connection.close()

    def _pop(self) -> _Bare | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None
