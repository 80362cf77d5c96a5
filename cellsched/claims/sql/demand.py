# SPDX-License-Identifier: Apache-2.0
"""The demand of a batch of claims, added up.

A multi-create takes the same from many providers, and several times from
some. What is moved alike on several providers is one statement.
"""

from collections.abc import Iterable
import dataclasses
import math

from cellsched.claims import base


@dataclasses.dataclass(frozen=True)
class ClassDemand:
    """The demand of all claims of a batch for one resource class.

    :param amount: the sum
    :param smallest: the smallest claim's, which the min unit bounds
    :param largest: the largest claim's, which the max unit bounds
    :param divisor: the greatest common one, which the step divides if and
        only if it divides each claim's
    """

    resource: str
    amount: int
    smallest: int
    largest: int
    divisor: int


@dataclasses.dataclass(frozen=True)
class BatchDemand:
    """The demand of a batch on a provider, of each resource class.

    :param consumers: of how many consumers
    """

    consumers: int
    shares: tuple[ClassDemand, ...]


def group(claims: Iterable[base.Claim]) -> dict[BatchDemand, list[str]]:
    """Return the providers that have the same demand, by demand, in order."""
    amounts: dict[str, dict[str, list[int]]] = {}
    consumers: dict[str, int] = {}
    for claim in claims:
        provider = amounts.setdefault(claim.provider, {})
        for resource, amount in claim.resources.items():
            provider.setdefault(resource, []).append(amount)
        consumers[claim.provider] = consumers.get(claim.provider, 0) + 1
    grouped: dict[BatchDemand, list[str]] = {}
    for uuid in sorted(amounts):
        shares = tuple(_share(resource, taken) for resource, taken
                       in sorted(amounts[uuid].items()))
        demand = BatchDemand(consumers[uuid], shares)
        grouped.setdefault(demand, []).append(uuid)
    return grouped


def _share(resource: str, amounts: list[int]) -> ClassDemand:
    return ClassDemand(resource, sum(amounts), min(amounts), max(amounts),
                       math.gcd(*amounts))
