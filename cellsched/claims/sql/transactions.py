# SPDX-License-Identifier: Apache-2.0
"""Statements that move what is taken, each batch in one transaction.

All transactions lock in one order: server groups, allocations by consumer,
then providers by uuid, and a lane of the feed last. A provider's row is locked
before its inventories are touched and stands for them. So transactions wait
for each other, and never in a circle, but for two that are then tried again:
of several that insert the same consumer InnoDB may give up one, and a transfer
may meet a claim for both of its consumers.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import math
from typing import Any
from typing import TypeVar

import sqlalchemy as sa

from cellsched.claims import base
from cellsched.claims.sql import fragments
from cellsched.claims.sql import group_members
from cellsched.claims.sql import queries
from cellsched.claims.sql import schema
from cellsched.db import statements

_providers = schema.providers
_inventories = schema.inventories
_allocations = schema.allocations

#: Rows that a statement names one by one, so that different demands need no
#: statement each. To find what moves of a row takes as long as there are rows.
_ROWS_MAX = 20

#: What providers have in common.
_Alike = TypeVar('_Alike')


class NoRoom(Exception):
    """Something of the batch does not fit."""


def take(connection: sa.Connection, claims: Sequence[base.Claim]) -> None:
    """Take a batch for consumers that hold nothing.

    :raises oslo_db.exception.DBDuplicateEntry: one of them holds something
    :raises cellsched.exception.GroupPolicyViolated: a claim breaks a policy
    :raises NoRoom: and what was done so far has to be rolled back
    """
    group_members.lock(connection, claims)
    _insert(connection, claims)
    group_members.join(connection, claims)
    groups = fragments.group(claims)
    add = _lock_and_add if _is_simple(connection, groups) else _add
    if add is _add:
        _lock(connection, groups)
    for rows, update, parameters in _moves(groups, 1, add):
        if connection.execute(update, parameters).rowcount != rows:
            raise NoRoom()
    _note(connection, groups, 1, claims[0].consumer)


def give_back(connection: sa.Connection, consumers: Iterable[str]) -> None:
    """Give back all that the consumers hold.

    Of several that release a consumer at a time, the first one to lock its
    rows gives them back, and the others find none.
    """
    held = queries.held(connection, sorted(consumers), lock=True)
    if not held:
        return
    _give_back(connection, held)


def transfer(connection: sa.Connection, source: str, target: str) -> bool:
    """Let one consumer hold what another one held; return whether it did.

    :raises oslo_db.exception.DBDuplicateEntry: the target has taken something
        meanwhile
    """
    held = queries.held(connection, sorted([source, target]), lock=True)
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
    """Give back what consumers hold, whose allocations are locked."""
    claims = [claim for holds in held.values() for claim in holds]
    groups = fragments.group(claims)
    _lock(connection, groups)
    group_members.free(connection, held)
    for _, update, parameters in _moves(groups, -1, _subtract):
        connection.execute(update, parameters)
    _note(connection, groups, -1, claims[0].consumer)


def set_inventory(
    connection: sa.Connection, provider: str,
    inventory: Mapping[str, base.Inventory], new: bool,
) -> None:
    """Replace what a provider has.

    :param new: the provider is not there yet
    :raises oslo_db.exception.DBDuplicateEntry: it is
    """
    if new:
        connection.execute(sa.insert(_providers).values(
            uuid=provider, consumers=0, lane=0, position=0))
    groups = {fragments.BatchDemand(0, ()): [provider]}
    _lock(connection, groups)
    there = set(connection.execute(
        sa.select(_inventories.c.resource_class)
        .where(_inventories.c.provider == provider)
        .with_for_update()).scalars())
    for resource in sorted(there | inventory.keys()):
        # What is taken of a class stays known when the class is gone.
        has = inventory.get(resource, base.Inventory(total=0))
        values = {'capacity': has.capacity, **vars(has)}
        if resource in there:
            connection.execute(sa.update(_inventories).where(
                _inventories.c.provider == provider,
                _inventories.c.resource_class == resource).values(values))
        else:
            connection.execute(sa.insert(_inventories).values(
                provider=provider, resource_class=resource, used=0, **values))
    _note(connection, groups, 0, provider)


def _insert(
    connection: sa.Connection, claims: Sequence[base.Claim]
) -> None:
    if connection.dialect.name != 'postgresql':
        connection.execute(
            sa.insert(_allocations), list(fragments.rows(claims)))
    else:
        connection.execute(*fragments.inserting(claims))


def _lock(
    connection: sa.Connection,
    groups: Mapping[fragments.BatchDemand, list[str]],
) -> None:
    """Lock the providers; SQLite has locked the database already."""
    if connection.dialect.name == 'sqlite':
        return
    uuids = sorted(uuid for group in groups.values() for uuid in group)
    for chunk in statements.chunks(uuids):
        connection.execute(
            sa.select(_providers.c.uuid).where(_providers.c.uuid.in_(chunk))
            .order_by(_providers.c.uuid).with_for_update())


def _note(
    connection: sa.Connection,
    groups: Mapping[fragments.BatchDemand, list[str]],
    sign: int, key: str,
) -> None:
    """Count the consumers, and let the feed know of the providers."""
    alike: dict[int, list[str]] = {}
    for wanted, uuids in groups.items():
        alike.setdefault(wanted.consumers, []).extend(uuids)
    if _is_simple(connection, alike):
        (consumers, uuids), = alike.items()
        connection.execute(_MOVE_AND_NOTE, {
            'uuids': uuids, 'in_lane': schema.FEED.lane(key),
            'change': sign * consumers})
        return
    lane = schema.FEED.move(connection, key)
    for consumers, uuids in _chunks(alike):
        connection.execute(_NOTE, {
            'uuids': uuids, 'in_lane': lane, 'change': sign * consumers})


def _is_simple(
    connection: sa.Connection,
    groups: Mapping[_Alike, list[str]],
) -> bool:
    """Return whether PostgreSQL does in one statement what else takes two.

    It can where one statement is about all the providers.
    """
    return (connection.dialect.name == 'postgresql' and len(groups) == 1
            and max(map(len, groups.values())) <= statements.CHUNK)


def _chunks(
    groups: Mapping[_Alike, list[str]]
) -> Iterator[tuple[_Alike, list[str]]]:
    for alike, uuids in groups.items():
        for chunk in statements.chunks(uuids):
            yield alike, chunk


def _moves(
    groups: Mapping[fragments.BatchDemand, list[str]], sign: int,
    move: Callable[[int], sa.Update],
) -> Iterator[tuple[int, sa.Update, Mapping[str, Any]]]:
    """Yield statements, their parameters, and how many rows each is about.

    They are of each demand or of each row, whichever are less.

    :param sign: 1 to take it, -1 to give it back
    :param move: what returns the statement of a demand, by its classes
    """
    chunks = list(_chunks(groups))
    rows = [(uuid, share) for wanted, uuids in chunks
            for uuid in uuids for share in wanted.shares
            ] if len(chunks) > 1 else []
    if len(chunks) == 1 or len(chunks) <= math.ceil(len(rows) / _ROWS_MAX):
        for wanted, uuids in chunks:
            yield len(uuids) * len(wanted.shares), move(len(wanted.shares)), {
                'uuids': uuids, **fragments.parameters(wanted, sign)}
        return
    for start in range(0, len(rows), _ROWS_MAX):
        some = rows[start:start + _ROWS_MAX]
        yield len(some), fragments.change_rows(
            len(some), room=sign > 0), fragments.row_parameters(some, sign)


@functools.cache
def _add(classes: int) -> sa.Update:
    """Return the statement that takes room, if there is room."""
    return fragments.with_room(_move(classes), classes)


@functools.cache
def _lock_and_add(classes: int) -> sa.Update:
    """Return the statement that locks providers, in order, and takes room."""
    locked = sa.select(_providers.c.uuid).where(
        _providers.c.uuid == _ANY).order_by(
        _providers.c.uuid).with_for_update().cte('locked')
    # To count them is to lock them first.
    return fragments.with_room(fragments.change(classes).where(
        _inventories.c.provider == _ANY,
        fragments.count(locked) > 0), classes)


@functools.cache
def _subtract(classes: int) -> sa.Update:
    return _move(classes).where(_inventories.c.resource_class.in_(
        [sa.bindparam(f'resource0_{number}') for number in range(classes)]))


def _move(classes: int) -> sa.Update:
    return fragments.change(classes).where(
        _inventories.c.provider.in_(sa.bindparam('uuids', expanding=True)))


#: One of the parameter ``uuids``, an array, which PostgreSQL reads faster.
_ANY = fragments.any_of('uuids')

_moved = schema.FEED.moved()

_MOVE_AND_NOTE = sa.update(_providers).where(
    _providers.c.uuid == _ANY).values(
    consumers=_providers.c.consumers + sa.bindparam('change'),
    lane=sa.bindparam('in_lane'),
    position=sa.select(_moved.c.position).scalar_subquery())

_NOTE = sa.update(_providers).where(
    _providers.c.uuid.in_(sa.bindparam('uuids', expanding=True))).values(
    consumers=_providers.c.consumers + sa.bindparam('change'),
    **schema.FEED.marks)


_LOCK = sa.select(_providers.c.consumers).where(
    _providers.c.uuid == sa.bindparam('of')).with_for_update()

_TAKEN = sa.select(
    _allocations.c.resource_class, sa.func.sum(_allocations.c.amount),
).where(_allocations.c.provider == sa.bindparam('of')).group_by(
    _allocations.c.resource_class)

_CONSUMERS = sa.select(
    sa.func.count(_allocations.c.consumer.distinct()),
).where(_allocations.c.provider == sa.bindparam('of'))

_CAPACITIES = sa.select(
    _inventories.c.resource_class, _inventories.c.capacity,
).where(_inventories.c.provider == sa.bindparam('of')).with_for_update()


def recount(connection: sa.Connection, provider: str) -> bool:
    """Set a provider's figures right; return whether they were wrong."""
    of = {'of': provider}
    counted = connection.execute(_LOCK, of).scalar()
    if counted is None:
        return False
    taken = {resource: int(amount)
             for resource, amount in connection.execute(_TAKEN, of)}
    consumers = connection.execute(_CONSUMERS, of).scalar_one()
    capacities = {resource: capacity for resource, capacity
                  in connection.execute(_CAPACITIES, of)}
    has, used = queries.inventories(connection, [provider])
    inventory, counts = has.get(provider, {}), used.get(provider, {})
    wrong = [
        resource for resource in sorted(capacities)
        if counts[resource] != taken.get(resource, 0)
        or capacities[resource] != inventory[resource].capacity]
    for resource in wrong:
        connection.execute(
            sa.update(_inventories).where(
                _inventories.c.provider == provider,
                _inventories.c.resource_class == resource)
            .values(used=taken.get(resource, 0),
                    capacity=inventory[resource].capacity))
    lost = sorted(taken.keys() - capacities.keys())
    for resource in lost:
        nothing = base.Inventory(total=0)
        connection.execute(sa.insert(_inventories).values(
            provider=provider, resource_class=resource,
            used=taken[resource], capacity=nothing.capacity,
            **vars(nothing)))
    if not wrong and not lost and consumers == counted:
        return False
    connection.execute(
        sa.update(_providers).where(_providers.c.uuid == provider)
        .values(consumers=consumers, **schema.FEED.marks),
        {'in_lane': schema.FEED.move(connection, provider)})
    return True
