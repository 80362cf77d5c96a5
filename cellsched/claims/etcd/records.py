# SPDX-License-Identifier: Apache-2.0
"""Keys of the store and their values.

Below the prefix of a deployment::

    format          version of this layout, and an id of the store
    p/              written by every change of a provider; its revision is that
                    of the last change of any provider
    p/PROVIDER      inventory, used amounts, number of consumers
    c/CONSUMER      claims, project, user and server group of a consumer
    g/GROUP         members of a server group, by consumer
    s/BATCH         state of a batch that is too large for one transaction
    w/BATCH         consumers of that batch

Values are JSON. Providers, groups and consumers of an unfinished batch are
marked with its id.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import json
from typing import Any

from cellsched.claims import base
from cellsched.claims.etcd import protocol
from cellsched import exception

#: States of a batch. Its consumers hold their claims once it is committed.
PENDING, COMMITTED, ABORTED = 'pending', 'committed', 'aborted'

#: Fields of an inventory, in the order of its value.
_FIELDS = tuple(field.name for field in dataclasses.fields(base.Inventory))


@dataclasses.dataclass(frozen=True)
class StoredProvider:
    """A provider.

    :param revision: revision of its last change; 0 if there is none
    :param inventory: None if none was set
    :param batches: number of consumers here of each unfinished batch, by id
    :param changes: number of changes, so that no value occurs twice
    """

    revision: int = 0
    inventory: Mapping[str, base.Inventory] | None = None
    used: Mapping[str, int] = dataclasses.field(default_factory=dict)
    consumers: int = 0
    batches: Mapping[str, int] = dataclasses.field(default_factory=dict)
    changes: int = 0

    def taken(
        self, amounts: Mapping[str, int], sign: int, batch: str
    ) -> 'StoredProvider':
        """Return it with one consumer added or removed.

        :param sign: 1 or -1
        :param batch: id of the consumer's unfinished batch, or ''
        """
        used = dict(self.used)
        for name, amount in amounts.items():
            used[name] = used.get(name, 0) + sign * amount
            if not used[name]:
                del used[name]
        return dataclasses.replace(
            self, used=used, consumers=self.consumers + sign,
            batches=counted(self.batches, batch, sign))

    def usage(self, name: str) -> base.Usage:
        """Return it as the contract describes a provider."""
        inventory = self.inventory or {}
        return base.Usage(
            name, {each: has.capacity for each, has in inventory.items()},
            {**dict.fromkeys(inventory, 0), **self.used}, self.consumers,
            {each: has.units for each, has in inventory.items()
             if has.units != base.Units()})

    def value(self) -> bytes:
        """Return it as the value of a key."""
        return encoded({
            'i': {name: _short(has) for name, has in (
                self.inventory or {}).items()},
            'u': self.used, 'n': self.consumers, 'b': self.batches,
            'c': self.changes})

    @classmethod
    def of(cls, found: protocol.Found) -> 'StoredProvider':
        """Return the provider of a key."""
        read = decoded(found.value)
        return cls(
            found.revision, {name: base.Inventory(*fields)
                             for name, fields in read['i'].items()},
            read['u'], read['n'], read['b'], read['c'])


@dataclasses.dataclass(frozen=True)
class StoredConsumer:
    """A consumer.

    :param revision: revision of its last change; 0 if it holds no claims
    :param amounts: by provider and resource class
    :param joins: its group, host and member
    :param batch: id of its unfinished batch, or ''
    """

    revision: int = 0
    amounts: Mapping[str, Mapping[str, int]] = dataclasses.field(
        default_factory=dict)
    project_id: str | None = None
    user_id: str | None = None
    joins: tuple[str, str, str] | None = None
    batch: str = ''

    @classmethod
    def claiming(
        cls, claims: Iterable[base.Claim], batch: str = ''
    ) -> 'StoredConsumer':
        """Return the consumer of claims, which are all its own."""
        claims = list(claims)
        first = claims[0]
        joins = first.group
        member = None if joins is None else (
            joins.group, joins.host, joins.member or first.consumer)
        return cls(
            0, {claim.provider: dict(claim.resources) for claim in claims},
            first.project_id, first.user_id, member, batch)

    def claims(self, name: str) -> list[base.Claim]:
        """Return its claims."""
        return [base.Claim(name, provider, dict(amounts), None,
                           self.project_id, self.user_id)
                for provider, amounts in self.amounts.items()]

    def value(self) -> bytes:
        """Return it as the value of a key."""
        return encoded({
            'a': self.amounts, 'p': self.project_id, 'u': self.user_id,
            'g': self.joins, 'b': self.batch})

    @classmethod
    def of(cls, found: protocol.Found) -> 'StoredConsumer':
        """Return the consumer of a key."""
        read = decoded(found.value)
        return cls(found.revision, read['a'], read['p'], read['u'],
                   read['g'] and tuple(read['g']), read['b'])


@dataclasses.dataclass(frozen=True)
class StoredGroup:
    """A server group that has members.

    :param revision: revision of its last change; 0 if it has no members
    :param members: host and member, by consumer
    :param batches: as those of a provider
    """

    revision: int = 0
    members: Mapping[str, tuple[str, str]] = dataclasses.field(
        default_factory=dict)
    batches: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def joined(
        self, consumer: str, member: tuple[str, str] | None, batch: str
    ) -> 'StoredGroup':
        """Return it with a consumer added or removed.

        :param member: its host and member; None to remove it
        :param batch: id of its unfinished batch, or ''
        """
        members = {name: each for name, each in self.members.items()
                   if name != consumer}
        if member is not None:
            members[consumer] = member
        return StoredGroup(self.revision, members, counted(
            self.batches, batch, 1 if member else -1))

    def value(self) -> bytes:
        """Return it as the value of a key; empty without members."""
        if not self.members:
            return b''
        return encoded({'m': self.members, 'b': self.batches})

    @classmethod
    def of(cls, found: protocol.Found) -> 'StoredGroup':
        """Return the group of a key."""
        read = decoded(found.value)
        return cls(found.revision, {name: tuple(each) for name, each
                                    in read['m'].items()}, read['b'])


@dataclasses.dataclass(frozen=True)
class BatchState:
    """A batch that is too large for one transaction.

    :param revision: revision of its last change; 0 if it is finished
    :param state: one of :data:`PENDING`, :data:`COMMITTED`, :data:`ABORTED`
    :param age: the revision of its first attempt: lower is older
    """

    revision: int = 0
    state: str = ''
    age: int = 0

    def value(self) -> bytes:
        """Return it as the value of a key."""
        return encoded({'s': self.state, 'a': self.age})

    @classmethod
    def of(cls, found: protocol.Found) -> 'BatchState':
        """Return the batch of a key."""
        read = decoded(found.value)
        return cls(found.revision, read['s'], read['a'] or found.created)


def counted(
    batches: Mapping[str, int], batch: str, number: int
) -> Mapping[str, int]:
    """Return the counts by batch after a change of one of them."""
    if not batch:
        return batches
    counts = {**batches, batch: batches.get(batch, 0) + number}
    return {name: count for name, count in counts.items() if count > 0}


class Names:
    """The keys of a deployment.

    :param prefix: prefix of all keys
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()
        self.format = self._prefix + b'format'
        self.tick = self._prefix + b'p/'

    def provider(self, name: str) -> bytes:
        return self.tick + _encoded(name)

    def consumer(self, name: str) -> bytes:
        return self._prefix + b'c/' + _encoded(name)

    def group(self, name: str) -> bytes:
        return self._prefix + b'g/' + _encoded(name)

    def batch(self, name: str) -> bytes:
        return self._prefix + b's/' + _encoded(name)

    def work(self, name: str) -> bytes:
        return self._prefix + b'w/' + _encoded(name)

    def all_of(
        self, kind: Callable[[str], bytes], after: str = '', limit: int = 0
    ) -> protocol.Get:
        """Return the read of all keys of a kind.

        :param kind: a method of this class
        :param after: only keys after this name
        """
        start = kind(after) + b'\0' * bool(after)
        return protocol.Get(start, kind('')[:-1] + b'0', limit)

    def name(self, key: bytes) -> str:
        """Return the name in a key of any kind."""
        return key[len(self._prefix) + 2:].decode()


def _encoded(name: str) -> bytes:
    # An invalid name is encoded, too, and not found.
    return name.encode(errors='surrogatepass')


def _short(inventory: base.Inventory) -> list[Any]:
    """Return the fields of an inventory without trailing defaults.

    Values are read and written with every claim, so they are short.
    """
    fields = [getattr(inventory, name) for name in _FIELDS]
    usual = [field.default for field in dataclasses.fields(base.Inventory)]
    while len(fields) > 1 and fields[-1] == usual[len(fields) - 1]:
        fields.pop()
    return fields


def encoded(value: Any) -> bytes:
    """Return JSON as the value of a key."""
    return json.dumps(value, separators=(',', ':'), sort_keys=True).encode()


def decoded(value: bytes) -> dict[str, Any]:
    """Return the JSON object in the value of a key.

    :raises cellsched.exception.DatabaseError: the value is none
    """
    try:
        read = json.loads(value)
    except ValueError:
        read = None
    if not isinstance(read, dict):
        raise exception.DatabaseError(
            schema='claims', reason=f'a key has the value {value!r:.80}; '
                                    f'expected a JSON object')
    return read
