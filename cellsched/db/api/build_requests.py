# SPDX-License-Identifier: Apache-2.0
"""Queries for build requests: accepted builds that have no cell yet."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import datetime
from typing import Any

from oslo_serialization import jsonutils
import sqlalchemy as sa

from cellsched.db.api import models
from cellsched.db.api import request_rows
from cellsched.db import statements
from cellsched import objects

_TABLE = models.build_requests
_SPECS = models.request_specs

_THESE = statements.in_list(_TABLE.c.instance_uuid)

# Without the hint, MariaDB would search the index of lease_expires_at and lock
# unrelated rows.
_LEASE = (
    sa.update(_TABLE)
    .where(_THESE,
           sa.func.coalesce(_TABLE.c.lease_expires_at, 0.0)
           <= sa.bindparam('now'))
    .values(lease_owner=sa.bindparam('owner'),
            lease_expires_at=sa.bindparam('until'),
            lease_count=_TABLE.c.lease_count + 1))

_LEASED = (
    sa.select(_TABLE, _SPECS.c.spec)
    .outerjoin(_SPECS, _SPECS.c.instance_uuid == _TABLE.c.instance_uuid)
    .where(_THESE,
           _TABLE.c.lease_owner == sa.bindparam('owner'))
    .order_by(_TABLE.c.id))

#: Locks the requests in one order, as the other statements do.
_LOCKED = (
    sa.select(_TABLE.c.id).where(_THESE).order_by(_TABLE.c.instance_uuid)
    .with_for_update().cte('locked'))

_UPDATED = _LEASE.where(
    _TABLE.c.id.in_(sa.select(_LOCKED.c.id))).returning(_TABLE).cte('updated')

#: Leases and returns requests in one statement of PostgreSQL.
_LEASE_AND_READ = (
    sa.select(_UPDATED, _SPECS.c.spec)
    .outerjoin(_SPECS, _SPECS.c.instance_uuid == _UPDATED.c.instance_uuid)
    .order_by(_UPDATED.c.id))

_RENEW = (
    sa.update(_TABLE)
    .where(_THESE,
           statements.in_list(_TABLE.c.lease_owner, 'owners'))
    .values(lease_expires_at=sa.bindparam('until')))

_PROJECTS = sa.select(
    _TABLE.c.instance_uuid, _TABLE.c.project_id).where(_THESE)

_INSTANCES = sa.select(
    _TABLE.c.instance_uuid, _TABLE.c.instance).where(_THESE)

_PRESENT = sa.select(_TABLE.c.instance_uuid).where(_THESE)

_HELD = statements.by_index(
    sa.select(_TABLE.c.instance_uuid, _TABLE.c.revision,
              _TABLE.c.lease_owner)
    .where(_THESE),
    _TABLE.c.instance_uuid).with_for_update()

_ONE = sa.select(_TABLE).where(_TABLE.c.instance_uuid == sa.bindparam('uuid'))

_MANY = (
    sa.select(_TABLE, _SPECS.c.spec)
    .outerjoin(_SPECS, _SPECS.c.instance_uuid == _TABLE.c.instance_uuid)
    .where(_THESE)
    .order_by(_TABLE.c.id))


def create(
    connection: sa.Connection, requests: Iterable[objects.BuildRequest],
    now: datetime.datetime, min_count: int = 1,
    quota: request_rows.RecordedQuota | None = None, trace: str = '',
) -> None:
    """Add the requests of one batch.

    :param min_count: if fewer can be built, none is built
    :param quota: the limits that hold when they are built; None for those of
        the conductor
    :param trace: see :class:`request_rows.StoredRequest`
    """
    create_all(connection, [
        request_rows.stored_form(each)._replace(trace=trace)
        for each in requests], now, min_count, quota)


def create_all(
    connection: sa.Connection, requested: Iterable[request_rows.StoredRequest],
    now: datetime.datetime, min_count: int = 1,
    quota: request_rows.RecordedQuota | None = None,
) -> None:
    """Add the requests of one batch, given as primitives.

    The parameters are those of :func:`create`.
    """
    recorded = None if quota is None else jsonutils.dumps(quota)
    statements.insert_all(connection, _TABLE, [
        {'created_at': now, 'instance_uuid': each.uuid,
         'project_id': each.project_id, **request_rows.texts(each),
         'buried': each.buried, 'min_count': min_count, 'lease_count': 0,
         'quota': recorded}
        for each in requested])


def get(
    connection: sa.Connection, uuid: str, lock: bool = False
) -> objects.BuildRequest | None:
    """Return the request of an instance, or None.

    :param lock: whether to lock the row until the transaction ends
    """
    row = connection.execute(
        _ONE.with_for_update() if lock else _ONE, {'uuid': uuid}).first()
    return None if row is None else request_rows.from_row(row)


def read(
    connection: sa.Connection, uuids: Iterable[str]
) -> list[request_rows.LeasedRequest]:
    """Return the current requests of instances, without deleted ones."""
    return request_rows.leased([
        row for chunk in statements.chunks(uuids)
        for row in connection.execute(_MANY, {'these': chunk})])


def revise(
    connection: sa.Connection, uuid: str,
    change: Callable[[objects.BuildRequest], None],
) -> bool:
    """Change a request on behalf of its user, and increment its revision.

    A deletion that names an earlier revision then fails.

    :param change: called with the request, changes it
    :returns: whether the request exists
    :raises cellsched.exception.RequestUnreadable: the request cannot be parsed
    """
    row = connection.execute(_ONE.with_for_update(), {'uuid': uuid}).first()
    if row is None:
        return False
    request = request_rows.read(row)
    change(request)
    connection.execute(
        sa.update(_TABLE).where(_TABLE.c.id == row.id)
        .values(**request_rows.texts(request_rows.stored_form(request)),
                revision=row.revision + 1))
    return True


def explain(
    connection: sa.Connection, uuids: Iterable[str], failure: str,
    owner: str | None = None, again: bool = True,
) -> None:
    """Store why requests failed that cell0 could not record.

    :param owner: only requests that this owner still leases
    :param again: whether to replace an earlier reason
    """
    own = [] if owner is None else [_TABLE.c.lease_owner == owner]
    if not again:
        own.append(_TABLE.c.failure.is_(None))
    for chunk in statements.chunks(uuids):
        chunk = statements.lock(
            connection, _TABLE.c.instance_uuid, chunk, *own)
        connection.execute(
            sa.update(_TABLE).where(_THESE).values(failure=failure),
            {'these': chunk})


def list_all(
    connection: sa.Connection, project_ids: Collection[str] | None = None,
    uuids: Collection[str] | None = None,
) -> list[objects.BuildRequest]:
    """Return the requests of projects and instances; None means all."""
    query = (sa.select(_TABLE).where(_TABLE.c.instance_uuid.is_not(None))
             .order_by(_TABLE.c.id))
    if project_ids is not None:
        query = query.where(_TABLE.c.project_id.in_(project_ids))
    if uuids is not None:
        query = query.where(_TABLE.c.instance_uuid.in_(uuids))
    return request_rows.from_rows(connection.execute(query))


def lease(
    connection: sa.Connection, uuids: Iterable[str], owner: str, now: float,
    expires_at: float,
) -> list[request_rows.LeasedRequest]:
    """Lease requests that have no valid lease; return the leased ones.

    A missing request was deleted by its user. On PostgreSQL it is one
    statement, which needs no transaction.

    :param owner: the new owner; unique for each attempt
    :param now: seconds since the epoch
    """
    leased: list[sa.Row[Any]] = []
    for chunk in statements.chunks(uuids):
        lease_of = {
            'these': chunk, 'now': now, 'owner': owner, 'until': expires_at}
        if connection.dialect.name == 'postgresql':
            leased.extend(connection.execute(_LEASE_AND_READ, lease_of))
            continue
        if len(chunk) > 1:
            statements.lock(connection, _TABLE.c.instance_uuid, chunk)
        connection.execute(_LEASE, lease_of)
        leased.extend(connection.execute(
            _LEASED, {'these': chunk, 'owner': owner}))
    return request_rows.leased(leased)


def unlease(
    connection: sa.Connection, uuids: Iterable[str], owner: str, now: float
) -> None:
    """End the leases of an owner that did not attempt to build the requests.

    :param now: seconds since the epoch
    """
    for chunk in statements.chunks(uuids):
        connection.execute(
            sa.update(_TABLE).where(_THESE, _TABLE.c.lease_owner == owner)
            .values(lease_expires_at=now,
                    lease_count=_TABLE.c.lease_count - 1),
            {'these': chunk})


def projects(
    connection: sa.Connection, uuids: Iterable[str]
) -> dict[str, str]:
    """Return the projects of requests, by instance."""
    return {uuid: project for chunk in statements.chunks(uuids)
            for uuid, project in connection.execute(
                _PROJECTS, {'these': chunk})}


def traces(connection: sa.Connection, uuids: Iterable[str]) -> dict[str, str]:
    """Return the spans that accepted requests, by instance."""
    return {row.instance_uuid: request_rows.trace_of(row)
            for chunk in statements.chunks(uuids)
            for row in connection.execute(_INSTANCES, {'these': chunk})}


def present(connection: sa.Connection, uuids: Iterable[str]) -> set[str]:
    """Return the instances that have a request."""
    return {uuid for chunk in statements.chunks(uuids)
            for uuid in connection.execute(
                _PRESENT, {'these': chunk}).scalars()}


def renew(
    connection: sa.Connection, owners: Mapping[str, str], expires_at: float
) -> set[str]:
    """Extend leases; return the requests that their owners still lease.

    The rows stay locked until the transaction ends, so no other owner can
    lease them: writes of the same transaction are fenced.

    :param owners: the expected owner, by instance
    """
    own = [*owners] if len(owners) == 1 else [*held(connection, owners)]
    for chunk in statements.chunks(own):
        renewed = connection.execute(_RENEW, {
            'these': chunk, 'until': expires_at,
            'owners': sorted({owners[uuid] for uuid in chunk})}).rowcount
        if renewed < len(chunk):
            # The instance had a request.
            return set()
    return set(own)


def mark_unburied(connection: sa.Connection, uuids: Iterable[str]) -> None:
    """Mark locked requests as removed from cell0."""
    for chunk in statements.chunks(uuids):
        connection.execute(
            sa.update(_TABLE).where(_THESE).values(buried=False),
            {'these': chunk})


def held(
    connection: sa.Connection, owners: Mapping[str, str | None]
) -> dict[str, int]:
    """Lock requests with these owners; return their revisions.

    :param owners: the expected owner, by instance; None accepts any owner and
        no owner
    """
    return {row.instance_uuid: row.revision
            for chunk in statements.chunks(owners)
            for row in connection.execute(_HELD, {'these': chunk})
            if owners[row.instance_uuid] in (None, row.lease_owner)}


def delete(
    connection: sa.Connection, uuids: Iterable[str], owner: str | None = None,
    revisions: Mapping[str, int] | None = None,
) -> set[str]:
    """Delete requests; return the ones that this call deleted.

    The caller that deleted a request decides the outcome of the instance.

    :param owner: delete only requests that this owner still leases
    :param revisions: delete only requests with this revision; the default is
        the revision of an unchanged request
    """
    own = [] if owner is None else [_TABLE.c.lease_owner == owner]
    if revisions is None:
        return statements.delete_counted(
            connection, _TABLE.c.instance_uuid, uuids, *own)
    alike: dict[int, list[str]] = {}
    for uuid in uuids:
        alike.setdefault(revisions.get(uuid, 0), []).append(uuid)
    return {uuid for revision, those in sorted(alike.items())
            for uuid in statements.delete_counted(
                connection, _TABLE.c.instance_uuid, those, *own,
                _TABLE.c.revision == revision)}


def drop(connection: sa.Connection, uuids: Iterable[str]) -> None:
    """Delete requests that :func:`held` has locked."""
    statements.delete_locked(connection, _TABLE.c.instance_uuid, uuids)
