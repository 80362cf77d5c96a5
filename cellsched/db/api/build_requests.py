# SPDX-License-Identifier: Apache-2.0
"""Queries for builds that were accepted and have no cell yet."""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import datetime
from typing import Any

import sqlalchemy as sa

from cellsched.db.api import models
from cellsched.db.api import request_rows
from cellsched.db import statements
from cellsched import objects

_TABLE = models.build_requests
_SPECS = models.request_specs

_INSERT = sa.insert(_TABLE).inline()

# MariaDB would look for what has expired by the index of that, and lock what
# is none of these.
_LEASE = (
    sa.update(_TABLE)
    .where(statements.in_list(_TABLE.c.instance_uuid),
           sa.func.coalesce(_TABLE.c.lease_expires_at, 0.0)
           <= sa.bindparam('now'))
    .values(lease_owner=sa.bindparam('owner'),
            lease_expires_at=sa.bindparam('until'),
            lease_count=_TABLE.c.lease_count + 1))

_LEASED = (
    sa.select(_TABLE, _SPECS.c.spec)
    .outerjoin(_SPECS, _SPECS.c.instance_uuid == _TABLE.c.instance_uuid)
    .where(statements.in_list(_TABLE.c.instance_uuid),
           _TABLE.c.lease_owner == sa.bindparam('owner'))
    .order_by(_TABLE.c.id))

_RENEW = (
    sa.update(_TABLE)
    .where(statements.in_list(_TABLE.c.instance_uuid),
           statements.in_list(_TABLE.c.lease_owner, 'owners'))
    .values(lease_expires_at=sa.bindparam('until')))

_PRESENT = sa.select(_TABLE.c.instance_uuid).where(
    statements.in_list(_TABLE.c.instance_uuid))

_HELD = statements.by_index(
    sa.select(_TABLE.c.instance_uuid, _TABLE.c.revision,
              _TABLE.c.lease_owner)
    .where(statements.in_list(_TABLE.c.instance_uuid)),
    _TABLE.c.instance_uuid).with_for_update()

_ONE = sa.select(_TABLE).where(_TABLE.c.instance_uuid == sa.bindparam('uuid'))

_MANY = (
    sa.select(_TABLE, _SPECS.c.spec)
    .outerjoin(_SPECS, _SPECS.c.instance_uuid == _TABLE.c.instance_uuid)
    .where(statements.in_list(_TABLE.c.instance_uuid))
    .order_by(_TABLE.c.id))


def create(
    connection: sa.Connection, requests: Iterable[objects.BuildRequest],
    now: datetime.datetime, min_count: int = 1,
) -> None:
    """Add the requests of one batch.

    :param min_count: how many of them must be built for any to be
    """
    create_all(connection, map(request_rows.wanted, requests), now, min_count)


def create_all(
    connection: sa.Connection, wanted: Iterable[request_rows.Wanted],
    now: datetime.datetime, min_count: int = 1,
) -> None:
    """Add the requests of one batch, of which there are no objects.

    :param min_count: how many of them must be built for any to be
    """
    statements.insert_all(connection, _INSERT, [
        {'created_at': now, 'instance_uuid': each.uuid,
         'project_id': each.project_id, **request_rows.texts(each),
         'buried': each.buried, 'min_count': min_count, 'lease_count': 0}
        for each in wanted])


def get(
    connection: sa.Connection, uuid: str, lock: bool = False
) -> objects.BuildRequest | None:
    """Return the request of an instance, or None.

    :param lock: whether it is to stay as it is until the transaction ends
    """
    row = connection.execute(
        _ONE.with_for_update() if lock else _ONE, {'uuid': uuid}).first()
    return None if row is None else request_rows.from_row(row)


def read(
    connection: sa.Connection, uuids: Iterable[str]
) -> list[request_rows.Leased]:
    """Return requests as they are now; those that are gone are left out."""
    return request_rows.leased([
        row for chunk in statements.chunks(uuids)
        for row in connection.execute(_MANY, {'these': chunk})])


def revise(
    connection: sa.Connection, uuid: str,
    change: Callable[[objects.BuildRequest], None],
) -> bool:
    """Change what is asked for, as its user wants it now.

    Who has read it before finds another revision when it is deleted.

    :param change: is given the request, and changes it
    :returns: whether there is a request
    :raises cellsched.exception.RequestUnreadable: it cannot be read
    """
    row = connection.execute(
        _ONE.with_for_update(), {'uuid': uuid}).first()
    if row is None:
        return False
    request = request_rows.read(row)
    change(request)
    connection.execute(
        sa.update(_TABLE).where(_TABLE.c.id == row.id)
        .values(**request_rows.texts(request_rows.wanted(request)),
                revision=row.revision + 1))
    return True


