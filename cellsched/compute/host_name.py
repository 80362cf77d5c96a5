# SPDX-License-Identifier: Apache-2.0
"""The name of a host, which one process has."""

from collections.abc import Callable
from typing import Any

from oslo_log import log

from cellsched.clock import Clock
from cellsched.db.cell import services
from cellsched.db import session
from cellsched import exception

LOG = log.getLogger(__name__)


class HostName:
    """Keeps a second agent from going by the name of one that lives.

    An agent that starts takes the name, for the one before it is dead, as a
    rule, and nobody is to wait for that. One that lives all the same sees it
    with its next report, and takes the name back; and the second one sees
    that with its own, and ends. One that said nothing for as long as it takes
    to be down was replaced, and ends itself.

    :param down_s: seconds without a report after which a host is down
    """

    def __init__(
        self, host: str, database: session.Database, clock: Clock,
        down_s: float,
    ) -> None:
        self._host = host
        self._database = database
        self._clock = clock
        self._down_s = down_s
        self._run: int | None = None
        self._kept_at = 0.0

    def take(self, write: Callable[..., Any]) -> None:
        """Take the name, at the first report; later that does nothing.

        :param write: runs a query in a transaction until it loses to nobody
        """
        if self._run is None:
            self._kept_at = self._clock.monotonic()
            self._run = write(services.begin, self._host)

    def keep(
        self, seen: services.Seen, write: Callable[..., Any]
    ) -> bool:
        """Make sure that the name is still ours; return whether it was not.

        Another process may have reported what it has since, if it was not.

        :param seen: what the cell says before we report
        :raises cellsched.exception.HostNameTaken: it is another one's
        """
        if self._run is None:
            return False
        if seen.foreign:
            raise exception.HostNameTaken(
                host=self._host, by='a host of another cell')
        now = self._clock.monotonic()
        kept = seen.run == self._run
        if not kept:
            write(self._take_back, now - self._kept_at)
        self._kept_at = now
        return not kept

    def _take_back(self, connection: Any, silent_s: float) -> None:
        run = services.lock(connection, self._host)
        assert self._run is not None
        if run is not None and run != self._run:
            if run < self._run or silent_s > self._down_s:
                raise exception.HostNameTaken(
                    host=self._host, by='another agent of this cell')
            LOG.warning('Another agent has started as %s, which this one is; '
                        'it has to end', self._host)
        services.take(connection, self._host, self._run)
