# SPDX-License-Identifier: Apache-2.0
"""Allocations of instances in Placement, written by consumer generation.

A write replaces all allocations of an instance and carries the consumer
generation of the previous read, so it fails if the allocations changed
meanwhile. Each write also has a guard. The guard is settled before the next
read: by then a write without an answer is either done or rejected for good.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import random
from typing import TypeVar

from cellsched.claims.coordination import ContentionLock
from cellsched.claims.placement.guards import Guards
from cellsched.claims.placement import messages
from cellsched.claims.placement import server
from cellsched.claims import remote
from cellsched import clock
from cellsched_nova import report_client
from cellsched_nova.report_client import Deadline

#: Amounts by provider and resource class.
Resources = Mapping[str, Mapping[str, int]]

_Outcome = TypeVar('_Outcome')

_NO_OWNER = '00000000-0000-0000-0000-000000000000'

#: The consumer type and owners for consumers without a record of their own.
_OWNERS = messages.Owners('INSTANCE', _NO_OWNER, _NO_OWNER)


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
