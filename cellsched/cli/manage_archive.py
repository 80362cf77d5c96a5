# SPDX-License-Identifier: Apache-2.0
"""Deleted rows: ``cellsched-manage db archive_deleted_rows|purge``."""

import argparse
import collections
import datetime
import math
from typing import TYPE_CHECKING

from cellsched.cli import base
from cellsched.cli import progress
from cellsched import exception
from cellsched import plugins

if TYPE_CHECKING:
    from cellsched.archive.archiver import Archiver
    from cellsched.archive.archiver import ArchiveReport
    from cellsched import objects

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

#: Exit code of both: something failed, such as a cell that does not answer.
FAILED = 5

_MAX_ROWS = 2 ** 31 - 1
_SECONDS_MAX = 24 * 3600 * 365

_DATE = 'DATE'
_DATE_HELP = ('in ISO 8601, such as 2026-01-31 or 2026-01-31T18:00+01:00; '
              'UTC unless it says otherwise')


class _Refused(Exception):
    """Says that nothing is done; carries the exit code."""

    def __init__(self, code: int) -> None:
        super().__init__()
        self.code = code


class _Archiving(base.Command):
    """Base of the commands on deleted rows."""

    kinds = (plugins.CLAIMS,)

    failure_code = FAILED

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--all-cells', action='store_true',
            help='all cells and cell0, not only the cell of [database] '
                 'connection')
        parser.add_argument(
            '--verbose', action='store_true',
            help='say how many rows of each table went')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        try:
            return self.act(parsed_args)
        except _Refused as exc:
            return exc.code

    def act(self, args: argparse.Namespace) -> int:
        """Do it; return the exit code."""
        raise NotImplementedError

    def refuse(self, code: int, text: str) -> _Refused:
        """Say why nothing is done; return what is to be raised."""
        self.app.warn(text)
        return _Refused(code)

    def date(self, text: str | None, code: int) -> datetime.datetime | None:
        """Return a date of the command line in UTC, without a time zone."""
        if text is None:
            return None
        try:
            date = datetime.datetime.fromisoformat(text)
        except ValueError:
            raise self.refuse(
                code, f'options: --before: a date {_DATE_HELP}, not {text!r}'
            ) from None
        if date.tzinfo is None:
            return date
        return date.astimezone(datetime.UTC).replace(tzinfo=None)

    def archiver(self, code: int) -> 'Archiver':
        """Return the archiver, if there is an API database."""
        if not self.app.conf.api_database.connection:
            raise self.refuse(
                code, 'Configuration: [api_database] connection: must be '
                      'set, as deleted servers are removed there too')
        return self.app.backend.archiver()

    def cells(
        self, archiver: 'Archiver', everything: bool
    ) -> 'list[objects.CellMapping]':
        """Return the cells that were asked for."""
        return archiver.cells(
            None if everything else self.app.parts.cell_database.url)

    def tell(
        self, verbose: bool, report: 'ArchiveReport'
    ) -> None:
        """Say what was done, and which cells failed."""
        if verbose:
            for (cell, table), rows in sorted(report.rows.items()):
                self.app.say(f'{cell}: {table}: {rows} rows')
            if report.kept:
                self.app.say(f'{len(report.kept)} deleted servers stay, for '
                             'they hold claims or have a build request')
        for cell, reason in sorted(report.failed.items()):
            self.app.warn(f'cell {cell} was left: {reason}')


