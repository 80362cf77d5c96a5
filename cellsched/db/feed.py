# SPDX-License-Identifier: Apache-2.0
"""Feeds: the changes of a database since a token, without a clock.

A feed has lanes. A transaction that changes rows advances one lane by one
position and marks the rows with the lane and the position. The lane stays
locked until the transaction commits, so the positions of a lane become visible
in order, unlike the values of a sequence or a clock.

A token is the list of the positions of all lanes. Rows with a later position
have changed since. A change that was not committed when the token was read has
a later position, so a reader that reads the token first and the rows second
misses no change; it may read some changes twice. A row may change again in
between, in any lane, so the reader looks for later positions in all lanes.

The feed does not see a row that was written without a mark.
"""

from collections.abc import Iterable
from typing import Any
import zlib

import sqlalchemy as sa

from cellsched.db import session
from cellsched import exception

#: Positions of the lanes, in the order of the lanes.
Token = tuple[int, ...]


class Feed:
    """A feed, with the table of its lanes.

    Several lanes let transactions commit concurrently: of two transactions
    that advance the same lane, the second waits for the first. Transactions
    that advance several lanes can deadlock; one of them is then rolled back.

    Rows are marked in the columns of :func:`mark_columns`.

    :ivar table: the position of each lane; the migration inserts the lanes
    :ivar marks: values that mark rows, for an UPDATE with the lane in its
        parameter ``in_lane``

    :param name: name of the table
    :param lanes: number of lanes
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

    @property
    def rows(self) -> list[dict[str, int]]:
        """The rows of a new feed, for the migration."""
        return [{'lane': lane, 'position': 0} for lane in range(self.lanes)]

    def move(self, connection: sa.Connection, key: str) -> int:
        """Advance the lane of a key, which locks it, and return the lane."""
        lane = self.lane(key)
        if not connection.execute(self._move, {'in_lane': lane}).rowcount:
            raise exception.DatabaseError(
                f'The table {self.table.name} has lost its lane {lane}.')
        return lane

    def lane(self, key: str) -> int:
        """Return the lane of a key."""
        return zlib.crc32(key.encode()) % self.lanes

    def position(self, connection: sa.Connection, lane: int) -> int:
        """Return the position of a lane, to mark inserted rows."""
        return connection.execute(
            self._position, {'in_lane': lane}).scalar_one()

    def token(self, connection: sa.Connection) -> Token:
        """Return the current token.

        :raises cellsched.exception.DatabaseError: a lane is missing
        """
        return self._checked(connection.execute(self._positions).scalars())

    def changed(self, table: sa.Table) -> sa.ColumnElement[bool]:
        """Return the condition that a row changed since a token.

        The parameters are those of :func:`parameters`. Make the statement
        once: it takes longer to make than to execute.
        """
        return sa.or_(*(
            sa.and_(table.c.lane == sa.literal_column(f'{lane}', sa.Integer()),
                    table.c.position > sa.bindparam(
                        f'since_{lane}', type_=sa.BigInteger()))
            for lane in range(self.lanes)))

    def glance(self, database: session.Database) -> Token:
        """Return the current token, by the cheap read of SQLite.

        :raises cellsched.exception.DatabaseError: a lane is missing
        """
        return self._checked(row[0] for row in database.glance(self._glance))

    def _checked(self, positions: Iterable[int]) -> Token:
        token = tuple(positions)
        if len(token) != self.lanes:
            raise exception.DatabaseError(
                f'The table {self.table.name} has {len(token)} of its '
                f'{self.lanes} lanes.')
        return token


def mark_columns(table: str, nullable: bool = True) -> tuple[Any, ...]:
    """Return the columns for the marks of a feed.

    :param nullable: True if programs without a feed write the table too
    """
    return (
        sa.Column('lane', sa.Integer, nullable=nullable),
        sa.Column('position', sa.BigInteger, nullable=nullable),
        sa.Index(f'{table}_lane_position_idx', 'lane', 'position'))


def parameters(since: Token) -> dict[str, int]:
    """Return the parameters of :meth:`Feed.changed` for a token."""
    return {f'since_{lane}': position for lane, position in enumerate(since)}


def follows(since: Token, until: Token) -> bool:
    """Return whether ``since`` can be an earlier token of the same feed.

    It cannot after the database was recreated or restored from a backup.
    """
    return (len(since) == len(until)
            and all(then <= now for then, now in zip(since, until)))
