# SPDX-License-Identifier: Apache-2.0
"""Mapping servers that a cell has and that nobody has mapped.

Servers are mapped when they are accepted. Those of a cell that was run without
an API database, or by Nova before it had cells, are not.
"""

from collections.abc import Callable
import enum

from cellsched.cells import registry
from cellsched.cells import target
from cellsched.clock import Clock
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instances
from cellsched.db import session

#: Servers of one transaction.
BATCH = 500


class MappingVerdict(enum.IntEnum):
    """The state of a server's mapping; its value is Nova's exit code."""

    ALIVE = 0
    NOT_MAPPED = 1
    WITHOUT_CELL = 2
    DELETED = 3
    ARCHIVED = 4


class InstanceMapper:
    """Maps the servers of cells, as often as one likes.

    What is mapped is passed over, so it needs no memory of where it was.
    """

    def __init__(
        self, database: session.Database, cells: registry.CellRegistry,
        targets: target.Targets, clock: Clock,
    ) -> None:
        self._database = database
        self._cells = cells
        self._targets = targets
        self._clock = clock

    def count(self, cell_uuid: str) -> int:
        """Return how many servers a cell has, deleted ones among them.

        :raises cellsched.exception.CellMappingNotFound: there is none
        """
        cell = self._cells.get(cell_uuid)
        with self._targets.database(cell).reader() as connection:
            return instances.count_all(connection)

    def map(
        self, cell_uuid: str, most: int | None = None,
        progress: Callable[[int], None] = lambda looked: None,
    ) -> tuple[int, bool]:
        """Map servers of a cell, the oldest first, deleted ones among them.

        :param most: map no more than these
        :param progress: is told how many servers were looked at
        :returns: how many were mapped, and whether there are more
        :raises cellsched.exception.CellMappingNotFound: there is none
        """
        cell = self._cells.get(cell_uuid)
        there = self._targets.database(cell)
        after = looked = mapped = 0
        while True:
            with there.reader() as connection:
                rows = instances.page_by_id(connection, after, BATCH)
            if not rows:
                return mapped, False
            after = rows[-1]['id']
            with self._database.writer() as connection:
                known = instance_mappings.get_many(
                    connection, [row['uuid'] for row in rows])
                missing = [row for row in rows if row['uuid'] not in known]
                left = len(missing) if most is None else most - mapped
                mapped += instance_mappings.create_missing(
                    connection, missing[:left], cell.id, self._clock.now())
            if len(missing) > left:
                return mapped, True
            looked += len(rows)
            progress(looked)

    def verify(self, uuid: str) -> MappingVerdict:
        """Return the state of a server's mapping."""
        with self._database.reader() as connection:
            mapping = instance_mappings.get_many(connection, [uuid]).get(uuid)
        if mapping is None:
            return MappingVerdict.NOT_MAPPED
        if mapping.cell_mapping is None:
            return MappingVerdict.WITHOUT_CELL
        with self._targets.database(mapping.cell_mapping).reader() as there:
            if instances.get(there, uuid) is not None:
                return MappingVerdict.ALIVE
            if instances.is_deleted(there, uuid):
                return MappingVerdict.DELETED
        return MappingVerdict.ARCHIVED
