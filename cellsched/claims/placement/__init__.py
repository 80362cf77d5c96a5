# SPDX-License-Identifier: Apache-2.0
"""Claims in Placement.

``messages`` has requests and answers, ``client`` sends them and ``server`` has
a method for each; ``guards`` is what keeps Placement from giving too much,
``claiming`` has what writes allocations, and ``providers`` what reads and
writes the rest.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
from random import Random
from typing import Any
from typing import Self
from typing import TypeVar
import zlib

from oslo_config import cfg

from cellsched.claims import base
from cellsched.claims.placement.guards import Guard
from cellsched.claims.placement.guards import Guards
from cellsched.claims.placement.guards import RESOURCE_CLASS
from cellsched.claims.placement import messages
from cellsched.claims.placement.operations import BatchClaim
from cellsched.claims.placement.operations import EmptyConsumers
from cellsched.claims.placement.operations import Release
from cellsched.claims.placement.operations import Transfer
from cellsched.claims.placement import resource_providers
from cellsched.claims.placement import server
from cellsched.claims import remote
from cellsched.claims import validation
from cellsched.clock import Clock
from cellsched import exception

_GROUP = 'placement'

#: Locks of a process, of which each provider and consumer has one, and each
#: lock several.
_TURNS = 512

_NOBODY = '00000000-0000-0000-0000-000000000000'

_Outcome = TypeVar('_Outcome')

_OPTS = [
    cfg.FloatOpt('retry_timeout', default=30, min=0, help="""
Seconds for which a call is repeated that Placement does not answer.

Or that loses to others all the time. Longer ones outlast a restart of
Placement; a request to a scheduler waits for as long.

Related options:

* ``timeout``
"""),
    cfg.IntOpt(
        'guards', default=64, min=1, max=messages.GUARDS_MAX, help="""
Guards that all processes of the deployment share.

Each write of allocations needs one, and no two at a time the same; it is a
resource provider in Placement that gives nothing to anybody else. More of
them are needed where more writes are made at a time. All services should have
the same.
"""),
    cfg.StrOpt('consumer_type', default='INSTANCE', regex='[A-Z0-9_]{1,255}$',
               help="""
Type that consumers have in Placement.

Nova's instances have ``INSTANCE``.
"""),
    cfg.StrOpt('incomplete_consumer_project_id', default=_NOBODY, help="""
Project that Placement is told where a claim has none.

It must be none of a real project. The default is that of Placement's own
option of this name.
"""),
    cfg.StrOpt('incomplete_consumer_user_id', default=_NOBODY, help="""
User that Placement is told where a claim has none.

