# SPDX-License-Identifier: Apache-2.0
"""Claims of concurrent requests, batched in one transaction."""

import collections
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import copy
import dataclasses
import itertools
from typing import Any

from cellsched import batching
from cellsched.claims import base
from cellsched.clock import Clock
from cellsched import exception
from cellsched.hardware import units
from cellsched.hosts import view
from cellsched import migrations
from cellsched import objects

#: Seconds to wait for the writes before; a store that is contended repeats a
#: write for about as long.
WAIT_S = 30.0

#: Seconds for which the store is not asked again about a provider with locked
#: rows: it would wait for them each time.
BUSY_S = 2.0


@dataclasses.dataclass(eq=False)
class ClaimRequest:
    """The alternative batches of one request, and their outcome.

    :ivar outcome: None until the claims were asked for
    """

    batches: Sequence[Sequence[base.Claim]]
    outcome: base.AnyOf | BaseException | None = None

    def __post_init__(self) -> None:
        first = self.batches[0]
        self.is_grouped = any(claim.group is not None for claim in first)
        self.consumers = {claim.consumer for claim in first}
        #: The positions of batches that the store is asked about.
        self.asked: Sequence[int] = range(len(self.batches))
        #: The refusals of the others.
        self.busy: dict[int, exception.ClaimBusy] = {}

    def end(self, outcome: base.AnyOf | BaseException) -> None:
        """Set the outcome of the batches that the store was asked about."""
        if self.busy and isinstance(outcome, base.AnyOf):
            chosen = outcome.chosen
            outcome = dataclasses.replace(
                outcome, chosen=None if chosen is None else self.asked[chosen],
                refusals={**self.busy, **{
                    self.asked[place]: each for place, each
                    in outcome.refusals.items()}})
        self.outcome = outcome

    def result(self) -> base.AnyOf:
        """Return the outcome.

        :raises Exception: raised by the claim store for this request
        """
        assert self.outcome is not None
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


