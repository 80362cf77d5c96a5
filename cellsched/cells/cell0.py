# SPDX-License-Identifier: Apache-2.0
"""The cell of what could not be built."""

from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

from cellsched.cells import registry
from cellsched.cells import target
from cellsched import clock as clock_
from cellsched import context as context_
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instance_actions
from cellsched.db.cell import instance_faults
from cellsched.db.cell import instances as instances_
from cellsched.db import session
from cellsched import objects


class Cell0:
    """Buries builds, with the reason, where their users find them."""

    def __init__(
        self, database: session.Database, cells: registry.CellRegistry,
        targets: target.Targets, clock: clock_.Clock, host: str,
    ) -> None:
        self._database = database
        self._cells = cells
        self._targets = targets
        self._clock = clock
        self._host = host

    def bury(
        self, context: context_.RequestContext,
        instances: Sequence[objects.Instance], reason: Exception,
        owner: str | None = None,
    ) -> set[str]:
        """Bury builds; return the uuids of those that lie here now.

        What has a cell already, or was deleted by its user, is left alone.
        May be done again at any point: the build request goes last.

        :param owner: who leases the requests; one that is leased by another
            since is left to it
        :raises cellsched.exception.CellMappingNotFound: cell0 is not mapped;
            nothing was changed
        """
        cell0 = self._cells.cell0()
        now = self._clock.now()
        with self._database.writer() as connection:
            decided = instance_mappings.decide(
                connection, [instance.uuid for instance in instances],
                cell0.id, now)
        buried = [instance for instance in instances
                  if instance.uuid in decided]
        if not buried:
            return set()
        cell0_database = self._targets.database(cell0)
        with cell0_database.writer() as connection:
            for instance in buried:
                instance.vm_state = 'error'
                instance.task_state = None
                instance.host = instance.node = None
            new = instances_.create(connection, buried, now)
            self._record(connection, context, new, reason)
        with self._database.writer() as connection:
            lying = instance_mappings.confirm(connection, decided, cell0.id)
            build_requests.delete(connection, lying, owner)
            lost = instance_mappings.get_many(connection, decided - lying)
        if lost:
            self._exhume(cell0_database, lost.values())
        return lying

    def _exhume(
        self, database: session.Database,
        mappings: Iterable[objects.InstanceMapping],
    ) -> None:
        """Remove those that are not to lie here after all.

        The user was faster and deleted them, or another conductor took them
        up, when this one had been thought dead, and gave them another cell.
        """
        with database.writer() as connection:
            for mapping in mappings:
                uuid = mapping.instance_uuid
                if mapping.queued_for_delete:
                    instances_.delete(connection, uuid, self._clock.now())
                else:
                    instances_.purge(connection, [uuid])

    def _record(
        self, connection: Any, context: context_.RequestContext,
        uuids: Sequence[str], reason: Exception,
    ) -> None:
        now = self._clock.now()
        for uuid in uuids:
            instance_faults.record(connection, uuid, reason, self._host, now)
        instance_actions.create_all(
            connection, uuids, 'create', context, now, message='Error')
