# SPDX-License-Identifier: Apache-2.0
"""The contract of a claim store.

The docstrings of :class:`ClaimStore` are the specification of a store, and
``cellsched.testing.suite.claims`` tests a store against it. In this module a
*provider* has inventory (a compute node, a child provider or a shared one), a
*consumer* holds claims (an instance, or the migration of one), and a *batch*
is a list of claims that is claimed as a whole.
"""

import abc
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import enum
from random import Random
from typing import Any
from typing import ClassVar
from typing import Protocol
from typing import Self
from typing import TYPE_CHECKING

from oslo_config import cfg

from cellsched.claims.coordination import ContentionLock
from cellsched.clock import Clock
from cellsched import exception
from cellsched import objects
from cellsched.objects import resources

if TYPE_CHECKING:
    # A store that needs no SQL is to import none.
    from cellsched.db import session


class Capability(enum.Enum):
    """A guarantee of a store, which ``[claims] require`` may ask for."""

    ATOMIC = 'atomic'
    DURABLE = 'durable'
    SHARED = 'shared'
    GROUPS = 'groups'
    FEED = 'feed'
    CONSUMER_LIST = 'consumer_list'
    QUERY = 'query'
    ANY_OF = 'any_of'


#: The meaning of each capability, for the documentation.
MEANINGS: Mapping[Capability, str] = {
    Capability.ATOMIC:
        'A batch is claimed as a whole or not at all, even if a process '
        'stops halfway.',
    Capability.DURABLE: 'Claims outlive the process that made them.',
    Capability.SHARED: 'Every process sees a claim once it is made.',
    Capability.GROUPS:
        'Hard policies of server groups hold under concurrent claims.',
    Capability.FEED:
        'The cost of finding changed providers depends on the number of '
        'changes. Other stores read something of each host.',
    Capability.CONSUMER_LIST:
        'The store lists all consumers. Other stores list those of one host '
        'at a time.',
    Capability.QUERY:
        'The store finds the hosts with enough capacity, as '
        'provider_scheduler needs.',
    Capability.ANY_OF:
        'The store claims the first of several hosts that has room, in one '
        'request. With other stores the scheduler sends a request for each '
        'host.',
}


#: Policies of server groups that a claim must not violate.
AFFINITY, ANTI_AFFINITY = 'affinity', 'anti-affinity'
HARD_POLICIES = (AFFINITY, ANTI_AFFINITY)


@dataclasses.dataclass(frozen=True)
class Membership:
    """The membership of a consumer in a server group with a hard policy.

    :param group: uuid of the group
    :param host: name of the member's compute service, which may have several
        providers
    :param policy: one of :data:`HARD_POLICIES`
    :param max_server_per_host: members allowed on one host by the policy
        ``anti-affinity``
    :param member: uuid of the instance if the consumer is another one: during
        a migration an instance is the same member on source and destination
    :param lost_hosts: hosts that are down; members on them do not bind the
        policy ``affinity``. Not stored
    """

    group: str
    host: str
    policy: str
    max_server_per_host: int = 1
    member: str = ''
    lost_hosts: frozenset[str] = frozenset()


def membership(
    group: objects.InstanceGroup | None, host: str, member: str,
    lost_hosts: Iterable[str] = (),
) -> Membership | None:
    """Return an instance's membership if its group has a hard policy.

    :param lost_hosts: hosts that are down, whose members do not bind
    """
    if group is None:
        return None
    policy = group.get('policy') or next(
        iter(group.get('policies') or ()), None)
    if policy not in HARD_POLICIES:
        return None
    return Membership(group.uuid, host, policy,
                      group.rules.get('max_server_per_host', 1), member,
                      frozenset(lost_hosts))


def joined(group: str, host: str, member: str) -> Membership:
    """Return the membership of a consumer that holds claims already.

    No policy refuses it, so that existing claims can be copied to another
    store.

    :param group: uuid of the group
    :param host: host of the member
    :param member: uuid of the instance
    """
    return Membership(
        group, host, ANTI_AFFINITY, resources.AMOUNT_MAX, member)


