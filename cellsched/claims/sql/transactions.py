# SPDX-License-Identifier: Apache-2.0
"""Writes of the store on SQLite and MySQL, each in one transaction.

They take several statements, and SQLite has no clients that go silent. On
PostgreSQL and MariaDB a write is one round trip.

All transactions lock in the same order: server groups, allocations by
consumer, providers by uuid, and a lane of the feed last. A provider's row is
locked before its inventories are changed, and protects them. So transactions
wait for each other without deadlocks, with two exceptions that are retried:
concurrent inserts of one consumer on InnoDB, and a transfer concurrent with a
claim of both of its consumers.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence

import sqlalchemy as sa

from cellsched.claims import base
from cellsched.claims.sql import fragments
from cellsched.claims.sql import group_members
from cellsched.claims.sql import queries
from cellsched.claims.sql import schema
from cellsched.db import statements

_providers = schema.providers
_allocations = schema.allocations
_inventories = schema.inventories

_columns = _inventories.c

#: Changes the used amounts of a resource class of some providers.
_CHANGE = sa.update(_inventories).where(
    _columns.provider.in_(sa.bindparam('uuids', expanding=True)),
    _columns.resource_class == sa.bindparam('resource'),
).values(used=_columns.used + sa.bindparam('amount'))

#: The same, of those with capacity.
_CLAIM = _CHANGE.where(
    _columns.used + sa.bindparam('amount') <= _columns.capacity,
    _columns.min_unit <= sa.bindparam('smallest'),
    _columns.max_unit >= sa.bindparam('largest'),
    sa.bindparam('divisor', type_=sa.BigInteger) % _columns.step_size == 0)


class InsufficientCapacity(Exception):
    """A claim of the batch does not fit."""


def claim(connection: sa.Connection, claims: Sequence[base.Claim]) -> None:
    """Claim a batch for consumers that hold nothing.

    :raises oslo_db.exception.DBDuplicateEntry: a consumer holds claims
    :raises cellsched.exception.GroupPolicyViolated: a claim violates a policy
    :raises InsufficientCapacity: a claim does not fit; the caller rolls the
        transaction back
    """
    group_members.lock(connection, claims)
    connection.execute(sa.insert(_allocations), list(fragments.rows(claims)))
    group_members.join(connection, claims)
    _count(connection, claims, 1)


def release(connection: sa.Connection, consumers: Iterable[str]) -> None:
    """Release all claims of the consumers.

    Of several concurrent releases of a consumer, the first one to lock its
    rows releases it, and the others find no rows.
    """
    held = queries.claims_of(connection, sorted(consumers), lock=True)
    if not held:
        return
    _give_back(connection, held)


def transfer(connection: sa.Connection, source: str, target: str) -> bool:
    """Transfer the claims of one consumer; return whether it held any.

    :raises oslo_db.exception.DBDuplicateEntry: the target has claimed
        something concurrently
    """
    held = queries.claims_of(connection, sorted([source, target]), lock=True)
    if source not in held:
        return False
    del held[source]
    if held:
        _give_back(connection, held)
    connection.execute(sa.update(_allocations).where(
        _allocations.c.consumer == source).values(consumer=target))
    group_members.follow(connection, source, target)
    return True


def _give_back(
    connection: sa.Connection, held: Mapping[str, Sequence[base.Claim]]
) -> None:
    """Release consumers with locked allocations."""
    group_members.free(connection, held)
    _count(connection, [
        claim for holds in held.values() for claim in holds], -1)


def _lock(connection: sa.Connection, uuids: Iterable[str]) -> None:
    """Lock the providers; SQLite has locked the whole database already."""
    if connection.dialect.name == 'sqlite':
        return
    for chunk in statements.chunks(sorted(uuids)):
        connection.execute(
            sa.select(_providers.c.uuid).where(_providers.c.uuid.in_(chunk))
            .order_by(_providers.c.uuid).with_for_update())


def _count(
    connection: sa.Connection, claims: Sequence[base.Claim], sign: int
) -> None:
    """Add claims to the counters of their providers.

    :param sign: 1 to claim, -1 to release
    :raises InsufficientCapacity: a claim does not fit
    """
    grouped = [
        (demand, chunk) for demand, uuids in fragments.group(claims).items()
        for chunk in statements.chunks(uuids)]
    # 1. Lock the providers, and change their used amounts.
    _lock(connection, {claim.provider for claim in claims})
    for demand, uuids in grouped:
        for share in demand.shares:
            changed = connection.execute(_CLAIM if sign > 0 else _CHANGE, {
                'uuids': uuids, 'resource': share.resource,
                'amount': sign * share.amount, 'smallest': share.smallest,
                'largest': share.largest, 'divisor': share.divisor}).rowcount
            if sign > 0 and changed < len(uuids):
                raise InsufficientCapacity()
    # 2. Change the numbers of consumers, and move the providers in the feed.
    lane = schema.FEED.move(connection, claims[0].consumer)
    for demand, uuids in grouped:
        connection.execute(_NOTE, {
            'uuids': uuids, 'in_lane': lane,
            'change': sign * demand.consumers})


_NOTE = sa.update(_providers).where(
    _providers.c.uuid.in_(sa.bindparam('uuids', expanding=True))).values(
    consumers=_providers.c.consumers + sa.bindparam('change'),
    **schema.FEED.marks)
