# SPDX-License-Identifier: Apache-2.0
"""Columns that are made of others, kept while those stay as they are."""

from collections.abc import Callable
from collections.abc import Hashable
from typing import Any

import numpy as np
import numpy.typing as npt

from cellsched.hosts import ends

_Column = npt.NDArray[Any]

#: What a column is called that is the only one.
_ITSELF = ''

#: How many are kept; the one that was not asked for for longest goes first.
KEPT_MAX = 16

#: Changed hosts up to which a column is mended, and not made anew.
MENDED_MAX = 64


class Derived:
    """Columns that are made of others, by what they are called.

    It is told of each host that changes, or to forget all.
    """

    def __init__(self) -> None:
        self._kept: dict[Hashable, _Kept] = {}
        #: What they are called, by what tells them apart while they are kept.
        self._keys: dict[int, Hashable] = {}

    def name(self, column: _Column) -> Hashable:
        """Return what a column is called, or None."""
        return self._keys.get(id(column))

    def ends(self, key: Hashable) -> tuple[float, float]:
        """Return the least and the greatest of a column that is kept."""
        kept = self._kept[key]
        return (kept.ends.least(_ITSELF, kept.read),
                kept.ends.most(_ITSELF, kept.read))

    def get(
        self, key: Hashable, make: Callable[[_Column | None], _Column]
    ) -> _Column:
        """Return a column as it is to be now; it cannot be written.

        It is the same array as long as nothing was forgotten.

        :param make: returns it, or its values in some rows, to be written by
            nobody else any more
        """
        kept = self._kept.get(key)
        if kept is None or len(kept.changed) > MENDED_MAX:
            if kept is not None or len(self._kept) >= KEPT_MAX:
                self._drop(next(iter(self._kept)) if kept is None else key)
            kept = self._kept[key] = _Kept(make(None))
            self._keys[id(kept.read)] = key
        elif kept.changed:
            kept.mend(make)
        # What was asked for last goes last.
        self._kept[key] = self._kept.pop(key)
        return kept.read

    def change(self, row: int) -> None:
        """Hear that something else is so of the host in a row."""
        for kept in self._kept.values():
            kept.changed.add(row)

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()
        self._keys.clear()

    def _drop(self, key: Hashable) -> None:
        del self._keys[id(self._kept.pop(key).read)]


class _Kept:
    """A column, to be written and to be read, and what is wrong in it."""

    def __init__(self, made: _Column) -> None:
        self.written = made if made.flags.owndata else made.copy()
        self.read = self.written.view()
        self.read.flags.writeable = False
        self.changed: set[int] = set()
        self.ends = ends.Ends()

    def mend(self, make: Callable[[_Column], _Column]) -> None:
        """Make the values of all rows anew in which something is wrong."""
        rows = sorted(self.changed)
        values = make(np.array(rows))
        written = self.written
        # One by one, as they are few, and nearly always one.
        for place, row in enumerate(rows):
            before, written[row] = written.item(row), values[place]
            self.ends.change(_ITSELF, before, written.item(row))
        self.changed.clear()
