# SPDX-License-Identifier: Apache-2.0
"""Services: list, disable, force down, delete."""

from collections.abc import Callable
from collections.abc import Iterable
import dataclasses
import datetime
from typing import Any

from cellsched.api import authorization
from cellsched.api import base
from cellsched.api import validation
from cellsched.cells import gather
from cellsched.cells import registry
from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched.context import admin
from cellsched.context import RequestContext
from cellsched.db.api import aggregates
from cellsched.db.api import host_mappings
from cellsched.db.api import operator_changes
from cellsched.db.cell import hosts
from cellsched.db.cell import on_host
from cellsched.db.cell import services
from cellsched.db import session
from cellsched import exception
from cellsched.listing.server import name_of
from cellsched.migrations import LocalDeletion
from cellsched import objects
from cellsched.validation import json_schema

UP = services.UP
UNKNOWN = 'UNKNOWN'


@dataclasses.dataclass(frozen=True)
class ServiceRecord:
    """A service.

    :param cell: the name of the cell with its record: cell0 for a service
        above the cells
    :param cell_uuid: the uuid of that cell
    :param state: ``up``, ``down``, or ``stopped`` for a scheduler or a
        conductor that has stopped in order; ``UNKNOWN``, without the other
        fields, if its cell does not answer
    :param updated_at: the time of its last report, or of its stop
    """

    uuid: str | None
    binary: str
    host: str
    cell: str
    state: str
    disabled: bool | None = None
    disabled_reason: str | None = None
    forced_down: bool | None = None
    updated_at: datetime.datetime | None = None
    version: int | None = None
    cell_uuid: str | None = None


@dataclasses.dataclass(frozen=True)
class ServicePage:
    """Services, by host, and the cells that did not answer."""

    services: list[ServiceRecord]
    down_cells: list[str]


