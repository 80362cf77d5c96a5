# SPDX-License-Identifier: Apache-2.0
"""Nobody gives more than it has, and the claim store counts right: S1."""

import collections
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

from cellsched.audit import findings
from cellsched.claims import base as claims_base
from cellsched.claims import listing

#: Times to go through all claims for providers that change meanwhile.
_WALKS_MAX = 3

Held = Mapping[str, Sequence[claims_base.Claim]]


def check(
    store: claims_base.ClaimStore, page: int,
    seen: Callable[[Held], None] = lambda held: None,
) -> list[findings.Finding]:
    """Return what is wrong with the store's figures.

    A provider that changes while the claims are added up proves nothing. It
    is looked at again with the next walk through them, a few times. So is one
    that seems wrong: claims that one consumer hands to another one, as at the
    end of a move, change nothing of their provider, and are seen twice or not
    at all where that falls between two pages. As nobody hands them back, what
    two walks see of the same consumers is so.

    :param page: how many consumers to ask for at a time
    :param seen: is told who holds what, a page at a time, in the first walk
    """
    found: list[findings.Finding] = []
    open_: set[str] | None = None
    doubted: dict[str, _Taken] = {}
    for _ in range(_WALKS_MAX):
        before = store.usages()
        taken = _add_up(store, page, seen)
        changed = {usage.provider for usage
                   in store.usages(since=before.token).usages}
        seeming: dict[str, _Taken] = {}
        for usage in before.usages:
            provider = usage.provider
            if provider in changed or (
                    open_ is not None and provider not in open_):
                continue
            wrong = [*_compare(usage, taken[provider])]
            if wrong and doubted.get(provider) != taken[provider]:
                seeming[provider] = taken[provider]
            else:
                found += wrong
        open_ = seeming.keys() | (
            changed if open_ is None else changed & open_)
        doubted |= seeming
        seen = _ignore
        if not open_:
            break
    return found


def _ignore(held: Held) -> None:
    pass


@dataclasses.dataclass
class _Taken:
    """Claims on a provider, added up.

    :ivar holders: how many consumers take it
    :ivar who: a sum over them, by which the same ones are known again
    """

    sums: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter)
    holders: int = 0
    who: int = 0


def _add_up(
    store: claims_base.ClaimStore, page: int, seen: Callable[[Held], None]
) -> dict[str, _Taken]:
    """Return what is taken of providers."""
    taken: dict[str, _Taken] = collections.defaultdict(_Taken)
    for consumers in listing.pages(store, page):
        held = store.claims_of(consumers)
        for consumer, claims in held.items():
            for claim in claims:
                here = taken[claim.provider]
                here.sums.update(claim.resources)
                here.holders += 1
                here.who += hash(consumer)
        seen(held)
    return taken


def _compare(
    usage: claims_base.Usage, taken: _Taken
) -> Iterator[findings.Finding]:
    if usage.consumers != taken.holders:
        yield findings.Finding(
            'miscounted-consumers', usage.provider,
            f'has claims of {taken.holders} consumers, and the claim store '
            f'counts {usage.consumers}', action=findings.Action.RECOUNT)
    for resource in sorted(usage.used.keys() | taken.sums.keys()):
        used = usage.used.get(resource, 0)
        real = taken.sums.get(resource, 0)
        capacity = usage.capacity.get(resource, 0)
        if real > capacity:
            yield findings.Finding(
                f'over-capacity:{resource}', usage.provider,
                f'has {capacity} of {resource}, and {real} is claimed',
                advice='move servers away, or let the host offer more again')
        if used != real:
            yield findings.Finding(
                f'miscounted:{resource}', usage.provider,
                f'has claims of {real} of {resource}, and the claim store '
                f'counts {used}', action=findings.Action.RECOUNT)
