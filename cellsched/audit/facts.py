# SPDX-License-Identifier: Apache-2.0
"""The state of servers: in the API database, in cells, and their claims."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from cellsched.audit import sizes
from cellsched.cells import gather
from cellsched.cells import registry
from cellsched.claims import base as claims_base
from cellsched.claims import moves
from cellsched import context
from cellsched.db.api import audit_queries as api
from cellsched.db.api import build_requests
from cellsched.db.api import host_mappings
from cellsched.db.api import shared_providers
from cellsched.db.cell import audit_queries
from cellsched.db import session
from cellsched import exception
from cellsched import objects

#: How many servers are looked at together.
PAGE = 1000

Page = Callable[[Any, int, int], list[tuple[int, str]]]


@dataclasses.dataclass(frozen=True)
class Facts:
    """The state of one server, as all databases have it.

    :param rows: by cells' uuids; those of deleted servers too
    :param broken: why its build request can never be built, if that was
        looked at
    :param size: what it is to take, if that was looked at
    :param host_cells: cells of the hosts that rows beside its mapping name
    :param claims: what it holds
    :param moved: what it holds where it is moved to
    :param unheard: cells that did not answer
    :param names: of cells, by their uuids
    :param shared: uuids of all sharing providers
    """

    uuid: str
    mapping: api.MappingRow | None
    requested: bool
    rows: Mapping[str, audit_queries.ServerRow]
    claims: Sequence[claims_base.Claim]
    moved: Sequence[claims_base.Claim]
    unheard: frozenset[str]
    names: Mapping[str, str]
    broken: exception.RequestUnreadable | None = None
    size: sizes.ServerSize | None = None
    host_cells: Mapping[str, str] = dataclasses.field(default_factory=dict)
    shared: frozenset[str] = frozenset()

    def held(
        self, row: audit_queries.ServerRow
    ) -> tuple[list[claims_base.Claim], list[claims_base.Claim]]:
        """Return the claims that may be right for a row, and the others.

        They are on its node, on child providers of that, or on sharing
        providers.
        """
        near = {row.provider, *row.children} | self.shared
        return ([claim for claim in self.claims if claim.provider in near],
                [claim for claim in self.claims if claim.provider not in near])

    def visible(self) -> dict[str, audit_queries.ServerRow]:
        """Return the rows that are not deleted, in cells that have hosts."""
        return {cell: row for cell, row in self.rows.items()
                if not row.deleted and cell != objects.CELL0_UUID}

    def buried(self) -> bool:
        """Return whether cell0 shows it."""
        row = self.rows.get(objects.CELL0_UUID)
        return row is not None and not row.deleted


class Reader:
    """Reads facts, of many servers at a time.

    A cell that does not answer is not asked again until :meth:`begin`.

    :param claims: None where they are of no use, as only another process
        knows them
    """

    def __init__(
        self, database: session.Database, cells: registry.CellRegistry,
        gatherer: gather.Gatherer, claims: claims_base.ClaimStore | None,
        page: int = PAGE,
    ) -> None:
        self.database = database
        self.claims = claims
        self.page = page
        self._cells = cells
        self._gatherer = gatherer
        self._context = context.admin()
        self._sizes = sizes.Sizes()
        #: Why cells did not answer, by their uuids.
        self.unheard: dict[str, str] = {}
        self._shared: Sequence[shared_providers.SharedProvider] | None = None

    def begin(self) -> None:
        """Forget who did not answer, and the sharing providers."""
        self.unheard.clear()
        self._shared = None

    def shared(self) -> Sequence[shared_providers.SharedProvider]:
        """Return the sharing providers, read once until :meth:`begin`."""
        if self._shared is None:
            with self.database.reader() as connection:
                self._shared = shared_providers.list_all(connection)
        return self._shared

    def cells(self) -> dict[str, objects.CellMapping]:
        """Return the cells, cell0 among them, by their uuids."""
        return {cell.uuid: cell for cell in self._cells.all()}

    def names(self) -> dict[str, str]:
        """Return the names of the cells by their uuids."""
        return {uuid: cell.get('name') or uuid
                for uuid, cell in self.cells().items()}

    def facts(
        self, uuids: Iterable[str], everywhere: bool = False,
        asked: bool = False, holders: Collection[str] | None = None,
    ) -> dict[str, Facts]:
        """Return what is known of servers.

        :param everywhere: look in all cells, and not only in those where
            their mappings say that they are
        :param asked: look at what was asked for too
        :param holders: names of all who may hold something; None if anybody
            may
        """
        uuids = list(dict.fromkeys(uuids))
        # Claims come first: who holds one afterwards had it after all.
        held = self._held(uuids, holders)
        with self.database.reader() as connection:
            # A request goes when the mapping is there and says so.
            requested = api.requested(connection, uuids)
            mappings = api.mappings(connection, uuids)
            read = build_requests.read(
                connection, requested) if asked else []
            texts = api.specs(connection, uuids) if asked else {}
        broken = {entry.request.instance_uuid: entry.broken for entry in read}
        wanted: dict[str, list[str]] = {cell: [] for cell in self.cells()}
        for uuid in uuids:
            mapping = mappings.get(uuid)
            if everywhere:
                for each in wanted.values():
                    each.append(uuid)
            elif mapping is not None and mapping.cell is not None:
                wanted.setdefault(mapping.cell, []).append(uuid)
        if not wanted.keys() <= self.cells().keys():
            # They were mapped since the cells were read.
            self._cells.refresh()
        rows = self._rows(wanted)
        host_cells = self._host_cells(rows, mappings)
        names, unheard = self.names(), frozenset(self.unheard)
        shared = frozenset(provider.uuid for provider in self.shared())
        return {uuid: Facts(
            uuid, mappings.get(uuid), uuid in requested,
            rows.get(uuid, {}), held.get(uuid, ()),
            held.get(moves.consumer(uuid), ()), unheard, names,
            broken.get(uuid),
            self._sizes.of(uuid, texts.get(uuid)) if asked else None,
            host_cells, shared)
            for uuid in uuids}

    def known(self, uuids: Sequence[str]) -> set[str]:
        """Return those that the API database knows as servers."""
        with self.database.reader() as connection:
            return (api.mappings(connection, uuids).keys()
                    | api.requested(connection, uuids))

    def pages(self, query: Page) -> Iterator[list[str]]:
        """Yield servers of the API database, a page at a time."""
        after = 0
        while True:
            with self.database.reader() as connection:
                page = query(connection, after, self.page)
            if not page:
                return
            yield [uuid for _, uuid in page]
            after = page[-1][0]

    def cell_pages(self, query: Page) -> Iterator[dict[str, list[str]]]:
        """Yield servers by their cells, a page of each cell at a time."""
        after = dict.fromkeys(self.cells(), 0)
        while after:
            pages = self.ask(lambda cell, connection: query(
                connection, after[cell], self.page), after)
            after = {cell: page[-1][0] for cell, page in pages.items()
                     if page}
            if after:
                yield {cell: [uuid for _, uuid in pages[cell]]
                       for cell in after}

    def ask(
        self, function: Callable[[str, Any], Any], cells: Iterable[str]
    ) -> dict[str, Any]:
        """Return what a function of a cell and a connection to it returns.

        :param cells: uuids; those that do not answer are left out
        """
        def look(aimed: context.RequestContext) -> Any:
            assert aimed.cell is not None
            with aimed.cell.database.reader() as connection:
                return function(aimed.cell.uuid, connection)

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
        self, wanted: Mapping[str, Sequence[str]]
    ) -> dict[str, dict[str, audit_queries.ServerRow]]:
        found: dict[str, dict[str, audit_queries.ServerRow]] = {}
        answers = self.ask(
            lambda cell, connection: audit_queries.rows(
                connection, wanted[cell]),
            [cell for cell, uuids in wanted.items() if uuids])
        for cell, rows in answers.items():
            for uuid, row in rows.items():
                found.setdefault(uuid, {})[cell] = row
        return found

    def _host_cells(
        self, rows: Mapping[str, Mapping[str, audit_queries.ServerRow]],
        mappings: Mapping[str, api.MappingRow],
    ) -> dict[str, str]:
        hosts = {
            row.host for uuid, there in rows.items()
            for cell, row in there.items()
            if row.host and uuid in mappings and mappings[uuid].cell != cell}
        if not hosts:
            return {}
        with self.database.reader() as connection:
            return {host: cell.uuid for host, cell in
                    host_mappings.get_many(connection, hosts).items()}

    def _held(
        self, uuids: Sequence[str], holders: Collection[str] | None
    ) -> dict[str, list[claims_base.Claim]]:
        if self.claims is None:
            return {}
        return self.claims.claims_of([
            name for name in moves.names(uuids)
            if holders is None or name in holders])
