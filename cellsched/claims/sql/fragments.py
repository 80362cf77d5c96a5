# SPDX-License-Identifier: Apache-2.0
"""Parts of the statements that claim capacity, and their parameters.

A statement may have several demands, so the parameters of a demand have its
number in their names.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import Any

import sqlalchemy as sa

from cellsched.claims import base
from cellsched.claims.sql import schema


#: Alternatives of one statement. A scheduler names fewer.
CANDIDATES_MAX = 8


@dataclasses.dataclass(frozen=True)
class ClassDemand:
    """The demand of a batch for one resource class of a provider.

    :param amount: the sum of the claims
    :param smallest: the smallest claim, to compare with min_unit
    :param largest: the largest claim, to compare with max_unit
    :param divisor: the greatest common divisor of the claims; step_size
        divides each claim if it divides this
    """

    resource: str
    amount: int
    smallest: int
    largest: int
    divisor: int


@dataclasses.dataclass(frozen=True)
class BatchDemand:
    """The demand of a batch on a provider.

    :param consumers: number of consumers
    """

    consumers: int
    shares: tuple[ClassDemand, ...]


#: A provider's uuid and its demand for one resource class.
Rows = Sequence[tuple[str, ClassDemand]]


def demands(claims: Iterable[base.Claim]) -> dict[str, BatchDemand]:
    """Return the demands of a batch by provider, sorted by uuid."""
    amounts: dict[str, dict[str, list[int]]] = {}
    consumers: dict[str, int] = {}
    for claim in claims:
        provider = amounts.setdefault(claim.provider, {})
        for resource, amount in claim.resources.items():
            provider.setdefault(resource, []).append(amount)
        consumers[claim.provider] = consumers.get(claim.provider, 0) + 1
    return {uuid: BatchDemand(consumers[uuid], tuple(
        _share(resource, taken)
        for resource, taken in sorted(amounts[uuid].items())))
        for uuid in sorted(amounts)}


def group(claims: Iterable[base.Claim]) -> dict[BatchDemand, list[str]]:
    """Return the providers of a batch by their demand, sorted by uuid."""
    grouped: dict[BatchDemand, list[str]] = {}
    for uuid, demand in demands(claims).items():
        grouped.setdefault(demand, []).append(uuid)
    return grouped


def _share(resource: str, amounts: list[int]) -> ClassDemand:
    return ClassDemand(resource, sum(amounts), min(amounts), max(amounts),
                       math.gcd(*amounts))


_inventories = schema.inventories
_allocations = schema.allocations

#: Columns that only the first row of a consumer has.
_OWNER = ('project_id', 'user_id')


def rows(claims: Iterable[base.Claim]) -> Iterator[dict[str, Any]]:
    """Yield the allocations of a batch, in the order of locking."""
    consumer, ordinal = None, 0
    for claim in sorted(claims, key=lambda c: (c.consumer, c.provider)):
        ordinal = ordinal if claim.consumer == consumer else 0
        consumer = claim.consumer
        for resource, amount in sorted(claim.resources.items()):
            yield {'consumer': consumer, 'ordinal': ordinal,
                   'provider': claim.provider, 'resource_class': resource,
                   'amount': amount,
                   'project_id': None if ordinal else claim.project_id,
                   'user_id': None if ordinal else claim.user_id}
            ordinal += 1


def owner(claim: base.Claim) -> dict[str, str | None]:
    """Return the project and the user of a claim as parameters."""
    return {'project_id': claim.project_id, 'user_id': claim.user_id}


def inserting(
    claims: Sequence[base.Claim]
) -> tuple[sa.Insert, Mapping[str, Any]]:
    """Return the INSERT of a batch on PostgreSQL, with arrays."""
    if _are_alike(claims):
        amounts = sorted(claims[0].resources.items())
        of_one = len({(claim.project_id, claim.user_id)
                      for claim in claims}) == 1
        return _INSERT_ALIKE_OF_ONE if of_one else _INSERT_ALIKE, {
            'consumer': [claim.consumer for claim in claims],
            'provider': [claim.provider for claim in claims],
            **(owner(claims[0]) if of_one else {
                'project_id': [claim.project_id for claim in claims],
                'user_id': [claim.user_id for claim in claims]}),
            'ordinal': list(range(len(amounts))),
            'resource_class': [resource for resource, _ in amounts],
            'amount': [amount for _, amount in amounts]}
    each = list(rows(claims))
    return _INSERT_ARRAYS, {
        f'{name}': [row[name] for row in each] for name in each[0]}


def inserting_one(claim: base.Claim) -> tuple[sa.Insert, Mapping[str, Any]]:
    """Return the INSERT of one claim; the UPDATE has its amounts."""
    return _insert_one(len(claim.resources)), {
        'consumer': claim.consumer, 'provider': claim.provider,
        **owner(claim)}


def parameters(
    demand: BatchDemand, sign: int, group: int = 0
) -> dict[str, Any]:
    """Return the parameters of a demand.

    :param sign: 1 to claim, -1 to release
    """
    parameters: dict[str, Any] = {}
    for number, share in enumerate(demand.shares):
        parameters |= _share_parameters(share, sign, f'{group}_{number}')
    return parameters


def _share_parameters(
    share: ClassDemand, sign: int, place: str
) -> dict[str, Any]:
    return {f'resource{place}': share.resource,
            f'amount{place}': sign * share.amount,
            f'smallest{place}': share.smallest,
            f'largest{place}': share.largest,
            f'divisor{place}': share.divisor}


def change(classes: int, group: int = 0) -> sa.Update:
    """Return the UPDATE of the used amounts of some classes."""
    used = _inventories.c.used + sa.case(
        {sa.bindparam(f'resource{group}_{number}'): sa.bindparam(
            f'amount{group}_{number}', type_=sa.BigInteger)
         for number in range(classes)},
        value=_inventories.c.resource_class)
    return sa.update(_inventories).values(used=used)


def with_room(update: sa.Update, classes: int, group: int = 0) -> sa.Update:
    """Restrict an UPDATE to the rows with enough capacity."""
    bind = sa.bindparam
    columns = _inventories.c
    places = [f'{group}_{number}' for number in range(classes)]
    return update.where(sa.or_(*(
        sa.and_(columns.resource_class == bind(f'resource{place}'),
                _fits(place)) for place in places)))


def _fits(place: str) -> sa.ColumnElement[bool]:
    """Return the condition that an amount fits in an inventory."""
    bind, columns = sa.bindparam, _inventories.c
    return sa.and_(
        columns.used + bind(f'amount{place}') <= columns.capacity,
        columns.min_unit <= bind(f'smallest{place}'),
        columns.max_unit >= bind(f'largest{place}'),
        bind(f'divisor{place}', type_=sa.BigInteger) % columns.step_size == 0)


def row_parameters(rows: Rows, sign: int) -> dict[str, Any]:
    """Return the parameters of :func:`change_rows`.

    :param sign: 1 to claim, -1 to release
    """
    parameters: dict[str, Any] = {}
    for place, (provider, share) in enumerate(rows):
        parameters[f'provider{place}'] = provider
        parameters |= _share_parameters(share, sign, f'{place}')
    return parameters


@functools.cache
def change_rows(rows: int, room: bool) -> sa.Update:
    """Return the UPDATE of the used amounts of some inventories.

    :param rows: number of inventories
    :param room: whether to update only rows with enough capacity
    """
    bind = sa.bindparam
    each = {f'{place}': sa.and_(
        _inventories.c.provider == bind(f'provider{place}'),
        _inventories.c.resource_class == bind(f'resource{place}'))
        for place in range(rows)}
    return sa.update(_inventories).where(sa.or_(*(
        sa.and_(these, _fits(place)) if room else these
        for place, these in each.items()
    ))).values(used=_inventories.c.used + sa.case(*(
        (these, bind(f'amount{place}', type_=sa.BigInteger))
        for place, these in each.items())))


def any_of(name: str) -> sa.CollectionAggregate[Any]:
    """Return the condition of being in an array parameter."""
    return sa.any_(sa.bindparam(name, type_=sa.ARRAY(sa.Text())))


def count(cte: sa.CTE) -> sa.ScalarSelect[int]:
    """Return the number of rows of a CTE, which forces it to be executed.

    A join would force it too, but PostgreSQL might read whole tables for it.
    """
    return sa.select(sa.func.count()).select_from(cte).scalar_subquery()


def _are_alike(claims: Sequence[base.Claim]) -> bool:
    """Return whether all claims are equal but for consumer and provider."""
    return (all(claim.resources == claims[0].resources for claim in claims)
            and len({claim.consumer for claim in claims}) == len(claims))


def _unnested(names: Sequence[str]) -> sa.TableValuedAlias:
    """Return the rows of array parameters, one for each column."""
    return sa.func.unnest(*(
        _array(_allocations.c[name]) for name in names
    )).table_valued(*names).render_derived()


def _array(column: sa.Column[Any]) -> sa.ColumnElement[Any]:
    array = sa.ARRAY(
        sa.Text() if isinstance(column.type, sa.String) else column.type)
    parameter = sa.bindparam(f'{column.name}', type_=array)
    # A driver cannot infer the type of an array of NULLs.
    return sa.cast(parameter, array) if column.nullable else parameter


def _insert_from(*sources: sa.TableValuedAlias) -> sa.Insert:
    """Return an INSERT of the cross product of sources.

    Rows are inserted in the order of locking. Project and user are parameters
    unless a source has them.
    """
    values: dict[str, sa.ColumnElement[Any]] = {
        name: sa.bindparam(name, type_=sa.Text()) for name in _OWNER}
    values |= {column.name: column
               for source in sources for column in source.c}
    for name in _OWNER:
        values[name] = sa.case((values['ordinal'] == 0, values[name]))
    names = list(_allocations.c.keys())
    first, *rest = sources
    each: sa.FromClause = first
    for source in rest:
        each = each.join(source, sa.true())
    return sa.insert(_allocations).from_select(
        names, sa.select(*(values[name] for name in names)).select_from(
            each).order_by(
            sa.collate(values['consumer'], 'C'), values['ordinal']))


@functools.cache
def _insert_one(classes: int) -> sa.Insert:
    """Return the INSERT of one claim with some classes."""
    bind = sa.bindparam
    return sa.insert(_allocations).values([
        {'consumer': bind('consumer'), 'provider': bind('provider'),
         'ordinal': sa.literal_column(f'{number}'),
         'resource_class': bind(f'resource0_{number}'),
         'amount': bind(f'amount0_{number}'), **owner_of(number)}
        for number in range(classes)])


def owner_of(ordinal: int) -> dict[str, sa.ColumnElement[Any]]:
    """Return the project and user columns of a row, by its ordinal."""
    return {name: sa.null() if ordinal else sa.bindparam(name)
            for name in _OWNER}


_INSERT_ARRAYS = _insert_from(_unnested(list(_allocations.c.keys())))

_INSERT_ALIKE_OF_ONE = _insert_from(
    _unnested(['consumer', 'provider']),
    _unnested(['ordinal', 'resource_class', 'amount']))

_INSERT_ALIKE = _insert_from(
    _unnested(['consumer', 'provider', *_OWNER]),
    _unnested(['ordinal', 'resource_class', 'amount']))
