# SPDX-License-Identifier: Apache-2.0
"""Bar charts for the terminal."""

from collections.abc import Iterable
import dataclasses
from typing import TextIO

_WIDTH = 30

#: Units of sizes; each is 1024 of the one before.
_SIZES = ('MB', 'GB', 'TB', 'PB', 'EB')


@dataclasses.dataclass(frozen=True)
class Bar:
    """A bar, with a total and a used amount."""

    label: str
    name: str
    used: float
    total: float
    unit: str = ''


def resource_bar(
    label: str, resource: str, used: float, total: float
) -> Bar:
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
