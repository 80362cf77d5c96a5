# SPDX-License-Identifier: Apache-2.0
"""Mapping of hosts to their cells."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import logging
from typing import Any

from oslo_log import log

from cellsched.cells import registry
from cellsched.cells import target
from cellsched.clock import Clock
from cellsched.db.api import host_mappings
from cellsched.db.api import leases
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import services
from cellsched.db import session
from cellsched import exception
from cellsched import objects
from cellsched.observability.conditions import Conditions


@dataclasses.dataclass(eq=False)
class Discovery:
    """Maps hosts to cells; idempotent, and safe to run concurrently.

    A host is in exactly one cell. The same host name in a second cell is an
    error that names both cells.
    """

    database: session.Database
    cells: registry.CellRegistry
    targets: target.Targets
    clock: Clock

    def map_hosts(
        self, cell: objects.CellMapping, hosts: Iterable[str]
    ) -> dict[str, objects.CellMapping]:
        """Map unmapped hosts to a cell; return the cells of all of them."""
        hosts = list(dict.fromkeys(hosts))
        with self.database.writer() as connection:
            host_mappings.create_missing(
                connection, hosts, cell.id, self.clock.now())
            return host_mappings.get_many(connection, hosts)

    def map_host(self, cell: objects.CellMapping, host: str) -> None:
        """Map one host.

        :raises cellsched.exception.HostMappingExists: it is in another cell
        """
        _check_cell(host, cell, self.map_hosts(cell, [host])[host])

    def own_cell(self, database: str, host: str) -> objects.CellMapping:
        """Return the cell that uses this process's own database.

        :param host: a host that is about to be mapped to it
        :raises cellsched.exception.HostMappingExists: the host is in another
            cell
        :raises cellsched.exception.ConfigurationInvalid: no cell uses it
        """
        for cell in self.cells.real():
            if self.targets.database_url(cell) == database:
                _check_cell(host, cell, self.owners([host]).get(host, cell))
                return cell
        raise exception.ConfigurationInvalid(
            field='[database] connection',
            problem='no cell is mapped to this database',
            expected='the database URL of a mapped cell; see '
                     'cellsched-manage cell_v2 list_cells')

    def owners(self, hosts: Iterable[str]) -> dict[str, objects.CellMapping]:
        """Return the cells of hosts, without unmapped hosts."""
        with self.database.reader() as connection:
            return host_mappings.get_many(connection, hosts)

    def adopt(
        self, cell: objects.CellMapping, nodes: Sequence[Any]
    ) -> dict[str, objects.CellMapping]:
        """Map the hosts of unmapped nodes of a cell; return their cells.

        Nodes of mapped hosts are marked as mapped in the cell, and nodes of
        hosts of another cell as foreign.

        :param nodes: rows with ``uuid`` and ``host``
        """
        owners = self.map_hosts(cell, [node.host for node in nodes])
        with self.targets.database(cell).writer() as connection:
            compute_nodes.mark_mapped(connection, [
                node.uuid for node in nodes
                if owners[node.host].uuid == cell.uuid])
            compute_nodes.mark_foreign(connection, [
                node.uuid for node in nodes
                if owners[node.host].uuid != cell.uuid])
        return owners

    def discover(
        self, cell_uuid: str | None = None,
        status: Callable[[str], None] = lambda line: None,
        by_service: bool = False,
    ) -> list[str]:
        """Map the hosts of new compute nodes; return the new hosts.

        :param cell_uuid: search this cell only
        :param status: called with each line of the report
        :param by_service: search compute services instead, which exist before
            the nodes of their hosts
        :raises cellsched.exception.CellMappingNotFound: no such cell
        :raises cellsched.exception.HostMappingExists: a host is in another
            cell; the other hosts are mapped nevertheless
        :raises cellsched.exception.DatabaseError: a cell's database failed;
            the hosts of other cells are mapped nevertheless
        """
        self.cells.refresh()
        cells = ([self.cells.get(cell_uuid)] if cell_uuid
                 else self.cells.all())
        status(f'Found {len(cells)} cell mappings.')
        look = self._services_in if by_service else self._nodes_in
        new: list[str] = []
        doubles: list[exception.HostMappingExists] = []
        failures: list[exception.DatabaseError] = []
        for cell in cells:
            if cell.is_cell0():
                status('Skipping cell0, which has no hosts.')
                continue
            try:
                look(cell, status, new, doubles)
            except exception.DatabaseError as exc:
                failures.append(exc)
        for problem in [*doubles, *failures]:
            raise problem
        return new

    def _nodes_in(
        self, cell: objects.CellMapping, status: Callable[[str], None],
        new: list[str], doubles: list[exception.HostMappingExists],
    ) -> None:
        status(f'Looking for compute nodes in cell {cell.identity}.')
        with self.targets.database(cell).reader() as connection:
            nodes = compute_nodes.list_unmapped(connection)
        before = self.owners([node.host for node in nodes])
        _tell(cell, before, self.adopt(cell, nodes), status, new, doubles)
        status(f'Found {len(nodes)} unmapped compute nodes in cell '
               f'{cell.identity}.')

    def _services_in(
        self, cell: objects.CellMapping, status: Callable[[str], None],
        new: list[str], doubles: list[exception.HostMappingExists],
    ) -> None:
        status(f'Looking for compute services in cell {cell.identity}.')
        with self.targets.database(cell).reader() as connection:
            hosts = services.list_hosts(connection, services.COMPUTE)
        before = self.owners(hosts)
        _tell(cell, before, self.map_hosts(cell, hosts), status, new, doubles)
        status(f'Found {len(hosts) - len(before)} unmapped hosts in cell '
               f'{cell.identity}.')


def _tell(
    cell: objects.CellMapping, before: Mapping[str, Any],
    owners: Mapping[str, objects.CellMapping],
    status: Callable[[str], None], new: list[str],
    doubles: list[exception.HostMappingExists],
) -> None:
    """Report new hosts, and collect hosts of another cell."""
    for host, owner in owners.items():
        if owner.uuid != cell.uuid:
            doubles.append(exception.HostMappingExists(
                host=host, cell=cell.identity, mapped_cell=owner.identity))
        elif host not in before:
            status(f'Mapped host {host}.')
            new.append(host)


LOG = log.getLogger(__name__)

#: Name of the task in the table of leaders.
TASK = 'discover_hosts'

#: Duration of a lease, in periods. The leader renews it once in a period, and
#: may be late by half a period.
_LEASE_PERIODS = 1.5


class PeriodicDiscovery:
    """Maps the hosts of new compute nodes if its process is the leader.

    If the leader stops, another scheduler leads after two and a half periods
    at most. Two leaders at a time, after a pause of the first, do no harm: a
    host is mapped once.

    :param database: the API database
    :param candidate: unique name of the process
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
        self._conditions = Conditions(LOG, database.clock.monotonic)

    def run(self) -> list[str]:
        """Map new hosts if this process leads; return them.

        :raises cellsched.exception.DatabaseError: the API database failed, or
            a cell's; the hosts of other cells are mapped nevertheless
        """
        now = self._database.timestamp()
        with self._database.writer() as connection:
            leads = leases.elect(connection, TASK, self._candidate, now,
                                 now + self._lease_s)
        if leads != self._leads:
            LOG.info('This scheduler maps new hosts from now on' if leads else
                     'Another scheduler maps new hosts from now on')
        self._leads = leads
        if not leads:
            return []
        try:
            new = self._discovery.discover(status=LOG.debug)
        except exception.HostMappingExists as exc:
            self._conditions.replace({str(exc): ''}, logging.ERROR)
            return []
        self._conditions.replace({})
        if new:
            LOG.info('Mapped new hosts: %s', ', '.join(new))
        return new


def _check_cell(
    host: str, cell: objects.CellMapping, mapped: objects.CellMapping
) -> None:
    if mapped.uuid != cell.uuid:
        raise exception.HostMappingExists(
            host=host, cell=cell.identity, mapped_cell=mapped.identity)
