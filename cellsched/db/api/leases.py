# SPDX-License-Identifier: Apache-2.0
"""Queries for leases: of build requests, and of tasks with one leader.

A deletion in progress is such a task, too.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import datetime
from typing import Any
from typing import NamedTuple

import sqlalchemy as sa

from cellsched.db.api import build_requests
from cellsched.db.api import models
from cellsched.db import statements

_TABLE = models.build_requests

_KEY = _TABLE.c.instance_uuid

_LEASE = (
    sa.update(_TABLE).where(statements.in_list(_KEY))
    .values(lease_owner=sa.bindparam('owner'),
            lease_expires_at=sa.bindparam('until')))

_LEADERS = models.leaders

_LEADER = sa.select(_LEADERS.c.owner, _LEADERS.c.expires_at).where(
    _LEADERS.c.name == sa.bindparam('task'))

_LEAD = sa.update(_LEADERS).where(
    _LEADERS.c.name == sa.bindparam('task'),
    sa.or_(_LEADERS.c.owner == sa.bindparam('candidate'),
           _LEADERS.c.expires_at <= sa.bindparam('now')),
).values(owner=sa.bindparam('candidate'), expires_at=sa.bindparam('until'))


class LeaseDeadline(NamedTuple):
    """The times that make a request overdue.

    :param now: seconds since the epoch; leases that end by then are expired
    :param created_before: requests accepted by then and never leased are
        overdue
    """

    now: float
    created_before: datetime.datetime


class Overdue(NamedTuple):
    """A request without a valid lease."""

    id: int
    uuid: str


def list_overdue(
    connection: sa.Connection, due: LeaseDeadline, limit: int, after: int = 0
) -> list[Overdue]:
    """Return a page of overdue requests, the oldest first.

    Their lease expired, or they were accepted and never leased.

    :param after: the id at which the last page ended
    """
    return [Overdue(row.id, row.instance_uuid) for row in connection.execute(
        sa.select(_TABLE.c.id, _KEY)
        .where(_is_overdue(_TABLE, due), _TABLE.c.id > after)
        .order_by(_TABLE.c.id).limit(limit))]


def list_batches(
    connection: sa.Connection, uuids: Sequence[str], due: LeaseDeadline
) -> list[list[str]]:
    """Return the overdue requests of the batches of these requests.

    Each batch is returned once, in order. An unreadable request is a batch of
    its own.
    """
    rows: dict[int, sa.Row[Any]] = {}
    for chunk in statements.chunks(uuids):
        # Most requests are of few batches: join each batch once.
        of = sa.select(_TABLE.c.created_at, _TABLE.c.project_id).where(
            statements.in_list(_KEY)).distinct().subquery()
        rows |= {row.id: row for row in connection.execute(
            sa.select(_TABLE.c.id, _KEY, _TABLE.c.instance)
            .join(of, sa.and_(of.c.created_at == _TABLE.c.created_at,
                              of.c.project_id == _TABLE.c.project_id))
            .where(_is_overdue(_TABLE, due)), {'these': chunk})}
    requested = set(uuids)
    batches: dict[str, list[str]] = {}
    for _, row in sorted(rows.items()):
        batches.setdefault(build_requests.batch_of(row), []).append(
            row.instance_uuid)
    return [batch for batch in batches.values() if requested & set(batch)]


def claim(
    connection: sa.Connection, batches: Sequence[Sequence[str]], owner: str,
    due: LeaseDeadline, expires_at: float,
) -> list[list[str]]:
    """Lease overdue batches; return the ones that this call leased.

    The first request of a batch decides: if several processes claim the same
    batch, exactly one gets it and none of them waits.

    The number of attempts is not incremented here, but when the build starts.

    :param batches: the result of :func:`list_batches`
    """
    overdue = _is_overdue(_TABLE, due)
    firsts = statements.lock_free(
        connection, _KEY, [batch[0] for batch in batches], overdue)
    won = [batch for batch in batches if batch[0] in firsts]
    rest = statements.lock_free(
        connection, _KEY, [uuid for batch in won for uuid in batch[1:]],
        overdue)
    claimed = [[uuid for uuid in batch if uuid in firsts or uuid in rest]
               for batch in won]
    statements.write(
        connection, _LEASE, [uuid for batch in claimed for uuid in batch],
        owner=owner, until=expires_at)
    return claimed


def extend(
    connection: sa.Connection, owners: Mapping[str, str], expires_at: float
) -> None:
    """Extend the leases of requests that their owners still lease.

    Locked rows are skipped: they can be locked as long as a cell takes to
    answer, and waiting would delay the extension of the other leases.

    :param owners: the expected owner, by instance
    """
    free = statements.lock_free(connection, _KEY, owners)
    build_requests.extend_leases(connection, free, owners, expires_at)


def elect(
    connection: sa.Connection, task: str, candidate: str, now: float,
    expires_at: float,
) -> bool:
    """Lease a task to a candidate; return whether it is the leader now.

    The leader stays leader if it calls before its lease ends. If several
    candidates call while there is no leader, exactly one becomes leader. While
    another candidate leads, nothing is written.

    :param task: name of the task
    :param now: seconds since the epoch, by the database's clock
    :param expires_at: end of the new lease, likewise
    """
    known = connection.execute(_LEADER, {'task': task}).first()
    if known is None:
        return bool(statements.insert_missing(connection, _LEADERS.c.name, [
            {'name': task, 'owner': candidate, 'expires_at': expires_at}]))
    if known.owner != candidate and known.expires_at > now:
        return False
    return connection.execute(_LEAD, {
        'task': task, 'candidate': candidate, 'now': now,
        'until': expires_at}).rowcount == 1


#: Begins the names of the entries of deletions; the uuid of a server follows.
_DELETION = 'delete '

_END_DELETION = sa.delete(_LEADERS).where(
    _LEADERS.c.name == sa.bindparam('task'))


def record_deletion(
    connection: sa.Connection, uuid: str, expires_at: float
) -> None:
    """Record that the deletion of a server has begun, unless it is recorded.

    :param expires_at: seconds since the epoch; then it is interrupted
    """
    statements.insert_missing(connection, _LEADERS.c.name, [
        {'name': _DELETION + uuid, 'owner': '', 'expires_at': expires_at}])


def end_deletion(connection: sa.Connection, uuid: str) -> None:
    """Remove the record of a deletion."""
    connection.execute(_END_DELETION, {'task': _DELETION + uuid})


def list_interrupted_deletions(
    connection: sa.Connection, now: float, limit: int
) -> list[str]:
    """Return servers whose deletion is interrupted, the oldest first.

    The table has few entries besides the deletions in progress.

    :param now: seconds since the epoch
    """
    return [name.removeprefix(_DELETION) for name in connection.execute(
        sa.select(_LEADERS.c.name)
        .where(_LEADERS.c.name.startswith(_DELETION, autoescape=True),
               _LEADERS.c.expires_at <= now)
        .order_by(_LEADERS.c.expires_at).limit(limit)).scalars()]


def take_deletions(
    connection: sa.Connection, uuids: Sequence[str], owner: str, now: float,
    expires_at: float,
) -> list[str]:
    """Lease interrupted deletions to an owner; return the ones that it got.

    Those that another process is taking are skipped.

    :param uuids: from :func:`list_interrupted_deletions`
    :param now: seconds since the epoch, as ``expires_at``
    """
    taken = statements.lock_free(
        connection, _LEADERS.c.name, [_DELETION + uuid for uuid in uuids],
        _LEADERS.c.expires_at <= now)
    connection.execute(
        sa.update(_LEADERS).where(_LEADERS.c.name.in_(taken))
        .values(owner=owner, expires_at=expires_at))
    return [uuid for uuid in uuids if _DELETION + uuid in taken]


def _is_overdue(table: Any, due: LeaseDeadline) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.instance_uuid.is_not(None), sa.or_(
        table.c.lease_expires_at <= due.now,
        sa.and_(table.c.lease_expires_at.is_(None),
                table.c.created_at <= due.created_before)))
