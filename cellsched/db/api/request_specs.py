# SPDX-License-Identifier: Apache-2.0
"""Queries for request specs."""

from collections.abc import Iterable
from collections.abc import Mapping
import datetime
from typing import Any

from oslo_serialization import jsonutils
import sqlalchemy as sa

from cellsched.db.api import models
from cellsched.db import statements

_TABLE = models.request_specs


def create(
    connection: sa.Connection, specs: Iterable[Mapping[str, Any]],
    now: datetime.datetime,
) -> None:
    """Add request specs, given as primitives."""
    statements.insert_all(connection, _TABLE, [
        {'created_at': now,
         'instance_uuid': spec['nova_object.data']['instance_uuid'],
         'spec': jsonutils.dumps(spec)}
        for spec in specs])


def get(connection: sa.Connection, uuid: str) -> dict[str, Any] | None:
    """Return the request spec of an instance as a primitive, or None.

    One that is not JSON is empty.
    """
    spec = connection.execute(
        sa.select(_TABLE.c.spec).where(_TABLE.c.instance_uuid == uuid)
    ).scalar()
    try:
        return None if spec is None else jsonutils.loads(spec)
    except (RecursionError, ValueError):
        return {}


def save(
    connection: sa.Connection, uuid: str, spec: Mapping[str, Any],
    now: datetime.datetime,
) -> None:
    """Replace the request spec of an instance, given as a primitive."""
    connection.execute(
        sa.update(_TABLE).where(_TABLE.c.instance_uuid == uuid)
        .values(spec=jsonutils.dumps(spec), updated_at=now))
