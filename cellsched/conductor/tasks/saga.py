# SPDX-License-Identifier: Apache-2.0
"""Running steps over a batch of builds, and undoing them."""

import abc
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import logging
import threading
from typing import Any
from typing import TypeAlias

from oslo_log import log
import oslo_messaging

from cellsched import clock as clock_
from cellsched import context as context_
from cellsched import exception
from cellsched import group_commit
from cellsched import objects
from cellsched.rpc import delivery

LOG = log.getLogger(__name__)

#: What passes: somebody did not answer, or could not tell, and may do so the
#: next time; or somebody else may.
_PASSING: tuple[type[Exception], ...] = (
    exception.BrokerRefused, exception.CellUnreachable,
    exception.DatabaseUnreachable, exception.DeadlineExceeded,
    exception.HostsInDoubt, exception.TransactionLost,
    oslo_messaging.MessageDeliveryFailure, oslo_messaging.MessagingTimeout,
    *delivery.BROKER_ERRORS)

_PASSING_NAMES = frozenset(each.__name__ for each in _PASSING)

#: Times to do a step whose transactions lose to others.
_TRIES_MAX = 5


@dataclasses.dataclass(eq=False)
class Build:
    """One instance on its way into a cell.

    It leaves the batch when it has ``failed``, was ``deleted`` by its user,
    or was ``finished`` by somebody else who worked on it too.
    """

    request: objects.BuildRequest
    spec: objects.RequestSpec
    #: On whose behalf it is built.
    context: context_.RequestContext
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
    failed: Exception | None = None
    deleted: bool = False
    finished: bool = False
    #: Who finished it decided on another cell than ``cell``.
    elsewhere: bool = False
    #: What it failed of passes, so that it is tried again soon, and until it
    #: is too late.
    later: bool = False
    #: An undo failed, so what became of it has to be found out later.
    unclear: bool = False
    #: The cell that the earlier try decided on.
    earlier: objects.CellMapping | None = None
    #: The ids of the cells in which this one may have written.
    written: set[int] = dataclasses.field(default_factory=set)

    @property
    def uuid(self) -> str:
        return self.request.instance_uuid

    @property
    def instance(self) -> objects.Instance:
        return self.request.instance

    @property
    def again(self) -> bool:
        """Whether an earlier try, which may have done any step, was cut."""
        return self.tries > 1

    @property
    def ended(self) -> bool:
        return self.failed is not None or self.deleted or self.finished

    @property
    def to_bury(self) -> bool:
        """Whether it failed for good, is ours alone, and left nothing."""
        return self.failed is not None and not (
            self.deleted or self.finished or self.unclear or self.later)

    @property
    def to_try_again(self) -> bool:
        """Whether it failed, and is left for a later try."""
        return self.failed is not None and (self.unclear or self.later) and (
            not (self.deleted or self.finished))


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
        """How many of those that are left must be built for any to be."""
        gone = sum(build.deleted or build.finished for build in self.builds)
        return max(min(self.least, len(self.builds)) - gone, 1)

    def fail_together(self) -> None:
        """Fail them all if too few of them are left.

        They are all tried again later, or none of them.
        """
        failed = [build for build in self.builds if build.failed is not None]
        left = len(self.builds) - len(failed)
        if not failed or left >= min(self.least, len(self.builds)):
            return
        first = next((build for build in failed if not build.later), failed[0])
        for build in self.builds:
            if not (build.deleted or build.finished):
                build.failed = build.failed or first.failed
                build.later = first.later


class Step(abc.ABC):
    """One step of a task.

    Both methods are given builds that share a fate so far, and must be able
    to run twice for the same builds. They may be of several batches, and on
    behalf of different users.
    """

    #: Whether builds that come after it are past all undoing.
    final = False
    #: Whether it is done at once for all batches that have come to it.
    joint = False

    @property
    def name(self) -> str:
        return type(self).__name__

    @abc.abstractmethod
    def do(self, builds: Sequence[Build]) -> None:
        """Take builds one step on.

        May end some of them by their fields; an exception fails them all.
        """

    def undo(self, connection: Any, builds: Sequence[Build]) -> None:
        """Leave nothing of the step behind; does nothing by default.

        Must succeed where the step was done in part or not at all. An
        exception leaves it to a later try.

        :param connection: on the API database, in a transaction that lets
            nobody else take up these builds until all of it is undone
        """

    def undone(self, builds: Sequence[Build]) -> None:
        """Do what cannot be done while that transaction is open."""


#: Keeps builds ours while they are undone.
Fence: TypeAlias = Callable[
    [Sequence[Build]], contextlib.AbstractContextManager[Any]]


def by_cell(
    builds: Sequence[Build],
) -> Iterator[tuple[objects.CellMapping, list[Build]]]:
    """Yield builds by their cell; those without one are left out."""
    return _grouped([(build.cell, build) for build in builds])


