# SPDX-License-Identifier: Apache-2.0
"""Comparisons of the host selected here with the host of Nova.

They are stored in a database separate from Nova's databases.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import enum
import time
from typing import Any

import numpy as np
import sqlalchemy as sa

from cellsched.db import session
from cellsched.hosts import view
from cellsched.scheduler.decision.pipeline import Candidates
from cellsched.scheduler.decision.ranking import Ranking
from cellsched.scheduler.decision.ranking import WeightPart

#: Relative difference up to which weights count as equal.
_NEAR = 1e-9


class Outcome(enum.StrEnum):
    """The outcomes of a comparison, with the text in reports."""

    SAME = 'same host'
    EQUAL = 'equal weight'
    NEITHER = 'neither found a host'
    WEIGHT = 'other weight'
    REJECTED = "Nova's host rejected"
    NONE = 'no host found'
    MORE = 'host found, Nova found none'
    UNKNOWN = 'cannot tell'

    @property
    def agrees(self) -> bool:
        """True if Nova could have made the same selection."""
        return self in (Outcome.SAME, Outcome.EQUAL, Outcome.NEITHER)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The outcome of one comparison.

    :param reason: a cause that reports can group by; may be empty
    :param detail: figures of this request
    """

    outcome: Outcome
    reason: str = ''
    detail: str = ''


class HostRanking:
    """The rejections and weights of hosts at the time of a selection.

    It is a small copy, independent of later changes of the ranking, and keeps
    no reference to the hosts or the pipeline.

    :param hosts: all hosts
    :param candidates: the passed hosts and the rejections
    :param ranking: the passed hosts by weight
    """

    def __init__(
        self, hosts: view.Hosts, candidates: Candidates,
        ranking: Ranking,
    ) -> None:
        self._row = hosts.columns.snapshot.rows.get
        self._stages = [stage.name for stage in candidates.stages]
        self._rejected_by = np.full(len(hosts), -1, 'int16')
        for number, stage in enumerate(candidates.stages):
            self._rejected_by[candidates.rejected(stage)] = number
        self._rows = ranking.rows
        self._weights = ranking.weights
        top = ranking.top(1)
        #: Compute node uuid of the best host; None if none passed.
        self.best: str | None = hosts['uuid'][top[0]] if top else None
        self._shares = {
            part.weigher.name: _weighted(part, ranking)
            for part in ranking.parts if part.counts}

    def rejection(self, uuid: str) -> str | None:
        """Return the name of the rejecting stage, or None if a host passed."""
        row = self._row(uuid)
        if row is None:
            return 'host not known'
        if self._place(row) is not None:
            return None
        number = self._rejected_by[row]
        return self._stages[number] if number >= 0 else 'nothing to claim'

    def weight(self, uuid: str) -> float | None:
        """Return the weight of a host; None if it did not pass."""
        place = self._of(uuid)
        return None if place is None else float(self._weights[place])

    def better(self, uuid: str) -> int:
        """Return the number of hosts with a greater weight."""
        weight = self.weight(uuid)
        if weight is None:
            return len(self._weights)
        return int(np.count_nonzero(
            (self._weights > weight)
            & ~np.isclose(self._weights, weight, rtol=_NEAR, atol=0.0)))

    def leads(self, uuid: str, other: str) -> Mapping[str, float]:
        """Return by how much each weigher prefers one host to the other.

        The largest difference comes first.
        """
        one, two = self._of(uuid), self._of(other)
        if one is None or two is None:
            return {}
        found = {name: float(shares[one] - shares[two])
                 for name, shares in self._shares.items()}
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))

    def _of(self, uuid: str) -> int | None:
        row = self._row(uuid)
        return None if row is None else self._place(row)

    def _place(self, row: int) -> int | None:
        place = int(np.searchsorted(self._rows, row))
        found = place < len(self._rows) and self._rows[place] == row
        return place if found else None