class ArchiveDeletedRows(_Archiving):
    """Move deleted rows of cells to shadow tables.

    A deleted server goes with all that belongs to it, and the API database
    forgets it: its mapping, its request specification and its places in
    server groups. It stays as long as it holds claims or networks, or has a
    build request, or a build or a move that has not ended. Services, compute
    nodes and block devices go that were deleted by themselves. With
    ``--all-cells`` servers are forgotten too that were deleted before they
    had a cell.

    What was deleted in the last hour stays, as services may be about to read
    of it; ``--settle`` sets another time. A run that is killed loses nothing,
    and the next one goes on where it was.

    Ends with 0 if there was nothing to archive, or with ``--until-complete``
    when there is nothing more; with 1 if something was archived, and there
    may be more; with 2 if ``--max_rows`` and with 4 if ``--before`` is wrong;
    with 3 if no API database is configured; and with 5 if something failed,
    such as a cell that does not answer. Others go on then.

    Example::

        cellsched-manage --config-file api.conf db archive_deleted_rows \\
            --all-cells --until-complete --before 2026-01-31 --verbose
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--max_rows', default='1000', metavar='ROWS',
            help='about how many rows to move at most; 1000 by default. What '
                 'belongs to a server goes with it, so there may be a few '
                 'more')
        parser.add_argument(
            '--before', metavar=_DATE,
            help=f'only what was deleted before this date, {_DATE_HELP}')
        parser.add_argument(
            '--settle', type=float, default=3600.0, metavar='SECONDS',
            help='only what was deleted longer ago than this; 3600 by '
                 'default')
        parser.add_argument(
            '--until-complete', action='store_true',
            help='go on until there is nothing more; --max_rows is for each '
                 'round then')
        parser.add_argument(
            '--sleep', type=float, default=0.0, metavar='SECONDS',
            help='wait between rounds; not at all by default')
        parser.add_argument(
            '--purge', action='store_true',
            help='when that is done, remove all that is archived')
        return parser

    def act(self, args: argparse.Namespace) -> int:
        max_rows = self._max_rows(args.max_rows)
        for name in 'settle', 'sleep':
            _check_seconds(f'--{name}', getattr(args, name))
        before = self.date(args.before, BAD_DATE)
        archiver = self.archiver(NO_API_DATABASE)
        cells = self.cells(archiver, args.all_cells)
        settled = self.app.clock.now() - datetime.timedelta(
            seconds=args.settle)
        report = self._archive(
            args, archiver, cells, min(before or settled, settled), max_rows)
        self.tell(args.verbose, report)
        failed = bool(report.failed)
        if args.purge:
            purged = archiver.purge(
                [cell for cell in cells
                 if (cell.get('name') or cell.uuid) not in report.failed])
            self.tell(args.verbose, purged)
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
        with progress.bar('archiving', archiver.size(cells, before),
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

    def _max_rows(self, text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = 0
        if not 1 <= number <= _MAX_ROWS:
            raise self.refuse(
                BAD_MAX_ROWS, 'options: --max_rows: a number from 1 to '
                              f'{_MAX_ROWS}, not {text!r}')
        return number


class PurgeShadowTables(_Archiving):
    """Remove what is archived, for good.

    Ends with 0 if something was removed and with 3 if there was nothing;
    with 1 unless one of ``--before`` and ``--all`` is given; with 2 if
    ``--before`` is wrong; with 4 if no API database is configured; and with 5
    if something failed, such as a cell that does not answer. Others go on
    then.

    Example::

        cellsched-manage --config-file api.conf db purge --all-cells \\
            --before 2025-12-31
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--before', metavar=_DATE,
            help=f'remove what was deleted before this date, {_DATE_HELP}')
        parser.add_argument('--all', action='store_true',
                            help='remove everything')
        return parser

    def act(self, args: argparse.Namespace) -> int:
        if bool(args.before) == args.all:
            raise self.refuse(
                NO_SELECTOR, 'options: one of --before and --all must be '
                             'given')
        before = self.date(args.before, BAD_PURGE_DATE)
        archiver = self.archiver(NO_API_DATABASE_TO_PURGE)
        report = archiver.purge(
            self.cells(archiver, args.all_cells), before)
        self.tell(args.verbose, report)
        if report.failed:
            return FAILED
        return 0 if report.rows else NOTHING_PURGED


def _check_seconds(field: str, seconds: float) -> None:
    if not 0 <= seconds <= _SECONDS_MAX or math.isnan(seconds):
        raise exception.InvalidField(
            where='options', field=field,
            expected=f'a number from 0 to {_SECONDS_MAX}, not {seconds}')
