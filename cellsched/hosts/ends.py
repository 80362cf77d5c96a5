# SPDX-License-Identifier: Apache-2.0
"""The least and the greatest of columns, found once while they stay."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

_Column = npt.NDArray[Any]

#: The value at an end of a column, and how many hosts have it, by column.
_Known = dict[str, tuple[float, int]]


class Ends:
    """What is known of the ends of columns.

    It is told of each value that changes, or to forget all. Hosts are often
    alike: when one leaves an end, others are still there.

    :ivar names: the columns of which it has to be told
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._least: _Known = {}
        self._most: _Known = {}

    def least(self, name: str, column: _Column) -> float:
        """Return the least of a column; infinity of an empty one."""
        found = self._least.get(name)
        if found is None:
            found = self._least[name] = _counted(least(column), column)
            self.names.add(name)
        return found[0]

    def most(self, name: str, column: _Column) -> float:
        """Return the greatest of a column; minus infinity of an empty one."""
        found = self._most.get(name)
        if found is None:
            found = self._most[name] = _counted(most(column), column)
            self.names.add(name)
        return found[0]

    def change(self, name: str, before: float, after: float) -> None:
        """Keep what holds although one value of a column changed."""
        before, after = float(before), float(after)
        known = self._least.get(name)
        if known is not None:
            _change(self._least, name, before, after, after < known[0])
        known = self._most.get(name)
        if known is not None:
            _change(self._most, name, before, after, after > known[0])

    def clear(self) -> None:
        """Forget all."""
        if self.names:
            self.names.clear()
            self._least.clear()
            self._most.clear()


def least(column: _Column) -> float:
    """Return the least of a column; infinity of an empty one."""
    return float(column.min()) if len(column) else math.inf


def most(column: _Column) -> float:
    """Return the greatest of a column; minus infinity of an empty one."""
    return float(column.max()) if len(column) else -math.inf


def _counted(end: float, column: _Column) -> tuple[float, int]:
    return end, int(np.count_nonzero(column == end))


def _change(
    known: _Known, name: str, before: float, after: float, beyond: bool
) -> None:
    """Keep what holds of an end, if anything.

    :param beyond: whether what changed is beyond the end now
    """
    end, count = known[name]
    if beyond:
        known[name] = after, 1
        return
    count += (after == end) - (before == end)
    if count > 0:
        known[name] = end, count
    else:
        # It was the last one there, or the end is no number.
        del known[name]
