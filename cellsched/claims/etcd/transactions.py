# SPDX-License-Identifier: Apache-2.0
"""Transactions, made of what was read and what is to change."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any

from cellsched.claims import base
from cellsched.claims.etcd import protocol
from cellsched.claims.etcd import records


def keys_max(ops_max: int) -> int:
    """Return how many keys one transaction may change.

    It also reads or compares the states of batches, and writes that something
    changed.

    :param ops_max: operations that a server takes
    """
    return ops_max - 2


def providers_max(ops_max: int) -> int:
    """Return of how many providers one consumer may hold something.

    A transfer changes those of two, and groups.
    """
    return keys_max(ops_max) // 2 - 3


@dataclasses.dataclass(frozen=True)
class Scope:
    """The names that a transaction is about."""

    providers: Sequence[str] = ()
    consumers: Sequence[str] = ()
    groups: Sequence[str] = ()

    def __len__(self) -> int:
        return (len(self.providers) + len(self.consumers) + len(self.groups))

    @classmethod
    def of(cls, claims: Iterable[base.Claim]) -> 'Scope':
        """Return what a batch is about."""
        claims = list(claims)
        return cls(
            [*dict.fromkeys(claim.provider for claim in claims)],
            [*dict.fromkeys(claim.consumer for claim in claims)],
            [*dict.fromkeys(claim.group.group for claim in claims
                            if claim.group is not None)])

    @classmethod
    def held_by(
        cls, consumers: Mapping[str, records.StoredConsumer]
    ) -> 'Scope':
        """Return what a change of all that consumers hold is about."""
        return cls(
            [*dict.fromkeys(provider for consumer in consumers.values()
                            for provider in consumer.amounts)],
            [*consumers],
            [*dict.fromkeys(consumer.joins[0] for consumer
                            in consumers.values() if consumer.joins)])

    def keys(self, names: records.Names) -> list[bytes]:
        """Return the keys, each once."""
        return [*map(names.provider, self.providers),
                *map(names.consumer, self.consumers),
                *map(names.group, self.groups)]

    def reads(self, names: records.Names) -> tuple[protocol.Get, ...]:
        """Return what reads all of it, and the states of all batches."""
        return (*map(protocol.Get, self.keys(names)),
                names.all_of(names.batch))


class View:
    """Records as they were at one moment, each of a scope.

    :param is_fresh: whether that moment is after the call began; if not, they
        are what was seen last
    """

    def __init__(self, is_fresh: bool = True) -> None:
        self.is_fresh = is_fresh
        self.providers: dict[str, records.StoredProvider] = {}
        self.consumers: dict[str, records.StoredConsumer] = {}
        self.groups: dict[str, records.StoredGroup] = {}
        self.batches: dict[str, records.BatchState] = {}

    @classmethod
    def of(
        cls, names: records.Names, scope: Scope,
        found: Sequence[Sequence[protocol.Found]],
    ) -> 'View':
        """Return what :meth:`Scope.reads` has read."""
        self = cls()
        self.providers = {
            name: (records.StoredProvider.of(kv[0]) if kv
                   else records.StoredProvider())
            for name, kv in zip(scope.providers, found)}
        rest = found[len(scope.providers):]
        count = len(scope.consumers)
        self.consumers = {
            name: (records.StoredConsumer.of(kv[0]) if kv
                   else records.StoredConsumer())
            for name, kv in zip(scope.consumers, rest)}
        self.groups = {
            name: (records.StoredGroup.of(kv[0]) if kv
                   else records.StoredGroup())
            for name, kv in zip(scope.groups, rest[count:])}
        self.batches = batches(names, found[-1])
        return self

    def held(self) -> dict[str, list[base.Claim]]:
        """Return what consumers hold; of a batch, once it is committed."""
        return {name: consumer.claims(name)
                for name, consumer in self.present().items()
                if self._is_held(consumer)}

    def memberships(self) -> dict[str, base.Membership]:
        """Return what those are in groups that hold something."""
        return {name: base.joined(*consumer.joins)
                for name, consumer in self.present().items()
                if consumer.joins and self._is_held(consumer)}

    def _is_held(self, consumer: records.StoredConsumer) -> bool:
        if not consumer.batch:
            return True
        batch = self.batches.get(consumer.batch)
        return batch is not None and batch.state == records.COMMITTED

    def present(self) -> dict[str, records.StoredConsumer]:
        """Return the consumers that have a key."""
        return {name: consumer for name, consumer in self.consumers.items()
                if consumer.revision}

    def inventories(self) -> dict[str, Mapping[str, base.Inventory]]:
        """Return what there is, of providers that have an inventory."""
        return {name: provider.inventory
                for name, provider in self.providers.items()
                if provider.inventory is not None}

    def members(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield group, consumer, member and host of all members."""
        for name, group in self.groups.items():
            for consumer, (host, member) in group.members.items():
                yield name, consumer, member, host

    def marks(self) -> set[str]:
        """Return ids of batches that consumers belong to."""
        return {consumer.batch for consumer in self.consumers.values()
                if consumer.batch}

    def all_marks(self) -> set[str]:
        """Return ids of batches that anything here belongs to."""
        return self.marks().union(
            *(provider.batches for provider in self.providers.values()),
            *(group.batches for group in self.groups.values()))


