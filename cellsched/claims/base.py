# SPDX-License-Identifier: Apache-2.0
"""The contract of a claim store."""

import abc
import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import enum
import math
import re
from typing import Any
from typing import ClassVar
from typing import Self

from oslo_config import cfg

from cellsched import exception
from cellsched import objects


class Trait(enum.Enum):
    """A promise that a store makes and that a deployment may require."""

    ATOMIC = 'atomic'    #: A batch is taken whole or not at all.
    DURABLE = 'durable'  #: Claims outlive the process that took them.
    SHARED = 'shared'    #: Every process sees a claim once it is taken.


@dataclasses.dataclass(frozen=True)
class Claim:
    """What one consumer takes from one provider.

    :param consumer: uuid of who takes, which is an instance's
    :param provider: uuid of who gives, which is a compute node's
    :param resources: amounts, at least 1, by resource class
    """

    consumer: str
    provider: str
    resources: Mapping[str, int]


def of_selection(uuid: str, selection: objects.Selection) -> list[Claim]:
    """Return the claims of an instance that a selection stands for."""
    return [Claim(uuid, provider, resources)
            for provider, resources in selection.wanted().items()]


@dataclasses.dataclass(frozen=True)
class Inventory:
    """What a provider has of one resource class, in the class's unit."""

    total: int
    reserved: int = 0
    allocation_ratio: float = 1.0
    min_unit: int = 1
    max_unit: int = 2 ** 31 - 1
    step_size: int = 1

    @property
    def capacity(self) -> int:
        """The most that may be taken in all; never below zero."""
        room = (self.total - self.reserved) * self.allocation_ratio
        return max(math.floor(room + 1e-9), 0)

    def admits(self, amount: int) -> bool:
        """Whether one claim may take this amount, if there is room."""
        return (self.min_unit <= amount <= self.max_unit
                and amount % self.step_size == 0)


@dataclasses.dataclass(frozen=True)
class Usage:
    """A provider as a store knows it.

    :param capacity: the most that may be taken, by resource class
    :param used: what is taken, by resource class; above the capacity where an
        inventory shrank
    :param consumers: how many consumers hold something here
    """

    provider: str
    capacity: Mapping[str, int]
    used: Mapping[str, int]
    consumers: int


@dataclasses.dataclass(frozen=True)
class Changes:
    """Providers that changed, and the token to ask from next time.

    A provider may be reported again without a change. One that was removed
    is reported with nothing in it.
    """

    token: Any
    usages: Sequence[Usage]


class ClaimStore(abc.ABC):
    """Remembers who holds what on which provider.

    A store has the last word on capacity: when two schedulers choose the same
    room, both call :meth:`claim` and one of them is refused. At every moment
    that anyone can see, what is taken of a resource class is at most its
    capacity, unless the inventory itself was made smaller.

    Methods may block, and may be called from several threads at a time.
    """

    #: What this store promises; checked against ``[claims] require``.
    traits: ClassVar[frozenset[Trait]] = frozenset()

    #: Where the options of :meth:`opts` are registered.
    group: ClassVar[str] = 'claims'

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        """Return the options that this store reads, none by default."""
        return []

    @classmethod
    @abc.abstractmethod
    def from_conf(cls, conf: cfg.ConfigOpts, parts: Any) -> Self:
        """Return a store for a deployment's configuration.

        :param parts: what a process shares: ``parts.databases`` opens
            databases, ``parts.clock`` tells the time
        :raises cellsched.exception.ConfigurationInvalid: names the field
        """

    def check(self) -> None:
        """Make sure that the store can be used; called at start.

        A store that keeps nothing outside of its process has nothing to do.

        :raises cellsched.exception.SchemaOutOfDate: names the command that
            mends it
        :raises cellsched.exception.DatabaseUnreachable: it does not answer
        """

    def sync(self) -> None:
        """Make what the store keeps its claims in, or bring it up to date.

        A store that keeps nothing outside of its process has nothing to do.

        :raises cellsched.exception.DatabaseUnreachable: it does not answer
        """

    @abc.abstractmethod
    def claim(self, claims: Sequence[Claim]) -> int:
        """Take a batch, whole or not at all; return how much of it was new.

        A consumer may appear several times with different providers. To take
        again what a consumer already holds must succeed and change nothing,
        so that a caller may repeat itself after a lost reply. What is
        returned counts claims, and may be less after such a loss.

        A claim that fits must not fail because something else changed: room
        is checked by a predicate in the write itself, not by a generation.

        :raises cellsched.exception.ClaimRefused: a provider has no room, or
            an amount breaks its min unit, max unit or step; names
            ``provider``, ``resource``, ``amount`` and ``consumer``
        :raises cellsched.exception.ClaimConflict: a consumer holds something
            else; names ``consumer``
        :raises cellsched.exception.InvalidField: :func:`check_claims` refuses
            it
        """

    @abc.abstractmethod
    def release(self, consumers: Iterable[str]) -> None:
        """Give back all that these consumers hold.

        Must succeed for those that hold nothing: callers release on every
        failure path, without asking how far they had come.
        """

    @abc.abstractmethod
    def held(self, consumers: Iterable[str]) -> dict[str, list[Claim]]:
        """Return what each of these consumers holds, if it holds anything."""

    @abc.abstractmethod
    def set_inventory(
        self, provider: str, inventory: Mapping[str, Inventory]
    ) -> None:
        """Say what a provider has; the provider is made if it is new.

        Replaces what was said before. An inventory smaller than what is taken
        is accepted; it takes no new claims until enough is released. A
        resource class that is left out has a capacity of zero from now on.
        To say the same again is no change.

        :raises cellsched.exception.InvalidField: :func:`check_inventory`
            refuses it
        """

    @abc.abstractmethod
    def usages(
        self, since: Any = None, providers: Iterable[str] | None = None
    ) -> Changes:
        """Return the providers that changed since a token, or all of them.

        Must return every change that was visible to anyone before the call.
        Costs in proportion to what it returns.

        :param since: the ``token`` of an earlier answer
        :param providers: uuids; only these, whether they changed or not;
            those that the store never heard of are left out. The answer says
            nothing of others, so its token is ``since`` again
        """


