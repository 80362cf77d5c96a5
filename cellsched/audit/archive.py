# SPDX-License-Identifier: Apache-2.0
"""Moving deleted rows to shadow tables, and removing them from there."""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import datetime
import functools
from typing import Any

from cellsched.cells import gather
from cellsched.cells import registry
from cellsched.claims import base as claims_base
from cellsched import context
from cellsched.db.api import instance_mappings
from cellsched.db.cell import archive
from cellsched.db.cell import server_moves
from cellsched.db import session
from cellsched import exception
from cellsched import migrations
from cellsched import objects

#: The name of the API database in reports, beside the names of cells.
API = 'API database'

#: Servers, or rows, of one transaction.
_BATCH = 100

#: Rows that a server has in all tables, more or less.
_ROWS_EACH = 10

#: Rows that are removed in one transaction.
_PURGED = 1000

#: Attempts at a batch that loses to concurrent transactions.
_TRIES_MAX = 5

Progress = Callable[[int], None]


@dataclasses.dataclass
class ArchiveReport:
    """The rows that were moved or removed.

    :param rows: how many, by names of cells and of tables
    :param kept: deleted servers that hold claims or have a build request
    :param looked: how many deleted servers were looked at
    :param failed: why cells could not be gone through, by their names
    """

    rows: collections.Counter[tuple[str, str]] = dataclasses.field(
        default_factory=collections.Counter)
    kept: set[str] = dataclasses.field(default_factory=set)
    looked: int = 0
    failed: dict[str, str] = dataclasses.field(default_factory=dict)

    def add(self, cell: str, rows: collections.Counter[str]) -> None:
        """Add rows of a cell, by their tables."""
        self.rows.update({(cell, table): count
                          for table, count in rows.items()})


@dataclasses.dataclass
class _Batch:
    """A batch of one cell.

    :param rows: how many went, by table
    :param last: id of the last server that was looked at, None if there are
        no more
    :param looked: how many servers were looked at
    """

    rows: collections.Counter[str]
    last: int | None = None
    looked: int = 0
    kept: set[str] = dataclasses.field(default_factory=set)


