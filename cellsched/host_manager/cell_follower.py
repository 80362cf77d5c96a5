# SPDX-License-Identifier: Apache-2.0
"""Following one cell: apply its changes to the host table."""

from collections.abc import Iterable
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import logging
from typing import Any

from oslo_log import log

from cellsched.cells.discovery import Discovery
from cellsched.clock import Clock
from cellsched.clock import Lock
from cellsched.db.api import host_mappings
from cellsched.db.cell import hosts as feed
from cellsched.db import session
from cellsched import exception
from cellsched.host_manager.aggregate_groups import AggregateGroups
from cellsched.host_manager import node_columns
from cellsched.hosts.table import HostTable
from cellsched import objects
from cellsched.observability.conditions import Conditions

LOG = log.getLogger(__name__)

_FLAWED = 'Values of compute node %s are ignored'
_PARTIAL = ('Compute nodes of cell %s have no host or no uuid and are left '
            'out')
_STRANGER = ('Host %s of cell %s is mapped to another cell and is left out; '
             'host names are unique across cells')


@dataclasses.dataclass(eq=False)
class CellFollower:
    """The known hosts of one cell.

    A node enters the table when its service is known and its host is mapped to
    this cell. A node of an unmapped host is mapped when it is first seen, or
    waits until it is mapped elsewhere. A node leaves the table when the
    mapping of its host is deleted, until the host is mapped again.

    The table has the time of a host's last report by the scheduler's clock.
    The cell has it by the clock of its database, which the agents use.

    :param lock: held while the table is written
    :param clock: the clock that readers of the table use
    :param conditions: logs what is wrong with rows
    :param maps_hosts: whether to map unmapped hosts
    """

    cell: objects.CellMapping
    table: HostTable
    lock: Lock
    aggregate_groups: AggregateGroups
    discovery: Discovery
    clock: Clock
    conditions: Conditions
    maps_hosts: bool = True

    def __post_init__(self) -> None:
        self._sourced = tuple(
            [each for each in self.table.specs.values() if each.source])
        self._reading = self.clock.lock()
        #: Seconds that the database's clock is ahead of the scheduler's.
        self.ahead_s = 0.0
        self._token: Any = None
        #: The nodes in the table, by host: usually one, else a tuple.
        self._nodes: dict[str, str | tuple[str, ...]] = {}
        #: The services of hosts that have no node in the table yet, and those
        #: that are being applied.
        self._services: dict[str, Any] = {}
        self._waiting: dict[str, Any] = {}
        #: The hosts that are mapped to the cell, for :meth:`read`; None if
        #: mappings are not followed. A new set means a change.
        self.mapped: Set[str] | None = None
        self._compared: Set[str] | None = None
        self._unmapped: set[str] = set()
        #: The monotonic time of the next full read.
        self.full_at = 0.0
        self._forgotten = False
        #: Whether a host reported whose node is not in the table.
        self._is_behind = False

    def read(
        self, database: session.Database, everything: bool
    ) -> list[str]:
        """Read and apply the changes; return the new providers."""
        with self._reading:
            everything |= self._compare()
            changes = self._changes(database, everything)
            now = self.clock.steady()
            self.ahead_s = database.timestamp() - now
            self._is_behind = False
            new = self._apply(changes, now)
            if self._is_behind:
                # Another cell had a node of this one, and has removed it.
                changes = self._changes(database, everything=True)
                new += self._apply(changes, now)
            self._token = changes.token
            return new

    def take(self, hosts: feed.HostChanges, ahead_s: float) -> None:
        """Apply hosts that the caller has read.

        :param ahead_s: seconds that the clock of their database is ahead
        """
        with self._reading:
            self.ahead_s = ahead_s
            self._apply(hosts, self.clock.steady())

    def regroup(self, hosts: Iterable[str]) -> None:
        """Set the aggregates of these hosts again; the lock is held."""
        nodes = [(host, uuid) for host in hosts
                 for uuid in self._present(self._nodes_of(host))]
        self.table.put([uuid for _, uuid in nodes],
                       self._groups(host for host, _ in nodes))

    def forget(self) -> None:
        """Remove the cell and its hosts."""
        with self.lock:
            self._forgotten = True
            self.table.drop(self._present(
                uuid for host in self._nodes for uuid in self._nodes_of(host)))
            self.table.cells.drop(self.cell.uuid)

    def _compare(self) -> bool:
        """Drop the hosts whose mappings were deleted.

        :returns: whether a host was mapped again and must be read
        """
        mapped = self.mapped
        if mapped is self._compared or mapped is None:
            return False
        self._compared = mapped
        unmapped = self._nodes.keys() - mapped
        self._leave_out(unmapped)
        removed = {uuid for host in unmapped for uuid in self._nodes_of(host)}
        with self.lock:
            self.table.drop(self._present(removed))
            self._update_nodes(removed, ())
        mapped_again = self._unmapped & mapped
        self._unmapped -= mapped_again
        return bool(mapped_again)

    def _present(self, uuids: Iterable[str]) -> list[str]:
        """Return the nodes whose rows are of this cell; the lock is held.

        A node that has moved to another cell keeps its uuid, and that cell may
        have been read before. It may even have removed the node again.
        """
        table = self.table
        return [
            uuid for uuid in uuids if (row := table.row(uuid)) is not None
            and table.written_value('cell', row) == self.cell.uuid]

    def _leave_out(self, hosts: Set[str]) -> None:
        for host in sorted(hosts - self._unmapped):
            LOG.warning('Host %s of cell %s is no longer mapped to it and '
                        'is ignored', host, self.cell.identity)
        self._unmapped |= hosts

    def _changes(
        self, database: session.Database, everything: bool
    ) -> feed.HostChanges:
        token = feed.token(database)
        since = None if everything else self._token
        if since == token:
            # The usual case, in each of many cells.
            return feed.nothing(token)
        with database.reader() as connection:
            return feed.changes(connection, since, token)

    def _apply(self, changes: feed.HostChanges, now: float) -> list[str]:
        if changes.partial:
            self.conditions.occur(
                _PARTIAL % self.cell.identity, exception.name_some(
                    [str(row.uuid or row.host) for row in changes.partial]))
        elif changes.complete:
            self.conditions.end(_PARTIAL % self.cell.identity)
        # 1. Without a change, only the time of the answer is new. This is the
        #    usual case in each of many cells, so it takes no other step.
        if not (changes.complete or changes.nodes or changes.services
                or self._waiting):
            with self.lock:
                if not self._forgotten:
                    self.table.cells.heard(self.cell.uuid, now)
            return []
        # 2. Store the services, and find the hosts without one. Changes name
        #    only the hosts that changed: the absence of another host is no
        #    evidence.
        if changes.complete:
            self._services = {}
        for row in changes.services:
            if row.deleted:
                self._services.pop(row.host, None)
            else:
                self._services[row.host] = row
        served = [row for row in changes.services
                  if self._services.get(row.host) is row]
        unserved = (self._nodes.keys() if changes.complete else {
            row.host for row in changes.services}) - self._services.keys()
        # 3. Select the nodes to write. The row of a node can be read before
        #    that of its service, and before the mapping of its host; it waits
        #    for these in each following reading.
        waiting = {} if changes.complete else dict(self._waiting)
        waiting.update((row.uuid, row) for row in changes.nodes)
        removed = {row.uuid for row in changes.nodes if row.deleted}
        rows = self._mapped([
            row for uuid, row in waiting.items()
            if uuid not in removed and (row.host in self._services or (
                row.host in self._nodes and row.host not in unserved))])
        written = {row.uuid for row in rows}
        self._waiting = {uuid: row for uuid, row in waiting.items()
                         if uuid not in removed and uuid not in written}
        # 4. Remove nodes only for a record: a deleted row, a deleted service,
        #    or a complete answer without the node.
        if changes.complete:
            present = {row.uuid for row in changes.nodes}
            removed |= {
                uuid for host in self._nodes for uuid in self._nodes_of(host)
                if uuid not in present}
        removed |= {uuid for host in unserved for uuid in self._nodes_of(host)}
        return self._write(rows, served, removed, now)

    def _nodes_of(self, host: str) -> tuple[str, ...]:
        """Return the nodes of a host in the table."""
        nodes = self._nodes.get(host, ())
        return (nodes,) if isinstance(nodes, str) else nodes

    def _write(
        self, rows: Sequence[Any], served: Sequence[Any], removed: set[str],
        now: float,
    ) -> list[str]:
        """Write changes to the table; return the new providers.

        They are new nodes, and the child providers of nodes that have others
        than before.
        """
        uuids = [row.uuid for row in rows]
        # The names in the set of mapped hosts are not stored again.
        names = getattr(self.mapped, 'mapping', {})
        hosts = [names.get(row.host, row.host) for row in rows]
        values = self._values(rows, hosts, removed)
        table = self.table
        with self.lock:
            if self._forgotten:
                # The cell was removed during a slow read.
                return []
            known = [table.row(uuid) for uuid in uuids]
            written = table.written('host')
            before = [None if row is None else written[row] for row in known]
            failed = table.written('failed_builds')
            failures = sum(
                max(count - failed[row], 0) for row, count
                in zip(known, values['failed_builds']) if row is not None)
            new = [uuid for uuid, row in zip(uuids, known) if row is None]
            new += [
                child for row, children in zip(known, values['child_uuids'])
                if children and (row is None or children
                                 != table.written_value('child_uuids', row))
                for child in children]
            values |= self._service_values(hosts) | self._groups(hosts)
            table.drop(self._present(removed))
            if rows:
                table.put(uuids, values)
            # A node can come from another host, or from another name.
            self._update_nodes(removed | {
                uuid for uuid, host, old in zip(uuids, hosts, before)
                if old not in (None, host)}, zip(hosts, uuids))
            # The nodes that were just written have their services.
            new_uuids = set(uuids)
            beats = [(row, uuid) for row in served
                     for uuid in self._present(self._nodes_of(row.host))
                     if uuid not in new_uuids]
            self._is_behind = any(
                table.row(uuid) is None for row in served
                for uuid in self._nodes_of(row.host))
            if beats:
                table.put([uuid for _, uuid in beats],
                          node_columns.of_services(
                              [row for row, _ in beats], self.ahead_s))
            if failures:
                table.cells.failed(self.cell.uuid, failures, now)
            table.cells.heard(self.cell.uuid, now)
        # A dictionary does not shrink when its entries are deleted.
        self._services = {host: row for host, row in self._services.items()
                          if host not in self._nodes}
        return new

    def _values(
        self, rows: Sequence[Any], hosts: Sequence[str], removed: set[str]
    ) -> dict[str, Any]:
        """Return the columns of nodes; log the values that are ignored."""
        flaws: node_columns.Flaws = {}
        values = node_columns.of_nodes(
            rows, self.cell.uuid, self._sourced, hosts, flaws)
        self.conditions.replace(
            {_FLAWED % uuid: '; '.join(each) for uuid, each in flaws.items()},
            among={_FLAWED % uuid for uuid in (*(row.uuid for row in rows),
                                               *removed)})
        return values

    def _service_values(self, hosts: Sequence[str]) -> dict[str, list[Any]]:
        """Return the service columns of hosts, from new or stored services."""
        reported = {host: self._services[host] for host in hosts
                    if host in self._services}
        values = node_columns.of_services(
            list(reported.values()), self.ahead_s)
        places = dict(zip(reported, range(len(reported))))
        return {name: [
            value[places[host]] if host in places else
            self.table[name][self.table.row(self._nodes_of(host)[0])]
            for host in hosts] for name, value in values.items()}

    def _update_nodes(
        self, removed: set[str], present: Iterable[tuple[str, str]]
    ) -> None:
        if removed:
            remaining = {host: tuple(uuid for uuid in self._nodes_of(host)
                                     if uuid not in removed)
                         for host in self._nodes}
            self._nodes = {
                host: nodes if len(nodes) > 1 else nodes[0]
                for host, nodes in remaining.items() if nodes}
        for host, uuid in present:
            nodes = self._nodes_of(host)
            if uuid not in nodes:
                self._nodes[host] = (*nodes, uuid) if nodes else uuid

    def _groups(self, hosts: Iterable[str]) -> dict[str, list[Any]]:
        hosts = list(hosts)
        return {
            'aggregates': [self.aggregate_groups.group(host)
                           for host in hosts],
            'availability_zone': [self.aggregate_groups.zone(host)
                                  for host in hosts],
            'sharing': [self.aggregate_groups.sharing(host)
                        for host in hosts]}

    def _mapped(self, rows: Sequence[Any]) -> Sequence[Any]:
        """Return the nodes of hosts in this cell; map unmapped hosts."""
        # 1. Leave out the hosts that lost their mapping. A host that is not in
        #    the set is looked up: it may have been mapped later.
        mapped = self.mapped
        unknown = set() if mapped is None else {
            row.host for row in rows
            if row.mapped >= 1 and row.host not in mapped}
        if unknown:
            owners = self.discovery.owners(unknown - self._unmapped)
            self._leave_out({
                host for host in unknown - self._unmapped
                if host not in owners or owners[host].uuid != self.cell.uuid})
            rows = [row for row in rows if row.mapped < 1
                    or row.host not in self._unmapped]
        # 2. Map the hosts that are new, or leave them out.
        if not self.maps_hosts:
            rows = [row for row in rows if row.mapped >= 1
                    or row.host in (self.mapped or ())]
        new = [row for row in rows if row.mapped < 1]
        if not new:
            return rows
        owners = self.discovery.adopt(self.cell, new)
        # Add them to the set of mapped hosts.
        self._compared = None
        strangers = {host for host, owner in owners.items()
                     if owner.uuid != self.cell.uuid}
        self.conditions.replace({
            _STRANGER % (host, self.cell.identity):
            f'it is mapped to cell {owners[host].identity}'
            for host in strangers}, logging.ERROR, {
                _STRANGER % (row.host, self.cell.identity) for row in new})
        return [row for row in rows if row.host not in strangers]


_NONE: frozenset[str] = frozenset()


class HostMappings:
    """The hosts that the API database maps to each cell.

    :param database: the API database
    """

    def __init__(self, database: session.Database) -> None:
        self._database = database
        self._fingerprint: Any = None
        self._hosts: dict[str, Set[str]] = {}

    def read(self) -> None:
        """Read the mappings again if they changed.

        Deleting a mapping, for example by a command of Nova, sends no message.
        One cheap statement with a few numbers as its result detects it.
        """
        with self._database.reader() as connection:
            fingerprint = host_mappings.fingerprint(connection)
            if fingerprint != self._fingerprint:
                before = self._hosts
                # A key view compares like a set, and has the names that are
                # stored already.
                self._hosts = {}
                for uuid, hosts in host_mappings.by_cell(connection).items():
                    names = getattr(before.get(uuid), 'mapping', {})
                    self._hosts[uuid] = {
                        host: names.get(host, host) for host in hosts}.keys()
                self._fingerprint = fingerprint

    def hosts(self, cell_uuid: str) -> Set[str]:
        """Return the hosts of a cell: the same set until they change."""
        return self._hosts.get(cell_uuid, _NONE)
