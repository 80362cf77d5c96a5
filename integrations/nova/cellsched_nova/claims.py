# SPDX-License-Identifier: Apache-2.0
"""Claims of servers in Placement, and their release.

The product's claim store claims for servers without allocations. The
allocations of other servers are written by consumer generation: a write
replaces all of them and carries the generation of the previous read, so it
fails if they changed meanwhile. Each write also has a guard. The guard is
settled before the next read: by then a write without an answer is either done
or rejected for good.

A release that fails waits until Placement answers again.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import random
import threading
from typing import Any
from typing import TypeVar

from oslo_log import log

from cellsched.claims import base
from cellsched.claims.coordination import Acquire
from cellsched.claims.coordination import ContentionLock
from cellsched.claims import placement as placement_claims
from cellsched.claims.placement.guards import Guards
from cellsched.claims.placement import messages
from cellsched.claims.placement import server
from cellsched.claims import remote
from cellsched import clock
from cellsched import exception
from cellsched.observability.conditions import Conditions
from cellsched_nova import cells
from cellsched_nova import report_client
from cellsched_nova.report_client import Deadline

LOG = log.getLogger(__name__)

#: The condition that Placement does not answer.
_UNRELEASED = 'Claims cannot be released yet'

#: Seconds between attempts to release.
_SPACING_S = 1.0

#: Amounts by provider and resource class.
Resources = Mapping[str, Mapping[str, int]]

#: The same of claims that this process makes.
_Amounts = dict[str, dict[str, int]]

_Outcome = TypeVar('_Outcome')

_NO_OWNER = '00000000-0000-0000-0000-000000000000'

#: The consumer type and owners for consumers without a record of their own.
_OWNERS = messages.Owners('INSTANCE', _NO_OWNER, _NO_OWNER)

#: Returns the places of instances, and whether all cells answered.
Places = Callable[[Iterable[str]], tuple[Mapping[str, cells.Place], bool]]

_NOWHERE = cells.Place(None, None, False)


@dataclasses.dataclass(frozen=True)
class Addition:
    """A claim of an instance in addition to its other allocations."""

    instance: str
    resources: Resources
    project_id: str
    user_id: str


class Allocations:
    """Reads and writes the allocations of instances.

    While Placement does not answer, ``renew``, ``plan`` and ``add`` retry
    until the deadline, then raise
    :class:`cellsched.exception.DatabaseUnreachable`.
    The other methods raise :class:`cellsched.claims.remote.NotSent` or
    :class:`cellsched.claims.remote.OutcomeUnknown` at once.
    """

    def __init__(
        self, client: server.PlacementClient, deadline: Deadline,
        guards: int, locks: ContentionLock | None = None,
    ) -> None:
        self._server = server.PlacementServer(client)
        self._deadline = deadline
        self._guards = Guards(
            self._server, _OWNERS, clock.Clock(), random.Random(), guards,
            locks)

    def read(self, instances: Iterable[str]) -> dict[str, messages.Holding]:
        """Return the allocations of the instances that have any.

        Earlier writes of this object can no longer take effect afterwards.
        """
        self._guards.settle_all()
        return self._server.holdings(list(instances))

    def release(self, instance: str, holds: messages.Holding) -> bool:
        """Delete the allocations of an instance; False if they changed.

        :param holds: the allocations from the last read
        """
        return self._write(instance, holds.released(_OWNERS)).is_done

    def remove(
        self, addition: Addition, holds: messages.Holding | None
    ) -> bool:
        """Remove an added claim.

        Allocations that differ from the added claim remain.

        :param holds: the allocations from the last read
        :returns: False if the allocations changed since the read
        """
        added = addition.resources
        if holds is None or any(holds.allocations.get(provider) != resources
                                for provider, resources in added.items()):
            return True
        answer = self._write(addition.instance, _body(addition, holds, {
            provider: resources
            for provider, resources in holds.allocations.items()
            if provider not in added}))
        if not (answer.is_done or answer.is_conflict):
            raise remote.NotSent(
                f'it answered {answer.status} {answer.detail}')
        return answer.is_done

    def renew(self, instances: Collection[str]) -> bool:
        """Increase the consumer generation of instances, with retries.

        A release based on an earlier read then fails.

        :returns: False if an instance has no allocations any more
        """
        outdated = {*instances}

        def attempt() -> bool | None:
            found = self.read(outdated)
            if found.keys() != outdated:
                return False
            outdated.difference_update([
                instance for instance, holds in found.items()
                if messages.checked(self._write(instance, holds.body(
                    _OWNERS, holds.generation)), 409).is_done])
            return None if outdated else True

        return self._retry(attempt)

    def plan(
        self, instance: str, claim: Resources, project_id: str, user_id: str
    ) -> Addition:
        """Return the additional claim of an instance, with retries.

        As in Nova, a provider with allocations of the instance, for example
        shared storage, is not claimed again.
        """
        found = self._retry(lambda: self.read([instance]))
        before = found[instance].allocations if found else {}
        return Addition(instance, {
            provider: dict(resources)
            for provider, resources in claim.items()
            if provider not in before}, project_id, user_id)

    def add(self, addition: Addition) -> bool:
        """Add a claim, with retries; return False if capacity is missing.

        After :class:`cellsched.exception.DatabaseUnreachable` the outcome is
        unknown: the claim may exist, or appear later.
        """
        def attempt() -> bool | None:
            holds = self.read([addition.instance]).get(addition.instance)
            before = {} if holds is None else holds.allocations
            answer = self._write(addition.instance, _body(
                addition, holds, {**before, **addition.resources}))
            if answer.status == 400 and self._exist(addition.resources):
                messages.checked(answer)
            return None if answer.is_conflict else answer.is_done

        return self._retry(attempt)

    def _exist(self, providers: Iterable[str]) -> bool:
        """Return whether all of these providers exist."""
        return all(self._server.read(f'/resource_providers/{each}')
                   for each in providers)

    def _write(
        self, instance: str, body: messages.Body
    ) -> messages.PlacementAnswer:
        with self._guards.taken(body['allocations']) as held:
            self._guards.settle(held.guard)
            return self._guards.write(held.guard, {instance: body})

    def _retry(self, attempt: Callable[[], _Outcome | None]) -> _Outcome:
        """Return the first outcome of an attempt that is not None."""
        try:
            return remote.first_outcome(
                attempt, clock.Clock(), random.Random(),
                self._deadline.remaining_s())
        except remote.GivenUp as exc:
            report_client.raise_unreachable(str(exc))


def _body(
    addition: Addition, holds: messages.Holding | None, resources: Resources
) -> messages.Body:
    """Return the body that sets the allocations of an instance."""
    generation, kind = (None, None) if holds is None else (
        holds.generation, holds.consumer_type)
    return _OWNERS.body(resources, generation, addition.project_id,
                        addition.user_id, kind)


#: All allocations of a new consumer, or an additional claim.
_Deferred = _Amounts | Addition


class DeferredReleases:
    """Releases claims as soon as Placement answers again.

    A refused request may have left a claim with an unknown outcome, or a claim
    without a successful release. A claim is kept if the instance has a newer
    claim, or is on that host.

    The allocations of an instance are read first, then its place. The release
    uses the consumer generation of the first read. A newer claim is made while
    the instance has a task state, and changes the generation, so it is never
    released, even for equal amounts on the same host.

    :param store: the product's claim store
    :param allocations: allocations in the same Placement
    :param deadline: the deadline for Placement
    """

    def __init__(
        self, store: base.ClaimStore, allocations: Allocations,
        places: Places, deadline: Deadline,
    ) -> None:
        self._deadline = deadline
        self._store = store
        self._allocations = allocations
        self._places = places
        # By instance, the claims to release.
        self._deferred: dict[str, _Deferred] = {}
        self._lock = threading.Lock()
        # Held during a release, which may take long.
        self._release_lock = threading.Lock()
        self._due = threading.Event()
        self._stopping = threading.Event()

    def add(
        self, claims: Iterable[base.Claim],
        added: Iterable[Addition] = (),
    ) -> None:
        """Add claims to release; never blocks for long.

        :param claims: claims of instances without other allocations
        :param added: claims of instances with other allocations
        """
        deferred: dict[str, _Deferred] = {**_amounts(claims)}
        deferred |= {addition.instance: addition for addition in added}
        LOG.warning('Claims of instances %s are released when Placement '
                    'answers', ', '.join(deferred))
        with self._lock:
            self._deferred |= deferred
        self._due.set()

    def release_due(self, instances: Iterable[str] | None = None) -> bool:
        """Release the deferred claims; may block.

        :param instances: release for these instances only, before the caller
            claims for them exclusively; None for all
        :returns: False if some claims must be tried again
        :raises cellsched.exception.DatabaseUnreachable: Placement does not
            answer
        """
        only = None if instances is None else set(instances)
        if not self._due_of(only):
            return True
        # Another thread may wait for an answer of Placement meanwhile.
        if not self._release_lock.acquire(
                timeout=self._deadline.remaining_s()):
            report_client.raise_unreachable('a release has not ended')
        try:
            due = self._due_of(only)
            if not due:
                return True
            # Afterwards, earlier writes can no longer take effect.
            self._store.release(())
            return self._release_all(due, only is None)
        except (remote.NotSent, remote.OutcomeUnknown) as exc:
            report_client.raise_unreachable(str(exc))
        finally:
            self._release_lock.release()

    def _release_all(
        self, due: Mapping[str, _Deferred], is_careful: bool
    ) -> bool:
        """Release deferred claims by the consumer generation.

        :param is_careful: whether other processes may claim for the instances
        """
        held = self._allocations.read(due)
        places, is_complete = self._places(due)
        remaining = []
        for instance, deferred in due.items():
            place = places.get(instance)
            if is_careful and (not is_complete if place is None
                               else place.is_changing):
                remaining.append(instance)
                continue
            if not self._release_one(instance, deferred, held.get(instance),
                                     place or _NOWHERE):
                remaining.append(instance)
                continue
            with self._lock:
                if self._deferred.get(instance) is deferred:
                    del self._deferred[instance]
        return not remaining

    def _release_one(
        self, instance: str, deferred: _Deferred,
        held: messages.Holding | None, place: cells.Place,
    ) -> bool:
        """Release the claim of an instance; return whether it is done."""
        claimed = (deferred.resources if isinstance(deferred, Addition)
                   else deferred)
        if place.host is not None and (
                place.node is None or place.node in claimed):
            return True
        if isinstance(deferred, Addition):
            is_done = self._allocations.remove(deferred, held)
        elif held is None or held.allocations != deferred:
            return True
        else:
            is_done = self._allocations.release(instance, held)
        if is_done:
            LOG.info('The claim is released', instance_uuid=instance)
        return is_done

    def start(self) -> None:
        """Start the thread that releases the deferred claims."""
        conditions = Conditions(LOG, clock.Clock().monotonic)

        def work() -> None:
            while True:
                self._due.wait()
                if self._stopping.is_set():
                    return
                self._due.clear()
                try:
                    is_done = self.release_due()
                    conditions.end(_UNRELEASED)
                except Exception as exc:
                    # The thread goes on; the next attempt may work.
                    conditions.occur(_UNRELEASED, exc)
                    is_done = False
                if not is_done:
                    self._stopping.wait(_SPACING_S)
                    self._due.set()

        self._stopping.clear()
        threading.Thread(
            target=work, name='deferred releases', daemon=True).start()

    def stop(self) -> None:
        """Stop the thread, and log the claims without a release."""
        self._stopping.set()
        self._due.set()
        with self._lock:
            if self._deferred:
                LOG.error('Claims of instances %s were not released and '
                          'remain', ', '.join(self._deferred))

    def _due_of(self, only: set[str] | None) -> dict[str, _Deferred]:
        with self._lock:
            return {instance: claims
                    for instance, claims in self._deferred.items()
                    if only is None or instance in only}


def _amounts(claims: Iterable[base.Claim]) -> dict[str, _Amounts]:
    """Return the amounts by instance, provider and resource class."""
    found: dict[str, _Amounts] = {}
    for claim in claims:
        found.setdefault(claim.consumer, {})[claim.provider] = dict(
            claim.resources)
    return found


@dataclasses.dataclass(frozen=True)
class ClaimComponents:
    """The components that the claims of all requests share.

    :param store: the product's claim store
    :param allocations: allocations in the same Placement
    :param deferred: the deferred releases
    :param deadline: the deadline for Placement
    """

    store: placement_claims.PlacementClaims
    allocations: Allocations
    deferred: DeferredReleases
    deadline: Deadline


def make(
    client: Any, timeout_s: float, places: Places,
    guards: int = 1, acquire: Acquire | None = None,
) -> ClaimComponents:
    """Return the components that claim in the Placement of Nova.

    :param client: Nova's report client
    :param timeout_s: seconds to retry while Placement does not answer
    :param places: returns the places of instances
    :param guards: number of guards for writes
    :param acquire: holds the lock of providers that several processes write;
        None for no lock
    """
    deadline = Deadline(timeout_s)
    locks = ContentionLock(
        clock.Clock(), acquire, lambda function: threading.Thread(
            target=function, name='claims lock', daemon=True).start())
    sender = report_client.ReportClient(client, deadline)
    allocations = Allocations(sender, deadline, guards, locks)
    store = placement_claims.PlacementClaims(
        sender, clock.Clock(), random.Random(), guards=guards,
        retry_timeout_s=timeout_s, locks=locks)
    deferred = DeferredReleases(store, allocations, places, deadline)
    return ClaimComponents(store, allocations, deferred, deadline)


class ServerClaims:
    """Claims the hosts of one request, and releases them.

    For a server without allocations, the product's claim store claims. It
    never exceeds the capacity, and resolves writes without an answer. A server
    with allocations, for example during an evacuation, has both claims
    afterwards, as in Nova.

    :param context: an administrator's context
    :param spec: Nova's request
    """

    def __init__(
        self, parts: ClaimComponents, context: Any, spec: Any
    ) -> None:
        self._store = parts.store
        self._allocations = parts.allocations
        self._deferred = parts.deferred
        self._project_id = spec.project_id
        # Requests of old servers have no user.
        self._user_id = (spec.user_id if 'user_id' in spec and spec.user_id
                         else context.user_id)
        # Claims of instances without other allocations.
        self._new: list[base.Claim] = []
        self._is_answering = True
        # Claims of instances that had allocations before.
        self._added: list[Addition] = []
        #: Why claims were refused.
        self.refusals: list[exception.ClaimRefused] = []
        #: For each write, the amounts taken from each provider.
        self.writes: list[dict[str, dict[str, int]]] = []

    def claim_hosts(self, hosts: Mapping[str, _Amounts]) -> str | None:
        """Claim for all instances, with one write if that is possible.

        After a refusal, some of them may be claimed; see :meth:`release`.

        :param hosts: for each instance, amounts by provider and resource class
        :returns: a provider without capacity; None if all are claimed
        :raises cellsched.exception.DatabaseUnreachable: Placement did not
            answer
        """
        if len(hosts) > 1:
            try:
                return self._claim_new(hosts)
            except exception.ClaimConflict:
                # An instance has other allocations: claim in turn.
                pass
        for uuid, amounts in hosts.items():
            try:
                refused = self._claim_new({uuid: amounts})
            except exception.ClaimConflict:
                refused = self._claim_additional(uuid, amounts)
            if refused is not None:
                return refused
        return None

    def _claim_new(self, hosts: Mapping[str, _Amounts]) -> str | None:
        """Claim for all of these instances, or for none of them.

        :returns: a provider without capacity for all; None if all are claimed
        :raises cellsched.exception.ClaimConflict: an instance has allocations
        """
        claims = [base.Claim(uuid, provider, dict(resources),
                             project_id=self._project_id,
                             user_id=self._user_id)
                  for uuid, amounts in hosts.items()
                  for provider, resources in amounts.items()]
        try:
            self._deferred.release_due(hosts)
        except exception.DatabaseUnreachable:
            self._is_answering = False
            raise
        try:
            # The refusal of a claim of an instance shows that it holds none.
            taken = self._store.claim(claims, is_new={
                each.consumer for each in claims} <= {
                    each.consumer for each in self.refusals})
            # An existing claim may be about to be released: renew its
            # generation, so that the release fails.
            while taken < len(claims) and not self._allocations.renew(
                    {*hosts}):
                taken = self._store.claim(claims)
        except exception.ClaimRefused as exc:
            self.refusals.append(exc)
            return str(exc.provider)
        except exception.DatabaseUnreachable:
            # The outcome is unknown: the claim may exist.
            self._new += claims
            self._is_answering = False
            raise
        self._new += claims
        if taken == len(claims):
            self.writes.append(_total(claims))
        return None

    def _claim_additional(self, uuid: str, amounts: _Amounts) -> str | None:
        """Claim for an instance that keeps its other allocations.

        :returns: one of the providers if capacity is missing; else None
        """
        try:
            addition = self._allocations.plan(
                uuid, amounts, self._project_id, self._user_id)
            self._added.append(addition)
            taken = self._allocations.add(addition)
        except exception.DatabaseUnreachable:
            self._is_answering = False
            raise
        if not taken:
            self._added.remove(addition)
            return next(iter(amounts))
        self.writes.append({provider: dict(resources) for provider, resources
                            in addition.resources.items()})
        return None

    def release(self) -> None:
        """Release the claims of this request; earlier claims remain."""
        new, self._new = self._new, []
        added, self._added = self._added, []
        if not (new or added):
            return
        if not self._is_answering:
            # The caller has already waited until the deadline.
            self._deferred.add(new, added)
            return
        try:
            if new:
                self._store.release({each.consumer for each in new})
                new = []
            held = self._allocations.read(each.instance for each in added)
            added = [each for each in added if not self._allocations.remove(
                each, held.get(each.instance))]
        except (exception.CellschedException, remote.NotSent,
                remote.OutcomeUnknown) as exc:
            LOG.warning('Claims cannot be released now: %s', exc)
        if new or added:
            self._deferred.add(new, added)


def _total(claims: Iterable[base.Claim]) -> dict[str, dict[str, int]]:
    """Return the sum of the claims for each provider."""
    found: dict[str, dict[str, int]] = {}
    for claim in claims:
        taken = found.setdefault(claim.provider, {})
        for name, amount in claim.resources.items():
            taken[name] = taken.get(name, 0) + amount
    return found
