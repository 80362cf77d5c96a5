# SPDX-License-Identifier: Apache-2.0
"""The clock of a database server, as a process knows it.

The clocks of machines differ, and what one of them writes another one judges:
a report of a host, a lease, a deadline. All who use a database can ask its
server what time it is, so those times are the server's.
"""

import sqlalchemy as sa

from cellsched.clock import Clock
from cellsched.db import mysql

#: Seconds for which an answer of the server is gone on from.
SPACING_S = 10.0

#: Queries for the seconds since the epoch, whatever the session's time zone.
QUERIES = {
    'postgresql':
        'SELECT CAST(extract(epoch FROM clock_timestamp()) AS float8)',
    **dict.fromkeys(
        mysql.DIALECTS,
        "SELECT timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))"
        ' / 1e6'),
}


class ServerClock:
    """Tells a server's time by what it said and what passed since.

    What passed is measured by the process's monotonic clock, which no step of
    its wall clock moves. The error is half of the round trip at most. May be
    used by several threads.

    :param clock: the process's own
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: When the server was asked, and by how much it is ahead of the
        #: monotonic clock.
        self._said: tuple[float, float] | None = None

    def ask(self, connection: sa.Connection) -> float:
        """Return seconds since the epoch; ask the server if that is due.

        :param connection: in no transaction; it is left in none
        """
        began = self._clock.monotonic()
        if self._said is None or began - self._said[0] >= SPACING_S:
            query = QUERIES[connection.dialect.name]
            said = float(connection.exec_driver_sql(query).scalar_one())
            ended = self._clock.monotonic()
            self._said = ended, said - (began + ended) / 2
            # SQLAlchemy takes what reads for the begin of a transaction.
            connection.rollback()
        return self._clock.monotonic() + self._said[1]

    def timestamp(self) -> float | None:
        """Return seconds since the epoch, or None before it was asked."""
        if self._said is None:
            return None
        return self._clock.monotonic() + self._said[1]