@dataclasses.dataclass(frozen=True)
class Claim:
    """The resources that one consumer claims from one provider.

    All claims of a consumer in a batch have the same group, project and user.

    :param consumer: uuid of the consumer, usually an instance
    :param provider: uuid of the provider, usually a compute node
    :param resources: amounts by resource class, each at least 1
    :param group: the consumer's membership in a server group; returned by
        :meth:`ClaimStore.memberships`, not by :meth:`ClaimStore.claims_of`
    :param project_id: id of the project, 1 to 255 characters; None if it is
        not known
    :param user_id: id of the user, likewise
    """

    consumer: str
    provider: str
    resources: Mapping[str, int]
    group: Membership | None = None
    project_id: str | None = None
    user_id: str | None = None


def of_selection(
    uuid: str, selection: objects.Selection,
    group: objects.InstanceGroup | None = None,
    project_id: str | None = None, user_id: str | None = None,
) -> list[Claim]:
    """Return the claims of an instance on the providers of a selection.

    :param group: the instance's server group, with any policy
    :param project_id: id of the project; empty or None if there is none
    :param user_id: id of the user, likewise
    """
    joins = membership(group, selection.service_host, uuid)
    return [Claim(uuid, provider, resources, joins, project_id or None,
                  user_id or None)
            for provider, resources in selection.requested().items()]


def is_held(
    claims: Iterable[Claim], held: Mapping[str, Iterable[Claim]]
) -> bool:
    """Return whether the consumers of a batch hold exactly its claims.

    :param held: result of :meth:`ClaimStore.claims_of`
    """
    def contents(each: Iterable[Claim]) -> dict[tuple[str, str], dict[
            str, int]]:
        return {(claim.consumer, claim.provider): dict(claim.resources)
                for claim in each}

    return contents(claims) == contents(
        claim for of_one in held.values() for claim in of_one)


#: The inventory of one resource class of a provider.
Inventory = resources.Inventory

#: Bounds on the amount of one claim.
Units = resources.Units


@dataclasses.dataclass(frozen=True)
class Usage:
    """A provider and its use.

    :param capacity: the amount that can be claimed in all, by resource class:
        (total - reserved) * allocation_ratio
    :param used: the claimed amount, by resource class; may exceed the
        capacity after an inventory was reduced
    :param consumers: number of consumers with claims here
    :param units: bounds on the amount of one claim, by resource class; a
        class without an entry has none
    """

    provider: str
    capacity: Mapping[str, int]
    used: Mapping[str, int]
    consumers: int
    units: Mapping[str, Units] = dataclasses.field(default_factory=dict)


@contextlib.contextmanager
def translated_errors() -> Iterator[None]:
    """Translate errors of a store that are not in its contract.

    :raises cellsched.exception.ClaimStoreFailed: so that callers retry
    """
    try:
        yield
    except (exception.DatabaseUnreachable, exception.DatabaseBusy,
            exception.TransactionLost):
        raise
    except exception.DatabaseError as exc:
        raise exception.ClaimStoreFailed(
            reason=exc.format_message()) from exc
    except exception.CellschedException:
        raise
    except Exception as exc:
        raise exception.ClaimStoreFailed(
            reason=f'the store raised {type(exc).__name__}') from exc


def flaw(usage: Usage) -> str:
    """Return why a usage cannot be read; empty if it can.

    A store may return what an operator or another program wrote.
    """
    for name, amounts in (('capacity', usage.capacity), ('used', usage.used)):
        for resource, amount in amounts.items():
            if type(amount) is not int:
                return f'the {name} of {resource} is {amount!r:.80}'
    for resource, units in usage.units.items():
        if any(type(unit) is not int or unit < 1 for unit in units):
            return f'the units of {resource} are {tuple(units)!r:.80}'
    if type(usage.consumers) is not int:
        return f'the number of consumers is {usage.consumers!r:.80}'
    return ''


def is_readable(claim: Claim) -> bool:
    """Return whether the amounts of a stored claim are numbers."""
    return all(type(amount) is int for amount in claim.resources.values())


