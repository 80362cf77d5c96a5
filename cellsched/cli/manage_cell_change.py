# SPDX-License-Identifier: Apache-2.0
"""Changing and removing cells and hosts: ``cellsched-manage cell_v2 …``."""

import argparse
from typing import Any
from typing import TYPE_CHECKING

from cellsched.cli import base
from cellsched.cli import manage_cell
from cellsched import exception

if TYPE_CHECKING:
    from cellsched.cells import maintenance
    from cellsched.cli.app import App

#: Exit codes of ``update_cell``; 1 is a cell that there is not.
FAILED = 2
DUPLICATE_URLS = 3
BOTH = 4
CELL0 = 5

#: Exit codes of ``delete_cell``.
IN_USE = {exception.CellInUse.HOSTS: 2, exception.CellInUse.SERVERS: 3,
          exception.CellInUse.DELETED: 4}

#: Exit codes of ``delete_host``.
NO_HOST = 2
OTHER_CELL = 3
HAS_SERVERS = 4

_HINTS = {
    exception.CellInUse.HOSTS: 'cell_v2 delete_host unmaps them one by one, '
                               'and --force all of them',
    exception.CellInUse.SERVERS: 'delete them or move them first',
    exception.CellInUse.DELETED: 'db archive_deleted_rows archives them, and '
                                 '--force forgets them',
}


class UpdateCell(base.Command):
    """Change the name of a cell, the ways into it, or whether it takes builds.

    What is not given stays as it is. Nova's command takes URLs that are not
    given from the configuration; this one does not, so that a cell can be
    renamed from anywhere, unless ``--from-configuration`` says so: then a
    password that was changed is in no list of processes. Services see the
    change within ``[cells] refresh_interval`` seconds.

    Ends with 1 if there is no such cell, with 2 if it could not be changed,
    with 3 if another cell has one of the URLs, with 4 if both ``--enable``
    and ``--disable`` are given, and with 5 if cell0 was to be disabled.

    Examples::

        cellsched-manage --config-file api.conf cell_v2 update_cell \\
            --cell_uuid 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e --disable
        cellsched-manage --config-file api.conf --config-file cell1.conf \\
            cell_v2 update_cell --from-configuration \\
            --cell_uuid 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--cell_uuid', metavar='UUID', required=True,
                            help='the cell')
        parser.add_argument(
            '--from-configuration', action='store_true',
            help='change the URLs that are not given to [DEFAULT] '
                 'transport_url and [database] connection')
        parser.add_argument('--name', metavar='NAME', help='its new name')
        parser.add_argument(
            '--transport-url', metavar='URL',
            help=f'its new broker. {manage_cell.IN_PS}')
        parser.add_argument(
            '--database_connection', metavar='URL',
            help=f'its new database. {manage_cell.IN_PS}')
        parser.add_argument('--disable', action='store_true',
                            help='let it take no new builds')
        parser.add_argument('--enable', action='store_true',
                            help='let it take builds again')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        args = parsed_args
        if args.enable and args.disable:
            self.app.warn('--enable and --disable exclude each other')
            return BOTH
        manage_cell.check_name(args.name)
        values: dict[str, Any] = {}
        if args.name:
            values['name'] = args.name
        own = args.from_configuration
        if args.transport_url or own:
            values['transport_url'] = (
                args.transport_url or manage_cell.own_transport(self.app))
        if args.database_connection or own:
            values['database_connection'] = (
                args.database_connection
                or manage_cell.own_database(self.app))
        if args.enable or args.disable:
            values['disabled'] = args.disable
        if not values:
            raise exception.InvalidField(
                where='options', field='update_cell',
                expected='something to change; see --help')
        try:
            cell = _maintenance(self.app).update(args.cell_uuid, values)
        except exception.CellMappingExists as exc:
            return _report(self.app, exc, DUPLICATE_URLS)
        except exception.Cell0CannotBeDisabled as exc:
            return _report(self.app, exc, CELL0)
        except exception.DatabaseError as exc:
            return _report(self.app, exc, FAILED)
        manage_cell.warn_of_name(self.app, args.name)
        self.app.say(f'Changed {", ".join(sorted(values))} of cell '
                     f'{cell.identity}')
        return 0


class DeleteCell(base.Command):
    """Unmap a cell in which no server lives.

    Its database is left alone. Ends with 1 if there is no such cell, with 2
    if hosts are mapped to it, with 3 if servers live there, and with 4 if
    servers that were deleted are mapped to it still. ``--force`` unmaps hosts
    and deleted servers too; their hosts are found again when the cell is
    mapped again.

    Example::

        cellsched-manage --config-file api.conf cell_v2 delete_cell \\
            --cell_uuid 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--cell_uuid', metavar='UUID', required=True,
                            help='the cell')
        parser.add_argument('--force', action='store_true',
                            help='unmap hosts and deleted servers too')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        args = parsed_args
        try:
            hosts = _maintenance(self.app).delete(args.cell_uuid, args.force)
        except exception.CellInUse as exc:
            self.app.warn(
                f'{exc.format_message().rstrip(".")}; {_HINTS[exc.by]}')
            return IN_USE[exc.by]
        self.app.say(f'Unmapped cell {args.cell_uuid} and {len(hosts)} hosts')
        return 0


class ListMappedHosts(base.Lister):
    """List the hosts that are mapped, by name.

    Example::

        cellsched-manage --config-file api.conf cell_v2 list_hosts -f json
    """

    columns = ('Cell Name', 'Cell UUID', 'Hostname')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--cell_uuid', metavar='UUID',
                            help='those of this cell')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        return self.columns, [
            (cell.get('name') or '', cell.uuid, host) for cell, host in
            _maintenance(self.app).list_hosts(parsed_args.cell_uuid)]


class DeleteHost(base.Command):
    """Unmap a host on which no server is.

    It is found again by ``discover_hosts``, and when its agent starts; so stop
    the agent first. Ends with 1 if there is no such cell, with 2 if the host
    is not mapped, with 3 if it is in another cell, and with 4 if servers are
    on it.

    Example::

        cellsched-manage --config-file api.conf cell_v2 delete_host \\
            --cell_uuid 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e --host host1
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--cell_uuid', metavar='UUID', required=True,
                            help='its cell')
        parser.add_argument('--host', metavar='HOST', required=True,
                            help='the host')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        args = parsed_args
        try:
            _maintenance(self.app).delete_host(args.cell_uuid, args.host)
        except exception.HostMappingNotFound as exc:
            return _report(self.app, exc, NO_HOST)
        except exception.HostMappingExists as exc:
            return _report(self.app, exc, OTHER_CELL)
        except exception.HostInUse as exc:
            return _report(self.app, exc, HAS_SERVERS)
        self.app.say(f'Unmapped host {args.host}')
        return 0


def _maintenance(app: 'App') -> 'maintenance.CellMaintenance':
    manage_cell.check_schema(app)
    return manage_cell.maintenance_of(app)


def _report(
    app: 'App', exc: exception.CellschedException, code: int
) -> int:
    """Report an error; return the exit code."""
    app.report(exc)
    return code
