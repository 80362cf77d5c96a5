# SPDX-License-Identifier: Apache-2.0
"""Inventories, counters and changes of providers.

A change of a provider also writes the key ``p/``. Its revision, read at the
begin of a call, is the revision of the last change that any reader can have
seen; the call then waits for the watch to reach it. So a caller learns of
every earlier change, and an unchanged store costs one small read. The
providers are kept with their revisions, so a token of any age is valid.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
from typing import Any

from cellsched.claims import base
from cellsched.claims.etcd import batches
from cellsched.claims.etcd.calls import Calls
from cellsched.claims.etcd.calls import Conflict
from cellsched.claims.etcd import protocol
from cellsched.claims.etcd import records
from cellsched.claims.etcd import transactions

#: Keys of one read.
PAGE = 1000


class ProviderFigures:
    """Reads providers, sets their inventories and corrects their counters."""

    def __init__(
        self, calls: Calls, batches_: batches.Batches
    ) -> None:
        self._calls = calls
        self._names = calls.names
        self._batches = batches_

    def read(
        self, names: Iterable[str] | None
    ) -> Iterator[tuple[str, records.StoredProvider]]:
        """Yield current providers: those named, or all of them."""
        if names is None:
            for kv in self._all(self._names.provider):
                yield self._names.name(kv.key), records.StoredProvider.of(kv)
            return
        known = [*dict.fromkeys(name for name in names if name)]
        for chunk in transactions.chunks(known, self._calls.ops_max):
            view = self._calls.read(transactions.Scope(chunk))
            for name, provider in view.providers.items():
                if provider.revision:
                    yield name, provider

    def _all(
        self, kind: Callable[[str], bytes]
    ) -> Iterator[protocol.Found]:
        """Yield all keys of a kind, read page by page."""
        after = ''
        while True:
            [page] = self._calls.get(
                self._names.all_of(kind, after, PAGE)).found
            for kv in page:
                after = self._names.name(kv.key)
                if after:
                    yield kv
            if len(page) < PAGE:
                return

    def set_inventory(
        self, name: str, inventory: Mapping[str, base.Inventory]
    ) -> None:
        """Set the inventory of a provider."""
        scope = transactions.Scope([name])
        view: transactions.View | None = None

        def attempt() -> None:
            nonlocal view
            current, view = view or self._calls.read(scope), None
            known = current.providers[name]
            if known.inventory == inventory:
                return
            draft = transactions.Draft(current)
            draft.providers[name] = dataclasses.replace(
                known, inventory=dict(inventory))
            _, view = self._calls.change(draft, scope)
            if view is not None:
                raise Conflict

        self._calls.repeat(attempt)

    def recount(self, name: str) -> bool:
        """Correct the counters of a provider; return whether any was wrong."""
        scope = transactions.Scope([name])

        def attempt() -> bool:
            view = self._calls.read(scope)
            known = view.providers[name]
            if not known.revision:
                return False
            if known.batches:
                self._batches.settle(known.batches)
            counted = records.StoredProvider(
                known.revision, known.inventory, changes=known.changes)
            for kv in self._all(self._names.consumer):
                consumer = records.StoredConsumer.of(kv)
                if name in consumer.amounts:
                    counted = counted.taken(
                        consumer.amounts[name], 1, consumer.batch)
            if counted == known:
                return False
            # A concurrent claim or release changes the provider: a conflict.
            draft = transactions.Draft(view)
            draft.providers[name] = counted
            _, other = self._calls.change(draft, scope)
            if other is not None:
                raise Conflict
            return True

        return self._calls.repeat(attempt)


#: Providers of one read.
_PAGE = 1000


class ProviderFeed:
    """Follows the changes of all providers."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._names = calls.names
        self._lock = calls.clock.lock()
        self._cluster = ''
        #: Revision up to which all changes are known; -1 at first.
        self._position = -1
        #: Providers by their last change, the latest at the end.
        self._known: dict[str, records.StoredProvider] = {}

    def changes(self, since: Any) -> base.UsageChanges:
        """Return the providers changed since a token, or all of them."""
        with self._lock:
            outcome = self._calls.get(protocol.Get(self._names.tick))
            [found] = outcome.found
            self._follow(outcome.cluster, found[0].revision if found else 0)
            if not (isinstance(since, tuple) and len(since) == 2
                    and since[0] == self._cluster
                    and since[1] <= self._position):
                since = self._cluster, 0
            return base.UsageChanges((self._cluster, self._position), [
                provider.usage(name)
                for name, provider in self._after(since[1])])

    def _after(
        self, revision: int
    ) -> Iterator[tuple[str, records.StoredProvider]]:
        for name in reversed(self._known):
            provider = self._known[name]
            if provider.revision <= revision:
                return
            yield name, provider

    def _follow(self, cluster: str, revision: int) -> None:
        """Read all changes up to a revision."""
        if cluster != self._cluster or revision < self._last():
            # Another cluster, or a backup was restored.
            self._calls.forget()
            self._load()
        everything = self._names.all_of(self._names.provider)
        while self._position < revision:
            request = protocol.Changes(
                everything.key, everything.end, self._position, revision)
            answer = self._calls.repeat(lambda: self._calls.send(request))
            if isinstance(answer, protocol.CompactedAnswer):
                self._load()
                continue
            assert isinstance(answer, protocol.ChangesAnswer)
            self._note(answer.written)
            self._position = answer.revision

    def _last(self) -> int:
        return next((provider.revision for provider
                     in reversed(self._known.values())), 0)

    def _load(self) -> None:
        """Read all providers; later changes come from the watch."""
        self._known = {}
        everything: list[protocol.Found] = []
        position, after = -1, ''
        while True:
            outcome = self._calls.get(self._names.all_of(
                self._names.provider, after, _PAGE))
            if position < 0:
                position = outcome.revision
            [page] = outcome.found
            everything += page
            if len(page) < _PAGE:
                break
            after = self._names.name(page[-1].key)
        self._cluster = outcome.cluster
        # Later writes come again from the watch, in order.
        self._note(sorted((kv for kv in everything if kv.revision <= position),
                          key=lambda kv: kv.revision))
        self._position = position

    def _note(self, written: Any) -> None:
        for kv in written:
            name = self._names.name(kv.key)
            if name:
                self._known.pop(name, None)
                provider = self._known[name] = records.StoredProvider.of(kv)
                self._calls.see(name, provider)