class Services(base.Controller):
    """Lists, disables, forces down and deletes the services of all cells.

    :param down_s: seconds without a report after which a service is down
    :param claims: returns the claim store, which a deletion needs
    """

    def __init__(
        self, authorizer: authorization.Authorizer, database: session.Database,
        cells: registry.CellRegistry, targets: target.Targets,
        gatherer: gather.Gatherer, down_s: float,
        claims: Callable[[], claims_base.ClaimStore], clock: Clock,
    ) -> None:
        super().__init__(authorizer)
        self._database = database
        self._cells = cells
        self._targets = targets
        self._gatherer = gatherer
        self._down_s = down_s
        self._claims = claims
        self._clock = clock

    @base.requires('os_compute_api:os-services:update')
    def set(
        self, context: RequestContext, host: str, binary: str,
        disabled: bool | None = None, reason: str | None = None,
        forced_down: bool | None = None,
    ) -> None:
        """Change a compute service; None changes nothing.

        Requests that begin after the call are decided with the change. If the
        API database does not answer, the service has changed, and schedulers
        know it after their next refresh.

        :param disabled: whether the host gets no new servers
        :param reason: the reason, if disabled
        :param forced_down: whether the host counts as down even if its agent
            reports
        :raises cellsched.exception.InvalidField: names the field and the
            bound; only ``nova-compute`` can be changed
        :raises cellsched.exception.HostMappingNotFound: the host is not mapped
        :raises cellsched.exception.ServiceNotFound: the host does not have
            the service
        :raises cellsched.exception.DatabaseUnreachable: the cell or the API
            database does not answer
        """
        validation.check_text('service', 'host', host)
        validation.check_text('service', 'binary', binary)
        if reason is not None:
            validation.check_text('service', 'disabled_reason', reason)
        if reason is not None and not disabled:
            raise exception.InvalidField(
                where='service', field='disabled_reason',
                problem='the service is not being disabled',
                expected='a reason only together with disabled')
        if disabled is None and forced_down is None:
            raise exception.InvalidField(
                where='service', field='disabled',
                problem='nothing to change',
                expected='disabled or forced_down')
        if binary != services.COMPUTE:
            given = json_schema.shown(binary)
            raise exception.InvalidField(
                where='service', field='binary',
                problem=f'{given} cannot be disabled or forced down',
                expected=services.COMPUTE)
        with self._database.reader() as connection:
            cell = host_mappings.get(connection, host)
        database = self._targets.database(cell)

        def change(connection: Any) -> None:
            if disabled is not None:
                services.set_disabled(
                    connection, host, disabled, reason, database.now())
            if forced_down is not None:
                services.set_forced_down(
                    connection, host, forced_down, database.now())
        database.write(change)
        operator_changes.announce(self._database, self._clock)

    @base.requires('os_compute_api:os-services:delete')
    def delete(
        self, context: RequestContext, uuid: str
    ) -> ServiceRecord:
        """Delete a service that is not up.

        A compute service is deleted with the nodes and the mapping of its
        host. The inventories of the nodes are removed, and the host leaves all
        aggregates. If the agent starts again, the host is in none of them.
        A host of this name in another cell keeps its mapping and aggregates.
        Deletions of servers that wait for the host are completed first.

        :raises cellsched.exception.ServiceNotFound: it does not exist in the
            cells that answer
        :raises cellsched.exception.HostInUse: the host has servers
        :raises cellsched.exception.InvalidField: the service is up
        """
        validation.check_text('service', 'id', uuid)
        page = self._list()
        found = next((each for each in page.services if each.uuid == uuid),
                     None)
        if found is None:
            raise exception.ServiceNotFound(host=uuid, binary='any')
        if found.state == UP:
            raise _up(found)
        cell = self._cells.get(found.cell_uuid or '')
        database = self._targets.database(cell)
        if found.binary == services.COMPUTE:
            self._delete_host(cell, database, found)
            return found
        with database.writer() as connection:
            if not services.delete(connection, found.host, found.binary,
                                   database.now(), self._seen(database)):
                raise _up(found)
        return found

    def _delete_host(
        self, cell: objects.CellMapping, database: session.Database,
        found: ServiceRecord,
    ) -> None:
        LocalDeletion(self._claims(), self._down_s).delete_all(
            database, found.host)
        with self._database.writer() as above:
            owner = host_mappings.owners(above, [found.host]).get(found.host)
            if owner in (None, cell.uuid):
                host_mappings.delete(above, cell.id, [found.host])
            with database.writer() as connection:
                if services.is_up(connection, found.host, database.now(),
                                  self._down_s):
                    raise _up(found)
                count = on_host.count(connection, found.host)
                if count:
                    raise exception.HostInUse(host=found.host, count=count)
                providers = hosts.delete(
                    connection, found.host, database.now())
            if owner in (None, cell.uuid):
                # Last, as it locks the feed for all calls.
                aggregates.forget_hosts(above, [found.host], database.now())
        operator_changes.announce(self._database, self._clock)
        for provider in providers:
            self._claims().set_inventory(provider, {})

    @base.requires('os_compute_api:os-services:list')
    def list(
        self, context: RequestContext, binary: str | None = None,
        host: str | None = None, cell: str | None = None,
    ) -> ServicePage:
        """Return the services of all cells and above them, by host.

        For a cell that does not answer, the services are those that its
        mapped hosts must have.

        :param binary: only services of this binary
        :param host: only services of this host
        :param cell: only services of this cell, by name or uuid
        :raises cellsched.exception.CellMappingNotFound: it does not exist
        """
        return self._list(binary, host, cell)

    def _list(
        self, binary: str | None = None, host: str | None = None,
        cell: str | None = None,
    ) -> ServicePage:
        cells = {each.uuid: each for each in self._cells.all()
                 if cell in (None, each.get('name'), each.uuid)}
        if cell is not None and not cells:
            raise exception.CellMappingNotFound(uuid=cell)
        gathered = self._gatherer.gather(
            admin(), cells.values(),
            lambda cell_context: self._read(
                cell_context, cells[cell_context.cell.uuid]))
        found = [record for records in gathered.results.values()
                 for record in records]
        down = [each for uuid, each in cells.items()
                if uuid not in gathered.results]
        if down:
            with self._database.reader() as connection:
                mapped = host_mappings.by_cell(connection)
            for each in down:
                found += _unknown(each, mapped.get(each.uuid, ()))
        return ServicePage(
            sorted((each for each in found
                    if binary in (None, each.binary)
                    and host in (None, each.host)),
                   key=lambda each: (each.host, each.binary, each.cell)),
            sorted(each.identity for each in down))

    def _read(
        self, cell_context: RequestContext, cell: objects.CellMapping
    ) -> Iterable[ServiceRecord]:
        database = cell_context.cell.database
        with database.reader() as connection:
            return [
                ServiceRecord(
                    row.uuid, row.binary, row.host, name_of(cell), row.state,
                    bool(row.disabled), row.disabled_reason,
                    bool(row.forced_down), row.updated_at
                    if row.state == services.STOPPED else
                    row.last_seen_up or row.created_at, row.version or 0,
                    cell.uuid)
                for row in services.list_all(connection, self._seen(database))]

    def _seen(self, database: session.Database) -> datetime.datetime:
        """Return the time of the last report of a service that goes down."""
        return database.now() - datetime.timedelta(seconds=self._down_s)


def _up(found: ServiceRecord) -> exception.InvalidField:
    return exception.InvalidField(
        where='service', field='id',
        problem='the service%(name)s is up',
        expected='a service that is stopped or forced down',
        internals={'name': f' {found.binary} of host {found.host}'})


def _unknown(
    cell: objects.CellMapping, names: Iterable[str]
) -> Iterable[ServiceRecord]:
    return [ServiceRecord(
        None, services.COMPUTE, name, name_of(cell), UNKNOWN,
        cell_uuid=cell.uuid) for name in names]
