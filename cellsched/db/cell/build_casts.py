# SPDX-License-Identifier: Apache-2.0
"""Queries for builds that a compute host was told of and has not ended.

What it was told stays here, in the database of its cell, until the server is
there, in ERROR or deleted. So it can be told again, or another host be told.
"""

from collections.abc import Iterable
import dataclasses
from typing import Any

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.db import statements

_TABLE = models.build_casts

_ONE = sa.select(_TABLE).where(
    _TABLE.c.instance_uuid == sa.bindparam('uuid'))

_DROP = sa.delete(_TABLE).where(statements.in_list(_TABLE.c.instance_uuid))

_TAKE = (
    sa.update(_TABLE).where(statements.in_list(_TABLE.c.instance_uuid))
    .values(cast_at=sa.bindparam('now')))

_AGAIN = (
    sa.update(_TABLE)
    .where(_TABLE.c.instance_uuid == sa.bindparam('of'),
           _TABLE.c.casts == sa.bindparam('was'))
    .values(casts=_TABLE.c.casts + 1, cast_at=sa.bindparam('now')))


@dataclasses.dataclass(frozen=True)
class BuildCast:
    """A build that a compute host was told of.

    :param host: the host that was told
    :param message: the arguments of ``build_and_run_instance`` but for the
        instance, as JSON has them
    :param cast_at: when it was told last, in seconds since the epoch
    :param casts: how often it was told
    """

    instance_uuid: str
    host: str
    node: str
    message: str
    cast_at: float
    casts: int = 1


def create(connection: sa.Connection, casts: Iterable[BuildCast]) -> None:
    """Add builds; one that is there already stays as it is."""
    rows = [dataclasses.asdict(each) for each in casts]
    if rows:
        statements.insert_missing(connection, _TABLE.c.instance_uuid, rows)


def replace(connection: sa.Connection, cast: BuildCast) -> None:
    """Keep what the next host is told of a build, in place of the last."""
    drop(connection, [cast.instance_uuid])
    connection.execute(sa.insert(_TABLE), dataclasses.asdict(cast))


def get(connection: sa.Connection, uuid: str) -> BuildCast | None:
    """Return what was told of a build, or None."""
    row = connection.execute(_ONE, {'uuid': uuid}).first()
    return None if row is None else _from_row(row)


def is_any_before(connection: sa.Connection, before: float) -> bool:
    """Return whether there are builds that were told of before a time.

    :param before: in seconds since the epoch
    """
    return connection.execute(
        sa.select(sa.literal(1)).select_from(_TABLE)
        .where(_TABLE.c.cast_at < before).limit(1)).first() is not None


def take_before(
    connection: sa.Connection, before: float, now: float, limit: int
) -> list[BuildCast]:
    """Return builds that were told of before a time, the oldest first.

    They count as told of now, so that of several that look each is given
    others. What somebody has locked is left out.

    :param before: in seconds since the epoch
    """
    taken = [_from_row(row) for row in connection.execute(
        sa.select(_TABLE).where(_TABLE.c.cast_at < before)
        .order_by(_TABLE.c.cast_at).limit(limit)
        .with_for_update(skip_locked=True))]
    for chunk in statements.chunks(each.instance_uuid for each in taken):
        connection.execute(_TAKE, {'these': chunk, 'now': now})
    return taken


def tell_again(
    connection: sa.Connection, cast: BuildCast, now: float
) -> bool:
    """Count one more telling; of several that would tell again, one may."""
    return bool(connection.execute(_AGAIN, {
        'of': cast.instance_uuid, 'was': cast.casts, 'now': now}).rowcount)


def drop(connection: sa.Connection, uuids: Iterable[str]) -> None:
    """Forget builds that ended; those that are not there are left out."""
    for chunk in statements.chunks(uuids):
        connection.execute(_DROP, {'these': chunk})


def _from_row(row: sa.Row[Any]) -> BuildCast:
    return BuildCast(
        instance_uuid=row.instance_uuid, host=row.host, node=row.node,
        message=row.message, cast_at=row.cast_at, casts=row.casts)
