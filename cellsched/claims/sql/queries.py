# SPDX-License-Identifier: Apache-2.0
"""Queries of claims and providers, and the traits of providers."""

from collections.abc import Collection
from collections.abc import Iterable
import dataclasses
from typing import Any

import sqlalchemy as sa

from cellsched.claims import base
from cellsched.claims.sql import schema
from cellsched.db import feed
from cellsched.db import statements

_providers = schema.providers
_inventories = schema.inventories
_allocations = schema.allocations

_INVENTORY_FIELDS = tuple(
    field.name for field in dataclasses.fields(base.Inventory))

_UNBOUNDED = base.Units()

_INVENTORIES = sa.select(
    _inventories.c.provider, _inventories.c.resource_class,
    _inventories.c.used,
    *(_inventories.c[name] for name in _INVENTORY_FIELDS))

_INVENTORIES_OF = _INVENTORIES.where(
    statements.in_list(_inventories.c.provider))

_HELD = sa.select(
    _allocations.c.consumer, _allocations.c.provider,
    _allocations.c.resource_class, _allocations.c.amount,
    _allocations.c.project_id, _allocations.c.user_id,
).where(statements.in_list(_allocations.c.consumer)).order_by(
    _allocations.c.consumer, _allocations.c.ordinal)

_HELD_LOCKED = _HELD.with_for_update()

#: Uses the primary key; each consumer has a row with the ordinal 0.
_CONSUMERS = sa.select(_allocations.c.consumer).where(
    _allocations.c.ordinal == 0,
    _allocations.c.consumer > sa.bindparam('after'),
).order_by(_allocations.c.consumer).limit(sa.bindparam('most'))


def claims_of(
    connection: sa.Connection, consumers: Iterable[str], lock: bool = False
) -> dict[str, list[base.Claim]]:
    """Return the claims of consumers.

    :param lock: lock the rows, ordered by consumer
    """
    found: dict[str, dict[str, dict[str, int]]] = {}
    owners: dict[str, list[str | None]] = {}
    for chunk in statements.chunks(consumers):
        for consumer, provider, resource, amount, *owner in connection.execute(
                _HELD_LOCKED if lock else _HELD, {'these': chunk}):
            # The first row of a consumer has its project and user.
            owners.setdefault(consumer, owner)
            found.setdefault(consumer, {}).setdefault(
                provider, {})[resource] = amount
    return {consumer: [
        base.Claim(consumer, provider, resources, None, *owners[consumer])
        for provider, resources in holds.items()]
        for consumer, holds in found.items()}


def consumers(connection: sa.Connection, after: str, limit: int) -> list[str]:
    """Return a page of the consumers with claims."""
    return list(connection.execute(
        _CONSUMERS, {'after': after, 'most': limit}).scalars())


def inventories(
    connection: sa.Connection, providers: Iterable[str] | None
) -> tuple[dict[str, dict[str, base.Inventory]], dict[str, dict[str, int]]]:
    """Return inventories and used amounts, by provider and resource class.

    :param providers: None for all
    """
    has: dict[str, dict[str, base.Inventory]] = {}
    used: dict[str, dict[str, int]] = {}
    results = [connection.execute(_INVENTORIES)] if providers is None else (
        connection.execute(_INVENTORIES_OF, {'these': chunk})
        for chunk in statements.chunks(providers))
    for rows in results:
        for provider, resource, taken, *fields in rows:
            has.setdefault(provider, {})[resource] = base.Inventory(*fields)
            used.setdefault(provider, {})[resource] = taken
    return has, used


_INVENTORY = sa.select(
    _inventories.c.resource_class,
    *(_inventories.c[name] for name in _INVENTORY_FIELDS),
).outerjoin_from(
    _providers, _inventories, _inventories.c.provider == _providers.c.uuid,
).where(_providers.c.uuid == sa.bindparam('of'))


def inventory(
    connection: sa.Connection, provider: str
) -> dict[str, base.Inventory] | None:
    """Return the inventory of a provider; None if it is unknown."""
    rows = connection.execute(_INVENTORY, {'of': provider}).all()
    if not rows:
        return None
    return {resource: base.Inventory(*fields)
            for resource, *fields in rows if resource is not None}


_USAGES = sa.select(
    _providers.c.uuid, _providers.c.consumers,
    *(_inventories.c[name] for name in (
        'resource_class', 'capacity', 'used', 'min_unit', 'max_unit',
        'step_size')),
).outerjoin_from(
    _providers, _inventories, _inventories.c.provider == _providers.c.uuid)

_USAGES_OF = _USAGES.where(statements.in_list(_providers.c.uuid))

_CHANGED_USAGES = _USAGES.where(schema.FEED.changed(_providers))


def usages(connection: sa.Connection) -> list[base.Usage]:
    """Return the usage of all providers."""
    return _usages(connection.execute(_USAGES))


def usages_of(
    connection: sa.Connection, providers: Iterable[str]
) -> list[base.Usage]:
    """Return the usage of these providers."""
    return [usage for chunk in statements.chunks(providers)
            for usage in _usages(connection.execute(
                _USAGES_OF, {'these': chunk}))]


