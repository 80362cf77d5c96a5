# SPDX-License-Identifier: Apache-2.0
"""Holdings of instances in Placement, written by the generation they have.

A write says all that an instance is to hold from now on, and has the
generation of what it held when that was read. So it is done on that or not at
all. It has a guard too, as all that the product claims in Placement, and is
settled before anything is read again: what was not answered is done by then,
or never will be.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import random
from typing import TypeVar

from cellsched.claims.placement.guards import Guards
from cellsched.claims.placement import messages
from cellsched.claims.placement import server
from cellsched.claims import remote
from cellsched import clock
from cellsched_nova.deadline import Deadline
from cellsched_nova import report_client

#: Amounts by provider and resource class.
Resources = Mapping[str, Mapping[str, int]]

_Outcome = TypeVar('_Outcome')

_NOBODY = '00000000-0000-0000-0000-000000000000'

#: What Placement is told of an instance, where its own record does not say.
_OWNERS = messages.Owners('INSTANCE', _NOBODY, _NOBODY)


@dataclasses.dataclass(frozen=True)
class Addition:
    """A claim that an instance has, or is to have, beside others."""

    instance: str
    resources: Resources
    project_id: str
    user_id: str


class Allocations:
    """Reads and writes what instances hold.

    Who asks patiently is told :class:`cellsched.exception.DatabaseUnreachable`
    in the end, the others at once that Placement does not answer, by
    :class:`cellsched.claims.remote.NotSent` and
    :class:`cellsched.claims.remote.OutcomeUnknown`.
    """

    def __init__(
        self, client: server.PlacementClient, patience: Deadline,
        guards: int,
    ) -> None:
        self._server = server.PlacementServer(client)
        self._patience = patience
        self._guards = Guards(
            self._server, _OWNERS, clock.Clock(), random.Random(), guards)

    def read(self, instances: Iterable[str]) -> dict[str, messages.Holding]:
        """Return what those instances hold that hold something.

        Nothing that was written here before is done any more after that.
        """
        self._guards.settle_all()
        return self._server.holdings(list(instances))

    def release(self, instance: str, holds: messages.Holding) -> bool:
        """Have an instance hold nothing; return False if it changed.

        :param holds: what it holds, as it was read
        """
        return self._write(instance, holds.released(_OWNERS)).is_done

    def take_off(
        self, addition: Addition, holds: messages.Holding | None
    ) -> bool:
        """Take a claim off, if it was added.

        Where somebody claimed otherwise meanwhile, that stays.

        :param holds: what the instance holds, as it was read
        :returns: False if that has changed
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
        """Give what instances hold another generation, patiently.

        Nobody releases it any more who read it before.

        :returns: False if one holds nothing any more
        """
        left = {*instances}

        def attempt() -> bool | None:
            found = self.read(left)
            if found.keys() != left:
                return False
            left.difference_update([
                instance for instance, holds in found.items()
                if self._write(instance, holds.body(
                    _OWNERS, holds.generation)).is_done])
            return None if left else True

        return self._patiently(attempt)

    def plan(
        self, instance: str, wanted: Resources, project_id: str, user_id: str
    ) -> Addition:
        """Return what an instance would have more than now, patiently.

        As in Nova, it gets nothing more of a provider of which it holds
        something, such as shared storage.
        """
        found = self._patiently(lambda: self.read([instance]))
        before = found[instance].allocations if found else {}
        return Addition(instance, {
            provider: dict(resources)
            for provider, resources in wanted.items()
            if provider not in before}, project_id, user_id)

    def add(self, addition: Addition) -> bool:
        """Add a claim, patiently; return False if there is no room.

        Where it is told that Placement does not answer, it may be added, or
        be so later.
        """
        def attempt() -> bool | None:
            holds = self.read([addition.instance]).get(addition.instance)
            before = {} if holds is None else holds.allocations
            answer = self._write(addition.instance, _body(
                addition, holds, {**before, **addition.resources}))
            return None if answer.is_conflict else answer.is_done

        return self._patiently(attempt)

    def _write(
        self, instance: str, body: messages.Body
    ) -> messages.PlacementAnswer:
        with self._guards.taken(body['allocations']) as held:
            self._guards.settle(held.guard)
            return self._guards.write(held.guard, {instance: body})

    def _patiently(self, attempt: Callable[[], _Outcome | None]) -> _Outcome:
        """Return the first outcome of an attempt that is not None."""
        try:
            return remote.first_outcome(
                attempt, clock.Clock(), random.Random(),
                self._patience.left_s())
        except remote.GivenUp as exc:
            report_client.give_up(str(exc))


def _body(
    addition: Addition, holds: messages.Holding | None, wanted: Resources
) -> messages.Body:
    """Return what says that an instance is to hold that."""
    generation, kind = (None, None) if holds is None else (
        holds.generation, holds.consumer_type)
    return _OWNERS.body(wanted, generation, addition.project_id,
                        addition.user_id, kind)
