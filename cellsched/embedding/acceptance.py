# SPDX-License-Identifier: Apache-2.0
"""Acceptance of servers, whose uuids somebody else chose."""

from collections.abc import Mapping
import datetime
from typing import Any

from cellsched.context import RequestContext
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.api import request_specs
from cellsched.db import session
from cellsched import objects
from cellsched.quota import base as quota

#: Fields of a request that schedulers expect to be there.
_UNSET = ('availability_zone', 'image', 'ignore_hosts', 'force_hosts',
          'force_nodes', 'retry', 'limits', 'instance_group')


def accept(
    database: session.Database, quotas: quota.QuotaDriver,
    context: RequestContext, names: Mapping[str, str],
    spec: objects.RequestSpec, min_count: int = 1,
) -> list[str]:
    """Put servers into the API database; return the uuids of new ones.

    :param names: names of the servers, by their uuids
    :raises cellsched.exception.OverQuota: there is no room for all of them
    """
    project_id = context.project_id or ''
    with database.writer() as connection:
        known = instance_mappings.get_many(connection, names)
        uuids = [uuid for uuid in names if uuid not in known]
        if not uuids:
            return []
        quotas.check(connection, context.project_id, context.user_id,
                     spec.flavor, len(uuids), len(uuids))
        now = database.now()
        build_requests.create(connection, [
            objects.BuildRequest(
                instance_uuid=uuid, project_id=project_id,
                instance=_instance(
                    context, uuid, names[uuid], index, spec, now),
                block_device_mappings=None, tags=None, buried=False)
            for index, uuid in enumerate(uuids)], now, min_count)
        request_specs.create(
            connection, _specs(context, spec, uuids), now)
        instance_mappings.create(
            connection, uuids, project_id, context.user_id, now, spec.flavor)
    return uuids


def _instance(
    context: RequestContext, uuid: str, name: str, index: int,
    spec: objects.RequestSpec, now: datetime.datetime,
) -> objects.Instance:
    flavor, image = spec.flavor, spec.get('image')
    return objects.Instance(
        uuid=uuid, project_id=context.project_id, user_id=context.user_id,
        image_ref=image.get('id') if image else None, display_name=name,
        launch_index=index, vm_state='building', task_state='scheduling',
        power_state=0, vcpus=flavor.vcpus, memory_mb=flavor.memory_mb,
        root_gb=flavor.root_gb, ephemeral_gb=flavor.get('ephemeral_gb', 0),
        instance_type_id=flavor.get('id'), created_at=now, flavor=flavor,
        availability_zone=spec.get('availability_zone'))


def _specs(
    context: RequestContext, spec: objects.RequestSpec,
    uuids: list[str],
) -> list[dict[str, Any]]:
    """Return the primitives of what is asked for each server."""
    primitive = spec.obj_to_primitive()
    return [{**primitive, 'nova_object.data': {
        **dict.fromkeys(_UNSET), 'is_bfv': False, 'scheduler_hints': {},
        **primitive['nova_object.data'], 'project_id': context.project_id,
        'user_id': context.user_id, 'num_instances': len(uuids),
        'instance_uuid': uuid}} for uuid in uuids]
