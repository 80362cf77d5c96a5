# SPDX-License-Identifier: Apache-2.0
"""Databases: ``cellsched-manage api_db|db|claims_db …``.

``sync`` and ``version`` are about schemas; ``db archive_deleted_rows`` and
``db purge`` are about deleted rows.
"""

import argparse
import collections
import datetime
from typing import ClassVar
from typing import TYPE_CHECKING

from cellsched.cli import base
from cellsched.cli import terminal
from cellsched import exception
from cellsched import plugins

if TYPE_CHECKING:
    from cellsched.audit.archive import Archiver
    from cellsched.audit.archive import ArchiveReport
    from cellsched.db.schema import Schema
    from cellsched.db.session import Database
    from cellsched import objects

    Target = tuple[Schema, Database]

#: Exit codes of ``archive_deleted_rows``.
ARCHIVED = 1
BAD_MAX_ROWS = 2
NO_API_DATABASE = 3
BAD_DATE = 4

#: Exit codes of ``purge``.
NO_SELECTOR = 1
BAD_PURGE_DATE = 2
NOTHING_PURGED = 3
NO_API_DATABASE_TO_PURGE = 4

#: Exit code of both: an error, such as a cell that does not answer.
FAILED = 5

_MAX_ROWS = 2 ** 31 - 1
_SECONDS_MAX = 24 * 3600 * 365

_DATE_HELP = ('in ISO 8601, such as 2026-01-31 or 2026-01-31T18:00+01:00; in '
              'UTC unless it has another time zone')


class _Sync(base.Command):
    """Base of the commands that upgrade a schema."""

    arguments: ClassVar[base.Arguments] = (base.argument(
        'version', metavar='VERSION', nargs='?', default='head',
        help='the version to upgrade to; by default the newest'),)

    def sync(self, target: 'Target', name: str, version: str) -> None:
        """Upgrade a database, and print its version."""
        schema, database = target
        schema.sync(database, version)
        self.app.say(f'{name}: schema version {schema.version(database)}')


class _Version(base.Command):
    """Base of the commands that show the version of a schema."""

    #: The name of the schema.
    schema: ClassVar[str]

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        schema, database = self.app.backend.schema(self.schema)
        self.app.say(schema.version(database) or 'none')


class SyncAPI(_Sync):
    """Upgrade the schema of the API database.

    The database is that of ``[api_database] connection``. It must exist, and
    may be empty. Upgrade it before the databases of cells. If it is in use,
    cell0 must be mapped; see ``cellsched-manage cell_v2 map_cell0``.

    Example::

        cellsched-manage --config-file api.conf api_db sync
    """

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.sync(self.app.backend.schema('API'), 'API database',
                  parsed_args.version)


class APIVersion(_Version):
    """Show the schema version of the API database.

    Example::

        cellsched-manage --config-file api.conf api_db version
    """

    schema = 'API'


class SyncCell(_Sync):
    """Upgrade the schemas of cell0 and of this cell.

    cell0 is found by its mapping, if ``[api_database] connection`` is
    configured. The database of this cell is that of ``[database]
    connection``, which may be unset above the cells. Run the command once
    with the configuration of each cell, or with ``--all-cells``, which
    upgrades all mapped cells; if one fails, the command upgrades the next one
    and ends with 1. The databases must exist, and may be empty.

    Examples::

        cellsched-manage --config-file cell1.conf db sync
        cellsched-manage --config-file api.conf db sync --all-cells
    """

    arguments = (
        *_Sync.arguments,
        base.exclusive(
            base.flag('--local_cell', 'do not upgrade cell0'),
            base.flag('--all-cells', 'upgrade all mapped cells')))

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        if parsed_args.all_cells:
            return self._sync_all(parsed_args.version)
        conf, version = self.app.conf, parsed_args.version
        backend = self.app.backend
        own = backend.schema('cell') if conf.database.connection else None
        done = False
        if conf.api_database.connection and not parsed_args.local_cell:
            try:
                done = self._sync_cell0(version)
            except exception.InvalidField:
                raise
            except exception.CellschedException as exc:
                self.app.report(exc)
                self.app.warn(
                    'cell0 cannot be reached, so no schema was upgraded. Its '
                    'database must exist, the API database needs '
                    'cellsched-manage api_db sync, and cellsched-manage '
                    'cell_v2 map_cell0 maps cell0. --local_cell skips cell0.')
                return 1
        if own is not None or not done:
            self.sync(own or backend.schema('cell'), 'cell database', version)
        return 0

    def _sync_all(self, version: str) -> int:
        parts = self.app.parts
        cells = parts.cells.all()
        code = 0
        with terminal.progress('cells', len(cells), self.app.stderr) as show:
            for done, cell in enumerate(cells):
                name = cell.get('name') or cell.uuid
                show(done)
                try:
                    self.sync(
                        (self.app.backend.cell_schema,
                         parts.targets.database(cell)),
                        name if cell.is_cell0() else f'cell {name}', version)
                except exception.InvalidField:
                    # The version does not exist, so no cell can have it.
                    raise
                except exception.CellschedException as exc:
                    self.app.report(exc)
                    code = 1
        if not cells:
            self.app.warn('no cell is mapped; see cellsched-manage cell_v2 '
                          'map_cell0 and create_cell')
            code = 1
        return code

    def _sync_cell0(self, version: str) -> bool:
        parts = self.app.parts
        try:
            cell0 = parts.cells.cell0()
        except exception.CellMappingNotFound:
            self.app.warn(
                'warning: cell0 is not mapped, so its schema is not upgraded; '
                'see cellsched-manage cell_v2 map_cell0')
            return False
        self.sync((self.app.backend.cell_schema,
                   parts.targets.database(cell0)), 'cell0', version)
        return True


