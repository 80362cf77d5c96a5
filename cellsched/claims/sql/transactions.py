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

#: Inventories that one statement changes. The time to find each row grows with
#: this number.
_ROWS_MAX = 20


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
    demands = fragments.demands(claims)
    _lock(connection, demands)
    _count(connection, demands, 1)
    _note(connection, demands, 1, claims[0].consumer)


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
    claims = [claim for holds in held.values() for claim in holds]
    demands = fragments.demands(claims)
    _lock(connection, demands)
    group_members.free(connection, held)
    _count(connection, demands, -1)
    _note(connection, demands, -1, claims[0].consumer)


def _lock(connection: sa.Connection, uuids: Iterable[str]) -> None:
    """Lock the providers; SQLite has locked the whole database already."""
    if connection.dialect.name == 'sqlite':
        return
    for chunk in statements.chunks(sorted(uuids)):
        connection.execute(
            sa.select(_providers.c.uuid).where(_providers.c.uuid.in_(chunk))
            .order_by(_providers.c.uuid).with_for_update())


def _note(
    connection: sa.Connection, demands: Mapping[str, fragments.BatchDemand],
    sign: int, key: str,
) -> None:
    """Update the number of consumers, and move providers in the feed."""
    alike: dict[int, list[str]] = {}
    for uuid, demand in demands.items():
        alike.setdefault(demand.consumers, []).append(uuid)
    lane = schema.FEED.move(connection, key)
    for consumers, uuids in alike.items():
        for chunk in statements.chunks(uuids):
            connection.execute(_NOTE, {
                'uuids': chunk, 'in_lane': lane, 'change': sign * consumers})


def _count(
    connection: sa.Connection, demands: Mapping[str, fragments.BatchDemand],
    sign: int,
) -> None:
    """Add the demands to the used amounts.

    :param sign: 1 to claim, -1 to release
    :raises InsufficientCapacity: a claim does not fit
    """
    rows = [(uuid, share) for uuid, demand in demands.items()
            for share in demand.shares]
    for start in range(0, len(rows), _ROWS_MAX):
        some = rows[start:start + _ROWS_MAX]
        changed = connection.execute(
            fragments.change_rows(len(some), room=sign > 0),
            fragments.row_parameters(some, sign)).rowcount
        if sign > 0 and changed < len(some):
            raise InsufficientCapacity()


_NOTE = sa.update(_providers).where(
    _providers.c.uuid.in_(sa.bindparam('uuids', expanding=True))).values(
    consumers=_providers.c.consumers + sa.bindparam('change'),
    **schema.FEED.marks)
