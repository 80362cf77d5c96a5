# SPDX-License-Identifier: Apache-2.0
"""The contract of a claim store."""

import abc
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import enum
from random import Random
from typing import Any
from typing import ClassVar
from typing import Protocol
from typing import Self
from typing import TYPE_CHECKING

from oslo_config import cfg

from cellsched.clock import Clock
from cellsched import exception
from cellsched import objects
from cellsched.objects import resources

if TYPE_CHECKING:
    # A store that needs no SQL is to import none.
    from cellsched.db import session


class Capability(enum.Enum):
    """A promise that a store makes and that a deployment may require."""

    ATOMIC = 'atomic'
    DURABLE = 'durable'
    SHARED = 'shared'
    GROUPS = 'groups'
    FEED = 'feed'
    CONSUMER_LIST = 'consumer_list'
    QUERY = 'query'


#: What each promise means, for people.
MEANINGS: Mapping[Capability, str] = {
    Capability.ATOMIC:
        'A batch is taken whole or not at all, whoever dies meanwhile.',
    Capability.DURABLE: 'Claims outlive the process that took them.',
    Capability.SHARED: 'Every process sees a claim once it is taken.',
    Capability.GROUPS:
        'Hard policies of server groups hold, whoever is placed at the time.',
    Capability.FEED:
        'What changed is told at a cost of what changed. Elsewhere something '
        'of each host is read to find it.',
    Capability.CONSUMER_LIST:
        'All consumers are listed. Elsewhere each host is asked for its own.',
    Capability.QUERY:
        'The store finds the hosts that have room, as provider_scheduler '
        'needs.',
}


#: What a server group can insist on, and not only wish for.
AFFINITY, ANTI_AFFINITY = 'affinity', 'anti-affinity'
HARD_POLICIES = (AFFINITY, ANTI_AFFINITY)


@dataclasses.dataclass(frozen=True)
class Membership:
    """The membership of a claim in a server group of a hard policy.

    :param group: uuid of the group
    :param host: where the claim puts the member, which is a compute service
        and may have several providers
    :param policy: one of :data:`HARD_POLICIES`
    :param max_server_per_host: members that a host may have, where the policy
        is ``anti-affinity``
    :param member: uuid of the instance, where that is not the consumer; one
        that is moved is where it was and where it goes, and the same member
        in both places
    """

    group: str
    host: str
    policy: str
    max_server_per_host: int = 1
    member: str = ''


def membership(
    group: objects.InstanceGroup | None, host: str, member: str
) -> Membership | None:
    """Return what an instance is in its group, where the policy is hard."""
    if group is None:
        return None
    policy = group.get('policy') or next(
        iter(group.get('policies') or ()), None)
    if policy not in HARD_POLICIES:
        return None
    return Membership(group.uuid, host, policy,
                      group.rules.get('max_server_per_host', 1), member)


def joined(group: str, host: str, member: str) -> Membership:
    """Return a membership that somebody has, whatever the policy is.

    It is one that no policy refuses, so that whoever holds something in a
    store can be made a member in another one, wherever others are.

    :param group: uuid of the group
    :param host: where the member is
    :param member: uuid of the instance
    """
    return Membership(
        group, host, ANTI_AFFINITY, resources.AMOUNT_MAX, member)