@dataclasses.dataclass(frozen=True)
class AnyOf:
    """The outcome of :meth:`ClaimStore.claim_any`.

    :param chosen: position of the batch that is claimed; None if none is
    :param new: number of new claims in it, as :meth:`ClaimStore.claim`
        returns it
    :param refusals: the errors of the batches before the claimed one, by
        position; some may be missing. If none is claimed, each is here
    """

    chosen: int | None
    new: int = 0
    refusals: Mapping[int, exception.ClaimRefused | exception.ClaimBusy] = (
        dataclasses.field(default_factory=dict))


#: Errors that refuse a transaction because of a single request in it.
_OF_ONE_REQUEST = (
    exception.ClaimBusy, exception.ClaimConflict, exception.ClaimRefused,
    exception.ClaimStoreFailed, exception.InvalidField)


@dataclasses.dataclass(frozen=True)
class UsageChanges:
    """Changed providers, and the token for the next call.

    A provider may be reported without a change. A removed provider is
    reported with an empty capacity.
    """

    token: Any
    usages: Sequence[Usage]


@dataclasses.dataclass(frozen=True)
class ProviderQuery:
    """A condition on trees of providers.

    :param resources: amounts by resource class: for each class, some provider
        of the tree can grant one of the amounts in one claim
    :param required: traits; each belongs to some provider of the tree
    :param forbidden: traits that the root does not have
    """

    resources: Mapping[str, Collection[int]]
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class StoreProblem:
    """A record of a store that cannot be read, or contradicts another one.

    :param record: name of the record, as an operator finds it in the store
    :param text: the problem
    :param advice: what an operator can do; empty if :meth:`ClaimStore.mend`
        resolves it
    :param provider: the provider of an unreadable record, whose counters are
        unknown; empty for any other record
    """

    record: str
    text: str
    advice: str = ''
    provider: str = ''


class ClaimStoreParts(Protocol):
    """The parts of a process that a claim store is made from."""

    @property
    def databases(self) -> 'session.Databases':
        """Databases by URL, each opened once."""

    @property
    def clock(self) -> Clock:
        """The process's clock."""

    @property
    def random(self) -> Random:
        """The source of randomness, for example of delays before a retry."""

    @property
    def locks(self) -> ContentionLock:
        """The lock of contended providers between processes."""


class _Store(abc.ABC):
    """The capabilities of a store, and the error for a missing one."""

    #: Checked against ``[claims] require``.
    capabilities: ClassVar[frozenset[Capability]] = frozenset()

    def _unsupported(
        self, method: str, purpose: str
    ) -> exception.ConfigurationInvalid:
        return exception.ConfigurationInvalid(
            field='[claims] store',
            problem=f'{type(self).__name__} does not implement {method}()',
            expected=f'a store that {purpose}')


