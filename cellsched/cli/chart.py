# SPDX-License-Identifier: Apache-2.0
"""Bar charts for the terminal."""

from collections.abc import Iterable
import dataclasses
from typing import TextIO

_WIDTH = 30


@dataclasses.dataclass(frozen=True)
class Bar:
    """A bar: how much of something there is, and how much is used."""

    label: str
    name: str
    used: float
    total: float
    unit: str = ''


def draw(bars: Iterable[Bar], stream: TextIO) -> None:
    """Draw bars below each other."""
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
              f'{bar.used:g} of {bar.total:g} {bar.unit}'.rstrip(),
              file=stream)


def _blocks(stream: TextIO) -> tuple[str, str]:
    """Return what bars are made of, where the stream can show it."""
    try:
        '█░'.encode(getattr(stream, 'encoding', None) or 'ascii')
    except UnicodeEncodeError:
        return '#', '.'
    return '█', '░'
