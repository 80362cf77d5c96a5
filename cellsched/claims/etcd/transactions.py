# SPDX-License-Identifier: Apache-2.0
"""Transactions made of the records that were read and a change of them."""

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
    """Return the number of keys that one transaction may change.

    Two operations are reserved: the key that every change writes, and the
    state of a batch or the mark of right counters.

    :param ops_max: number of operations that a transaction may have
    """
    return ops_max - 2


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
        return (len(self.providers) + len(self.consumers) + len(self.groups))

    @classmethod
    def of(cls, claims: Iterable[base.Claim]) -> 'Scope':
        """Return the scope of a batch."""
        claims = list(claims)
        return cls(
            [*dict.fromkeys(claim.provider for claim in claims)],
            [*dict.fromkeys(claim.consumer for claim in claims)],
            [*dict.fromkeys(claim.group.group for claim in claims
                            if claim.group is not None)])

    @classmethod
    def union(cls, scopes: Iterable['Scope']) -> 'Scope':
        """Return a scope with the records of several ones."""
        scopes = list(scopes)
        return cls(*(
            [*dict.fromkeys(name for scope in scopes
                            for name in getattr(scope, field.name))]
            for field in dataclasses.fields(cls)))

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

    def keys(self, names: records.Names) -> list[bytes]:
        """Return the keys of the scope, each once."""
        return [*map(names.provider, self.providers),
                *map(names.consumer, self.consumers),
                *map(names.group, self.groups)]

    def reads(self, names: records.Names) -> tuple[protocol.Get, ...]:
        """Return the reads of the scope and of the states of all batches."""
        return (*map(protocol.Get, self.keys(names)),
                names.all_of(names.batch))


class View:
    """The records of a scope at one revision.

    :param is_fresh: whether they were read during the call; False for cached
        ones
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
        """Return the result of :meth:`Scope.reads`."""
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

    def copy(self) -> 'View':
        """Return a copy that can be changed."""
        view = View(self.is_fresh)
        vars(view).update(vars(self), providers={**self.providers})
        return view

    def covers(self, scope: Scope) -> bool:
        """Return whether the view has all records of a scope."""
        return (self.providers.keys() >= {*scope.providers}
                and self.consumers.keys() >= {*scope.consumers}
                and self.groups.keys() >= {*scope.groups})

    def after(self, claim: base.Claim) -> 'View':
        """Return a guess: the view after a claim of another consumer."""
        view = self.copy()
        view.is_fresh = False
        provider = self.providers[claim.provider]
        view.providers[claim.provider] = dataclasses.replace(
            provider.taken(claim.resources, 1, ''),
            revision=-1, changes=provider.changes + 1)
        return view

    def held(self) -> dict[str, list[base.Claim]]:
        """Return the claims of consumers without those of pending batches."""
        return {name: consumer.claims(name)
                for name, consumer in self.present().items()
                if self._is_held(consumer)}

    def memberships(self) -> dict[str, base.Membership]:
        """Return the memberships of consumers that hold claims."""
        return {name: base.joined(*consumer.joins)
                for name, consumer in self.present().items()
                if consumer.joins and self._is_held(consumer)}

    def _is_held(self, consumer: records.StoredConsumer) -> bool:
        """Return whether a consumer holds its claims.

        A batch is deleted after its marks, so a mark without a batch is a
        defect. Its claims count as held, so that nothing is claimed twice.
        """
        if consumer.unreadable:
            return False
        batch = self.batches.get(consumer.batch)
        return batch is None or batch.state == records.COMMITTED

    def present(self) -> dict[str, records.StoredConsumer]:
        """Return the consumers that have a key, readable or not."""
        return {name: consumer for name, consumer in self.consumers.items()
                if consumer.revision}

    def readable(self) -> dict[str, records.StoredConsumer]:
        """Return the consumers that have a key with a readable value."""
        return {name: consumer for name, consumer in self.present().items()
                if not consumer.unreadable}

    def members(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield group, consumer, member and host of all members."""
        for name, group in self.groups.items():
            for consumer, (host, member) in group.members.items():
                yield name, consumer, member, host

    def marks(self, scope: Scope | None = None) -> set[str]:
        """Return the ids of the existing batches of consumers.

        :param scope: has the consumers; by default all
        """
        names = self.consumers if scope is None else scope.consumers
        return {self.consumers[each].batch for each in names
                } & self.batches.keys()

    def joined(self, other: 'View') -> 'View':
        """Return a view with the records of both."""
        view = View(self.is_fresh and other.is_fresh)
        for name, records_ in vars(view).items():
            if isinstance(records_, dict):
                records_.update(vars(self)[name])
                records_.update(vars(other)[name])
        return view

    def all_marks(self, scope: Scope) -> set[str]:
        """Return the ids of the existing batches of any record in a scope.

        The batches of cached providers may not exist any more.
        """
        marks = self.marks(scope).union(
            *(self.providers[each].batches for each in scope.providers),
            *(self.groups[each].batches for each in scope.groups))
        return marks & self.batches.keys() if self.is_fresh else marks

    def check(self, scope: Scope) -> None:
        """Check that the consumers, their groups and batches can be read.

        :raises cellsched.exception.ClaimStoreFailed: names the key
        """
        records.check(self.consumers[each] for each in scope.consumers)
        records.check(self.groups[each] for each in scope.groups)
        records.check(self.batches[mark] for mark in self.marks(scope))


def chunks(names: Sequence[str], ops_max: int) -> Iterator[Sequence[str]]:
    """Yield names in chunks that one transaction can read."""
    size = keys_max(ops_max)
    for start in range(0, len(names), size):
        yield names[start:start + size]


