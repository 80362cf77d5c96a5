# SPDX-License-Identifier: Apache-2.0
"""Builds in batches, the steps that they go through, and the rollback."""

import abc
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import enum
import logging
import threading
from typing import Any
from typing import TypeAlias

from oslo_config import cfg
from oslo_log import log
import oslo_messaging

from cellsched import batching
from cellsched import clock
from cellsched.context import RequestContext
from cellsched import exception
from cellsched import objects
from cellsched.observability import tracing
from cellsched.rpc import delivery

LOG = log.getLogger(__name__)


#: Errors of a configuration or a deployment. An operator corrects them, and
#: another conductor may not have them.
_OF_CONFIGURATION: tuple[type[Exception], ...] = (
    cfg.Error, exception.ConfigurationInvalid, exception.SchemaOutOfDate,
    exception.SelectionObjectsWithOldRPCVersionNotSupported,
    exception.ServiceTooOld, exception.VersionNotSendable,
    exception.WrongDatabase)

#: Errors after which the same build may succeed later, or from another
#: conductor.
_TRANSIENT: tuple[type[Exception], ...] = (
    *_OF_CONFIGURATION,
    exception.BrokerRefused, exception.CellUnreachable,
    exception.ClaimBusy, exception.ClaimStoreFailed,
    exception.ConnectionLost,
    exception.DatabaseBusy, exception.DatabaseUnreachable,
    exception.DeadlineExceeded,
    exception.HostStateUncertain, exception.LimitsUnavailable,
    exception.ServiceBusy, exception.TransactionLost,
    oslo_messaging.MessageDeliveryFailure, oslo_messaging.MessagingTimeout,
    *delivery.BROKER_ERRORS)


def _names(kinds: Iterable[type[Exception]]) -> Iterator[str]:
    """Yield the names of classes, and of subclasses with names of their own.

    Other libraries have errors of the same names as the subclasses of the
    broker's errors, and as the base class of oslo.config's.
    """
    for each in kinds:
        if each is not cfg.Error:
            yield each.__name__
        if issubclass(each, (cfg.Error, exception.CellschedException)):
            yield from _names(each.__subclasses__())


_TRANSIENT_NAMES = frozenset(_names(_TRANSIENT))


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
    #: The quota limits under which it was accepted, if recorded.
    quota: Mapping[str, Mapping[str, int]] | None = None
    #: A text that builds with equal request specs share; empty if unknown.
    alike: str = ''
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
        counted = sum(
            build.deleted or build.finished for build in self.builds)
        return max(min(self.least, len(self.builds)) - counted, 1)

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
    return [build for build in builds if build._outcome is Outcome.IN_PROGRESS]


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


#: Builds of a batch from which on other batches do not wait for it.
LARGE = 20

#: Attempts of a step whose transactions conflict with others.
_ATTEMPTS_MAX = 5


class Step(abc.ABC):
    """One step of a task.

    ``do`` and ``undo`` must be idempotent. A call may have builds of several
    batches, with different request contexts.
    """

    #: Whether a build can no longer be rolled back after this step.
    final = False
    #: The name of its span; empty for no span. Batched steps are one span.
    span = ''
    #: Whether one call serves all batches that have reached this step. A
    #: batch for which :meth:`waits` is true is done alone.
    batched = False

    @property
    def name(self) -> str:
        return type(self).__name__

    def waits(self, builds: Sequence[Build]) -> bool:
        """Return whether the step may take long for these builds.

        Other batches do not wait for them then.
        """
        return len(builds) > LARGE

    @abc.abstractmethod
    def do(self, builds: Sequence[Build]) -> None:
        """Do the step for builds in progress.

        May end some of them. An exception fails all the others.
        """

    def undo(self, connection: Any, builds: Sequence[Build]) -> None:
        """Roll the step back; does nothing by default.

        Must succeed where the step was done in part or not at all. After an
        exception a later attempt rolls it back.

        :param connection: on the API database, in the transaction of the
            fence: no other conductor can lease these builds until the rollback
            ends
        """

    def after_undo(self, builds: Sequence[Build]) -> None:
        """Do the part of the rollback that must not run in the fence."""


#: Keeps the builds leased by this conductor during their rollback.
Fence: TypeAlias = Callable[
    [Sequence[Build]], contextlib.AbstractContextManager[Any]]


@dataclasses.dataclass(eq=False)
class _BatchProgress:
    """A batch on its way through the steps.

    :param live: builds that have not been rolled back
    :ivar builds: builds to do the next step for; a build that ended before the
        batch started is live but not among them
    """

    batch: Batch
    live: list[Build]
    reached: Callable[[str], None]
    #: Builds that the last step ended; rolled back before the next step.
    ended: Sequence[Build] = ()
    #: Number of steps done.
    place: int = 0

    def __post_init__(self) -> None:
        self.builds = in_progress(self.live)

    def settle(self, step: Step) -> None:
        """Separate the builds that the step ended from the others."""
        self.place += 1
        if not step.final:
            self.batch.fail_together()
        self.ended = [build for build in self.live if build.ended]
        self.live = self.builds = in_progress(self.live)