class Archiver:
    """Archives deleted rows, cell by cell and batch by batch.

    The rows of a batch are first removed from the API database. If the process
    is killed after that, deleted rows stay in the cell for the next run.

    :param claims: the claim store; None if only another process sees it
    """

    def __init__(
        self, database: session.Database, cells: registry.CellRegistry,
        gatherer: gather.Gatherer, claims: claims_base.Claims | None,
    ) -> None:
        self._database = database
        self._cells = cells
        self._gatherer = gatherer
        self._claims = claims
        self._context = context.admin()

    def cells(self, url: str | None = None) -> list[objects.CellMapping]:
        """Return all cells, cell0 among them, or that of a database.

        :raises cellsched.exception.ConfigurationInvalid: it is no cell's
        """
        found = [cell for cell in self._cells.all()
                 if url in (None, cell.database_connection)]
        if url is not None and not found:
            raise exception.ConfigurationInvalid(
                field='[database] connection',
                problem='no cell is mapped to this database',
                expected='the database URL of a mapped cell; see '
                         'cellsched-manage cell_v2 list_cells')
        return found

    def size(
        self, cells: Sequence[objects.CellMapping], before: datetime.datetime
    ) -> int:
        """Return how many servers may be archived, for a progress bar."""
        def look(cell_context: context.RequestContext) -> int:
            with _database(cell_context).reader() as connection:
                return archive.count(connection, before)

        return sum(self._gatherer.gather(
            self._context, cells, look).results.values())

    def archive(
        self, cells: Sequence[objects.CellMapping], before: datetime.datetime,
        max_rows: int, progress: Progress = lambda done: None,
    ) -> ArchiveReport:
        """Archive rows that were deleted before a time.

        With all cells, the rows in the API database of servers that were
        deleted without a cell are removed too.

        :param max_rows: the approximate number of rows; all rows of a server
            are archived together
        :param progress: called with the finished part of :meth:`size`
        """
        report = ArchiveReport()
        for cell in cells:
            after: int | None = 0
            while (remaining := max_rows - report.rows.total()) > 0:
                batch = self._ask(report, cell, functools.partial(
                    self._batch, cell, before, after, remaining))
                if batch is None or not batch.looked and not batch.rows:
                    break
                report.add(_name(cell), batch.rows)
                report.kept |= batch.kept
                report.looked += batch.looked
                progress(report.looked)
                after = batch.last
        if len(cells) == len(self._cells.all()):
            self._forget_unplaced(report, cells, before, max_rows)
        return report

    def purge(
        self, cells: Iterable[objects.CellMapping],
        before: datetime.datetime | None = None,
    ) -> ArchiveReport:
        """Remove archived rows.

        :param before: only rows that were deleted before this time
        """
        def remove(
            cell_context: context.RequestContext
        ) -> collections.Counter[str]:
            with _database(cell_context).writer() as connection:
                return archive.purge(connection, before, _PURGED)

        report = ArchiveReport()
        for cell in cells:
            while rows := self._ask(report, cell, remove):
                report.add(_name(cell), rows)
        return report

    def _forget_unplaced(
        self, report: ArchiveReport, cells: Sequence[objects.CellMapping],
        before: datetime.datetime, max_rows: int,
    ) -> None:
        """Remove servers without a row in any cell from the API database.

        A row that stays in a cell would have no mapping.
        """
        after = 0
        while (remaining := max_rows - report.rows.total()) > 0:
            with self._database.reader() as connection:
                page = instance_mappings.unplaced_after(
                    connection, before, after, min(_BATCH, remaining))
            if not page:
                return
            after = page[-1][0]
            uuids = {uuid for _, uuid in page}
            present: set[str] = set()
            for cell in cells:
                found = self._ask(report, cell, functools.partial(
                    _present, uuids))
                if found is None:
                    return
                present |= found
            free = uuids - present - self._holding(uuids, {})
            with self._database.writer() as connection:
                free = instance_mappings.forget(connection, free, None)
            report.kept |= uuids - free
            report.add(API, collections.Counter(
                {'instance_mappings': len(free)} if free else {}))

    def _ask(
        self, report: ArchiveReport, cell: objects.CellMapping,
        function: Callable[[context.RequestContext], Any],
    ) -> Any:
        """Return the result of a function, or None if the cell fails."""
        for _ in range(_TRIES_MAX):
            gathered = self._gatherer.gather(self._context, [cell], function)
            if gathered.results:
                return gathered.results[cell.uuid]
            failure = gathered.failures.get(cell.uuid)
            if not isinstance(failure, exception.TransactionLost):
                break
        report.failed[_name(cell)] = (
            f'{failure}' if failure else 'it did not answer in time')
        return None

    def _batch(
        self, cell: objects.CellMapping, before: datetime.datetime,
        after: int | None, remaining: int,
        cell_context: context.RequestContext,
    ) -> _Batch:
        """Archive the next servers of a cell, or else other rows.

        :param after: id of the last server before them; None if there are no
            more
        :param remaining: how many rows may go
        """
        database = _database(cell_context)
        if after is not None:
            most = max(1, min(_BATCH, remaining // _ROWS_EACH))
            with database.reader() as connection:
                page = archive.ready_after(connection, before, after, most)
            if page:
                return self._servers(database, cell, before, page)
        with database.writer() as connection:
            return _Batch(archive.move_rows(
                connection, before, min(_BATCH, remaining)))

    def _servers(
        self, database: session.Database, cell: objects.CellMapping,
        before: datetime.datetime, page: Sequence[tuple[int, str]],
    ) -> _Batch:
        uuids = {uuid for _, uuid in page}
        with database.reader() as connection:
            moves = server_moves.uuids_of(connection, uuids)
        free = uuids - self._holding(uuids, moves)
        with self._database.writer() as connection:
            free = instance_mappings.forget(connection, free, cell.id)
        with database.writer() as connection:
            rows = archive.move_servers(connection, free, before)
        return _Batch(rows, page[-1][0], len(page), uuids - free)

    def _holding(
        self, uuids: Iterable[str], moves: Mapping[str, Sequence[str]]
    ) -> set[str]:
        """Return the servers that have claims, or whose migrations have."""
        if self._claims is None:
            return set()
        names = {uuid: {*migrations.consumers([uuid]), *moves.get(uuid, ())}
                 for uuid in sorted(uuids)}
        held = self._claims.claims_of(
            [each for of_one in names.values() for each in of_one])
        return {uuid for uuid, of_one in names.items()
                if not of_one.isdisjoint(held)}


def _database(cell_context: context.RequestContext) -> session.Database:
    assert cell_context.cell is not None
    return cell_context.cell.database


def _present(
    uuids: Iterable[str], cell_context: context.RequestContext
) -> set[str]:
    with _database(cell_context).reader() as connection:
        return archive.present(connection, uuids)


def _name(cell: objects.CellMapping) -> str:
    return str(cell.get('name') or cell.uuid)
