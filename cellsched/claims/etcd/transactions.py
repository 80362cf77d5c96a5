# SPDX-License-Identifier: Apache-2.0
"""Transactions made of the records that were read and a change of them."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import math
from random import Random
from typing import Any
from typing import TypeVar

from oslo_log import log

from cellsched.claims.etcd import protocol
from cellsched.claims.etcd import records
from cellsched.claims import remote
from cellsched.clock import Clock
from cellsched import exception

LOG = log.getLogger(__name__)

#: Seconds between two messages about the alarm NOSPACE.
_FULL_S = 60.0

#: Longest wait, in seconds, before another attempt, and longest after a
#: conflict.
_WAIT_MOST_S, _CONFLICT_S = 0.05, 0.001

#: Keys of one read.
PAGE = 1000

_Outcome = TypeVar('_Outcome')
_Item = TypeVar('_Item')


class Conflict(Exception):
    """Another client has changed the same keys; the attempt is repeated."""


class Held(Conflict):
    """Another client holds the store for a large batch."""


class Full(exception.ClaimStoreFailed):
    """etcd has raised the alarm NOSPACE and accepts deletions only."""


class View:
    """Records that were read.

    :ivar is_fresh: whether they were read during the call; False for cached
        records
    :ivar tick: revision of the last change of any provider, at or before the
        read
    :ivar hold: the hold of another client, if there is one
    """

    def __init__(
        self, found: dict[records.Key, Any], is_fresh: bool = True
    ) -> None:
        self.records = found
        self.is_fresh = is_fresh
        self.tick = 0
        self.hold: protocol.Found | None = None

    @classmethod
    def of(
        cls, keys: Iterable[records.Key],
        found: Sequence[Sequence[protocol.Found]],
    ) -> 'View':
        """Return the result of :func:`reads`."""
        self = cls({})
        for key, kvs in zip(keys, found):
            kind = records.KINDS[key[0]]
            self.records[key] = kind.of(kvs[0]) if kvs else kind()
        for kv in found[-2]:
            self.tick = kv.revision
        for kv in found[-1]:
            self.hold = kv
        return self

    def consumers(self) -> dict[str, records.StoredConsumer]:
        """Return the consumers that have a key with a readable value."""
        return {name: record for (kind, name), record in self.records.items()
                if kind == records.CONSUMER and record.amounts}


class Draft:
    """A change, applied only if the records that it reads are unchanged.

    A provider or a group that is missing or unreadable is not written. Then
    the mark of right counters is deleted, so that they are recounted later.

    :ivar read: the records on which the change depends
    :ivar written: the records that it writes; a record without a value is
        deleted
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self.read: dict[records.Key, Any] = {}
        self.written: dict[records.Key, Any] = {}
        self._is_counted = True

    @property
    def providers(self) -> list[str]:
        """The providers that the change writes."""
        return [name for kind, name in self.written
                if kind == records.PROVIDER]

    def provider(self, name: str) -> records.StoredProvider:
        """Return a provider as it is after the change."""
        provider: records.StoredProvider = self._get((records.PROVIDER, name))
        return provider

    def consumer(self, name: str) -> records.StoredConsumer:
        """Return a consumer as it is after the change.

        :raises cellsched.exception.ClaimStoreFailed: it cannot be read
        """
        consumer: records.StoredConsumer = self._get((records.CONSUMER, name))
        records.check([consumer])
        return consumer

    def group(self, name: str) -> records.StoredGroup:
        """Return a server group as it is after the change."""
        group: records.StoredGroup = self._get((records.GROUP, name))
        return group

    def claim(self, name: str, consumer: records.StoredConsumer) -> None:
        """Add the claims of a consumer that holds none."""
        self.written[records.CONSUMER, name] = consumer
        self._count(consumer, 1)
        if consumer.joins is not None:
            self._join(consumer.joins[0], name, consumer.joins[1:])

    def release(self, name: str) -> None:
        """Remove the claims of a consumer."""
        consumer = self.consumer(name)
        self.written[records.CONSUMER, name] = records.StoredConsumer()
        self._count(consumer, -1)
        if consumer.joins is not None:
            self._join(consumer.joins[0], name, None)

    def transfer(self, source: str, target: str) -> None:
        """Move the claims of one consumer to another that holds none."""
        # The providers are written too, so that a concurrent recount
        # conflicts.
        consumer = self.consumer(source)
        self.release(source)
        self.claim(target, consumer)

    def rename_host(self, name: str, host: str) -> None:
        """Replace the host of a member of a group."""
        consumer = self.consumer(name)
        if consumer.joins is not None:
            group, _, member = consumer.joins
            self.written[records.CONSUMER, name] = dataclasses.replace(
                consumer, joins=(group, host, member))
            self._join(group, name, (host, member))

    def renew_providers(self) -> None:
        """Write all providers as they are, to change their revisions."""
        for kind, name in self.view.records:
            if kind == records.PROVIDER:
                provider = self.provider(name)
                if provider.revision and not provider.unreadable:
                    self.written[kind, name] = provider

    def transaction(
        self, names: records.Names, is_held: bool, size: int
    ) -> protocol.Transaction:
        """Return the transaction; after a conflict it reads the records.

        :param is_held: whether this client holds the store for a batch with
            too many records to compare each of them
        :param size: number of keys of a nested transaction
        """
        # 1. Each change also writes ``tick``: its revision tells readers
        #    whether anything changed. A change that could not count a provider
        #    removes the mark of right counters, so that they are corrected.
        writes: list[protocol.Op] = []
        for key, record in self.written.items():
            name, value = names.key(*key), record.value()
            writes.append(
                protocol.Put(name, value) if value else protocol.Delete(name))
        writes.append(protocol.Put(names.tick, b''))
        if not self._is_counted:
            writes.append(protocol.Delete(names.counted))
        # 2. A large batch holds the store: no other client has written since
        #    the revision of ``tick`` that it read. The server counts the
        #    operations of each nested transaction alone.
        if is_held:
            return protocol.Transaction(
                (protocol.Compare(names.tick, self.view.tick),),
                (*(protocol.Transaction(success=tuple(part))
                   for part in chunks(writes, size)),
                 protocol.Delete(names.hold)))
        # 3. Any other one compares each record that its plan depends on, and
        #    that no other client holds the store.
        compares = [protocol.Compare(names.hold, 0)]
        for key, record in self.read.items():
            compares.append(
                protocol.Compare(names.key(*key), record.revision))
        return protocol.Transaction(
            tuple(compares), tuple(writes), reads(names, self.read))

    def _get(self, key: records.Key) -> Any:
        if key in self.written:
            return self.written[key]
        known = self.read[key] = self.view.records[key]
        return known

    def _count(self, consumer: records.StoredConsumer, sign: int) -> None:
        for name, amounts in consumer.amounts.items():
            provider = self.provider(name)
            if provider.unreadable or not provider.revision:
                self._is_counted = False
            else:
                self.written[records.PROVIDER, name] = provider.taken(
                    amounts, sign)

    def _join(
        self, name: str, consumer: str, member: tuple[str, str] | None
    ) -> None:
        group = self.group(name)
        if group.unreadable:
            self._is_counted = False
        else:
            self.written[records.GROUP, name] = group.joined(consumer, member)


