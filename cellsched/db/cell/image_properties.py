# SPDX-License-Identifier: Apache-2.0
"""Queries for what servers keep of their images, where Nova keeps it."""

from collections.abc import Mapping
from collections.abc import Sequence
import datetime
from typing import Any

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.db import statements

_TABLE = models.instance_system_metadata
_SERVERS = models.instances

_PREFIX = 'image_'

#: Of what Nova keeps with this prefix, what is no property.
_FIELDS = frozenset(_PREFIX + name for name in (
    'base_image_ref', 'container_format', 'disk_format', 'min_disk',
    'min_ram'))

#: Characters of a value that are kept.
VALUE_MAX = 255

_ADD = sa.insert(_TABLE)

_COUNT = (
    sa.select(_SERVERS.c.node, _TABLE.c.key, _TABLE.c.value,
              sa.func.count().label('servers'))
    .join(_SERVERS, _SERVERS.c.uuid == _TABLE.c.instance_uuid)
    .where(_SERVERS.c.host == sa.bindparam('on'), _SERVERS.c.deleted == 0,
           _TABLE.c.deleted == 0,
           _TABLE.c.key.startswith(_PREFIX, autoescape=True))
    .group_by(_SERVERS.c.node, _TABLE.c.key, _TABLE.c.value))


def create(
    connection: sa.Connection, properties: Mapping[str, Mapping[str, Any]],
    now: datetime.datetime,
) -> None:
    """Keep the properties of images.

    :param properties: by the uuid of the server, then by name; longer ones
        than Nova keeps are cut off
    """
    rows = [{'created_at': now, 'deleted': 0, 'instance_uuid': uuid,
             'key': key, 'value': str(value)[:VALUE_MAX]}
            for uuid, mine in properties.items()
            for key, value in ((_PREFIX + name, value)
                               for name, value in mine.items())
            if len(key) <= VALUE_MAX]
    if rows:
        statements.insert_all(connection, _ADD, rows)


def forget(connection: sa.Connection, uuid: str) -> None:
    """Forget the properties of a server's image, which has another one."""
    connection.execute(sa.delete(_TABLE).where(
        _TABLE.c.instance_uuid == uuid,
        _TABLE.c.key.startswith(_PREFIX, autoescape=True)))


def count(
    connection: sa.Connection, host: str
) -> Sequence[tuple[str | None, str, str, int]]:
    """Return how many servers of a host have images that say the same.

    :returns: node, name of the property, value and number of servers
    """
    return [(row.node, row.key.removeprefix(_PREFIX), row.value, row.servers)
            for row in connection.execute(_COUNT, {'on': host})
            if row.key not in _FIELDS and row.value is not None]
