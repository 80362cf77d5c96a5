# SPDX-License-Identifier: Apache-2.0
"""Replacing pooled connections that do not work any more."""

import os
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

from cellsched.clock import Clock

#: Seconds for which a connection that was used is taken to be alive.
TRUSTED_S = 1.0

_PID, _USED_AT = 'cellsched_pid', 'cellsched_used_at'


def listen(engine: sa.Engine, clock: Clock) -> None:
    """Have an engine check connections that were idle before it gives them.

    ``pool_pre_ping`` checks each connection each time, which is a round trip
    for each transaction. Here one that was used within ``TRUSTED_S`` is not
    asked. If it was lost meanwhile, the transaction that finds out fails.

    Where one connection is lost, the server has most likely been restarted,
    and all that are older are replaced without being asked.
    """
    dialect = engine.dialect

    def connect(connection: Any, record: Any) -> None:
        record.info[_PID] = os.getpid()
        record.info[_USED_AT] = clock.monotonic()

    def checkout(connection: Any, record: Any, proxy: Any) -> None:
        if record.info[_PID] != os.getpid():
            raise sa.exc.DisconnectionError(
                'it was opened before this process was forked')
        if clock.monotonic() - record.info[_USED_AT] < TRUSTED_S:
            return
        try:
            dialect.do_ping(connection)
        except dialect.loaded_dbapi.Error as exc:
            raise sa.exc.InvalidatePoolError(str(exc)) from exc

    def checkin(connection: Any, record: Any) -> None:
        record.info[_USED_AT] = clock.monotonic()

    event.listen(engine, 'connect', connect)
    event.listen(engine, 'checkout', checkout)
    event.listen(engine, 'checkin', checkin)
