# SPDX-License-Identifier: Apache-2.0
"""The details of servers, and their history: actions, moves and failures."""

from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import datetime
import itertools
from typing import Any

from cellsched.api import authorization
from cellsched.api import base
from cellsched.api import validation
from cellsched.cells import gather
from cellsched.cells import registry
from cellsched.context import RequestContext
from cellsched.db.api import build_requests
from cellsched.db.api import instance_groups
from cellsched.db.cell import instance_history
from cellsched.db.cell import on_host
from cellsched.db import session
from cellsched import exception
from cellsched.listing.server import name_of
from cellsched.listing.server import Server
from cellsched.listing.server import UNKNOWN
from cellsched.listing import servers as listing
from cellsched import objects

#: The largest number of moves of a listing.
LIMIT = 1000


@dataclasses.dataclass(frozen=True)
class MigrationRecord:
    """A move of a server.

    :param cell: the name of the cell, for administrators; else None
    :param source: the old host, for administrators; else None
    :param dest: the new host, for administrators; else None
    :param reason: the reason of a failure, or empty; names hosts and cells for
        administrators
    """

    uuid: str
    server: str
    cell: str | None
    kind: str
    status: str
    source: str | None
    dest: str | None
    reason: str
    created_at: datetime.datetime | None
    updated_at: datetime.datetime | None


@dataclasses.dataclass(frozen=True)
class ActionRecord:
    """An action on a server.

    :param finished_at: None while the action is in progress, and for an
        action without a duration
    :param reason: the reason of a failure, or empty; names hosts and cells for
        administrators
    :param host: the host of the last event, for administrators; else empty
    """

    action: str
    request_id: str | None
    user_id: str | None
    project_id: str | None
    started_at: datetime.datetime | None
    finished_at: datetime.datetime | None
    failed: bool
    reason: str
    host: str

    @property
    def result(self) -> str:
        """``Success``, ``Error``, or empty while it is in progress."""
        return ('Error' if self.failed else
                'Success' if self.finished_at else '')


@dataclasses.dataclass(frozen=True)
class MigrationPage:
    """Moves, the newest first, and the cells that did not answer.

    :param down_cells: as in a page of servers
    """

    migrations: list[MigrationRecord]
    down_cells: list[str]


class ServerHistory(base.ServerController):
    """Reads the history of servers from their cells."""

    def __init__(
        self, authorizer: authorization.Authorizer,
        reader: listing.ServerListing, cells: registry.CellRegistry,
        gatherer: gather.Gatherer,
    ) -> None:
        super().__init__(authorizer, reader)
        self._cells = cells
        self._gatherer = gatherer

    @base.requires(
        'os_compute_api:servers:migrations:index', resource_param='server')
    def migrations(
        self, context: RequestContext, server: str | None = None,
        host: str | None = None, status: str | None = None,
        kind: str | None = None, limit: int = LIMIT,
    ) -> MigrationPage:
        """Return moves of one server, or of all; the newest first.

        :param host: only moves to or from this host, for administrators
        :param status: only moves in this status: ``error``, for example
        :param kind: only moves of this kind: ``migration``, for example
        :param limit: the largest number of moves, 1 to 1000
        :raises cellsched.exception.InvalidField: names the field and the
            bound
        :raises cellsched.exception.InstanceNotFound: the server does not
            exist
        """
        validation.check_count('migration list', 'limit', limit, LIMIT)
        matches = {}
        for column, field, value in (
                ('instance_uuid', 'server', server),
                ('status', 'status', status), ('migration_type', 'type', kind),
        ):
            if value is not None:
                validation.check_text('migration list', field, value)
                matches[column] = [value]
        if server is None:
            context = self._authorize(
                context, 'os_compute_api:os-migrations:index:all_projects')
        if host is not None:
            validation.check_text('migration list', 'host', host)
            if not context.is_admin:
                raise exception.InvalidField(
                    where='migration list', field='host',
                    problem='only administrators can filter by host',
                    expected='no host filter')
        cells = self._cells.real()
        if server is not None:
            _, cell = self._reader.get(context, server)
            cells = [each for each in cells
                     if cell is not None and each.uuid == cell.uuid]
        found, down = self._gather(
            context, cells, lambda cell_context: instance_history.migrations(
                cell_context, matches, host, limit))
        is_admin = bool(context.is_admin)
        records = [_migration(row, cell, is_admin) for cell, row in found]
        records.sort(key=lambda each: (
            each.created_at or datetime.datetime.min), reverse=True)
        return MigrationPage(records[:limit], down if is_admin else [
            listing.HIDDEN for _ in down])

    @base.requires(
        'os_compute_api:os-instance-actions:list', resource_param='server')
    def actions(
        self, context: RequestContext, server: str
    ) -> list[ActionRecord]:
        """Return the actions on a server, the newest first.

        :raises cellsched.exception.InvalidField: the id is invalid
        :raises cellsched.exception.InstanceNotFound: the server does not
            exist
        :raises cellsched.exception.CellUnreachable: its cell does not answer
        """
        validation.check_text('server', 'id', server)
        _, cell = self._reader.get(context, server)
        found, down = self._gather(
            context, [] if cell is None else [cell],
            lambda cell_context: instance_history.actions(
                cell_context, server))
        if down:
            raise exception.CellUnreachable(
                cell=down[0],
                reason='it records the actions on the server')
        rows = [row for _, row in found]
        return [_action(list(events), bool(context.is_admin))
                for _, events in itertools.groupby(
                    rows, key=lambda row: row.id)]

    def _gather(
        self, context: RequestContext,
        cells: Collection[objects.CellMapping], read: Any,
    ) -> tuple[list[tuple[objects.CellMapping, Any]], list[str]]:
        """Return rows with their cells, and the cells that are down."""
        def ask(cell_context: RequestContext) -> Sequence[Any]:
            with cell_context.cell.database.reader() as connection:
                rows: Sequence[Any] = read(connection)
                return rows

        gathered = self._gatherer.gather(context, cells, ask)
        return ([(cell, row) for cell in cells
                 for row in gathered.results.get(cell.uuid, ())],
                sorted(cell.identity for cell in cells
                       if cell.uuid not in gathered.results))


