# SPDX-License-Identifier: Apache-2.0
"""Running steps over a batch of builds, and undoing them."""

import abc
from collections.abc import Callable
from collections.abc import Sequence
import dataclasses

from oslo_log import log

from cellsched import context as context_
from cellsched import exception
from cellsched import objects

LOG = log.getLogger(__name__)

#: Times to do a step whose transactions lose to others.
_TRIES_MAX = 5


@dataclasses.dataclass
class Build:
    """One instance on its way into a cell.

    It leaves the batch when it has ``failed``, was ``deleted`` by its user,
    or was ``finished`` by somebody else who worked on it too.
    """

    request: objects.BuildRequest
    spec: objects.RequestSpec
    selections: list[objects.Selection] = dataclasses.field(
        default_factory=list)
    cell: objects.CellMapping | None = None
    failed: Exception | None = None
    deleted: bool = False
    finished: bool = False
    #: Who finished it decided on another cell than ``cell``.
    elsewhere: bool = False
    #: An undo failed, so what became of it has to be found out later.
    unclear: bool = False
    #: An earlier try was not brought to an end, and may have done any step.
    again: bool = False
    #: The cell that the earlier try decided on.
    earlier: objects.CellMapping | None = None

    @property
    def uuid(self) -> str:
        return self.request.instance_uuid

    @property
    def instance(self) -> objects.Instance:
        return self.request.instance

    @property
    def ended(self) -> bool:
        return self.failed is not None or self.deleted or self.finished

    @property
    def to_bury(self) -> bool:
        """Whether it failed, is ours alone, and left nothing behind."""
        return self.failed is not None and not (
            self.deleted or self.finished or self.unclear)


class Step(abc.ABC):
    """One step of a task.

    Both methods are given builds that share a fate so far, and must be able
    to run twice for the same builds.
    """

    @abc.abstractmethod
    def do(
        self, context: context_.RequestContext, builds: Sequence[Build]
    ) -> None:
        """Take builds one step on.

        May end some of them by their fields; an exception fails them all.
        """

    def undo(
        self, context: context_.RequestContext, builds: Sequence[Build]
    ) -> None:
        """Leave nothing of the step behind; does nothing by default.

        Must succeed where the step was done in part or not at all. An
        exception leaves it to a later try.
        """


def run(
    context: context_.RequestContext, steps: Sequence[Step],
    builds: Sequence[Build],
    settle: Callable[[Sequence[Build]], None] = lambda builds: None,
) -> list[Build]:
    """Run steps in order; undo them, in reverse, for builds that end early.

    :param settle: is asked before builds are undone; it marks as finished
        those that are somebody else's by now
    :returns: the builds that went through every step
    """
    done: list[Step] = []
    live = list(builds)
    for step in steps:
        if not live:
            break
        done.append(step)
        try:
            _do(context, step, live)
        except exception.InvalidField as exc:
            # What was asked for is wrong, and not what is done here.
            LOG.info('Step %s refused %s: %s', type(step).__name__,
                     [build.uuid for build in live], exc.format_message())
            _fail(live, exc)
        except Exception as exc:
            LOG.exception('Step %s failed for %s', type(step).__name__,
                          [build.uuid for build in live])
            _fail(live, exc)
        ended = [build for build in live if build.ended]
        live = [build for build in live if not build.ended]
        if ended:
            _undo(context, steps, done, ended, settle)
    return live


def _fail(builds: Sequence[Build], exc: Exception) -> None:
    for build in builds:
        build.failed = build.failed or exc


def _do(
    context: context_.RequestContext, step: Step, builds: Sequence[Build]
) -> None:
    for left in reversed(range(_TRIES_MAX)):
        try:
            return step.do(
                context, [build for build in builds if not build.ended])
        except exception.TransactionLost as exc:
            if not left:
                raise
            LOG.info('Step %s is done again: %s', type(step).__name__, exc)


def _undo(
    context: context_.RequestContext, steps: Sequence[Step],
    done: Sequence[Step], builds: Sequence[Build],
    settle: Callable[[Sequence[Build]], None],
) -> None:
    try:
        settle(builds)
        builds = [build for build in builds if not build.finished]
        for step in reversed(steps):
            batch = [build for build in builds
                     if build.again or step in done]
            if batch:
                step.undo(context, batch)
    except Exception:
        # Steps before the one that could not be undone stay done: what they
        # hold protects what is left of it.
        LOG.exception('Undoing the builds of %s failed; they are left to a '
                      'later try', [build.uuid for build in builds])
        for build in builds:
            build.unclear = True
