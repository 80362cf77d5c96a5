# SPDX-License-Identifier: Apache-2.0
"""Records of servers that are accepted."""

from collections.abc import Callable
from collections.abc import Sequence
import datetime
from typing import Any

from cellsched.api import block_devices
from cellsched.api import validation
from cellsched import context as context_
from cellsched.db.api import build_requests
from cellsched.db.api import instance_groups
from cellsched.db.api import instance_mappings
from cellsched.db.api import request_rows
from cellsched.db.api import request_specs
from cellsched import objects


def accept(
    connection: Any, context: context_.RequestContext,
    request: validation.ServerRequest, flavor: objects.Flavor,
    group: objects.InstanceGroup | None, now: datetime.datetime,
    new_uuid: Callable[[], str],
) -> list[str]:
    """Put the servers of a request into the API database; return their uuids.

    What they share is made once, and checked once.

    :param request: whose ``max_count`` says how many
    :param group: the group to join, without its members
    """
    project_id = context.project_id or ''
    reservation_id = f'r-{new_uuid()}'
    uuids = [new_uuid() for _ in range(request.max_count)]
    instance = _instance(
        context, request, flavor, uuids[0], reservation_id, now)
    spec = _spec(context, request, flavor, group, uuids)
    build_requests.create_all(connection, [
        request_rows.Wanted(
            uuid, project_id,
            _with(instance, uuid=uuid, launch_index=index,
                  display_name=_name(request, index)),
            _tags(request, uuid), _devices(request, uuid, new_uuid))
        for index, uuid in enumerate(uuids)], now, request.min_count)
    request_specs.create(
        connection, [_with(spec, instance_uuid=uuid) for uuid in uuids], now)
    # To the second, as objects tell when a server was created: listings
    # compare the two.
    instance_mappings.create(
        connection, uuids, project_id, context.user_id,
        now.replace(microsecond=0), flavor)
    if group is not None:
        instance_groups.add_members(connection, group.id, uuids, now)
    return uuids


def _instance(
    context: context_.RequestContext, request: validation.ServerRequest,
    flavor: objects.Flavor, uuid: str, reservation_id: str,
    now: datetime.datetime,
) -> dict[str, Any]:
    """Return the primitive of the first server."""
    return objects.Instance(
        uuid=uuid, project_id=context.project_id, user_id=context.user_id,
        image_ref=request.image_ref, display_name=_name(request, 0),
        launch_index=0, vm_state='building', task_state='scheduling',
        power_state=0, vcpus=flavor.vcpus, memory_mb=flavor.memory_mb,
        root_gb=flavor.root_gb, ephemeral_gb=flavor.ephemeral_gb,
        instance_type_id=flavor.id, reservation_id=reservation_id,
        created_at=now, flavor=flavor,
        availability_zone=request.availability_zone).obj_to_primitive()


def _spec(
    context: context_.RequestContext, request: validation.ServerRequest,
    flavor: objects.Flavor, group: objects.InstanceGroup | None,
    uuids: Sequence[str],
) -> dict[str, Any]:
    """Return the primitive of what is asked for the first server."""
    return objects.RequestSpec(
        project_id=context.project_id, user_id=context.user_id,
        availability_zone=request.availability_zone, flavor=flavor,
        image=(objects.ImageMeta(id=request.image_ref)
               if request.image_ref else None),
        num_instances=len(uuids), instance_uuid=uuids[0],
        ignore_hosts=None, force_hosts=None, force_nodes=None, retry=None,
        limits=None, instance_group=group, is_bfv=False,
        scheduler_hints={name: list(values)
                         for name, values in request.hints.items()},
    ).obj_to_primitive()


def _with(primitive: dict[str, Any], **values: Any) -> dict[str, Any]:
    """Return the primitive of an object that differs in these values."""
    return {**primitive, 'nova_object.data': {
        **primitive['nova_object.data'], **values}}


def _name(request: validation.ServerRequest, index: int) -> str:
    return (f'{request.name}-{index + 1}' if request.max_count > 1
            else request.name)


def _tags(
    request: validation.ServerRequest, uuid: str
) -> dict[str, Any] | None:
    names = dict.fromkeys(request.tags)
    if not names:
        return None
    return objects.TagList.made(uuid, names).obj_to_primitive()


def _devices(
    request: validation.ServerRequest, uuid: str, new_uuid: Callable[[], str]
) -> dict[str, Any] | None:
    made = block_devices.made(request.block_device_mappings, uuid, new_uuid)
    return None if made is None else made.obj_to_primitive()
