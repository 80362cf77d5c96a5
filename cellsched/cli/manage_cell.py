# SPDX-License-Identifier: Apache-2.0
"""Cells: ``cellsched-manage cell_v2 …``, as Nova's command of that name."""

import argparse
from typing import Any
from typing import TYPE_CHECKING

from cellsched.cli import base
from cellsched import exception
from cellsched import urls

if TYPE_CHECKING:
    from cellsched.cells.maintenance import CellMaintenance
    from cellsched.cli import app

#: Exit codes.
NOTHING_NEW = 1
DUPLICATE = 2

IN_PS = 'URLs on a command line are seen by every user of the machine'


class MapCell0(base.Command):
    """Map cell0, where servers go that could not be built.

    It has a database and nothing else. Without ``--database_connection`` that
    is the one beside ``[database] connection``, or where that is not set
    beside ``[api_database] connection``, whose name has ``_cell0`` at its
    end; of a SQLite file, before its extension. Where cell0 is mapped
    already, nothing is changed. The database itself and its tables are made
    by others: ``cellsched-manage db sync`` makes the tables.

    Example::

        cellsched-manage --config-file api.conf cell_v2 map_cell0
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--database_connection', metavar='URL',
            help=f'the database of cell0. {IN_PS}, those in configuration '
                 'files are not')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        map_cell0(self.app, parsed_args.database_connection)


class CreateCell(base.Command):
    """Map a cell: name the ways into it, its database and its broker.

    Without them on the command line, they are ``[database] connection`` and
    ``[DEFAULT] transport_url`` of the configuration, so it is best run with
    the configuration of the cell added. Ends with 1 if one is missing or is
    no URL, and with 2 if another cell has one of them. The cell's tables are
    made by ``cellsched-manage db sync``.

    Example::

        cellsched-manage --config-file api.conf --config-file cell1.conf \\
            cell_v2 create_cell --name cell1 --verbose
    """

    sends = True

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--name', metavar='NAME', help='its name')
        parser.add_argument(
            '--uuid', metavar='UUID',
            help='its uuid, such as the one that it has in Nova; by default '
                 'a new one')
        parser.add_argument(
            '--database_connection', metavar='URL',
            help='its database; by default [database] connection. '
                 f'{IN_PS}, those in configuration files are not')
        parser.add_argument(
            '--transport-url', metavar='URL',
            help='its broker; by default [DEFAULT] transport_url. The same '
                 'holds for this URL')
        parser.add_argument('--verbose', action='store_true',
                            help='print the uuid of the new cell alone')
        parser.add_argument('--disabled', action='store_true',
                            help='let it take no builds yet')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        args = parsed_args
        check_name(args.name)
        check_uuid('--uuid', args.uuid)
        transport_url = args.transport_url or own_transport(self.app)
        database_connection = args.database_connection or own_database(
            self.app)
        try:
            uuid = create_cell(
                self.app, args.name, transport_url, database_connection,
                args.uuid, args.disabled)
        except exception.CellMappingExists as exc:
            self.app.report(exc)
            return DUPLICATE
        warn_of_name(self.app, args.name)
        named = f'{uuid}({args.name})' if args.name else uuid
        self.app.say(uuid if args.verbose else f'Mapped cell {named}')
        return 0


class DiscoverHosts(base.Command):
    """Map the hosts of cells that are not mapped yet.

    A scheduler maps new hosts by itself as soon as it sees them; this does it
    now, and says what it found. Ends with 1 if, with ``--strict``, there was
    no new host, and with 2 if a host is mapped to another cell.

    Example::

        cellsched-manage --config-file api.conf cell_v2 discover_hosts \\
            --verbose
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--cell_uuid', metavar='UUID',
                            help='look in this cell only')
        parser.add_argument('--verbose', action='store_true',
                            help='say what is found')
        parser.add_argument('--strict', action='store_true',
                            help='end with 1 unless a host was mapped')
        parser.add_argument(
            '--by-service', action='store_true',
            help='map hosts by their compute services, not by their compute '
                 'nodes')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        args = parsed_args
        check_schema(self.app)
        try:
            found = self.app.parts.discovery.discover(
                args.cell_uuid, self._status if args.verbose else _be_quiet,
                args.by_service)
        except exception.HostMappingExists as exc:
            self.app.report(exc)
            return DUPLICATE
        # Where it is run every minute, nothing new is no news.
        if found and not args.verbose:
            self.app.say(f'Mapped {len(found)} hosts')
        return NOTHING_NEW if args.strict and not found else 0

    def _status(self, line: str) -> None:
        self.app.say(line)


