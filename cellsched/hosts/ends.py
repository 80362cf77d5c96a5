# SPDX-License-Identifier: Apache-2.0
"""The least and the greatest of columns, found once while they stay."""

import math
from typing import Any

import numpy.typing as npt


class Ends:
    """What is known of the ends of columns.

    It is told of each value that changes, or to forget all.

    :ivar names: the columns of which it has to be told
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._least: dict[str, float] = {}
        self._most: dict[str, float] = {}

    def least(self, name: str, column: npt.NDArray[Any]) -> float:
        """Return the least of a column; infinity of an empty one."""
        found = self._least.get(name)
        if found is None:
            found = self._least[name] = least(column)
            self.names.add(name)
        return found

    def most(self, name: str, column: npt.NDArray[Any]) -> float:
        """Return the greatest of a column; minus infinity of an empty one."""
        found = self._most.get(name)
        if found is None:
            found = self._most[name] = most(column)
            self.names.add(name)
        return found

    def change(self, name: str, before: float, after: float) -> None:
        """Keep what holds although one value of a column changed."""
        # Where it was at the end, others may be as far, or none.
        if after < before:
            if self._least.get(name, -math.inf) > after:
                self._least[name] = after
            if self._most.get(name) == before:
                del self._most[name]
        elif after > before:
            if self._most.get(name, math.inf) < after:
                self._most[name] = after
            if self._least.get(name) == before:
                del self._least[name]

    def clear(self) -> None:
        """Forget all."""
        if self.names:
            self.names.clear()
            self._least.clear()
            self._most.clear()


def least(column: npt.NDArray[Any]) -> float:
    """Return the least of a column; infinity of an empty one."""
    return float(column.min()) if len(column) else math.inf


def most(column: npt.NDArray[Any]) -> float:
    """Return the greatest of a column; minus infinity of an empty one."""
    return float(column.max()) if len(column) else -math.inf
