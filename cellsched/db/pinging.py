# SPDX-License-Identifier: Apache-2.0
"""Asking connections whether they are alive, only when that is in doubt.

SQLAlchemy asks each time that a connection leaves the pool, which is a third
of a short transaction.
"""

from typing import Any
import weakref

import sqlalchemy as sa
from sqlalchemy import event

from cellsched import clock as clock_

#: Seconds for which a connection that worked is taken to be alive.
TRUSTED_S = 1.0


def ask_seldom(engine: sa.Engine, clock: clock_.Clock) -> None:
    """Let an engine ask a connection only after it was idle for a while.

    One that dies sooner fails the transaction that meets it, as one does that
    dies meanwhile.
    """
    used: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()
    ask = engine.dialect.do_ping

    def do_ping(connection: Any) -> bool:
        idle_s = clock.monotonic() - used.get(connection, -TRUSTED_S)
        return idle_s < TRUSTED_S or ask(connection)

    def checkin(connection: Any, record: Any) -> None:
        if connection is not None:
            used[connection] = clock.monotonic()

    def invalidate(connection: Any, record: Any, failure: Any) -> None:
        # The others that were made with it have not been asked since.
        used.clear()

    event.listen(engine, 'checkin', checkin)
    event.listen(engine, 'invalidate', invalidate)
    engine.dialect.do_ping = do_ping  # type: ignore[assignment]
