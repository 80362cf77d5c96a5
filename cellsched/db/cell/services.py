# SPDX-License-Identifier: Apache-2.0
"""Queries for the services of a cell."""

import datetime

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.db import statements

_TABLE = models.services

COMPUTE = 'nova-compute'


def list_hosts(connection: sa.Connection, binary: str) -> list[str]:
    """Return the hosts that run a service, alive or not."""
    return list(connection.execute(
        sa.select(_TABLE.c.host)
        .where(_TABLE.c.binary == binary, _TABLE.c.deleted == 0)
        .order_by(_TABLE.c.id)).scalars())


def report(
    connection: sa.Connection, uuid: str, host: str, binary: str, topic: str,
    now: datetime.datetime,
) -> int:
    """Say that a service is alive; return its id.

    :param uuid: the service's uuid, if it is new
    """
    mine = sa.and_(_TABLE.c.host == host, _TABLE.c.binary == binary,
                   _TABLE.c.deleted == 0)
    alive = (sa.update(_TABLE).where(mine).values(
        updated_at=now, last_seen_up=now,
        report_count=_TABLE.c.report_count + 1))
    if not connection.execute(alive).rowcount:
        statements.insert_missing(connection, _TABLE.c.uuid, [{
            'created_at': now, 'uuid': uuid, 'host': host, 'binary': binary,
            'topic': topic, 'last_seen_up': now, 'report_count': 1,
            'disabled': False, 'forced_down': False, 'deleted': 0,
            'version': 0}])
    return connection.execute(
        sa.select(_TABLE.c.id).where(mine)).scalar_one()
