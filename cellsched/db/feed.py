# SPDX-License-Identifier: Apache-2.0
"""Feeds: what changed in a database since a token, without a clock.

A feed has lanes, and a transaction that changes rows moves one lane by one
position and marks the rows with both. It keeps the lane locked until it is
committed, so a lane's positions become visible in their order, which those of
a sequence or of a clock do not. A token is the positions of all lanes, and
what has a later position has changed since. What was not yet committed when a
token was read has a later one for certain, so whoever reads the token first
and the rows after it misses nothing, and is told some changes twice.

A row that was written without its mark is no change to the feed.
"""

from typing import Any
import zlib

import sqlalchemy as sa

from cellsched.db import session
from cellsched import exception

#: Positions of the lanes, in the order of the lanes.
Token = tuple[int, ...]


class Feed:
    """A feed, with the table of its lanes.

    Lanes let transactions commit at the same time: of two that move the same
    one, the second waits for the first. A transaction that moves several may
    wait in a circle with another, and then lose to it.

    Rows are marked in the columns of :func:`mark_columns`.

    :ivar table: says how far each lane has come; its migration makes the lanes
    :ivar marks: values that mark rows, for an UPDATE that has the lane as its
        parameter ``in_lane``

    :param name: name of the table
    :param lanes: how many lanes there are
    """

    def __init__(self, name: str, metadata: sa.MetaData, lanes: int) -> None:
        self.table = sa.Table(
            name, metadata,
            sa.Column('lane', sa.Integer, primary_key=True,
                      autoincrement=False),
            sa.Column('position', sa.BigInteger, nullable=False))
        self.lanes = lanes
        columns = self.table.c
        in_lane = columns.lane == sa.bindparam('in_lane')
        self._position = sa.select(columns.position).where(in_lane)
        self._positions = sa.select(columns.position).order_by(columns.lane)
        self._glance = str(self._positions.compile())
        self._move = sa.update(self.table).where(in_lane).values(
            position=columns.position + 1)
        self.marks: dict[str, Any] = {
            'lane': sa.bindparam('in_lane'),
            'position': self._position.scalar_subquery()}

    def move(self, connection: sa.Connection, key: str) -> int:
        """Move the lane of a key and return it; it is locked from now on."""
        lane = self.lane(key)
        if not connection.execute(self._move, {'in_lane': lane}).rowcount:
            raise exception.DatabaseError(
                f'The table {self.table.name} has lost its lane {lane}.')
        return lane

    def lane(self, key: str) -> int:
        """Return the lane of a key."""
        return zlib.crc32(key.encode()) % self.lanes

    def moved(self, *conditions: sa.ColumnElement[bool]) -> sa.CTE:
        """Return the lane ``in_lane`` as moved by the statement it is in.

        It has the new ``position``. PostgreSQL only.

        :param conditions: are looked at first, and the lane is only locked
            where they hold
        """
        return self._move.where(*conditions).returning(
            self.table.c.position).cte('moved')

    def position(self, connection: sa.Connection, lane: int) -> int:
        """Return the position of a lane, for rows that are inserted."""
        return connection.execute(
            self._position, {'in_lane': lane}).scalar_one()

    def token(self, connection: sa.Connection) -> Token:
        """Return how far the feed has come."""
        return tuple(connection.execute(self._positions).scalars())

    def glance(self, database: session.Database) -> Token:
        """Return how far the feed has come, at less cost."""
        return tuple(row[0] for row in database.glance(self._glance))


def mark_columns(table: str, nullable: bool = True) -> tuple[Any, ...]:
    """Return the columns of a table that a feed's marks are in.

    :param nullable: others write the table too, who know no feed
    """
    return (
        sa.Column('lane', sa.Integer, nullable=nullable),
        sa.Column('position', sa.BigInteger, nullable=nullable),
        sa.Index(f'{table}_lane_position_idx', 'lane', 'position'))


def changed(
    table: sa.Table, since: Token, until: Token
) -> sa.ColumnElement[bool]:
    """Return the condition of having changed between two tokens."""
    return sa.or_(sa.false(), *(
        sa.and_(table.c.lane == lane, table.c.position > then)
        for lane, (then, now) in enumerate(zip(since, until))
        if now > then))


def follows(since: Token, until: Token) -> bool:
    """Return whether a token may be an earlier one of the same feed.

    It is not where the database was made anew or restored from a copy.
    """
    return (len(since) == len(until)
            and all(then <= now for then, now in zip(since, until)))
