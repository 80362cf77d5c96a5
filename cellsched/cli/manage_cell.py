# SPDX-License-Identifier: Apache-2.0
"""Cells: ``cellsched-manage cell_v2 …``, as Nova's command of that name."""

import argparse
from collections.abc import Callable
from typing import Any

from cellsched.cli.app import App
from cellsched.cli import base
from cellsched import exception
from cellsched import plugins
from cellsched import urls

#: Exit codes.
NOTHING_NEW = 1
DUPLICATE = 2

#: Exit codes of ``update_cell``; 1 means that the cell does not exist.
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

#: Exit codes of ``map_instances``.
MORE = 1
BAD_COUNT = 127
NO_CELL = 255

#: The largest number of servers of one run of ``map_instances``.
_COUNT_MAX = 2 ** 31 - 1

_HINTS = {
    exception.CellInUse.HOSTS: 'cell_v2 delete_host unmaps one host, and '
                               '--force unmaps all hosts',
    exception.CellInUse.SERVERS: 'delete or move the servers first',
    exception.CellInUse.DELETED: 'db archive_deleted_rows archives deleted '
                                 'servers, and --force unmaps them',
}

_IN_PS = ('A URL on the command line is visible to every user of the machine; '
          'one in a configuration file is not')

_CELL_UUID = base.argument(
    '--cell_uuid', metavar='UUID', required=True, help='uuid of the cell')

_TRANSPORT = base.argument(
    '--transport-url', metavar='URL',
    help='URL of the broker of the cell; by default [DEFAULT] transport_url. '
         f'{_IN_PS}')


class MapCell0(base.Command):
    """Map cell0, which has the servers with failed builds.

    cell0 has a database, and no broker or hosts. Without
    ``--database_connection``, the name of its database is the name in
    ``[database] connection``, or else in ``[api_database] connection``, with
    ``_cell0`` added; in the name of a SQLite file, before the extension. If
    cell0 is mapped, nothing changes. The command does not create the
    database. ``cellsched-manage db sync`` creates the tables.

    Example::

        cellsched-manage --config-file api.conf cell_v2 map_cell0
    """

    arguments = (base.argument(
        '--database_connection', metavar='URL',
        help=f'URL of the database of cell0. {_IN_PS}'),)

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        _setup().map_cell0(self.app, parsed_args.database_connection)


class CreateCell(base.Command):
    """Map a cell: record the URLs of its database and its broker.

    By default these are ``[database] connection`` and ``[DEFAULT]
    transport_url``, so run the command with the configuration file of the
    cell. The database and the broker must answer, unless ``--no-check`` is
    given. Ends with 1 if one does not, or if a URL is missing or invalid, and
    with 2 if another cell has the name or one of the URLs. ``cellsched-manage
    db sync`` creates the tables of the cell.

    Example::

        cellsched-manage --config-file api.conf --config-file cell1.conf \\
            cell_v2 create_cell --name cell1 --verbose
    """

    sends = True
    failure_codes = {exception.CellMappingExists: DUPLICATE}
    arguments = (
        base.argument('--name', metavar='NAME', help='name of the cell'),
        base.argument('--uuid', metavar='UUID',
                      help='uuid of the cell, such as its uuid in Nova; by '
                           'default a new one'),
        base.argument('--database_connection', metavar='URL',
                      help='URL of the database of the cell; by default '
                           f'[database] connection. {_IN_PS}'),
        base.argument('--transport-url', metavar='URL',
                      help='URL of the broker of the cell; by default '
                           '[DEFAULT] transport_url. The same holds for this '
                           'URL'),
        base.flag('--verbose', 'print only the uuid of the new cell'),
        base.flag('--disabled', 'schedule no servers to the cell yet'),
        base.flag('--no-check', 'map the cell although its database or its '
                  'broker does not answer'))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        args, setup = parsed_args, _setup()
        setup.check_name(args.name)
        setup.check_uuid('--uuid', args.uuid)
        transport_url = args.transport_url or _own_transport(self.app)
        database_connection = (
            args.database_connection or _own_database(self.app))
        uuid = setup.create_cell(
            self.app, args.name, transport_url, database_connection,
            args.uuid, args.disabled, check=not args.no_check)
        identity = f'{uuid}({args.name})' if args.name else uuid
        self.app.say(uuid if args.verbose else f'Mapped cell {identity}')


