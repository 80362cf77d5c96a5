# SPDX-License-Identifier: Apache-2.0
"""Statements that say what is there and who holds it."""

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses

import sqlalchemy as sa

from cellsched.claims import base
from cellsched.claims.sql import schema
from cellsched.db import statements

_providers = schema.providers
_inventories = schema.inventories
_allocations = schema.allocations

_INVENTORY_FIELDS = tuple(
    field.name for field in dataclasses.fields(base.Inventory))

_UNBOUNDED = base.Units()

_HELD = sa.select(
    _allocations.c.consumer, _allocations.c.provider,
    _allocations.c.resource_class, _allocations.c.amount,
    _allocations.c.project_id, _allocations.c.user_id,
).where(statements.in_list(_allocations.c.consumer)).order_by(
    _allocations.c.consumer, _allocations.c.ordinal)

_HELD_LOCKED = _HELD.with_for_update()

#: By the key alone; each consumer has a first row.
_CONSUMERS = sa.select(_allocations.c.consumer).where(
    _allocations.c.ordinal == 0,
    _allocations.c.consumer > sa.bindparam('after'),
).order_by(_allocations.c.consumer).limit(sa.bindparam('most'))


def held(
    connection: sa.Connection, consumers: Iterable[str], lock: bool = False
) -> dict[str, list[base.Claim]]:
    """Return what these consumers hold.

    :param lock: lock the rows, in the order of consumers
    """
    found: dict[str, dict[str, dict[str, int]]] = {}
    owners: dict[str, list[str | None]] = {}
    for chunk in statements.chunks(consumers):
        for consumer, provider, resource, amount, *owner in connection.execute(
                _HELD_LOCKED if lock else _HELD, {'these': chunk}):
            # The row that has it comes first.
            owners.setdefault(consumer, owner)
            found.setdefault(consumer, {}).setdefault(
                provider, {})[resource] = amount
    return {consumer: [
        base.Claim(consumer, provider, resources, None, *owners[consumer])
        for provider, resources in holds.items()]
        for consumer, holds in found.items()}


def consumers(
    connection: sa.Connection, after: str, limit: int
) -> list[str]:
    """Return consumers that hold something and come after another one."""
    return list(connection.execute(
        _CONSUMERS, {'after': after, 'most': limit}).scalars())


def inventories(
    connection: sa.Connection, providers: Iterable[str] | None
) -> tuple[dict[str, dict[str, base.Inventory]], dict[str, dict[str, int]]]:
    """Return what providers have and what is taken, by resource class.

    :param providers: None for all
    """
    has: dict[str, dict[str, base.Inventory]] = {}
    used: dict[str, dict[str, int]] = {}
    columns = _inventories.c
    query = sa.select(
        columns.provider, columns.resource_class, columns.used,
        *(columns[name] for name in _INVENTORY_FIELDS))
    parts = [query] if providers is None else [
        query.where(columns.provider.in_(chunk))
        for chunk in statements.chunks(providers)]
    for each in parts:
        for provider, resource, taken, *fields in connection.execute(each):
            has.setdefault(provider, {})[resource] = base.Inventory(*fields)
            used.setdefault(provider, {})[resource] = taken
    return has, used


def inventory(
    connection: sa.Connection, provider: str
) -> dict[str, base.Inventory] | None:
    """Return what a provider has, or None where it is not known."""
    if connection.execute(sa.select(_providers.c.uuid).where(
            _providers.c.uuid == provider)).one_or_none() is None:
        return None
    return inventories(connection, [provider])[0].get(provider, {})


def usages(
    connection: sa.Connection, *conditions: sa.ColumnElement[bool]
) -> list[base.Usage]:
    """Return the providers for which the conditions hold."""
    columns = _inventories.c
    rows = connection.execute(sa.select(
        _providers.c.uuid, _providers.c.consumers,
        columns.resource_class, columns.capacity, columns.used,
        columns.min_unit, columns.max_unit, columns.step_size,
    ).outerjoin_from(
        _providers, _inventories, columns.provider == _providers.c.uuid,
    ).where(*conditions))
    found: dict[str, tuple[dict[str, int], dict[str, int], int,
                           dict[str, base.Units]]] = {}
    for uuid, consumers, resource, capacity, used, *units in rows:
        known = found.get(uuid)
        if known is None:
            known = found[uuid] = {}, {}, consumers, {}
        if resource is not None:
            known[0][resource] = capacity
            known[1][resource] = used
            bounds = base.Units(*units)
            if bounds != _UNBOUNDED:
                known[3][resource] = bounds
    return [base.Usage(uuid, *known) for uuid, known in found.items()]


def named(providers: Sequence[str]) -> sa.ColumnElement[bool]:
    """Return the condition of being one of these providers."""
    return _providers.c.uuid.in_(providers)
