# SPDX-License-Identifier: Apache-2.0
"""Inventories, counters and changes of providers.

A change of a provider also writes the key ``p/``. Its revision, read at the
start of a call, is the revision of the last change that any reader can have
seen; the call then waits for the watch to reach it. So a caller gets every
earlier change, and an unchanged store costs one small read. The
providers are kept with their revisions, so a token of any age is valid.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import functools
import itertools
import math
from typing import Any

from oslo_log import log

from cellsched.claims import base
from cellsched.claims.etcd import protocol
from cellsched.claims.etcd import records
from cellsched.claims.etcd import transactions
from cellsched.claims.etcd.transactions import Conflict
from cellsched.claims.etcd.transactions import Full
from cellsched import exception
from cellsched.observability.conditions import Conditions

LOG = log.getLogger(__name__)

#: The condition that the counters are wrong.
_UNCORRECTED = 'The counters of the claim store are not corrected yet'

#: Number of walks through all consumers to correct all counters.
_WALKS_MAX = 3

#: Seconds between two attempts to correct all counters.
_MEND_S = 5.0


class ProviderFigures:
    """Reads providers, sets their inventories and corrects their counters."""

    def __init__(self, store: transactions.Records) -> None:
        self._store = store
        self._names = store.names
        #: When all counters are corrected next, and why that failed last.
        self._mend_at = -math.inf
        self._full: Full | None = None

    def read(
        self, names: Iterable[str] | None
    ) -> Iterator[tuple[str, records.StoredProvider]]:
        """Yield current providers: those named, or all of them."""
        if names is None:
            for kv in self._store.all_of(records.PROVIDER):
                yield self._names.name(kv.key), records.StoredProvider.of(kv)
            return
        view = self._store.read([
            (records.PROVIDER, name) for name in dict.fromkeys(names) if name])
        for (_, name), provider in view.records.items():
            if provider.revision:
                yield name, provider

    def set_inventory(
        self, name: str, inventory: Mapping[str, base.Inventory]
    ) -> None:
        """Set the inventory of a provider."""
        key = records.PROVIDER, name

        def attempt() -> None:
            draft = transactions.Draft(self._store.read([key]))
            known = draft.provider(name)
            records.check([known])
            if known.inventory == inventory:
                return
            if not known.revision:
                # Its key may be lost while servers hold claims there.
                known = self._walk().provider(name, known)
            draft.written[key] = dataclasses.replace(
                known, inventory=dict(inventory))
            if self._store.change(draft) is not None:
                raise Conflict

        self._store.repeat(attempt)

    def recount(self, name: str) -> bool:
        """Correct the counters of a provider; return whether any was wrong.

        Nothing is changed while the provider or any consumer is unreadable,
        as that may have claims there.
        """
        key = records.PROVIDER, name

        def attempt() -> bool:
            draft = transactions.Draft(self._store.read([key]))
            known = draft.provider(name)
            if not known.revision or known.unreadable:
                return False
            walk = self._walk()
            if any(each.unreadable for each in walk.consumers.values()):
                return False
            counted = walk.provider(name, known)
            if counted == known:
                return False
            # A concurrent claim or release changes the provider: a conflict.
            draft.written[key] = counted
            if self._store.change(draft) is not None:
                raise Conflict
            return True

        return self._store.repeat(attempt)

    def _walk(self) -> '_Walk':
        """Read all consumers."""
        walk = _Walk(self._store.get().revision)
        for kv in self._store.all_of(records.CONSUMER):
            walk.consumers[self._names.name(kv.key)] = (
                records.StoredConsumer.of(kv))
        self._store.report(walk.consumers.values())
        return walk

    # Repairs of all records.

    def is_counted(self) -> bool:
        """Return whether the counters may be relied on."""
        [found] = self._store.get(protocol.Get(self._names.counted)).found
        return [kv.value for kv in found] == [records.COUNTED]

    def mend_sometimes(self) -> bool:
        """Correct all counters, at most every few seconds.

        :returns: whether the counters are correct
        :raises cellsched.claims.etcd.transactions.Full: the server has no
            space
        """
        now = self._store.clock.monotonic()
        if now < self._mend_at:
            if self._full is not None:
                raise self._full
            return False
        self._mend_at, self._full = now + _MEND_S, None
        try:
            return self.mend()
        except Full as exc:
            self._full = exc
            raise

    def mend(self) -> bool:
        """Correct all counters and members.

        :returns: False if some counters cannot be corrected yet
        """
        # 1. Announce it. A release that cannot count deletes the key, which
        #    then shows at the end.
        run = f'{self._store.random.getrandbits(64):016x}'.encode()
        key = self._names.counted
        self._store.repeat(lambda: self._store.transact(
            protocol.Transaction((), (protocol.Put(key, run),))))
        for number in range(_WALKS_MAX):
            # 2. Add up the claims of all consumers, and correct the records
            #    that have not changed since. After the last walk, count each
            #    changed provider alone.
            changed: list[str] = []
            if self._correct(self._walk(), changed) and (
                    not changed or number == _WALKS_MAX - 1):
                for name in changed:
                    self.recount(name)
                # 3. All counters are right.
                return self._store.repeat(lambda: self._store.transact(
                    protocol.Transaction(
                        (protocol.Compare(key, 0, run),),
                        (protocol.Put(key, records.COUNTED),)))).succeeded
        return False

    def _correct(self, walk: '_Walk', changed: list[str]) -> bool:
        """Correct all records by a walk; return whether that is possible.

        :param changed: gets the providers that have changed since the walk
        """
        if any(each.unreadable for each in walk.consumers.values()):
            return False
        right = True
        for kv in self._store.all_of(records.PROVIDER):
            name, known = self._names.name(kv.key), (
                records.StoredProvider.of(kv))
            counted = walk.provider(name, known)
            if known.unreadable:
                right = False
            elif kv.revision > walk.revision:
                changed.append(name)
            elif counted != known and not self._replace(
                    kv.key, kv.revision, counted.value()):
                changed.append(name)
        for kv in self._store.all_of(records.GROUP):
            group = records.StoredGroup.of(kv)
            joined = walk.group(self._names.name(kv.key), kv.revision)
            if group.unreadable or kv.revision > walk.revision:
                right = False
            elif joined != group:
                right &= self._replace(kv.key, kv.revision, joined.value())
        return right

    def _replace(self, key: bytes, revision: int, value: bytes) -> bool:
        """Write a record if it is unchanged; return whether it was."""
        op = protocol.Put(key, value) if value else protocol.Delete(key)
        return self._store.repeat(lambda: self._store.transact(
            protocol.Transaction(
                (protocol.Compare(key, revision),),
                (op, protocol.Put(self._names.tick, b''))))).succeeded

    def problems(self) -> list[base.StoreProblem]:
        """Return the records that are unreadable or contradict others."""
        # Two reads, as a claim may be in progress.
        again = {each.record: each for each in self._problems()}
        return [each for each in self._problems()
                if each == again.get(each.record)] if again else []

    def _problems(self) -> Iterator[base.StoreProblem]:
        names, walk = self._names, self._walk()
        for kind, record_type in records.KINDS.items():
            for kv in self._store.all_of(kind):
                record = record_type.of(kv)
                key = records.shown(kv.key)
                if record.unreadable:
                    yield base.StoreProblem(
                        key, record.unreadable, 'restore its value, or delete '
                        'it if no later release wrote it, and audit again',
                        names.name(kv.key) if kind == records.PROVIDER else '')
                elif kind == records.GROUP:
                    ghosts = record.members.keys() - walk.consumers.keys()
                    if ghosts:
                        yield base.StoreProblem(
                            key, f'has the member {min(ghosts)}, which holds '
                            'no claim')


@dataclasses.dataclass
class _Walk:
    """All consumers, read one after the other from a revision on.

    For a provider that has not changed since, they have the claims of that
    revision.
    """

    revision: int
    consumers: dict[str, records.StoredConsumer] = dataclasses.field(
        default_factory=dict)

    def provider(
        self, name: str, known: records.StoredProvider
    ) -> records.StoredProvider:
        """Return a provider with counters that match the consumers."""
        counted = dataclasses.replace(known, used={}, consumers=0)
        for consumer in self._by_provider.get(name, ()):
            counted = counted.taken(consumer.amounts[name], 1)
        return counted

    def group(self, name: str, revision: int) -> records.StoredGroup:
        """Return a group with members that match the consumers."""
        group = records.StoredGroup(revision)
        for uuid, consumer in self.consumers.items():
            if consumer.joins is not None and consumer.joins[0] == name:
                group = group.joined(uuid, consumer.joins[1:])
        return group

    @functools.cached_property
    def _by_provider(self) -> Mapping[str, list[records.StoredConsumer]]:
        found: dict[str, list[records.StoredConsumer]] = {}
        for consumer in self.consumers.values():
            for name in consumer.amounts:
                found.setdefault(name, []).append(consumer)
        return found


class ProviderFeed:
    """Follows the changes of all providers."""

    def __init__(
        self, store: transactions.Records, figures: ProviderFigures
    ) -> None:
        self._store = store
        self._figures = figures
        self._conditions = Conditions(LOG, store.clock.monotonic)
        self._names = store.names
        self._lock = store.clock.lock()
        self._cluster = ''
        #: Revision up to which all changes are known; -1 at first.
        self._position = -1
        #: Providers by their last change, the latest at the end.
        self._known: dict[str, records.StoredProvider] = {}

    def changes(self, since: Any) -> base.UsageChanges:
        """Return the providers changed since a token, or all of them."""
        with self._lock:
            # 1. One request reads the revision of the last change, and
            #    unreadable providers: an operator who repairs a provider
            #    writes its key only, which the revision does not show.
            unreadable = [name for name, provider in self._known.items()
                          if provider.unreadable]
            outcome = self._store.get(
                protocol.Get(self._names.tick),
                protocol.Get(self._names.counted),
                *(protocol.Get(self._names.key(records.PROVIDER, name))
                  for name in unreadable[:self._store.ops_max - 2]))
            found, counted, *mended = outcome.found
            # 2. Read the providers that changed up to that revision, and note
            #    the repaired providers that the changes do not include.
            if [kv.value for kv in counted] != [records.COUNTED]:
                self._mend()
            self._follow(outcome.cluster, found[0].revision if found else 0)
            for name, again in zip(unreadable, mended):
                known = self._known.get(name)
                if known is not None and known.revision < max(
                        (kv.revision for kv in again), default=0):
                    self._note(again)
            # 3. A token of another cluster, or of a later revision, is from
            #    before a restore; its owner gets all providers.
            if not (isinstance(since, tuple) and len(since) == 2
                    and since[0] == self._cluster
                    and since[1] <= self._position):
                since = self._cluster, 0
            changed = itertools.takewhile(
                lambda item: item[1].revision > since[1],
                reversed(self._known.items()))
            return base.UsageChanges((self._cluster, self._position), [
                provider.usage(name) for name, provider in changed])

    def _mend(self) -> None:
        """Correct all counters, if it is possible."""
        try:
            self._figures.mend_sometimes()
            self._conditions.end(_UNCORRECTED)
        except exception.DatabaseError as exc:
            self._conditions.occur(_UNCORRECTED, exc)

    def _follow(self, cluster: str, revision: int) -> None:
        """Read all changes up to a revision."""
        last = next(reversed(self._known.values()), records.StoredProvider())
        if cluster != self._cluster or revision < last.revision:
            # Another cluster, or a backup was restored.
            self._store.forget()
            revision = max(revision, self._load())
        everything = self._names.all_of(records.PROVIDER)
        while self._position < revision:
            request = protocol.Changes(
                everything.key, everything.end, self._position, revision)
            answer = self._store.repeat(lambda: self._store.send(request))
            if isinstance(answer, protocol.CompactedAnswer):
                revision = max(revision, self._load())
                continue
            assert isinstance(answer, protocol.ChangesAnswer)
            self._note(answer.written)
            self._position = answer.revision

    def _load(self) -> int:
        """Read all providers as they are at one revision.

        :returns: the revision of the last change that was seen; the watch has
            the changes up to it, in order
        """
        # A read of a key waits for a quorum. An empty transaction does not.
        start = self._store.get(protocol.Get(self._names.tick))
        found = sorted(self._store.all_of(records.PROVIDER),
                       key=lambda kv: kv.revision)
        self._known = {}
        self._note(kv for kv in found if kv.revision <= start.revision)
        self._cluster, self._position = start.cluster, start.revision
        return found[-1].revision if found else 0

    def _note(self, written: Any) -> None:
        for kv in written:
            name = self._names.name(kv.key)
            if name:
                self._known.pop(name, None)
                provider = self._known[name] = records.StoredProvider.of(kv)
                self._store.see(name, provider)
