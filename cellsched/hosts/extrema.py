# SPDX-License-Identifier: Apache-2.0
"""The least and the greatest of columns, found once while they stay."""

from collections.abc import Collection
from collections.abc import Mapping
import math
from typing import Any

import numpy as np
import numpy.typing as npt

_Column = npt.NDArray[Any]

#: The least and the greatest value of a column.
Pair = tuple[float, float]


class Extrema:
    """Extrema of columns by name; whoever writes a column has to say so."""

    def __init__(self, known: Mapping[str, Pair] | None = None) -> None:
        self._known = dict(known or {})

    def get(self, name: str, column: _Column) -> Pair:
        """Return the extrema of a column; see :func:`of`."""
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = of(column)
        return found

    def forget(self, name: str) -> None:
        """Forget those of a column that changed."""
        self._known.pop(name, None)

    def without(self, names: Collection[str]) -> 'Extrema':
        """Return those of the columns that did not change."""
        return Extrema({name: pair for name, pair in self._known.items()
                        if name not in names})


def of(column: _Column) -> Pair:
    """Return the least and the greatest of a column.

    They are infinity and minus infinity of an empty one, and no numbers where
    any value is none.
    """
    if not len(column):
        return math.inf, -math.inf
    return float(np.min(column)), float(np.max(column))
