# SPDX-License-Identifier: Apache-2.0
"""Listing of the consumers in a store with any capabilities."""

from collections.abc import Iterator

from cellsched.claims import base
from cellsched.claims import validation


def pages(store: base.ClaimStore, limit: int) -> Iterator[list[str]]:
    """Yield all consumers with claims, in pages sorted by their bytes.

    The pages have every consumer that holds the same claims during the whole
    listing, and possibly any that holds claims during a part of it. A
    transfer during the listing may hide both of its consumers, so a complete
    listing requires that no transfers run.

    With a store that lists its consumers, memory is needed for one page. With
    any other store each provider in use is read before the first page, and
    all names are in memory.

    :param limit: maximum number of consumers in a page; only the last page
        is shorter
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
