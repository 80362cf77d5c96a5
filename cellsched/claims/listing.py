# SPDX-License-Identifier: Apache-2.0
"""Listing who holds something in a store, whatever the store can tell."""

from collections.abc import Iterator

from cellsched.claims import base
from cellsched.claims import validation


def pages(store: base.ClaimStore, limit: int) -> Iterator[list[str]]:
    """Yield all consumers that hold something, in the order of their bytes.

    Each that holds the same all the time is among them, and any other that
    holds something meanwhile may be. One of whom a transfer made another
    consumer, or whom it took to another provider, may be missed: whoever has
    to see all has nobody transfer anything meanwhile. Of a store that cannot
    list its consumers each provider in use is asked for its own before the
    first page, and all of their names are in memory until the last one.

    :param limit: consumers of a page at most; only the last has fewer
    :raises cellsched.exception.InvalidField: the limit is below 1
    """
    validation.check_limit(limit)
    if base.Capability.CONSUMER_LIST in store.capabilities:
        after = ''
        while names := store.consumers(after, limit):
            yield names
            if len(names) < limit:
                return
            after = names[-1]
        return
    known = {name for provider in store.providers_in_use()
             for name in store.consumers_of(provider)}
    names = sorted(known)
    for start in range(0, len(names), limit):
        yield names[start:start + limit]