def explain(
    connection: sa.Connection, uuids: Iterable[str], failure: str,
    owner: str | None = None, again: bool = True,
) -> None:
    """Say why requests failed that stay nevertheless.

    :param owner: say it only of what it has leased, and nobody else since
    :param again: say it also where something was said before
    """
    mine = [] if owner is None else [_TABLE.c.lease_owner == owner]
    if not again:
        mine.append(_TABLE.c.failure.is_(None))
    for chunk in statements.chunks(uuids):
        chunk = statements.lock(
            connection, _TABLE.c.instance_uuid, chunk, *mine)
        connection.execute(
            sa.update(_TABLE).where(_TABLE.c.instance_uuid.in_(chunk))
            .values(failure=failure))


def list_all(
    connection: sa.Connection, project_ids: Collection[str] | None = None,
    uuids: Collection[str] | None = None,
) -> list[objects.BuildRequest]:
    """Return the requests of these projects and instances, or of all."""
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
) -> list[request_rows.Leased]:
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
    return request_rows.leased(leased)


def present(connection: sa.Connection, uuids: Iterable[str]) -> set[str]:
    """Return those instances that have a request."""
    return {uuid for chunk in statements.chunks(uuids)
            for uuid in connection.execute(
                _PRESENT, {'these': chunk}).scalars()}


def renew(
    connection: sa.Connection, owners: Mapping[str, str], expires_at: float
) -> set[str]:
    """Lease requests for longer; return those that are their owners' still.

    Until the transaction ends nobody else can take these up, so it fences
    what is written in the same transaction.

    :param owners: who has leased them, by instance
    """
    mine = [*owners] if len(owners) == 1 else [*held(connection, owners)]
    for chunk in statements.chunks(mine):
        renewed = connection.execute(_RENEW, {
            'these': chunk, 'until': expires_at,
            'owners': sorted({owners[uuid] for uuid in chunk})}).rowcount
        if renewed < len(chunk):
            # There was one.
            return set()
    return set(mine)


def mark_unburied(connection: sa.Connection, uuids: Iterable[str]) -> None:
    """Say that nothing lies in cell0 any more of requests that are held."""
    for chunk in statements.chunks(uuids):
        connection.execute(
            sa.update(_TABLE).where(_TABLE.c.instance_uuid.in_(chunk))
            .values(buried=False))


def held(
    connection: sa.Connection, owners: Mapping[str, str | None]
) -> dict[str, int]:
    """Return the requests that are leased by these, with their revisions.

    That stays so until the transaction ends.

    :param owners: who has leased them, by instance; None for anybody or
        nobody
    """
    return {row.instance_uuid: row.revision
            for chunk in statements.chunks(owners)
            for row in connection.execute(_HELD, {'these': chunk})
            if owners[row.instance_uuid] in (None, row.lease_owner)}


def delete(
    connection: sa.Connection, uuids: Iterable[str], owner: str | None = None,
    revisions: Mapping[str, int] | None = None,
) -> set[str]:
    """Delete requests; return those that this call deleted.

    Who is told so owns what becomes of the instance.

    :param owner: delete only what it has leased, and nobody else since
    :param revisions: delete only what its user has not changed since it was
        read in this revision; one that is not named was read as accepted
    """
    mine = [] if owner is None else [_TABLE.c.lease_owner == owner]
    if revisions is None:
        return statements.delete_counted(
            connection, _TABLE.c.instance_uuid, uuids, *mine)
    alike: dict[int, list[str]] = {}
    for uuid in uuids:
        alike.setdefault(revisions.get(uuid, 0), []).append(uuid)
    return {uuid for revision, those in sorted(alike.items())
            for uuid in statements.delete_counted(
                connection, _TABLE.c.instance_uuid, those, *mine,
                _TABLE.c.revision == revision)}


def drop(connection: sa.Connection, uuids: Iterable[str]) -> None:
    """Delete requests that are held, as :func:`held` says."""
    statements.delete_locked(connection, _TABLE.c.instance_uuid, uuids)