class ClaimQueue:
    """Claims of decided requests, in batches.

    Waiting requests are claimed together. No request is refused because of
    another one. Requests with members of server groups are always claimed
    alone: they take longer, and are refused more often.

    If the rows of a provider are locked for too long, the batches with claims
    on it fail, and the store is not asked about it for a short time.

    :param at_once: the maximum number of concurrent transactions
    """

    def __init__(
        self, store: base.Claims, clock: Clock, at_once: int = 2
    ) -> None:
        self._store = store
        self._clock = clock
        #: The times until which providers are busy.
        self._busy: dict[str, float] = {}
        self._group_commit = batching.GroupCommit(
            self._take, at_once, clock.lock)

    def claims_of(
        self, consumers: Iterable[str]
    ) -> dict[str, list[base.Claim]]:
        """Return the claims of these consumers that have any."""
        with base.translated_errors():
            return self._store.claims_of(consumers)

    def release(self, consumers: Iterable[str]) -> None:
        """Release all claims of these consumers."""
        with base.translated_errors():
            self._store.release(consumers)

    def withdraw(self, consumer: str, claims: Sequence[base.Claim]) -> None:
        """Release these claims of a consumer, unless it has other ones."""
        name = migrations.consumer(consumer)

        def are_those() -> bool:
            found = self._store.claims_of([name]).get(name, ())
            return amounts_of(found) == amounts_of(claims)

        with base.translated_errors():
            migrations.withdraw(self._store, consumer, name, are_those)

    def claim_all(
        self, requests: Sequence[ClaimRequest], wait_s: float = WAIT_S
    ) -> None:
        """Claim the first batch that fits of each request; blocks.

        :param wait_s: seconds to wait for the writes before

        Sets the outcome of each request, and raises nothing. If requests are
        claimed in the same transaction, some of their new claims may not be
        reported as new.
        """
        try:
            self._group_commit.do(requests, wait_s)
        except exception.ServiceBusy as exc:
            _end_all(requests, exc)

    def _take(self, batches: Sequence[Sequence[ClaimRequest]]) -> None:
        """Claim for requests; those that cannot share a transaction alone."""
        together: list[ClaimRequest] = []
        consumers: set[str] = set()
        alone = []
        for request in itertools.chain.from_iterable(batches):
            if request.is_grouped or request.consumers & consumers:
                # The store reports existing claims for whole transactions.
                alone.append(request)
            else:
                together.append(request)
                consumers |= request.consumers
        for some in [together, *([request] for request in alone)]:
            self._claim(some)

    def _claim(self, requests: Sequence[ClaimRequest]) -> None:
        requests = self._pass_over(requests, self._busy_now())
        if not requests:
            return
        try:
            with base.translated_errors():
                outcomes = self._store.claim_each([
                    [request.batches[place] for place in request.asked]
                    if request.busy else request.batches
                    for request in requests])
        except BaseException as exc:
            return _end_all(requests, exc)
        for request, outcome in zip(requests, outcomes):
            request.end(outcome)
            for refusal in getattr(outcome, 'refusals', {}).values():
                if isinstance(refusal, exception.ClaimBusy):
                    self._note(refusal)

    def _note(self, busy: exception.ClaimBusy) -> None:
        """Remember the busy providers for a short time."""
        until = self._clock.monotonic() + BUSY_S
        # Threads replace the mapping, and never change it.
        self._busy = {**self._busy, **dict.fromkeys(busy.providers, until)}

    def _busy_now(self) -> dict[str, exception.ClaimBusy]:
        """Return the providers that were busy a short time ago."""
        if not self._busy:
            return {}
        now = self._clock.monotonic()
        self._busy = busy = {
            each: until for each, until in self._busy.items() if until > now}
        error = exception.ClaimBusy(
            schema='claims', providers=sorted(busy),
            reason=f'the rows of {len(busy)} providers were locked')
        return dict.fromkeys(busy, error)

    def _pass_over(
        self, requests: Sequence[ClaimRequest],
        busy: dict[str, exception.ClaimBusy],
    ) -> Sequence[ClaimRequest]:
        """Leave out batches with claims on busy providers.

        :returns: the requests with other batches; the rest are ended
        """
        if not busy:
            return requests
        rest = []
        for request in requests:
            asked = []
            for place in request.asked:
                error = next((busy[claim.provider]
                              for claim in request.batches[place]
                              if claim.provider in busy), None)
                if error is None:
                    asked.append(place)
                else:
                    request.busy[place] = exception.copy_of(error)
            request.asked = asked
            if asked:
                rest.append(request)
            else:
                request.end(base.AnyOf(None))
        return rest


def amounts_of(claims: Iterable[base.Claim]) -> dict[str, dict[str, int]]:
    """Return the claimed amounts by provider and resource class."""
    return {each.provider: dict(each.resources) for each in claims}


def _end_all(requests: Sequence[ClaimRequest], error: BaseException) -> None:
    for request in requests:
        request.end(exception.copy_of(error))


#: The fields of refusals with excluded hosts.
_EXCLUDED = 'locked', 'named', 'denied', 'barred', 'full'


