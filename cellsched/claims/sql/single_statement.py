# SPDX-License-Identifier: Apache-2.0
"""A batch that is new and fits, taken in one statement of PostgreSQL.

The statement is a transaction of its own. It fails unless all of the batch is
new and fits, and the statements of ``writing``, which take several round trips
and say the same of what is taken, are there for all that it is not for.

Its parts see the tables as they were when it began, so it decides by what it
locks: PostgreSQL looks again at a row that has changed since, when it comes to
lock or to change it, and then works with what it is now. Rows that only now
have room are none to it, so that it may fail for no reason, but never takes
what is not there.

Each part asks for the one before, which is thereby done as a whole. So they
lock in the order of ``writing``: allocations by consumer, providers by uuid
with their inventories, and the lane of the feed last.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import functools
import operator
from typing import Any

from oslo_log import log
import sqlalchemy as sa

from cellsched.claims import base
from cellsched.claims.sql import fragments
from cellsched.claims.sql import schema
from cellsched.db import guarded_statements
from cellsched.db import session
from cellsched.db import statements
from cellsched import exception

LOG = log.getLogger(__name__)

_providers = schema.providers
_inventories = schema.inventories
_allocations = schema.allocations

#: Different demands that one statement is made for; each number of them, and
#: of resource classes in each, makes another statement.
_DEMANDS_MAX = 4

#: Rows of a consumer's own statement, which has each of their values: what is
#: in an array would be planned for at each execution.
_ROWS_MAX = 20

#: How many of these are kept.
_STATEMENTS_MAX = 100


def take(
    database: session.Database, claims: Sequence[base.Claim]
) -> bool:
    """Take a batch, if one statement can do it; return whether it did.

    :raises cellsched.db.guarded_statements.StatementRefused: a consumer holds
        something, or something does not fit, or did not when the statement
        began
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
    try:
        with database.each_alone() as connection:
            _execute(connection, text, parameters)
    except exception.DatabaseUnreachable as exc:
        # Other connections may work, or are made anew.
        LOG.warning('Claiming again after a lost connection: %s', exc)
        return False
    return True


def _execute(
    connection: sa.Connection, text: str, parameters: Mapping[str, Any]
) -> None:
    """Execute a statement by a cursor of the driver, or else by SQLAlchemy.

    SQLAlchemy adds a tenth to the time of a claim. After a failure it executes
    the statement again, so that it translates the error and replaces lost
    connections. If the claim was taken all the same, it is found to be held.
    """
    try:
        connection.connection.cursor().execute(text, parameters)
    except connection.dialect.loaded_dbapi.Error as exc:
        if guarded_statements.state(exc) in guarded_statements.HARMLESS:
            raise guarded_statements.StatementRefused() from None
        connection.exec_driver_sql(text, dict(parameters))


def _one(
    dialect: sa.Dialect, claim: base.Claim
) -> tuple[str, dict[str, Any]]:
    """Return the statement for one claim, and its parameters."""
    text, parameters = _alike(dialect, tuple(claim.resources.items()))
    return text, {
        **parameters, **fragments.inserting_one(claim)[1],
        'in_lane': schema.FEED.lane(claim.consumer)}


@functools.lru_cache(_STATEMENTS_MAX)
def _alike(
    dialect: sa.Dialect, resources: tuple[tuple[str, int], ...]
) -> tuple[str, Mapping[str, Any]]:
    """Return what claims of the same have in common, of :func:`_one`."""
    claim = base.Claim('', '', dict(resources))
    groups = fragments.group([claim])
    text, constants = _text(
        dialect, fragments.inserting_one(claim)[0], _classes(groups),
        alone=True)
    return text, {**constants, **_parameters(groups)}


def _is_one_consumers(claims: Sequence[base.Claim]) -> bool:
    """Return whether few rows for one consumer are all of a batch."""
    consumer = claims[0].consumer
    return (all(claim.consumer == consumer for claim in claims)
            and sum(len(claim.resources) for claim in claims) <= _ROWS_MAX)