def _migration(
    row: Any, cell: objects.CellMapping, is_admin: bool
) -> MigrationRecord:
    """Return the record of a row of ``db.cell.server_moves``."""
    return MigrationRecord(
        row.uuid, row.instance_uuid, name_of(cell) if is_admin else None,
        row.migration_type, row.status,
        row.source_compute if is_admin else None,
        row.dest_compute if is_admin else None,
        _reason(row.reason, row.details, is_admin),
        row.created_at, row.updated_at)


def _action(events: Sequence[Any], is_admin: bool) -> ActionRecord:
    """Return an action; the reason is that of its last event, if it failed.

    A build that failed on a host can succeed on the next one.
    """
    last = events[-1]
    failed = last.result == 'Error'
    return ActionRecord(
        last.action, last.request_id, last.user_id, last.project_id,
        last.start_time, last.finish_time, last.message == 'Error',
        _reason(last.details, last.traceback, is_admin) if failed else '',
        last.host or '' if is_admin else '')


def _reason(
    message: str | None, details: str | None, is_admin: bool
) -> str:
    if is_admin:
        return instance_history.full_message(message, details)
    return message or ''


@dataclasses.dataclass(frozen=True)
class FaultRecord:
    """A fault of a server.

    :param message: the text for its user
    :param details: for administrators; empty for other users
    :param host: for administrators; None for other users
    """

    code: int
    message: str
    details: str
    host: str | None
    created_at: datetime.datetime | None


@dataclasses.dataclass(frozen=True)
class ServerDetails:
    """A server with its details.

    If its cell does not answer, flavor, image and zone are taken from the
    request, and there are no faults and no moves.

    :param flavor: None if the request of the server is lost
    :param image: ``name`` and ``id`` of its image, if known; empty without an
        image
    :param group: None if it is in no group
    :param faults: the newest first
    :param moves: the newest first
    """

    server: Server
    flavor: objects.Flavor | None
    image: Mapping[str, str]
    group: objects.InstanceGroup | None
    faults: Sequence[FaultRecord] = ()
    moves: Sequence[MigrationRecord] = ()


class Details(base.ServerController):
    """Reads the details of servers."""

    def __init__(
        self, authorizer: authorization.Authorizer, database: session.Database,
        reader: listing.ServerListing, gatherer: gather.Gatherer,
    ) -> None:
        super().__init__(authorizer, reader)
        self._database = database
        self._gatherer = gatherer

    @base.requires('os_compute_api:servers:show', resource_param='uuid')
    def get(self, context: RequestContext, uuid: str) -> ServerDetails:
        """Return a server, which may have no cell yet, with its details.

        :raises cellsched.exception.InvalidField: the id is invalid
        :raises cellsched.exception.InstanceNotFound: it does not exist, or
            belongs to another project
        """
        found, cell = self._read(context, uuid)
        with self._database.reader() as connection:
            asked = _asked(build_requests.get_spec(connection, uuid))
            group = instance_groups.find_of(connection, uuid)
        details = ServerDetails(
            found, asked.get('flavor'), _image(asked, found), group)
        in_cell = None
        if cell is not None and found.status != UNKNOWN:
            in_cell = self._ask(context, cell, uuid)
        if cell is not None and in_cell is not None:
            flavor, faults, moves = in_cell
            return dataclasses.replace(
                details, flavor=flavor or details.flavor,
                faults=[_fault(row, bool(context.is_admin))
                        for row in faults],
                moves=[_migration(
                    row, cell, bool(context.is_admin)) for row in moves])
        if found.status == UNKNOWN:
            zone = asked.get('availability_zone')
            return dataclasses.replace(details, server=found._replace(
                availability_zone=zone, image_ref=details.image.get('id')))
        return details

    def _ask(
        self, context: RequestContext, cell: objects.CellMapping,
        uuid: str,
    ) -> Any:
        """Return the details in a cell; None if the cell does not answer."""
        def read(cell_context: RequestContext) -> Any:
            with cell_context.cell.database.reader() as connection:
                instance = on_host.get(connection, uuid)
                return (None if instance is None else instance.get('flavor'),
                        instance_history.faults(connection, uuid),
                        instance_history.migrations(
                            connection, {'instance_uuid': [uuid]}))

        gathered = self._gatherer.gather(context, [cell], read)
        return gathered.results.get(cell.uuid)


def _asked(spec: dict[str, Any] | None) -> objects.RequestSpec:
    """Return the request of a server; without fields if it is unreadable."""
    try:
        asked: objects.RequestSpec = (
            objects.RequestSpec() if spec is None
            else objects.RequestSpec.obj_from_primitive(spec))
    except objects.READ_ERRORS:
        return objects.RequestSpec()
    return asked


def _image(asked: objects.RequestSpec, found: Server) -> dict[str, str]:
    image = asked.get('image')
    known = {} if image is None else {
        name: str(image.get(name)) for name in ('id', 'name')
        if image.get(name)}
    return {**known, **({'id': found.image_ref} if found.image_ref else {})}


def _fault(row: Any, is_admin: bool) -> FaultRecord:
    return FaultRecord(
        row.code, row.message or '', (row.details or '') if is_admin else '',
        row.host if is_admin else None, row.created_at)