def by_any_cell(
    builds: Sequence[Build],
) -> Iterator[tuple[objects.CellMapping, list[Build]]]:
    """Yield builds by each cell that may know of them."""
    return _grouped([
        (cell, build) for build in builds
        for cell in (build.cell, build.earlier)])


def by_written_cell(
    builds: Sequence[Build],
) -> Iterator[tuple[objects.CellMapping, list[Build]]]:
    """Yield builds by each cell that may have rows of them."""
    return _grouped([
        (cell, build) for build in builds
        for cell in (build.cell, build.earlier)
        if cell and (cell is build.earlier or cell.id in build.written)])


def _grouped(
    pairs: Iterable[tuple[objects.CellMapping | None, Build]],
) -> Iterator[tuple[objects.CellMapping, list[Build]]]:
    groups: dict[int, tuple[objects.CellMapping, list[Build]]] = {}
    for cell, build in pairs:
        if cell is not None:
            groups.setdefault(cell.id, (cell, []))[1].append(build)
    for _, group in sorted(groups.items()):
        yield group


@dataclasses.dataclass(eq=False)
class _Course:
    """A batch on its way through the steps.

    :param live: its builds that go on
    """

    batch: Batch
    live: list[Build]
    reached: Callable[[str], None]
    #: Those that the last step ended, to be undone before the next one.
    ended: Sequence[Build] = ()
    #: How many steps were done.
    place: int = 0

    def settle(self, step: Step) -> None:
        """Find out who goes on from a step that was done."""
        self.place += 1
        if not step.final:
            self.batch.fail_together()
        self.ended = [build for build in self.live if build.ended]
        self.live = [build for build in self.live if not build.ended]


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
        make_lock: Callable[[], clock_.Lock] = threading.Lock,
    ) -> None:
        self._steps = steps
        self._together = group_commit.GroupCommit(
            self._pass_joint, at_once, make_lock)

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
        course = _Course(batch, [*batch.builds], reached)
        for build in batch.builds:
            build.batch = batch
        while course.live and course.place < len(self._steps):
            step = self._steps[course.place]
            if step.joint:
                self._together.do(course)
            else:
                _pass(step, [course])
            if course.ended:
                done = self._steps[:course.place]
                _undo(self._steps, done, course.ended, fence)
                reached(f'undone {done[-1].name}')
                course.ended = ()
        return course.live

    def _pass_joint(self, courses: Sequence[_Course]) -> None:
        for place, step in enumerate(self._steps):
            there = [course for course in courses if course.place == place
                     and course.live and not course.ended]
            if there and step.joint:
                _pass(step, there)


def _pass(step: Step, courses: Sequence[_Course]) -> None:
    """Take batches one step on; each on its own where that fails."""
    live = [build for course in courses for build in course.live]
    try:
        _do(step, live)
    except Exception as exc:
        if len(courses) > 1:
            for course in courses:
                _pass(step, [course])
            return
        _fail(step, live, exc)
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
    elif passes(exc):
        LOG.warning('Step %s failed for %s: %s', step.name, uuids,
                    delivery.describe(exc))
    else:
        LOG.exception('Step %s failed for %s', step.name, uuids)
    for build in builds:
        build.failed = build.failed or exc
    put_off(builds, exc)


def passes(exc: BaseException) -> bool:
    """Return whether what failed of an error may be tried again.

    What another service failed of counts too, in whatever form it is told.
    """
    return isinstance(exc, _PASSING) or (
        isinstance(exc, oslo_messaging.RemoteError)
        and exception.kind_of(exc) in _PASSING_NAMES)


def put_off(builds: Sequence[Build], exc: Exception) -> None:
    """Have builds tried again later if what they failed of passes."""
    for build in builds:
        if build.failed is exc and passes(exc):
            build.later = True


def _do(step: Step, builds: Sequence[Build]) -> None:
    for left in reversed(range(_TRIES_MAX)):
        try:
            if wanted := [build for build in builds if not build.ended]:
                step.do(wanted)
            return
        except exception.TransactionLost as exc:
            if not left:
                raise
            LOG.info('Step %s is done again: %s', step.name, exc)


def _undo(
    steps: Sequence[Step], done: Sequence[Step], builds: Sequence[Build],
    fence: Fence,
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
                step.undone(batch)
    except Exception as exc:
        # Steps before the one that could not be undone stay done: what they
        # hold protects what is left of it.
        LOG.log(logging.WARNING if passes(exc) else logging.ERROR,
                'Undoing the builds of %s failed; they are left to a later '
                'try: %s', [build.uuid for build in builds],
                delivery.describe(exc), exc_info=not passes(exc))
        for build in builds:
            build.unclear = True
