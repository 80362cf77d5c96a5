# SPDX-License-Identifier: Apache-2.0
"""The registry of cells."""

import collections
import math

from cellsched.clock import Clock
from cellsched.db.api import cell_mappings
from cellsched.db import session
from cellsched import exception
from cellsched import objects


#: Characters of a uuid in a name.
_SHOWN = 8


class CellRegistry:
    """Caches the cell mappings and refreshes them periodically.

    If several cells have the same name, the uuid is added to it.

    :param interval_s: seconds after which they are read again
    """

    def __init__(
        self, database: session.Database, clock: Clock,
        interval_s: float,
    ) -> None:
        self._database = database
        self._clock = clock
        self._interval_s = interval_s
        self._lock = clock.lock()
        self._cells: dict[str, objects.CellMapping] = {}
        self._read_at: float | None = None

    def all(self, within_s: float = math.inf) -> list[objects.CellMapping]:
        """Return every cell, including cell0 and disabled cells.

        :param within_s: read the mappings again if they are older than this
            or than the interval
        """
        oldest = self._clock.monotonic() - min(self._interval_s, within_s)
        if self._is_older(oldest):
            self._read(oldest)
        return list(self._cells.values())

    def known(self) -> list[objects.CellMapping]:
        """Return the cells as last read; reads nothing."""
        return list(self._cells.values())

    def real(self, within_s: float = math.inf) -> list[objects.CellMapping]:
        """Return the cells that may have hosts, including disabled ones.

        :param within_s: see :meth:`all`
        """
        return [cell for cell in self.all(within_s) if not cell.is_cell0()]

    def enabled(self) -> list[objects.CellMapping]:
        """Return the cells that accept new builds."""
        return [cell for cell in self.real() if not cell.disabled]

    def get(self, uuid: str) -> objects.CellMapping:
        """Return a cell; the mappings are read again if it is not known.

        :raises cellsched.exception.CellMappingNotFound: no such cell
        """
        self.all()
        if uuid not in self._cells:
            self.refresh()
        try:
            return self._cells[uuid]
        except KeyError:
            raise exception.CellMappingNotFound(uuid=uuid) from None

    def cell0(self) -> objects.CellMapping:
        """Return cell0, the cell of failed builds.

        :raises cellsched.exception.CellMappingNotFound: it is not mapped
        """
        return self.get(objects.CELL0_UUID)

    def refresh(self) -> None:
        """Read the cell mappings now."""
        self._read(self._clock.monotonic())

    def _is_older(self, time: float) -> bool:
        return self._read_at is None or self._read_at <= time

    def _read(self, oldest: float) -> None:
        """Read the mappings, unless another thread did after that time."""
        with self._lock:
            if not self._is_older(oldest):
                return
            read_at = self._clock.monotonic()
            with self._database.reader() as connection:
                cells = cell_mappings.list_all(connection)
            # Nova maps several cells of one name. Sums in reports and metrics
            # are by name, so the names get the beginning of the uuid.
            count = collections.Counter(cell.get('name') for cell in cells)
            for cell in cells:
                if cell.get('name') and count[cell.name] > 1:
                    cell.name = f'{cell.name} ({cell.uuid[:_SHOWN]})'
            self._cells = {cell.uuid: cell for cell in cells}
            self._read_at = read_at
