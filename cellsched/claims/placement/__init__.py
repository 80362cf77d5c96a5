# SPDX-License-Identifier: Apache-2.0
"""Claims in Placement.

* ``messages``: requests and answers as values; ``client`` sends them.
* ``server``: Placement's API, with a method for each read and change.
* ``guards``: prevents Placement from allocating more than the capacity.
* ``operations``: claim, release and transfer.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import logging
from random import Random
import threading
from typing import Any
from typing import Self
from typing import TypeVar

from oslo_config import cfg
from oslo_log import log

from cellsched import batching
from cellsched.claims import base
from cellsched.claims.coordination import ContentionLock
from cellsched.claims.placement.guards import Guard
from cellsched.claims.placement.guards import Guards
from cellsched.claims.placement.guards import RESOURCE_CLASS
from cellsched.claims.placement import messages
from cellsched.claims.placement.operations import BatchClaim
from cellsched.claims.placement.operations import EmptyConsumers
from cellsched.claims.placement.operations import Inventories
from cellsched.claims.placement.operations import Release
from cellsched.claims.placement.operations import RequestClaim
from cellsched.claims.placement.operations import Transfer
from cellsched.claims.placement import server
from cellsched.claims import remote
from cellsched.claims import validation
from cellsched.clock import Clock
from cellsched import exception
from cellsched.observability.conditions import Conditions

LOG = log.getLogger(__name__)

_GROUP = 'placement'

#: Seconds for which a read of one provider is retried.
_ONE_S = 3.0

_NO_OWNER = '00000000-0000-0000-0000-000000000000'

#: Seconds that calls of a process wait for the write before them. Concurrent
#: writes on the same provider conflict, but one may have no answer.
_TURN_S = 3.0

_Outcome = TypeVar('_Outcome')

_OPTS = [
    cfg.FloatOpt('retry_timeout', default=30, min=0, help="""
Seconds for which a call to Placement is retried.

Calls are retried without an answer and after conflicts. A longer timeout
outlasts a restart of Placement, but a request to a scheduler waits as long.

Related options:

* ``timeout``
"""),
    cfg.IntOpt(
        'guards', default=64, min=1, max=messages.GUARDS_MAX, help="""
Number of guards, which all processes of the deployment share.

Each concurrent write of allocations needs its own guard, a resource provider
without other use. More concurrent writes need more guards. Use the same number
for all services.
"""),
    cfg.StrOpt('consumer_type', default='INSTANCE', regex='[A-Z0-9_]{1,255}$',
               help="""
Consumer type of claims in Placement.

Nova uses ``INSTANCE`` for its instances.
"""),
    cfg.StrOpt('incomplete_consumer_project_id', default=_NO_OWNER, help="""
Project id of claims without a project.

Must not be the id of a project. The default is that of Placement's option of
the same name.
"""),
    cfg.StrOpt('incomplete_consumer_user_id', default=_NO_OWNER, help="""
User id of claims without a user.