class DiscoverHosts(base.Command):
    """Map the hosts of cells that are not mapped yet.

    By default a scheduler maps a new host as soon as it sees it; this command
    maps hosts at once, and reports them. With ``--strict``, ends with 1 if
    there is no new host. Ends with 2 if a host is mapped to another cell.

    Example::

        cellsched-manage --config-file api.conf cell_v2 discover_hosts \\
            --verbose
    """

    failure_codes = {exception.HostMappingExists: DUPLICATE}
    arguments = (
        base.argument('--cell_uuid', metavar='UUID',
                      help='uuid of the only cell to search'),
        base.flag('--verbose', 'print each step'),
        base.flag('--strict', 'end with 1 if no host was mapped'),
        base.flag('--by-service', 'find hosts by their compute services, not '
                  'by their compute nodes'))

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        args = parsed_args
        _setup().check_schema(self.app)
        show: Callable[[str], None] = (
            self.app.say if args.verbose else lambda line: None)
        found = self.app.parts.discovery.discover(
            args.cell_uuid, show, args.by_service)
        # Where cron runs it every minute, an empty result is not reported.
        if found and not args.verbose:
            self.app.say(f'Mapped {len(found)} hosts')
        return NOTHING_NEW if args.strict and not found else 0


class ListCells(base.Lister):
    """List the cells, by name.

    Passwords in URLs are shown as ``****``. ``--verbose`` is accepted as in
    Nova and changes nothing. The configuration of a cell has its passwords.

    Example::

        cellsched-manage --config-file api.conf cell_v2 list_cells -f json
    """

    columns = ('Name', 'UUID', 'Transport URL', 'Database Connection',
               'Disabled')
    arguments = (base.flag(
        '--verbose', 'accepted for compatibility; passwords stay masked'),)

    def take_action(self, parsed_args: argparse.Namespace) -> base.Rows:
        _setup().check_schema(self.app)
        cells = sorted(self.app.parts.cells.all(),
                       key=lambda cell: (cell.get('name') or '', cell.uuid))
        return self.columns, [
            (cell.get('name') or '', cell.uuid, urls.mask(cell.transport_url),
             urls.mask(cell.database_connection), cell.disabled)
            for cell in cells]


