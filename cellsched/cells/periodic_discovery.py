# SPDX-License-Identifier: Apache-2.0
"""Discovery by period: of several schedulers the leader maps new hosts."""

from oslo_log import log

from cellsched.cells.discovery import Discovery
from cellsched.db.api import leaders
from cellsched.db import session
from cellsched import exception

LOG = log.getLogger(__name__)

#: What is led, in the table of leaders.
TASK = 'discover_hosts'

#: How long a lease lasts, in periods. As a leader asks once in a period, it
#: goes on to lead though it is late by half of one.
_LEASE_PERIODS = 1.5


class PeriodicDiscovery:
    """Maps the hosts of new compute nodes while its process leads.

    When a leader ends, another one leads two and a half periods later at the
    latest. If two did at a time, which takes a pause of the first in the midst
    of its work, they would do no harm: a host is mapped once.

    :param database: the API database
    :param candidate: the name of the process, unlike that of any other
    :param period_s: seconds between two calls of :meth:`run`
    """

    def __init__(
        self, database: session.Database, discovery: Discovery,
        candidate: str, period_s: float,
    ) -> None:
        self._database = database
        self._discovery = discovery
        self._candidate = candidate
        self._lease_s = period_s * _LEASE_PERIODS
        self._leads = False
        self._conflict = ''

    def run(self) -> list[str]:
        """Map new hosts if this process leads; return those it mapped.

        :raises cellsched.exception.DatabaseError: the API database failed, or
            a cell's; the hosts of other cells are mapped all the same
        """
        if not self._elected():
            return []
        try:
            new = self._discovery.discover(status=LOG.debug)
        except exception.HostMappingExists as exc:
            # Until somebody mends it, it is found again each time.
            if str(exc) != self._conflict:
                LOG.error('%s', exc)
            self._conflict = str(exc)
            return []
        self._conflict = ''
        if new:
            LOG.info('Mapped new hosts: %s', ', '.join(new))
        return new

    def _elected(self) -> bool:
        now = self._database.timestamp()
        with self._database.writer() as connection:
            leads = leaders.elect(connection, TASK, self._candidate, now,
                                  now + self._lease_s)
        if leads != self._leads:
            LOG.info('This scheduler maps new hosts from now on' if leads else
                     'Another scheduler maps new hosts from now on')
        self._leads = leads
        return leads
