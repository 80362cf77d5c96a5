# SPDX-License-Identifier: Apache-2.0
"""Every known host at one version of the table, as columns that stay."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from cellsched import exception
from cellsched.hosts import cell_health
from cellsched.hosts import columns as columns_
from cellsched.hosts import dictionary_encoding
from cellsched.hosts.sharing import SharingProvider

Column = npt.NDArray[Any]

#: The least and the greatest value of a column.
Pair = tuple[float, float]


def extrema_of(column: Column) -> Pair:
    """Return the least and the greatest of a column.

    They are infinity and minus infinity of an empty one, and no numbers where
    any value is none.
    """
    if not len(column):
        return math.inf, -math.inf
    return float(np.min(column)), float(np.max(column))


@dataclasses.dataclass(frozen=True, eq=False)
class Snapshot:
    """Hosts in rows, facts in columns; nobody changes them any more.

    Memos in it are made when they are first asked for; two threads that do
    so at once make the same.

    :param version: the number of versions before this one
    :param columns: read-only arrays by name, with one value for each host
    :param encodings: the values of the coded columns
    :param rows: rows by the uuid of the compute node
    :param cells: what was heard of cells
    :param sharing: providers that hosts share, by uuid
    :param places: numbers of child providers that have a column of room, by
        resource class
    :param children: nodes of child providers, with their numbers there
    :param kept: what was made of columns that seldom change; the next
        version has it too if none of them changed
    :param extrema: those of columns that somebody asked for; the next version
        has those of columns that did not change
    """

    version: int
    specs: Mapping[str, columns_.Column]
    columns: Mapping[str, Column]
    encodings: Mapping[str, dictionary_encoding.DictionaryEncoding]
    rows: Mapping[str, int]
    cells: cell_health.Cells
    sharing: Mapping[str, SharingProvider] = dataclasses.field(
        default_factory=dict)
    places: Mapping[str, tuple[int, ...]] = dataclasses.field(
        default_factory=dict)
    children: Mapping[str, tuple[str, int]] = dataclasses.field(
        default_factory=dict)
    kept: dict[Any, Any] = dataclasses.field(default_factory=dict)
    extrema: dict[str, Pair] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def encoding(self, name: str) -> dictionary_encoding.DictionaryEncoding:
        """Return the values of a coded column.

        :raises cellsched.exception.ColumnNotFound: no such column, or it is
            not coded
        """
        encoding = self.encodings.get(name)
        if encoding is None:
            if name in self.columns:
                raise exception.ColumnNotFound(column=name, near=' of codes.')
            raise self.missing(name)
        return encoding

    def missing(self, name: str) -> exception.ColumnNotFound:
        """Return the error of a column that is not there."""
        return exception.ColumnNotFound(column=name, near=columns_.near(
            str(name), (*self.columns, *FACTS)))


#: Columns of facts of the cells, by name.
FACTS = {column.name: column for column in columns_.CELL_FACTS}
