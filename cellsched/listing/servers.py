# SPDX-License-Identifier: Apache-2.0
"""Reading servers from the API database and the cells."""

import dataclasses
import datetime
import itertools
from typing import Any

from cellsched.cells import gather
from cellsched.cells import registry
from cellsched.cells import target
from cellsched import context as context_
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instance_faults
from cellsched.db.cell import instances
from cellsched.db.cell import tags as tags_
from cellsched.db import session
from cellsched import exception
from cellsched.listing import merge
from cellsched.listing import server
from cellsched import objects

#: Times to look for a server that somebody wants and that is nowhere.
_TRIES_MAX = 3


@dataclasses.dataclass(frozen=True)
class Page:
    """Servers, and the cells that did not answer for theirs."""

    servers: list[server.Server]
    down_cells: list[str]


class ServerListing:
    """Finds servers wherever they are.

    While a build request exists it is what readers see; after that the cell
    that the mapping names.
    """

    def __init__(
        self, database: session.Database, cells: registry.CellRegistry,
        targets: target.Targets, gatherer: gather.Gatherer,
    ) -> None:
        self._database = database
        self._cells = cells
        self._targets = targets
        self._gatherer = gatherer

    def get(
        self, context: context_.RequestContext, uuid: str
    ) -> tuple[server.Server, objects.CellMapping | None]:
        """Return a server and its cell, None where it has none yet.

        :raises cellsched.exception.InstanceNotFound: there is none, or it is
            another project's
        """
        for _ in range(_TRIES_MAX):
            with self._database.reader() as connection:
                request = build_requests.get(connection, uuid)
                # A request goes only after the mapping says where to look, so
                # this order finds the server at every moment.
                mapping = instance_mappings.get_many(
                    connection, [uuid]).get(uuid)
            found = None
            cell = None
            if request is not None:
                found = server.Server.requested(request)
            elif mapping is not None and mapping.cell_mapping is not None:
                cell = mapping.cell_mapping
                with self._targets.database(cell).reader() as connection:
                    found = _read_one(connection, cell, uuid)
            if found or mapping is None or mapping.queued_for_delete:
                break
            # It may have been taken out of cell0, and have a request again.
        if found is None or not visible(context, found.project_id):
            raise exception.InstanceNotFound(uuid=uuid)
        return found, cell

    def list_all(
        self, context: context_.RequestContext, limit: int
    ) -> Page:
        """Return the newest servers of the project, or of all for an admin.

        A cell that does not answer is named, and its servers are missing.
        """
        project_id = None if context.is_admin else context.project_id
        with self._database.reader() as connection:
            # They come in the order in which they were accepted, which is not
            # that of their uuids.
            requests = sorted((
                server.Server.requested(request) for request in
                build_requests.list_all(connection, project_id, limit)),
                key=_newest, reverse=True)
        cells = {cell.uuid: cell for cell in self._cells.all()}
        gathered = self._gatherer.gather(
            context, cells.values(),
            lambda aimed: _read_page(aimed, cells, project_id, limit))
        merged = merge.merge(
            [requests, *gathered.results.values()], key=_newest,
            identity=lambda found: found.uuid)
        down = gathered.silent | gathered.failures.keys()
        return Page(list(itertools.islice(merged, limit)),
                    sorted(cells[uuid].identity for uuid in down))


def visible(context: context_.RequestContext, project_id: str | None) -> bool:
    """Return whether what a project owns may be seen."""
    return context.is_admin or project_id == context.project_id


def _newest(found: server.Server) -> Any:
    return found.created_at or datetime.datetime.min, found.uuid


def _read_one(
    connection: Any, cell: objects.CellMapping, uuid: str
) -> server.Server | None:
    instance = instances.get(connection, uuid)
    if instance is None:
        return None
    reasons = instance_faults.latest(connection, [uuid])
    return _record(instance, cell, reasons,
                   tags_.get_many(connection, [uuid]))


def _read_page(
    aimed: context_.RequestContext, cells: dict[str, objects.CellMapping],
    project_id: str | None, limit: int,
) -> list[server.Server]:
    assert aimed.cell is not None
    cell = cells[aimed.cell.uuid]
    with aimed.cell.database.reader() as connection:
        rows = instances.list_all(connection, project_id, limit)
        reasons = instance_faults.latest(
            connection, [row.uuid for row in rows if row.vm_state == 'error'])
        tags = tags_.get_many(connection, [row.uuid for row in rows])
    return [_record(row, cell, reasons, tags) for row in rows]


def _record(
    instance: objects.Instance, cell: objects.CellMapping,
    reasons: dict[str, str], tags: dict[str, list[str]],
) -> server.Server:
    reason = (reasons.get(instance.uuid, '')
              if instance.vm_state == 'error' else '')
    return server.Server.of(
        instance, cell, reason, tags.get(instance.uuid, ()))