class UpdateCell(base.Command):
    """Change the name or the URLs of a cell, or disable or enable it.

    Fields that are not given do not change. Nova's command takes the URLs that
    are not given from the configuration; this command does so only with
    ``--from-configuration``. So a cell can be renamed with any configuration,
    and a new password does not appear in the list of processes. Schedulers
    use the change from the next request on, other services after at most
    ``[cells] refresh_interval`` seconds.

    Ends with 1 if the cell does not exist, with 2 if it could not be changed,
    with 3 if another cell has the name or one of the URLs, with 4 if both
    ``--enable`` and ``--disable`` are given, and with 5 for ``--disable`` of
    cell0.

    Examples::

        cellsched-manage --config-file api.conf cell_v2 update_cell \\
            --cell_uuid 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e --disable
        cellsched-manage --config-file api.conf --config-file cell1.conf \\
            cell_v2 update_cell --from-configuration \\
            --cell_uuid 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    failure_codes = {
        exception.CellMappingExists: DUPLICATE_URLS,
        exception.Cell0CannotBeDisabled: CELL0,
        exception.DatabaseError: FAILED}
    arguments = (
        _CELL_UUID,
        base.flag('--from-configuration', 'take the URLs that are not given '
                  'from [DEFAULT] transport_url and [database] connection'),
        base.argument('--name', metavar='NAME', help='new name of the cell'),
        base.argument('--transport-url', metavar='URL',
                      help=f'new URL of the broker. {_IN_PS}'),
        base.argument('--database_connection', metavar='URL',
                      help=f'new URL of the database. {_IN_PS}'),
        base.flag('--disable', 'schedule no new servers to the cell'),
        base.flag('--enable', 'schedule new servers to the cell again'))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        args, setup = parsed_args, _setup()
        if args.enable and args.disable:
            raise base.Refused(
                BOTH, '--enable and --disable exclude each other')
        setup.check_name(args.name)
        values = self._values(args)
        if not values:
            raise base.invalid('update_cell', 'nothing to change',
                               'a new value; see --help')
        cell = setup.maintenance(self.app).update(args.cell_uuid, values)
        self.app.say(f'Changed {", ".join(sorted(values))} of cell '
                     f'{cell.identity}')

    def _values(self, args: argparse.Namespace) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if args.name:
            values['name'] = args.name
        if args.transport_url:
            values['transport_url'] = args.transport_url
        elif args.from_configuration:
            values['transport_url'] = _own_transport(self.app)
        if args.database_connection:
            values['database_connection'] = args.database_connection
        elif args.from_configuration:
            values['database_connection'] = _own_database(self.app)
        if args.enable or args.disable:
            values['disabled'] = args.disable
        return values


class DeleteCell(base.Command):
    """Unmap a cell that has no servers, or remove a cell that is lost.

    The database of the cell does not change. Ends with 1 if the cell does not
    exist, with 2 if hosts are mapped to it, with 3 if servers are in it, and
    with 4 if deleted servers are mapped to it. ``--force`` unmaps hosts and
    deleted servers too; the hosts are discovered again if the cell is mapped
    again.

    If the database of the cell does not answer in three attempts, the command
    shows the hosts and the servers of each project that are lost if the cell
    is removed. With ``--force`` it removes them: the servers are gone for
    their users, and their claims and quota are free. Use it only if the
    database is lost for good, and stop the agents and conductors of the cell
    first.

    Examples::

        cellsched-manage --config-file api.conf cell_v2 delete_cell \\
            --cell_uuid 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
        cellsched-manage --config-file api.conf cell_v2 delete_cell \\
            --cell_uuid 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e --force
    """

    kinds = (plugins.CLAIMS,)
    arguments = (
        _CELL_UUID,
        base.flag('--force', 'unmap hosts and deleted servers too; if the '
                  'database does not answer, remove the cell with its '
                  'servers'))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        args = parsed_args
        setup = _setup()
        maintenance = setup.maintenance(self.app)
        try:
            hosts = maintenance.delete(args.cell_uuid, args.force)
        except exception.CellInUse as exc:
            lost = maintenance.find_losses(args.cell_uuid)
            if lost is None:
                raise base.Refused(
                    IN_USE[exc.by], f'{exc.format_message().rstrip(".")}; '
                    f'{_HINTS[exc.by]}') from None
            self._show(lost)
            if not args.force:
                raise base.Refused(
                    IN_USE[exc.by], 'Nothing was removed. If the database is '
                    'lost for good, --force removes the cell and loses these '
                    'servers') from None
            maintenance.delete_lost(lost, setup.claim_release(self.app))
            hosts = lost.hosts
        self.app.say(f'Unmapped cell {args.cell_uuid} and {len(hosts)} hosts')

    def _show(self, lost: Any) -> None:
        servers = sum(lost.servers.values())
        self.app.say(f'Cell {lost.cell.identity} does not answer: '
                     f'{lost.reason}')
        self.app.say(f'It has {len(lost.hosts)} hosts, {servers} servers and '
                     f'{lost.deleted} deleted servers')
        for project, count in lost.servers.items():
            self.app.say(f'  project {project}: {count} servers')


class ListMappedHosts(base.Lister):
    """List the mapped hosts, by name.

    Example::

        cellsched-manage --config-file api.conf cell_v2 list_hosts -f json
    """

    columns = ('Cell Name', 'Cell UUID', 'Hostname')
    arguments = (base.argument('--cell_uuid', metavar='UUID',
                               help='list only hosts of this cell'),)

    def take_action(self, parsed_args: argparse.Namespace) -> base.Rows:
        return self.columns, [
            (cell.get('name') or '', cell.uuid, host) for cell, host in
            _setup().maintenance(self.app).list_hosts(parsed_args.cell_uuid)]


class DeleteHost(base.Command):
    """Unmap a host that has no servers.

    ``discover_hosts`` maps the host again, and so does its agent when it
    starts, so stop the agent first. Ends with 1 if the cell does not exist,
    with 2 if the host is not mapped, with 3 if it is mapped to another cell,
    and with 4 if it has servers.

    Example::

        cellsched-manage --config-file api.conf cell_v2 delete_host \\
            --cell_uuid 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e --host host1
    """

    failure_codes = {
        exception.HostMappingNotFound: NO_HOST,
        exception.HostMappingExists: OTHER_CELL,
        exception.HostInUse: HAS_SERVERS}
    arguments = (
        _CELL_UUID,
        base.argument('--host', metavar='HOST', required=True,
                      help='name of the host'))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        args = parsed_args
        _setup().maintenance(self.app).delete_host(args.cell_uuid, args.host)
        self.app.say(f'Unmapped host {args.host}')


class MapInstances(base.Command):
    """Map the servers of a cell that have no mapping.

    Servers are mapped the oldest first, deleted servers included. Servers
    with a mapping are skipped, so an interrupted run can be repeated.
    ``--reset`` is accepted as in Nova and changes nothing. Ends with 0 if all
    servers are mapped, with 1 if there are more, with 127 if ``--max-count``
    is invalid, and with 255 if the cell does not exist.

    Example::

        cellsched-manage --config-file api.conf cell_v2 map_instances \\
            --cell_uuid 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    failure_code = NO_CELL
    arguments = (
        _CELL_UUID,
        base.argument('--max-count', metavar='COUNT',
                      help='map at most this many servers; by default all'),
        base.flag('--reset', 'accepted for compatibility; each run starts '
                  'from the beginning'))

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        most, text = None, parsed_args.max_count
        if text is not None:
            try:
                most = base.whole(1, _COUNT_MAX)(text)
            except argparse.ArgumentTypeError as exc:
                raise base.Refused(
                    BAD_COUNT, f'--max-count: {exc}') from None
        more = _setup().map_instances(self.app, parsed_args.cell_uuid, most)
        return MORE if more else 0


