# SPDX-License-Identifier: Apache-2.0
"""Listing of the contents of a store with any capabilities.

A health check claims and releases with a *probe*: a provider and a consumer of
its own, with uuids that begin with :data:`PROBE`. No listing has them.
"""

from collections.abc import Iterator
import hashlib

from cellsched.claims import base
from cellsched.claims import validation
from cellsched import exception

#: The first characters of the uuids of probes.
PROBE = 'ce115ced-0000-4000-8000-'

#: The resource class of probes, which no request for hosts has.
_CLASS = 'CUSTOM_CELLSCHED_PROBE'

#: Providers of probes. Few, so that polling stays cheap, and several, so that
#: the checks of many hosts do not wait for each other.
_PROVIDERS = 16


def probe(store: base.ClaimStore, name: str) -> str:
    """Claim and release, to check that a store works.

    Concurrent calls with the same name do not disturb each other.

    :param name: name of the host that checks
    :returns: an empty text
    :raises cellsched.exception.CellschedException: the store does not work
    """
    digest = hashlib.sha256(name.encode()).hexdigest()
    consumer = f'{PROBE}{digest[:12]}'
    provider = f'{PROBE}{int(digest[-8:], 16) % _PROVIDERS:012x}'
    claims = [base.Claim(consumer, provider, {_CLASS: 1})]
    with base.translated_errors():
        try:
            store.claim(claims)
        except exception.ClaimRefused:
            # The first check of all.
            store.set_inventory(provider, {
                _CLASS: base.Inventory(base.resources.AMOUNT_MAX)})
            store.claim(claims)
        store.release([consumer])
    return ''


def is_probe(uuid: str) -> bool:
    """Return whether a provider or a consumer belongs to a health check."""
    return uuid.startswith(PROBE)


def usages(store: base.ClaimStore) -> base.UsageChanges:
    """Return the usage of all providers."""
    found = store.usages()
    return base.UsageChanges(found.token, [
        each for each in found.usages if not is_probe(each.provider)])


def inventories(
    store: base.ClaimStore
) -> dict[str, dict[str, base.Inventory]]:
    """Return the inventories of all providers."""
    return {provider: each for provider, each in store.inventories().items()
            if not is_probe(provider)}


def pages(store: base.ClaimStore, limit: int) -> Iterator[list[str]]:
    """Yield all consumers with claims, in pages sorted by their bytes.

    The pages have every consumer that holds the same claims during the whole
    listing, and possibly any that holds claims during a part of it. A
    transfer during the listing may hide both of its consumers, so a complete
    listing requires that no transfers run.

    With a store that lists its consumers, memory is needed for one page. With
    any other store each provider in use is read before the first page, and
    all names are in memory.

    :param limit: maximum number of consumers in a page
    :raises cellsched.exception.InvalidField: the limit is below 1
    """
    validation.check_limit(limit)
    if base.Capability.CONSUMER_LIST in store.capabilities:
        after = ''
        while names := store.consumers(after, limit):
            yield [name for name in names if not is_probe(name)]
            if len(names) < limit:
                return
            after = names[-1]
        return
    known = {name for provider in store.providers_in_use()
             for name in store.consumers_of(provider) if not is_probe(name)}
    names = sorted(known)
    for start in range(0, len(names), limit):
        yield names[start:start + limit]
