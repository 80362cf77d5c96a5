# SPDX-License-Identifier: Apache-2.0
"""Filling the host table from the cells' databases and the claim store."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import datetime
import threading
from typing import Any

from oslo_log import log

from cellsched.cells import discovery
from cellsched.cells import gather
from cellsched.cells import registry
from cellsched import clock as clock_
from cellsched import context as context_
from cellsched.db.api import aggregates
from cellsched.db.cell import compute_nodes
from cellsched.db import session
from cellsched.hosts import columns
from cellsched.hosts import table
from cellsched import objects

LOG = log.getLogger(__name__)

#: Aggregates' key for the availability zone of their hosts.
ZONE_KEY = 'availability_zone'


class Loader:
    """Keeps a host table as the deployment is.

    Facts of hosts come from their cells; what is taken comes from the claim
    store, which reports only what changed. A compute node that nobody mapped
    yet is mapped when it is first seen.

    Whoever reads or changes :attr:`table` holds :attr:`lock`, and does nothing
    meanwhile that blocks.

    :param database: the API database
    :param claims: the claim store
    :param interval_s: seconds for which the table is good
    :param default_zone: availability zone of hosts that are in none
    """

    def __init__(
        self, database: session.Database, cells: registry.CellRegistry,
        gatherer: gather.Gatherer, hosts: discovery.Discovery, claims: Any,
        clock: clock_.Clock, interval_s: float, default_zone: str,
        extra_columns: Iterable[columns.Column] = (),
    ) -> None:
        self._database = database
        self._cells = cells
        self._gatherer = gatherer
        self._discovery = hosts
        self._claims = claims
        self._clock = clock
        self._interval_s = interval_s
        self._default_zone = default_zone
        self._refreshing = threading.Lock()
        # What is read first is applied first.
        self._reading = threading.Lock()
        self._read_at: float | None = None
        self._token: Any = None
        self._doubtful: set[str] = set()
        self._strangers: set[tuple[str, str]] = set()
        self.lock = threading.Lock()
        self.table = table.HostTable((*columns.STANDARD, *extra_columns))
        #: Cells that did not answer when they were last asked, by identity.
        self.silent: list[str] = []

    def refresh(
        self, context: context_.RequestContext, since: float | None = None
    ) -> bool:
        """Bring the table up to date if it is older than it may be.

        :param since: a monotonic time; what was read before it is too old
        :returns: whether it was too old
        """
        with self._refreshing:
            now = self._clock.monotonic()
            if since is None:
                since = now - self._interval_s
            if self._read_at is not None and self._read_at > since:
                return False
            self._read_cells(context)
            self._read_claims()
            self._read_at = now
            return True

    def reload(self, providers: Sequence[str]) -> None:
        """Set what is taken to what the claim store says by now.

        That is done for what changed, and for these hosts in any case. Where
        it fails it is done with the next refresh.
        """
        with self.lock:
            self._doubtful.update(providers)
        self._read_claims()

    def _read_cells(self, context: context_.RequestContext) -> None:
        cells = {cell.uuid: cell for cell in self._cells.enabled()}
        gathered = self._gatherer.gather(
            context, cells.values(),
            lambda aimed: self._read_nodes(aimed, cells))
        for uuid, failure in gathered.failures.items():
            LOG.warning('Cell %s cannot be read: %s', cells[uuid].identity,
                        failure)
        with self._database.reader() as connection:
            zones = aggregates.metadata_by_host(connection, ZONE_KEY)
        nodes = {uuid: gathered.results[uuid]
                 for uuid in cells if uuid in gathered.results}
        with self.lock:
            self.silent = sorted(
                cells[uuid].identity
                for uuid in gathered.silent | gathered.failures.keys())
            known = {uuid for rows in nodes.values()
                     for uuid in (row.uuid for row in rows)}
            self.table.drop(set(self.table['uuid']) - known)
            if self._token is not None:
                self._doubtful.update(
                    uuid for uuid in known if self.table.row(uuid) is None)
            for uuid, rows in nodes.items():
                self._put(uuid, rows, zones)

    def _read_nodes(
        self, aimed: context_.RequestContext,
        cells: Mapping[str, objects.CellMapping],
    ) -> Sequence[Any]:
        """Return a cell's nodes, within the time that the cell has."""
        assert aimed.cell is not None
        with aimed.cell.database.reader() as connection:
            rows = compute_nodes.list_with_services(connection)
        return self._mapped(cells[aimed.cell.uuid], rows)

    def _mapped(
        self, cell: objects.CellMapping, rows: Sequence[Any]
    ) -> Sequence[Any]:
        """Return the nodes whose hosts are this cell's; map new ones."""
        new = [row for row in rows if row.mapped < 1]
        if not new:
            return rows
        owners = self._discovery.adopt(cell, new)
        strangers = {host for host, owner in owners.items()
                     if owner.uuid != cell.uuid}
        for host in strangers - {
                host for host, uuid in self._strangers if uuid == cell.uuid}:
            LOG.error('Host %s of cell %s is mapped to cell %s and is left '
                      'out; host names are unique across cells',
                      host, cell.identity, owners[host].identity)
            self._strangers.add((host, cell.uuid))
        return [row for row in rows if row.host not in strangers]

    def _put(
        self, cell_uuid: str, rows: Sequence[Any], zones: dict[str, str]
    ) -> None:
        if not rows:
            return
        self.table.put([row.uuid for row in rows], {
            'host': [row.host for row in rows],
            'nodename': [row.hypervisor_hostname for row in rows],
            'cell': cell_uuid,
            'availability_zone': [
                zones.get(row.host, self._default_zone) for row in rows],
            'service_disabled': [bool(row.disabled) for row in rows],
            'forced_down': [bool(row.forced_down) for row in rows],
            'last_seen_up': [_timestamp(row.last_seen_up or row.created_at)
                             for row in rows],
            'vcpus_total': [row.vcpus for row in rows],
            'total_usable_ram_mb': [row.memory_mb for row in rows],
            'unreserved_ram_mb': [
                row.memory_mb - row.memory_mb_used for row in rows],
            'total_usable_disk_gb': [row.local_gb for row in rows],
            'unreserved_disk_mb': [
                (row.local_gb - row.local_gb_used) * 1024 for row in rows],
            'cpu_allocation_ratio': [
                row.cpu_allocation_ratio or 1.0 for row in rows],
            'ram_allocation_ratio': [
                row.ram_allocation_ratio or 1.0 for row in rows],
            'disk_allocation_ratio': [
                row.disk_allocation_ratio or 1.0 for row in rows],
            'num_io_ops': 0,
            'hypervisor_version': [row.hypervisor_version for row in rows],
        })

    def _read_claims(self) -> None:
        with self._reading:
            changes = self._claims.usages(since=self._token)
            with self.lock:
                self._apply(changes.usages)
                self._token = changes.token
                doubtful = list(self._doubtful)
            if doubtful:
                changes = self._claims.usages(providers=doubtful)
                with self.lock:
                    self._apply(changes.usages)
                    self._doubtful.difference_update(doubtful)

    def _apply(self, usages: Iterable[Any]) -> None:
        for usage in usages:
            self.table.set_usage(usage.provider, usage.capacity, usage.used,
                                 usage.consumers)


def _timestamp(time: datetime.datetime | None) -> float:
    """Return seconds since the epoch of a time as databases keep it."""
    if time is None:
        return 0.0
    return time.replace(tzinfo=datetime.UTC).timestamp()
