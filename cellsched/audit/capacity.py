# SPDX-License-Identifier: Apache-2.0
"""Nobody gives more than it has, and the claim store counts right: S1."""

import collections
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

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
    is looked at again with the next walk through them, a few times.

    :param page: how many consumers to ask for at a time
    :param seen: is told who holds what, a page at a time, in the first walk
    """
    found: list[findings.Finding] = []
    open_: set[str] | None = None
    for _ in range(_WALKS_MAX):
        before = store.usages()
        sums, holders = _add_up(store, page, seen)
        changed = {usage.provider for usage
                   in store.usages(since=before.token).usages}
        for usage in before.usages:
            if usage.provider not in changed and (
                    open_ is None or usage.provider in open_):
                found += _compare(usage, sums[usage.provider],
                                  holders[usage.provider])
        open_ = changed if open_ is None else changed & open_
        seen = _ignore
        if not open_:
            break
    return found


def _ignore(held: Held) -> None:
    pass


def _add_up(
    store: claims_base.ClaimStore, page: int, seen: Callable[[Held], None]
) -> tuple[dict[str, collections.Counter[str]], collections.Counter[str]]:
    """Return what is taken of providers, and how many consumers take it."""
    sums: dict[str, collections.Counter[str]] = collections.defaultdict(
        collections.Counter)
    holders: collections.Counter[str] = collections.Counter()
    for consumers in listing.pages(store, page):
        held = store.held(consumers)
        for claims in held.values():
            for claim in claims:
                sums[claim.provider].update(claim.resources)
                holders[claim.provider] += 1
        seen(held)
    return sums, holders


def _compare(
    usage: claims_base.Usage, taken: Mapping[str, int], holders: int
) -> Iterator[findings.Finding]:
    if usage.consumers != holders:
        yield findings.Finding(
            'miscounted-consumers', usage.provider,
            f'has claims of {holders} consumers, and the claim store counts '
            f'{usage.consumers}', action=findings.Action.RECOUNT)
    for resource in sorted(usage.used.keys() | taken.keys()):
        used = usage.used.get(resource, 0)
        real = taken.get(resource, 0)
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
