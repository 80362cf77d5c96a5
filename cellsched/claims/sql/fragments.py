# SPDX-License-Identifier: Apache-2.0
"""The demand of a batch, and parts of statements that claim capacity."""

from collections.abc import Iterable
from collections.abc import Iterator
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


def _fits(place: int) -> sa.ColumnElement[bool]:
    """Return the condition that an amount fits in an inventory."""
    bind, columns = sa.bindparam, _inventories.c
    return sa.and_(
        columns.used + bind(f'amount{place}') <= columns.capacity,
        columns.min_unit <= bind(f'smallest{place}'),
        columns.max_unit >= bind(f'largest{place}'),
        bind(f'divisor{place}', type_=sa.BigInteger) % columns.step_size == 0)


def row_parameters(
    rows: Sequence[tuple[str, ClassDemand]], sign: int
) -> dict[str, Any]:
    """Return the parameters of :func:`change_rows`.

    :param rows: a provider's uuid and its demand for a resource class
    :param sign: 1 to claim, -1 to release
    """
    parameters: dict[str, Any] = {}
    for place, (provider, share) in enumerate(rows):
        parameters |= {
            f'provider{place}': provider, f'resource{place}': share.resource,
            f'amount{place}': sign * share.amount,
            f'smallest{place}': share.smallest,
            f'largest{place}': share.largest,
            f'divisor{place}': share.divisor}
    return parameters


@functools.cache
def change_rows(rows: int, room: bool) -> sa.Update:
    """Return the UPDATE of the used amounts of some inventories.

    :param rows: number of inventories
    :param room: whether to update only rows with enough capacity
    """
    bind = sa.bindparam
    each = [sa.and_(
        _inventories.c.provider == bind(f'provider{place}'),
        _inventories.c.resource_class == bind(f'resource{place}'))
        for place in range(rows)]
    return sa.update(_inventories).where(sa.or_(*(
        sa.and_(these, _fits(place)) if room else these
        for place, these in enumerate(each)
    ))).values(used=_inventories.c.used + sa.case(*(
        (these, bind(f'amount{place}', type_=sa.BigInteger))
        for place, these in enumerate(each))))
