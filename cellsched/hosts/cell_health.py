# SPDX-License-Identifier: Apache-2.0
"""The health of cells: the time of the last answer, and failures."""

from collections.abc import Mapping
import dataclasses
import math
from typing import NamedTuple
from typing import Protocol

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.float64]

#: A lower failure count is treated as zero.
_TRACE = 0.01


@dataclasses.dataclass
class CellHealth:
    """The health of one cell.

    :param heard_at: time of the last answer, in seconds since the epoch; None
        if answers are not recorded, as in tests
    :param failures: the decayed number of failures at ``failed_at``
    """

    heard_at: float | None = None
    failures: float = 0.0
    failed_at: float = 0.0

    def failures_at(self, now: float, half_life_s: float) -> float:
        """Return the number of failures, decayed to this time."""
        age_s = max(now - self.failed_at, 0.0)
        return self.failures * 0.5 ** (age_s / half_life_s)


class AnswerTimes(NamedTuple):
    """The times of a cell's answers, in seconds since the epoch.

    :param last: the last answer
    :param since: the first answer after the last silence
    """

    last: float
    since: float


class Cells:
    """The health of each cell, by cell uuid.

    :param half_life_s: half-life of the failure count, in seconds
    :param silence_s: a longer interval between two answers, in seconds, is a
        silence
    """

    def __init__(
        self, half_life_s: float = 300.0, silence_s: float = 30.0
    ) -> None:
        self._half_life_s = half_life_s
        self._silence_s = silence_s
        #: The first answer after the last silence, by cell.
        self._since: dict[str, float] = {}
        self._known: dict[str, CellHealth] = {}
        # The cells that had at least one failure.
        self._failed: dict[str, CellHealth] = {}
        self._oldest: float | None = None
        #: The names of the cells that take no new servers, by uuid.
        self.disabled: Mapping[str, str] = {}
        #: The number of changes.
        self.version = 0

    def copy(self) -> 'Cells':
        """Return a copy that does not change."""
        copied = Cells(self._half_life_s)
        copied.version, copied.disabled = self.version, self.disabled
        copied._known = {
            uuid: dataclasses.replace(cell)
            for uuid, cell in dict(self._known).items()}
        copied._failed = {uuid: copied._known[uuid] for uuid in self._failed}
        return copied

    def heard(self, uuid: str, now: float) -> None:
        """Record an answer of a cell."""
        cell = self._cell(uuid)
        if cell.heard_at is None or now - cell.heard_at > self._silence_s:
            self._since[uuid] = now
        cell.heard_at = now
        self._note()

    def failed(self, uuid: str, count: float, now: float) -> None:
        """Record a failure in a cell."""
        cell = self._cell(uuid)
        cell.failures = cell.failures_at(now, self._half_life_s) + count
        cell.failed_at = now
        self._failed[uuid] = cell
        self._note()

    def disable(self, names: Mapping[str, str]) -> None:
        """Set the names of the cells that take no new servers, by uuid."""
        if names != self.disabled:
            self.disabled = dict(names)
            self._note()

    def drop(self, uuid: str) -> None:
        """Remove a cell."""
        self._known.pop(uuid, None)
        self._failed.pop(uuid, None)
        self._since.pop(uuid, None)
        self._note()

    @property
    def oldest(self) -> float:
        """Return the last answer of the cell that is silent longest."""
        if self._oldest is None:
            self._oldest = min(
                (cell.heard_at for cell in self._known.values()
                 if cell.heard_at is not None), default=math.inf)
        return self._oldest

    def silent_s(self, uuid: str, now: float) -> float:
        """Return the seconds since the last answer of a cell."""
        cell = self._known.get(uuid)
        if cell is None or cell.heard_at is None:
            return 0.0
        return max(now - cell.heard_at, 0.0)

    def hearing(self, uuid: str, now: float) -> AnswerTimes:
        """Return the times of a cell's answers; all time if not recorded."""
        cell = self._known.get(uuid)
        if cell is None or cell.heard_at is None:
            return AnswerTimes(now, -math.inf)
        return AnswerTimes(cell.heard_at, self._since[uuid])

    def failures(self, uuid: str, now: float) -> float:
        """Return the decayed number of failures of a cell."""
        cell = self._known.get(uuid)
        return cell.failures_at(now, self._half_life_s) if cell else 0.0

    def any_fails(self, now: float) -> bool:
        """Return whether any cell has a failure count above the threshold."""
        return any(cell.failures_at(now, self._half_life_s) >= _TRACE
                   for cell in self._failed.values())

    @property
    def known(self) -> Mapping[str, CellHealth]:
        """Return the health of each cell; the mapping is read-only."""
        return self._known

    def _note(self) -> None:
        self.version += 1
        self._oldest = None

    def _cell(self, uuid: str) -> CellHealth:
        return self._known.setdefault(uuid, CellHealth())


class Columns(Protocol):
    """Columns by name."""

    def __getitem__(self, name: str, /) -> Column:
        """Return a column."""


def free_shares(columns: Columns, count: int) -> Column:
    """Return the least free share of any resource, for each cell.

    The share is 0 if the total is 0, and negative if the resource is
    overcommitted.

    :param columns: columns of all hosts; ``cell`` has the codes of cells
    :param count: the number of codes
    """
    cells = columns['cell']
    cpus = columns['vcpus_total'] * columns['cpu_allocation_ratio']
    result = np.full(count, np.inf)
    for free, total in (
            (cpus - columns['vcpus_used'], cpus),
            (columns['free_ram_mb'], columns['total_usable_ram_mb']),
            (columns['free_disk_mb'],
             columns['total_usable_disk_gb'] * 1024)):
        totals = np.bincount(cells, total, count)
        share = np.divide(
            np.bincount(cells, free, count), totals,
            out=np.zeros(count), where=totals > 0)
        np.minimum(result, share, out=result)
    return result
