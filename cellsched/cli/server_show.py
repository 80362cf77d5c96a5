# SPDX-License-Identifier: Apache-2.0
"""A server with all that is known of it: ``cellsched server show``."""

import argparse
from typing import Any
from typing import TYPE_CHECKING

from cliff import columns

from cellsched.cli import base

if TYPE_CHECKING:
    from cellsched.api import server_details
    from cellsched.api import server_history
    from cellsched.cli.app import Shell
    from cellsched import objects


class _Flavor(columns.FormattableColumn[dict[str, Any]]):

    def human_readable(self) -> str:
        flavor = self.machine_readable()
        if not flavor:
            return ''
        return (f"{flavor['name']}: {flavor['vcpus']} VCPUs, {flavor['ram']} "
                f"MB, {flavor['disk']} GB")


class _Named(columns.FormattableColumn[dict[str, str]]):

    def human_readable(self) -> str:
        named = self.machine_readable()
        name, of = named.get('name'), named.get('id', '')
        return f'{name} ({of})' if name else of


class _Faults(columns.FormattableColumn[list[dict[str, Any]]]):

    def human_readable(self) -> str:
        return '\n'.join(f"{each['created']} {each['message']}"
                         for each in self.machine_readable())


class _Moves(columns.FormattableColumn[list[dict[str, Any]]]):

    def human_readable(self) -> str:
        return '\n'.join(
            f"{each['created']} {each['kind']} {each['source']} -> "
            f"{each['dest']}: {each['status']}"
            for each in self.machine_readable())


class ShowServer(base.ShowOne):
    """Show a server with all that is known of it.

    That is its flavor, image and group, what went wrong with it, and where it
    was moved; where it is in ERROR, the reason. Of one whose cell does not
    answer it is what was asked for, and its status is UNKNOWN.

    Example::

        cellsched server show 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    app: 'Shell'
    columns = ('id', 'name', 'status', 'task_state', 'cell', 'host',
               'availability_zone', 'flavor', 'image', 'server_group',
               'attempts', 'reason', 'project_id', 'user_id', 'created',
               'updated', 'tags', 'faults', 'migrations')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('server', metavar='ID', help='its id')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        details = self.app.api.details.get(
            self.app.context(), parsed_args.server)
        found, group = details.server, details.group
        return self.columns, (
            found.uuid, found.name, found.status, found.task_state,
            found.cell, found.host, found.availability_zone,
            _Flavor(_flavor(details.flavor)), _Named(dict(details.image)),
            _Named({} if group is None else {
                'id': group.uuid, 'name': group.name}),
            found.attempts, found.reason, found.project_id, found.user_id,
            base.shown(found.created_at), base.shown(found.updated_at),
            list(found.tags), _Faults([_fault(each)
                                       for each in details.faults]),
            _Moves([_move(each) for each in details.moves]))


def _flavor(flavor: 'objects.Flavor | None') -> dict[str, Any]:
    if flavor is None:
        return {}
    return {'name': flavor.get('name'), 'vcpus': flavor.get('vcpus'),
            'ram': flavor.get('memory_mb'), 'disk': flavor.get('root_gb'),
            'ephemeral': flavor.get('ephemeral_gb'),
            'swap': flavor.get('swap'),
            'extra_specs': dict(flavor.get('extra_specs') or {})}


def _fault(fault: 'server_details.FaultRecord') -> dict[str, Any]:
    return {'code': fault.code, 'message': fault.message,
            'details': fault.details, 'host': fault.host,
            'created': base.shown(fault.created_at)}


def _move(move: 'server_history.MigrationRecord') -> dict[str, Any]:
    return {'id': move.uuid, 'kind': move.kind, 'status': move.status,
            'source': move.source, 'dest': move.dest, 'reason': move.reason,
            'created': base.shown(move.created_at),
            'updated': base.shown(move.updated_at)}
