# SPDX-License-Identifier: Apache-2.0
"""Mapping servers: ``cellsched-manage cell_v2 map_instances``, and setups."""

import argparse
from typing import TYPE_CHECKING

from cellsched.cli import base
from cellsched.cli import manage_cell
from cellsched.cli import progress
from cellsched import exception

if TYPE_CHECKING:
    from cellsched.cells import instance_mapper
    from cellsched.cli.app import App

#: Exit codes of ``map_instances``.
MORE = 1
BAD_COUNT = 127
FAILED = 255

#: Servers of one run.
_MOST = 2 ** 31 - 1


class MapInstances(base.Command):
    """Map the servers of a cell that nobody has mapped.

    They are mapped the oldest first, and deleted ones among them. What is
    mapped is passed over, so an interrupted run goes on where it was;
    ``--reset`` is taken as Nova's command takes it, and has nothing to reset.
    Ends with 0 when all are mapped, with 1 if there are more, with 127 if
    ``--max-count`` is no count, and with 255 if there is no such cell.

    Example::

        cellsched-manage --config-file api.conf cell_v2 map_instances \\
            --cell_uuid 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    failure_code = FAILED

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--cell_uuid', metavar='UUID', required=True,
                            help='the cell')
        parser.add_argument('--max-count', metavar='COUNT',
                            help='map no more than these; by default all')
        parser.add_argument('--reset', action='store_true',
                            help='changes nothing: each run begins anew')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        most = None
        if parsed_args.max_count is not None:
            text = parsed_args.max_count
            if not (text.isascii() and text.isdigit()
                    and 1 <= int(text) <= _MOST):
                self.app.warn(f'--max-count: expected a whole number from 1 '
                              f'to {_MOST}, not {text!a:.60}')
                return BAD_COUNT
            most = int(text)
        return _map_instances(self.app, parsed_args.cell_uuid, most)


class VerifyInstance(base.Command):
    """Say whether a server is mapped to the cell that it is in.

    Ends with 0 if it is, with 1 if it is not mapped, with 2 if it has no cell
    yet, with 3 if it is deleted there, and with 4 if its cell does not have it
    at all.

    Example::

        cellsched-manage --config-file api.conf cell_v2 verify_instance \\
            --uuid 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--uuid', metavar='UUID', required=True,
                            help='the server')
        parser.add_argument('--quiet', action='store_true',
                            help='say nothing; the exit code does')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        verdict = _mapper(self.app).verify(parsed_args.uuid)
        if not parsed_args.quiet:
            from cellsched.cells.instance_mapper import MappingVerdict

            texts = {
                MappingVerdict.ALIVE: 'is in the cell that it is mapped to',
                MappingVerdict.NOT_MAPPED: 'is not mapped',
                MappingVerdict.WITHOUT_CELL: 'has no cell yet',
                MappingVerdict.DELETED: 'is deleted in its cell',
                MappingVerdict.ARCHIVED:
                    'is not in the cell that it is mapped to'}
            self.app.say(f'Instance {parsed_args.uuid} {texts[verdict]}')
        return int(verdict)


class MapCellAndHosts(base.Command):
    """Map the cell of ``[database] connection``, and its hosts.

    Where some of its hosts are mapped already, the others are mapped to the
    same cell. Ends with 1 if there is no transport URL, or one that is none.

    Example::

        cellsched-manage --config-file api.conf --config-file cell1.conf \\
            cell_v2 map_cell_and_hosts --name cell1 --verbose
    """

    sends = True

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--name', metavar='NAME', help='its name')
        _add_transport(parser)
        parser.add_argument('--verbose', action='store_true',
                            help='print the uuid of the cell')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        args = parsed_args
        manage_cell.check_name(args.name)
        uuid = _map_cell_and_hosts(self.app, args.transport_url, args.name)
        if uuid and args.verbose:
            self.app.say(uuid)
        return 0


class SimpleCellSetup(base.Command):
    """Map cell0, and the cell of ``[database] connection`` with all it has.

    That is a deployment with one cell: what ``map_cell0``, ``db sync`` of
    cell0, ``map_cell_and_hosts`` and ``map_instances`` do, one after the
    other. Ends with 1 if there is no transport URL, or no host.

    Example::

        cellsched-manage --config-file api.conf --config-file cell1.conf \\
            cell_v2 simple_cell_setup
    """

    sends = True

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_transport(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        manage_cell.map_cell0(self.app)
        from cellsched.db import cell

        parts = self.app.parts
        cell.SCHEMA.sync(parts.targets.database(parts.cells.cell0()))
        uuid = _map_cell_and_hosts(self.app, parsed_args.transport_url)
        if not uuid:
            return 1
        return _map_instances(self.app, uuid)


def _add_transport(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--transport-url', metavar='URL',
        help='its broker; by default [DEFAULT] transport_url. '
             f'{manage_cell.IN_PS}')


def _map_cell_and_hosts(
    app: 'App', transport_url: str | None, name: str | None = None
) -> str | None:
    """Map the configured cell and its hosts; return its uuid, if it has any.

    :raises cellsched.exception.CellMappingExists: a cell has one of its URLs
    """
    manage_cell.check_schema(app)
    parts = app.parts
    transport_url = transport_url or parts.transports.own_url()
    parts.transports.get(transport_url)
    from cellsched.db.cell import services

    with parts.cell_database.reader() as connection:
        hosts = services.list_hosts(connection, services.COMPUTE)
    if not hosts:
        app.say('No hosts found to map to cell, exiting.')
        return None
    owners = parts.discovery.owners(hosts)
    cells = {cell.uuid: cell for cell in owners.values()}
    if len(cells) > 1:
        raise exception.InvalidField(
            where='[database] connection', field='hosts',
            expected='to be mapped to one cell, not to ' + ' and '.join(
                sorted(cell.identity for cell in cells.values())))
    if len(owners) == len(hosts):
        app.say('All hosts are already mapped to cell(s).')
    uuid = next(iter(cells), None) or manage_cell.create_cell(
        app, name, transport_url, parts.cell_database.url)
    parts.cells.refresh()
    for host in hosts:
        parts.discovery.map_host(parts.cells.get(uuid), host)
    return uuid


def _mapper(app: 'App') -> 'instance_mapper.InstanceMapper':
    manage_cell.check_schema(app)
    from cellsched.cells import instance_mapper

    parts = app.parts
    return instance_mapper.InstanceMapper(
        parts.database, parts.cells, parts.targets, parts.clock)


def _map_instances(
    app: 'App', uuid: str, most: int | None = None
) -> int:
    mapper = _mapper(app)
    with progress.bar('mapping', mapper.count(uuid), app.stderr) as show:
        mapped, more = mapper.map(uuid, most, show)
    app.say(f'Mapped {mapped} instances' + (
        '; there are more' if more else ''))
    return MORE if more else 0
