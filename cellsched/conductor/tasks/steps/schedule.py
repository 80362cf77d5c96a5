# SPDX-License-Identifier: Apache-2.0
"""The step that asks the scheduler for hosts."""

from collections.abc import Sequence
import datetime
from typing import Any

from oslo_log import log
import oslo_messaging

from cellsched.cells.cell0 import Cell0
from cellsched.claims import base as claims_base
from cellsched.conductor.tasks.build import Build
from cellsched.conductor.tasks.build import Outcome
from cellsched.conductor.tasks import lease
from cellsched.conductor.tasks import saga
from cellsched.context import RequestContext
from cellsched.db.api import build_requests
from cellsched.db.api import instance_groups
from cellsched.db import session
from cellsched import exception
from cellsched import objects
from cellsched.rpc import scheduler as scheduler_rpc

LOG = log.getLogger(__name__)


class Expire(saga.Step):
    """Fail what was tried for too long.

    That is by the clock of the API database. Where it jumps, that is no
    reason to: what was accepted just now is tried some times before.

    :param database: the API database
    :param deadline_s: seconds since the request was accepted
    :param attempts: how often it is taken up at least
    """

    def __init__(
        self, database: session.Database, deadline_s: float, attempts: int
    ) -> None:
        self._database = database
        self._deadline_s = deadline_s
        self._attempts = attempts

    def do(self, builds: Sequence[Build]) -> None:
        now = self._database.timestamp()
        for build in builds:
            accepted = build.request.created_at.replace(tzinfo=datetime.UTC)
            if (build.tries > self._attempts
                    and now - accepted.timestamp() > self._deadline_s):
                build.end(
                    Outcome.FAILED, exception.BuildDeadlineExceeded(
                        seconds=round(self._deadline_s),
                        attempts=build.tries - 1,
                        reason=build.request.get('failure')
                        or 'It did not end.'))


class RemoveFromCell0(saga.Step):
    """Remove what lies in cell0 of servers that their users have retried.

    It goes before they can have another cell, or they would be in two. Their
    requests say that nothing lies there any more in the transaction in which
    it is done: while that is open nobody else can take them up and bury them
    again, so that no later record is removed.

    :param lease_s: seconds to lease the requests for from now on
    """

    def __init__(
        self, database: session.Database, cell0: Cell0, lease_s: float
    ) -> None:
        self._database = database
        self._cell0 = cell0
        self._lease_s = lease_s

    def do(self, builds: Sequence[Build]) -> None:
        buried = [build for build in builds if build.request.get('buried')]
        if not buried:
            return
        try:
            self._remove(buried)
        except exception.TransactionLost:
            raise
        except Exception as exc:
            self._cell0.explain(
                [build.uuid for build in buried], exc, buried[0].owner)
            raise

    def _remove(self, buried: Sequence[Build]) -> None:
        cell0 = self._cell0.database()
        with self._database.writer() as connection:
            mine = lease.renew(
                connection, buried,
                self._database.timestamp() + self._lease_s)
            if mine:
                uuids = [build.uuid for build in mine]
                self._cell0.remove(cell0, uuids)
                build_requests.mark_unburied(connection, uuids)
            lost = [build for build in buried if build not in mine]
            if lost:
                lease.resolve_lost(connection, lost)


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

    def after_undo(self, builds: Sequence[Build]) -> None:
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


#: Times to claim a host for a build that others claim another one for.
_CONFLICTS_MAX = 5


class Alternates:
    """Claims alternates, in place of the host that a build leaves."""

    def __init__(self, claims: claims_base.ClaimStore) -> None:
        self._claims = claims

    def claim_first(
        self, instance: objects.Instance, hosts: list[objects.Selection],
        group: objects.InstanceGroup | None,
    ) -> objects.Selection | None:
        """Claim the first host that has room; drop it and those before it.

        What the build holds is on the host that it leaves.
        """
        uuid = instance.uuid
        self._claims.release([uuid])
        while hosts:
            chosen = hosts.pop(0)
            try:
                self._claim(claims_base.of_selection(
                    uuid, chosen, group, instance.get('project_id'),
                    instance.get('user_id')))
            except exception.ClaimRefused as exc:
                LOG.info('%s is passed over for %s: %s',
                         chosen.service_host, uuid, exc)
            else:
                return chosen
        return None

    def _claim(self, claims: Sequence[claims_base.Claim]) -> None:
        """Claim what this build is to hold, in place of what it holds.

        A scheduler that was asked for its first host once more may have
        claimed since the build gave back what it held.
        """
        for left in reversed(range(_CONFLICTS_MAX)):
            try:
                self._claims.claim(claims)
                return
            except exception.ClaimConflict:
                if not left:
                    raise
                self._claims.release([claims[0].consumer])
