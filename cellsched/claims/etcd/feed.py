# SPDX-License-Identifier: Apache-2.0
"""Providers that changed, as etcd tells its watchers.

Each change of a provider writes one more key, too. Its revision, read when a
caller asks, is that of the last change that anyone can have seen; then what
was written up to there is awaited. So a caller is told of everything that was
there before it asked, and where nothing changed it costs one small read.

What was read is kept, each provider with its revision, which makes a token of
any age as good as the last one.
"""

from collections.abc import Iterator
from typing import Any

from cellsched.claims import base
from cellsched.claims.etcd.calls import Calls
from cellsched.claims.etcd import protocol
from cellsched.claims.etcd import records

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
