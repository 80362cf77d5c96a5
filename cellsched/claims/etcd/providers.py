# SPDX-License-Identifier: Apache-2.0
"""Inventories, counters and changes of providers.

A change of a provider also writes the key ``p/``. Its revision, read at the
begin of a call, is the revision of the last change that any reader can have
seen; the call then waits for the watch to reach it. So a caller learns of
every earlier change, and an unchanged store costs one small read. The
providers are kept with their revisions, so a token of any age is valid.
"""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import functools
import math
from typing import Any

from oslo_log import log

from cellsched.claims import base
from cellsched.claims.etcd import batches
from cellsched.claims.etcd.calls import Calls
from cellsched.claims.etcd.calls import Conflict
from cellsched.claims.etcd.calls import Full
from cellsched.claims.etcd.calls import PAGE
from cellsched.claims.etcd import protocol
from cellsched.claims.etcd import records
from cellsched.claims.etcd import transactions
from cellsched.conditions import Conditions
from cellsched import exception

LOG = log.getLogger(__name__)

#: The condition that the counters are wrong.
_UNCORRECTED = 'The counters of the claim store are not corrected yet'

#: Number of walks through all consumers to correct all counters.
_WALKS_MAX = 3

#: Seconds between two attempts to correct all counters.
_MEND_S = 5.0


