# SPDX-License-Identifier: Apache-2.0
"""Bars for the terminal: charts, and the progress of an operation."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import dataclasses
from typing import Any
from typing import TextIO

from cellsched.clock import Clock

#: Characters of a bar of a chart.
_WIDTH = 30

#: Characters of a line of a chart; a terminal breaks a longer line itself.
_LINE_MAX = 1000

#: Seconds between lines where there is no terminal.
_LINES_S = 5.0

#: Units of sizes; each is 1024 of the one before.
_SIZES = ('MB', 'GB', 'TB', 'PB', 'EB')

#: Shows how much is done, and the total if it has changed.
Progress = Callable[..., None]


@contextlib.contextmanager
def progress(
    what: str, total: int, stream: TextIO, clock: Clock | None = None
) -> Iterator[Progress]:
    """Show a bar during an operation; yield a function that updates it.

    If the stream is not a terminal, a line is printed every few seconds.

    :param clock: the clock for these lines; without a clock there are none
    """
    if not stream.isatty():
        yield _lines(what, total, stream, clock)
        return
    bars = _rich().progress
    with bars.Progress(
            bars.TextColumn('{task.description}', markup=False),
            bars.BarColumn(), bars.MofNCompleteColumn(),
            bars.TimeRemainingColumn(),
            console=_rich().console.Console(file=stream), transient=True,
            redirect_stdout=False, redirect_stderr=False) as shown:
        task = shown.add_task(what, total=total or None)
        yield lambda done, of=None: shown.update(
            task, completed=done, total=of)


def _lines(
    what: str, total: int, stream: TextIO, clock: Clock | None
) -> Progress:
    printed_at = clock.monotonic() if clock else 0.0

    def show(done: int, of: int | None = None) -> None:
        nonlocal total, printed_at
        total = total if of is None else of
        now = clock.monotonic() if clock else 0.0
        if now - printed_at >= _LINES_S:
            printed_at = now
            print(f'{what} {done}/{total}', file=stream, flush=True)
    return show


@dataclasses.dataclass(frozen=True)
class Bar:
    """A bar, with a total and a used amount."""

    label: str
    name: str
    used: float
    total: float
    unit: str = ''


def resource_bar(label: str, resource: str, used: float, total: float) -> Bar:
    """Return the bar of a resource, with a size in a large unit.

    :param resource: the class; the name of a size ends with its unit
    """
    unit = resource.rpartition('_')[2]
    if unit not in _SIZES:
        return Bar(label, resource, used, total)
    factor, unit = _rich().filesize.pick_unit_and_suffix(
        int(total), [*_SIZES[_SIZES.index(unit):]], 1024)
    return Bar(label, resource, used / factor, total / factor, unit)


def draw(bars: Iterable[Bar], stream: TextIO) -> None:
    """Draw bars, one on each line."""
    rich = _rich()
    chart = rich.table.Table.grid(padding=(0, 2))
    for justify in 'left', 'left', 'left', 'right', 'right':
        chart.add_column(justify=justify, no_wrap=True)
    last = ''
    for bar in bars:
        share = bar.used / bar.total if bar.total else 0.0
        chart.add_row(
            bar.label if bar.label != last else '', bar.name,
            rich.progress_bar.ProgressBar(
                1, share, _WIDTH, finished_style='bar.complete'),
            f'{share:.0%}',
            f'{_amount(bar.used)} of {_amount(bar.total)} {bar.unit}'.rstrip())
        last = bar.label
    if chart.row_count:
        rich.console.Console(
            file=stream, force_terminal=stream.isatty(), width=_LINE_MAX,
            markup=False, emoji=False, highlight=False).print(chart)


def _rich() -> Any:
    """Return the library."""
    # Commands that draw nothing need not import it: 42 ms of CPU.
    import rich.progress

    return rich


def _amount(number: float) -> str:
    return f'{number:.3g}' if number < 1000 else f'{number:.0f}'