def changed_usages(
    connection: sa.Connection, since: feed.Token
) -> list[base.Usage]:
    """Return the usage of the providers that changed since a token."""
    return _usages(connection.execute(
        _CHANGED_USAGES, feed.parameters(since)))


def _usages(rows: Iterable[Any]) -> list[base.Usage]:
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


_trees = schema.trees
_traits = schema.traits

_ROOTS = sa.select(_trees.c.provider, _trees.c.root).where(
    statements.in_list(_trees.c.provider))


def find(
    connection: sa.Connection, query: base.ProviderQuery, limit: int | None
) -> list[str]:
    """Return the roots of the trees that match a query.

    :param limit: maximum number, chosen at random; None for all
    """
    found = _with_room(query).subquery('found')
    root = found.c.root
    each = sa.select(root)
    if query.required or query.forbidden:
        is_known = sa.exists().where(_trees.c.provider == root)
        has = [_in_tree(root, trait) for trait in sorted(query.required)]
        if query.forbidden:
            has.append(~sa.exists().where(
                _traits.c.provider == root,
                _traits.c.trait.in_(sorted(query.forbidden))))
        each = each.where(sa.or_(~is_known, sa.and_(*has)))
    if limit is not None:
        mysql = connection.dialect.name in ('mariadb', 'mysql')
        each = each.order_by(
            sa.func.rand() if mysql else sa.func.random()).limit(limit)
    return list(connection.execute(each).scalars())


def _with_room(query: base.ProviderQuery) -> sa.Select[Any]:
    """Return the query of the roots with the requested capacity.

    Each matching row is of one resource class, so a tree matches if its rows
    have as many different classes as the query.
    """
    if not query.resources:
        return sa.select(_root(_providers.c.uuid)).outerjoin_from(
            _providers, _trees,
            _trees.c.provider == _providers.c.uuid).distinct()
    columns = _inventories.c
    root = _root(columns.provider)
    return sa.select(root).outerjoin_from(
        _inventories, _trees, _trees.c.provider == columns.provider,
    ).where(sa.or_(*(
        _gives(resource, amounts)
        for resource, amounts in sorted(query.resources.items()))),
    ).group_by(root.element).having(
        sa.func.count(columns.resource_class.distinct())
        == len(query.resources))


def _root(provider: sa.ColumnElement[str]) -> sa.Label[str]:
    return sa.func.coalesce(_trees.c.root, provider).label('root')


def _gives(resource: str, amounts: Collection[int]) -> sa.ColumnElement[bool]:
    """Return the condition that a row can grant one of the amounts."""
    columns = _inventories.c
    return sa.and_(columns.resource_class == resource, sa.or_(*(
        sa.and_(columns.used + amount <= columns.capacity,
                columns.min_unit <= amount, columns.max_unit >= amount,
                sa.literal(amount, sa.BigInteger) % columns.step_size == 0)
        for amount in sorted(set(amounts)))))


def _in_tree(
    root: sa.ColumnElement[str], trait: str
) -> sa.ColumnElement[bool]:
    """Return the condition that some provider of a tree has a trait."""
    return sa.exists().where(
        _trees.c.root == root, _traits.c.provider == _trees.c.provider,
        _traits.c.trait == trait)


def roots(
    connection: sa.Connection, providers: Iterable[str]
) -> dict[str, str]:
    """Return the roots of the providers that have one."""
    found: dict[str, str] = {}
    for chunk in statements.chunks(providers):
        for provider, root in connection.execute(_ROOTS, {'these': chunk}):
            found[provider] = root
    return found


def traits_of(
    connection: sa.Connection, provider: str
) -> tuple[str, frozenset[str]] | None:
    """Return the root and the traits of a provider; None if not set."""
    root = connection.execute(sa.select(_trees.c.root).where(
        _trees.c.provider == provider)).scalar_one_or_none()
    if root is None:
        return None
    return root, frozenset(connection.execute(sa.select(
        _traits.c.trait).where(_traits.c.provider == provider)).scalars())


def set_traits(
    connection: sa.Connection, provider: str, traits: frozenset[str],
    root: str,
) -> None:
    """Set the traits of a provider and the root of its tree.

    The last of several concurrent calls wins.
    """
    # This write comes first, and locks the row for concurrent calls.
    if not connection.execute(
            sa.update(_trees).where(_trees.c.provider == provider)
            .values(root=root)).rowcount:
        connection.execute(sa.insert(_trees).values(
            provider=provider, root=root))
    before = set(connection.execute(sa.select(_traits.c.trait).where(
        _traits.c.provider == provider)).scalars())
    for chunk in statements.chunks(sorted(before - traits)):
        connection.execute(sa.delete(_traits).where(
            _traits.c.provider == provider, _traits.c.trait.in_(chunk)))
    new = [{'provider': provider, 'trait': trait}
           for trait in sorted(traits - before)]
    if new:
        connection.execute(sa.insert(_traits), new)
