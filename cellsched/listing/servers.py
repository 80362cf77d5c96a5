# SPDX-License-Identifier: Apache-2.0
"""Reading servers from the API database and all cells."""

import collections
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import itertools
import threading
from typing import Any
from typing import NamedTuple

from cellsched.cells import gather
from cellsched.cells import registry
from cellsched.context import RequestContext
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.cell.instance_children import get_tags
from cellsched.db.cell import instance_history
from cellsched.db.cell import instance_list
from cellsched.db import session
from cellsched.db import sort_order
from cellsched import exception
from cellsched.listing import merge
from cellsched.listing.query import Marker
from cellsched.listing.query import NEWEST
from cellsched.listing.query import ServerQuery
from cellsched.listing import server
from cellsched import objects

#: Position of the state in a row.
_VM_STATE = instance_list.SHOWN.index('vm_state')


class Page(NamedTuple):
    """Servers of a page, and the cells that did not answer.

    :param down_cells: their names, for administrators; users who are not
        administrators get a text without a name for each cell
    :param marker: for the next page, which begins after the last server of
        this one even if that server changes; None if the page is empty
    """

    servers: list[server.Server]
    down_cells: list[str]
    marker: str | None = None


@dataclasses.dataclass(frozen=True)
class ListingPolicy:
    """Options for reading cells.

    :param batch_size: servers to read of a cell at a time; None to divide the
        limit by the number of cells
    :param per_project_cells: read only cells in which the project has servers
    :param skip_down_cells: leave out cells that do not answer, instead of an
        error
    """

    batch_size: int | None = None
    per_project_cells: bool = False
    skip_down_cells: bool = True

    #: Minimum number of servers to read of a cell.
    BATCH_MIN = 100

    #: Servers to read of a cell at a time without a limit.
    BATCH_MAX = 1000

    def batch(self, limit: int | None, cells: int) -> int:
        """Return the number of servers to read of a cell at a time.

        :param cells: number of cells
        """
        if limit is None:
            return self.BATCH_MAX
        if cells <= 1:
            return limit
        # 10 % more, because servers are not distributed evenly.
        size = self.batch_size or limit * 11 // (cells * 10)
        return max(size, self.BATCH_MIN)


class _CellServers(merge.Source):
    """The servers of one cell, as far as they were read.

    :ivar name: of the cell; None to hide it
    :ivar after: sort values of the last server that was read
    :ivar down: whether the cell did not answer
    """

    def __init__(
        self, cell: objects.CellMapping, name: str | None,
        after: Sequence[Any] | None,
    ) -> None:
        super().__init__()
        self.cell = cell
        self.name = name
        self.after = after
        self.down = False


#: Stands for the name of a cell where users may not know it.
HIDDEN = 'a cell'

#: A server with its sort values.
_Listed = tuple[Sequence[Any], server.Server]

_Placed = merge.Placed[_CellServers, _Listed]


class PageReader:
    """Reads one page from all cells.

    :param after: the marker, with its sort values
    """

    def __init__(
        self, context: RequestContext, database: session.Database,
        gatherer: gather.Gatherer, query: ServerQuery,
        policy: ListingPolicy, cells: Sequence[objects.CellMapping],
        after: Marker | None,
    ) -> None:
        self._context = context
        self._database = database
        self._gatherer = gatherer
        self._filters = query.filters
        self._order = query.order
        self._limit = query.limit
        self._shows_places = query.shows_places
        #: Servers to read of a cell at a time.
        self._size = policy.batch(query.limit, len(cells))
        if query.limit is not None:
            self._size = min(self._size, query.limit)
        self._after = after.values if after else None
        self._sources = {
            cell.uuid: _CellServers(
                cell, server.name_of(cell) if query.shows_places else None,
                self._after) for cell in cells}
        self._moved = frozenset(after.moved if after else ())
        self._seen = set(self._moved)

    @property
    def down(self) -> list[str]:
        """Return the cells that did not answer, sorted."""
        return sorted(source.cell.identity if self._shows_places else HIDDEN
                      for source in self._sources.values() if source.down)

    def servers(
        self, requests: Sequence[objects.BuildRequest]
    ) -> list[_Listed]:
        """Return the servers of the page.

        :param requests: all build requests that may be visible
        """
        if self._limit == 0:
            return []
        # A request is shown in place of the row that a cell may have already.
        self._seen.update(request.instance_uuid for request in requests)
        return [*itertools.islice(merge.merged(
            [*self._sources.values()], self._read, self._placed(requests),
            self._order.descends, self._size // 2
            if self._limit is None else 0), self._limit)]

    def _placed(
        self, requests: Sequence[objects.BuildRequest]
    ) -> Iterator[_Placed]:
        """Yield the servers of build requests that match the query."""
        order = self._order
        start = None if self._after is None else order.place(self._after)
        for request in requests:
            if request.instance_uuid in self._moved:
                continue
            if not self._filters.admits(
                    request.instance, request.tag_names,
                    request.updated_at or request.created_at):
                continue
            sorted_by = values(request, order)
            place = order.place(sorted_by)
            if start is None or (
                    place < start if order.descends else start < place):
                yield place, None, (
                    sorted_by, server.Server.requested(request))

    def _read(self, sources: Sequence[_CellServers]) -> Iterator[_Placed]:
        """Yield the next servers of some cells."""
        up = [source for source in sources if not source.down]
        gathered = self._gatherer.gather(
            self._context, [source.cell for source in up], self._read_cell)
        for source in up:
            if source.cell.uuid in gathered.results:
                yield from self._next(
                    source, *gathered.results[source.cell.uuid])
            else:
                source.down = True
        down = [source for source in sources if source.down]
        if down:
            with self._database.reader() as connection:
                for source in down:
                    # The mappings of instances replace the rows of the cell,
                    # unless a filter is on a column that they lack.
                    rows = instance_mappings.page(
                        connection, source.cell.id, self._order,
                        self._filters.matches, source.after, self._size,
                    ) if self._filters.by(instance_mappings.COLUMNS) else []
                    yield from self._next(
                        source, [tuple(getattr(row, name, None)
                                       for name in self._order.names)
                                 for row in rows],
                        [server.Server.unknown(row, source.name)
                         for row in rows])

    def _read_cell(
        self, cell_context: RequestContext
    ) -> tuple[list[tuple[Any, ...]], list[server.Server]]:
        source = self._sources[cell_context.cell.uuid]
        return read_page(
            cell_context.cell.database, source.name, self._filters,
            self._order, source.after, self._size, self._shows_places,
            self._shows_places)

    def _next(
        self, source: _CellServers, sorted_by: Sequence[tuple[Any, ...]],
        servers: Sequence[server.Server],
    ) -> Iterator[_Placed]:
        """Yield the unseen servers of a cell, with their sort keys.

        :param sorted_by: the sort values of each server
        """
        source.more = len(servers) == self._size
        if sorted_by:
            source.after = sorted_by[-1]
        seen = self._seen
        for place, listed in zip(self._order.places(sorted_by),
                                 zip(sorted_by, servers)):
            uuid = listed[1].uuid
            if uuid not in seen:
                seen.add(uuid)
                yield place, source, listed