class ListCells(base.Lister):
    """List the cells, by name.

    Passwords in URLs are shown as ``****``, and with ``--verbose`` too: it is
    taken as Nova's command takes it, and shows nothing more. Who needs a
    password finds it in the configuration of the cell.

    Example::

        cellsched-manage --config-file api.conf cell_v2 list_cells -f json
    """

    columns = ('Name', 'UUID', 'Transport URL', 'Database Connection',
               'Disabled')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--verbose', action='store_true',
                            help='shows nothing more; passwords are not shown')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        check_schema(self.app)
        cells = sorted(self.app.parts.cells.all(),
                       key=lambda cell: (cell.get('name') or '', cell.uuid))
        return self.columns, [
            (cell.get('name') or '', cell.uuid, urls.mask(cell.transport_url),
             urls.mask(cell.database_connection), cell.disabled)
            for cell in cells]


def _be_quiet(line: str) -> None:
    pass


def map_cell0(app: 'app.App', url: str | None = None) -> None:
    """Map cell0, and say so if it is mapped already.

    :param url: its database; by default the one beside what is configured
    """
    url = url or _beside(app)
    from cellsched import objects

    mapping = objects.CellMapping(
        uuid=objects.CELL0_UUID, name='cell0', transport_url='none:///',
        database_connection=url, disabled=False)
    try:
        _create(app, mapping)
        app.say('Mapped cell0')
    except exception.CellMappingExists as exc:
        app.parts.cells.refresh()
        try:
            mapped = app.parts.cells.cell0().database_connection
        except exception.CellMappingNotFound:
            raise exc from None
        app.say('Cell0 is already setup')
        if mapped != url:
            app.warn('warning: cell0 stays where it is, at '
                     f'{urls.mask(mapped)}')


def own_transport(app: 'app.App') -> str:
    """Return the broker that the configuration names, and say so."""
    url = app.parts.transports.own_url()
    app.say('--transport-url was not given; using [DEFAULT] transport_url of '
            'the configuration')
    return url


def own_database(app: 'app.App') -> str:
    """Return the cell database that the configuration names, and say so."""
    url = app.parts.cell_database.url
    app.say('--database_connection was not given; using [database] connection '
            'of the configuration')
    return url


def create_cell(
    app: 'app.App', name: str | None, transport_url: str,
    database_connection: str, uuid: str | None = None, disabled: bool = False,
) -> str:
    """Map a cell; return its uuid.

    :raises cellsched.exception.CellMappingExists: another cell has one of its
        URLs, or its uuid
    """
    from oslo_utils import uuidutils

    from cellsched import objects

    mapping = objects.CellMapping(
        uuid=uuid or uuidutils.generate_uuid(), name=name or None,
        transport_url=transport_url, database_connection=database_connection,
        disabled=disabled)
    _create(app, mapping)
    return str(mapping.uuid)


def _beside(app: 'app.App') -> str:
    url = app.conf.database.connection or app.parts.database.url
    app.parts.databases.get(url, 'cell')
    from cellsched.db.api import cell_mappings

    return cell_mappings.beside(url, '_cell0')


def check_name(name: str | None) -> None:
    """Make sure that a cell can have a name.

    :raises cellsched.exception.InvalidField: it cannot
    """
    if name:
        from cellsched.api import validation

        validation.check_text('options', '--name', name)


def warn_of_name(app: 'app.App', name: str | None) -> None:
    """Say so if several cells have a name now."""
    cells = [cell for cell in app.parts.cells.all()
             if name and cell.get('name') == name]
    if len(cells) > 1:
        app.warn(f'warning: {len(cells)} cells are called {name}; commands '
                 'that are given the name of a cell want its uuid then')


def check_uuid(option: str, uuid: str | None) -> None:
    """Make sure that a value is a uuid, as it is written usually.

    :raises cellsched.exception.InvalidField: it is not
    """
    if uuid is None:
        return
    from oslo_utils import uuidutils

    if not uuidutils.is_uuid_like(uuid) or uuid != uuid.lower() or (
            len(uuid) != 36):
        raise exception.InvalidField(
            where='options', field=option,
            expected='a uuid such as '
                     f'4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e, not {uuid!a:.60}')


def maintenance_of(app: 'app.App') -> 'CellMaintenance':
    """Return what changes the mappings of the configured deployment."""
    from cellsched.cells import maintenance

    parts = app.parts
    return maintenance.CellMaintenance(
        parts.database, parts.cells, parts.targets, parts.clock)


def check_schema(app: 'app.App') -> None:
    database = app.parts.database
    from cellsched.db import api

    api.SCHEMA.check(database)


def _has_schema(app: 'app.App') -> bool:
    """Return whether there are tables, of whatever version.

    Those of an older one are upgraded only when cell0 is mapped.
    """
    database = app.parts.database
    from cellsched.db import api

    return api.SCHEMA.version(database) is not None


def _create(app: 'app.App', mapping: Any) -> None:
    """Add a mapping.

    :raises cellsched.exception.CellMappingExists: there is one like it
    """
    if not mapping.is_cell0() or not _has_schema(app):
        check_schema(app)
    maintenance_of(app).create(mapping)
