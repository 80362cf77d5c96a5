# SPDX-License-Identifier: Apache-2.0
"""Transactions made of the records that were read and a change of them."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import math
from random import Random
from typing import Any
from typing import TypeVar

from oslo_log import log

from cellsched.claims import base
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
_Record = TypeVar('_Record')


class Conflict(Exception):
    """Another client has changed the same keys; the attempt is repeated."""


class Held(Conflict):
    """Another client holds the store for a large batch."""


class Full(exception.ClaimStoreFailed):
    """etcd has raised the alarm NOSPACE and accepts deletions only."""


def keys_max(ops_max: int) -> int:
    """Return the number of keys that one transaction may compare.

    Two operations are reserved: the key that every change writes, and the hold
    of a large batch or the mark of right counters.

    :param ops_max: number of operations that a transaction may have
    """
    return ops_max - 2


def batch_max(ops_max: int) -> int:
    """Return the number of keys that a batch may change.

    The server counts the operations of each nested transaction alone, together
    with those around it.
    """
    return (ops_max // 2 - 1) * (ops_max // 2) - 2


def providers_max(ops_max: int) -> int:
    """Return the number of providers on which a consumer may have claims.

    A transfer changes those of two consumers, and their groups.
    """
    return keys_max(ops_max) // 2 - 3


@dataclasses.dataclass(frozen=True)
class Scope:
    """The names of the records that a transaction reads or changes."""

    providers: Sequence[str] = ()
    consumers: Sequence[str] = ()
    groups: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.providers) + len(self.consumers) + len(self.groups)

    @classmethod
    def of(cls, claims: Iterable[base.Claim]) -> 'Scope':
        """Return the scope of claims."""
        providers: dict[str, None] = {}
        consumers: dict[str, None] = {}
        groups: dict[str, None] = {}
        for claim in claims:
            providers[claim.provider] = consumers[claim.consumer] = None
            if claim.group is not None:
                groups[claim.group.group] = None
        return cls([*providers], [*consumers], [*groups])

    @classmethod
    def union(cls, scopes: Sequence['Scope']) -> 'Scope':
        """Return a scope with the records of several ones."""
        if len(scopes) == 1:
            return scopes[0]
        return cls(*(
            [*dict.fromkeys(name for scope in scopes
                            for name in getattr(scope, field))]
            for field in ('providers', 'consumers', 'groups')))

    @classmethod
    def held_by(
        cls, consumers: Mapping[str, records.StoredConsumer]
    ) -> 'Scope':
        """Return the scope of a change of all claims of consumers."""
        return cls(
            [*dict.fromkeys(provider for consumer in consumers.values()
                            for provider in consumer.amounts)],
            [*consumers],
            [*dict.fromkeys(consumer.joins[0] for consumer
                            in consumers.values() if consumer.joins)])

    def reads(self, names: records.Names) -> tuple[protocol.Op, ...]:
        """Return the reads of the scope, for :meth:`View.of`."""
        keys = [*map(names.provider, self.providers),
                *map(names.consumer, self.consumers),
                *map(names.group, self.groups), names.tick, names.hold]
        return tuple(map(protocol.Get, keys))

    def chunks(self, size: int) -> Iterator['Scope']:
        """Yield the scope in parts of so many records."""
        every = [(field.name, name) for field in dataclasses.fields(self)
                 for name in getattr(self, field.name)]
        for start in range(0, max(len(every), 1), size):
            part: dict[str, list[str]] = {}
            for field, name in every[start:start + size]:
                part.setdefault(field, []).append(name)
            yield Scope(**part)


class View:
    """The records of a scope.

    :ivar is_fresh: whether they were read during the call; False for cached
        ones
    :ivar tick: revision at or before which they were read of the last change
        of any provider
    :ivar hold: the key of another client's large batch, if there is one
    """

    def __init__(self, is_fresh: bool = True) -> None:
        self.is_fresh = is_fresh
        self.tick = 0
        self.hold: protocol.Found | None = None
        self.providers: dict[str, records.StoredProvider] = {}
        self.consumers: dict[str, records.StoredConsumer] = {}
        self.groups: dict[str, records.StoredGroup] = {}

    @classmethod
    def of(
        cls, scope: Scope, found: Sequence[Sequence[protocol.Found]]
    ) -> 'View':
        """Return the result of :meth:`Scope.reads`."""
        self = cls()
        values = iter(found)
        sections: tuple[tuple[dict[str, Any], Sequence[str], Any], ...] = (
            (self.providers, scope.providers, records.StoredProvider),
            (self.consumers, scope.consumers, records.StoredConsumer),
            (self.groups, scope.groups, records.StoredGroup))
        for known, names, kind in sections:
            for name in names:
                kvs = next(values)
                known[name] = kind.of(kvs[0]) if kvs else kind()
        for kv in next(values):
            self.tick = kv.revision
        for kv in next(values):
            self.hold = kv
        return self

    def add(self, other: 'View') -> None:
        """Add the records that were read afterwards."""
        self.providers |= other.providers
        self.consumers |= other.consumers
        self.groups |= other.groups
        self.hold = other.hold

    def held(self) -> dict[str, list[base.Claim]]:
        """Return the claims of the consumers."""
        return {name: consumer.claims(name)
                for name, consumer in self.readable().items()}

    def memberships(self) -> dict[str, base.Membership]:
        """Return the memberships of the consumers."""
        return {name: base.joined(*consumer.joins)
                for name, consumer in self.readable().items()
                if consumer.joins}

    def readable(self) -> dict[str, records.StoredConsumer]:
        """Return the consumers that have a key with a readable value."""
        return {name: consumer for name, consumer in self.consumers.items()
                if consumer.revision and not consumer.unreadable}


class Draft:
    """A change that is applied if the records that it depends on are as read.

    A provider or a group that is missing or unreadable is not written. Then
    the mark of right counters is deleted, so that they are recounted later.

    :param view: the records
    """

    def __init__(self, view: View) -> None:
        self.view = view
        #: The records on which the change depends.
        self._providers: dict[str, records.StoredProvider] = {}
        self._consumers: dict[str, records.StoredConsumer] = {}
        self._groups: dict[str, records.StoredGroup] = {}
        #: Those that it writes.
        self.providers: dict[str, records.StoredProvider] = {}
        self._written: dict[str, records.StoredConsumer | None] = {}
        self._joined: dict[str, records.StoredGroup] = {}
        self._is_counted = True

    def __len__(self) -> int:
        """Return the number of records on which the change depends."""
        return len(self._providers) + len(self._consumers) + len(self._groups)

    @property
    def is_empty(self) -> bool:
        """True if nothing is written."""
        return not (self.providers or self._written)

    @property
    def scope(self) -> Scope:
        """The records on which the change depends."""
        return Scope([*self._providers], [*self._consumers], [*self._groups])

    def provider(self, name: str) -> records.StoredProvider:
        """Return a provider as it is after the change."""
        if name in self.providers:
            return self.providers[name]
        known = self._providers[name] = self.view.providers[name]
        return known

    def consumer(self, name: str) -> records.StoredConsumer:
        """Return a consumer likewise.

        :raises cellsched.exception.ClaimStoreFailed: it cannot be read
        """
        if name in self._written:
            return self._written[name] or records.StoredConsumer()
        known = self._consumers[name] = self.view.consumers[name]
        records.check([known])
        return known

    def group(self, name: str) -> records.StoredGroup:
        """Return a server group likewise."""
        if name in self._joined:
            return self._joined[name]
        known = self._groups[name] = self.view.groups[name]
        return known

    def take(self, name: str, consumer: records.StoredConsumer) -> None:
        """Add the claims of a consumer that holds none."""
        self._written[name] = consumer
        self._count(consumer, 1)
        if consumer.joins is not None:
            self._join(consumer.joins[0], name, consumer.joins[1:])

    def give_back(self, name: str) -> None:
        """Remove the claims of a consumer."""
        consumer = self.consumer(name)
        self._written[name] = None
        self._count(consumer, -1)
        if consumer.joins is not None:
            self._join(consumer.joins[0], name, None)

    def rename(self, source: str, target: str) -> None:
        """Move the claims of one consumer to another that holds none."""
        consumer = self.consumer(source)
        self._written[source] = None
        self._written[target] = consumer
        for name in consumer.amounts:
            # The provider is written too, for the sake of a recount.
            self._change(name, lambda provider: provider)
        if consumer.joins is not None:
            self._join(consumer.joins[0], source, None)
            self._join(consumer.joins[0], target, consumer.joins[1:])

    def rename_host(self, name: str, host: str) -> None:
        """Replace the host of a member of a group."""
        consumer = self.consumer(name)
        if consumer.joins is not None:
            group, _, member = consumer.joins
            self._written[name] = dataclasses.replace(
                consumer, joins=(group, host, member))
            self._join(group, name, (host, member))

    def transaction(
        self, names: records.Names, is_held: bool, size: int
    ) -> protocol.Transaction:
        """Return the transaction; after a conflict it reads the records.

        :param is_held: whether this client holds the store for a batch with
            too many records to compare each of them
        :param size: number of keys of a nested transaction
        """
        if is_held:
            return protocol.Transaction(
                (protocol.Compare(names.tick, self.view.tick),),
                (*_nested([*self._writes(names)], size),
                 protocol.Delete(names.hold)))
        # No other client may hold the store.
        compares = [protocol.Compare(names.hold, 0)]
        for known, key in ((self._providers, names.provider),
                           (self._consumers, names.consumer),
                           (self._groups, names.group)):
            for name, record in known.items():
                compares.append(protocol.Compare(key(name), record.revision))
        return protocol.Transaction(
            tuple(compares), tuple(self._writes(names)),
            self.scope.reads(names))

    def _writes(self, names: records.Names) -> list[protocol.Op]:
        writes: list[protocol.Op] = [
            protocol.Put(names.provider(name), provider.value())
            for name, provider in self.providers.items()]
        for name, consumer in self._written.items():
            key = names.consumer(name)
            writes.append(protocol.Put(key, consumer.value()) if consumer
                          else protocol.Delete(key))
        for name, group in self._joined.items():
            key, value = names.group(name), group.value()
            writes.append(
                protocol.Put(key, value) if value else protocol.Delete(key))
        writes.append(protocol.Put(names.tick, b''))
        if not self._is_counted:
            writes.append(protocol.Delete(names.counted))
        return writes

    def _count(self, consumer: records.StoredConsumer, sign: int) -> None:
        for name, amounts in consumer.amounts.items():
            self._change(name, lambda it, amounts=amounts: it.taken(
                amounts, sign))

    def _change(
        self, name: str, function: Callable[..., records.StoredProvider]
    ) -> None:
        provider = self.provider(name)
        if provider.unreadable or not provider.revision:
            self._is_counted = False
        else:
            self.providers[name] = function(provider)

    def _join(
        self, name: str, consumer: str, member: tuple[str, str] | None
    ) -> None:
        group = self.group(name)
        if group.unreadable:
            self._is_counted = False
        else:
            self._joined[name] = group.joined(consumer, member)


def _nested(ops: Sequence[protocol.Op], size: int) -> Iterator[protocol.Op]:
    """Yield the operations in nested transactions.

    The server counts the operations of each of them alone.
    """
    for start in range(0, len(ops), size):
        yield protocol.Transaction(success=tuple(ops[start:start + size]))


class Records:
    """Reads and changes records, and caches providers.

    :param url: URL of the servers, for error messages
    :param retry_timeout_s: seconds for which a call is retried
    :param hold_timeout_s: seconds for which another client may hold the store
    :param ops_max: number of operations that a transaction may have
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
        """Return the keys that are read, all at one revision."""
        return self.repeat(
            lambda: self.transact(protocol.Transaction(success=gets)))

    def all_of(self, kind: Callable[[str], bytes]) -> Iterator[protocol.Found]:
        """Yield all keys of a kind, read page by page."""
        after: str | bytes = ''
        while True:
            [page] = self.get(self.names.all_of(kind, after, PAGE)).found
            yield from (kv for kv in page if self.names.name(kv.key))
            if len(page) < PAGE:
                return
            after = page[-1].key

    def read(self, scope: Scope) -> View:
        """Return the records of a scope.

        If one transaction cannot read them, the records are those of different
        moments, from that of the tick on.
        """
        view: View | None = None
        for part in scope.chunks(keys_max(self.ops_max)):
            found = self._view(part, self.get(*part.reads(self.names)))
            if view is None:
                view = found
            else:
                view.add(found)
        assert view is not None
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
                return View()
            view = self._view(draft.scope, outcome)
            self._check_hold(view.hold)
            return view
        for name, provider in draft.providers.items():
            self.see(name, dataclasses.replace(
                provider, revision=outcome.revision))
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
        self, names: Iterable[str]
    ) -> dict[str, records.StoredProvider] | None:
        """Return cached providers; None if one is not cached."""
        found = {}
        for name in names:
            provider = self._seen.get(name)
            if provider is None:
                return None
            found[name] = provider
        return found

    def reread(
        self, seen: Mapping[str, records.StoredProvider]
    ) -> dict[str, records.StoredProvider]:
        """Return cached providers, updated from the member's local data.

        A read of local data is fast, and may be behind the cluster.
        """
        outcome = self.get(*(
            protocol.Get(self.names.provider(name), is_local=True)
            for name in seen))
        found = dict(seen)
        for name, kvs in zip(seen, outcome.found):
            if kvs and kvs[0].revision > seen[name].revision:
                found[name] = records.StoredProvider.of(kvs[0])
                self.see(name, found[name])
        return found

    def forget(self) -> None:
        """Empty the cache: the revisions have started again."""
        self._seen = {}

    def report(self, found: Iterable[Any]) -> None:
        """Log the unreadable ones of some records, each once."""
        for record in found:
            if record.unreadable:
                entry = record.unreadable, record.revision
                if entry not in self._reported:
                    self._reported.add(entry)
                    LOG.error('In the claim store, %s', record.unreadable)

    def _view(
        self, scope: Scope, outcome: protocol.TransactionOutcome
    ) -> View:
        view = View.of(scope, outcome.found)
        for name, provider in view.providers.items():
            if provider.revision:
                self.see(name, provider)
        for some in view.consumers, view.groups:
            self.report(some.values())
        return view


def by_consumer(
    claims: Iterable[base.Claim]
) -> dict[str, list[base.Claim]]:
    """Return claims by their consumer."""
    requested: dict[str, list[base.Claim]] = {}
    for claim in claims:
        requested.setdefault(claim.consumer, []).append(claim)
    return requested


def parts(
    consumers: Mapping[str, records.StoredConsumer], ops_max: int
) -> Iterator[dict[str, records.StoredConsumer]]:
    """Yield consumers in groups that one transaction can change."""
    part: dict[str, records.StoredConsumer] = {}
    keys: set[Any] = set()
    for name, consumer in consumers.items():
        more = {name, *(('p', each) for each in consumer.amounts)}
        if consumer.joins is not None:
            more.add(('g', consumer.joins[0]))
        if part and len(keys | more) > keys_max(ops_max):
            yield part
            part, keys = {}, set()
        part[name] = consumer
        keys |= more
    if part:
        yield part