class Claims(abc.ABC):
    """Claims of consumers: made, transferred, released and read."""

    @abc.abstractmethod
    def claim(self, claims: Sequence[Claim]) -> int:
        """Claim a batch, as a whole or not at all.

        A consumer may appear several times with different providers. The call
        is idempotent, so that it can be repeated after a lost reply: a batch
        whose consumers already hold exactly these claims succeeds without a
        change.

        The project and the user are stored with the claims, but are not
        compared: a repetition with another project or user succeeds and keeps
        the stored ones.

        A claim that fits must not fail because of a concurrent change. The
        capacity is checked by a predicate of the write itself, not by a
        generation.

        A store with the capability ``GROUPS`` stores the membership with the
        claims and checks the policy in the same step. The check counts the
        members of the group that hold claims, and those earlier in the batch.
        ``anti-affinity`` is violated if ``max_server_per_host`` other members
        are on the claim's host; ``affinity`` is violated if another member is
        on a different host that is not in ``lost_hosts``. Consumers that
        claimed without a membership are not counted. A release removes the
        membership, a transfer moves it.
        Claims without a membership do not wait for claims with one.

        :returns: number of new claims; may be too low if a repetition inside
            the store follows a lost reply
        :raises cellsched.exception.GroupPolicyViolated: a claim violates the
            policy of its group; names ``provider``, ``consumer``, ``group``,
            ``policy``, ``members`` (the consumers of the other members) and
            ``hosts`` (the hosts of these; for ``anti-affinity`` only the full
            ones). If the capacity is missing, too, either error may be raised
        :raises cellsched.exception.ClaimRefused: a provider lacks capacity,
            or an amount violates min_unit, max_unit or step_size; names
            ``provider``, ``resource``, ``amount`` and ``consumer``
        :raises cellsched.exception.ClaimBusy: other sessions lock providers
            of the batch for too long; names ``providers``. Nothing is known
            about their capacity
        :raises cellsched.exception.ClaimConflict: a consumer holds other
            claims; names ``consumer``
        :raises cellsched.exception.InvalidField: :func:`.check_claims` rejects
            the batch
        """

    def claim_any(self, batches: Sequence[Sequence[Claim]]) -> AnyOf:
        """Claim the first of several batches that fits.

        The batches are alternatives for the same consumers, best first. At
        most one of them is claimed, as a whole, with the guarantees of
        :meth:`claim`. A batch is claimed only if each batch before it was
        refused, or had providers locked by other sessions, at some moment of
        the call. Before the call refuses all batches, it waits for locked
        providers as :meth:`claim` does, and tries their batches again.

        Idempotent: if the consumers already hold exactly the claims of one of
        the batches, that batch is the result, wherever it is in the order,
        and nothing changes.

        A store with the capability ``ANY_OF`` decides in one round trip if
        each batch is one claim without a membership, and one of the providers
        has room; this method claims one batch after the other.

        :param batches: at least one; each with the same consumers
        :raises cellsched.exception.ClaimConflict: a consumer holds claims
            that are not those of a batch; names ``consumer``
        :raises cellsched.exception.InvalidField: :func:`.check_claims` rejects
            a batch. Batches after the claimed one may not be checked
        """
        return claim_in_order(self, batches)

    def claim_each(
        self, requests: Sequence[Sequence[Sequence[Claim]]]
    ) -> Sequence[AnyOf | exception.CellschedException]:
        """Claim the first batch that fits of each of several requests.

        The outcome of each request is as if :meth:`claim_any` were called for
        it, in any order: its result, or the error that it raises. A store may
        claim for many requests at the cost of one. This method claims the
        first batches of all together; if they are refused, it claims for one
        request after the other.

        :param requests: at least one; no two with the same consumer
        :raises cellsched.exception.DatabaseUnreachable: the outcome is unknown
            for any of the requests
        """
        if len(requests) > 1:
            together = [claim for batches in requests for claim in batches[0]]
            with contextlib.suppress(*_OF_ONE_REQUEST):
                # The store counts the claims that existed before in all.
                missing = len(together) - self.claim(together)
                return [AnyOf(0, max(len(batches[0]) - missing, 0))
                        for batches in requests]
        outcomes: list[AnyOf | exception.CellschedException] = []
        for batches in requests:
            try:
                outcomes.append(self.claim_any(batches))
            except _OF_ONE_REQUEST as exc:
                outcomes.append(exc)
        return outcomes

    @abc.abstractmethod
    def release(self, consumers: Iterable[str]) -> None:
        """Release all claims of these consumers.

        Idempotent: consumers without claims are ignored. The claims of a
        concurrent transfer between two of them are released. Callers release
        on every failure path, whether or not the claim was made. The store
        does not compare the claims with those that the caller has seen; if the
        consumer may have got new ones, callers use
        :func:`cellsched.migrations.withdraw`.
        """

    @abc.abstractmethod
    def transfer(self, source: str, target: str) -> bool:
        """Transfer the claims of one consumer to another.

        In one atomic step the claims of ``target``, if any, are released, and
        the claims of ``source`` become those of ``target``, with their
        project and user. No capacity is needed. So a migrated server keeps
        the claims of its destination and releases those of its source.

        Idempotent: if ``source`` holds no claims, nothing changes and the
        result is False. Concurrent claims and releases of both consumers are
        serialized with the transfer.

        :returns: whether ``source`` held claims
        :raises cellsched.exception.InvalidField: :func:`.check_transfer`
            rejects the consumers
        """

    @abc.abstractmethod
    def claims_of(self, consumers: Iterable[str]) -> dict[str, list[Claim]]:
        """Return the claims of these consumers.

        Consumers without claims are left out. Each claim has its project and
        user, and no group.
        """