# What every store decides alike.

#: What uuids and the names of resource classes may be made of.
_UUID = re.compile(r'[!-~]{1,36}')
_RESOURCE_CLASS = re.compile(r'[A-Z0-9_]{1,255}')

#: The largest amount of anything, in its unit.
AMOUNT_MAX = 2 ** 31 - 1
RATIO_MAX = 1e6


def check_claims(claims: Sequence[Claim]) -> None:
    """Make sure that a batch makes sense.

    :raises cellsched.exception.InvalidField: names the field and its bound
    """
    seen = set()
    for claim in claims:
        where = f'claim of {claim.consumer!r:.80}'
        _expect(_is(_UUID, claim.consumer), where, 'consumer', 'a uuid')
        _expect(_is(_UUID, claim.provider), where, 'provider', 'a uuid')
        _expect((claim.consumer, claim.provider) not in seen, where,
                'provider', f'each one once, not {claim.provider} again')
        _expect(claim.resources, where, 'resources', 'at least one')
        _check_classes(claim.resources, where)
        for resource, amount in claim.resources.items():
            _check_amount(amount, where, resource, 1)
        seen.add((claim.consumer, claim.provider))


def check_inventory(
    provider: str, inventory: Mapping[str, Inventory]
) -> None:
    """Make sure that what a provider says it has makes sense.

    :raises cellsched.exception.InvalidField: names the field and its bound
    """
    where = f'inventory of {provider!r:.80}'
    _expect(_is(_UUID, provider), where, 'provider', 'a uuid')
    _check_classes(inventory, where)
    for resource, said in inventory.items():
        for field, least in (('total', 0), ('reserved', 0), ('min_unit', 1),
                             ('max_unit', 1), ('step_size', 1)):
            _check_amount(
                getattr(said, field), where, f'{resource} {field}', least)
        ratio = said.allocation_ratio
        _expect(isinstance(ratio, (int, float)) and 0 < ratio <= RATIO_MAX,
                where, f'{resource} allocation_ratio',
                f'above 0 and at most {RATIO_MAX:.0f}, not {ratio!r:.80}')


def outstanding(
    claims: Iterable[Claim], held: Mapping[str, Iterable[Claim]]
) -> list[Claim]:
    """Return those of a batch whose consumers hold nothing yet.

    :param held: as :meth:`ClaimStore.held` tells
    :raises cellsched.exception.ClaimConflict: a consumer holds something
        else than the batch takes for it
    """
    wanted: dict[str, list[Claim]] = {}
    for claim in claims:
        wanted.setdefault(claim.consumer, []).append(claim)
    for consumer, holds in held.items():
        if _contents(holds) != _contents(wanted.pop(consumer, ())):
            raise exception.ClaimConflict(consumer=consumer)
    return [claim for claim in claims if claim.consumer in wanted]


def find_refusal(
    claims: Iterable[Claim],
    inventories: Mapping[str, Mapping[str, Inventory]],
    used: Mapping[str, Mapping[str, int]],
) -> exception.ClaimRefused | None:
    """Return why a batch cannot be taken, or None if it can.

    Goes through the batch in order and finds the first claim that does not
    fit beside those before it.

    :param inventories: what providers have, by resource class
    :param used: what is taken of it
    """
    more: collections.Counter[tuple[str, str]] = collections.Counter()
    for claim in claims:
        provider = claim.provider
        for resource, amount in sorted(claim.resources.items()):
            more[provider, resource] += amount
            has = inventories.get(provider, {}).get(resource, _NOTHING)
            taken = used.get(provider, {}).get(resource, 0)
            room = has.capacity - taken - more[provider, resource]
            if room < 0 or not has.admits(amount):
                return exception.ClaimRefused(
                    provider=provider, resource=resource, amount=amount,
                    consumer=claim.consumer)
    return None


_NOTHING = Inventory(total=0)


def _contents(claims: Iterable[Claim]) -> dict[str, dict[str, int]]:
    return {claim.provider: dict(claim.resources) for claim in claims}


def _is(pattern: re.Pattern[str], value: Any) -> bool:
    return isinstance(value, str) and bool(pattern.fullmatch(value))


def _check_classes(resources: Mapping[str, Any], where: str) -> None:
    for resource in resources:
        _expect(_is(_RESOURCE_CLASS, resource), where, 'resource class',
                f'A-Z, 0-9 and _, at most 255, not {resource!r:.80}')


def _check_amount(amount: Any, where: str, field: str, least: int) -> None:
    _expect(type(amount) is int and least <= amount <= AMOUNT_MAX, where,
            field, f'a whole number from {least} to {AMOUNT_MAX}, '
                   f'not {amount!r:.80}')


def _expect(holds: Any, where: str, field: str, expected: str) -> None:
    if not holds:
        raise exception.InvalidField(
            where=where, field=field, expected=expected)
