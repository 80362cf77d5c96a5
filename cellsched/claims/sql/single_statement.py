# SPDX-License-Identifier: Apache-2.0
"""A whole claim as one statement on PostgreSQL.

The statement is a transaction of its own. It claims a batch that is new and
fits, and fails otherwise; then :mod:`.postgresql` decides. A prepared
statement takes the server less time than the script there. It is an UPDATE
with one CTE for each step::

    inserted   INSERT the allocations; fails on a consumer with claims
    locked     SELECT … FOR UPDATE of the providers, by uuid
    added      UPDATE of the inventories that have the capacity
    moved      UPDATE of the feed's lane; fails if a row is missing above
    (main)     UPDATE of the providers: number of consumers, feed position

All CTEs read the same snapshot, so only rows that are locked or updated
count: PostgreSQL reads a row again when it locks it after a concurrent change.
A row whose capacity was freed after the snapshot does not match. So the
statement may fail for a batch that fits, but never claims too much.

Each CTE counts the rows of the previous one, which forces it to be complete.
This gives the same lock order as in :mod:`.transactions`: allocations by
consumer, providers by uuid with their inventories, and the lane last.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import functools
import operator
from typing import Any

import sqlalchemy as sa

from cellsched.claims import base
from cellsched.claims.sql import fragments
from cellsched.claims.sql import schema
from cellsched.db import guarded_statements
from cellsched.db import session
from cellsched.db import statements

_providers = schema.providers
_inventories = schema.inventories
_allocations = schema.allocations

#: Maximum number of different demands in a statement. Each number of demands
#: and of their resource classes needs a statement of its own.
_DEMANDS_MAX = 4

#: Maximum number of rows in the statement for one consumer. It has a parameter
#: for each value, as PostgreSQL plans arrays anew at each execution.
_ROWS_MAX = 20

#: Number of cached statements.
_STATEMENTS_MAX = 100


def claim(database: session.Database, claims: Sequence[base.Claim]) -> bool:
    """Claim a batch if one statement can do it; return whether it did.

    :raises cellsched.db.guarded_statements.StatementRefused: a consumer holds
        claims, or a claim does not fit, or did not fit by the snapshot of the
        statement
    """
    dialect = database.engine.dialect
    if dialect.name != 'postgresql':
        return False
    if any(claim.group is not None for claim in claims):
        return False
    if len(claims) == 1:
        text, parameters = _one(dialect, claims[0])
    elif _is_one_consumers(claims):
        text, parameters = _together(dialect, claims)
    else:
        groups = fragments.group(claims)
        if (len(groups) > _DEMANDS_MAX
                or sum(map(len, groups.values())) > statements.CHUNK):
            return False
        text, parameters = _several(dialect, claims, groups)
    guarded_statements.execute(database, text, parameters)
    return True


def _one(dialect: sa.Dialect, claim: base.Claim) -> tuple[str, dict[str, Any]]:
    """Return the statement for one claim, and its parameters."""
    text, parameters = _alike(dialect, tuple(claim.resources.items()))
    return text, {
        **parameters, **fragments.inserting_one(claim)[1],
        'in_lane': schema.FEED.lane(claim.consumer)}


@functools.lru_cache(_STATEMENTS_MAX)
def _alike(
    dialect: sa.Dialect, resources: tuple[tuple[str, int], ...]
) -> tuple[str, Mapping[str, Any]]:
    """Return the statement of :func:`_one`, cached by the resources."""
    claim = base.Claim('', '', dict(resources))
    groups = fragments.group([claim])
    text, constants = _text(
        dialect, fragments.inserting_one(claim)[0], _classes(groups),
        alone=True)
    return text, {**constants, **_parameters(groups)}


def _is_one_consumers(claims: Sequence[base.Claim]) -> bool:
    """Return whether a batch has few rows, all for one consumer."""
    consumer = claims[0].consumer
    return (all(claim.consumer == consumer for claim in claims)
            and sum(len(claim.resources) for claim in claims) <= _ROWS_MAX)


def _together(
    dialect: sa.Dialect, claims: Sequence[base.Claim]
) -> tuple[str, dict[str, Any]]:
    """Return the statement for one consumer with several providers."""
    parameters: dict[str, Any] = {
        'consumer': claims[0].consumer, **fragments.owner(claims[0]),
        'in_lane': schema.FEED.lane(claims[0].consumer)}
    rows = list(fragments.rows(claims))
    for place, row in enumerate(rows):
        parameters[f'provider{place}'] = row['provider']
        parameters[f'resource{place}'] = row['resource_class']
        parameters[f'amount{place}'] = row['amount']
    for number, claim in enumerate(claims):
        parameters[f'uuid{number}'] = claim.provider
    text, constants = _text_together(dialect, len(claims), len(rows))
    return text, {**constants, **parameters}


@functools.lru_cache(_STATEMENTS_MAX)
def _text_together(
    dialect: sa.Dialect, providers: int, rows: int
) -> tuple[str, Mapping[str, Any]]:
    """Return the text of :func:`_together` and its constant parameters.

    :param providers: number of providers
    :param rows: number of their resource classes in all
    """
    return _compiled(dialect, _statement_together(providers, rows))


def _several(
    dialect: sa.Dialect, claims: Sequence[base.Claim],
    groups: Mapping[fragments.BatchDemand, list[str]],
) -> tuple[str, dict[str, Any]]:
    """Return the statement for a batch, and its parameters."""
    insert, inserted = fragments.inserting(claims)
    text, constants = _text(dialect, insert, _classes(groups), alone=False)
    return text, {
        **constants, **inserted, **_parameters(groups),
        'in_lane': schema.FEED.lane(claims[0].consumer)}


def _classes(
    groups: Mapping[fragments.BatchDemand, list[str]]
) -> tuple[int, ...]:
    return tuple(len(demand.shares) for demand in groups)


def _parameters(
    groups: Mapping[fragments.BatchDemand, list[str]]
) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        'uuids': sorted(uuid for uuids in groups.values() for uuid in uuids),
        'providers': sum(map(len, groups.values())),
        'inventories': sum(len(demand.shares) * len(uuids)
                           for demand, uuids in groups.items())}
    for number, (demand, uuids) in enumerate(groups.items()):
        parameters[f'uuids{number}'] = uuids
        parameters[f'consumers{number}'] = demand.consumers
        parameters |= fragments.parameters(demand, 1, number)
    return parameters


@functools.lru_cache(_STATEMENTS_MAX)
def _text(
    dialect: sa.Dialect, insert: sa.Insert, classes: tuple[int, ...],
    alone: bool,
) -> tuple[str, Mapping[str, Any]]:
    """Return the text of a statement and its constant parameters.

    Cached here, as SQLAlchemy computes its own cache key from the whole
    statement, which takes as long as the execution.
    """
    return _compiled(dialect, _statement(insert, classes, alone))


def _compiled(
    dialect: sa.Dialect, statement: sa.Update
) -> tuple[str, Mapping[str, Any]]:
    compiled = statement.compile(dialect=dialect)
    return str(compiled), {
        name: value for name, value in compiled.params.items()
        if value is not None}


def _statement(
    insert: sa.Insert, classes: tuple[int, ...], alone: bool
) -> sa.Update:
    """Return the statement for a batch with some demands.

    :param classes: number of resource classes of each demand
    :param alone: whether it is for one claim, whose ``provider`` is a
        parameter of ``insert``
    """
    inserted = insert.returning(sa.literal_column('1')).cte('inserted')
    # A provider that does not exist is not locked, and refuses the batch.
    locked = sa.select(_providers.c.uuid).where(
        _is_of(_providers.c.uuid, 'uuids', alone),
        fragments.count(inserted) > 0,
    ).order_by(_providers.c.uuid).with_for_update().cte('locked')
    added = [_added(locked, *each, alone) for each in enumerate(classes)]
    fits = sa.and_(
        fragments.count(locked) == sa.bindparam('providers'),
        functools.reduce(operator.add, map(fragments.count, added))
        == sa.bindparam('inventories'))
    moved = schema.FEED.moved(guarded_statements.insisting(fits))
    return sa.update(_providers).where(
        _is_of(_providers.c.uuid, 'uuids', alone)).values(
        consumers=_providers.c.consumers + _consumers(len(classes)),
        lane=sa.bindparam('in_lane'),
        position=sa.select(moved.c.position).scalar_subquery())


def _statement_together(providers: int, rows: int) -> sa.Update:
    """Return the statement for one consumer with several providers.

    Its CTEs are those of :func:`_statement`. Each row has its own parameters,
    so that PostgreSQL knows their number and can reuse its plan.
    """
    bind = sa.bindparam
    inserted = sa.insert(_allocations).values([
        {'consumer': bind('consumer'),
         'ordinal': sa.literal_column(f'{place}'),
         'provider': bind(f'provider{place}'),
         'resource_class': bind(f'resource{place}'),
         'amount': bind(f'amount{place}'),
         **fragments.owner_of(place)} for place in range(rows)
    ]).returning(sa.literal_column('1')).cte('inserted')
    theirs = _providers.c.uuid.in_(
        [bind(f'uuid{number}') for number in range(providers)])
    locked = sa.select(_providers.c.uuid).where(
        theirs, fragments.count(inserted) > 0,
    ).order_by(_providers.c.uuid).with_for_update().cte('locked')
    added = _added_together(locked, rows)
    moved = schema.FEED.moved(guarded_statements.insisting(sa.and_(
        fragments.count(locked) == sa.literal_column(f'{providers}'),
        fragments.count(added) == sa.literal_column(f'{rows}'))))
    return sa.update(_providers).where(theirs).values(
        consumers=_providers.c.consumers + sa.literal_column('1'),
        lane=bind('in_lane'),
        position=sa.select(moved.c.position).scalar_subquery())


def _added_together(locked: sa.CTE, rows: int) -> sa.CTE:
    """Return the CTE that claims each amount if it fits."""
    demanded = sa.values(
        sa.column('provider', sa.Text()),
        sa.column('resource_class', sa.Text()),
        sa.column('amount', sa.BigInteger()), name='demanded').data([
            (sa.bindparam(f'provider{place}', type_=sa.Text()),
             sa.bindparam(f'resource{place}', type_=sa.Text()),
             sa.bindparam(f'amount{place}', type_=sa.BigInteger()))
            for place in range(rows)])
    columns, amount = _inventories.c, demanded.c.amount
    return sa.update(_inventories).where(
        columns.provider == demanded.c.provider,
        columns.resource_class == demanded.c.resource_class,
        fragments.count(locked) > 0,
        columns.used + amount <= columns.capacity,
        columns.min_unit <= amount, columns.max_unit >= amount,
        amount % columns.step_size == 0,
    ).values(used=columns.used + amount).returning(
        sa.literal_column('1')).cte('added')


def _added(locked: sa.CTE, group: int, classes: int, alone: bool) -> sa.CTE:
    """Return the CTE that claims a demand if it fits."""
    update = fragments.change(classes, group).where(
        _is_of(_inventories.c.provider, f'uuids{group}', alone),
        fragments.count(locked) > 0)
    return fragments.with_room(update, classes, group).returning(
        sa.literal_column('1')).cte(f'added{group}')


def _is_of(
    column: sa.Column[str], name: str, alone: bool
) -> sa.ColumnElement[bool]:
    """Return the condition that a column is one of the providers.

    For one provider it is an equality, with which PostgreSQL can reuse a
    prepared plan; the length of an array is not known to the plan.
    """
    return column == (
        sa.bindparam('provider') if alone else fragments.any_of(name))


def _consumers(groups: int) -> sa.ColumnElement[int]:
    """Return the number of new consumers of a provider."""
    if groups == 1:
        return sa.bindparam('consumers0', type_=sa.Integer)
    return sa.case(*(
        (_providers.c.uuid == fragments.any_of(f'uuids{group}'),
         sa.bindparam(f'consumers{group}', type_=sa.Integer))
        for group in range(groups)))