class Memberships(_Store):
    """Memberships of consumers in server groups, which claims make."""

    def memberships(self, consumers: Iterable[str]) -> dict[str, Membership]:
        """Return the memberships of those consumers that have one.

        A consumer without claims has none. The memberships are made by
        :func:`joined`, with ``member`` set: a store need not remember the
        policy. A store with the capability ``GROUPS`` implements this; other
        stores return nothing.

        :raises cellsched.exception.ConfigurationInvalid: the store has
            ``GROUPS`` and does not implement it
        """
        if Capability.GROUPS in self.capabilities:
            raise self._unsupported(
                'memberships', 'lists memberships of server groups')
        return {}

    def rename_host(self, former: str, name: str) -> None:
        """Replace the name of a host in the memberships.

        Idempotent. A store with the capability ``GROUPS`` implements this;
        other stores do nothing.

        :raises cellsched.exception.ConfigurationInvalid: the store has
            ``GROUPS`` and does not implement it
        """
        if Capability.GROUPS in self.capabilities:
            raise self._unsupported(
                'rename_host', 'renames the hosts of server groups')


class UsageFeed(abc.ABC):
    """The used amounts of providers, and their changes."""

    @abc.abstractmethod
    def usages(
        self, since: Any = None, providers: Iterable[str] | None = None
    ) -> UsageChanges:
        """Return the providers that changed since a token, or all of them.

        Returns every change that was visible to any reader before the call.
        With the capability ``FEED`` the cost grows with the number of changes
        only; other stores may read something of each provider, such as a
        generation. Callers poll it either way.

        :param since: the ``token`` of an earlier result; None for all
        :param providers: uuids; only these are returned, changed or not, and
            unknown ones are left out. The token of such a result is ``since``
        """


class Providers(UsageFeed, _Store):
    """Providers with their inventories and traits."""

    @abc.abstractmethod
    def set_inventory(
        self, provider: str, inventory: Mapping[str, Inventory]
    ) -> None:
        """Set the inventory of a provider; create the provider if it is new.

        Replaces the previous inventory; the same inventory again is no
        change. A resource class that is left out has the capacity zero. The
        inventory may be smaller than the used amount: then new claims are
        refused until enough is released.

        :raises cellsched.exception.InvalidField: :func:`.check_inventory`
            rejects it
        """

    def set_traits(
        self, provider: str, traits: Iterable[str], root: str
    ) -> None:
        """Set the traits of a provider and the root of its tree.

        Replaces the previous ones; the same again is no change. The provider
        may have no inventory yet. A store without the capability ``QUERY``
        does nothing.

        :param traits: names of A-Z, 0-9 and _, at most 255 characters each
        :param root: uuid of the root provider, usually a compute node; that
            of the provider itself if it is a root
        :raises cellsched.exception.InvalidField: :func:`.check_traits`
            rejects them
        """

    def roots(self, providers: Iterable[str]) -> dict[str, str]:
        """Return the roots of the providers that :meth:`set_traits` named.

        Other providers are left out. A store with the capability ``QUERY``
        implements this; other stores return nothing.
        """
        return {}

    def find_providers(
        self, query: ProviderQuery, limit: int | None = None
    ) -> list[str]:
        """Return the roots of the trees that match a query.

        A store with the capability ``QUERY`` implements this. The result has
        every tree that matches during the whole call. A provider matches an
        amount if the capacity less the used amount suffices and the units
        admit it; a later claim may still be refused. A provider without a
        call of :meth:`set_traits` is a tree of its own, and matches any
        traits. A query without resources matches every known tree by its
        traits alone.

        :param limit: maximum number, at least 1; of more matches, a random
            selection that differs between calls is returned. None for all
        :raises cellsched.exception.InvalidField: :func:`.check_query` rejects
            the query
        :raises cellsched.exception.ConfigurationInvalid: the store does not
            implement it
        """
        raise self._unsupported(
            'find_providers', 'finds providers with free capacity')

    def inventories(
        self, providers: Iterable[str] | None = None
    ) -> dict[str, dict[str, Inventory]]:
        """Return inventories by provider and resource class.

        Resource classes and providers without capacity may be left out. A
        store that keeps only the capacity and the units returns an equivalent
        inventory.

        :param providers: uuids, of which unknown ones are left out; None for
            all
        """
        return {
            usage.provider: {
                name: Inventory(
                    capacity, 0, 1.0, *usage.units.get(name, Units()))
                for name, capacity in usage.capacity.items()}
            for usage in self.usages(providers=providers).usages}


