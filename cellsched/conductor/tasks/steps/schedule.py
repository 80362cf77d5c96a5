# SPDX-License-Identifier: Apache-2.0
"""The step that asks the scheduler for hosts."""

from collections.abc import Sequence
from typing import Any

from oslo_log import log
import oslo_messaging

from cellsched.claims import base as claims_base
from cellsched.conductor.tasks.build import Build
from cellsched.conductor.tasks.build import Outcome
from cellsched.conductor.tasks import saga
from cellsched.context import RequestContext
from cellsched.db.api import instance_groups
from cellsched.db import session
from cellsched import exception
from cellsched import objects
from cellsched.rpc import scheduler as scheduler_rpc

LOG = log.getLogger(__name__)


class Schedule(saga.Step):
    """Ask the scheduler, once for a batch.

    If not all of them fit but as many as were asked for at least, the first
    ones are placed and the others fail. It is told who is in their server
    group now: others joined and left since they were accepted.
    """

    def __init__(
        self, database: session.Database,
        scheduler: scheduler_rpc.SchedulerAPI,
        claims: claims_base.ClaimStore, fenced: bool = True,
    ) -> None:
        self._database = database
        self._scheduler = scheduler
        self._claims = claims
        self._fenced = fenced

    def do(self, builds: Sequence[Build]) -> None:
        wanted = builds
        batch = builds[0].batch
        least = batch.least if batch else 1
        while wanted:
            try:
                return self._select(wanted)
            except exception.NoValidHost as exc:
                # Others may have taken room since it was counted.
                placed = exc.kwargs.get('placed', 0)
                if not least <= placed < len(wanted):
                    placed = 0
                for build in wanted[placed:]:
                    build.end(Outcome.FAILED, exc)
                wanted = wanted[:placed]

    def _select(self, builds: Sequence[Build]) -> None:
        spec = builds[0].spec
        spec.num_instances = len(builds)
        if spec.get('instance_group') is not None:
            with self._database.reader() as connection:
                read_group(connection, spec)
        chosen = self._ask(builds[0].context, spec,
                           [build.uuid for build in builds])
        for build, selections in zip(builds, chosen, strict=True):
            build.selections = selections

    def _ask(
        self, context: RequestContext, spec: objects.RequestSpec,
        uuids: list[str],
    ) -> list[list[objects.Selection]]:
        """Return where builds go; ask once more if no scheduler answers.

        The one that had the question was killed or stopped, most likely, and
        is given no more. What it may have claimed, or claims when it goes on,
        is for the same builds, which get the same hosts.
        """
        try:
            return self._scheduler.select_destinations(context, spec, uuids)
        except oslo_messaging.MessagingTimeout:
            LOG.warning('No scheduler answered for %s in time; they are asked '
                        'again', uuids)
        return self._scheduler.select_destinations(context, spec, uuids)

    def undo(self, connection: Any, builds: Sequence[Build]) -> None:
        if self._fenced:
            self._claims.release([build.uuid for build in builds])

    def undone(self, builds: Sequence[Build]) -> None:
        if not self._fenced:
            self._claims.release([build.uuid for build in builds])


def read_group(connection: Any, spec: objects.RequestSpec) -> None:
    """Let a request have its server group as it is now, if there is one."""
    spec.instance_group = instance_groups.find(
        connection, spec.instance_group.uuid)
    if spec.instance_group is None:
        # It was deleted, so there is nothing left to be placed by.
        spec.scheduler_hints = {
            name: values for name, values
            in (spec.get('scheduler_hints') or {}).items()
            if name != 'group'}
