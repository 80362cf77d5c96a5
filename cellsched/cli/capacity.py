# SPDX-License-Identifier: Apache-2.0
"""Capacity for more servers: ``cellsched capacity``."""

import argparse
import importlib.util
import pathlib
from typing import Any

from cellsched.cli.app import Shell
from cellsched.cli import base
from cellsched.cli import chart
from cellsched.cli import decision

#: The cell of the last row, which has the sums.
_ALL = 'all cells'


class ShowCapacity(base.Lister):
    """Show how many more servers of one kind fit in each cell.

    The enabled filters select the hosts, and the number of servers that fit on
    each of them is counted. The filters are not asked again for further
    servers, so a filter that limits the servers on a host is ignored. Each
    cell is counted as if the other cells were unused: if hosts of several
    cells share a provider, for example a storage pool, fewer servers fit in
    all cells than the sum.

    On a terminal, or with ``--chart``, a bar chart is drawn above the table.
    ``--plot`` draws a chart to a file, and requires ``cellsched[plot]``. Ends
    with 2 if no server fits.

    Examples::

        cellsched capacity --flavor m1.large
        cellsched capacity --vcpus 4 --ram 8192 --plot room.svg
        cellsched capacity --snapshot hosts.json --vcpus 4 --ram 8192 -f csv
    """

    app: Shell

    kinds = base.DECISIONS
    columns = ('Cell', 'Hosts', 'Passing Hosts', 'Servers')
    arguments = (
        *decision.REQUEST,
        base.flag('--chart', 'draw a bar chart'),
        base.argument('--plot', metavar='FILE', type=pathlib.Path,
                      help='draw a bar chart to this file, .png or .svg'))

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        # The help of all commands imports this module, and would import the
        # scheduler.
        from cellsched.cli import planning

        args = parsed_args
        if args.plot is not None:
            _check_plot(args.plot)
        found, cells = planning.room(self.app, args)
        rows = sorted((cells.get(each.cell, each.cell), *each[1:])
                      for each in found.cells)
        total = (sum(each.hosts for each in found.cells),
                 sum(each.passing for each in found.cells), found.servers)
        if not found.servers:
            self.exit_code = decision.FITS_NOWHERE
            for rejection in found.rejections:
                self.app.warn(f'{rejection.hosts} hosts: {rejection.reason}')
        bars = [chart.Bar(name, 'servers', servers, found.servers)
                for name, _, _, servers in rows]
        if args.chart or (
                args.formatter == 'table' and self.app.stdout.isatty()):
            chart.draw(bars, self.app.stdout)
        if args.plot is not None:
            _plot(bars, args.plot)
        return self.columns, [*rows, (_ALL, *total)]


def _check_plot(path: pathlib.Path) -> None:
    """Make sure that a chart can be drawn, before the hosts are read."""
    if path.suffix not in ('.png', '.svg'):
        raise base.invalid('--plot', f'{str(path)!a:.80} is no chart',
                           'a file name that ends with .png or .svg')
    if importlib.util.find_spec('matplotlib') is None:
        raise base.invalid(
            '--plot', 'matplotlib is not installed',
            'matplotlib, which cellsched[plot] installs')


def _plot(bars: list[chart.Bar], path: pathlib.Path) -> None:
    """Draw a chart to a file."""
    # An optional extra.
    from matplotlib import figure

    drawn = figure.Figure(
        figsize=(8, 1.2 + 0.4 * len(bars)), layout='constrained')
    axes = drawn.subplots()
    shown = axes.barh([bar.label for bar in bars], [bar.used for bar in bars])
    axes.bar_label(shown, padding=3)
    axes.invert_yaxis()
    axes.set_xlabel('servers that fit')
    try:
        drawn.savefig(path)
    except OSError as exc:
        raise base.invalid(
            '--plot', f'{path} cannot be written: {exc.strerror}',
            'a writable file') from None
