# SPDX-License-Identifier: Apache-2.0
"""Comparisons that are kept, in a database that is none of Nova's."""

from collections.abc import Sequence
import dataclasses
import time
from typing import Any

import sqlalchemy as sa

from cellsched.db import session
from cellsched_nova import comparing

#: Comparisons that are kept; of more the oldest are removed.
ROWS_MAX = 100_000

#: Seconds between removals of what is too old or too much.
PURGE_SPACING_S = 60.0

_REASON_MAX = 255

_METADATA = sa.MetaData()

_TABLE = sa.Table(
    'nova_comparisons', _METADATA,
    sa.Column('id', sa.BigInteger().with_variant(sa.Integer, 'sqlite'),
              primary_key=True),
    sa.Column('compared_at', sa.Float(53), nullable=False, index=True),
    sa.Column('request_id', sa.String(255), index=True),
    sa.Column('instance_uuid', sa.String(36), nullable=False, index=True),
    sa.Column('host', sa.String(255)),
    sa.Column('nova_host', sa.String(255)),
    sa.Column('outcome', sa.String(64), nullable=False),
    sa.Column('reason', sa.String(_REASON_MAX), nullable=False),
    sa.Column('detail', sa.Text, nullable=False),
    sa.Column('late_s', sa.Float, nullable=False),
    sa.Column('others', sa.Integer, nullable=False),
)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A request that was decided on here and by Nova.

    :param compared_at: seconds since the epoch
    :param host: what was chosen here; None for no host
    :param nova_host: what Nova chose
    :param late_s: seconds from when Nova began to choose until it was decided
        on here
    :param others: instances of the same request that were not compared
    """

    compared_at: float
    request_id: str | None
    instance_uuid: str
    host: str | None
    nova_host: str | None
    verdict: comparing.Verdict
    late_s: float = 0.0
    others: int = 0


@dataclasses.dataclass(frozen=True)
class Group:
    """Comparisons with the same outcome and reason.

    :param requests: how many there are
    :param first_at: seconds since the epoch
    :param example: the newest of them
    """

    outcome: comparing.Outcome
    reason: str
    requests: int
    first_at: float
    last_at: float
    example: Comparison


class ComparisonStore:
    """Keeps comparisons for a time.

    :param retention_s: seconds for which they are kept
    :param rows_max: how many are kept at most
    """

    def __init__(
        self, database: session.Database, retention_s: float,
        rows_max: int = ROWS_MAX,
    ) -> None:
        self._database = database
        self._retention_s = retention_s
        self._rows_max = rows_max
        self._has_table = False
        self._purged_at: float | None = None

    def add(self, comparison: Comparison) -> None:
        """Keep one more, and forget what is too old.

        :raises cellsched.exception.DatabaseUnreachable: it is not kept
        """
        values = dataclasses.asdict(comparison)
        verdict = values.pop('verdict')
        values |= {'outcome': str(verdict['outcome']),
                   'reason': verdict['reason'][:_REASON_MAX],
                   'detail': verdict['detail']}
        with self._database.writer() as connection:
            if not self._has_table:
                _METADATA.create_all(connection)
            connection.execute(sa.insert(_TABLE).values(values))
        self._has_table = True
        now = time.monotonic()
        if self._purged_at is None or (
                now - self._purged_at >= PURGE_SPACING_S):
            self.purge(comparison.compared_at)
            self._purged_at = now

    def purge(self, now: float) -> None:
        """Remove what is too old, and the oldest of what is too much."""
        with self._database.writer() as connection:
            newest = connection.execute(
                sa.select(_TABLE.c.id).order_by(_TABLE.c.id.desc())
                .offset(self._rows_max).limit(1)).scalar()
            connection.execute(sa.delete(_TABLE).where(
                _TABLE.c.compared_at < now - self._retention_s))
            if newest is not None:
                connection.execute(
                    sa.delete(_TABLE).where(_TABLE.c.id <= newest))

    def groups(self) -> list[Group]:
        """Return all by outcome and reason, the most frequent first.

        :raises cellsched.exception.DatabaseUnreachable: it does not answer
        """
        key = _TABLE.c.outcome, _TABLE.c.reason
        if not self._is_there():
            return []
        with self._database.reader() as connection:
            found = connection.execute(
                sa.select(
                    *key, sa.func.count().label('requests'),
                    sa.func.min(_TABLE.c.compared_at).label('first_at'),
                    sa.func.max(_TABLE.c.compared_at).label('last_at'),
                    sa.func.max(_TABLE.c.id).label('newest'))
                .group_by(*key)
                .order_by(sa.desc('requests'), *key)).all()
            examples = {row.id: _made(row) for row in connection.execute(
                sa.select(_TABLE).where(_TABLE.c.id.in_(
                    [row.newest for row in found])))}
        return [Group(comparing.Outcome(row.outcome), row.reason,
                      row.requests, row.first_at, row.last_at,
                      examples[row.newest]) for row in found]

    def find(self, name: str) -> Sequence[Comparison]:
        """Return those of a server or of a request, the newest first.

        :param name: uuid of a server, or id of a request
        :raises cellsched.exception.DatabaseUnreachable: it does not answer
        """
        if not self._is_there():
            return []
        with self._database.reader() as connection:
            return [_made(row) for row in connection.execute(
                sa.select(_TABLE).where(sa.or_(
                    _TABLE.c.instance_uuid == name,
                    _TABLE.c.request_id == name))
                .order_by(_TABLE.c.id.desc()))]

    def _is_there(self) -> bool:
        """Return whether anything was ever kept; nothing is made."""
        if not self._database.exists():
            return False
        with self._database.reader() as connection:
            return sa.inspect(connection).has_table(_TABLE.name)


def _made(row: Any) -> Comparison:
    return Comparison(
        row.compared_at, row.request_id, row.instance_uuid, row.host,
        row.nova_host, comparing.Verdict(
            comparing.Outcome(row.outcome), row.reason, row.detail),
        row.late_s, row.others)
