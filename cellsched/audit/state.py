# SPDX-License-Identifier: Apache-2.0
"""The state of servers: API database, cells, claims and requested size."""

import collections
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import datetime
import functools
from typing import Any

from oslo_serialization import jsonutils

from cellsched.cells import gather
from cellsched.cells import registry
from cellsched.claims import base as claims_base
from cellsched import context
from cellsched.db.api import audit_queries as api
from cellsched.db.api import build_requests
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_groups
from cellsched.db.api import shared_providers
from cellsched.db.cell import audit_queries
from cellsched.db import session
from cellsched import exception
from cellsched import migrations
from cellsched import objects


#: Number of different requests in the cache.
_KEPT_MAX = 1000

#: Replaces the server's uuid in the cache key.
_ITS_UUID = '00000000-0000-0000-0000-000000000000'


@dataclasses.dataclass(frozen=True)
class ServerSize:
    """The resources that a server requested.

    :param resources: by resource class, without those of numbered groups;
        None if they are not known
    :param group: uuid of its server group
    :param problem: why they are not known: ``is missing`` or ``cannot be
        read``
    :param grouped: sum over the numbered groups, by resource class; only a
        scheduler decides on their providers
    :param project: id of the project, if it is set
    :param flavor: vcpus, memory_mb, root_gb and ephemeral_gb of the flavor
    :param has_hardware: whether it asks for NUMA cells or devices
    """

    resources: Mapping[str, int] | None = None
    group: str | None = None
    problem: str = ''
    grouped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    project: str | None = None
    flavor: audit_queries.Size = (None, None, None, None)
    has_hardware: bool = False

    @property
    def total(self) -> Mapping[str, int] | None:
        """Return the sum of all resources; None if they are not known."""
        if self.resources is None or not self.grouped:
            return self.resources
        return add_up([self.resources, self.grouped])


