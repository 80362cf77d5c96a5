# SPDX-License-Identifier: Apache-2.0
"""Ownership of a host name by one agent process."""

from collections.abc import Callable
from typing import Any

from oslo_log import log

from cellsched.clock import Clock
from cellsched.db.cell import services
from cellsched.db import session
from cellsched import exception

LOG = log.getLogger(__name__)


class HostName:
    """Prevents two running agents with the same host name.

    A starting agent takes the name at once, because the agent before it is
    usually dead. If that one is alive, its next report detects the change and
    takes the name back; the second agent detects that with its own report and
    stops. An agent without a report for ``down_s`` counts as replaced and
    stops.

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
        """Take the name at the first report; later calls do nothing.

        :param write: runs a query in a transaction, with retries after
            conflicts
        """
        if self._run is None:
            self._kept_at = self._clock.monotonic()
            self._run = write(services.begin, self._host)

    def keep(
        self, seen: services.Seen, write: Callable[..., Any]
    ) -> bool:
        """Check that the name is owned; return whether it was retaken.

        If so, another process may have reported its resources meanwhile.

        :param seen: state of the cell before this report
        :raises cellsched.exception.HostNameTaken: another agent owns the name
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
