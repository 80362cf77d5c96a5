# SPDX-License-Identifier: Apache-2.0
"""Queries for build requests by who works on them, and until when."""

from collections.abc import Mapping
from collections.abc import Sequence
import datetime
from typing import Any
from typing import NamedTuple

import sqlalchemy as sa

from cellsched.db.api import models
from cellsched.db.api import request_rows
from cellsched.db import statements

_TABLE = models.build_requests

_KEY = _TABLE.c.instance_uuid

_LEASE = (
    sa.update(_TABLE).where(statements.in_list(_KEY))
    .values(lease_owner=sa.bindparam('owner'),
            lease_expires_at=sa.bindparam('until')))

_EXTEND = (
    sa.update(_TABLE)
    .where(statements.in_list(_KEY),
           statements.in_list(_TABLE.c.lease_owner, 'owners'))
    .values(lease_expires_at=sa.bindparam('until')))


class LeaseDeadline(NamedTuple):
    """Until when others had their time.

    :param now: seconds since the epoch; leases that ran out by then are over
    :param created_before: what was accepted by then and never taken up is
        overdue
    """

    now: float
    created_before: datetime.datetime


class Overdue(NamedTuple):
    """A request that nobody works on."""

    id: int
    uuid: str


def list_overdue(
    connection: sa.Connection, due: LeaseDeadline, limit: int, after: int = 0
) -> list[Overdue]:
    """Return requests that nobody works on, the oldest first.

    Their lease ran out, or they were accepted and never taken up.

    :param after: the id of the last one that was seen
    """
    return [Overdue(row.id, row.instance_uuid) for row in connection.execute(
        sa.select(_TABLE.c.id, _KEY)
        .where(_is_overdue(_TABLE, due), _TABLE.c.id > after)
        .order_by(_TABLE.c.id).limit(limit))]


def list_batches(
    connection: sa.Connection, uuids: Sequence[str], due: LeaseDeadline
) -> list[list[str]]:
    """Return what is overdue and was accepted together with these, in order.

    Each batch is there once. One whose request cannot be read is a batch of
    its own.
    """
    of = _TABLE.alias()
    rows: dict[int, sa.Row[Any]] = {}
    for chunk in statements.chunks(uuids):
        rows |= {row.id: row for row in connection.execute(
            sa.select(_TABLE.c.id, _KEY, _TABLE.c.instance)
            .join(of, sa.and_(of.c.created_at == _TABLE.c.created_at,
                              of.c.project_id == _TABLE.c.project_id))
            .where(of.c.instance_uuid.in_(chunk), _is_overdue(_TABLE, due))
            .distinct())}
    wanted = set(uuids)
    batches: dict[str, list[str]] = {}
    for _, row in sorted(rows.items()):
        batches.setdefault(request_rows.batch_of(row), []).append(
            row.instance_uuid)
    return [batch for batch in batches.values() if wanted & set(batch)]


def claim(
    connection: sa.Connection, batches: Sequence[Sequence[str]], owner: str,
    due: LeaseDeadline, expires_at: float,
) -> list[list[str]]:
    """Lease overdue batches that nobody else claims; return these.

    Who has the first of a batch has the batch, so that of several that claim
    the same one exactly one gets it, and none of them waits.

    It is no try: that is counted when the build is taken up.

    :param batches: as :func:`list_batches` returns them
    """
    overdue = _is_overdue(_TABLE, due)
    firsts = statements.lock_free(
        connection, _KEY, [batch[0] for batch in batches], overdue)
    won = [batch for batch in batches if batch[0] in firsts]
    others = statements.lock_free(
        connection, _KEY, [uuid for batch in won for uuid in batch[1:]],
        overdue)
    claimed = [[uuid for uuid in batch if uuid in firsts or uuid in others]
               for batch in won]
    for chunk in statements.chunks(
            uuid for batch in claimed for uuid in batch):
        connection.execute(
            _LEASE, {'these': chunk, 'owner': owner, 'until': expires_at})
    return claimed


def extend(
    connection: sa.Connection, owners: Mapping[str, str], expires_at: float
) -> None:
    """Lease requests for longer that are their owners' still.

    What somebody has locked is left out: it may be held as long as a cell
    takes to answer, and who waited for it here would keep the others waiting.

    :param owners: who has leased them, by instance
    """
    free = statements.lock_free(connection, _KEY, owners)
    for chunk in statements.chunks(sorted(free)):
        connection.execute(_EXTEND, {
            'these': chunk, 'until': expires_at,
            'owners': sorted({owners[uuid] for uuid in chunk})})


def _is_overdue(table: Any, due: LeaseDeadline) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.instance_uuid.is_not(None), sa.or_(
        table.c.lease_expires_at <= due.now,
        sa.and_(table.c.lease_expires_at.is_(None),
                table.c.created_at <= due.created_before)))