It must be none of a real user. The default is that of Placement's own option
of this name.
"""),
]


class PlacementClaims(base.ClaimStore):
    """Keep claims in OpenStack Placement.

    Consumers are consumers there and hold allocations, providers are resource
    providers, and inventories are inventories, so that whoever reads
    Placement, or writes to it, finds what Nova would have left. Uuids have to
    be uuids, in lower case; resource classes have to be standard ones or
    begin with ``CUSTOM_``.

    A batch is one request, which needs a guard: see
    :mod:`cellsched.claims.placement.guards`. What it takes is then never above
    what there is, whatever Placement's options say. Others that take of the
    same providers without a guard, as Nova does, may still get too much.

    A write whose answer is lost is settled before this process does, or tells,
    anything else: then it was done, or never will be. Where it was not settled
    until ``[placement] retry_timeout`` is over, it may be done later, by a
    Placement that was stopped and goes on, until somebody uses its guard.

    What changed is found by the generations of all providers. One that has
    allocations removed by a DELETE, as Nova does when a server goes, has no
    new generation: it is not told until it changes for another reason.
    """

    capabilities = frozenset({
        base.Capability.ATOMIC, base.Capability.DURABLE, base.Capability.QUERY,
        base.Capability.SHARED})

    group = _GROUP

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        try:
            from cellsched.claims.placement import client
        except ImportError:
            raise ImportError('keystoneauth1 is missing, which '
                              'cellsched[placement] installs') from None
        return [*client.options(), *_OPTS]

    def __init__(
        self, client: server.PlacementClient, clock: Clock,
        random: Random, owners: messages.Owners = messages.Owners(
            'INSTANCE', _NOBODY, _NOBODY),
        guards: int = 64, retry_timeout_s: float = 30,
    ) -> None:
        self._client = client
        self._clock = clock
        self._random = random
        self._owners = owners
        self._retry_timeout_s = retry_timeout_s
        self._server = server.PlacementServer(client)
        self._guards = Guards(
            self._server, owners, clock, random, guards)
        self._turns = [clock.lock() for _ in range(_TURNS)]

    @classmethod
    def from_conf(
        cls, conf: cfg.ConfigOpts, parts: base.ClaimStoreParts
    ) -> Self:
        from cellsched.claims.placement import client

        if conf.claims.connection:
            raise exception.ConfigurationInvalid(
                field='[claims] connection',
                expected='nothing: [placement] says where Placement is')
        own = conf[_GROUP]
        return cls(
            client.KeystoneClient.from_conf(conf, _GROUP), parts.clock,
            parts.random, messages.Owners(
                own.consumer_type, own.incomplete_consumer_project_id,
                own.incomplete_consumer_user_id),
            own.guards, own.retry_timeout)

    def check(self) -> None:
        versions = self._patiently(lambda: self._server.read('/'))
        try:
            said = versions['versions'][0]['max_version']
            known = tuple(map(int, said.split('.')))
        except (LookupError, TypeError, ValueError, AttributeError):
            raise exception.ConfigurationInvalid(
                field=f'[{_GROUP}]', expected='where Placement is; '
                f'{self._client.url} is something else') from None
        if known < tuple(map(int, messages.VERSION.split('.'))):
            raise exception.ConfigurationInvalid(
                field=f'[{_GROUP}]', expected=f'a Placement of version '
                f'{messages.VERSION} or later of its interface; '
                f'{self._client.url} has {said}')
        # Who may not read, may not write.
        self._patiently(lambda: self._server.read('/resource_classes'))

    def sync(self) -> None:
        def make() -> bool:
            self._server.create_class(RESOURCE_CLASS)
            self._guards.find(Guard(0))
            return True

        self._patiently(make)

    def claim(self, claims: Sequence[base.Claim]) -> int:
        validation.check_claims(claims)
        for claim in claims:
            _check_uuid(f'claim of {claim.consumer}', 'consumer',
                        claim.consumer)
        if not claims:
            return 0
        claiming_ = BatchClaim(
            self._server, self._guards, self._empty(), self._owners, claims)
        return self._guarded(
            claiming_.attempt, [claim.provider for claim in claims],
            [claim.consumer for claim in claims])

    def release(self, consumers: Iterable[str]) -> None:
        releasing = Release(
            self._server, self._guards, self._owners,
            [each for each in consumers if messages.UUID.fullmatch(each)])
        self._change(releasing)

    def transfer(self, source: str, target: str) -> bool:
        validation.check_transfer(source, target)
        _check_uuid(f'transfer from {source}', 'target', target)
        return self._change(Transfer(
            self._server, self._guards, self._empty(), self._owners, source,
            target))

    def claims_of(
        self, consumers: Iterable[str]
    ) -> dict[str, list[base.Claim]]:
        names = list(dict.fromkeys(consumers))
        found = self._patiently(lambda: self._server.holdings(names))
        claims = {consumer: holds.claims(consumer, self._owners)
                  for consumer, holds in found.items()}
        return {consumer: held for consumer, held in claims.items() if held}

    def same_backend(self, other: base.ClaimStore) -> bool:
        if other is self:
            return True
        if not isinstance(other, PlacementClaims):
            return False
        return self._client.url == other._client.url or (
            self._identity() is not None
            and self._identity() == other._identity())

    def consumers_of(self, provider: str) -> list[str]:
        return self._patiently(
            lambda: resource_providers.consumers_of(self._server, provider))

    def providers_in_use(self) -> list[str]:
        # Usages are several requests of each. Who never had anything to give
        # is of the first generation.
        return [provider for provider, generation
                in self._generations().items() if generation]

    def set_inventory(
        self, provider: str, inventory: Mapping[str, base.Inventory]
    ) -> None:
        validation.check_inventory(provider, inventory)
        _check_uuid(f'inventory of {provider}', 'provider', provider)
        self._patiently(lambda: resource_providers.set_inventory(
            self._server, provider, inventory) or None)

    def set_traits(
        self, provider: str, traits: Iterable[str], root: str
    ) -> None:
        traits = frozenset(traits)
        validation.check_traits(provider, traits, root)
        where = f'traits of {provider}'
        _check_uuid(where, 'provider', provider)
        _check_uuid(where, 'root', root)
        self._patiently(lambda: resource_providers.set_traits(
            self._server, provider, traits, root) or None)

    def roots(self, providers: Iterable[str]) -> dict[str, str]:
        return self._each(providers, lambda provider: (
            resource_providers.root_of(self._server, provider)))

    def find_providers(
        self, query: base.ProviderQuery, limit: int | None = None
    ) -> list[str]:
        validation.check_query(query, limit)
        found = sorted(self._patiently(
            lambda: resource_providers.find(self._server, query)))
        if limit is None or len(found) <= limit:
            return found
        return self._random.sample(found, limit)

    def inventories(
        self, providers: Iterable[str] | None = None
    ) -> dict[str, dict[str, base.Inventory]]:
        names = self._generations() if providers is None else providers
        return self._each(names, lambda provider: (
            resource_providers.inventories_of(self._server, provider)))

    def usages(
        self, since: Any = None, providers: Iterable[str] | None = None
    ) -> base.UsageChanges:
        token, names = since, providers
        if providers is None:
            # What changes later has a generation that is not in the token.
            token = self._generations()
            names = [provider for provider, generation in token.items()
                     if (since or {}).get(provider) != generation]
        told = self._each(names or (), lambda provider: (
            resource_providers.usage_of(self._server, provider)))
        gone = [] if providers is not None else [
            base.Usage(provider, {}, {}, 0)
            for provider in (since or {}) if provider not in token]
        return base.UsageChanges(token, [*told.values(), *gone])

    def _empty(self) -> EmptyConsumers:
        return EmptyConsumers(
            self._server, self._owners, self._clock,
            self._retry_timeout_s / 2)

    def _identity(self) -> Any:
        """Return what no other Placement has, once a guard was used."""
        return self._patiently(lambda: [self._server.read(
            f'/resource_providers/{messages.guard_uuid("provider", 0)}'
        )])[0]

    def _generations(self) -> server.Generations:
        return self._patiently(
            lambda: resource_providers.generations(self._server))

    def _each(
        self, names: Iterable[str], read: Callable[[str], _Outcome | None]
    ) -> dict[str, _Outcome]:
        """Return what is read of each that is there."""
        found = {}
        for name in dict.fromkeys(names):
            outcome, = self._patiently(lambda: [read(name)])
            if outcome is not None:
                found[name] = outcome
        return found

    def _change(
        self, change: Release | Transfer
    ) -> bool:
        """Look at who is concerned, and change that if it is anybody."""
        def look() -> tuple[bool]:
            self._guards.settle_all()
            return change.look(),

        there, = self._patiently(look)
        if not there:
            return False
        return self._guarded(change.attempt, [
            provider for holds in change.held.values()
            for provider in holds.allocations], change.consumers)

    def _guarded(
        self, attempt: Callable[[Guard], _Outcome | None],
        providers: Sequence[str], consumers: Iterable[str],
    ) -> _Outcome:
        """Return the outcome of an attempt that has a guard and its turn."""
        def settled() -> bool:
            self._guards.settle_all()
            return True

        with self._turns_of([*providers, *consumers]):
            self._patiently(settled)
            with self._guards.taken(providers) as held:
                def once() -> _Outcome | None:
                    outcome = attempt(held.guard)
                    if outcome is None:
                        self._guards.lost(held, providers)
                    return outcome

                return self._patiently(once)

    @contextlib.contextmanager
    def _turns_of(self, names: Iterable[str]) -> Iterator[None]:
        """Have no other thread of this process write to the same.

        At one provider they would make each other repeat, which costs
        Placement more than all that they write. Of two that make the same
        consumer, Placement may answer both that it is done.

        :param names: of providers and consumers
        """
        numbers = {zlib.crc32(each.encode()) % _TURNS for each in names}
        with contextlib.ExitStack() as stack:
            for number in sorted(numbers):
                stack.enter_context(self._turns[number])
            yield

    def _patiently(self, attempt: Callable[[], _Outcome | None]) -> _Outcome:
        """Return the first outcome of an attempt that is not None.

        :raises cellsched.exception.DatabaseUnreachable: there is none in time
        """
        try:
            return remote.first_outcome(
                attempt, self._clock, self._random, self._retry_timeout_s)
        except remote.GivenUp as exc:
            raise exception.DatabaseUnreachable(
                schema='claims', url=self._client.url,
                reason=str(exc)) from None


def _check_uuid(where: str, field: str, value: str) -> None:
    if not messages.UUID.fullmatch(value) or value in messages.GUARDS:
        raise exception.InvalidField(
            where=where, field=field,
            expected='a uuid in lower case, as Placement needs it, not '
                     f'{value!r:.80}')
