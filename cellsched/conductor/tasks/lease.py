# SPDX-License-Identifier: Apache-2.0
"""The leases of a process: longer for as long as it lives."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import heapq
import itertools
import threading
from typing import Any

from cellsched.clock import Clock
from cellsched.conductor.tasks.build import Build
from cellsched.conductor.tasks.build import Outcome
from cellsched.context import RequestContext
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.api import request_leases
from cellsched.db import session
from cellsched import objects


class Leases:
    """The build requests that this process has leased.

    A lease is short, so that what a dead process had is soon another's. As
    long as this one lives it says so of all that it has, however long each
    takes. That only keeps others from trying: whoever was stopped for longer
    than a lease finds out by the fences of the steps.

    :param lease_s: seconds for which a request is ours if nothing is said
    """

    def __init__(
        self, database: session.Database, lease_s: float
    ) -> None:
        self.lease_s = lease_s
        self._database = database
        self._lock = threading.Lock()
        self._owners: dict[str, str] = {}

    def hold(self, owners: Mapping[str, str]) -> None:
        """Renew these from now on.

        :param owners: who has leased them, by instance; each try has a name
            of its own
        """
        with self._lock:
            self._owners.update(owners)

    def release(self, uuids: Iterable[str], owner: str) -> None:
        """Renew these no longer, unless they are held for another try."""
        with self._lock:
            for uuid in uuids:
                if self._owners.get(uuid) == owner:
                    del self._owners[uuid]

    def renew(self) -> None:
        """Lease for longer what is held, and still ours."""
        with self._lock:
            owners = dict(self._owners)
        if owners:
            with self._database.writer() as connection:
                request_leases.extend(
                    connection, owners,
                    self._database.timestamp() + self.lease_s)


#: Batches that may wait; what does not is found when its lease has run out.
WAITING_MAX = 10_000


@dataclasses.dataclass(frozen=True)
class Attempt:
    """Builds of one batch that are to be tried.

    :param owner: who has leased them for that, if anybody has
    :param number: how often this conductor has tried them before
    """

    context: RequestContext
    uuids: Sequence[str]
    owner: str | None = None
    number: int = 0


class Retries:
    """Builds that failed of something that passes, kept by who tried them.

    Each try waits twice as long as the one before. After some of them the
    builds are anybody's, as somebody else may get through.

    :param delay_s: seconds until the first of them
    :param attempts_max: how many there are
    """

    def __init__(
        self, clock: Clock, delay_s: float, attempts_max: int
    ) -> None:
        self._clock = clock
        self._delay_s = delay_s
        self._attempts_max = attempts_max
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: list[tuple[float, int, Attempt]] = []

    def defer(self, attempt: Attempt) -> bool:
        """Have a batch tried again later; return whether it will be."""
        if attempt.number >= self._attempts_max:
            return False
        due = (self._clock.monotonic()
               + self._delay_s * 2 ** attempt.number)
        again = dataclasses.replace(attempt, number=attempt.number + 1)
        with self._lock:
            if len(self._waiting) >= WAITING_MAX:
                return False
            heapq.heappush(
                self._waiting, (due, next(self._numbers), again))
        return True

    def pop_due(self) -> list[Attempt]:
        """Return what is to be tried now; it waits no longer."""
        now, due = self._clock.monotonic(), []
        with self._lock:
            while self._waiting and self._waiting[0][0] <= now:
                due.append(heapq.heappop(self._waiting)[2])
        return due


def renew(
    connection: Any, builds: Sequence[Build], until: float
) -> set[Build]:
    """Lease requests for longer; return the builds that are ours still.

    :param until: in seconds since the epoch
    """
    owners = {build.uuid: build.owner for build in builds}
    mine = build_requests.renew(connection, owners, until)
    return {build for build in builds
            if build.uuid in mine and owners[build.uuid] == build.owner}


def resolve_lost(connection: Any, builds: Sequence[Build]) -> None:
    """End builds that somebody else settled, by asking who it was."""
    uuids = [build.uuid for build in builds]
    mappings = instance_mappings.get_many(connection, uuids)
    requested = build_requests.present(connection, uuids)
    for build in builds:
        # What is elsewhere was asked for before, and nothing follows on that.
        if build.outcome is not Outcome.BUILT_ELSEWHERE:
            build.end(_find_outcome(
                build, mappings.get(build.uuid), build.uuid in requested))


def _find_outcome(
    build: Build, mapping: objects.InstanceMapping | None,
    requested: bool,
) -> Outcome:
    if mapping is None or mapping.queued_for_delete:
        return Outcome.DELETED
    decided = mapping.cell_mapping
    # While there is a request it may be decided anew.
    if build.cell and decided and decided.id != build.cell.id and (
            not requested):
        return Outcome.BUILT_ELSEWHERE
    return Outcome.FINISHED