def chunks(names: Sequence[str], ops_max: int) -> Iterator[Sequence[str]]:
    """Yield names that one transaction can read, until all are told."""
    size = keys_max(ops_max)
    for start in range(0, len(names), size):
        yield names[start:start + size]


class Draft:
    """A change that is only done where nobody changed the same meanwhile.

    :param view: has all that is changed
    :param guard: one more condition
    """

    def __init__(
        self, view: View, guard: protocol.Compare | None = None
    ) -> None:
        self._view = view
        self._guard = guard
        self.providers: dict[str, records.StoredProvider] = {}
        self.consumers: dict[str, records.StoredConsumer | None] = {}
        self._groups: dict[str, records.StoredGroup] = {}

    def take(self, name: str, consumer: records.StoredConsumer) -> None:
        """Let a consumer that holds nothing hold this."""
        self.consumers[name] = consumer
        self._count(consumer, 1)
        if consumer.joins is not None:
            group, host, member = consumer.joins
            self._join(group, name, (host, member), consumer.batch)

    def give_back(self, name: str) -> None:
        """Let a consumer hold nothing."""
        consumer = self._view.consumers[name]
        self.consumers[name] = None
        self._count(consumer, -1)
        if consumer.joins is not None:
            self._join(consumer.joins[0], name, None, consumer.batch)

    def rename(self, source: str, target: str) -> None:
        """Let a consumer that holds nothing hold what another one does."""
        consumer = self._view.consumers[source]
        self.consumers[source] = None
        self.consumers[target] = consumer
        for name in consumer.amounts:
            # It changes, so that whoever counts its consumers notices.
            self._change(name, lambda provider: provider)
        if consumer.joins is not None:
            group, host, member = consumer.joins
            self._join(group, source, None, '')
            self._join(group, target, (host, member), '')

    def unmark(self, name: str) -> None:
        """Let a consumer hold what it holds without a batch."""
        consumer = self._view.consumers[name]
        batch = consumer.batch
        self.consumers[name] = dataclasses.replace(consumer, batch='')
        for provider in consumer.amounts:
            self._change(provider, lambda it: dataclasses.replace(
                it, batches=records.counted(it.batches, batch, -1)))
        if consumer.joins is not None:
            group = consumer.joins[0]
            it = self._group(group)
            self._groups[group] = dataclasses.replace(
                it, batches=records.counted(it.batches, batch, -1))

    def written(self) -> dict[str, records.StoredProvider]:
        """Return providers as they are to be written."""
        return {name: dataclasses.replace(
            provider, changes=self._view.providers[name].changes + 1)
            for name, provider in self.providers.items()}

    def transaction(
        self, names: records.Names, scope: Scope
    ) -> protocol.Transaction:
        """Return what does it, or else reads all of the scope."""
        view = self._view
        compares = [
            *(_as_it_was(names.provider(name), view.providers[name])
              for name in scope.providers),
            *(protocol.Compare(names.consumer(name),
                               view.consumers[name].revision)
              for name in scope.consumers),
            *(protocol.Compare(names.group(name), view.groups[name].revision)
              for name in scope.groups)]
        if self._guard is not None:
            compares.append(self._guard)
        return protocol.Transaction(
            tuple(compares), tuple(self._writes(names)), scope.reads(names))

    def _writes(self, names: records.Names) -> Iterator[protocol.Op]:
        for name, provider in self.written().items():
            yield protocol.Put(names.provider(name), provider.value())
        for name, consumer in self.consumers.items():
            yield _written(names.consumer(name),
                           consumer.value() if consumer else b'')
        for name, group in self._groups.items():
            yield _written(names.group(name), group.value())
        yield protocol.Put(names.tick, b'')

    def _count(self, consumer: records.StoredConsumer, sign: int) -> None:
        for name, amounts in consumer.amounts.items():
            self._change(name, lambda it, amounts=amounts: it.taken(
                amounts, sign, consumer.batch))

    def _change(
        self, name: str, function: Callable[..., records.StoredProvider]
    ) -> None:
        self.providers[name] = function(
            self.providers.get(name) or self._view.providers[name])

    def _group(self, name: str) -> records.StoredGroup:
        return self._groups.get(name) or self._view.groups[name]

    def _join(
        self, group: str, consumer: str, member: tuple[str, str] | None,
        batch: str,
    ) -> None:
        self._groups[group] = self._group(group).joined(
            consumer, member, batch)