class Runner:
    """Runs batches through the steps, in order.

    Batches that reach a batched step while it runs for others wait. Then one
    thread runs all waiting batches through it together.

    :param at_once: transactions of batched steps that may run at a time
    :param make_lock: see :meth:`cellsched.clock.Clock.lock`
    """

    def __init__(
        self, steps: Sequence[Step], at_once: int = 1,
        make_lock: Callable[[], clock.Lock] = threading.Lock,
    ) -> None:
        self._steps = steps
        self._together = batching.GroupCommit(
            self._run_batched, at_once, make_lock)

    def run(
        self, batch: Batch, fence: Fence = contextlib.nullcontext,
        reached: Callable[[str], None] = lambda step: None,
    ) -> list[Build]:
        """Do the steps; roll back the builds that end early, in reverse order.

        If fewer builds than the batch needs remain, all of them fail.

        :param fence: entered during a rollback; marks builds that another
            conductor has leased or finished, and keeps the others leased
        :param reached: called with the name of each step that was done
        :returns: the builds that went through all steps
        """
        progress = _BatchProgress(batch, [*batch.builds], reached)
        for build in batch.builds:
            build.batch = batch
        while progress.live and progress.place < len(self._steps):
            # 1. Do the step. A batched step is done together with the other
            #    batches that have reached it.
            self._run_next(progress)
            # 2. Roll back the builds that the step ended, inside the fence.
            if progress.ended:
                done = self._steps[:progress.place]
                _undo(self._steps, done, progress.ended, fence)
                reached(f'undone {done[-1].name}')
                progress.ended = ()
        return progress.live

    def _run_next(self, progress: _BatchProgress) -> None:
        step = self._steps[progress.place]
        name = 'write to cell' if step.batched else step.span
        with tracing.span(name) if name else contextlib.nullcontext() as span:
            if step.batched and not step.waits(progress.builds):
                self._together.do(progress)
            else:
                _run_step(step, [progress])
            if span is not None:
                _describe(progress, span)

    def _run_batched(self, waiting: Sequence[_BatchProgress]) -> None:
        # A batch leaves the group at the first step that is not batched, or
        # when some of its builds must be rolled back.
        for place, step in enumerate(self._steps):
            group = [progress for progress in waiting
                     if progress.place == place and progress.live
                     and not progress.ended
                     and not step.waits(progress.builds)]
            if group and step.batched:
                _run_step(step, group)


def _describe(progress: _BatchProgress, span: tracing.Span) -> None:
    """Add the cells of a batch, and the first error, to a span."""
    if not span.is_on:
        return
    builds = [*progress.live, *progress.ended]
    span.serve([build.uuid for build in builds])
    names = {build.cell.name or build.cell.uuid
             for build in builds if build.cell}
    if names:
        span.set(tracing.CELL, ', '.join(sorted(names)))
    reason = next((build.reason for build in builds if build.reason), None)
    if reason is not None:
        span.fail(reason)


def _run_step(step: Step, group: Sequence[_BatchProgress]) -> None:
    """Do a step for some batches; after an error, for each one separately."""
    builds = [build for progress in group for build in progress.builds]
    try:
        _do(step, builds)
    except Exception as exc:
        if len(group) > 1:
            # One batch may have caused the error: do each separately.
            for progress in group:
                progress.builds = in_progress(progress.builds)
                _run_step(step, [progress])
            return
        _fail(step, builds, exc)
    for progress in group:
        progress.reached(step.name)
    for progress in group:
        progress.settle(step)


def _fail(step: Step, builds: Sequence[Build], exc: Exception) -> None:
    uuids = exception.name_some(build.uuid for build in builds)
    if isinstance(exc, (
            exception.HardwareRequestInvalid, exception.InvalidField)):
        # An error of the request, not of this service.
        LOG.info('Step %s refused instances %s: %s', step.name, uuids,
                 exc.format_message())
    elif is_transient(exc):
        LOG.warning('Step %s failed for instances %s: %s', step.name, uuids,
                    exception.describe(exc))
    else:
        LOG.exception('Step %s failed for instances %s', step.name, uuids)
    for build in in_progress(builds):
        build.fail(exc)


def _do(step: Step, builds: Sequence[Build]) -> None:
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        try:
            if builds:
                step.do(builds)
            return
        except (exception.ConnectionLost, exception.TransactionLost) as exc:
            # A busy database has cost the time of its limit already.
            if attempt == _ATTEMPTS_MAX or isinstance(
                    exc, exception.DatabaseBusy):
                raise
            LOG.info('Retrying step %s: %s', step.name, exc)
            builds = in_progress(builds)


def _undo(
    steps: Sequence[Step], done: Sequence[Step],
    builds: Sequence[Build], fence: Fence,
) -> None:
    # 1. Undo in one transaction, in reverse order, while this conductor has
    #    the lease. An earlier, interrupted attempt may have done later steps,
    #    so all steps of a repeated build are undone.
    try:
        with fence(builds) as connection:
            batches = [
                (step, [build for build in builds if not build.finished
                        and (build.again or step in done)])
                for step in reversed(steps)]
            for step, batch in batches:
                if batch:
                    step.undo(connection, batch)
        # 2. Claims and messages follow the commit: they cannot be rolled back
        #    with it.
        for step, batch in batches:
            if batch:
                step.after_undo(batch)
    except Exception as exc:
        # The earlier steps stay done: for example, a claim must stay while
        # the cell may still have the row.
        transient = is_transient(exc)
        LOG.log(logging.WARNING if transient else logging.ERROR,
                'Rollback of the builds of instances %s failed; a later '
                'attempt resolves them: %s',
                exception.name_some(build.uuid for build in builds),
                exception.describe(exc), exc_info=not transient)
        for build in builds:
            if build.to_bury or build.to_retry:
                build.end(Outcome.UNKNOWN)
