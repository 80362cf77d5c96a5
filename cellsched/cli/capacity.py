# SPDX-License-Identifier: Apache-2.0
"""Room for more servers: ``cellsched capacity``."""

import argparse
import pathlib
from typing import Any
from typing import TYPE_CHECKING

from cellsched.cli import base
from cellsched.cli import chart
from cellsched.cli import host
from cellsched.cli import request_options
from cellsched import exception

if TYPE_CHECKING:
    from cellsched.cli.app import Shell

#: Exit code.
FITS_NOWHERE = 2

#: What the sum over all cells is called.
_ALL = 'all cells'


class ShowCapacity(base.Lister):
    """Show how many more servers of one kind fit, in each cell and in all.

    The enabled filters say which hosts take one, and these are as many as
    there is room for there. What filters would say of the next ones does not
    count, as where only so many may share a host. Each cell is counted as if
    the others took nothing; where hosts of several cells share a provider,
    such as a pool of storage, fewer fit in all than the sum.

    A bar chart is drawn above the table on a terminal, or with ``--chart``.
    ``--plot`` draws one into a file, and needs ``cellsched[plot]``. Ends with
    2 if none fits.

    Examples::

        cellsched capacity --flavor m1.large
        cellsched capacity --vcpus 4 --ram 8192 --plot room.svg
        cellsched capacity --snapshot hosts.json --vcpus 4 --ram 8192 -f csv
    """

    kinds = base.DECISIONS

    app: 'Shell'
    columns = ('Cell', 'Hosts', 'Passing Hosts', 'Servers')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        request_options.add_arguments(parser)
        parser.add_argument('--chart', action='store_true',
                            help='draw a bar chart')
        parser.add_argument('--plot', metavar='FILE', type=pathlib.Path,
                            help='draw one into this file, .png or .svg')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        args = parsed_args
        if args.plot is not None:
            _check_plot(args.plot)
        request = request_options.made(self.app, args)
        snapshot = host.snapshot_of(self.app, args.snapshot)
        found = self.app.deployment.room(snapshot, request)
        cells = found.cells
        names = {each.cell: snapshot.cells.get(each.cell, each.cell)
                 for each in cells}
        cells.sort(key=lambda each: names[each.cell])
        rows = [(names[each.cell], *each[1:]) for each in cells]
        total = (sum(each.hosts for each in cells),
                 sum(each.passing for each in cells), found.servers)
        if not total[-1]:
            self.exit_code = FITS_NOWHERE
            for each in found.rejections:
                self.app.warn(f'{each.hosts} hosts: {each.reason}')
        bars = [chart.Bar(names[each.cell], 'servers', each.servers, total[-1])
                for each in cells]
        if args.chart or (
                args.formatter == 'table' and self.app.stdout.isatty()):
            chart.draw(bars, self.app.stdout)
        if args.plot is not None:
            _plot(bars, args.plot)
        return self.columns, [*rows, (_ALL, *total)]


def _check_plot(path: pathlib.Path) -> None:
    """Make sure that a chart can be drawn, before anything is asked."""
    if path.suffix not in ('.png', '.svg'):
        raise exception.InvalidField(
            where='options', field='--plot',
            expected=f'a file whose name ends in .png or .svg, not '
                     f'{str(path)!a:.80}')
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise exception.InvalidField(
            where='options', field='--plot',
            expected='matplotlib, which cellsched[plot] installs') from None


def _plot(bars: list[chart.Bar], path: pathlib.Path) -> None:
    """Draw a chart into a file."""
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
        raise exception.InvalidField(
            where='options', field='--plot',
            expected=f'a file that can be written: {exc.strerror}') from None