def read_page(
    database: session.Database, cell: str | None,
    requested: instance_list.InstanceFilter, order: sort_order.SortOrder,
    after: Sequence[Any] | None = None, limit: int | None = None,
    shows_hosts: bool = True, internals: bool = True,
) -> tuple[list[tuple[Any, ...]], list[server.Server]]:
    """Return servers of a cell, and their sort values.

    :param cell: name of the cell, or None to hide it
    :param internals: whether reasons are for administrators
    """
    with database.reader() as connection:
        rows = instance_list.page(connection, requested, order, after, limit)
        uuids = [row[0] for row in rows]
        tags = get_tags(connection, uuids)
        reasons = instance_history.latest(connection, [
            row[0] for row in rows if row[_VM_STATE] == 'error'], internals)
    return instance_list.sort_values(order, rows), [
        server.Server.of_row(
            row, cell, reasons.get(row[0], ''), tags.get(row[0], ()),
            shows_hosts)
        for row in rows]


def values(
    request: objects.BuildRequest, order: sort_order.SortOrder
) -> list[Any]:
    """Return the sort values of a build request."""
    return [request.get('updated_at') if name == 'updated_at'
            else request.instance.get(name) for name in order.names]


#: Attempts to find a server whose mapping is not consistent yet.
_TRIES_MAX = 3

#: The number of page ends that a process remembers.
_PAGE_ENDS_MAX = 10_000


