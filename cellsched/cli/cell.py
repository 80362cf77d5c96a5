# SPDX-License-Identifier: Apache-2.0
"""Cells as they answer: ``cellsched cell list|show``.

``cellsched-manage cell_v2`` changes them.
"""

import argparse
from typing import Any
from typing import TYPE_CHECKING

from cellsched.cli import base

if TYPE_CHECKING:
    from cellsched.cli.app import Shell


class ListCellStates(base.Lister):
    """List the cells, whether they answer, and what they have.

    Example::

        cellsched cell list -f json
    """

    app: 'Shell'
    columns = ('Name', 'UUID', 'Status', 'State', 'Hosts', 'Hosts Up',
               'Servers')

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        found = self.app.api.cells.list(self.app.context())
        for each in found:
            if each.reason:
                self.app.warn(f'warning: cell {each.name} did not answer: '
                              f'{each.reason}')
        return self.columns, [
            (each.name, each.uuid, _status(each.disabled), each.state,
             each.hosts, each.hosts_up, each.servers) for each in found]


class ShowCellState(base.ShowOne):
    """Show a cell, its URLs without their passwords.

    Example::

        cellsched cell show cell1
    """

    app: 'Shell'
    columns = ('name', 'uuid', 'status', 'state', 'reason', 'hosts',
               'hosts_up', 'servers', 'transport_url', 'database_connection')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('cell', metavar='CELL', help='its name or uuid')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        found = self.app.api.cells.get(self.app.context(), parsed_args.cell)
        return self.columns, (
            found.name, found.uuid, _status(found.disabled), found.state,
            found.reason, found.hosts, found.hosts_up, found.servers,
            found.transport_url, found.database_connection)


def _status(disabled: bool) -> str:
    return 'disabled' if disabled else 'enabled'