class Inspection(UsageFeed, _Store):
    """Lists and corrections, for the audit and for tools."""

    def consumers(self, after: str = '', limit: int = 1000) -> list[str]:
        """Return a page of the consumers with claims, sorted by their bytes.

        A store with the capability ``CONSUMER_LIST`` implements this; see
        :mod:`.listing` for a listing of any store.

        To list all consumers, pass the last one of a page as ``after`` until
        a page is short. The pages then have every consumer that holds claims
        during the whole listing, and possibly any that holds claims during a
        part of it.

        :param after: only consumers after this one
        :param limit: maximum number, at least 1; a shorter page is the last
        :raises cellsched.exception.InvalidField: the limit is below 1
        :raises cellsched.exception.ConfigurationInvalid: the store does not
            implement it
        """
        raise self._unsupported('consumers', 'lists all consumers')

    def consumers_of(self, provider: str) -> list[str]:
        """Return the consumers with claims on a provider, in any order.

        A store without the capability ``CONSUMER_LIST`` implements this. An
        unknown provider has none. The result has every consumer that holds
        a claim there during the whole call, and possibly any that holds one
        during a part of it.

        :raises cellsched.exception.ConfigurationInvalid: the store does not
            implement it
        """
        raise self._unsupported(
            'consumers_of', 'lists the consumers of a provider')

    def providers_in_use(self) -> list[str]:
        """Return the providers that have consumers, in any order.

        The result has every provider that is in use during the whole call,
        and possibly any other. The number of requests must not grow with the
        number of providers.
        """
        return [usage.provider for usage in self.usages().usages
                if usage.consumers]

    def recount(self, provider: str) -> bool:
        """Correct the counters of a provider from its claims and inventory.

        For a store that keeps the used amount, the number of consumers or the
        capacity beside the data that they follow from. Wrong counters, from a
        defect or a manual change of the database, make a store refuse claims
        that fit or accept claims that do not. Safe at any time beside other
        calls, and without a change if the counters are right. The cost may
        grow with the number of all claims. A store without such counters does
        nothing.

        :returns: whether a counter was wrong; False for an unknown provider
        """
        return False

    def problems(self) -> list[StoreProblem]:
        """Return the records that are unreadable or contradict each other.

        An unreadable record of a provider leaves out that provider only:
        :meth:`usages` reports it without capacity, a claim of it is refused,
        and it is back once the record can be read. An unreadable record of a
        consumer is left out of :meth:`claims_of` and :meth:`consumers`; a
        claim, a release or a transfer of it raises
        :class:`cellsched.exception.ClaimStoreFailed` with its name, after the
        other consumers of the call are served. No unreadable record is
        overwritten or deleted, as it may be of a later version.

        The cost may grow with the number of all records. A record in change
        may be reported, and is not reported by a second call.
        """
        return [StoreProblem(
            f'provider {usage.provider}', f'{problem}; expected a number',
            'correct the value', usage.provider)
            for usage in self.usages().usages if (problem := flaw(usage))]

    def mend(self) -> None:
        """Resolve those of :meth:`problems` that have no advice.

        Safe at any time beside other calls.
        """