def batches(
    names: records.Names, found: Iterable[protocol.Found]
) -> dict[str, records.BatchState]:
    """Return states of batches that were read."""
    return {names.name(kv.key): records.BatchState.of(kv) for kv in found}


def by_consumer(
    claims: Iterable[base.Claim], batch: str = ''
) -> dict[str, records.StoredConsumer]:
    """Return the consumers that claims make, by their names."""
    wanted: dict[str, list[base.Claim]] = {}
    for claim in claims:
        wanted.setdefault(claim.consumer, []).append(claim)
    return {name: records.StoredConsumer.claiming(each, batch)
            for name, each in wanted.items()}


def parts(
    consumers: Mapping[str, records.StoredConsumer], ops_max: int
) -> Iterator[dict[str, records.StoredConsumer]]:
    """Yield consumers that one transaction can change, until all are told.

    A condition more is left for the state of a batch.
    """
    part: dict[str, records.StoredConsumer] = {}
    keys: set[Any] = set()
    for name, consumer in consumers.items():
        more = {name, *(('p', each) for each in consumer.amounts)}
        if consumer.joins is not None:
            more.add(('g', consumer.joins[0]))
        if part and len(keys | more) >= keys_max(ops_max):
            yield part
            part, keys = {}, set()
        part[name] = consumer
        keys |= more
    if part:
        yield part


def speculative_drafts(
    view: View, claims: Sequence[base.Claim], count: int
) -> Iterator[View]:
    """Yield what a view may be by now, if others take the same meanwhile.

    :param claims: of one consumer, for all providers that the view has
    """
    for _ in range(count):
        guess = View(is_fresh=False)
        guess.consumers = view.consumers
        guess.providers = dict(view.providers)
        for claim in claims:
            provider = view.providers[claim.provider]
            guess.providers[claim.provider] = dataclasses.replace(
                provider.taken(claim.resources, 1, ''),
                revision=-1, changes=provider.changes + 1)
        yield guess
        view = guess


def _as_it_was(
    key: bytes, provider: records.StoredProvider
) -> protocol.Compare:
    """Return the condition that a provider is what a view has.

    What is guessed has no revision. No two values are the same.
    """
    if provider.revision < 0:
        return protocol.Compare(key, 0, provider.value())
    return protocol.Compare(key, provider.revision)


def _written(key: bytes, value: bytes) -> protocol.Op:
    return protocol.Put(key, value) if value else protocol.Delete(key)
