# SPDX-License-Identifier: Apache-2.0
"""Queries for which process has the name of a host.

The starts of a host's agent are counted. The service says which of them is
that of the process that has the name: the last one, or an earlier one whose
process took it back.
"""

from typing import NamedTuple

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.db.cell import services

_TABLE = models.services
_NODES = models.compute_nodes

_ITS = sa.and_(
    _TABLE.c.host == sa.bindparam('on'), _TABLE.c.binary == services.COMPUTE,
    _TABLE.c.deleted == 0)

_LOOK = sa.select(
    sa.select(_TABLE.c.run).where(_ITS).scalar_subquery(),
    sa.select(sa.func.min(_NODES.c.mapped)).where(
        _NODES.c.host == sa.bindparam('on'), _NODES.c.deleted == 0,
    ).scalar_subquery())

_LOCK = sa.select(_TABLE.c.starts, _TABLE.c.run).where(_ITS).with_for_update()

_SET = sa.update(_TABLE).where(_ITS).values(
    starts=sa.bindparam('count'), run=sa.bindparam('of'))

_CLAIM = sa.update(_NODES).where(
    _NODES.c.host == sa.bindparam('on'), _NODES.c.mapped < 0,
    _NODES.c.deleted == 0).values(mapped=0)


class Seen(NamedTuple):
    """The holder of the name of a host, as a cell knows it.

    :param run: the start whose process has it; None if nobody has
    :param foreign: whether a host of another cell has it
    """

    run: int | None
    foreign: bool


def look(connection: sa.Connection, host: str) -> Seen:
    """Return who has the name of a host."""
    run, mapped = connection.execute(_LOOK, {'on': host}).one()
    return Seen(run, mapped is not None and mapped < 0)


def lock(connection: sa.Connection, host: str) -> int | None:
    """Return who has the name; that stays so until the transaction ends."""
    row = connection.execute(_LOCK, {'on': host}).first()
    return None if row is None else row.run


def begin(connection: sa.Connection, host: str) -> int:
    """Give the name to a process that starts; return which start that is.

    Whether a host of another cell has the name is to be found out anew.
    """
    row = connection.execute(_LOCK, {'on': host}).first()
    run: int = 1 + ((row.starts or 0) if row else 0)
    connection.execute(_SET, {'on': host, 'count': run, 'of': run})
    connection.execute(_CLAIM, {'on': host})
    return run


def take(connection: sa.Connection, host: str, run: int) -> None:
    """Give the name to the process of a start, again."""
    row = connection.execute(_LOCK, {'on': host}).first()
    starts = max(run, (row.starts or 0) if row else 0)
    connection.execute(_SET, {'on': host, 'count': starts, 'of': run})
