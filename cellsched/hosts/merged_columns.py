# SPDX-License-Identifier: Apache-2.0
"""A snapshot's columns with the rows of an overlay put in."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
from typing import Any

import numpy as np

from cellsched.hosts import columns as columns_
from cellsched.hosts import extrema as extrema_
from cellsched.hosts import snapshot as snapshot_

#: By how much columns of one host change: (column, amount).
Changes = tuple[tuple[str, int], ...]

#: What a resource class takes from columns with Nova's names:
#: (column, the amount's factor). Memory is in MB, disk in GB.
_TAKES = {
    'VCPU': (('vcpus_used', 1),),
    'MEMORY_MB': (('free_ram_mb', -1),),
    'DISK_GB': (('free_disk_mb', -1024), ('disk_mb_used', 1024)),
}

#: What counts the builds that a host works on.
BUILDS = 'num_io_ops'


class MergedColumns:
    """The columns that one decision at a time reads.

    A column that the overlay changes is a copy of the snapshot's; the others
    are the snapshot's own. To follow the table costs what changed there since
    it was done last, and all copies anew after another snapshot.
    """

    def __init__(self, snapshot: snapshot_.Snapshot) -> None:
        self._begin(snapshot)

    def _begin(self, snapshot: snapshot_.Snapshot) -> None:
        self.snapshot = snapshot
        #: How much of the overlay is in the columns.
        self.position = 0
        #: How many changes were in overlays, up to those in the columns.
        self.seen = 0
        #: How often something was taken or given back.
        self.takings = 0
        #: What was made of the columns, until any of them changes.
        self.current: dict[Any, Any] = {}
        #: What the decision took: rows and resources.
        self.taken: list[tuple[int, Mapping[str, int]]] = []
        self._copies: dict[str, snapshot_.Column] = {}
        self._shown: dict[str, snapshot_.Column] = {}
        self._extrema = extrema_.Extrema()

    def __len__(self) -> int:
        return len(self.snapshot)

    def __contains__(self, name: str) -> bool:
        return name in self.snapshot.columns or name in self._copies

    def __getitem__(self, name: str) -> snapshot_.Column:
        """Return a column by name, which cannot be written.

        :raises cellsched.exception.ColumnNotFound: a ``KeyError`` that names
            the nearest
        """
        column = self._shown.get(name)
        if column is None:
            column = self.snapshot.columns.get(name)
            if column is None:
                raise self.snapshot.missing(name)
        return column

    @property
    def names(self) -> list[str]:
        """The names of all columns."""
        return list({**self.snapshot.columns, **self._copies})

    def extrema(self, name: str) -> extrema_.Pair:
        """Return the least and the greatest number of a column."""
        known = (self._extrema if name in self._copies
                 else self.snapshot.extrema)
        return known.get(name, self[name])

    def follow(
        self, snapshot: snapshot_.Snapshot,
        overlay: Sequence[tuple[int, Changes]], earlier: int,
    ) -> None:
        """Read this snapshot, and what was chosen on it since.

        :param overlay: rows of the snapshot and how they change, to which
            more are added and none is taken away
        :param earlier: how many changes were in overlays before those
        """
        if snapshot is not self.snapshot:
            self._begin(snapshot)
        end = len(overlay)
        if self.position < end:
            for row, changed in overlay[self.position:end]:
                self._add(row, changed)
            self.position = end
        self.seen = earlier + end

    def take(self, row: int, resources: Mapping[str, int]) -> None:
        """Count one more instance on a host, for this decision only."""
        self.taken.append((row, resources))
        self._add(row, changes(tuple(resources.items())))

    def give_back(self) -> None:
        """Take back all that the decision took."""
        for row, resources in self.taken:
            self._add(row, changes(tuple(resources.items())), -1)
        self.taken = []

    def _add(self, row: int, changed: Changes, times: int = 1) -> None:
        self.takings += 1
        self.current.clear()
        for name, amount in changed:
            column = self._copies.get(name)
            if column is None:
                column = self._copy(name)
            column[row] += times * amount
            self._extrema.forget(name)

    def _copy(self, name: str) -> snapshot_.Column:
        column = self.snapshot.columns.get(name)
        copy = np.zeros(len(self)) if column is None else column.copy()
        self._copies[name] = copy
        shown = self._shown[name] = copy[:]
        shown.flags.writeable = False
        return copy


# Flavors are few.
@functools.lru_cache(1024)
def changes(resources: tuple[tuple[str, int], ...]) -> Changes:
    """Return what an instance changes in the columns of its host."""
    return (*((columns_.ROOM + resource, -amount)
              for resource, amount in resources),
            *((name, factor * amount) for resource, amount in resources
              for name, factor in _TAKES.get(resource, ())),
            ('num_instances', 1), (BUILDS, 1))


def inverse(changed: Iterable[tuple[str, int]]) -> Changes:
    """Return what undoes changes."""
    return tuple((name, -amount) for name, amount in changed)