class ProviderFigures:
    """Reads providers, sets their inventories and corrects their counters."""

    def __init__(self, calls: Calls, batches_: batches.Batches) -> None:
        self._calls = calls
        self._names = calls.names
        self._batches = batches_
        #: When all counters are corrected next, and why that failed last.
        self._mend_at = -math.inf
        self._full: Full | None = None

    def read(
        self, names: Iterable[str] | None
    ) -> Iterator[tuple[str, records.StoredProvider]]:
        """Yield current providers: those named, or all of them."""
        if names is None:
            for kv in self._calls.all_of(self._names.provider):
                yield self._names.name(kv.key), records.StoredProvider.of(kv)
            return
        known = [*dict.fromkeys(name for name in names if name)]
        for chunk in transactions.chunks(known, self._calls.ops_max):
            view = self._calls.read(transactions.Scope(chunk))
            for name, provider in view.providers.items():
                if provider.revision:
                    yield name, provider

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
            records.check([known])
            if known.inventory == inventory:
                return
            if not known.revision:
                # Its key may be lost while servers hold claims there.
                known = self._walk().provider(name, known)
            draft = transactions.Draft(current)
            draft.providers[name] = dataclasses.replace(
                known, inventory=dict(inventory))
            view = self._calls.change(draft, scope)
            if view is not None:
                raise Conflict

        self._calls.repeat(attempt)

    def recount(self, name: str) -> bool:
        """Correct the counters of a provider; return whether any was wrong.

        Nothing is changed while the provider or any consumer is unreadable,
        as that may have claims there.
        """
        scope = transactions.Scope([name])

        def attempt() -> bool:
            view = self._calls.read(scope)
            known = view.providers[name]
            if not known.revision or known.unreadable:
                return False
            if marks := view.all_marks(scope):
                self._batches.settle(marks)
            walk = self._walk()
            if any(each.unreadable for each in walk.consumers.values()):
                return False
            counted = walk.provider(name, known)
            if counted == known:
                return False
            # A concurrent claim or release changes the provider: a conflict.
            draft = transactions.Draft(view)
            draft.providers[name] = counted
            other = self._calls.change(draft, scope)
            if other is not None:
                raise Conflict
            return True

        return self._calls.repeat(attempt)

    def _walk(self) -> '_Walk':
        """Read all consumers and batches."""
        outcome = self._calls.get(self._names.all_of(self._names.batch))
        walk = _Walk(outcome.revision, transactions.batches(
            self._names, outcome.found[0]))
        for kv in self._calls.all_of(self._names.consumer):
            walk.consumers[self._names.name(kv.key)] = (
                records.StoredConsumer.of(kv))
        self._calls.report(walk.consumers.values())
        return walk

    # Repairs of all records.

    def is_counted(self) -> bool:
        """Return whether the counters may be relied on."""
        [found] = self._calls.get(protocol.Get(self._names.counted)).found
        return [kv.value for kv in found] == [records.COUNTED]

    def mend_sometimes(self) -> bool:
        """Correct all counters, at most every few seconds.

        :returns: whether they are right now
        :raises cellsched.claims.etcd.calls.Full: the server has no space
        """
        now = self._calls.clock.monotonic()
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
        """Correct all counters, members and marks of missing batches.

        :returns: False if some could not be corrected yet
        """
        # 1. Complete committed batches without a list of their consumers, and
        #    roll back pending ones.
        [states] = self._calls.get(self._names.all_of(self._names.batch)).found
        self._batches.settle(
            [name for name, batch in transactions.batches(
                self._names, states).items()
             if not batch.unreadable and self._is_lost(name)], abort=True)
        # 2. Announce it. A release that cannot count deletes the key, which
        #    then shows at the end.
        run = f'{self._calls.random.getrandbits(64):016x}'.encode()
        key = self._names.counted
        self._calls.repeat(lambda: self._calls.transact(
            protocol.Transaction((), (protocol.Put(key, run),))))
        for number in range(_WALKS_MAX):
            # 3. Add up the claims of all consumers, and correct the records
            #    that have not changed since. At last, count each of the
            #    others alone.
            changed: list[str] = []
            if self._correct(self._walk(), changed) and (
                    not changed or number == _WALKS_MAX - 1):
                for name in changed:
                    self.recount(name)
                # 4. All counters are right.
                return self._calls.repeat(lambda: self._calls.transact(
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
        for name in walk.orphans():
            consumer = dataclasses.replace(walk.consumers[name], batch='')
            right &= self._replace(
                self._names.consumer(name), consumer.revision,
                consumer.value())
        for kv in self._calls.all_of(self._names.provider):
            name, known = self._names.name(kv.key), (
                records.StoredProvider.of(kv))
            counted = walk.provider(name, known)
            if known.unreadable:
                right = False
            elif kv.revision > walk.revision:
                changed.append(name)
            elif counted != known and not self._replace(
                    kv.key, kv.revision, dataclasses.replace(
                        counted, changes=known.changes + 1).value()):
                changed.append(name)
        for kv in self._calls.all_of(self._names.group):
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
        return self._calls.repeat(lambda: self._calls.transact(
            protocol.Transaction(
                (protocol.Compare(key, revision),),
                (op, protocol.Put(self._names.tick, b''))))).succeeded

    def _is_lost(self, name: str) -> bool:
        """Return whether a batch has no list of its consumers."""
        [work] = self._calls.get(
            protocol.Get(self._names.work(name))).found
        return records.work_of(work) is None

    def problems(self) -> list[base.StoreProblem]:
        """Return the records that are unreadable or contradict others."""
        # Two reads, as a batch may be in progress.
        again = {each.record: each for each in self._problems()}
        return [each for each in self._problems()
                if each == again.get(each.record)] if again else []

    def _problems(self) -> Iterator[base.StoreProblem]:
        names, walk = self._names, self._walk()
        for kind, read in ((names.provider, records.StoredProvider.of),
                           (names.consumer, records.StoredConsumer.of),
                           (names.group, records.StoredGroup.of),
                           (names.batch, records.BatchState.of)):
            for kv in self._calls.all_of(kind):
                record: Any = read(kv)
                key = records.shown(kv.key)
                marks = ({record.batch} - {''} if kind == names.consumer
                         else set(getattr(record, 'batches', ())))
                missing = sorted(marks - walk.batches.keys())
                if record.unreadable:
                    yield base.StoreProblem(
                        key, record.unreadable, 'restore its value, or delete '
                        'it if no later release wrote it, and audit again',
                        names.name(kv.key) if kind == names.provider else '')
                elif missing:
                    yield base.StoreProblem(
                        key, f'names the batch {missing[0]}, which does not '
                        'exist')
                elif kind == names.group:
                    ghosts = record.members.keys() - walk.consumers.keys()
                    if ghosts:
                        yield base.StoreProblem(
                            key, f'has the member {min(ghosts)}, which holds '
                            'no claim')
        for name, batch in walk.batches.items():
            if not batch.unreadable and self._is_lost(name):
                yield base.StoreProblem(
                    records.shown(names.batch(name)),
                    'is a batch without a list of its consumers')


@dataclasses.dataclass
class _Walk:
    """All consumers, read one after the other from a revision on.

    They are those of that revision for each provider that has not changed
    since.
    """

    revision: int
    batches: Mapping[str, records.BatchState]
    consumers: dict[str, records.StoredConsumer] = dataclasses.field(
        default_factory=dict)

    def orphans(self) -> list[str]:
        """Return the consumers with a mark of a missing batch."""
        return [name for name, consumer in self.consumers.items()
                if consumer.batch and consumer.batch not in self.batches]

    def provider(
        self, name: str, known: records.StoredProvider
    ) -> records.StoredProvider:
        """Return a provider with the counters that follow."""
        counted = dataclasses.replace(known, used={}, consumers=0, batches={})
        for consumer in self._by_provider.get(name, ()):
            counted = counted.taken(consumer.amounts[name], 1, self._mark(
                consumer))
        return counted

    def group(self, name: str, revision: int) -> records.StoredGroup:
        """Return a group with the members that follow."""
        group = records.StoredGroup(revision)
        for consumer, it in self.consumers.items():
            if it.joins is not None and it.joins[0] == name:
                group = group.joined(consumer, it.joins[1:], self._mark(it))
        return group

    def _mark(self, consumer: records.StoredConsumer) -> str:
        return consumer.batch if consumer.batch in self.batches else ''

    @functools.cached_property
    def _by_provider(self) -> Mapping[str, list[records.StoredConsumer]]:
        found: dict[str, list[records.StoredConsumer]] = {}
        for consumer in self.consumers.values():
            for name in consumer.amounts:
                found.setdefault(name, []).append(consumer)
        return found


class ProviderFeed:
    """Follows the changes of all providers."""

    def __init__(self, calls: Calls, figures: ProviderFigures) -> None:
        self._calls = calls
        self._figures = figures
        self._conditions = Conditions(LOG, calls.clock.monotonic)
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
            unreadable = [name for name, provider in self._known.items()
                          if provider.unreadable]
            # An operator who mends a provider writes no other key.
            outcome = self._calls.get(
                protocol.Get(self._names.tick),
                protocol.Get(self._names.counted),
                *(protocol.Get(self._names.provider(name))
                  for name in unreadable[:self._calls.ops_max - 2]))
            found, counted, *mended = outcome.found
            if [kv.value for kv in counted] != [records.COUNTED]:
                self._mend()
            self._follow(outcome.cluster, found[0].revision if found else 0)
            for name, again in zip(unreadable, mended):
                known = self._known.get(name)
                if known is not None and known.revision < max(
                        (kv.revision for kv in again), default=0):
                    self._note(again)
            if not (isinstance(since, tuple) and len(since) == 2
                    and since[0] == self._cluster
                    and since[1] <= self._position):
                since = self._cluster, 0
            return base.UsageChanges((self._cluster, self._position), [
                provider.usage(name)
                for name, provider in self._after(since[1])])

    def _mend(self) -> None:
        """Correct all counters, if it is possible."""
        try:
            self._figures.mend_sometimes()
            self._conditions.end(_UNCORRECTED)
        except exception.DatabaseError as exc:
            self._conditions.occur(_UNCORRECTED, exc)

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
        position = -1
        after: str | bytes = ''
        while True:
            outcome = self._calls.get(self._names.all_of(
                self._names.provider, after, PAGE))
            if position < 0:
                position = outcome.revision
            [page] = outcome.found
            everything += page
            if len(page) < PAGE:
                break
            after = page[-1].key
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