class CellVersion(_Version):
    """Show the schema version of this cell.

    The database is that of ``[database] connection``.

    Example::

        cellsched-manage --config-file cell1.conf db version
    """

    schema = 'cell'


class SyncClaims(_Sync):
    """Upgrade the schema of the claim store.

    The database is that of ``[claims] connection``, or else of
    ``[api_database] connection``. It must exist, and may be empty. A store
    other than ``sql`` creates its tables or keys, and has only one version.

    Example::

        cellsched-manage --config-file api.conf claims_db sync
    """

    kinds = (plugins.CLAIMS,)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        name, version = self.app.conf.claims.store, parsed_args.version
        if name == 'sql':
            self.sync(self.app.backend.schema('claims'), 'claims database',
                      version)
            return
        store = self.app.backend.durable_claims()
        if version != 'head':
            raise exception.InvalidField(
                where='claims_db sync', field='VERSION',
                problem=f'unknown version {version!a:.60}',
                expected=f'head: the store {name} has one version')
        store.sync()
        self.app.say(f'claim store {name}: ready')


class ClaimsVersion(_Version):
    """Show the schema version of the claim store.

    Example::

        cellsched-manage --config-file api.conf claims_db version
    """

    kinds = (plugins.CLAIMS,)
    schema = 'claims'


class _ArchiveCommand(base.Command):
    """Base of the commands on deleted rows."""

    kinds = (plugins.CLAIMS,)
    failure_code = FAILED
    arguments: ClassVar[base.Arguments] = (
        base.flag('--all-cells', 'work on all cells and cell0, not only on '
                  'the cell of [database] connection'),
        base.flag('--verbose', 'print the number of rows of each table'))

    def archiver(self, code: int) -> 'Archiver':
        """Return the archiver, if an API database is configured."""
        if not self.app.conf.api_database.connection:
            raise base.Refused(
                code, 'Configuration: [api_database] connection: it is unset; '
                      'deleted servers are removed from the API database too')
        return self.app.backend.archiver()

    def cells(
        self, archiver: 'Archiver', everything: bool
    ) -> 'list[objects.CellMapping]':
        """Return the cells to work on."""
        return archiver.cells(
            None if everything else self.app.parts.cell_database.url)

    def show(self, verbose: bool, report: 'ArchiveReport') -> None:
        """Print the numbers of rows, and the cells that failed."""
        if verbose:
            for (cell, table), rows in sorted(report.rows.items()):
                self.app.say(f'{cell}: {table}: {rows} rows')
            if report.kept:
                self.app.say(f'{len(report.kept)} deleted servers are not '
                             'archived: they have claims or a build request')
        for cell, reason in sorted(report.failed.items()):
            self.app.warn(f'cell {cell} was skipped: {reason}')


