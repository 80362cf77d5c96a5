# SPDX-License-Identifier: Apache-2.0
"""Queries for builds that were accepted and have no cell yet."""

from collections.abc import Iterable
import dataclasses
import datetime
from typing import Any

from oslo_serialization import jsonutils
import sqlalchemy as sa

from cellsched.db.api import models
from cellsched.db import statements
from cellsched import objects

_TABLE = models.build_requests
_SPECS = models.request_specs


_LEASE = (
    sa.update(_TABLE)
    .where(statements.in_list(_TABLE.c.instance_uuid),
           sa.or_(_TABLE.c.lease_expires_at.is_(None),
                  _TABLE.c.lease_expires_at <= sa.bindparam('now')))
    .values(lease_owner=sa.bindparam('owner'),
            lease_expires_at=sa.bindparam('until'),
            lease_count=_TABLE.c.lease_count + 1))

_LEASED = (
    sa.select(_TABLE, _SPECS.c.spec)
    .join(_SPECS, _SPECS.c.instance_uuid == _TABLE.c.instance_uuid)
    .where(statements.in_list(_TABLE.c.instance_uuid),
           _TABLE.c.lease_owner == sa.bindparam('owner'))
    .order_by(_TABLE.c.id))

_RENEW = (
    sa.update(_TABLE)
    .where(statements.in_list(_TABLE.c.instance_uuid),
           _TABLE.c.lease_owner == sa.bindparam('owner'))
    .values(lease_expires_at=sa.bindparam('until')))

_RENEWED = sa.select(_TABLE.c.instance_uuid).where(
    statements.in_list(_TABLE.c.instance_uuid),
    _TABLE.c.lease_owner == sa.bindparam('owner'))

_ONE = sa.select(_TABLE).where(_TABLE.c.instance_uuid == sa.bindparam('uuid'))


@dataclasses.dataclass(frozen=True)
class Leased:
    """A request that was taken up, and what was asked for.

    :param min_count: how many of its batch must be built for any to be
    :param again: whether it was taken up before, and not brought to an end
    """

    request: objects.BuildRequest
    spec: objects.RequestSpec
    min_count: int
    again: bool = False


def create(
    connection: sa.Connection, requests: Iterable[objects.BuildRequest],
    now: datetime.datetime, min_count: int = 1,
) -> None:
    """Add the requests of one batch.

    :param min_count: how many of them must be built for any to be
    """
    connection.execute(sa.insert(_TABLE), [
        {'created_at': now, 'instance_uuid': request.instance_uuid,
         'project_id': request.project_id,
         'instance': jsonutils.dumps(request.instance.obj_to_primitive()),
         'min_count': min_count, 'lease_count': 0}
        for request in requests])


def get(
    connection: sa.Connection, uuid: str
) -> objects.BuildRequest | None:
    """Return the request of an instance, or None."""
    row = connection.execute(_ONE, {'uuid': uuid}).first()
    return None if row is None else _from_row(row)


def list_all(
    connection: sa.Connection, project_id: str | None = None,
    limit: int | None = None,
) -> list[objects.BuildRequest]:
    """Return requests, the newest first."""
    query = sa.select(_TABLE).order_by(_TABLE.c.id.desc()).limit(limit)
    if project_id is not None:
        query = query.where(_TABLE.c.project_id == project_id)
    return [_from_row(row) for row in connection.execute(query)]


def lease(
    connection: sa.Connection, uuids: Iterable[str], owner: str, now: float,
    expires_at: float,
) -> list[Leased]:
    """Take requests up; return those that nobody else is working on.

    Requests that are gone were deleted by their user.

    :param owner: who takes them; every try has a name of its own
    :param now: seconds since the epoch
    """
    leased: list[sa.Row[Any]] = []
    for chunk in statements.chunks(uuids):
        if len(chunk) > 1:
            statements.lock(connection, _TABLE.c.instance_uuid, chunk)
        connection.execute(_LEASE, {
            'these': chunk, 'now': now, 'owner': owner, 'until': expires_at})
        leased.extend(connection.execute(
            _LEASED, {'these': chunk, 'owner': owner}))
    return [
        Leased(
            request=_from_row(row), min_count=row.min_count,
            again=row.lease_count > 1,
            spec=objects.RequestSpec.obj_from_primitive(
                jsonutils.loads(row.spec)))
        for row in leased]


def list_overdue(
    connection: sa.Connection, now: float, created_before: datetime.datetime,
    limit: int,
) -> list[str]:
    """Return instances whose build nobody works on, the oldest first.

    Their lease ran out, or they were accepted and never taken up.

    :param now: seconds since the epoch
    """
    return list(connection.execute(
        sa.select(_TABLE.c.instance_uuid)
        .where(sa.or_(
            _TABLE.c.lease_expires_at <= now,
            sa.and_(_TABLE.c.lease_expires_at.is_(None),
                    _TABLE.c.created_at <= created_before)))
        .order_by(_TABLE.c.id).limit(limit)).scalars())


def list_batch(connection: sa.Connection, uuid: str) -> list[str]:
    """Return the instances that were accepted together with one, in order.

    It is one of them, unless its request is gone.
    """
    of = _TABLE.alias()
    batches: dict[str, str] = {}
    for row in connection.execute(
            sa.select(_TABLE.c.instance_uuid, _TABLE.c.instance)
            .join(of, sa.and_(of.c.created_at == _TABLE.c.created_at,
                              of.c.project_id == _TABLE.c.project_id))
            .where(of.c.instance_uuid == uuid).order_by(_TABLE.c.id)):
        data = jsonutils.loads(row.instance).get('nova_object.data', {})
        batches[row.instance_uuid] = data.get(
            'reservation_id', row.instance_uuid)
    return [each for each, batch in batches.items() if batch == batches[uuid]]


def renew(
    connection: sa.Connection, uuids: Iterable[str], owner: str,
    expires_at: float,
) -> set[str]:
    """Lease requests for longer; return those that are the owner's still.

    Until the transaction ends nobody else can take these up, so it fences
    what is written in the same transaction.
    """
    mine: set[str] = set()
    for chunk in statements.chunks(uuids):
        if len(chunk) > 1:
            statements.lock(connection, _TABLE.c.instance_uuid, chunk)
        renewed = connection.execute(_RENEW, {
            'these': chunk, 'owner': owner, 'until': expires_at}).rowcount
        mine.update(chunk if renewed == len(chunk) else connection.execute(
            _RENEWED, {'these': chunk, 'owner': owner}).scalars())
    return mine


def delete(
    connection: sa.Connection, uuids: Iterable[str], owner: str | None = None
) -> set[str]:
    """Delete requests; return those that this call deleted.

    Who is told so owns what becomes of the instance.

    :param owner: delete only what it has leased, and nobody else since
    """
    mine = [] if owner is None else [_TABLE.c.lease_owner == owner]
    return statements.delete_counted(
        connection, _TABLE.c.instance_uuid, uuids, *mine)


def _from_row(row: sa.Row[Any]) -> objects.BuildRequest:
    return objects.BuildRequest(
        id=row.id, instance_uuid=row.instance_uuid, project_id=row.project_id,
        created_at=row.created_at, updated_at=row.updated_at,
        instance=objects.Instance.obj_from_primitive(
            jsonutils.loads(row.instance)))
