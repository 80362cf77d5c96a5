# SPDX-License-Identifier: Apache-2.0
"""Builds in progress, in batches, and their outcomes."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import enum
from typing import TypeAlias

import oslo_messaging

from cellsched.context import RequestContext
from cellsched import exception
from cellsched import objects
from cellsched.rpc import delivery

#: Errors after which the same build may succeed later, or from another
#: conductor.
_TRANSIENT: tuple[type[Exception], ...] = (
    exception.BrokerRefused, exception.CellUnreachable,
    exception.DatabaseBusy, exception.DatabaseUnreachable,
    exception.DeadlineExceeded,
    exception.HostStateUncertain, exception.TransactionLost,
    oslo_messaging.MessageDeliveryFailure, oslo_messaging.MessagingTimeout,
    *delivery.BROKER_ERRORS)

_TRANSIENT_NAMES = frozenset(each.__name__ for each in _TRANSIENT)


class Outcome(enum.Enum):
    """The result of a build in a task."""

    #: No result yet.
    IN_PROGRESS = 'in progress'
    #: Failed for good; recorded in cell0 after the rollback.
    FAILED = 'failed'
    #: Failed with a transient error; retried until the deadline.
    RETRY = 'to be retried'
    #: Failed, and the rollback failed too; a later attempt resolves it.
    UNKNOWN = 'unknown'
    #: Deleted by its user.
    DELETED = 'deleted'
    #: Left as it is: another conductor owns or finished it, or it ended in
    #: its cell.
    FINISHED = 'finished'
    #: Finished by another conductor, in another cell than this attempt's.
    BUILT_ELSEWHERE = 'built elsewhere'


_LOST = frozenset({Outcome.DELETED, Outcome.FINISHED, Outcome.BUILT_ELSEWHERE})

#: Allowed changes of an outcome. The fence reads the database again, so the
#: outcomes that it finds replace those of this task.
TRANSITIONS: Mapping[Outcome, frozenset[Outcome]] = {
    Outcome.IN_PROGRESS: _LOST | {Outcome.FAILED, Outcome.RETRY},
    Outcome.FAILED: _LOST | {Outcome.UNKNOWN},
    # Fails for good together with its batch.
    Outcome.RETRY: _LOST | {Outcome.UNKNOWN, Outcome.FAILED},
    Outcome.UNKNOWN: frozenset(),
    # A host has the server already and deletes it.
    Outcome.DELETED: frozenset({Outcome.FINISHED}),
    Outcome.FINISHED: frozenset({Outcome.DELETED, Outcome.BUILT_ELSEWHERE}),
    Outcome.BUILT_ELSEWHERE: frozenset(),
}


class OutcomeConflict(Exception):
    """A change of an outcome that is not allowed."""

    def __init__(self, uuid: str, settled: Outcome, refused: Outcome) -> None:
        super().__init__(
            f'Build {uuid} is {settled.value} and cannot be {refused.value}.')
        self.uuid = uuid
        self.settled = settled
        self.refused = refused


@dataclasses.dataclass(eq=False)
class Build:
    """One instance on its way into a cell.

    It leaves its batch when it has an outcome.
    """

    request: objects.BuildRequest
    spec: objects.RequestSpec
    #: The context of the request.
    context: RequestContext
    #: Owner of the lease.
    owner: str = ''
    #: Revision of the request when it was read.
    revision: int = 0
    #: Number of attempts, including this one.
    tries: int = 1
    #: The batch that it was accepted in.
    batch: 'Batch | None' = None
    selections: list[objects.Selection] = dataclasses.field(
        default_factory=list)
    cell: objects.CellMapping | None = None
    #: The cell that an earlier attempt decided on.
    earlier: objects.CellMapping | None = None
    #: Ids of the cells that may have rows of this attempt.
    written: set[int] = dataclasses.field(default_factory=set)
    #: The error of a failed build.
    reason: Exception | None = dataclasses.field(default=None, init=False)
    uuid: str = dataclasses.field(init=False)
    _outcome: Outcome = dataclasses.field(
        default=Outcome.IN_PROGRESS, init=False)

    def __post_init__(self) -> None:
        self.uuid = self.request.instance_uuid

    @property
    def instance(self) -> objects.Instance:
        return self.request.instance

    @property
    def again(self) -> bool:
        """Return whether an earlier attempt was interrupted."""
        return self.tries > 1

    @property
    def outcome(self) -> Outcome:
        return self._outcome

    @property
    def ended(self) -> bool:
        return self._outcome is not Outcome.IN_PROGRESS

    @property
    def deleted(self) -> bool:
        return self._outcome is Outcome.DELETED

    @property
    def finished(self) -> bool:
        """Return whether this conductor must not roll the build back."""
        return self._outcome in (Outcome.FINISHED, Outcome.BUILT_ELSEWHERE)

    @property
    def to_bury(self) -> bool:
        """Return whether it failed for good and is completely rolled back."""
        return self._outcome is Outcome.FAILED

    @property
    def to_retry(self) -> bool:
        """Return whether it failed and a later attempt follows."""
        return self._outcome in (Outcome.RETRY, Outcome.UNKNOWN)

    def end(self, outcome: Outcome, reason: Exception | None = None) -> None:
        """Set the outcome; the first reason is kept.

        :raises OutcomeConflict: the current outcome does not allow it
        """
        if outcome is not self._outcome and (
                outcome not in TRANSITIONS[self._outcome]):
            raise OutcomeConflict(self.uuid, self._outcome, outcome)
        self._outcome = outcome
        self.reason = self.reason or reason

    def fail(self, reason: Exception) -> None:
        """End the build with an error, which decides whether it is retried."""
        self.end(Outcome.RETRY if is_transient(reason)
                 else Outcome.FAILED, reason)


@dataclasses.dataclass
class Batch:
    """Builds of one request: at least ``least`` of them, or none.

    :param least: minimum number of builds to succeed; deleted builds and
        builds that another conductor finished count as successful
    """

    builds: Sequence[Build]
    least: int = 1

    @property
    def needed(self) -> int:
        """Return how many of the remaining builds must succeed."""
        gone = sum(build.deleted or build.finished for build in self.builds)
        return max(min(self.least, len(self.builds)) - gone, 1)

    def settle(
        self, builds: Iterable[Build], together: bool
    ) -> tuple[list[Build], list[Build]]:
        """Return the builds without an outcome, and those with one.

        :param together: first fail all of them if fewer than ``least`` remain
        """
        if together:
            self.fail_together()
        live: list[Build] = []
        ended: list[Build] = []
        for build in builds:
            (ended if build.ended else live).append(build)
        return live, ended

    def fail_together(self) -> None:
        """Fail all builds if fewer than ``least`` of them remain.

        Either all of them are retried or none.
        """
        failed = [build for build in self.builds
                  if build.to_bury or build.to_retry]
        remaining = len(self.builds) - len(failed)
        if remaining >= min(self.least, len(self.builds)):
            return
        first = next((build for build in failed if build.to_bury), failed[0])
        outcome = Outcome.FAILED if first.to_bury else Outcome.RETRY
        for build in self.builds:
            if build.outcome in (Outcome.IN_PROGRESS, Outcome.RETRY):
                build.end(outcome, first.reason)


#: A cell and its builds.
CellBuilds: TypeAlias = tuple[objects.CellMapping, list[Build]]


def in_progress(builds: Iterable[Build]) -> list[Build]:
    """Return the builds that have no outcome yet."""
    return [build for build in builds
            if build._outcome is Outcome.IN_PROGRESS]


def by_cell(builds: Sequence[Build]) -> list[CellBuilds]:
    """Group builds by cell; builds without a cell are left out."""
    return _grouped([(build.cell, build) for build in builds])


def by_any_cell(builds: Sequence[Build]) -> list[CellBuilds]:
    """Group builds by each cell that an attempt may have used."""
    return _grouped([
        (cell, build) for build in builds
        for cell in (build.cell, build.earlier)])


def by_written_cell(builds: Sequence[Build]) -> list[CellBuilds]:
    """Group builds by each cell that may have rows of them."""
    return _grouped([
        (cell, build) for build in builds
        for cell in (build.cell, build.earlier)
        if cell and (cell is build.earlier or cell.id in build.written)])


def _grouped(
    pairs: Iterable[tuple[objects.CellMapping | None, Build]],
) -> list[CellBuilds]:
    groups: dict[int, CellBuilds] = {}
    for cell, build in pairs:
        if cell is not None:
            groups.setdefault(cell.id, (cell, []))[1].append(build)
    return [group for _, group in sorted(groups.items())]


def is_transient(exc: BaseException) -> bool:
    """Return whether the build may succeed in a later attempt.

    Errors of another service count too, in each form that RPC delivers.
    """
    return isinstance(exc, _TRANSIENT) or (
        isinstance(exc, oslo_messaging.RemoteError)
        and exception.kind_of(exc) in _TRANSIENT_NAMES)
