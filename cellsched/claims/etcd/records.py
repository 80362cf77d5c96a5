# SPDX-License-Identifier: Apache-2.0
"""Keys of the store and their values.

Below the prefix of a deployment::

    format          version of this layout, and an id of the store
    p/              written by every change of a provider; its revision is that
                    of the last change of any provider
    p/PROVIDER      inventory, used amounts, number of consumers
    c/CONSUMER      claims, project, user and server group of a consumer
    g/GROUP         members of a server group, by consumer
    counted         b'1' while counters and members agree with the consumers
    hold            exists while a large batch is claimed

Values are JSON. The fields ``b`` and ``c`` are for earlier versions, which
expect them.

A value that cannot be read gives a record with the field ``unreadable``, so
that it keeps no other record. Its key is compared, and never written. A later
layout with other fields writes its version as ``v``.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import json
from typing import Any
from typing import TypeVar

from cellsched.claims import base
from cellsched.claims.etcd import protocol
from cellsched import exception

#: Version of the layout of the keys.
VERSION = 1

#: Value of the mark of right counters.
COUNTED = b'1'

#: Kinds of records, as they are in keys.
PROVIDER, CONSUMER, GROUP = 'p', 'c', 'g'

#: Kind and name of a record.
Key = tuple[str, str]

#: Fields of an inventory, in the order of its value.
_FIELDS = tuple(field.name for field in dataclasses.fields(base.Inventory))


@dataclasses.dataclass(frozen=True)
class StoredProvider:
    """A provider.

    :param revision: revision of its last change; 0 if it does not exist
    :param inventory: None if none was set
    :param unreadable: why the value cannot be read, with its key, or ''
    """

    revision: int = 0
    inventory: Mapping[str, base.Inventory] | None = None
    used: Mapping[str, int] = dataclasses.field(default_factory=dict)
    consumers: int = 0
    unreadable: str = ''

    def taken(
        self, amounts: Mapping[str, int], sign: int
    ) -> 'StoredProvider':
        """Return the provider with one consumer added or removed.

        :param sign: 1 to add, or -1 to remove
        """
        used = dict(self.used)
        for name, amount in amounts.items():
            used[name] = used.get(name, 0) + sign * amount
            if not used[name]:
                del used[name]
        return dataclasses.replace(
            self, used=used, consumers=self.consumers + sign)

    def usage(self, name: str) -> base.Usage:
        """Return the usage of the provider.

        An unreadable provider has no capacity.
        """
        inventory = self.inventory or {}
        return base.Usage(
            name, {each: has.capacity for each, has in inventory.items()},
            {**dict.fromkeys(inventory, 0), **self.used}, self.consumers,
            {each: has.units for each, has in inventory.items()
             if has.units != base.Units()})

    def value(self) -> bytes:
        """Return the value of the key."""
        return encoded({
            'i': {name: _short(has) for name, has in (
                self.inventory or {}).items()},
            'u': self.used, 'n': self.consumers, 'b': {}, 'c': 0})

    @classmethod
    def of(cls, found: protocol.Found) -> 'StoredProvider':
        """Return the provider of a key."""
        return _of(found, cls, lambda read: cls(
            found.revision,
            {name: _inventory(fields) for name, fields in read['i'].items()},
            _amounts(read['u']), _number(read['n'])))


@dataclasses.dataclass(frozen=True)
class StoredConsumer:
    """A consumer.

    :param revision: revision of its last change; 0 if it holds no claims
    :param amounts: by provider and resource class
    :param joins: its group, host and member
    :param unreadable: see :class:`StoredProvider`
    """

    revision: int = 0
    amounts: Mapping[str, Mapping[str, int]] = dataclasses.field(
        default_factory=dict)
    project_id: str | None = None
    user_id: str | None = None
    joins: tuple[str, str, str] | None = None
    unreadable: str = ''

    @classmethod
    def claiming(cls, claims: Sequence[base.Claim]) -> 'StoredConsumer':
        """Return the consumer with claims, which all have the same one."""
        first = claims[0]
        joins = first.group
        member = None if joins is None else (
            joins.group, joins.host, joins.member or first.consumer)
        return cls(
            0, {claim.provider: dict(claim.resources) for claim in claims},
            first.project_id, first.user_id, member)

    def keys(self, name: str) -> list[Key]:
        """Return the keys of all records that its claims are in."""
        keys = [(CONSUMER, name), *((PROVIDER, each) for each in self.amounts)]
        if self.joins is not None:
            keys.append((GROUP, self.joins[0]))
        return keys

    def claims(self, name: str) -> list[base.Claim]:
        """Return the claims of the consumer."""
        return [base.Claim(name, provider, dict(amounts), None,
                           self.project_id, self.user_id)
                for provider, amounts in self.amounts.items()]

    def value(self) -> bytes:
        """Return the value of the key; empty without claims."""
        if not self.amounts:
            return b''
        return encoded({
            'a': self.amounts, 'p': self.project_id, 'u': self.user_id,
            'g': self.joins, 'b': ''})

    @classmethod
    def of(cls, found: protocol.Found) -> 'StoredConsumer':
        """Return the consumer of a key."""
        return _of(found, cls, lambda read: cls(
            found.revision,
            {name: _amounts(each) for name, each in read['a'].items()},
            _text(read['p'] or '') or None, _text(read['u'] or '') or None,
            _texts(read['g'], 3) if read['g'] else None))


@dataclasses.dataclass(frozen=True)
class StoredGroup:
    """A server group that has members.

    :param revision: revision of its last change; 0 if it has no members
    :param members: host and member, by consumer
    :param unreadable: see :class:`StoredProvider`
    """

    revision: int = 0
    members: Mapping[str, tuple[str, str]] = dataclasses.field(
        default_factory=dict)
    unreadable: str = ''

    def joined(
        self, consumer: str, member: tuple[str, str] | None
    ) -> 'StoredGroup':
        """Return the group with a consumer added or removed.

        :param member: host and member of the consumer; None to remove it
        """
        members = {name: each for name, each in self.members.items()
                   if name != consumer}
        if member is not None:
            members[consumer] = member
        return StoredGroup(self.revision, members)

    def on(self, host: str) -> list[str]:
        """Return the consumers of the members on a host."""
        return [name for name, member in self.members.items()
                if member[0] == host]

    def value(self) -> bytes:
        """Return the value of the key; empty without members."""
        if not self.members:
            return b''
        return encoded({'m': self.members, 'b': {}})

    @classmethod
    def of(cls, found: protocol.Found) -> 'StoredGroup':
        """Return the group of a key."""
        return _of(found, cls, lambda read: cls(
            found.revision, {name: _texts(each, 2) for name, each
                             in read['m'].items()}))


class Names:
    """The keys of a deployment.

    :param prefix: prefix of all keys
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()
        self.format = self._prefix + b'format'
        self.tick = self.key(PROVIDER)
        self.counted = self._prefix + b'counted'
        self.hold = self._prefix + b'hold'

    def key(self, kind: str, name: str = '') -> bytes:
        """Return the key of a record."""
        # An invalid name is encoded, too, and not found.
        return self._prefix + f'{kind}/{name}'.encode(errors='surrogatepass')

    def all_of(
        self, kind: str, after: str | bytes = '', limit: int = 0
    ) -> protocol.Get:
        """Return the read of all keys of a kind.

        :param after: only keys after this name, or after this key
        """
        start = self.key(kind, after) if isinstance(after, str) else after
        start += b'\0' * bool(after)
        return protocol.Get(start, self.key(kind)[:-1] + b'0', limit)

    def name(self, key: bytes) -> str:
        """Return the name in a key of any kind; empty if it is no text."""
        try:
            return key[len(self._prefix) + 2:].decode()
        except UnicodeDecodeError:
            return ''


