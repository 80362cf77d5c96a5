# SPDX-License-Identifier: Apache-2.0
"""The request to a scheduler for a server that moves."""

from typing import Any

from cellsched.conductor.tasks.steps import schedule
from cellsched.db.api import request_specs
from cellsched.db.cell import server_moves
from cellsched.db import session
from cellsched import exception
from cellsched import objects


def read(
    database: session.Database, instance: objects.Instance
) -> objects.RequestSpec:
    """Return what was asked for a server, as it is to be asked again.

    Its image is the one that it has now, and its group has the members that
    it has now.

    :param database: the API database
    :raises cellsched.exception.InstanceMappingNotFound: nothing was asked
    """
    with database.reader() as connection:
        primitive = request_specs.get(connection, instance.uuid)
        if primitive is None:
            raise exception.InstanceMappingNotFound(uuid=instance.uuid)
        spec: objects.RequestSpec = objects.RequestSpec.obj_from_primitive(
            primitive)
        spec.instance_uuid, spec.num_instances = instance.uuid, 1
        with_image(spec, instance.image_ref)
        if spec.get('instance_group') is not None:
            schedule.read_group(connection, spec)
    return spec


def with_image(spec: objects.RequestSpec, image_ref: str | None) -> None:
    """Have a request ask for an image; what is known of it stays."""
    image = spec.get('image')
    if (image.get('id') if image else None) != image_ref:
        spec.image = objects.ImageMeta(id=image_ref) if image_ref else None


def restrict(
    spec: objects.RequestSpec, cell: objects.CellMapping,
    move: server_moves.Migration, host: str | None,
) -> objects.RequestSpec:
    """Return a request for a place in the server's own cell.

    :param host: the only one that will do; by default any other than the one
        that is left
    """
    asked = objects.RequestSpec.obj_from_primitive(spec.obj_to_primitive())
    destination = objects.Destination(
        cell=cell, allow_cross_cell_move=False)
    if move.migration_type == server_moves.REBUILD:
        destination.host = move.source_compute
        destination.node = move.source_node
    elif host is not None:
        destination.host = host
    asked.requested_destination = destination
    asked.ignore_hosts = ([move.source_compute] if move.kind.leaves else None)
    asked.force_hosts = asked.force_nodes = asked.retry = None
    return asked


def saved(spec: objects.RequestSpec) -> dict[str, Any]:
    """Return a request as it is kept: the members of its group are not."""
    primitive: dict[str, Any] = spec.obj_to_primitive()
    group = primitive['nova_object.data'].get('instance_group')
    if group is not None:
        group['nova_object.data']['members'] = []
    return primitive
