# SPDX-License-Identifier: Apache-2.0
"""Bars for the terminal: charts, and the progress of an operation."""

from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import dataclasses
import datetime
from typing import Protocol
from typing import TextIO

from cellsched.clock import Clock

#: Characters of the bar of an operation, and of a bar of a chart.
_LENGTH = 40
_WIDTH = 30

#: Seconds between lines where there is no terminal.
_LINES_S = 5.0

#: Units of sizes; each is 1024 of the one before.
_SIZES = ('MB', 'GB', 'TB', 'PB', 'EB')


class Progress(Protocol):
    """Shows the progress of an operation."""

    def __call__(self, done: int, of: int | None = None, /) -> None:
        """Show how much is done, and the total if it has changed."""


@contextlib.contextmanager
def progress(
    what: str, total: int, stream: TextIO, clock: Clock | None = None,
    estimates: bool = False,
) -> Iterator[Progress]:
    """Show a bar during an operation; yield a function that updates it.

    If the stream is not a terminal, a line is printed every few seconds.

    :param clock: the clock for these lines; without a clock there are none
    :param estimates: whether the bar shows the remaining time, too
    """
    if stream.isatty():
        with _progress_bar(
                what, total, stream, clock if estimates else None) as show:
            yield show
    elif clock is not None:
        yield _lines(what, total, stream, clock)
    else:
        yield lambda done, of=None: None


@contextlib.contextmanager
def _progress_bar(
    what: str, total: int, stream: TextIO, clock: Clock | None
) -> Iterator[Progress]:
    began = clock.monotonic() if clock else 0.0

    def show(done: int, of: int | None = None, /) -> None:
        nonlocal total
        total = total if of is None else of
        filled = _LENGTH * done // max(total, 1)
        estimate = ''
        if clock and 0 < done < total:
            left_s = (clock.monotonic() - began) * (total - done) / done
            # A shorter text does not overwrite the end of a longer one.
            estimate = f', {datetime.timedelta(seconds=round(left_s))} left  '
        stream.write(f'\r{what} [{"#" * filled:<{_LENGTH}}] {done}/{total}'
                     f'{estimate}')
        stream.flush()

    show(0)
    try:
        yield show
    finally:
        # Clear the line for the output that follows.
        stream.write('\r\x1b[K')
        stream.flush()


def _lines(what: str, total: int, stream: TextIO, clock: Clock) -> Progress:
    printed_at = clock.monotonic()

    def show(done: int, of: int | None = None, /) -> None:
        nonlocal total, printed_at
        total = total if of is None else of
        now = clock.monotonic()
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
    rest = _SIZES[_SIZES.index(unit):]
    while total >= 1024 and len(rest) > 1:
        used, total, rest = used / 1024, total / 1024, rest[1:]
    return Bar(label, resource, used, total, rest[0])


def draw(bars: Iterable[Bar], stream: TextIO) -> None:
    """Draw bars, one on each line."""
    bars = list(bars)
    if not bars:
        return
    label = max(len(bar.label) for bar in bars)
    name = max(len(bar.name) for bar in bars)
    full, empty = _blocks(stream)
    last = ''
    for bar in bars:
        share = bar.used / bar.total if bar.total else 0.0
        filled = min(round(share * _WIDTH), _WIDTH)
        shown = bar.label if bar.label != last else ''
        last = bar.label
        print(f'{shown:<{label}}  {bar.name:<{name}}  '
              f'{full * filled}{empty * (_WIDTH - filled)} {share:4.0%}  '
              f'{_amount(bar.used)} of {_amount(bar.total)} '
              f'{bar.unit}'.rstrip(), file=stream)


def _amount(number: float) -> str:
    return f'{number:.3g}' if number < 1000 else f'{number:.0f}'


def _blocks(stream: TextIO) -> tuple[str, str]:
    """Return the characters of bars that the stream can encode."""
    try:
        '█░'.encode(getattr(stream, 'encoding', None) or 'ascii')
    except UnicodeEncodeError:
        return '#', '.'
    return '█', '░'
