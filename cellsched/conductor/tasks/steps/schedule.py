# SPDX-License-Identifier: Apache-2.0
"""Steps before the decision: deadline, cell0, and the scheduler."""

from collections.abc import Sequence
import datetime
from typing import Any

from oslo_log import log
import oslo_messaging

from cellsched.cells.cell0 import Cell0
from cellsched.claims import base as claims_base
from cellsched.conductor.tasks import lease
from cellsched.conductor.tasks import saga
from cellsched.conductor.tasks.saga import Build
from cellsched.conductor.tasks.saga import Outcome
from cellsched.context import RequestContext
from cellsched.db.api import build_requests
from cellsched.db.api import instance_groups
from cellsched.db import session
from cellsched import exception
from cellsched import objects
from cellsched.rpc import scheduler as scheduler_rpc

LOG = log.getLogger(__name__)


class Expire(saga.Step):
    """Fail builds older than the deadline, by the API database's clock.

    At least ``attempts`` attempts are made first, so that a clock jump cannot
    fail a new build.

    :param database: the API database
    :param deadline_s: seconds since the request was accepted
    :param attempts: minimum number of attempts
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
    """Remove the cell0 record of a server that its user retries.

    The record must be gone before the server can have another cell. The
    request is marked in the same transaction, and is locked while it is open.
    So no other conductor can write a new record in cell0 that this step would
    remove.

    :param lease_s: seconds for which the leases are renewed
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
            owned = lease.renew(
                connection, buried,
                self._database.timestamp() + self._lease_s)
            if owned:
                uuids = [build.uuid for build in owned]
                self._cell0.remove(cell0, uuids)
                build_requests.mark_unburied(connection, uuids)
            lost = [build for build in buried if build not in owned]
            if lost:
                lease.resolve_lost(connection, lost)


class Schedule(saga.Step):
    """Call the scheduler once for a batch.

    If the scheduler can place at least the minimum of the batch, the first
    builds are placed and the others fail. The request carries the current
    members of the server group.
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
        pending = builds
        batch = builds[0].batch
        least = batch.least if batch else 1
        while pending:
            try:
                return self._select(pending)
            except exception.NoValidHost as exc:
                # Other requests may have claimed capacity since the count.
                placed = exc.kwargs.get('placed', 0)
                if not least <= placed < len(pending):
                    placed = 0
                for build in pending[placed:]:
                    build.end(Outcome.FAILED, exc)
                pending = pending[:placed]

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
        """Call the scheduler; repeat the call once after a timeout.

        The scheduler that had the first call was probably killed or stopped.
        Claims that it made, or makes later, are for the same instances, which
        keep them.
        """
        try:
            return self._scheduler.select_destinations(context, spec, uuids)
        except oslo_messaging.MessagingTimeout:
            LOG.warning('No scheduler answered in time for instances %s; '
                        'repeating the call', uuids)
        return self._scheduler.select_destinations(context, spec, uuids)

    def undo(self, connection: Any, builds: Sequence[Build]) -> None:
        if self._fenced:
            self._claims.release([build.uuid for build in builds])

    def after_undo(self, builds: Sequence[Build]) -> None:
        if not self._fenced:
            self._claims.release([build.uuid for build in builds])


def read_group(connection: Any, spec: objects.RequestSpec) -> None:
    """Update the server group of a request to its current state."""
    spec.instance_group = instance_groups.find(
        connection, spec.instance_group.uuid)
    if spec.instance_group is None:
        # The group was deleted, so there is no policy to keep.
        spec.scheduler_hints = {
            name: values for name, values
            in (spec.get('scheduler_hints') or {}).items()
            if name != 'group'}


#: Attempts of a claim that conflicts with a claim of the same instance.
_CONFLICTS_MAX = 5


class Alternates:
    """Claims an alternate in place of the host that a build leaves."""

    def __init__(self, claims: claims_base.ClaimStore) -> None:
        self._claims = claims

    def claim_first(
        self, instance: objects.Instance, hosts: list[objects.Selection],
        group: objects.InstanceGroup | None,
    ) -> objects.Selection | None:
        """Claim the first host with capacity; return None if there is none.

        Removes it and the hosts before it from ``hosts``. Releases the claims
        on the host that the build leaves.
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
                LOG.info('Host %s is skipped for instance %s: %s',
                         chosen.service_host, uuid, exc)
            else:
                return chosen
        return None

    def _claim(self, claims: Sequence[claims_base.Claim]) -> None:
        """Claim in place of the claims that the instance holds now.

        A scheduler whose call was repeated may have claimed again after the
        release.
        """
        for attempt in range(1, _CONFLICTS_MAX + 1):
            try:
                self._claims.claim(claims)
                return
            except exception.ClaimConflict:
                if attempt == _CONFLICTS_MAX:
                    raise
                self._claims.release([claims[0].consumer])