class Draft:
    """A change that is applied if the records of a view are unchanged.

    A provider or a group that is missing or unreadable is not written. Then
    the mark of right counters is deleted, so that they are recounted later.

    :param view: the current records of all that is changed
    :param guard: an additional condition
    """

    def __init__(
        self, view: View, guard: protocol.Compare | None = None
    ) -> None:
        self.view = view
        self._guard = guard
        self.providers: dict[str, records.StoredProvider] = {}
        self.consumers: dict[str, records.StoredConsumer | None] = {}
        self._groups: dict[str, records.StoredGroup] = {}
        self._is_counted = True

    def take(self, name: str, consumer: records.StoredConsumer) -> None:
        """Add the claims of a consumer that holds none."""
        self.consumers[name] = consumer
        self._count(consumer, 1)
        if consumer.joins is not None:
            group, host, member = consumer.joins
            self._join(group, name, (host, member), consumer.batch)

    def give_back(self, name: str) -> None:
        """Remove the claims of a consumer."""
        consumer = self.view.consumers[name]
        self.consumers[name] = None
        self._count(consumer, -1)
        if consumer.joins is not None:
            self._join(consumer.joins[0], name, None, consumer.batch)

    def rename(self, source: str, target: str) -> None:
        """Move the claims of one consumer to another that holds none."""
        consumer = self.view.consumers[source]
        self.consumers[source] = None
        self.consumers[target] = consumer
        for name in consumer.amounts:
            # The provider is written too, for the sake of a recount.
            self._change(name, lambda provider: provider)
        if consumer.joins is not None:
            group, host, member = consumer.joins
            self._join(group, source, None, '')
            self._join(group, target, (host, member), '')

    def rename_host(self, consumer: str, host: str) -> None:
        """Replace the host of a member of a group."""
        stored = self.view.consumers[consumer]
        if stored.joins is not None:
            group, _, member = stored.joins
            self.consumers[consumer] = dataclasses.replace(
                stored, joins=(group, host, member))
            self._join(group, consumer, (host, member), '')

    def unmark(self, name: str) -> None:
        """Remove the mark of a batch from a consumer."""
        consumer = self.view.consumers[name]
        batch = consumer.batch
        self.consumers[name] = dataclasses.replace(consumer, batch='')
        for provider in consumer.amounts:
            self._change(provider, lambda it: dataclasses.replace(
                it, batches=records.counted(it.batches, batch, -1)))
        if consumer.joins is not None:
            self._change_group(consumer.joins[0], lambda it: (
                dataclasses.replace(it, batches=records.counted(
                    it.batches, batch, -1))))

    def written(self) -> dict[str, records.StoredProvider]:
        """Return the providers as they are written."""
        return {name: dataclasses.replace(provider, changes=_changes(
            self.view.providers[name], provider))
            for name, provider in self.providers.items()}

    def transaction(
        self, names: records.Names, scope: Scope
    ) -> protocol.Transaction:
        """Return the transaction; after a conflict it reads the scope.

        :param scope: the part of the view that must be as it was
        """
        view = self.view
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
        if not self._is_counted:
            yield protocol.Delete(names.counted)

    def _count(self, consumer: records.StoredConsumer, sign: int) -> None:
        for name, amounts in consumer.amounts.items():
            self._change(name, lambda it, amounts=amounts: it.taken(
                amounts, sign, consumer.batch))

    def _change(
        self, name: str, function: Callable[..., records.StoredProvider]
    ) -> None:
        provider = self.providers.get(name) or self.view.providers[name]
        if provider.unreadable or not provider.revision:
            self._is_counted = False
        else:
            self.providers[name] = function(provider)

    def _change_group(
        self, name: str, function: Callable[..., records.StoredGroup]
    ) -> None:
        group = self._groups.get(name) or self.view.groups[name]
        if group.unreadable:
            self._is_counted = False
        else:
            self._groups[name] = function(group)

    def _join(
        self, group: str, consumer: str, member: tuple[str, str] | None,
        batch: str,
    ) -> None:
        self._change_group(
            group, lambda it: it.joined(consumer, member, batch))


def batches(
    names: records.Names, found: Iterable[protocol.Found]
) -> dict[str, records.BatchState]:
    """Return the states of batches, by id."""
    return {name: records.BatchState.of(kv) for kv in found
            if (name := names.name(kv.key))}


def by_consumer(
    claims: Iterable[base.Claim], batch: str = ''
) -> dict[str, records.StoredConsumer]:
    """Return the consumer records of claims, by name."""
    requested: dict[str, list[base.Claim]] = {}
    for claim in claims:
        requested.setdefault(claim.consumer, []).append(claim)
    return {name: records.StoredConsumer.claiming(each, batch)
            for name, each in requested.items()}


def parts(
    consumers: Mapping[str, records.StoredConsumer], ops_max: int
) -> Iterator[dict[str, records.StoredConsumer]]:
    """Yield consumers in groups that one transaction can change.

    One more condition is reserved for the state of a batch.
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


def _as_it_was(
    key: bytes, provider: records.StoredProvider
) -> protocol.Compare:
    """Return the condition that a provider is unchanged.

    A speculative provider has no revision, so its value is compared; no value
    occurs twice.
    """
    if provider.revision < 0:
        return protocol.Compare(key, 0, provider.value())
    return protocol.Compare(key, provider.revision)


def _changes(
    before: records.StoredProvider, after: records.StoredProvider
) -> int:
    """Return the number of changes of a provider after one more.

    Each new consumer counts. So the difference to the number of consumers is
    the same only while there are claims and nothing else, and a guess is not
    true by chance.
    """
    return before.changes + max(after.consumers - before.consumers, 1)


def _written(key: bytes, value: bytes) -> protocol.Op:
    return protocol.Put(key, value) if value else protocol.Delete(key)