class ClaimStore(Claims, Memberships, Providers, Inspection):
    """The claims of consumers on providers.

    The store arbitrates capacity: if two schedulers select the same free
    capacity, both call :meth:`claim` and one is refused. In every state that
    a reader can observe, the used amount of a resource class is at most its
    capacity, unless the inventory itself was reduced.

    Methods may block, and are called from several threads. A method raises
    :class:`cellsched.exception.DatabaseUnreachable` with the schema
    ``claims`` if the store does not answer in time. The outcome of the call
    is unknown then, and the change may still be made later; the caller
    repeats the call, or releases the consumers, when the store answers again.
    A store raises it only after an attempt to find out the outcome.

    Each base class has one purpose. A caller names the one that it needs.
    """

    #: The configuration group of :meth:`opts`.
    group: ClassVar[str] = 'claims'

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        """Return the options of this store; none by default."""
        return []

    @classmethod
    @abc.abstractmethod
    def from_conf(
        cls, conf: cfg.ConfigOpts, parts: ClaimStoreParts
    ) -> Self:
        """Return the store of a deployment.

        :raises cellsched.exception.ConfigurationInvalid: names the field
        """

    def check(self) -> None:
        """Check at the start of a service that the store can be used.

        A store without state outside its process does nothing.

        :raises cellsched.exception.SchemaOutOfDate: names the command that
            upgrades the schema
        :raises cellsched.exception.DatabaseUnreachable: it does not answer
        """

    def sync(self) -> None:
        """Create or upgrade the schema of the store.

        Idempotent. A store without state outside its process does nothing.

        :raises cellsched.exception.DatabaseUnreachable: it does not answer
        """

    def same_backend(self, other: 'ClaimStore') -> bool:
        """Return whether another store keeps its claims in the same place.

        May connect to both, and changes no claims. A store with the capability
        ``SHARED`` detects the same backend behind different configurations.
        """
        return other is self

    def close(self) -> None:
        """Close the connections and stop the threads of this store.

        May block briefly. No other method runs at the same time; a later call
        of another method connects again.
        """


class RequestClaims(Claims):
    """The claims of a store that claims for several requests at a time.

    Such a store implements :meth:`claim_each`; a single request, and a single
    batch, are cases of it. Options are those that the store adds.
    """

    def claim(self, claims: Sequence[Claim], **options: Any) -> int:
        if not claims:
            return 0
        outcome = self.claim_any([claims], **options)
        if outcome.chosen is None:
            raise outcome.refusals[0]
        return outcome.new

    def claim_any(
        self, batches: Sequence[Sequence[Claim]], **options: Any
    ) -> AnyOf:
        [outcome] = self.claim_each([batches], **options)
        if isinstance(outcome, AnyOf):
            return outcome
        raise outcome


def claim_in_order(
    store: Claims, batches: Sequence[Sequence[Claim]],
    find_full: Callable[
        [Sequence[Sequence[Claim]], int],
        Mapping[int, exception.ClaimRefused]] = lambda batches, first: {},
    claim: Callable[[Sequence[Claim]], int] | None = None,
) -> AnyOf:
    """Claim one batch after the other, as :meth:`ClaimStore.claim_any`.

    :param find_full: returns the refusals, by position, of those batches from
        a position on that need no attempt
    :param claim: claims a batch; by default :meth:`ClaimStore.claim`
    """
    claim = claim or store.claim
    refusals: dict[int, exception.ClaimRefused | exception.ClaimBusy] = {}
    for position, batch in enumerate(batches):
        try:
            if position not in refusals:
                refusals |= find_full(batches, position)
            if position not in refusals:
                new = claim(batch)
                return AnyOf(position, new, {
                    before: each for before, each in refusals.items()
                    if before < position})
        except exception.ClaimConflict:
            # An earlier call, whose reply was lost, may have claimed any.
            held = store.claims_of(
                dict.fromkeys(claim.consumer for claim in batch))
            for chosen, other in enumerate(batches):
                if is_held(other, held):
                    return AnyOf(chosen, 0, refusals)
            raise
        except (exception.ClaimRefused, exception.ClaimBusy) as exc:
            refusals[position] = exc
    return AnyOf(None, 0, refusals)