@functools.lru_cache(1024)
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

    :raises ValueError: the value is none
    """
    try:
        read = json.loads(value)
    except (RecursionError, ValueError):
        read = None
    if not isinstance(read, dict):
        raise ValueError(f'expected a JSON object, not {value!r:.80}')
    if read.get('v', VERSION) != VERSION:
        raise ValueError(f'expected version {VERSION}, not {read["v"]!r:.80}')
    return read


def shown(key: bytes) -> str:
    """Return a key for a message."""
    return key.decode(errors='backslashreplace')


def check(records: Iterable[Any]) -> None:
    """Check that records can be read.

    :raises cellsched.exception.ClaimStoreFailed: names the key
    """
    for record in records:
        if record.unreadable:
            raise exception.ClaimStoreFailed(reason=record.unreadable)


#: The records by kind.
KINDS: Mapping[str, Any] = {
    PROVIDER: StoredProvider, CONSUMER: StoredConsumer, GROUP: StoredGroup}

_Record = TypeVar('_Record', StoredProvider, StoredConsumer, StoredGroup)


def _of(
    found: protocol.Found, kind: type[_Record],
    read: Callable[[dict[str, Any]], _Record],
) -> _Record:
    """Return the record of a key; see ``unreadable``."""
    try:
        return read(decoded(found.value))
    except (ArithmeticError, AttributeError, LookupError, TypeError,
            ValueError) as exc:
        reason = (
            f'the field {exc} is missing' if isinstance(exc, KeyError)
            else str(exc) if isinstance(exc, ValueError)
            else 'a field has another type than expected')
        return kind(revision=found.revision, unreadable=(
            f'key {shown(found.key)} cannot be read: {reason}'))


def _inventory(fields: Iterable[Any]) -> base.Inventory:
    inventory = base.Inventory(*fields)
    for name in _FIELDS:
        value = getattr(inventory, name)
        if type(value) is not int and (
                name != 'allocation_ratio' or type(value) is not float):
            raise ValueError(f'{name} has the value {value!r:.80}')
    if inventory.step_size < 1:
        raise ValueError(f'step_size has the value {inventory.step_size}')
    inventory.capacity  # Raises an ArithmeticError for a ratio of NaN.
    return inventory


def _amounts(read: Mapping[str, Any]) -> Mapping[str, int]:
    for value in read.values():
        _number(value)
    return read


def _number(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f'expected a number, not {value!r:.80}')
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f'expected a text, not {value!r:.80}')
    return value


def _texts(values: Any, count: int) -> Any:
    if len(values) != count:
        raise ValueError(f'expected {count} texts, not {values!r:.80}')
    return tuple(map(_text, values))