class ArchiveDeletedRows(_ArchiveCommand):
    """Move deleted rows of cells to shadow tables.

    A deleted server is archived with all rows that belong to it, and its
    mapping, its request specification and its memberships in server groups
    are removed from the API database. A server is not archived while it has
    claims, networks, a build request, or a build or a move in progress.
    Services, compute nodes and block devices that were deleted by themselves
    are archived too. ``--all-cells`` also removes servers that were deleted
    before they had a cell.

    Rows deleted in the last hour are kept, because services may still read
    them; ``--settle`` changes the time. An interrupted run loses nothing, and
    the next run continues.

    Ends with 0 if there was nothing to archive, or with ``--until-complete``
    when everything is archived; with 1 if rows were archived and there may be
    more; with 2 if ``--max_rows`` is invalid; with 3 if no API database is
    configured; with 4 if ``--before`` is invalid; and with 5 after an error;
    the other cells are archived then.

    Example::

        cellsched-manage --config-file api.conf db archive_deleted_rows \\
            --all-cells --until-complete --before 2026-01-31 --verbose
    """

    arguments = (
        *_ArchiveCommand.arguments,
        base.argument('--max_rows', default='1000', metavar='ROWS',
                      help='move about this many rows at most; by default '
                           '1000. All rows of a server are moved together, so '
                           'there may be a few more'),
        base.argument('--before', metavar='DATE',
                      help='archive only rows deleted before this date, '
                           f'{_DATE_HELP}'),
        base.argument('--settle', type=base.seconds(_SECONDS_MAX),
                      default=3600.0, metavar='SECONDS',
                      help='archive only rows deleted longer ago than this; '
                           'by default 3600'),
        base.flag('--until-complete', 'repeat until there is nothing to '
                  'archive; --max_rows limits each round then'),
        base.argument('--sleep', type=base.seconds(_SECONDS_MAX), default=0.0,
                      metavar='SECONDS',
                      help='the pause between rounds; by default 0'),
        base.flag('--purge', 'remove all archived rows at the end'))

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        args = parsed_args
        try:
            max_rows = base.whole(1, _MAX_ROWS)(args.max_rows)
        except argparse.ArgumentTypeError as exc:
            raise base.Refused(BAD_MAX_ROWS, f'--max_rows: {exc}') from None
        before = _date(args.before, BAD_DATE)
        archiver = self.archiver(NO_API_DATABASE)
        cells = self.cells(archiver, args.all_cells)
        settled = self.app.clock.now() - datetime.timedelta(
            seconds=args.settle)
        report = self._archive(
            args, archiver, cells, min(before or settled, settled), max_rows)
        self.show(args.verbose, report)
        failed = bool(report.failed)
        if args.purge:
            purged = archiver.purge(
                [cell for cell in cells
                 if (cell.get('name') or cell.uuid) not in report.failed])
            self.show(args.verbose, purged)
            failed |= bool(purged.failed)
        if failed:
            return FAILED
        return ARCHIVED if report.rows and not args.until_complete else 0

    def _archive(
        self, args: argparse.Namespace, archiver: 'Archiver',
        cells: 'list[objects.CellMapping]', before: datetime.datetime,
        max_rows: int,
    ) -> 'ArchiveReport':
        rows: collections.Counter[tuple[str, str]] = collections.Counter()
        done = 0
        with terminal.progress('archiving', archiver.size(cells, before),
                               self.app.stderr) as show:
            def looked(servers: int) -> None:
                show(done + servers)

            while True:
                report = archiver.archive(cells, before, max_rows, looked)
                rows += report.rows
                if not args.until_complete or not report.rows:
                    break
                done += report.looked - len(report.kept)
                self.app.clock.sleep(args.sleep)
        report.rows = rows
        return report


class PurgeShadowTables(_ArchiveCommand):
    """Remove archived rows permanently.

    Ends with 0 if rows were removed; with 1 unless exactly one of
    ``--before`` and ``--all`` is given; with 2 if ``--before`` is invalid;
    with 3 if there was nothing to remove; with 4 if no API database is
    configured; and with 5 after an error; the rows of other cells are
    removed then.

    Example::

        cellsched-manage --config-file api.conf db purge --all-cells \\
            --before 2025-12-31
    """

    arguments = (
        *_ArchiveCommand.arguments,
        base.argument('--before', metavar='DATE',
                      help='remove only rows deleted before this date, '
                           f'{_DATE_HELP}'),
        base.flag('--all', 'remove all archived rows'))

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        args = parsed_args
        if bool(args.before) == args.all:
            raise base.Refused(
                NO_SELECTOR, 'one of --before and --all must be given')
        before = _date(args.before, BAD_PURGE_DATE)
        archiver = self.archiver(NO_API_DATABASE_TO_PURGE)
        report = archiver.purge(self.cells(archiver, args.all_cells), before)
        self.show(args.verbose, report)
        if report.failed:
            return FAILED
        return 0 if report.rows else NOTHING_PURGED


def _date(text: str | None, code: int) -> datetime.datetime | None:
    """Return a date of the command line in UTC, without a time zone.

    :param code: the exit code if it is no date
    """
    if text is None:
        return None
    try:
        date = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise base.Refused(
            code, f'--before: {text!a:.60} is not a date; expected a date '
                  f'{_DATE_HELP}') from None
    if date.tzinfo is None:
        return date
    return date.astimezone(datetime.UTC).replace(tzinfo=None)
