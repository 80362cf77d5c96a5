# SPDX-License-Identifier: Apache-2.0
"""The leases of build requests: ownership, renewal and retries.

A lease says which conductor should work on a request. It avoids duplicate
work only. Correctness depends on :func:`renew` and :func:`resolve_lost`, which
a step calls in the transaction of its change.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import heapq
import itertools
import threading
from typing import Any
from typing import NamedTuple

from cellsched.clock import Clock
from cellsched.conductor.tasks.saga import Build
from cellsched.conductor.tasks.saga import Outcome
from cellsched.context import RequestContext
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.api import leases
from cellsched.db import session
from cellsched import objects


class Leases:
    """The build requests that this process has leased.

    Leases are short, so that another conductor soon resumes the requests of a
    killed process. A running process renews all of its leases, however long a
    build takes. A process that was stopped for longer than a lease finds out
    by the fences of the steps.

    :param lease_s: seconds from a renewal until the lease expires
    """

    def __init__(self, database: session.Database, lease_s: float) -> None:
        self.lease_s = lease_s
        self._database = database
        self._lock = threading.Lock()
        self._owners: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def hold(self, owners: Mapping[str, str]) -> None:
        """Renew these leases from now on.

        :param owners: owner of the lease by instance; each attempt has its own
        """
        with self._lock:
            self._owners.update(owners)

    def release(self, uuids: Iterable[str], owner: str) -> None:
        """Stop renewing these, unless another attempt holds them."""
        with self._lock:
            for uuid in uuids:
                if self._owners.get(uuid) == owner:
                    del self._owners[uuid]

    def uuids(self) -> list[str]:
        """Return the instances whose requests are leased."""
        with self._lock:
            return list(self._owners)

    def renew(self) -> None:
        """Extend the leases that this process still owns."""
        with self._lock:
            owners = dict(self._owners)
        if owners:
            with self._database.writer() as connection:
                leases.extend(
                    connection, owners,
                    self._database.timestamp() + self.lease_s)


#: Maximum of waiting batches; others are resumed after their lease expires.
WAITING_MAX = 10_000

#: Upper limit of the growing delay between retries, in seconds.
DELAY_MAX_S = 4.0


class Attempt(NamedTuple):
    """One attempt to build a batch.

    :param owner: owner of the lease, if the builds are leased already
    :param number: attempts of this conductor before this one
    :param trace: the span above those of the attempt, as ``traceparent``; by
        default the current span of the thread
    """

    context: RequestContext
    uuids: Sequence[str]
    owner: str | None = None
    number: int = 0
    trace: str = ''


@dataclasses.dataclass(eq=False)
class Retries:
    """Batches that failed with a transient error and wait for a retry.

    The delay doubles with each attempt, up to ``DELAY_MAX_S``, so that a build
    waits for seconds only after a disturbance of any length.

    :param delay_s: seconds until the first retry
    """

    clock: Clock
    delay_s: float

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: list[tuple[float, int, Attempt]] = []

    def __len__(self) -> int:
        return sum(len(each.uuids) for *_, each in list(self._waiting))

    def defer(self, attempt: Attempt) -> bool:
        """Schedule a retry; return False if too many batches wait."""
        delay_s = self.delay_s
        for _ in range(attempt.number):
            if delay_s >= DELAY_MAX_S:
                break
            delay_s = min(2 * delay_s, DELAY_MAX_S)
        due = self.clock.monotonic() + delay_s
        retry = attempt._replace(number=attempt.number + 1)
        with self._lock:
            if len(self._waiting) >= WAITING_MAX:
                return False
            heapq.heappush(self._waiting, (due, next(self._numbers), retry))
        return True

    def pop_due(self) -> list[Attempt]:
        """Remove the batches whose retry is due, and return them."""
        now, due = self.clock.monotonic(), []
        with self._lock:
            while self._waiting and self._waiting[0][0] <= now:
                due.append(heapq.heappop(self._waiting)[2])
        return due


def renew(
    connection: Any, builds: Sequence[Build], until: float
) -> set[Build]:
    """Renew leases; return the builds that this conductor still owns.

    :param until: in seconds since the epoch
    """
    owners = {build.uuid: build.owner for build in builds}
    owned = build_requests.renew(connection, owners, until)
    return {build for build in builds
            if build.uuid in owned and owners[build.uuid] == build.owner}


def resolve_lost(connection: Any, builds: Sequence[Build]) -> None:
    """End the lost builds with the outcome that the database has."""
    uuids = [build.uuid for build in builds]
    mappings = instance_mappings.get_many(connection, uuids)
    requested = build_requests.present(connection, uuids)
    for build in builds:
        # BUILT_ELSEWHERE comes from an earlier call and is final.
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
    # While the request exists, the decision may change.
    if build.cell and decided and decided.id != build.cell.id and (
            not requested):
        return Outcome.BUILT_ELSEWHERE
    return Outcome.FINISHED