def add_up(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum of amounts by resource class."""
    total: collections.Counter[str] = collections.Counter()
    for each in amounts:
        total.update(each)
    return dict(total)


MISSING = ServerSize(problem='is missing')
UNREADABLE = ServerSize(problem='cannot be read')


def size_of(uuid: str, text: str | None) -> ServerSize:
    """Return the size of a server.

    :param text: its stored request specification; None if there is none
    """
    return MISSING if text is None else _read(text.replace(uuid, _ITS_UUID))


# The requests of a batch differ in their uuids only, and reading one takes a
# hundred times as long as a look-up in the cache.
@functools.lru_cache(_KEPT_MAX)
def _read(text: str) -> ServerSize:
    try:
        spec = objects.RequestSpec.obj_from_primitive(jsonutils.loads(text))
        group = spec.get('instance_group')
        return ServerSize(
            spec.resources(), group.uuid if group else None,
            grouped=add_up(dict(each.resources)
                           for each in spec.group_demand().groups),
            project=spec.get('project_id'), flavor=(
                spec.flavor.vcpus, spec.flavor.memory_mb,
                spec.flavor.get('root_gb'), spec.flavor.get('ephemeral_gb')),
            has_hardware=_has_hardware(spec))
    except (*objects.READ_ERRORS, NotImplementedError,
            exception.InvalidField):
        # NotImplementedError: a field is not set.
        return UNREADABLE


def _has_hardware(spec: objects.RequestSpec) -> bool:
    try:
        return spec.hardware() is not None
    except exception.Invalid:
        # The request was accepted, so it asks for some.
        return True


def _projects(
    size: ServerSize | None, entry: build_requests.LeasedRequest | None
) -> dict[str, str]:
    """Return the projects in the records of a request, where they are set."""
    found = {
        'request specification': size and size.project,
        'build request': entry and entry.request.project_id}
    return {record: project for record, project in found.items() if project}


#: Number of servers that are read together.
PAGE = 1000

Page = Callable[[Any, int, int], list[tuple[int, str]]]


@dataclasses.dataclass(frozen=True)
class ServerState:
    """The state of one server in all databases.

    :param rows: by cell uuid, with those of deleted servers
    :param broken: why its build request cannot be read, if that was checked
    :param size: the requested resources, if they were read
    :param host_cells: cells of hosts, for rows outside of the mapped cell
    :param claims: claims under the server's uuid
    :param moved: claims for its move
    :param unheard: uuids of cells that did not answer
    :param shared: uuids of all sharing providers
    :param projects: ids of its project, by the record that has it
    :param groups: uuids of the groups that have it as a member
    :param group: the group that its request names, if that exists
    :param member: its membership in the claim store
    :param checks_groups: whether the claim store has memberships
    """

    uuid: str
    mapping: api.MappingRow | None
    requested: bool
    rows: Mapping[str, audit_queries.ServerRow]
    claims: Sequence[claims_base.Claim]
    moved: Sequence[claims_base.Claim]
    unheard: frozenset[str]
    broken: exception.RequestUnreadable | None = None
    size: ServerSize | None = None
    host_cells: Mapping[str, str] = dataclasses.field(default_factory=dict)
    shared: frozenset[str] = frozenset()
    projects: Mapping[str, str] = dataclasses.field(default_factory=dict)
    groups: frozenset[str] = frozenset()
    group: objects.InstanceGroup | None = None
    member: claims_base.Membership | None = None
    checks_groups: bool = False

    @property
    def cell(self) -> str | None:
        """The cell that the server is mapped to, if any."""
        return self.mapping.cell if self.mapping else None

    @property
    def row(self) -> audit_queries.ServerRow | None:
        """The row in that cell, if any."""
        return self.rows.get(self.cell) if self.cell else None

    def held(
        self, row: audit_queries.ServerRow
    ) -> tuple[list[claims_base.Claim], list[claims_base.Claim]]:
        """Return the claims near a row's node, and all other claims.

        Near are the node, its child providers, and all sharing providers.
        """
        near = {row.provider, *row.children} | self.shared
        return ([claim for claim in self.claims if claim.provider in near],
                [claim for claim in self.claims if claim.provider not in near])

    def visible(self) -> dict[str, audit_queries.ServerRow]:
        """Return the rows that are not deleted, without that of cell0."""
        return {cell: row for cell, row in self.rows.items()
                if not row.deleted and cell != objects.CELL0_UUID}

    def buried(self) -> bool:
        """Return whether cell0 has a row that is not deleted."""
        row = self.rows.get(objects.CELL0_UUID)
        return row is not None and not row.deleted


class StateReader:
    """Reads the states of servers in pages.

    A cell that did not answer is not read again until :meth:`begin`.

    :param claims: None if only another process can read the claims
    :param down_s: seconds without a report after which a host is down
    """

    def __init__(
        self, database: session.Database, cells: registry.CellRegistry,
        gatherer: gather.Gatherer, claims: claims_base.ClaimStore | None,
        page: int = PAGE, down_s: float = 60.0,
    ) -> None:
        self.database = database
        self.claims = claims
        self.page = page
        self._cells = cells
        self._gatherer = gatherer
        self._down_s = down_s
        self._up_since: dict[str, datetime.datetime] = {}
        self._context = context.admin()
        #: Why a cell did not answer, by uuid.
        self.unheard: dict[str, str] = {}
        self._shared: Sequence[shared_providers.SharedProvider] | None = None

    def begin(self) -> None:
        """Forget which cells did not answer, and the sharing providers."""
        self.unheard.clear()
        self._shared = None

    def shared(self) -> Sequence[shared_providers.SharedProvider]:
        """Return the sharing providers, read once until :meth:`begin`."""
        if self._shared is None:
            with self.database.reader() as connection:
                self._shared = shared_providers.list_all(
                    connection, self.database.conditions)
        return self._shared

    def cells(self) -> dict[str, objects.CellMapping]:
        """Return all cells by uuid, with cell0."""
        return {cell.uuid: cell for cell in self._cells.all()}

    def names(self) -> dict[str, str]:
        """Return the names of all cells by uuid."""
        return {uuid: cell.get('name') or uuid
                for uuid, cell in self.cells().items()}

    def servers(
        self, uuids: Iterable[str], everywhere: bool = False,
        asked: bool = False, holders: Collection[str] | None = None,
    ) -> dict[str, ServerState]:
        """Return the states of servers.

        :param everywhere: read all cells, not only the mapped ones
        :param asked: read the requests, too
        :param holders: consumers that may hold claims; None for any
        """
        uuids = list(dict.fromkeys(uuids))
        # Claims are read first, so that a server found later explains them.
        held = self._held(uuids, holders)
        with self.database.reader() as connection:
            # A request is deleted after the mapping names the cell, so it is
            # read before the mapping.
            requested = build_requests.present(connection, uuids)
            mappings = api.mappings(connection, uuids)
            read = build_requests.read(connection, requested) if asked else []
            texts = api.specs(connection, uuids) if asked else {}
            sizes = {uuid: size_of(uuid, texts.get(uuid))
                     for uuid in uuids if asked}
            # The members go with their group, so they are read before it.
            groups_of = api.groups_of(connection, uuids) if asked else {}
            groups = instance_groups.find_many(connection, {
                size.group for size in sizes.values() if size.group})
        members = self._members(held) if asked else {}
        broken = {entry.request.instance_uuid: entry for entry in read}
        by_cell: dict[str, list[str]] = {cell: [] for cell in self.cells()}
        for uuid in uuids:
            mapping = mappings.get(uuid)
            if everywhere:
                for each in by_cell.values():
                    each.append(uuid)
            elif mapping is not None and mapping.cell is not None:
                by_cell.setdefault(mapping.cell, []).append(uuid)
        if not by_cell.keys() <= self.cells().keys():
            # A cell was added since the cells were read.
            self._cells.refresh()
        rows = self._rows(by_cell)
        host_cells = self._host_cells(rows, mappings)
        moves = {uuid: [migrations.consumer(uuid), *(
            move for row in rows.get(uuid, {}).values() for move in row.moves)]
            for uuid in uuids}
        # A move that begins later is not in the rows, nor are its claims.
        held.update(self._held(
            [name for names in moves.values() for name in names], holders))
        unheard = frozenset(self.unheard)
        shared = frozenset(provider.uuid for provider in self.shared())
        return {uuid: ServerState(
            uuid, mappings.get(uuid), uuid in requested,
            rows.get(uuid, {}), held.get(uuid, ()),
            [claim for name in moves[uuid] for claim in held.get(name, ())],
            unheard, request.broken if (request := broken.get(uuid)) else None,
            size := sizes.get(uuid), host_cells, shared,
            _projects(size, request), groups_of.get(uuid, frozenset()),
            groups.get(size.group or '') if size else None,
            members.get(uuid), self._has_members())
            for uuid in uuids}

    def known(self, uuids: Sequence[str]) -> set[str]:
        """Return the servers that the API database knows."""
        with self.database.reader() as connection:
            return (api.mappings(connection, uuids).keys()
                    | build_requests.present(connection, uuids))

    def pages(self, query: Page) -> Iterator[list[str]]:
        """Yield servers of the API database in pages."""
        after = 0
        while True:
            with self.database.reader() as connection:
                page = query(connection, after, self.page)
            if not page:
                return
            yield [uuid for _, uuid in page]
            after = page[-1][0]

    def cell_pages(self, query: Page) -> Iterator[dict[str, list[str]]]:
        """Yield servers by cell, with a page of each cell at a time."""
        after = dict.fromkeys(self.cells(), 0)
        while after:
            pages = self.ask(lambda cell, connection: query(
                connection, after[cell], self.page), after)
            after = {cell: page[-1][0] for cell, page in pages.items() if page}
            if after:
                yield {cell: [uuid for _, uuid in pages[cell]]
                       for cell in after}

    def ask(
        self, function: Callable[[str, Any], Any], cells: Iterable[str]
    ) -> dict[str, Any]:
        """Call a function with each cell and a connection to it.

        :param cells: uuids
        :returns: results by cell, without the cells that did not answer
        """
        def look(cell_context: context.RequestContext) -> Any:
            assert cell_context.cell is not None
            self._up_since[cell_context.cell.uuid] = (
                cell_context.cell.database.now()
                - datetime.timedelta(seconds=self._down_s))
            with cell_context.cell.database.reader() as connection:
                return function(cell_context.cell.uuid, connection)

        known = self.cells()
        gathered = self._gatherer.gather(self._context, [
            known[cell] for cell in cells
            if cell in known and cell not in self.unheard], look)
        for cell, exc in gathered.failures.items():
            self.unheard[cell] = f'{exc}'
        for cell in gathered.silent:
            self.unheard[cell] = 'it did not answer in time'
        return gathered.results

    def _rows(
        self, by_cell: Mapping[str, Sequence[str]]
    ) -> dict[str, dict[str, audit_queries.ServerRow]]:
        found: dict[str, dict[str, audit_queries.ServerRow]] = {}
        answers = self.ask(
            lambda cell, connection: audit_queries.rows(
                connection, by_cell[cell], self._up_since[cell]),
            [cell for cell, uuids in by_cell.items() if uuids])
        for cell, rows in answers.items():
            for uuid, row in rows.items():
                found.setdefault(uuid, {})[cell] = row
        return found

    def _host_cells(
        self, rows: Mapping[str, Mapping[str, audit_queries.ServerRow]],
        mappings: Mapping[str, api.MappingRow],
    ) -> dict[str, str]:
        hosts = {
            row.host for uuid, existing in rows.items()
            for cell, row in existing.items()
            if row.host and uuid in mappings and mappings[uuid].cell != cell}
        if not hosts:
            return {}
        with self.database.reader() as connection:
            return {host: cell.uuid for host, cell in
                    host_mappings.get_many(connection, hosts).items()}

    def _members(
        self, held: Mapping[str, Sequence[claims_base.Claim]]
    ) -> Mapping[str, claims_base.Membership]:
        return (self.claims.memberships(held)
                if self.claims is not None and held else {})

    def _has_members(self) -> bool:
        return self.claims is not None and (
            claims_base.Capability.GROUPS in self.claims.capabilities)

    def _held(
        self, uuids: Sequence[str], holders: Collection[str] | None
    ) -> dict[str, list[claims_base.Claim]]:
        if self.claims is None:
            return {}
        held = self.claims.claims_of([
            name for name in uuids if holders is None or name in holders])
        # The amounts of other claims cannot be added up.
        return {name: claims for name, claims in held.items()
                if all(map(claims_base.is_readable, claims))}
