# SPDX-License-Identifier: Apache-2.0
"""Providers: their inventories, and figures that are set right."""

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

#: Keys that are read at a time where there may be any number.
PAGE = 1000


class ProviderFigures:
    """Reads providers, and changes what claims do not change."""

    def __init__(
        self, calls: Calls, batches_: batches.Batches
    ) -> None:
        self._calls = calls
        self._names = calls.names
        self._batches = batches_

    def read(
        self, names: Iterable[str] | None
    ) -> Iterator[tuple[str, records.StoredProvider]]:
        """Yield providers as they are now, all of them or those named."""
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
        """Yield all keys of a kind, each as it is when it is read."""
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
        """Say what a provider has."""
        scope = transactions.Scope([name])
        view: transactions.View | None = None

        def attempt() -> None:
            nonlocal view
            told, view = view or self._calls.read(scope), None
            known = told.providers[name]
            if known.inventory == inventory:
                return
            draft = transactions.Draft(told)
            draft.providers[name] = dataclasses.replace(
                known, inventory=dict(inventory))
            _, view = self._calls.change(draft, scope)
            if view is not None:
                raise Conflict

        self._calls.repeat(attempt)

    def recount(self, name: str) -> bool:
        """Set figures right; return whether they were wrong."""
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
            # Who came and went meanwhile has changed the provider.
            draft = transactions.Draft(view)
            draft.providers[name] = counted
            _, other = self._calls.change(draft, scope)
            if other is not None:
                raise Conflict
            return True

        return self._calls.repeat(attempt)


#: Providers that are read at a time.
_PAGE = 1000


class ProviderFeed:
    """Knows all providers, and when each of them changed."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._names = calls.names
        self._lock = calls.clock.lock()
        self._cluster = ''
        #: Up to this revision all changes are known; -1 before any is.
        self._position = -1
        #: Providers, those that changed last at the end.
        self._known: dict[str, records.StoredProvider] = {}

    def changes(self, since: Any) -> base.UsageChanges:
        """Return what changed since a token, or everything."""
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
        """Learn of all changes up to a revision."""
        if cluster != self._cluster or revision < self._last():
            # Another cluster, or one that was restored from a backup.
            self._calls.forget()
            self._load()
        everything = self._names.all_of(self._names.provider)
        while self._position < revision:
            request = protocol.Changes(
                everything.key, everything.end, self._position, revision)
            answer = self._calls.repeat(lambda: self._calls.send(request))
            if isinstance(answer, protocol.Compacted):
                self._load()
                continue
            assert isinstance(answer, protocol.Changed)
            self._note(answer.written)
            self._position = answer.revision

    def _last(self) -> int:
        return next((provider.revision for provider
                     in reversed(self._known.values())), 0)

    def _load(self) -> None:
        """Read all providers; what changes meanwhile is to be followed."""
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
        # What was written later comes once more, and in its order.
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
