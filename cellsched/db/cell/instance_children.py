# SPDX-License-Identifier: Apache-2.0
"""Child rows of instances: tags, devices, image properties, hardware."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import datetime
from typing import Any

from oslo_serialization import jsonutils
import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.db import statements
from cellsched import objects


def add(
    connection: sa.Connection, requests: Iterable[objects.BuildRequest],
    now: datetime.datetime,
) -> None:
    """Add the tags and block devices of new rows, from their requests."""
    requests = list(requests)
    create_tags(connection, {
        request.instance_uuid: request.tag_names for request in requests})
    create_block_devices(connection, [
        device for request in requests
        for device in request.get('block_device_mappings') or ()], now)


def replace_tags(
    connection: sa.Connection, uuid: str, names: Iterable[str]
) -> None:
    """Replace the tags of a server."""
    delete_tags(connection, [uuid])
    create_tags(connection, {uuid: names})


_TAGS = models.tags

_TAGS_OF = sa.select(_TAGS.c.resource_id, _TAGS.c.tag).where(
    statements.in_list(_TAGS.c.resource_id)).order_by(_TAGS.c.tag)


def create_tags(
    connection: sa.Connection, tags: Mapping[str, Iterable[str]]
) -> None:
    """Add tags, by server uuid, for servers without tags.

    A repeated tag is added once, so that it fails no build.
    """
    statements.insert_missing(connection, _TAGS.c.tag, [
        {'resource_id': uuid, 'tag': tag}
        for uuid, names in tags.items() for tag in names])


def get_tags(
    connection: sa.Connection, uuids: Iterable[str]
) -> dict[str, list[str]]:
    """Return the sorted tags of servers, without untagged servers."""
    return statements.read_groups(connection, _TAGS_OF, uuids)


def delete_tags(connection: sa.Connection, uuids: Iterable[str]) -> None:
    """Remove every tag of servers."""
    statements.write(connection, sa.delete(_TAGS).where(
        statements.in_list(_TAGS.c.resource_id)), uuids)


_DEVICES = models.block_device_mapping

#: The object's fields that are columns.
_DEVICE_FIELDS = tuple(name for name in objects.BlockDeviceMapping.fields
                       if name in _DEVICES.c and name != 'id')

_DEVICES_OF = sa.select(_DEVICES).where(
    statements.in_list(_DEVICES.c.instance_uuid), _DEVICES.c.deleted == 0
).order_by(_DEVICES.c.id)


def create_block_devices(
    connection: sa.Connection,
    devices: Iterable[objects.BlockDeviceMapping], now: datetime.datetime,
) -> None:
    """Add block devices, each of which names its server."""
    rows = [
        {'created_at': now, 'deleted': 0,
         **{name: device.get(name) for name in _DEVICE_FIELDS},
         'delete_on_termination': device.get('delete_on_termination', False)}
        for device in devices]
    statements.insert_all(connection, _DEVICES, rows)


def get_block_devices(
    connection: sa.Connection, uuids: Iterable[str]
) -> dict[str, list[objects.BlockDeviceMapping]]:
    """Return the block devices of servers, without servers that have none."""
    found: dict[str, list[objects.BlockDeviceMapping]] = {}
    for row in statements.read(connection, _DEVICES_OF, uuids):
        found.setdefault(row.instance_uuid, []).append(_from_row(row))
    return found


def mark_block_devices_deleted(
    connection: sa.Connection, uuids: Iterable[str], now: datetime.datetime
) -> None:
    """Mark all block devices of servers as deleted."""
    statements.write(connection, sa.update(_DEVICES).where(
        statements.in_list(_DEVICES.c.instance_uuid), _DEVICES.c.deleted == 0,
    ).values(deleted=_DEVICES.c.id, deleted_at=now), uuids)


def _from_row(row: sa.Row[Any]) -> objects.BlockDeviceMapping:
    return objects.BlockDeviceMapping(
        id=row.id, **{name: getattr(row, name) for name in _DEVICE_FIELDS})


_PROPERTIES = models.instance_system_metadata
_SERVERS = models.instances

_PREFIX = 'image_'

#: Keys with this prefix in Nova's table that are no image property.
_PROPERTY_KEYS = frozenset(_PREFIX + name for name in (
    'base_image_ref', 'container_format', 'disk_format', 'min_disk',
    'min_ram'))

#: The most characters of a stored value.
VALUE_MAX = 255

_PROPERTY_COUNTS = (
    sa.select(_SERVERS.c.node, _PROPERTIES.c.key, _PROPERTIES.c.value,
              sa.func.count().label('servers'))
    .join(_SERVERS, _SERVERS.c.uuid == _PROPERTIES.c.instance_uuid)
    .where(_SERVERS.c.host == sa.bindparam('on'), _SERVERS.c.deleted == 0,
           _PROPERTIES.c.deleted == 0,
           _PROPERTIES.c.key.startswith(_PREFIX, autoescape=True))
    .group_by(_SERVERS.c.node, _PROPERTIES.c.key, _PROPERTIES.c.value))


def create_image_properties(
    connection: sa.Connection, properties: Mapping[str, Mapping[str, Any]],
    now: datetime.datetime,
) -> None:
    """Store image properties of servers.

    :param properties: by server uuid and by name; values are cut off at Nova's
        maximum length
    """
    rows = [{'created_at': now, 'deleted': 0, 'instance_uuid': uuid,
             'key': key, 'value': str(value)[:VALUE_MAX]}
            for uuid, own in properties.items()
            for key, value in ((_PREFIX + name, value)
                               for name, value in own.items())
            if len(key) <= VALUE_MAX]
    statements.insert_all(connection, _PROPERTIES, rows)


def delete_image_properties(connection: sa.Connection, uuid: str) -> None:
    """Delete the image properties of a server, which gets another image."""
    connection.execute(sa.delete(_PROPERTIES).where(
        _PROPERTIES.c.instance_uuid == uuid,
        _PROPERTIES.c.key.startswith(_PREFIX, autoescape=True)))


def count_image_properties(
    connection: sa.Connection, host: str
) -> Sequence[tuple[str | None, str, str, int]]:
    """Return the number of servers of a host by image property value.

    :returns: rows of node, property name, value and number of servers
    """
    return [(row.node, row.key.removeprefix(_PREFIX), row.value, row.servers)
            for row in connection.execute(_PROPERTY_COUNTS, {'on': host})
            if row.key not in _PROPERTY_KEYS and row.value is not None]


_EXTRA = models.instance_extra

_HARDWARE_OF = sa.select(
    _EXTRA.c.numa_topology, _EXTRA.c.pci_requests,
).where(_EXTRA.c.instance_uuid == sa.bindparam('of'))

_WITH_HARDWARE = sa.select(_EXTRA.c.instance_uuid).where(
    _EXTRA.c.instance_uuid.in_(sa.bindparam('among', expanding=True)),
    sa.or_(_EXTRA.c.numa_topology.is_not(None),
           _EXTRA.c.pci_requests.is_not(None)))


def set_hardware(
    connection: sa.Connection, uuid: str, numa_topology: Any,
    pci_requests: Any,
) -> None:
    """Store the NUMA cells and the devices that a server asks for.

    :param numa_topology: the document of the request; None if it has none
    :param pci_requests: likewise
    """
    connection.execute(
        sa.update(_EXTRA).where(_EXTRA.c.instance_uuid == uuid).values({
            name: document and jsonutils.dumps(document)
            for name, document in (('numa_topology', numa_topology),
                                   ('pci_requests', pci_requests))}))


def get_hardware(connection: sa.Connection, uuid: str) -> tuple[Any, Any]:
    """Return the documents of :func:`set_hardware`, each None by default."""
    row = connection.execute(_HARDWARE_OF, {'of': uuid}).first()
    topology, requests = row or (None, None)
    return (topology and jsonutils.loads(topology),
            requests and jsonutils.loads(requests))


def list_with_hardware(
    connection: sa.Connection, uuids: Sequence[str]
) -> list[str]:
    """Return the servers among some that ask for NUMA cells or devices."""
    return sorted(connection.execute(
        _WITH_HARDWARE, {'among': uuids}).scalars()) if uuids else []