def _together(
    dialect: sa.Dialect, claims: Sequence[base.Claim]
) -> tuple[str, dict[str, Any]]:
    """Return the statement for a consumer of several providers."""
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
    """Return what :func:`_text` does, for a consumer of several providers.

    :param providers: how many these are
    :param rows: how many resource classes of theirs it takes, added up
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
    return tuple(len(wanted.shares) for wanted in groups)


def _parameters(
    groups: Mapping[fragments.BatchDemand, list[str]]
) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        'uuids': sorted(uuid for uuids in groups.values() for uuid in uuids),
        'providers': sum(map(len, groups.values())),
        'inventories': sum(len(wanted.shares) * len(uuids)
                           for wanted, uuids in groups.items())}
    for number, (wanted, uuids) in enumerate(groups.items()):
        parameters[f'uuids{number}'] = uuids
        parameters[f'consumers{number}'] = wanted.consumers
        parameters |= fragments.parameters(wanted, 1, number)
    return parameters


@functools.lru_cache(_STATEMENTS_MAX)
def _text(
    dialect: sa.Dialect, insert: sa.Insert, classes: tuple[int, ...],
    alone: bool,
) -> tuple[str, Mapping[str, Any]]:
    """Return the statement's text, and parameters that are always the same.

    SQLAlchemy looks up what it has compiled by all that a statement is made
    of, which takes as long as the statement where that is much.
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
    """Return the statement for a batch of some demands.

    :param classes: how many resource classes each of them is about
    :param alone: it is for one claim, and ``insert`` has its ``provider``
    """
    inserted = insert.returning(sa.literal_column('1')).cte('inserted')
    # What is not there is not locked, and so not taken either.
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
    """Return the statement for a consumer of several providers.

    Its parts are those of :func:`_statement`. It has a value for each row, so
    that PostgreSQL knows how many there are and plans once for all.
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
    """Return the part that takes each amount, if there is room."""
    wanted = sa.values(
        sa.column('provider', sa.Text()),
        sa.column('resource_class', sa.Text()),
        sa.column('amount', sa.BigInteger()), name='wanted').data([
            (sa.bindparam(f'provider{place}', type_=sa.Text()),
             sa.bindparam(f'resource{place}', type_=sa.Text()),
             sa.bindparam(f'amount{place}', type_=sa.BigInteger()))
            for place in range(rows)])
    columns, amount = _inventories.c, wanted.c.amount
    return sa.update(_inventories).where(
        columns.provider == wanted.c.provider,
        columns.resource_class == wanted.c.resource_class,
        fragments.count(locked) > 0,
        columns.used + amount <= columns.capacity,
        columns.min_unit <= amount, columns.max_unit >= amount,
        amount % columns.step_size == 0,
    ).values(used=columns.used + amount).returning(
        sa.literal_column('1')).cte('added')


def _added(locked: sa.CTE, group: int, classes: int, alone: bool) -> sa.CTE:
    """Return the part that takes a demand, if there is room."""
    update = fragments.change(classes, group).where(
        _is_of(_inventories.c.provider, f'uuids{group}', alone),
        fragments.count(locked) > 0)
    return fragments.with_room(update, classes, group).returning(
        sa.literal_column('1')).cte(f'added{group}')


def _is_of(
    column: sa.Column[str], name: str, alone: bool
) -> sa.ColumnElement[bool]:
    """Return the condition of being one of the providers, or the one.

    PostgreSQL plans once for all what it is asked of one, where the driver
    prepares it; it does not know how many are in an array.
    """
    return column == (
        sa.bindparam('provider') if alone else fragments.any_of(name))


def _consumers(groups: int) -> sa.ColumnElement[int]:
    """Return how many consumers a provider has more."""
    if groups == 1:
        return sa.bindparam('consumers0', type_=sa.Integer)
    return sa.case(*(
        (_providers.c.uuid == fragments.any_of(f'uuids{group}'),
         sa.bindparam(f'consumers{group}', type_=sa.Integer))
        for group in range(groups)))
