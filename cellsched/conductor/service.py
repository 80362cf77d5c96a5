# SPDX-License-Identifier: Apache-2.0
"""RPC endpoint of a conductor."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import oslo_messaging

from cellsched.conductor.tasks import build_and_schedule as schedule_task
from cellsched.conductor.tasks import build_instances as instances_task
from cellsched.conductor.tasks import move as move_task
from cellsched.context import RequestContext
from cellsched import objects
from cellsched.rpc import conductor


class SuperConductor:
    """The conductor above the cells, on the API's transport."""

    target = oslo_messaging.Target(
        namespace=conductor.NAMESPACE, version=conductor.VERSION)

    def __init__(self, task: schedule_task.BuildAndSchedule) -> None:
        self._task = task

    def build_and_schedule(
        self, context: RequestContext, instance_uuids: Sequence[str]
    ) -> None:
        """Build the instances that were accepted under these uuids."""
        self._task.run(context, instance_uuids)


class MovingConductor:
    """The conductor above the cells, for existing servers."""

    target = oslo_messaging.Target(
        namespace=conductor.NAMESPACE, version=conductor.VERSION)

    def __init__(self, task: move_task.Move) -> None:
        self._task = task

    def rebuild_instance(
        self, context: RequestContext, instance_uuid: str,
        migration_uuid: str, image_ref: str | None = None,
        host: str | None = None,
    ) -> None:
        """Rebuild a server on its host, or evacuate it."""
        self._task.run(context, instance_uuid, migration_uuid, host, image_ref)

    def migrate_server(
        self, context: RequestContext, instance_uuid: str,
        migration_uuid: str, host: str | None = None,
        rebuild: bool = False,
    ) -> None:
        """Migrate a server to another host of its cell."""
        self._task.run(context, instance_uuid, migration_uuid, host,
                       rebuild=rebuild)

    def unshelve_instance(
        self, context: RequestContext, instance_uuid: str,
        migration_uuid: str,
    ) -> None:
        """Build a shelved server on a host of its cell."""
        self._task.run(context, instance_uuid, migration_uuid)


class CellConductor:
    """The conductor of a cell, on the cell's transport."""

    target = oslo_messaging.Target(
        namespace=conductor.NAMESPACE, version=conductor.VERSION)

    def __init__(self, task: instances_task.BuildInstances) -> None:
        self._task = task

    def build_instances(
        self, context: RequestContext,
        instances: Sequence[objects.Instance],
        filter_properties: Mapping[str, Any],
        request_spec: objects.RequestSpec,
        host_lists: Sequence[Sequence[objects.Selection]],
    ) -> None:
        """Retry failed builds on their next hosts in the cell."""
        self._task.run(
            context, instances, filter_properties, request_spec, host_lists)