class VerifyInstance(base.Command):
    """Show whether a server is in the cell that it is mapped to.

    Ends with 0 if it is, with 1 if it is not mapped, with 2 if it has no cell
    yet, with 3 if it is deleted in the cell, and with 4 if the cell does not
    have it.

    Example::

        cellsched-manage --config-file api.conf cell_v2 verify_instance \\
            --uuid 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    arguments = (
        base.argument('--uuid', metavar='UUID', required=True,
                      help='uuid of the server'),
        base.flag('--quiet', 'print nothing; only set the exit code'))

    #: What is printed, by exit code.
    _TEXTS = ('is in the cell that it is mapped to', 'is not mapped',
              'has no cell yet', 'is deleted in its cell',
              'is not in the cell that it is mapped to')

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        code = int(_setup().mapper(self.app).verify(parsed_args.uuid))
        if not parsed_args.quiet:
            self.app.say(f'Instance {parsed_args.uuid} {self._TEXTS[code]}')
        return code


class MapCellAndHosts(base.Command):
    """Map the cell of ``[database] connection``, and its hosts.

    If some of its hosts are mapped, the other hosts are mapped to the same
    cell. Ends with 1 if the transport URL is missing or invalid.

    Example::

        cellsched-manage --config-file api.conf --config-file cell1.conf \\
            cell_v2 map_cell_and_hosts --name cell1 --verbose
    """

    sends = True
    arguments = (
        base.argument('--name', metavar='NAME', help='name of the cell'),
        _TRANSPORT,
        base.flag('--verbose', 'print the uuid of the cell'))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        args, setup = parsed_args, _setup()
        setup.check_name(args.name)
        uuid = setup.map_cell_and_hosts(
            self.app, args.transport_url, args.name)
        if uuid and args.verbose:
            self.app.say(uuid)


class SimpleCellSetup(base.Command):
    """Set up a deployment with one cell, that of ``[database] connection``.

    Does the work of ``map_cell0``, ``db sync`` for cell0,
    ``map_cell_and_hosts`` and ``map_instances``, in this order. Ends with 1 if
    the transport URL is missing, or the cell has no hosts.

    Example::

        cellsched-manage --config-file api.conf --config-file cell1.conf \\
            cell_v2 simple_cell_setup
    """

    sends = True
    arguments = (_TRANSPORT,)

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        setup = _setup()
        setup.map_cell0(self.app)
        setup.sync_cell0(self.app)
        uuid = setup.map_cell_and_hosts(self.app, parsed_args.transport_url)
        if not uuid:
            return 1
        return MORE if setup.map_instances(self.app, uuid) else 0


def _setup() -> Any:
    # The help of all commands imports this module, and would import the
    # database.
    from cellsched.cli import cell_setup

    return cell_setup


def _own_transport(app: App) -> str:
    """Return the configured URL of the broker, and report its use."""
    url = app.parts.transports.own_url()
    app.say('--transport-url was not given; using [DEFAULT] transport_url of '
            'the configuration')
    return url


def _own_database(app: App) -> str:
    """Return the configured URL of the cell database, and report its use."""
    url = app.parts.cell_database.url
    app.say('--database_connection was not given; using [database] connection '
            'of the configuration')
    return url
