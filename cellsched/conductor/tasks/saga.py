# SPDX-License-Identifier: Apache-2.0
"""Running steps over a batch of builds, and rolling them back."""

import abc
from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import dataclasses
import logging
import threading
from typing import Any
from typing import TypeAlias

from oslo_log import log

from cellsched import batching
from cellsched import clock
from cellsched.conductor.tasks.build import Batch
from cellsched.conductor.tasks.build import Build
from cellsched.conductor.tasks.build import in_progress
from cellsched.conductor.tasks.build import is_transient
from cellsched.conductor.tasks.build import Outcome
from cellsched import exception
from cellsched.rpc import delivery

LOG = log.getLogger(__name__)

#: Attempts of a step whose transactions conflict with others.
_ATTEMPTS_MAX = 5


class Step(abc.ABC):
    """One step of a task.

    ``do`` and ``undo`` must be idempotent. A call may have builds of several
    batches, with different request contexts.
    """

    #: Whether a build can no longer be rolled back after this step.
    final = False
    #: Whether one call serves all batches that have reached this step.
    batched = False

    @property
    def name(self) -> str:
        return type(self).__name__

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
        self.live, self.ended = self.batch.settle(
            self.live, together=not step.final)
        self.builds = self.live


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
            step = self._steps[progress.place]
            if step.batched:
                self._together.do(progress)
            else:
                _run_step(step, [progress])
            # 2. Roll back the builds that the step ended, inside the fence.
            if progress.ended:
                done = self._steps[:progress.place]
                _undo(self._steps, done, progress.ended, fence)
                reached(f'undone {done[-1].name}')
                progress.ended = ()
        return progress.live

    def _run_batched(self, waiting: Sequence[_BatchProgress]) -> None:
        # A batch leaves the group at the first step that is not batched, or
        # when some of its builds must be rolled back.
        for place, step in enumerate(self._steps):
            group = [progress for progress in waiting
                     if progress.place == place and progress.live
                     and not progress.ended]
            if group and step.batched:
                _run_step(step, group)


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
    uuids = [build.uuid for build in builds]
    if isinstance(exc, exception.InvalidField):
        # An error of the request, not of this service.
        LOG.info('Step %s refused instances %s: %s', step.name, uuids,
                 exc.format_message())
    elif is_transient(exc):
        LOG.warning('Step %s failed for instances %s: %s', step.name, uuids,
                    delivery.describe(exc))
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
        except exception.TransactionLost as exc:
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
    try:
        with fence(builds) as connection:
            batches = [
                (step, [build for build in builds if not build.finished
                        and (build.again or step in done)])
                for step in reversed(steps)]
            for step, batch in batches:
                if batch:
                    step.undo(connection, batch)
        for step, batch in batches:
            if batch:
                step.after_undo(batch)
    except Exception as exc:
        # The earlier steps stay done: for example, a claim must stay while
        # the cell may still have the row.
        transient = is_transient(exc)
        LOG.log(logging.WARNING if transient else logging.ERROR,
                'Rollback of the builds of instances %s failed; a later '
                'attempt resolves them: %s', [build.uuid for build in builds],
                delivery.describe(exc), exc_info=not transient)
        for build in builds:
            if build.to_bury or build.to_retry:
                build.end(Outcome.UNKNOWN)
