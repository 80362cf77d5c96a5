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
import dataclasses

import sqlalchemy as sa

from cellsched.claims import base
from cellsched.claims.sql import fragments
from cellsched.claims.sql import group_members
from cellsched.claims.sql import queries
from cellsched.claims.sql import schema
from cellsched.db import guarded_statements
from cellsched.db import statements

_providers = schema.providers
_inventories = schema.inventories
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


def set_inventory(
    connection: sa.Connection, provider: str,
    inventory: Mapping[str, base.Inventory], new: bool,
) -> None:
    """Replace the inventory of a provider.

    :param new: whether to create the provider
    :raises oslo_db.exception.DBDuplicateEntry: it exists already
    """
    if new:
        connection.execute(sa.insert(_providers).values(
            uuid=provider, consumers=0, lane=0, position=0))
    demands = {provider: fragments.BatchDemand(0, ())}
    _lock(connection, demands)
    existing = set(connection.execute(
        sa.select(_inventories.c.resource_class)
        .where(_inventories.c.provider == provider)
        .with_for_update()).scalars())
    for resource in sorted(existing | inventory.keys()):
        # The used amount of a removed class is kept.
        has = inventory.get(resource, base.Inventory(total=0))
        values = {'capacity': has.capacity, **vars(has)}
        if resource in existing:
            connection.execute(sa.update(_inventories).where(
                _inventories.c.provider == provider,
                _inventories.c.resource_class == resource).values(values))
        else:
            connection.execute(sa.insert(_inventories).values(
                provider=provider, resource_class=resource, used=0, **values))
    _note(connection, demands, 0, provider)


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


_STATE = sa.select(
    _providers.c.consumers, _providers.c.lane, _providers.c.position,
).where(_providers.c.uuid == sa.bindparam('of'))

_TAKEN = sa.select(
    _allocations.c.resource_class, sa.func.sum(_allocations.c.amount),
).where(_allocations.c.provider == sa.bindparam('of')).group_by(
    _allocations.c.resource_class)

_CONSUMERS = sa.select(
    sa.func.count(_allocations.c.consumer.distinct()),
).where(_allocations.c.provider == sa.bindparam('of'))

_CAPACITIES = sa.select(
    _inventories.c.resource_class, _inventories.c.capacity,
).where(_inventories.c.provider == sa.bindparam('of'))


@dataclasses.dataclass(frozen=True)
class Correction:
    """The right counters of a provider.

    :param lane: of the feed, as the provider was read
    :param position: likewise; each change of the counters changes it
    :param consumers: number of consumers
    :param wrong: used amounts and capacities by resource class, of rows that
        have others
    :param lost: used amounts by resource class, of rows that are missing
    """

    lane: int
    position: int
    consumers: int
    wrong: Mapping[str, tuple[int, int]]
    lost: Mapping[str, int]


def find_correction(
    connection: sa.Connection, provider: str
) -> Correction | None:
    """Return the right counters of a provider, or None if it has them.

    The position is read first. It has changed by the end of any concurrent
    transaction that the later reads can see.
    """
    of = {'of': provider}
    state = connection.execute(_STATE, of).one_or_none()
    if state is None:
        return None
    counted, lane, position = state
    taken = {resource: int(amount)
             for resource, amount in connection.execute(_TAKEN, of)}
    consumers = connection.execute(_CONSUMERS, of).scalar_one()
    capacities = {resource: capacity for resource, capacity
                  in connection.execute(_CAPACITIES, of)}
    has, used = queries.inventories(connection, [provider])
    counts = used.get(provider, {})
    wrong = {}
    for resource, inventory in sorted(has.get(provider, {}).items()):
        right = taken.get(resource, 0), inventory.capacity
        if right != (counts[resource], capacities.get(resource)):
            wrong[resource] = right
    lost = {resource: taken[resource]
            for resource in sorted(taken.keys() - counts.keys())}
    if not wrong and not lost and consumers == counted:
        return None
    return Correction(lane, position, consumers, wrong, lost)


def correct(
    connection: sa.Connection, provider: str, correction: Correction
) -> None:
    """Write the right counters of a provider.

    :raises cellsched.db.guarded_statements.StatementRefused: the provider has
        changed since they were read
    """
    state = connection.execute(
        _STATE.with_for_update(), {'of': provider}).one()
    if (state.lane, state.position) != (correction.lane, correction.position):
        raise guarded_statements.StatementRefused
    for resource, (used, capacity) in correction.wrong.items():
        connection.execute(
            sa.update(_inventories).where(
                _inventories.c.provider == provider,
                _inventories.c.resource_class == resource)
            .values(used=used, capacity=capacity))
    nothing = base.Inventory(total=0)
    for resource, used in correction.lost.items():
        connection.execute(sa.insert(_inventories).values(
            provider=provider, resource_class=resource, used=used,
            capacity=nothing.capacity, **vars(nothing)))
    connection.execute(
        sa.update(_providers).where(_providers.c.uuid == provider)
        .values(consumers=correction.consumers, **schema.FEED.marks),
        {'in_lane': schema.FEED.move(connection, provider)})
