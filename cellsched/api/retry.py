# SPDX-License-Identifier: Apache-2.0
"""Building again what was buried."""

from typing import Any

from cellsched.cells import target
from cellsched.clock import Clock
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.api import request_specs
from cellsched.db.cell import instance_children
from cellsched.db.cell import instances
from cellsched.db import session
from cellsched import exception
from cellsched.listing import server
from cellsched import objects


class Retry:
    """Makes build requests anew, out of the records in cell0.

    The record stays until a conductor has taken the request up: one that dies
    before that leaves a request that says so.
    """

    def __init__(
        self, database: session.Database, targets: target.Targets,
        clock: Clock,
    ) -> None:
        self._database = database
        self._targets = targets
        self._clock = clock

    def run(self, uuid: str) -> None:
        """Have a server built again, as the one that it is.

        :raises cellsched.exception.InstanceInvalidState: it is not in cell0
        :raises cellsched.exception.InstanceNotFound: it was deleted
        """
        with self._database.reader() as connection:
            waiting = build_requests.get(connection, uuid) is not None
            mapping = instance_mappings.get_many(connection, [uuid]).get(uuid)
        cell = mapping.cell_mapping if mapping else None
        if mapping is None or mapping.queued_for_delete and not waiting:
            raise exception.InstanceNotFound(uuid=uuid)
        if waiting or cell is None:
            # It has a request, or had one made for it since.
            raise _refused(uuid, 'BUILD')
        database = self._targets.database(cell)
        if not cell.is_cell0():
            with database.reader() as connection:
                instance = instances.get(connection, uuid)
            if instance is None:
                raise exception.InstanceNotFound(uuid=uuid)
            status = server.status_of(instance.vm_state)
            raise _refused(uuid, f'{status} in {server.name_of(cell)}'
                                 ' and not in cell0')
        with self._database.writer() as connection:
            self._accept(connection, uuid, cell, database)

    def _accept(
        self, connection: Any, uuid: str, cell0: objects.CellMapping,
        database: session.Database,
    ) -> None:
        now = self._clock.now()
        if not instance_mappings.reopen(connection, uuid, cell0.id, now):
            # Its user was faster: it is tried again already, or deleted.
            if build_requests.get(connection, uuid) is not None:
                raise _refused(uuid, 'BUILD')
            raise exception.InstanceNotFound(uuid=uuid)
        spec = request_specs.get(connection, uuid)
        if spec is None:
            raise _refused(uuid, 'without a record of what was asked for')
        # Not before the mapping is held: its user may have changed it.
        with database.reader() as in_cell0:
            instance = instances.get(in_cell0, uuid)
            names = instance_children.get_tags(in_cell0, [uuid]).get(uuid, [])
            devices = instance_children.get_block_devices(
                in_cell0, [uuid]).get(uuid)
        if instance is None:
            raise exception.InstanceNotFound(uuid=uuid)
        instance.vm_state, instance.task_state = 'building', 'scheduling'
        instance.flavor = objects.RequestSpec.obj_from_primitive(spec).flavor
        build_requests.create(connection, [objects.BuildRequest(
            instance_uuid=uuid, project_id=instance.project_id or '',
            instance=instance, buried=True,
            tags=objects.TagList.made(uuid, names) if names else None,
            block_device_mappings=objects.BlockDeviceMappingList(
                objects=devices) if devices else None)], now)


def _refused(uuid: str, state: str) -> exception.InstanceInvalidState:
    return exception.InstanceInvalidState(
        uuid=uuid, action='be retried', state=state)
