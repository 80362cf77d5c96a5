# SPDX-License-Identifier: Apache-2.0
"""The state of cells: ``cellsched cell list|show``.

``cellsched-manage cell_v2`` changes cells.
"""

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cellsched.cli.app import Shell
from cellsched.cli import base

if TYPE_CHECKING:
    from cellsched.api.cells import CellRecord


def _status(cell: 'CellRecord') -> str:
    return base.enabled_or_disabled(cell.disabled)


@base.lister(columns={
    'Name': 'name', 'UUID': 'uuid', 'Status': _status, 'State': 'state',
    'Hosts': 'hosts', 'Hosts Up': 'hosts_up', 'Servers': 'servers'})
def list_cells(app: Shell, args: argparse.Namespace) -> 'Iterable[CellRecord]':
    """List the cells with their state, and their hosts and servers.

    Example::

        cellsched cell list -f json
    """
    found = app.api.cells.list(app.context())
    for each in found:
        if each.reason:
            app.warn(f'warning: cell {each.name} did not answer: '
                     f'{each.reason}')
    return found


@base.show(
    base.argument('cell', metavar='CELL', help='name or uuid of the cell'),
    columns={
        'name': 'name', 'uuid': 'uuid', 'status': _status, 'state': 'state',
        'reason': 'reason', 'hosts': 'hosts', 'hosts_up': 'hosts_up',
        'servers': 'servers', 'transport_url': 'transport_url',
        'database_connection': 'database_connection'})
def show_cell(app: Shell, args: argparse.Namespace) -> 'CellRecord':
    """Show a cell; passwords in its URLs are masked.

    Example::

        cellsched cell show cell1
    """
    return app.api.cells.get(app.context(), args.cell)
