# SPDX-License-Identifier: Apache-2.0
"""Following one cell: what changes there goes into the host table."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import threading
from typing import Any

from oslo_log import log

from cellsched.cells import discovery as discovery_
from cellsched import clock as clock_
from cellsched.db.cell import hosts as feed
from cellsched.db import session
from cellsched.hosts import figures
from cellsched.hosts import grouping as grouping_
from cellsched.hosts import table as table_
from cellsched import objects

LOG = log.getLogger(__name__)


class Follower:
    """The hosts of one cell, as far as they are known.

    A node is in the table from when its service is known too, and its host
    is this cell's. A node that nobody mapped yet is mapped when it is first
    seen.

    :param lock: is held while the table is written
    :param make_lock: see :meth:`cellsched.clock.Clock.lock`
    """

    def __init__(
        self, cell: objects.CellMapping, table: table_.HostTable,
        lock: clock_.Lock, grouping: grouping_.Grouping,
        discovery: discovery_.Discovery,
        make_lock: Callable[[], clock_.Lock] = threading.Lock,
    ) -> None:
        self.cell = cell
        self._table = table
        self._lock = lock
        self._grouping = grouping
        self._discovery = discovery
        self._reading = make_lock()
        self._token: Any = None
        #: The nodes in the table, by host.
        self._nodes: dict[str, tuple[str, ...]] = {}
        #: The services; of those whose nodes are in the table, which has what
        #: they say, there is nothing more than that they exist.
        self._services: dict[str, Any] = {}
        self._waiting: dict[str, Any] = {}
        self._strangers: set[str] = set()
        #: When everything is to be read again, on the monotonic clock.
        self.full_at = 0.0
        self._forgotten = False

    def read(
        self, database: session.Database, everything: bool, now: float
    ) -> list[str]:
        """Take over what changed; return the nodes that are new.

        :param now: wall clock time, in seconds since the epoch
        """
        with self._reading:
            changes = self._changes(database, everything)
            new = self._apply(changes, now)
            self._token = changes.token
            return new

    def regroup(self, hosts: Iterable[str]) -> None:
        """Set the aggregates of these hosts anew; the lock is held."""
        mine = [(host, uuid) for host in hosts
                for uuid in self._nodes.get(host, ())]
        self._table.put([uuid for _, uuid in mine],
                        self._groups(host for host, _ in mine))

    def forget(self) -> None:
        """Remove all that is known of the cell, for good."""
        with self._lock:
            self._forgotten = True
            self._table.drop(
                uuid for nodes in self._nodes.values() for uuid in nodes)
            self._table.cells.drop(self.cell.uuid)

    def _changes(
        self, database: session.Database, everything: bool
    ) -> feed.Changes:
        token = feed.token(database)
        since = None if everything else self._token
        if since == token:
            # So it is nearly always, for each of many cells.
            return feed.nothing(token)
        with database.reader() as connection:
            return feed.changes(connection, since, token)

    def _apply(self, changes: feed.Changes, now: float) -> list[str]:
        if not (changes.complete or changes.nodes or changes.services
                or self._waiting):
            with self._lock:
                if not self._forgotten:
                    self._table.cells.heard(self.cell.uuid, now)
            return []
        served = self._serve(changes)
        waiting = {} if changes.complete else dict(self._waiting)
        waiting.update((row.uuid, row) for row in changes.nodes)
        gone = {row.uuid for row in changes.nodes if row.deleted}
        rows = self._mapped([
            row for uuid, row in waiting.items()
            if uuid not in gone and self._is_served(row.host)])
        self._waiting = {
            uuid: row for uuid, row in waiting.items() if uuid not in gone}
        for row in rows:
            del self._waiting[row.uuid]
        if changes.complete:
            there = {row.uuid for row in changes.nodes}
            gone |= {uuid for nodes in self._nodes.values() for uuid in nodes
                     if uuid not in there}
        # What did not change costs nothing here, however much it is.
        told = (self._nodes if changes.complete
                else {row.host for row in changes.services})
        gone |= {uuid for host in told if host not in self._services
                 for uuid in self._nodes.get(host, ())}
        return self._write(rows, served, gone, now)

    def _is_served(self, host: str) -> bool:
        return (self._services.get(host) is not None
                or (host in self._services and host in self._nodes))

    def _serve(self, changes: feed.Changes) -> list[Any]:
        """Remember the services; return those that changed."""
        if changes.complete:
            self._services = {}
        for row in changes.services:
            if row.deleted:
                self._services.pop(row.host, None)
            else:
                self._services[row.host] = row
        return [row for row in changes.services
                if self._services.get(row.host) is row]

    def _write(
        self, rows: Sequence[Any], served: Sequence[Any], gone: set[str],
        now: float,
    ) -> list[str]:
        """Write what changed into the table; return the nodes that are new."""
        uuids = [row.uuid for row in rows]
        hosts = [row.host for row in rows]
        values = figures.of_nodes(rows, self.cell.uuid)
        table = self._table
        with self._lock:
            if self._forgotten:
                # The cell was slow, and went meanwhile.
                return []
            known = [table.row(uuid) for uuid in uuids]
            failed = table['failed_builds']
            failures = sum(
                max(count - failed[row], 0) for row, count
                in zip(known, values['failed_builds']) if row is not None)
            values |= self._service_values(hosts) | self._groups(hosts)
            table.drop(gone)
            if rows:
                table.put(uuids, values)
            self._note(gone, zip(hosts, uuids))
            beats = [(row, uuid) for row in served
                     for uuid in self._nodes.get(row.host, ())]
            if beats:
                table.put([uuid for _, uuid in beats],
                          figures.of_services([row for row, _ in beats]))
            if failures:
                table.cells.failed(self.cell.uuid, failures, now)
            table.cells.heard(self.cell.uuid, now)
        for host in (*hosts, *(row.host for row in served)):
            if host in self._nodes:
                self._services[host] = None
        return [uuid for uuid, row in zip(uuids, known) if row is None]

    def _service_values(self, hosts: Sequence[str]) -> dict[str, list[Any]]:
        """Return what the services of hosts say, told now or before."""
        told = {host: self._services[host] for host in hosts
                if self._services[host] is not None}
        values = figures.of_services(list(told.values()))
        places = dict(zip(told, range(len(told))))
        return {name: [
            said[places[host]] if host in places else
            self._table[name][self._table.row(self._nodes[host][0])]
            for host in hosts] for name, said in values.items()}

    def _note(
        self, gone: set[str], there: Iterable[tuple[str, str]]
    ) -> None:
        if gone:
            left = {host: tuple(uuid for uuid in nodes if uuid not in gone)
                    for host, nodes in self._nodes.items()}
            self._nodes = {host: nodes for host, nodes in left.items()
                           if nodes}
        for host, uuid in there:
            nodes = self._nodes.get(host, ())
            if uuid not in nodes:
                self._nodes[host] = (*nodes, uuid)

    def _groups(self, hosts: Iterable[str]) -> dict[str, list[Any]]:
        hosts = list(hosts)
        return {
            'aggregates': [self._grouping.group(host) for host in hosts],
            'availability_zone': [self._grouping.zone(host)
                                  for host in hosts]}

    def _mapped(self, rows: Sequence[Any]) -> Sequence[Any]:
        """Return the nodes whose hosts are this cell's; map new ones."""
        new = [row for row in rows if row.mapped < 1]
        if not new:
            return rows
        owners = self._discovery.adopt(self.cell, new)
        strangers = {host for host, owner in owners.items()
                     if owner.uuid != self.cell.uuid}
        for host in strangers - self._strangers:
            LOG.error('Host %s of cell %s is mapped to cell %s and is left '
                      'out; host names are unique across cells',
                      host, self.cell.identity, owners[host].identity)
        self._strangers = strangers
        return [row for row in rows if row.host not in strangers]