Must not be the id of a user. The default is that of Placement's option of the
same name.
"""),
]


@dataclasses.dataclass(eq=False)
class _ReleaseCall:
    """The consumers of a call that releases, and its error."""

    consumers: list[str]
    error: exception.DatabaseUnreachable | None = None


_Item = TypeVar('_Item')


class PlacementClaims(base.RequestClaims, base.ClaimStore):
    """Keep claims in OpenStack Placement.

    Consumers, providers and inventories are those of Placement, and claims
    are allocations, as Nova writes them. Uuids must be in lower case, and
    resource classes must be standard ones or begin with ``CUSTOM_``.

    A batch is one request with a guard; see
    :mod:`cellsched.claims.placement.guards`. So the used amount never exceeds
    the capacity, with any configuration of Placement. Other clients that
    write without a guard, as Nova does, may still exceed it.

    Claims of several calls are one request to Placement, and so are releases.
    A process sends one of each at a time; a call that has waited for three
    seconds is sent alone. A write without an answer is resolved before this
    process changes the same consumers again: it was executed, or never will
    be. If it cannot be resolved within ``[placement] retry_timeout``, a
    suspended Placement may execute it later, until its guard is used again.

    The generations of all providers are read to find those that changed. A
    DELETE of allocations, as Nova does at the end of a server, changes no
    generation; such a provider is reported with its next change.
    """

    capabilities = frozenset({
        base.Capability.ATOMIC, base.Capability.DURABLE, base.Capability.QUERY,
        base.Capability.SHARED})

    group = _GROUP

    @classmethod
    def opts(cls) -> list[cfg.Opt]:
        try:
            client = _client_module()
        except ImportError:
            raise ImportError('keystoneauth1 is missing, which '
                              'cellsched[placement] installs') from None
        return [*client.options(), *_OPTS]

    def __init__(
        self, client: server.PlacementClient, clock: Clock,
        random: Random, owners: messages.Owners = messages.Owners(
            'INSTANCE', _NO_OWNER, _NO_OWNER),
        guards: int = 64, retry_timeout_s: float = 30,
        locks: ContentionLock | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._random = random
        self._owners = owners
        self._retry_timeout_s = retry_timeout_s
        self._server = server.PlacementServer(client)
        self._locks = locks or ContentionLock(clock)
        self._claiming = batching.GroupCommit(
            self._claim_together, make_lock=clock.lock, turn_s=_TURN_S,
            enter=self._locks.held)
        self._releasing = batching.GroupCommit(
            self._release_together, make_lock=clock.lock, turn_s=_TURN_S,
            enter=self._locks.held)
        self._guards = Guards(
            self._server, owners, clock, random, guards, retry_timeout_s,
            self._locks)
        #: Of contended providers.
        self._inventories: Inventories = {}
        #: Why a provider could not be read last.
        self._unreadable: dict[str, str] = {}
        self._conditions = Conditions(LOG, clock.monotonic)
        #: The consumers of calls in progress.
        self._consumers: set[str] = set()
        self._lock = threading.Lock()

    @classmethod
    def from_conf(
        cls, conf: cfg.ConfigOpts, parts: base.ClaimStoreParts
    ) -> Self:
        client = _client_module()
        if conf.claims.connection:
            raise exception.ConfigurationInvalid(
                field='[claims] connection',
                problem='[placement] sets the endpoint', expected='no value')
        own = conf[_GROUP]
        return cls(
            client.KeystoneClient.from_conf(conf, _GROUP, parts.clock),
            parts.clock, parts.random, messages.Owners(
                own.consumer_type, own.incomplete_consumer_project_id,
                own.incomplete_consumer_user_id),
            own.guards, own.retry_timeout, parts.locks)

    def check(self) -> None:
        versions = self._repeat(lambda: self._server.read('/'))
        try:
            latest = versions['versions'][0]['max_version']
            known = tuple(map(int, latest.split('.')))
        except (LookupError, TypeError, ValueError, AttributeError):
            raise exception.ConfigurationInvalid(
                field=f'[{_GROUP}]',
                problem=f'{self._client.url} is not a Placement service',
                expected='the endpoint of Placement') from None
        if known < tuple(map(int, messages.VERSION.split('.'))):
            raise exception.ConfigurationInvalid(
                field=f'[{_GROUP}]',
                problem=f'{self._client.url} has microversion {latest}',
                expected=f'microversion {messages.VERSION} or later')
        # A user without permission to read cannot write either.
        self._repeat(lambda: self._server.read('/resource_classes'))

    def sync(self) -> None:
        def make() -> bool:
            self._server.create_class(RESOURCE_CLASS)
            self._guards.find(Guard(0))
            return True

        self._repeat(make)

    def claim_each(
        self, requests: Sequence[Sequence[Sequence[base.Claim]]],
        is_new: bool = False,
    ) -> Sequence[base.AnyOf | exception.CellschedException]:
        """Claim for requests; see :meth:`.base.Claims.claim_each`.

        :param is_new: the consumers are known to hold nothing; a refusal then
            does not read their claims
        """
        claims = [RequestClaim(self._server, self._owners, batches, is_new)
                  for batches in requests]
        self._claim(claims)
        return [each.outcome for each in claims if each.outcome is not None]

    def _claim(self, requests: Sequence[RequestClaim]) -> None:
        """Claim for requests, and for those of waiting threads."""
        consumers = {name for each in requests if each.outcome is None
                     for name in each.consumers}
        if not consumers:
            return
        with self._alone(consumers):
            self._do_in_turn(
                self._claiming, self._claim_together, requests)

    def _claim_together(
        self, calls: Sequence[Sequence[RequestClaim]]
    ) -> None:
        requests = [each for call in calls for each in call]
        try:
            self._guarded(self._batch(requests))
        except exception.DatabaseUnreachable as exc:
            for each in requests:
                each.outcome = each.outcome or exception.copy_of(exc)
        # Placement may refuse them together without naming a request. Claim
        # for each request alone then.
        for each in requests:
            if each.outcome is None:
                try:
                    self._guarded(self._batch([each]))
                except exception.DatabaseUnreachable as exc:
                    each.outcome = exc

    def _do_in_turn(
        self, group: batching.GroupCommit[_Item],
        work: Callable[[Sequence[_Item]], None], item: _Item,
    ) -> None:
        """Write for a call, with those of other threads if possible.

        :raises cellsched.exception.DatabaseUnreachable: another thread writes
            for this call, and has not ended for ``batching.WORK_S``
        """
        try:
            group.do(item)
        except exception.ServiceBusy as exc:
            if exc.kwargs.get('is_begun'):
                raise self._unreachable(
                    'another thread waits for an answer') from None
            with self._locks.held():
                work([item])

    def _batch(self, requests: Sequence[RequestClaim]) -> BatchClaim:
        return BatchClaim(self._server, self._guards, self._empty(), requests,
                          self._inventories)

    def release(self, consumers: Iterable[str]) -> None:
        call = _ReleaseCall(
            [each for each in consumers if messages.UUID.fullmatch(each)])
        with self._alone(call.consumers):
            self._do_in_turn(self._releasing, self._release_together, call)
        if call.error is not None:
            raise call.error

    def _release_together(self, calls: Sequence[_ReleaseCall]) -> None:
        try:
            self._change(Release(
                self._server, self._guards, self._owners,
                [name for call in calls for name in call.consumers]))
        except exception.DatabaseUnreachable as exc:
            for call in calls:
                call.error = exception.copy_of(exc)

    def transfer(self, source: str, target: str) -> bool:
        validation.check_transfer(source, target)
        messages.check_uuid(f'transfer from {source}', 'target', target)
        with self._alone([source, target]), self._locks.held():
            return self._change(Transfer(
                self._server, self._guards, self._empty(), self._owners,
                source, target))

    def claims_of(
        self, consumers: Iterable[str]
    ) -> dict[str, list[base.Claim]]:
        names = list(dict.fromkeys(consumers))
        found = self._repeat(lambda: self._server.holdings(names))
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
        return self._of_provider(provider, self._server.consumers_of, [])

    def providers_in_use(self) -> list[str]:
        # Usages would take several requests for each provider. One without an
        # inventory so far has the generation 0.
        return [provider for provider, generation
                in self._generations().items() if generation]

    def set_inventory(
        self, provider: str, inventory: Mapping[str, base.Inventory]
    ) -> None:
        validation.check_inventory(provider, inventory)
        messages.check_uuid(f'inventory of {provider}', 'provider', provider)
        self._repeat(lambda: self._server.set_inventory(
            provider, inventory) or None)

    def set_traits(
        self, provider: str, traits: Iterable[str], root: str
    ) -> None:
        traits = frozenset(traits)
        validation.check_traits(provider, traits, root)
        where = f'traits of {provider}'
        messages.check_uuid(where, 'provider', provider)
        messages.check_uuid(where, 'root', root)
        self._repeat(lambda: self._server.set_traits(
            provider, traits, root) or None)

    def roots(self, providers: Iterable[str]) -> dict[str, str]:
        found = {
            provider: self._repeat(
                lambda: [self._server.root_of(provider)])[0]
            for provider in dict.fromkeys(providers)}
        return {provider: root for provider, root in found.items()
                if root is not None}

    def find_providers(
        self, query: base.ProviderQuery, limit: int | None = None
    ) -> list[str]:
        validation.check_query(query, limit)
        found = sorted(self._repeat(lambda: self._server.find(query)))
        if limit is None or len(found) <= limit:
            return found
        return self._random.sample(found, limit)

    def inventories(
        self, providers: Iterable[str] | None = None
    ) -> dict[str, dict[str, base.Inventory]]:
        names = self._generations() if providers is None else providers
        found = {
            name: self._of_provider(name, self._server.inventories_of, None)
            for name in dict.fromkeys(names)}
        return {name: inventory for name, inventory in found.items()
                if inventory is not None}

    def usages(
        self, since: Any = None, providers: Iterable[str] | None = None
    ) -> base.UsageChanges:
        if providers is not None:
            found = map(self._usage, dict.fromkeys(providers))
            return base.UsageChanges(since, [*filter(None, found)])
        # The generations are read first, so later changes are reported again.
        before, generations = since or {}, self._generations()
        usages = [*filter(None, map(self._usage, (
            name for name, generation in generations.items()
            if before.get(name) != generation)))]
        gone = [base.Usage(name, {}, {}, 0) for name in before
                if name not in generations]
        # An unreadable provider is read again next time.
        token = {name: generation for name, generation in generations.items()
                 if name not in self._unreadable}
        return base.UsageChanges(token, [*usages, *gone])

    def _usage(self, name: str) -> base.Usage | None:
        nothing: base.Usage | None = base.Usage(name, {}, {}, 0)
        return self._of_provider(name, self._server.usage_of, nothing)

    def _of_provider(
        self, name: str, read: Callable[[str], _Outcome], default: _Outcome
    ) -> _Outcome:
        """Return what is read of a provider.

        :param default: returned if Placement answers, but not for this one
        """
        def attempt() -> tuple[_Outcome]:
            try:
                return read(name),
            except server.ANSWER_ERRORS:
                raise remote.OutcomeUnknown(
                    'an answer has other fields than expected') from None

        unreadable = (f'Provider {name} in Placement cannot be read, and gets '
                      'no servers')
        for _ in range(2):
            try:
                outcome, = remote.first_outcome(
                    attempt, self._clock, self._random,
                    min(self._retry_timeout_s, _ONE_S))
            except remote.GivenUp as exc:
                error = exc
                # Placement as a whole is away, or only this provider is.
                self._generations()
            else:
                self._unreadable.pop(name, None)
                self._conditions.end(unreadable)
                return outcome
        self._conditions.occur(unreadable, error, logging.ERROR)
        self._unreadable[name] = str(error)
        return default

    def problems(self) -> list[base.StoreProblem]:
        self.usages()
        return [base.StoreProblem(
            f'provider {name}', f'cannot be read: {reason}',
            'find the cause in the log of Placement', name)
            for name, reason in sorted(self._unreadable.items())]

    def _empty(self) -> EmptyConsumers:
        return EmptyConsumers(
            self._server, self._owners, self._clock,
            self._retry_timeout_s / 2)

    def _identity(self) -> Any:
        """Return an object unique to this Placement, once a guard exists."""
        return self._repeat(lambda: [self._server.read(
            f'/resource_providers/{messages.guard_uuid("provider", 0)}'
        )])[0]

    def _generations(self) -> dict[str, int]:
        return self._repeat(self._server.generations)

    def _change(self, change: Release | Transfer) -> bool:
        """Read the allocations, and change them if there are any."""
        [exists] = self._repeat(lambda: [change.look()])
        return exists and self._guarded(change)

    def _guarded(self, change: BatchClaim | Release | Transfer) -> bool:
        """Repeat the attempt of a change with a guard."""
        def once() -> bool | None:
            providers = change.providers
            # The first conflict comes before any thread waits for the lock.
            with (contextlib.nullcontext() if self._locks.is_used
                  else self._locks.held()):
                outcome = change.attempt(held.guard, self._locks.is_shared)
            if outcome is None:
                self._guards.lost(held, providers)
            return outcome

        try:
            with self._guards.taken(change.providers) as held:
                return self._repeat(once)
        except remote.NotSent as exc:
            raise self._unreachable(str(exc)) from None

    @contextlib.contextmanager
    def _alone(self, consumers: Iterable[str]) -> Iterator[None]:
        """Keep other calls of this process off consumers.

        Concurrent writes of one new consumer may both succeed in Placement.
        Earlier writes without an answer are resolved first.

        :param consumers: uuids; if there are none, all writes are resolved
        """
        names = frozenset(consumers)

        def begin() -> bool | None:
            with self._lock:
                if not self._consumers.isdisjoint(names):
                    return None
                self._consumers |= names
            return True

        def settled() -> bool:
            self._guards.settle_all(names or None)
            return True

        self._repeat(begin)
        try:
            self._repeat(settled)
            yield
        finally:
            with self._lock:
                self._consumers -= names

    def _repeat(self, attempt: Callable[[], _Outcome | None]) -> _Outcome:
        """Repeat an attempt until it returns an outcome other than None.

        :raises cellsched.exception.DatabaseUnreachable: there is none in time
        """
        try:
            return remote.first_outcome(
                attempt, self._clock, self._random, self._retry_timeout_s)
        except remote.GivenUp as exc:
            raise self._unreachable(str(exc)) from None

    def _unreachable(self, reason: str) -> exception.DatabaseUnreachable:
        return exception.DatabaseUnreachable(
            schema='claims', url=self._client.url, reason=reason)


def _client_module() -> Any:
    # keystoneauth1 is an optional extra; the simulator of Placement does not
    # need it.
    from cellsched.claims.placement import client

    return client