@dataclasses.dataclass(frozen=True)
class Claim:
    """The resources that one consumer takes from one provider.

    :param consumer: uuid of who takes, which is an instance's
    :param provider: uuid of who gives, which is a compute node's
    :param resources: amounts, at least 1, by resource class
    :param group: what the consumer is in a server group, the same in all its
        claims of a batch; :meth:`ClaimStore.memberships` tells it, and
        :meth:`ClaimStore.claims_of` does not
    :param project_id: id of the project that it is for, of 1 to 255
        characters, the same in all its claims of a batch; None where it is
        not known
    :param user_id: id of the user that it is for, likewise
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
    """Return the claims of an instance that a selection stands for.

    :param group: the instance's server group, whatever its policy
    :param project_id: id of its project; empty, or None, if it has none
    :param user_id: id of its user, likewise
    """
    joins = membership(group, selection.service_host, uuid)
    return [Claim(uuid, provider, resources, joins, project_id or None,
                  user_id or None)
            for provider, resources in selection.wanted().items()]


#: The inventory of one resource class of a provider.
Inventory = resources.Inventory

#: Bounds on what one claim may take of it.
Units = resources.Units


@dataclasses.dataclass(frozen=True)
class Usage:
    """A provider as a store knows it.

    :param capacity: the most that may be taken, by resource class
    :param used: what is taken, by resource class; above the capacity where an
        inventory shrank
    :param consumers: how many consumers hold something here
    :param units: bounds on what one claim may take, by resource class; of a
        class that is left out, none
    """

    provider: str
    capacity: Mapping[str, int]
    used: Mapping[str, int]
    consumers: int
    units: Mapping[str, Units] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class UsageChanges:
    """Providers that changed, and the token to ask from next time.

    A provider may be reported again without a change. One that was removed
    is reported with nothing in it.
    """

    token: Any
    usages: Sequence[Usage]


@dataclasses.dataclass(frozen=True)
class ProviderQuery:
    """The room and the traits that a tree of providers is to have.

    :param resources: amounts by resource class: for each class some provider
        of the tree gives at least one of these amounts, in one claim
    :param required: traits, each of some provider of the tree
    :param forbidden: traits that the root must not have
    """

    resources: Mapping[str, Collection[int]]
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()


class ClaimStoreParts(Protocol):
    """Parts of a process that a claim store is made of."""

    @property
    def databases(self) -> 'session.Databases':
        """Databases by their URLs, each opened once."""

    @property
    def clock(self) -> Clock:
        """The process's clock."""

    @property
    def random(self) -> Random:
        """The source of chance, for whoever must not retry in step."""


