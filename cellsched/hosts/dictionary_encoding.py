# SPDX-License-Identifier: Apache-2.0
"""Columns that hold codes of values, so that equal values are kept once.

What has to be decided on a value is decided once for all hosts that share it,
and codes compare as fast as numbers.
"""

from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from cellsched.hosts import aggregate

#: The code of a value that no host has.
NONE = -1


class DictionaryEncoding:
    """The values of one column, by code; the default has code 0.

    Values are only added, so that codes keep their meaning for who reads
    while somebody else encodes.
    """

    def __init__(self, default: Hashable) -> None:
        self.values: list[Any] = [default]
        self._codes: dict[Hashable, int] = {default: 0}
        #: By key how many values there were, and what aggregates said.
        self._numbers: dict[str, tuple[int, npt.NDArray[Any] | None]] = {}

    def code(self, value: Hashable) -> int:
        """Return the code of a value; :data:`NONE` if it has none."""
        return self._codes.get(value, NONE)

    def encode(self, values: Iterable[Hashable]) -> list[int]:
        """Return the codes of values; new values get one."""
        codes = self._codes
        result = []
        for value in values:
            code = codes.get(value)
            if code is None:
                code = codes[value] = len(self.values)
                self.values.append(value)
            result.append(code)
        return result

    def spread(
        self, codes: npt.NDArray[Any], function: Callable[[Any], Any],
        dtype: str,
    ) -> npt.NDArray[Any]:
        """Return what a function says of the value behind each code."""
        if len(self.values) <= len(codes):
            answers = np.fromiter(
                map(function, self.values), dtype, len(self.values))
            return answers.take(codes)
        used, places = np.unique(codes, return_inverse=True)
        answers = np.fromiter(
            (function(self.values[code]) for code in used), dtype, len(used))
        return answers.take(places)

    def numbers(self, key: str) -> npt.NDArray[Any] | None:
        """Return the least number that aggregates say for a key, by code.

        NaN stands for a value without one; None, if there is none at all.
        """
        count = len(self.values)
        known, numbers = self._numbers.get(key, (-1, None))
        if known != count:
            least = np.array([aggregate.least(value, key)
                              for value in self.values[:count]], 'float64')
            numbers = None if np.isnan(least).all() else least
            self._numbers[key] = count, numbers
        return numbers

    def compacted(
        self, codes: npt.NDArray[Any]
    ) -> tuple['DictionaryEncoding', npt.NDArray[Any]]:
        """Return an encoding without values that no host has, and codes."""
        # The default stays, for hosts that are to come.
        used = np.union1d(codes, [0])
        made = DictionaryEncoding(self.values[0])
        made.encode(self.values[code] for code in used)
        return made, np.searchsorted(used, codes).astype(codes.dtype)