class ServerListing:
    """Finds servers in the API database and in the cells.

    While a build request exists, readers see the request; afterwards the row
    in the cell of the instance mapping.
    """

    def __init__(
        self, database: session.Database, cells: registry.CellRegistry,
        gatherer: gather.Gatherer,
        policy: ListingPolicy = ListingPolicy(),
    ) -> None:
        self._database = database
        self._cells = cells
        self._gatherer = gatherer
        self._policy = policy
        # The markers of the last pages, for users who send only the uuid.
        self._page_ends: collections.OrderedDict[
            tuple[Any, ...], Marker] = collections.OrderedDict()
        self._lock = threading.Lock()

    def get(
        self, context: RequestContext, uuid: str,
        to_delete: bool = False,
    ) -> tuple[server.Server, objects.CellMapping | None]:
        """Return a server and its cell; the cell is None before the decision.

        If the cell does not answer, the record has status UNKNOWN.

        :param to_delete: also return a server whose deletion has begun, if its
            cell does not answer, or whose row was lost
        :raises cellsched.exception.InstanceNotFound: it does not exist, or
            belongs to another project
        """
        for _ in range(_TRIES_MAX):
            with self._database.reader() as connection:
                request = build_requests.get(connection, uuid)
                # The request is deleted after the cell is set. Read in this
                # order, one of them always shows the server.
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
            # A retry may have moved it from cell0 to a new build request.
        if found is None and to_delete and mapping is not None and (
                cell is not None and not mapping.queued_for_delete):
            found = self._unknown(uuid, cell)
        if found is None or not visible(context, found.project_id):
            raise exception.InstanceNotFound(uuid=uuid)
        return found, cell

    def list(self, context: RequestContext, query: ServerQuery) -> Page:
        """Return a page of servers in order.

        Servers of a cell that does not answer have status UNKNOWN. They are
        included if their mappings suffice to apply the filters.

        :raises cellsched.exception.MarkerNotFound: the project has no such
            server
        :raises cellsched.exception.CellsDown: a cell does not answer, and the
            policy does not allow to leave it out
        """
        projects = query.filters.matches.get('project_id')
        # The marker may be any request.
        uuids = (query.filters.matches.get('uuid') if query.marker is None
                 else None)
        with self._database.reader() as connection:
            requests = build_requests.list_all(connection, projects, uuids)
            only = (instance_mappings.cells(connection, projects)
                    if projects and self._policy.per_project_cells else None)
        cells = [cell for cell in self._cells.all()
                 if only is None or cell.id in only]
        after = self._after(context, query, requests)
        reading = PageReader(
            context, self._database, self._gatherer, query, self._policy,
            cells, after)
        listed = reading.servers(requests)
        if reading.down and not self._policy.skip_down_cells:
            raise exception.CellsDown(cells=', '.join(reading.down))
        if not listed:
            return Page([], reading.down)
        sorted_by, last = listed[-1]
        marker = Marker(
            last.uuid, tuple(sorted_by), after.moved if after else ())
        key = _page_end(context, query, last.uuid)
        with self._lock:
            self._page_ends[key] = marker
            self._page_ends.move_to_end(key)
            if len(self._page_ends) > _PAGE_ENDS_MAX:
                self._page_ends.popitem(last=False)
        return Page([each for _, each in listed], reading.down, str(marker))

    def _read_one(
        self, context: RequestContext, cell: objects.CellMapping,
        uuid: str,
    ) -> server.Server | None:
        requested = instance_list.InstanceFilter({'uuid': [uuid]})
        gathered = self._gatherer.gather(
            context, [cell], lambda cell_context: read_page(
                cell_context.cell.database, server.name_of(cell), requested,
                NEWEST, internals=bool(context.is_admin)))
        if cell.uuid not in gathered.results:
            return self._unknown(uuid, cell)
        found = gathered.results[cell.uuid][1]
        return found[0] if found else None

    def _unknown(self, uuid: str, cell: objects.CellMapping) -> server.Server:
        """Return the record that the instance mapping gives."""
        with self._database.reader() as connection:
            return server.Server.unknown(
                instance_mappings.get(connection, uuid),
                server.name_of(cell))

    def _after(
        self, context: RequestContext, query: ServerQuery,
        requests: Sequence[objects.BuildRequest],
    ) -> Marker | None:
        """Return the marker of the query, with the values to continue from."""
        marker = query.marker
        if marker is None:
            return None
        if not marker.values:
            with self._lock:
                marker = self._page_ends.get(
                    _page_end(context, query, marker.uuid), marker)
        present, complete = self._values_of(
            context, marker.uuid, query.order, requests)
        if not marker.values:
            # It ended no page: the page begins after its present values.
            if present is None:
                raise exception.MarkerNotFound(marker=marker.uuid)
            return dataclasses.replace(marker, values=present)
        if complete and present not in (None, marker.values):
            # It was listed with its earlier values, and is not listed again.
            moved = (*marker.moved, marker.uuid)[-Marker.MOVED_MAX:]
            return dataclasses.replace(marker, moved=moved)
        return marker

    def _values_of(
        self, context: RequestContext, uuid: str, order: sort_order.SortOrder,
        requests: Sequence[objects.BuildRequest],
    ) -> tuple[tuple[Any, ...] | None, bool]:
        """Return the present sort values of a server, and if all are known.

        The values are None if the user may not see the server, or it does not
        exist. If its cell does not answer, they are the values of its mapping.
        """
        for request in requests:
            if request.instance_uuid == uuid:
                return tuple(values(request, order)), True
        with self._database.reader() as connection:
            mapping = instance_mappings.get_many(connection, [uuid]).get(uuid)
            if mapping is None or mapping.cell_mapping is None or not visible(
                    context, mapping.project_id):
                return None, False
            known = instance_mappings.values(connection, uuid, order)
        cell = mapping.cell_mapping

        def read(cell_context: RequestContext) -> Sequence[Any] | None:
            with cell_context.cell.database.reader() as connection:
                return instance_list.values(connection, uuid, order)

        gathered = self._gatherer.gather(context, [cell], read)
        if cell.uuid not in gathered.results:
            return tuple(known), False
        found = gathered.results[cell.uuid]
        return None if found is None else tuple(found), True


def _page_end(
    context: RequestContext, query: ServerQuery, uuid: str
) -> tuple[Any, ...]:
    """Return the key of a page's end; each user has keys of its own."""
    return (context.user_id, context.project_id, context.is_admin,
            query.order.keys, uuid)


def visible(context: RequestContext, project_id: str | None) -> bool:
    """Return whether the user may see the servers of a project."""
    return context.is_admin or project_id == context.project_id