def reads(
    names: records.Names, keys: Iterable[records.Key]
) -> tuple[protocol.Op, ...]:
    """Return the reads of records, for :meth:`View.of`."""
    every = [names.key(*key) for key in keys]
    return tuple(map(protocol.Get, [*every, names.tick, names.hold]))


def chunks(items: Iterable[_Item], size: int) -> Iterator[Sequence[_Item]]:
    """Yield items in parts of a size."""
    every = [*items]
    for start in range(0, len(every), size):
        yield every[start:start + size]


class Records:
    """Reads and changes records, and caches providers.

    :param url: URL of the servers, for error messages
    :param retry_timeout_s: seconds for which a call is retried
    :param hold_timeout_s: seconds for which another client may hold the store
    :param ops_max: number of operations that a transaction may have
    :ivar keys_max: number of keys that one transaction may compare
    :ivar batch_max: number of keys that a large batch may change
    :ivar providers_max: number of providers on which a consumer may have
        claims
    """

    def __init__(
        self, client: protocol.Sender, names: records.Names,
        clock: Clock, random: Random, url: str,
        retry_timeout_s: float, hold_timeout_s: float, ops_max: int,
    ) -> None:
        self.names = names
        self.clock = clock
        self.random = random
        self.ops_max = ops_max
        # Two operations are reserved: the key that every change writes, and
        # the hold of a large batch or the mark of right counters.
        self.keys_max = ops_max - 2
        # The server counts the operations of each nested transaction alone,
        # together with those around it.
        self.batch_max = (ops_max // 2 - 1) * (ops_max // 2) - 2
        # A transfer changes the providers of two consumers, and their groups.
        self.providers_max = self.keys_max // 2 - 3
        self.retry_timeout_s = retry_timeout_s
        self._client = client
        self._url = url
        self._hold_timeout_s = hold_timeout_s
        #: Revision of the hold of another client, and when it was found.
        self._other_hold = 0, 0.0
        #: Cached providers, as this store read or wrote them last.
        self._seen: dict[str, records.StoredProvider] = {}
        #: When the alarm NOSPACE is logged again.
        self._full_until = -math.inf
        #: Unreadable keys and their revisions, which are logged once.
        self._reported: set[tuple[str, int]] = set()

    def repeat(self, attempt: Callable[[], _Outcome]) -> _Outcome:
        """Repeat an attempt until it has an outcome, and return that.

        The attempt finds out the outcome of the previous one first.

        :raises cellsched.exception.DatabaseUnreachable: there is no outcome
            in time
        """
        until = self.clock.monotonic() + self.retry_timeout_s
        longest_s = remote.FIRST_S
        while True:
            try:
                return attempt()
            except (Conflict, remote.NotSent, remote.OutcomeUnknown) as exc:
                reason = str(exc) or 'other clients change the keys'
                now = self.clock.monotonic()
                if type(exc) is Conflict:
                    # The answer has the current values, so do not let the
                    # client that won change them again.
                    wait_s = _CONFLICT_S
                else:
                    wait_s = longest_s
                    longest_s = min(2 * longest_s, _WAIT_MOST_S)
            if now >= until:
                raise self.unreachable(reason)
            self.clock.sleep(min(self.random.uniform(0, wait_s), until - now))

    def unreachable(self, reason: str) -> exception.DatabaseUnreachable:
        """Return the error of a call without an outcome."""
        return exception.DatabaseUnreachable(
            schema='claims', url=self._url,
            reason=f'{reason}, for {self.retry_timeout_s:g} s')

    def send(self, request: protocol.Request) -> protocol.Answer:
        """Return the answer to a request, which is sent once.

        :raises cellsched.claims.etcd.transactions.Full: the server has no
            space
        :raises cellsched.exception.ClaimStoreFailed: the server refuses it
        """
        answer = self._client.send(request)
        if not isinstance(answer, protocol.Refusal):
            return answer
        reason = f'etcd refuses a request: {answer.reason}'
        if protocol.NO_SPACE not in answer.reason:
            raise exception.ClaimStoreFailed(reason=reason)
        now = self.clock.monotonic()
        if now >= self._full_until:
            self._full_until = now + _FULL_S
            LOG.error('etcd at %s is full and has raised the alarm NOSPACE. '
                      'Claims fail, releases succeed. Compact its history, '
                      'defragment its members and disarm the alarm', self._url)
        raise Full(reason=f'{reason} (alarm NOSPACE); compact its history, '
                          'defragment its members and disarm the alarm')

    def transact(
        self, transaction: protocol.Transaction
    ) -> protocol.TransactionOutcome:
        """Return the outcome of a transaction, which is sent once."""
        answer = self.send(transaction)
        assert isinstance(answer, protocol.TransactionOutcome)
        return answer

    def get(self, *gets: protocol.Op) -> protocol.TransactionOutcome:
        """Return the results of reads, all at one revision."""
        return self.repeat(
            lambda: self.transact(protocol.Transaction(success=gets)))

    def all_of(
        self, kind: str, after: str | bytes = '', page_size: int = PAGE
    ) -> Iterator[protocol.Found]:
        """Yield all keys of a kind, read page by page.

        :param after: only keys after this name
        """
        while True:
            [page] = self.get(self.names.all_of(kind, after, page_size)).found
            yield from (kv for kv in page if self.names.name(kv.key))
            if len(page) < page_size:
                return
            after = page[-1].key

    def read(self, keys: Iterable[records.Key]) -> View:
        """Return records.

        If one transaction cannot read them, they are read at different
        revisions, from the revision of the tick on.
        """
        view = View({})
        for part in chunks(keys, self.keys_max):
            found = self._view(part, self.get(*reads(self.names, part)))
            view.tick = view.tick or found.tick
            view.records |= found.records
        return view

    def change(self, draft: Draft, is_held: bool = False) -> View | None:
        """Apply a draft if the records on which it depends are unchanged.

        :param is_held: see :meth:`Draft.transaction`
        :returns: these records after a conflict, else None
        :raises cellsched.claims.etcd.transactions.Held: another client holds
            the store
        """
        outcome = self.transact(draft.transaction(
            self.names, is_held, self.ops_max // 2))
        if not outcome.succeeded:
            if is_held:
                return View({})
            view = self._view(draft.read, outcome)
            self._check_hold(view.hold)
            return view
        for name in draft.providers:
            self.see(name, dataclasses.replace(
                draft.provider(name), revision=outcome.revision))
        return None

    def hold(self, value: bytes) -> None:
        """Hold the store, unless an earlier call with this value does.

        :raises cellsched.claims.etcd.transactions.Held: another client does
        """
        key = self.names.hold
        outcome = self.transact(protocol.Transaction(
            (protocol.Compare(key, 0),), (protocol.Put(key, value),),
            (protocol.Get(key),)))
        for [hold] in outcome.found:
            if hold.value != value:
                self._check_hold(hold)

    def end_hold(self, value: bytes) -> None:
        """Delete a hold; without an answer, other clients will delete it."""
        key = self.names.hold
        with contextlib.suppress(remote.NotSent, remote.OutcomeUnknown):
            self.transact(protocol.Transaction(
                (protocol.Compare(key, 0, value),), (protocol.Delete(key),)))

    def _check_hold(self, hold: protocol.Found | None) -> None:
        """Check that no other client holds the store; delete an old hold.

        :raises cellsched.claims.etcd.transactions.Held: another client does
        """
        if hold is None:
            return
        now = self.clock.monotonic()
        if self._other_hold[0] != hold.revision:
            self._other_hold = hold.revision, now
        elif now - self._other_hold[1] >= self._hold_timeout_s:
            self.end_hold(hold.value)
        raise Held

    def see(self, name: str, provider: records.StoredProvider) -> None:
        """Cache a provider."""
        if provider.unreadable:
            self.report([provider])
        known = self._seen.get(name)
        # An older entry costs at most one more request.
        if known is None or known.revision < provider.revision:
            self._seen[name] = provider

    def seen(
        self, keys: Iterable[records.Key]
    ) -> dict[records.Key, records.StoredProvider] | None:
        """Return the providers among keys; None if one is not cached.

        Groups are not cached.
        """
        found = {}
        for key in keys:
            if key[0] != records.CONSUMER:
                provider = self._seen.get(key[1])
                if provider is None or key[0] == records.GROUP:
                    return None
                found[key] = provider
        return found

    def forget(self) -> None:
        """Empty the cache: the revisions have started again."""
        self._seen = {}

    def report(self, found: Iterable[Any]) -> None:
        """Log each unreadable record once."""
        for record in found:
            if record.unreadable:
                entry = record.unreadable, record.revision
                if entry not in self._reported:
                    self._reported.add(entry)
                    LOG.error('In the claim store, %s', record.unreadable)

    def _view(
        self, keys: Iterable[records.Key],
        outcome: protocol.TransactionOutcome,
    ) -> View:
        view = View.of(keys, outcome.found)
        for (kind, name), record in view.records.items():
            if kind == records.PROVIDER and record.revision:
                self.see(name, record)
        self.report(view.records.values())
        return view
