# SPDX-License-Identifier: Apache-2.0
"""Renaming and tagging servers, whatever is being done with them."""

from collections.abc import Callable
from collections.abc import Iterable
import datetime
from typing import Any

from cellsched.cells import target
from cellsched.clock import Clock
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instance_children
from cellsched.db.cell import instances
from cellsched.db import session
from cellsched import exception
from cellsched import objects

#: Times to look again for a server that went from one place to another.
_TRIES_MAX = 5


class Revision:
    """Changes servers where they are.

    As long as there is a build request it is changed, and who is about to
    delete it sees that and writes the change into the cell first. After that
    the row in the cell is. One in cell0 is changed while no request can be
    made out of it.
    """

    def __init__(
        self, database: session.Database, targets: target.Targets,
        clock: Clock,
    ) -> None:
        self._database = database
        self._targets = targets
        self._clock = clock

    def rename(self, uuid: str, name: str) -> None:
        """Give a server another name.

        :raises cellsched.exception.InstanceNotFound: there is none
        """
        def in_request(request: objects.BuildRequest) -> None:
            request.instance.display_name = name

        def in_cell(connection: Any, now: datetime.datetime) -> bool:
            return instances.update(
                connection, uuid, {'display_name': name}, now)

        self._change(uuid, in_request, in_cell)

    def set_tags(self, uuid: str, tags: Iterable[str]) -> None:
        """Give a server these tags in place of those that it has.

        :raises cellsched.exception.InstanceNotFound: there is none
        """
        def in_request(request: objects.BuildRequest) -> None:
            request.tags = objects.TagList.made(uuid, tags)

        def in_cell(connection: Any, now: datetime.datetime) -> bool:
            there = bool(instances.lock(connection, [uuid]))
            if there:
                instance_children.replace_tags(connection, uuid, tags)
            return there

        self._change(uuid, in_request, in_cell)

    def _change(
        self, uuid: str, in_request: Callable[[objects.BuildRequest], None],
        in_cell: Callable[[Any, datetime.datetime], bool],
    ) -> None:
        for _ in range(_TRIES_MAX):
            with self._database.writer() as connection:
                if build_requests.revise(connection, uuid, in_request):
                    return
                mapping = instance_mappings.get_many(
                    connection, [uuid]).get(uuid)
            cell = mapping.cell_mapping if mapping else None
            if cell is None:
                # The request may have gone to be made anew.
                continue
            database = self._targets.database(cell)
            if not cell.is_cell0():
                with database.writer() as connection:
                    changed = in_cell(connection, self._clock.now())
            else:
                with self._database.writer() as connection:
                    changed = self._change_record(
                        connection, uuid, cell, database, in_request, in_cell)
            if changed:
                return
        raise exception.InstanceNotFound(uuid=uuid)

    def _change_record(
        self, connection: Any, uuid: str, cell0: objects.CellMapping,
        database: session.Database,
        in_request: Callable[[objects.BuildRequest], None],
        in_cell: Callable[[Any, datetime.datetime], bool],
    ) -> bool:
        if not instance_mappings.confirm(connection, [uuid], cell0.id):
            return False
        # It may have been made anew since; now it cannot be any more.
        if build_requests.revise(connection, uuid, in_request):
            return True
        with database.writer() as in_cell0:
            return in_cell(in_cell0, self._clock.now())
