# SPDX-License-Identifier: Apache-2.0
"""Providers: their inventories, and figures that are set right."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses

from cellsched.claims import base
from cellsched.claims.etcd import batches
from cellsched.claims.etcd.calls import Calls
from cellsched.claims.etcd.calls import Lost
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
                raise Lost

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
                raise Lost
            return True

        return self._calls.repeat(attempt)
