# SPDX-License-Identifier: Apache-2.0
"""Running steps over a batch of builds, and undoing them."""

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

#: Times to do a step whose transactions lose to others.
_TRIES_MAX = 5


class Step(abc.ABC):
    """One step of a task.

    Both methods are given builds that share a fate so far, and must be able
    to run twice for the same builds. They may be of several batches, and on
    behalf of different users.
    """

    #: Whether builds that come after it are past all undoing.
    final = False
    #: Whether it is done at once for all batches that have come to it.
    batched = False

    @property
    def name(self) -> str:
        return type(self).__name__

    @abc.abstractmethod
    def do(self, builds: Sequence[Build]) -> None:
        """Take builds one step on.

        May end some of them; an exception fails all others.
        """

    def undo(self, connection: Any, builds: Sequence[Build]) -> None:
        """Leave nothing of the step behind; does nothing by default.

        Must succeed where the step was done in part or not at all. An
        exception leaves it to a later try.

        :param connection: on the API database, in a transaction that lets
            nobody else take up these builds until all of it is undone
        """

    def after_undo(self, builds: Sequence[Build]) -> None:
        """Do what cannot be done while that transaction is open."""


#: Keeps builds ours while they are undone.
Fence: TypeAlias = Callable[
    [Sequence[Build]], contextlib.AbstractContextManager[Any]]


@dataclasses.dataclass(eq=False)
class _BatchProgress:
    """A batch on its way through the steps.

    :param live: its builds that go on
    :ivar wanted: those of them that the next step is done for: not what had
        ended when the batch came
    """

    batch: Batch
    live: list[Build]
    reached: Callable[[str], None]
    #: Those that the last step ended, to be undone before the next one.
    ended: Sequence[Build] = ()
    #: How many steps were done.
    place: int = 0

    def __post_init__(self) -> None:
        self.wanted = in_progress(self.live)

    def settle(self, step: Step) -> None:
        """Find out who goes on from a step that was done."""
        self.place += 1
        self.live, self.ended = self.batch.settle(
            self.live, together=not step.final)
        self.wanted = self.live


class Runner:
    """Takes batches through steps, in order.

    Those that come to the joint steps meanwhile wait, and then one thread
    takes all of them on, until their ways part.

    :param at_once: how many transactions of joint steps there may be at a
        time
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
        """Do the steps; undo them, in reverse, for builds that end early.

        When too few of the batch are left, all of them fail.

        :param fence: is entered while builds are undone; it marks as finished
            those that are somebody else's by now, and lets nobody else take
            the others up
        :param reached: is told what was done, by the name of the step
        :returns: the builds that went through every step
        """
        course = _BatchProgress(batch, [*batch.builds], reached)
        for build in batch.builds:
            build.batch = batch
        while course.live and course.place < len(self._steps):
            step = self._steps[course.place]
            if step.batched:
                self._together.do(course)
            else:
                _pass(step, [course])
            if course.ended:
                done = self._steps[:course.place]
                _undo(self._steps, done, course.ended, fence)
                reached(f'undone {done[-1].name}')
                course.ended = ()
        return course.live

    def _run_batched(self, courses: Sequence[_BatchProgress]) -> None:
        for place, step in enumerate(self._steps):
            there = [course for course in courses if course.place == place
                     and course.live and not course.ended]
            if there and step.batched:
                _pass(step, there)


def _pass(step: Step, courses: Sequence[_BatchProgress]) -> None:
    """Take batches one step on; each on its own where that fails."""
    wanted = [build for course in courses for build in course.wanted]
    try:
        _do(step, wanted)
    except Exception as exc:
        if len(courses) > 1:
            for course in courses:
                course.wanted = in_progress(course.wanted)
                _pass(step, [course])
            return
        _fail(step, wanted, exc)
    for course in courses:
        course.reached(step.name)
    for course in courses:
        course.settle(step)


def _fail(step: Step, builds: Sequence[Build], exc: Exception) -> None:
    uuids = [build.uuid for build in builds]
    if isinstance(exc, exception.InvalidField):
        # What was asked for is wrong, and not what is done here.
        LOG.info('Step %s refused %s: %s', step.name, uuids,
                 exc.format_message())
    elif is_transient(exc):
        LOG.warning('Step %s failed for %s: %s', step.name, uuids,
                    delivery.describe(exc))
    else:
        LOG.exception('Step %s failed for %s', step.name, uuids)
    for build in in_progress(builds):
        build.fail(exc)


def _do(step: Step, builds: Sequence[Build]) -> None:
    for left in reversed(range(_TRIES_MAX)):
        try:
            if builds:
                step.do(builds)
            return
        except exception.TransactionLost as exc:
            if not left:
                raise
            LOG.info('Step %s is done again: %s', step.name, exc)
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
        # Steps before the one that could not be undone stay done: what they
        # hold protects what is left of it.
        transient = is_transient(exc)
        LOG.log(logging.WARNING if transient else logging.ERROR,
                'Undoing the builds of %s failed; they are left to a later '
                'try: %s', [build.uuid for build in builds],
                delivery.describe(exc), exc_info=not transient)
        for build in builds:
            if build.to_bury or build.to_retry:
                build.end(Outcome.UNKNOWN)
