# SPDX-License-Identifier: Apache-2.0
"""Claims of concurrent requests, batched in one transaction."""

import collections
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import copy
import dataclasses
import threading

from cellsched import batching
from cellsched.claims import base
from cellsched import clock
from cellsched import exception
from cellsched.hosts import view
from cellsched import objects

#: Errors that refuse a transaction because of a single batch in it.
_OF_ONE = (exception.ClaimConflict, exception.ClaimRefused,
           exception.ClaimStoreFailed, exception.InvalidField)

#: Seconds for which the store is not asked again about a provider with locked
#: rows: it would wait for them each time.
BUSY_S = 2.0


@dataclasses.dataclass(eq=False)
class _Batch:
    """The claims of one thread, and their result."""

    claims: Sequence[base.Claim]
    new: int = 0
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self.is_grouped = any(claim.group is not None for claim in self.claims)

    def end(self, new: int = 0, error: BaseException | None = None) -> None:
        self.new, self.error = new, error

    def result(self) -> int:
        if self.error is not None:
            raise self.error
        return self.new


class ClaimBatcher:
    """Claims for several threads in one transaction.

    Waiting batches are claimed together, unless the store combines them. If
    the transaction is refused, each batch is retried alone, so that no batch
    is refused because of another one.
    Batches with members of server groups are always claimed alone: they take
    longer, and are refused more often.

    If the rows of a provider are locked for too long, the batches with claims
    on it fail, and the store is not asked about it for a short time.

    :param at_once: the maximum number of concurrent transactions
    :param make_lock: see :meth:`cellsched.clock.Clock.lock`
    :param monotonic: see :meth:`cellsched.clock.Clock.monotonic`; None to ask
        the store about all providers at any time
    """

    def __init__(
        self, store: base.ClaimStore, at_once: int = 2,
        make_lock: Callable[[], clock.Lock] = threading.Lock,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        self._store = store
        self._monotonic = monotonic
        #: The times until which providers are busy.
        self._busy: dict[str, float] = {}
        self._group_commit = batching.GroupCommit(
            self._take, at_once, make_lock)

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

    def claim(self, claims: Sequence[base.Claim]) -> int:
        """Claim a batch; the errors are those of the store's ``claim``.

        If other batches are claimed in the same transaction, some of its new
        claims may not be reported as new.
        """
        if self._store.combines:
            return self._claim(claims)
        own = _Batch(claims)
        self._group_commit.do(own)
        return own.result()

    def _claim(self, claims: Sequence[base.Claim]) -> int:
        with base.translated_errors():
            return self._store.claim(claims)

    def _take(self, batches: Sequence[_Batch]) -> None:
        batches = self._pass_over(batches, self._busy_now())
        if not batches:
            return None
        grouped = [batch for batch in batches if batch.is_grouped]
        if grouped and len(batches) > 1:
            alone = [batch for batch in batches if not batch.is_grouped]
            if alone:
                self._take(alone)
            return self._take_each(grouped)
        claims = [claim for batch in batches for claim in batch.claims]
        consumers = [{claim.consumer for claim in batch.claims}
                     for batch in batches]
        if len(frozenset().union(*consumers)) < sum(map(len, consumers)):
            # The store reports existing claims for whole transactions only.
            return self._take_each(batches)
        try:
            missing = len(claims) - self._claim(claims)
        except exception.ClaimBusy as exc:
            self._note(exc)
            rest = self._pass_over(batches, {each: exc for each
                                             in exc.providers})
            return self._take(rest) if len(rest) < len(batches) else (
                _end_all(batches, exc))
        except _OF_ONE as exc:
            if len(batches) == 1:
                return batches[0].end(error=exc)
            return self._take_each(batches)
        except BaseException as exc:
            return _end_all(batches, exc)
        for batch in batches:
            batch.end(max(len(batch.claims) - missing, 0))

    def _take_each(self, batches: Sequence[_Batch]) -> None:
        for place, batch in enumerate(batches):
            if not self._pass_over([batch], self._busy_now()):
                continue
            try:
                batch.end(self._claim(batch.claims))
            except exception.ClaimBusy as exc:
                self._note(exc)
                batch.end(error=exc)
            except _OF_ONE as exc:
                batch.end(error=exc)
            except BaseException as exc:
                return _end_all(batches[place:], exc)

    def _note(self, busy: exception.ClaimBusy) -> None:
        """Remember the busy providers for a short time."""
        if self._monotonic is not None:
            until = self._monotonic() + BUSY_S
            # Threads replace the mapping, and never change it.
            self._busy = {**self._busy, **dict.fromkeys(busy.providers, until)}

    def _busy_now(self) -> dict[str, exception.ClaimBusy]:
        """Return the providers that were busy a short time ago."""
        if not self._busy or self._monotonic is None:
            return {}
        now = self._monotonic()
        self._busy = busy = {
            each: until for each, until in self._busy.items() if until > now}
        error = exception.ClaimBusy(
            schema='claims', providers=sorted(busy),
            reason=f'the rows of {len(busy)} providers were locked')
        return dict.fromkeys(busy, error)

    def _pass_over(
        self, batches: Sequence[_Batch],
        busy: dict[str, exception.ClaimBusy],
    ) -> Sequence[_Batch]:
        """End the batches with claims on busy providers; return the rest."""
        if not busy:
            return batches
        rest = []
        for batch in batches:
            error = next((busy[claim.provider] for claim in batch.claims
                          if claim.provider in busy), None)
            if error is None:
                rest.append(batch)
            else:
                batch.end(error=error)
        return rest


def _end_all(batches: Sequence[_Batch], error: BaseException) -> None:
    for batch in batches:
        batch.end(error=error)


#: Seconds that a request waits for another one with the same instance.
WAIT_S = 30.0


class SingleFlight:
    """Serializes requests for the same instance.

    Otherwise each of them would reserve capacity in the table until the store
    reports that the instance has its claim already, and the last ones might
    find no capacity.

    :param make_event: see :meth:`cellsched.clock.Clock.event`
    """

    def __init__(
        self, make_event: Callable[[], clock.Event] = threading.Event
    ) -> None:
        self._make_event = make_event
        self._lock = threading.Lock()
        #: The event that is set when an instance's request is answered.
        self._answered: dict[str, clock.Event] = {}

    @contextlib.contextmanager
    def alone(self, uuids: Iterable[str]) -> Iterator[None]:
        """Wait for requests with any of these instances; block later ones.

        :raises cellsched.exception.ServiceBusy: such a request does not end
        """
        answered = self._make_event()
        own = dict.fromkeys(uuids, answered)
        while (other := self._enter(own)) is not None:
            if not other.wait(WAIT_S):
                raise exception.ServiceBusy(waiting=1)
        try:
            yield
        finally:
            with self._lock:
                for uuid in own:
                    del self._answered[uuid]
            answered.set()

    def _enter(self, own: dict[str, clock.Event]) -> clock.Event | None:
        """Enter, or return the event to wait for before the next attempt."""
        with self._lock:
            for uuid in own:
                if uuid in self._answered:
                    return self._answered[uuid]
            self._answered |= own
        return None


class ClaimRefusals:
    """Hosts excluded from this request after the claim store refused them.

    A host without capacity is retried once the table is refreshed, and is
    excluded after the second refusal. A host that violates the group policy is
    excluded at once, together with the hosts named in the error. The error
    also names group members that were claimed just before; they are added to
    the request. A host with locked rows is excluded at once, too.
    """

    def __init__(self) -> None:
        #: The number of refusals.
        self.times = 0
        #: The error that ends the request if it finds no other host.
        self.busy: exception.ClaimBusy | None = None
        self._locked: dict[str, None] = {}
        self._lost: collections.Counter[str] = collections.Counter()
        #: Node uuids, and names of hosts.
        self._denied: dict[str, None] = {}
        self._barred: dict[str, None] = {}
        self._full: dict[str, None] = {}
        #: The nodes of the group members that the request has to join.
        self._near: list[str] = []
        self._members: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._lost or self._denied or self._locked)

    def pass_over(
        self, busy: exception.ClaimBusy, nodes: Iterable[str]
    ) -> None:
        """Exclude nodes whose own or whose other providers are busy."""
        self.times += 1
        self.busy = busy
        self._locked |= dict.fromkeys([*busy.providers, *nodes])

    def add(
        self, refusal: exception.ClaimRefused, node: str | None = None
    ) -> None:
        """Add a refusal.

        :param node: the selected node, if the store refused its child provider
            or its sharing provider
        """
        self.times += 1
        node = node or refusal.provider
        if not isinstance(refusal, exception.GroupPolicyViolated):
            self._lost[node] += 1
            return
        self._denied[node] = None
        self._members |= dict.fromkeys(refusal.members)
        if refusal.policy == base.AFFINITY or not refusal.members:
            self._barred[node] = None
        # Otherwise a host that is not full could take a part of the request.
        if refusal.policy == base.AFFINITY:
            self._near = list(refusal.hosts)
        else:
            self._full |= dict.fromkeys(refusal.hosts)

    @property
    def lost(self) -> list[str]:
        """The nodes that had no capacity."""
        return list(self._lost)

    @property
    def denied(self) -> list[str]:
        """The nodes that violate the group policy."""
        return list(self._denied)

    def refused(self, hosts: view.Hosts) -> list[int]:
        """Return the rows of hosts that had no capacity."""
        return _rows(hosts, self._lost)

    def hopeless(self, hosts: view.Hosts) -> list[int]:
        """Return the rows of hosts that were refused after a table refresh.

        They include hosts with locked rows.
        """
        return _rows(hosts, [
            *(node for node, times in self._lost.items() if times > 1),
            *self._locked])

    def closed(self, hosts: view.Hosts) -> list[int]:
        """Return the rows of hosts that violate the group policy."""
        rows = dict.fromkeys(_rows(hosts, self._barred))
        for name in self._full:
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
