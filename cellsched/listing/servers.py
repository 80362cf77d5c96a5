# SPDX-License-Identifier: Apache-2.0
"""Reading servers from the API database and the cells."""

from collections.abc import Sequence
from typing import Any


from cellsched.cells import gather
from cellsched.cells import registry
from cellsched.context import RequestContext
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instance_list
from cellsched.db import session
from cellsched.db import sort_order
from cellsched import exception
from cellsched.listing import pages
from cellsched.listing.query import NEWEST
from cellsched.listing.query import ServerQuery
from cellsched.listing import server
from cellsched import objects

#: Times to look for a server that somebody wants and that is nowhere.
_TRIES_MAX = 3


class ServerListing:
    """Finds servers wherever they are.

    While a build request exists it is what readers see; after that the cell
    that the mapping names.
    """

    def __init__(
        self, database: session.Database, cells: registry.CellRegistry,
        gatherer: gather.Gatherer,
        policy: pages.ListingPolicy = pages.ListingPolicy(),
    ) -> None:
        self._database = database
        self._cells = cells
        self._gatherer = gatherer
        self._policy = policy

    def get(
        self, context: RequestContext, uuid: str,
        to_delete: bool = False,
    ) -> tuple[server.Server, objects.CellMapping | None]:
        """Return a server and its cell, None where it has none yet.

        Of one whose cell does not answer the record says little.

        :param to_delete: whether one counts whose deletion has begun, and
            whose cell does not tell how far it came, or whose row was lost
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
                found = self._read_one(context, cell, uuid)
                if found and found.status == server.UNKNOWN and (
                        mapping.queued_for_delete and not to_delete):
                    found = None
            if found or mapping is None or mapping.queued_for_delete:
                break
            # It may have been taken out of cell0, and have a request again.
        if found is None and to_delete and mapping is not None and (
                cell is not None and not mapping.queued_for_delete):
            found = self._unknown(uuid, cell)
        if found is None or not visible(context, found.project_id):
            raise exception.InstanceNotFound(uuid=uuid)
        return found, cell

    def list(
        self, context: RequestContext, query: ServerQuery
    ) -> pages.Page:
        """Return servers in order, wherever they are.

        Of the servers of a cell that does not answer there are records that
        say little, as far as one can tell that they are asked for.

        :raises cellsched.exception.MarkerNotFound: the project has no such
            server
        :raises cellsched.exception.CellsDown: a cell does not answer, and
            none may be left out
        """
        asked = query.wanted.matches.get('project_id')
        # A marker may be any of them.
        uuids = (query.wanted.matches.get('uuid') if query.marker is None
                 else None)
        with self._database.reader() as connection:
            requests = build_requests.list_all(connection, asked, uuids)
            only = (instance_mappings.cells(connection, asked)
                    if asked and self._policy.per_project_cells else None)
        cells = [cell for cell in self._cells.all()
                 if only is None or cell.id in only]
        after = None
        if query.marker is not None:
            after = self._place_of(context, query, requests)
        reading = pages.PageReader(
            context, self._database, self._gatherer, query, self._policy,
            cells, after)
        servers = reading.servers(requests)
        if reading.down and not self._policy.skip_down_cells:
            raise exception.CellsDown(cells=', '.join(reading.down))
        return pages.Page(servers, reading.down)

    def _read_one(
        self, context: RequestContext, cell: objects.CellMapping,
        uuid: str,
    ) -> server.Server | None:
        wanted = instance_list.InstanceFilter({'uuid': [uuid]})
        gathered = self._gatherer.gather(
            context, [cell], lambda aimed: pages.read_page(
                pages.database(aimed), server.name_of(cell), wanted,
                NEWEST))
        if cell.uuid not in gathered.results:
            pages.log_down(cell, gathered)
            return self._unknown(uuid, cell)
        found = gathered.results[cell.uuid][1]
        return found[0] if found else None

    def _unknown(
        self, uuid: str, cell: objects.CellMapping
    ) -> server.Server:
        """Return what the mapping of a server tells."""
        with self._database.reader() as connection:
            return server.Server.unknown(
                instance_mappings.get(connection, uuid),
                server.name_of(cell))

    def _place_of(
        self, context: RequestContext, query: ServerQuery,
        requests: Sequence[objects.BuildRequest],
    ) -> Sequence[Any]:
        """Return the values of the marker by which servers are sorted."""
        uuid, order = query.marker or '', query.order
        for request in requests:
            if request.instance_uuid == uuid:
                return pages.values(request, order)
        with self._database.reader() as connection:
            mapping = instance_mappings.get_many(connection, [uuid]).get(uuid)
            if mapping is None or mapping.cell_mapping is None or not visible(
                    context, mapping.project_id):
                raise exception.MarkerNotFound(marker=uuid)
            known = instance_mappings.values(connection, uuid, order)
        cell = mapping.cell_mapping
        gathered = self._gatherer.gather(
            context, [cell], lambda aimed: _values_there(
                pages.database(aimed), uuid, order))
        if cell.uuid not in gathered.results:
            # Where its cell did not answer before either, it was shown there.
            return known
        found: Sequence[Any] | None = gathered.results[cell.uuid]
        if found is None:
            raise exception.MarkerNotFound(marker=uuid)
        return found


def visible(context: RequestContext, project_id: str | None) -> bool:
    """Return whether what a project owns may be seen."""
    return context.is_admin or project_id == context.project_id


def _values_there(
    database: session.Database, uuid: str, order: sort_order.SortOrder
) -> Sequence[Any] | None:
    with database.reader() as connection:
        return instance_list.values(connection, uuid, order)