@dataclasses.dataclass(eq=False)
class ClaimRefusals:
    """Hosts excluded from this request after the claim store refused them.

    A host without capacity is retried once the table is refreshed, and is
    excluded after the second refusal. A host without a CPU, pages or devices
    that the claim names may have others, so it is excluded after the second
    refusal of the same ones. A host that violates the group policy is
    excluded at once, together with the hosts named in the error. The error
    also names group members that were claimed just before; they are added to
    the request. A host with locked rows is excluded at once, too.

    :param times: the number of claims that were refused on all their hosts
    :param lost: how often nodes had no capacity
    :param locked: nodes with locked rows
    :param named: nodes without capacity that a diagnosis names
    :param denied: nodes that violate the group policy
    :param barred: those of them that may not be tried again
    :param full: names of hosts that are full for the group
    """

    times: int = 0
    lost: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter)
    locked: dict[str, None] = dataclasses.field(default_factory=dict)
    named: dict[str, None] = dataclasses.field(default_factory=dict)
    denied: dict[str, None] = dataclasses.field(default_factory=dict)
    barred: dict[str, None] = dataclasses.field(default_factory=dict)
    full: dict[str, None] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        #: The error that ends the request if it finds no other host.
        self.busy: exception.ClaimBusy | None = None
        #: Refusals by node and part; the part is empty for a whole host.
        self._parts = collections.Counter[tuple[str, str]]()
        #: The nodes of the group members that the request has to join.
        self._near: list[str] = []
        self._members: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self.lost or self.denied or self.locked)

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> 'ClaimRefusals':
        """Return the refusals of a state; see :attr:`state`."""
        return cls(state['times'], collections.Counter(state['lost']), *(
            dict.fromkeys(state[name]) for name in _EXCLUDED))

    @property
    def state(self) -> dict[str, Any] | None:
        """The excluded hosts as plain data, for a recording; often None."""
        if not self.times:
            return None
        return {'times': self.times, 'lost': dict(self.lost), **{
            name: [*getattr(self, name)] for name in _EXCLUDED}}

    def pass_over(
        self, busy: exception.ClaimBusy, nodes: Iterable[str]
    ) -> None:
        """Exclude nodes whose own or whose other providers are busy."""
        self.busy = busy
        self.locked |= dict.fromkeys([*busy.providers, *nodes])

    def add(
        self, refusal: exception.ClaimRefused, node: str | None = None,
        is_first: bool = True,
    ) -> None:
        """Add a refusal.

        :param node: the selected node, if the store refused its child provider
            or its sharing provider
        :param is_first: whether it is the first refusal of a claim. Another
            host without capacity in the refreshed table needs no mention, as a
            filter names what it lacks
        """
        node = node or refusal.provider
        if not isinstance(refusal, exception.GroupPolicyViolated):
            return self.add_full(
                node, is_first, ''.join(units.named({refusal.resource: 1})))
        self.denied[node] = None
        self._members |= dict.fromkeys(refusal.members)
        if refusal.policy == base.AFFINITY or not refusal.members:
            self.barred[node] = None
        # Otherwise a host that is not full could take a part of the request.
        if refusal.policy == base.AFFINITY:
            self._near = list(refusal.hosts)
        else:
            self.full |= dict.fromkeys(refusal.hosts)

    def add_full(
        self, node: str, is_first: bool = True, part: str = ''
    ) -> None:
        """Add a node that has no capacity; see :meth:`add`.

        :param part: the class of its CPU, pages or devices that were refused
        """
        self._parts[node, part] += 1
        self.lost[node] = max(self.lost[node], self._parts[node, part])
        if is_first or self.lost[node] > 1:
            self.named[node] = None

    def refused(self, hosts: view.Hosts) -> list[int]:
        """Return the rows of hosts that had no capacity, for a diagnosis."""
        return _rows(hosts, self.named)

    def hopeless(self, hosts: view.Hosts) -> list[int]:
        """Return the rows of hosts that were refused after a table refresh.

        They include hosts with locked rows.
        """
        return _rows(hosts, [
            *(node for node, times in self.lost.items() if times > 1),
            *self.locked])

    def closed(self, hosts: view.Hosts) -> list[int]:
        """Return the rows of hosts that violate the group policy."""
        rows = dict.fromkeys(_rows(hosts, self.barred))
        for name in self.full:
            rows |= dict.fromkeys(hosts.named(name))
        return list(rows)

    def inform(self, request: objects.RequestSpec) -> objects.RequestSpec:
        """Return the request with the known group members and their nodes."""
        if not self._members:
            return request
        request = copy.copy(request)
        group = copy.copy(request.instance_group)
        group.hosts = list(dict.fromkeys(
            [*(group.get('hosts') or ()), *self._near]))
        group.members = list(dict.fromkeys(
            [*(group.get('members') or ()), *self._members]))
        request.instance_group = group
        return request


def _rows(hosts: view.Hosts, nodes: Iterable[str]) -> list[int]:
    return [row for row in map(hosts.row, nodes) if row is not None]