def compare(
    own_node: str | None, nova_node: str | None,
    host_ranking: HostRanking | None, subset_size: int = 1, text: str = '',
) -> Verdict:
    """Compare two selections.

    :param own_node: compute node uuid selected here; None for no host
    :param nova_node: compute node uuid selected by Nova; None for no host
    :param host_ranking: rejections and weights here; None if no filter ran
    :param subset_size: number of best hosts from which Nova picks at random
    :param text: why no host was found here
    """
    if nova_node is None:
        if own_node is None:
            return Verdict(Outcome.NEITHER, detail=text)
        return Verdict(Outcome.MORE)
    rejection = (None if host_ranking is None
                 else host_ranking.rejection(nova_node))
    if own_node is None:
        return Verdict(Outcome.NONE, rejection or text, text)
    if own_node == nova_node:
        return Verdict(Outcome.SAME)
    if host_ranking is None or rejection is not None:
        return Verdict(Outcome.REJECTED, rejection or text)
    better = host_ranking.better(nova_node)
    weights = host_ranking.weight(own_node), host_ranking.weight(nova_node)
    detail = (f'rank {better + 1}, weight {weights[1]!r}; weight of the host '
              f'selected here {weights[0]!r}')
    if not better:
        return Verdict(Outcome.EQUAL, detail=detail)
    if better < subset_size:
        return Verdict(Outcome.EQUAL, 'within the host subset of Nova\'s '
                       'random selection', detail)
    leads = host_ranking.leads(own_node, nova_node)
    return Verdict(Outcome.WEIGHT, next(iter(leads), ''), '; '.join((
        detail, *(f'{name} {lead:+g}' for name, lead in leads.items()))))


def _weighted(part: WeightPart, ranking: Ranking) -> view.Column:
    """Return the contribution of a weigher to weights, up to a constant."""
    weights = np.empty(len(ranking.hosts))
    part.weighted(weights, slice(None))
    return (weights if ranking.mask is None
            else weights[ranking.mask]).astype('float32')


#: Maximum number of stored comparisons; the oldest are removed first.
ROWS_MAX = 100_000

#: Seconds between removals of expired and excess comparisons.
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
    """A request with the decisions made here and by Nova.

    :param compared_at: seconds since the epoch
    :param host: host selected here; None for no host
    :param nova_host: host selected by Nova
    :param late_s: seconds from the start of Nova's selection until the
        decision here
    :param others: number of instances of the same request without comparison
    """

    compared_at: float
    request_id: str | None
    instance_uuid: str
    host: str | None
    nova_host: str | None
    verdict: Verdict
    late_s: float = 0.0
    others: int = 0


@dataclasses.dataclass(frozen=True)
class Group:
    """Comparisons with the same outcome and reason.

    :param requests: number of comparisons
    :param first_at: seconds since the epoch
    :param example: the newest comparison
    """

    outcome: Outcome
    reason: str
    requests: int
    first_at: float
    last_at: float
    example: Comparison


class ComparisonStore:
    """Stores comparisons for a limited time.

    :param retention_s: seconds to keep a comparison
    :param rows_max: maximum number of comparisons
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
        """Store a comparison, and remove expired ones.

        :raises cellsched.exception.DatabaseUnreachable: it is not stored
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
        """Remove the expired comparisons, and the oldest of the excess."""
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
        """Return the groups by outcome and reason, most frequent first.

        :raises cellsched.exception.DatabaseUnreachable: no connection
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
        return [Group(Outcome(row.outcome), row.reason,
                      row.requests, row.first_at, row.last_at,
                      examples[row.newest]) for row in found]

    def find(self, name: str) -> Sequence[Comparison]:
        """Return the comparisons of a server or request, newest first.

        :param name: uuid of a server, or id of a request
        :raises cellsched.exception.DatabaseUnreachable: no connection
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
        """Return whether the table exists; creates nothing."""
        if not self._database.exists():
            return False
        with self._database.reader() as connection:
            return sa.inspect(connection).has_table(_TABLE.name)


def _made(row: Any) -> Comparison:
    return Comparison(
        row.compared_at, row.request_id, row.instance_uuid, row.host,
        row.nova_host, Verdict(
            Outcome(row.outcome), row.reason, row.detail),
        row.late_s, row.others)
