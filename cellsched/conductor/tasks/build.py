# SPDX-License-Identifier: Apache-2.0
"""Builds on their way into cells, in batches, and what becomes of them."""

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
    exception.DatabaseUnreachable, exception.DeadlineExceeded,
    exception.HostStateUncertain, exception.TransactionLost,
    oslo_messaging.MessageDeliveryFailure, oslo_messaging.MessagingTimeout,
    *delivery.BROKER_ERRORS)

_TRANSIENT_NAMES = frozenset(each.__name__ for each in _TRANSIENT)


class Outcome(enum.Enum):
    """The end that a build came to in a task."""

    #: It has none yet, and goes on.
    IN_PROGRESS = 'going on'
    #: It failed for good, and is buried with the reason when it is undone.
    FAILED = 'failed'
    #: What it failed of passes: it is tried again soon, until it is too late.
    RETRY = 'put off'
    #: It failed and an undo failed too: what became of it is found out later.
    UNKNOWN = 'unclear'
    #: Its user deleted it.
    DELETED = 'deleted'
    #: It is left as it is: somebody else works on it or did, or it ended in
    #: its cell.
    FINISHED = 'finished'
    #: Who finished it decided on another cell than this try.
    BUILT_ELSEWHERE = 'elsewhere'


_LOST = frozenset({Outcome.DELETED, Outcome.FINISHED, Outcome.BUILT_ELSEWHERE})

#: What may follow on each outcome besides itself. What was settled outside of
#: this task is looked up again by the fence, so it has the last word.
TRANSITIONS: Mapping[Outcome, frozenset[Outcome]] = {
    Outcome.IN_PROGRESS: _LOST | {Outcome.FAILED, Outcome.RETRY},
    Outcome.FAILED: _LOST | {Outcome.UNKNOWN},
    # It fails for good with others of its batch.
    Outcome.RETRY: _LOST | {Outcome.UNKNOWN, Outcome.FAILED},
    Outcome.UNKNOWN: frozenset(),
    # It is left to the host that it came to.
    Outcome.DELETED: frozenset({Outcome.FINISHED}),
    Outcome.FINISHED: frozenset({Outcome.DELETED, Outcome.BUILT_ELSEWHERE}),
    Outcome.BUILT_ELSEWHERE: frozenset(),
}


class OutcomeConflict(Exception):
    """A step would have overwritten what became of a build."""

    def __init__(self, uuid: str, settled: Outcome, refused: Outcome) -> None:
        super().__init__(
            f'Build {uuid} is {settled.value} and cannot be {refused.value}.')
        self.uuid = uuid
        self.settled = settled
        self.refused = refused


@dataclasses.dataclass(eq=False)
class Build:
    """One instance on its way into a cell.

    It leaves the batch when it has an outcome.
    """

    request: objects.BuildRequest
    spec: objects.RequestSpec
    #: On whose behalf it is built.
    context: RequestContext
    #: Who leases the request.
    owner: str = ''
    #: How often its user had changed the request when it was read.
    revision: int = 0
    #: How often it was taken up, this time included.
    tries: int = 1
    #: What it was accepted with.
    batch: 'Batch | None' = None
    selections: list[objects.Selection] = dataclasses.field(
        default_factory=list)
    cell: objects.CellMapping | None = None
    #: The cell that the earlier try decided on.
    earlier: objects.CellMapping | None = None
    #: The ids of the cells in which this one may have written.
    written: set[int] = dataclasses.field(default_factory=set)
    #: What it failed of, if it did.
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
        """Return whether an earlier try was cut, after whatever step."""
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
        """Return whether nothing of it is to be undone here."""
        return self._outcome in (Outcome.FINISHED, Outcome.BUILT_ELSEWHERE)

    @property
    def to_bury(self) -> bool:
        """Return whether it failed for good, is ours, and left nothing."""
        return self._outcome is Outcome.FAILED

    @property
    def to_retry(self) -> bool:
        """Return whether it failed, and is left for a later try."""
        return self._outcome in (Outcome.RETRY, Outcome.UNKNOWN)

    def end(self, outcome: Outcome, reason: Exception | None = None) -> None:
        """Give the build an outcome; the first reason is kept.

        :raises OutcomeSettled: it has one that stays
        """
        if outcome is not self._outcome and (
                outcome not in TRANSITIONS[self._outcome]):
            raise OutcomeConflict(self.uuid, self._outcome, outcome)
        self._outcome = outcome
        self.reason = self.reason or reason

    def fail(self, reason: Exception) -> None:
        """End the build, to be tried again if what it failed of passes."""
        self.end(Outcome.RETRY if is_transient(reason)
                 else Outcome.FAILED, reason)


@dataclasses.dataclass
class Batch:
    """Builds of one request: at least so many of them, or none.

    :param least: how many must be built for any to be; those that their user
        deleted or that somebody else finished count as if they were
    """

    builds: Sequence[Build]
    least: int = 1

    @property
    def needed(self) -> int:
        """Return how many of those left must be built for any to be."""
        gone = sum(build.deleted or build.finished for build in self.builds)
        return max(min(self.least, len(self.builds)) - gone, 1)

    def settle(
        self, builds: Iterable[Build], together: bool
    ) -> tuple[list[Build], list[Build]]:
        """Return the builds that have no outcome yet, and those that have one.

        :param together: whether all fail first if too few are left
        """
        if together:
            self.fail_together()
        live: list[Build] = []
        ended: list[Build] = []
        for build in builds:
            (ended if build.ended else live).append(build)
        return live, ended

    def fail_together(self) -> None:
        """Fail them all if too few of them are left.

        They are all tried again later, or none of them.
        """
        failed = [build for build in self.builds
                  if build.to_bury or build.to_retry]
        left = len(self.builds) - len(failed)
        if left >= min(self.least, len(self.builds)):
            return
        first = next((build for build in failed if build.to_bury), failed[0])
        outcome = Outcome.FAILED if first.to_bury else Outcome.RETRY
        for build in self.builds:
            if build.outcome in (Outcome.IN_PROGRESS, Outcome.RETRY):
                build.end(outcome, first.reason)


#: A cell, and builds of it.
CellBuilds: TypeAlias = tuple[objects.CellMapping, list[Build]]


def in_progress(builds: Iterable[Build]) -> list[Build]:
    """Return the builds that have no outcome yet."""
    return [build for build in builds
            if build._outcome is Outcome.IN_PROGRESS]


def by_cell(builds: Sequence[Build]) -> list[CellBuilds]:
    """Return builds by their cell; those without one are left out."""
    return _grouped([(build.cell, build) for build in builds])


def by_any_cell(builds: Sequence[Build]) -> list[CellBuilds]:
    """Return builds by each cell that may know of them."""
    return _grouped([
        (cell, build) for build in builds
        for cell in (build.cell, build.earlier)])


def by_written_cell(builds: Sequence[Build]) -> list[CellBuilds]:
    """Return builds by each cell that may have rows of them."""
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
    """Return whether what failed of an error may be tried again.

    What another service failed of counts too, in whatever form it is told.
    """
    return isinstance(exc, _TRANSIENT) or (
        isinstance(exc, oslo_messaging.RemoteError)
        and exception.kind_of(exc) in _TRANSIENT_NAMES)
