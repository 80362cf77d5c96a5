# SPDX-License-Identifier: Apache-2.0
"""Trees of providers: their traits, and queries by capacity and traits.

Indexes find the providers with a trait, and those that are not roots. There
is no index of the free capacity, as the capacity is a part of the inventory's
JSON; so the used amounts of all providers are read and compared here.
"""

from collections.abc import Iterable
from collections.abc import Mapping

from cellsched.claims import base
from cellsched.claims.cassandra import requests
from cellsched.claims.cassandra.session import CONTENDED
from cellsched.claims.cassandra.session import Session
from cellsched.claims.cassandra import slots


class ProviderTrees:
    """Stores the traits and roots of providers, and answers queries."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def set_traits(
        self, provider: str, traits: tuple[str, ...], root: str
    ) -> None:
        """Set the traits of a provider and the root of its tree.

        :param traits: sorted
        """
        for _ in self._session.attempts():
            seen = self._session.ask(requests.ReadTree(provider))
            if seen is not None and (seen.root, seen.traits) == (root, traits):
                return
            written = self._session.try_all([requests.WriteTree(
                provider, seen and seen.version,
                requests.Tree(self._session.name(), root, traits))])[0]
            if written is True:
                return
        self._session.unreachable(CONTENDED)

    def roots(self, providers: Iterable[str]) -> dict[str, str]:
        """Return the roots of the providers that have one."""
        names = list(dict.fromkeys(providers))
        found = self._session.ask_all(
            [requests.ReadTree(name) for name in names])
        return {name: tree.root for name, tree in zip(names, found)
                if tree is not None}

    def find(self, query: base.ProviderQuery, limit: int | None) -> list[str]:
        """Return the roots of the trees that match a query.

        :param limit: maximum number, chosen at random; None for all
        """
        required, forbidden = sorted(query.required), sorted(query.forbidden)
        providers, nested, *having = self._session.ask_all([
            requests.Scan(figures=True), requests.ScanTrees(nested=True),
            *map(requests.ScanTrees, [*required, *forbidden])])
        found = _with_room(providers, dict(nested), query.resources)
        for pairs in having[len(required):]:
            found.difference_update(provider for provider, _ in pairs)
        matching = found.intersection(*(
            {root for _, root in pairs} for pairs in having[:len(required)]))
        if matching != found:
            # A root without a row matches any traits.
            known = self._session.ask(requests.ScanTrees())
            matching |= found.difference(provider for provider, _ in known)
        roots = sorted(matching)
        if limit is None or len(roots) <= limit:
            return roots
        return self._session.random.sample(roots, limit)


def _with_room(
    providers: Iterable[requests.Figures], nested: Mapping[str, str],
    resources: Mapping[str, Iterable[int]],
) -> set[str]:
    """Return the roots of the trees that have the requested capacity.

    :param nested: roots of the providers that are not roots
    """
    lacking: dict[str, set[str]] = {}
    for each in providers:
        lacks = lacking.setdefault(
            nested.get(each.provider, each.provider), {*resources})
        if lacks:
            classes = slots.parse(each.inventory).classes
            lacks.difference_update([
                name for name in lacks if name in classes and _gives(
                    classes[name], each, resources[name])])
    return {root for root, lacks in lacking.items() if not lacks}


def _gives(
    slot: slots.Slot, figures: requests.Figures, amounts: Iterable[int]
) -> bool:
    """Return whether a provider can grant one of the amounts."""
    free = slot.capacity - (figures.used[slot.number] or 0)
    return any(amount <= free and slot.admits(amount) for amount in amounts)