class ClaimStore(abc.ABC):
    """Remembers who holds what on which provider.

    A store has the last word on capacity: when two schedulers choose the same
    room, both call :meth:`claim` and one of them is refused. At every moment
    that anyone can see, what is taken of a resource class is at most its
    capacity, unless the inventory itself was made smaller.

    Methods may block, and may be called from several threads at a time. Where
    the store does not answer in time they raise
    :class:`cellsched.exception.DatabaseUnreachable`, with ``schema`` being
    ``claims``. What was asked for may have been done then, or may yet be done;
    the caller repeats it, or releases it, when the store answers again. Before
    a store says so it must have tried to find out.
    """

    #: What this store promises; checked against ``[claims] require``.
    capabilities: ClassVar[frozenset[Capability]] = frozenset()

    #: Where the options of :meth:`opts` are registered.
    group: ClassVar[str] = 'claims'

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        """Return the options that this store reads, none by default."""
        return []

    @classmethod
    @abc.abstractmethod
    def from_conf(
        cls, conf: cfg.ConfigOpts, parts: ClaimStoreParts
    ) -> Self:
        """Return a store for a deployment's configuration.

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

        The project and the user are remembered with the claim. They are no
        part of what is held: a repeat that names others, or none, is one all
        the same, and leaves them as they are.

        A claim that fits must not fail because something else changed: room
        is checked by a predicate in the write itself, not by a generation.

        A store that promises ``GROUPS`` remembers the membership with the
        claim, and checks it in the same step. A claim that is new breaks its
        policy, given all that other members of the group hold and what those
        before it in the batch take, if ``max_server_per_host`` of them are on
        its host already (``anti-affinity``), or one of them is on another
        host (``affinity``). Who claimed without a membership is not known to
        be in a group. A membership goes with a release and follows a
        transfer. Claims without one must not wait for those that have it.

        :raises cellsched.exception.GroupPolicyViolated: a claim breaks the
            policy of its group; names ``provider``, ``consumer``, ``group``,
            ``policy``, ``members``: the consumers that hold something for the
            others, and ``hosts``: where these are, or, where the policy is
            ``anti-affinity``, where no more of them may be. Where a claim has
            no room either, it may be refused for that
        :raises cellsched.exception.ClaimRefused: a provider has no room, or
            an amount breaks its min unit, max unit or step; names
            ``provider``, ``resource``, ``amount`` and ``consumer``
        :raises cellsched.exception.ClaimConflict: a consumer holds something
            else; names ``consumer``
        :raises cellsched.exception.InvalidField: :func:`.check_claims` refuses
            it
        """

    @abc.abstractmethod
    def release(self, consumers: Iterable[str]) -> None:
        """Give back all that these consumers hold.

        Must succeed for those that hold nothing: callers release on every
        failure path, without asking how far they had come.
        """

    @abc.abstractmethod
    def transfer(self, source: str, target: str) -> bool:
        """Let one consumer hold what another one held; return whether it did.

        In one step that nobody sees the middle of, ``target`` gives back what
        it holds, if anything, and holds what ``source`` held, for the same
        project and user; ``source`` holds nothing afterwards. No room is
        needed for it: what is taken of a provider stays the same or gets
        less. So a server that was moved keeps what it was to have, and gives
        back what it had.

        Where ``source`` holds nothing, nothing changes, and what is returned
        is False; so to do it twice does it once. Must not lose to others who
        claim and release for the same consumers at the time: it happens
        before or after each of them.

        :raises cellsched.exception.InvalidField: :func:`.check_transfer`
            refuses it
        """

    @abc.abstractmethod
    def claims_of(self, consumers: Iterable[str]) -> dict[str, list[Claim]]:
        """Return what each of these consumers holds, if it holds anything.

        Each claim has the project and the user that it was taken for.
        """

    def memberships(self, consumers: Iterable[str]) -> dict[str, Membership]:
        """Return what each of these consumers is in a group, if in any.

        Whoever holds nothing is in none. What is returned is made by
        :func:`joined`, and ``member`` is never empty: a store need not
        remember what the policy was.

        A store that promises ``GROUPS`` must tell; for others there is
        nothing to do.

        :raises cellsched.exception.ConfigurationInvalid: the store remembers
            memberships and does not tell them
        """
        if Capability.GROUPS in self.capabilities:
            raise self._unsupported(
                'memberships', 'who is in which server group')
        return {}

    def same_backend(self, other: 'ClaimStore') -> bool:
        """Return whether another store keeps its claims where this one does.

        May connect to both, and changes nothing. A store whose claims other
        processes see should tell, however differently the two were
        configured.
        """
        return other is self

    def close(self) -> None:
        """End connections and threads of this store's own.

        May block for a moment. Nobody may be in another method; one that is
        called later begins anew.
        """

    def consumers(self, after: str = '', limit: int = 1000) -> list[str]:
        """Return consumers that hold something, in the order of their bytes.

        A store that promises ``CONSUMER_LIST`` must tell; others need not, and
        :mod:`.listing` has a way that does with either.

        Whoever wants all of them asks for those after the last one that it
        was told, until there are none. It is told each that holds something
        all the time, and may be told any that does so for a part of it.

        :param after: only those that come after this one
        :param limit: how many at most, at least 1; fewer than this are
            returned only where there are no more
        :raises cellsched.exception.InvalidField: the limit is below 1
        :raises cellsched.exception.ConfigurationInvalid: the store does not
            tell
        """
        raise self._unsupported('consumers', 'all consumers')

    def consumers_of(self, provider: str) -> list[str]:
        """Return who holds something of a provider, in any order.

        A store that does not promise ``CONSUMER_LIST`` must tell; others need
        not. Of a provider that it never heard of there are none. Must tell
        each that holds something there all the time, and may tell any that
        does so for a part of it.

        :raises cellsched.exception.ConfigurationInvalid: the store does not
            tell
        """
        raise self._unsupported('consumers_of', 'who holds what of a provider')

    def providers_in_use(self) -> list[str]:
        """Return the providers of which somebody holds something.

        In any order; each that is in use all the time is among them, and any
        other may be. It is for whoever asks each of them for its consumers,
        and should cost no request of each.
        """
        return [usage.provider for usage in self.usages().usages
                if usage.consumers]

    def _unsupported(
        self, method: str, what: str
    ) -> exception.ConfigurationInvalid:
        return exception.ConfigurationInvalid(
            field='[claims] store',
            expected=f'one that tells {what}; {type(self).__name__} has no '
                     f'{method}()')

    @abc.abstractmethod
    def set_inventory(
        self, provider: str, inventory: Mapping[str, Inventory]
    ) -> None:
        """Say what a provider has; the provider is made if it is new.

        Replaces what was said before. An inventory smaller than what is taken
        is accepted; it takes no new claims until enough is released. A
        resource class that is left out has a capacity of zero from now on.
        To say the same again is no change.

        :raises cellsched.exception.InvalidField: :func:`.check_inventory`
            refuses it
        """

    def set_traits(
        self, provider: str, traits: Iterable[str], root: str
    ) -> None:
        """Say what a provider can do, and of which tree it is.

        Replaces what was said before; to say the same again is no change. The
        provider may have no inventory yet. A store that does not promise
        ``QUERY`` need not remember it, and has nothing to do.

        :param traits: names of A-Z, 0-9 and _, of at most 255 characters
        :param root: uuid of the provider that the tree begins with, which is
            a compute node's, or its own
        :raises cellsched.exception.InvalidField: :func:`.check_traits`
            refuses it
        """

    def roots(self, providers: Iterable[str]) -> dict[str, str]:
        """Return the roots of the trees that providers are of.

        Those of which :meth:`set_traits` said nothing are left out. A store
        that promises ``QUERY`` must tell; for others there is nothing to do.
        """
        return {}

    def find_providers(
        self, query: ProviderQuery, limit: int | None = None
    ) -> list[str]:
        """Return the roots of the trees that have what is asked for.

        A store that promises ``QUERY`` must tell, and leave out no tree that
        had it before the call and has it still. Room is the capacity less what
        is taken, within the bounds on one claim; who claims it may be too late
        all the same. A provider of which :meth:`set_traits` said nothing is a
        tree of its own, and its traits are not asked about. Where the query
        asks for no resources, all trees have them that the store has heard of.

        :param limit: how many at most, at least 1; where there are more, any
            of them as chance has it, and not the same each time. None for all
        :raises cellsched.exception.InvalidField: :func:`.check_query` refuses
            it
        :raises cellsched.exception.ConfigurationInvalid: the store does not
            tell
        """
        raise self._unsupported('find_providers', 'where there is room')

    def inventories(
        self, providers: Iterable[str] | None = None
    ) -> dict[str, dict[str, Inventory]]:
        """Return what providers have, by their uuids and resource classes.

        A class of which there is nothing may be left out, as may a provider
        without any. A store that keeps of an inventory only what claims are
        checked by returns one that comes to the same.

        :param providers: only these; those that the store never heard of are
            left out
        """
        return {
            usage.provider: {
                name: Inventory(
                    capacity, 0, 1.0, *usage.units.get(name, Units()))
                for name, capacity in usage.capacity.items()}
            for usage in self.usages(providers=providers).usages}

    def recount(self, provider: str) -> bool:
        """Set a provider's figures to what its claims and inventory say.

        For a store that keeps what is taken of a provider, how many take it
        or what it can give beside what these follow from: should they differ,
        by a defect or by who wrote into the store, it refuses what fits or
        takes what does not. Must be safe beside all other calls, and change
        nothing where the figures are right. May cost in proportion to all
        claims. A store whose figures cannot differ has nothing to do.

        :returns: whether something was wrong; of a provider that the store
            never heard of nothing is
        """
        return False

    @abc.abstractmethod
    def usages(
        self, since: Any = None, providers: Iterable[str] | None = None
    ) -> UsageChanges:
        """Return the providers that changed since a token, or all of them.

        Must return every change that was visible to anyone before the call.
        Where a store promises ``FEED``, it costs in proportion to what it
        returns; elsewhere it may look at something of each provider, such as
        a generation, and is called as often all the same.

        :param since: the ``token`` of an earlier answer
        :param providers: uuids; only these, whether they changed or not;
            those that the store never heard of are left out. The answer says
            nothing of others, so its token is ``since`` again
        """
