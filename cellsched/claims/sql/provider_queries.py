# SPDX-License-Identifier: Apache-2.0
"""Statements that find providers by what they have left and can do."""

from collections.abc import Collection
from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from cellsched.claims import base
from cellsched.claims.sql import schema
from cellsched.db import statements

_providers = schema.providers
_inventories = schema.inventories
_trees = schema.trees
_traits = schema.traits

_ROOTS = sa.select(_trees.c.provider, _trees.c.root).where(
    statements.in_list(_trees.c.provider))


def find(
    connection: sa.Connection, query: base.ProviderQuery, limit: int | None
) -> list[str]:
    """Return the roots of trees that have what a query asks for.

    :param limit: how many at most; None for all
    """
    found = _with_room(query).subquery('found')
    root = found.c.root
    each = sa.select(root)
    if query.required or query.forbidden:
        is_told = sa.exists().where(_trees.c.provider == root)
        has = [_in_tree(root, trait) for trait in sorted(query.required)]
        if query.forbidden:
            has.append(~sa.exists().where(
                _traits.c.provider == root,
                _traits.c.trait.in_(sorted(query.forbidden))))
        each = each.where(sa.or_(~is_told, sa.and_(*has)))
    if limit is not None:
        mysql = connection.dialect.name in ('mariadb', 'mysql')
        each = each.order_by(
            sa.func.rand() if mysql else sa.func.random()).limit(limit)
    return list(connection.execute(each).scalars())


def _with_room(query: base.ProviderQuery) -> sa.Select[Any]:
    """Return the statement of the trees that have room, each once.

    A row is of one class, so a tree has them all if it has as many of them as
    there are.
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


def _gives(
    resource: str, amounts: Collection[int]
) -> sa.ColumnElement[bool]:
    """Return the condition that a row gives one of these amounts."""
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
    """Return the roots of providers, of which somebody told."""
    found: dict[str, str] = {}
    for chunk in statements.chunks(providers):
        for provider, root in connection.execute(_ROOTS, {'these': chunk}):
            found[provider] = root
    return found


def told(
    connection: sa.Connection, provider: str
) -> tuple[str, frozenset[str]] | None:
    """Return the root and the traits of a provider, if anybody told."""
    root = connection.execute(sa.select(_trees.c.root).where(
        _trees.c.provider == provider)).scalar_one_or_none()
    if root is None:
        return None
    return root, frozenset(connection.execute(sa.select(
        _traits.c.trait).where(_traits.c.provider == provider)).scalars())


def tell(
    connection: sa.Connection, provider: str, traits: frozenset[str],
    root: str,
) -> None:
    """Write down what a provider can do, and of which tree it is.

    Of several who write it at a time the last one has told.
    """
    # That comes first, and keeps the others waiting.
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
