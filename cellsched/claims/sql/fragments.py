# SPDX-License-Identifier: Apache-2.0
"""The demand of a batch and its rows, for the statements that claim."""

from collections.abc import Iterable
from collections.abc import Iterator
import dataclasses
import math
from typing import Any

from cellsched.claims import base

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


def group(claims: Iterable[base.Claim]) -> dict[BatchDemand, list[str]]:
    """Return the providers of a batch by their demand, sorted by uuid."""
    amounts: dict[str, dict[str, list[int]]] = {}
    consumers: dict[str, int] = {}
    for claim in claims:
        provider = amounts.setdefault(claim.provider, {})
        for resource, amount in claim.resources.items():
            provider.setdefault(resource, []).append(amount)
        consumers[claim.provider] = consumers.get(claim.provider, 0) + 1
    grouped: dict[BatchDemand, list[str]] = {}
    for uuid in sorted(amounts):
        demand = BatchDemand(consumers[uuid], tuple(
            ClassDemand(resource, sum(each), min(each), max(each),
                        math.gcd(*each))
            for resource, each in sorted(amounts[uuid].items())))
        grouped.setdefault(demand, []).append(uuid)
    return grouped


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
