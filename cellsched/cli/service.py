# SPDX-License-Identifier: Apache-2.0
"""Services: ``cellsched service list|set|delete``."""

import argparse
from typing import Any
from typing import TYPE_CHECKING

from cellsched.cli import base
from cellsched import exception
from cellsched import plugins

if TYPE_CHECKING:
    from cellsched.cli.app import Shell


class ListServices(base.Lister):
    """List the services of all cells, by host.

    Of a cell that does not answer the hosts that are mapped are listed, with
    the state UNKNOWN.

    Examples::

        cellsched service list --cell cell1
        cellsched service list --host host1 -f json
    """

    app: 'Shell'
    columns = ('ID', 'Binary', 'Host', 'Cell', 'Status', 'State',
               'Updated At', 'Disabled Reason', 'Forced Down', 'Version')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--binary', metavar='BINARY',
                            help='list such services, as nova-compute')
        parser.add_argument('--host', metavar='HOST',
                            help='list those of this host')
        parser.add_argument('--cell', metavar='CELL',
                            help='list those of this cell, by name or uuid')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        args = parsed_args
        page = self.app.api.services.list(
            self.app.context(), args.binary, args.host, args.cell)
        for cell in page.down_cells:
            self.app.warn(f'warning: cell {cell} did not answer; little is '
                          'known of its services')
        return self.columns, [
            (each.uuid or '', each.binary, each.host, each.cell,
             _status(each.disabled), each.state,
             base.shown(each.updated_at),
             each.disabled_reason or '', each.forced_down, each.version)
            for each in page.services]


class SetService(base.ChangeCommand):
    """Have builds avoid a host, or have it count as down.

    A host that is disabled keeps its servers and gets no others. One whose
    service is forced down counts as down whatever its agent reports, so that
    its servers may be evacuated; see that it does nothing any more.

    Examples::

        cellsched service set --disable --disable-reason "new disks" \\
            host1 nova-compute
        cellsched service set --down host1 nova-compute
    """

    app: 'Shell'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        enabling = parser.add_mutually_exclusive_group()
        enabling.add_argument('--enable', action='store_true',
                              help='let builds come again')
        enabling.add_argument('--disable', action='store_true',
                              help='have builds avoid the host')
        parser.add_argument('--disable-reason', metavar='REASON',
                            help='with --disable, why')
        forcing = parser.add_mutually_exclusive_group()
        forcing.add_argument('--up', action='store_true',
                             help='let it be up if it reports')
        forcing.add_argument('--down', action='store_true',
                             help='have it count as down')
        parser.add_argument('host', metavar='HOST', help='its host')
        parser.add_argument('service', metavar='BINARY',
                            help='what it is: nova-compute')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        args = parsed_args
        disabled = args.disable if args.enable or args.disable else None
        forced = args.down if args.up or args.down else None
        if disabled is None and forced is None:
            raise exception.InvalidField(
                where='options', field='service set',
                expected='--enable or --disable, --up or --down')
        said = {'host': args.host, 'status': _status(disabled) or None,
                'reason': args.disable_reason, 'forced_down': forced}

        def set_one(binary: str) -> dict[str, Any]:
            self.app.api.services.set(
                self.app.context(), args.host, binary, disabled,
                args.disable_reason, forced)
            return {key: value for key, value in said.items()
                    if value is not None}

        _, code = self.change(
            args.format, 'set', 'service', [args.service], set_one)
        return code


class DeleteService(base.ChangeCommand):
    """Delete services of hosts that are gone.

    A service goes with the compute nodes and the mapping of its host. One
    that is up, or whose host has servers, stays. The host is new when its
    agent starts again.

    Example::

        cellsched service delete 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
    """

    kinds = (plugins.CLAIMS,)

    app: 'Shell'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('services', metavar='ID', nargs='+',
                            help='their ids, as service list shows them')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        def delete(uuid: str) -> dict[str, str]:
            gone = self.app.api.services.delete(self.app.context(), uuid)
            return {'binary': gone.binary, 'host': gone.host}

        _, code = self.change(parsed_args.format, 'deleted', 'service',
                              parsed_args.services, delete)
        return code


def _status(disabled: bool | None) -> str:
    if disabled is None:
        return ''
    return 'disabled' if disabled else 'enabled'
