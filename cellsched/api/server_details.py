# SPDX-License-Identifier: Apache-2.0
"""The details of a server: flavor, image, group, faults and moves."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import datetime
from typing import Any

from cellsched.api import authorization
from cellsched.api import base
from cellsched.api import server_history
from cellsched.cells import gather
from cellsched.context import RequestContext
from cellsched.db.api import build_requests
from cellsched.db.api import instance_groups
from cellsched.db.cell import instance_history
from cellsched.db.cell import on_host
from cellsched.db import session
from cellsched.listing.server import Server
from cellsched.listing.server import UNKNOWN
from cellsched.listing import servers as listing
from cellsched import objects


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
    moves: Sequence[server_history.MigrationRecord] = ()


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
                moves=[server_history.migration(
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
