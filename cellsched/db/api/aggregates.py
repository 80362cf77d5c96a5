# SPDX-License-Identifier: Apache-2.0
"""Queries for host aggregates."""

from collections.abc import Iterable
from collections.abc import Mapping
import datetime

import sqlalchemy as sa

from cellsched.db.api import models

_TABLE = models.aggregates
_HOSTS = models.aggregate_hosts
_METADATA = models.aggregate_metadata


def create(
    connection: sa.Connection, uuid: str, name: str, hosts: Iterable[str],
    metadata: Mapping[str, str], now: datetime.datetime,
) -> None:
    """Add an aggregate with its hosts and metadata."""
    key = connection.execute(sa.insert(_TABLE).values(
        created_at=now, uuid=uuid, name=name)).inserted_primary_key
    number = key[0] if key else None
    rows = [{'created_at': now, 'aggregate_id': number, 'host': host}
            for host in hosts]
    if rows:
        connection.execute(sa.insert(_HOSTS), rows)
    pairs = [{'created_at': now, 'aggregate_id': number, 'key': key,
              'value': value} for key, value in metadata.items()]
    if pairs:
        connection.execute(sa.insert(_METADATA), pairs)


def metadata_by_host(
    connection: sa.Connection, key: str
) -> dict[str, str]:
    """Return what hosts' aggregates say for a key, by host.

    Where aggregates disagree, the oldest one's value is taken.
    """
    values: dict[str, str] = {}
    for host, value in connection.execute(
            sa.select(_HOSTS.c.host, _METADATA.c.value)
            .join(_METADATA,
                  _METADATA.c.aggregate_id == _HOSTS.c.aggregate_id)
            .where(_METADATA.c.key == key)
            .order_by(_METADATA.c.aggregate_id)):
        values.setdefault(host, value)
    return values
