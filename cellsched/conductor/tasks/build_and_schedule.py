# SPDX-License-Identifier: Apache-2.0
"""From accepted build requests to builds in their cells."""

from collections.abc import Callable
from collections.abc import Sequence
import itertools

from oslo_log import log
from oslo_utils import uuidutils

from cellsched.cells import cell0 as cell0_
from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched import clock as clock_
from cellsched.conductor.tasks import base
from cellsched.conductor.tasks import steps
from cellsched import context as context_
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instances
from cellsched.db import session
from cellsched.rpc import compute as compute_rpc
from cellsched.rpc import scheduler as scheduler_rpc

LOG = log.getLogger(__name__)


class BuildAndSchedule:
    """Builds a batch of accepted requests, or buries them with the reason.

    The batch is leased, placed by one call of the scheduler, given its cells,
    written there, and handed to the compute hosts. Whatever fails on the way
    is undone and buried in cell0. A request that its user deletes meanwhile
    leaves nothing behind.

    :param database: the API database
    :param host: who says so in faults
    :param lease_s: seconds for which a batch is ours
    """

    def __init__(
        self, database: session.Database, targets: target.Targets,
        cell0: cell0_.Cell0, scheduler: scheduler_rpc.SchedulerAPI,
        compute: compute_rpc.ComputeAPIs, claims: claims_base.ClaimStore,
        clock: clock_.Clock, host: str, lease_s: float,
        new_uuid: Callable[[], str] = uuidutils.generate_uuid,
    ) -> None:
        self._database = database
        self._targets = targets
        self._cell0 = cell0
        self._scheduler = scheduler
        self._compute = compute
        self._claims = claims
        self._clock = clock
        self._host = host
        self._lease_s = lease_s
        self._new_uuid = new_uuid

    def run(
        self, context: context_.RequestContext, uuids: Sequence[str]
    ) -> None:
        """Build these instances; those that are taken or gone are left out."""
        owner = self._new_uuid()
        leased = self._lease(uuids, owner)
        if not leased:
            LOG.info('Nothing to build of %s: deleted, or taken up by '
                     'another conductor', list(uuids))
            return
        builds = [base.Build(entry.request, entry.spec, again=entry.again)
                  for entry in leased]
        self._find_earlier([build for build in builds if build.again])
        gone_on = base.run(
            context, self._steps(leased[0].min_count, owner), builds,
            settle=lambda ended: self._settle(ended, owner))
        self._bury(
            context, [build for build in builds if build.to_bury], owner)
        LOG.info('Of %d builds %d were handed to compute hosts',
                 len(builds), len(gone_on))

    def _lease(
        self, uuids: Sequence[str], owner: str
    ) -> list[build_requests.Leased]:
        now = self._clock.timestamp()
        with self._database.writer() as connection:
            return build_requests.lease(
                connection, uuids, owner, now, now + self._lease_s)

    def _find_earlier(self, builds: Sequence[base.Build]) -> None:
        """Look up what earlier tries decided."""
        if not builds:
            return
        with self._database.reader() as connection:
            mappings = instance_mappings.get_many(
                connection, [build.uuid for build in builds])
        for build in builds:
            mapping = mappings.get(build.uuid)
            build.earlier = mapping.cell_mapping if mapping else None

    def _settle(self, builds: Sequence[base.Build], owner: str) -> None:
        """Find out which builds are ours to undo, and keep them so.

        A lease may have run out, and another conductor taken the build up or
        even finished it. What it did must not be undone here, but rows that
        were written where it did not go are nobody else's.
        """
        with self._database.writer() as connection:
            mine = build_requests.renew(
                connection, [build.uuid for build in builds], owner,
                self._clock.timestamp() + self._lease_s)
            steps.end_lost(connection, [
                build for build in builds if build.uuid not in mine])
        self._purge([build for build in builds if build.elsewhere])

    def _purge(self, builds: Sequence[base.Build]) -> None:
        for cell, batch in steps.by_cell(builds):
            uuids = [build.uuid for build in batch]
            try:
                with self._targets.database(cell).writer() as connection:
                    instances.purge(connection, uuids)
            except Exception:
                LOG.exception('Cell %s may have rows of %s, which are '
                              'elsewhere', cell.identity, uuids)

    def _steps(self, min_count: int, owner: str) -> list[base.Step]:
        """Return the steps in their order; each relies on those before it.

        The decision is recorded before the rows that follow from it, and the
        request goes when both are there, so that a reader finds the server at
        every moment and a conductor that dies leaves the request to another.
        """
        return [
            steps.Schedule(
                self._database, self._scheduler, self._claims, min_count),
            steps.FindCell(self._database),
            steps.Decide(
                self._database, self._targets, self._clock, owner,
                self._lease_s),
            steps.WriteRows(self._targets, self._clock),
            steps.DeleteRequest(self._database, owner),
            steps.Cast(self._targets, self._compute, self._claims,
                       self._clock, self._host),
        ]

    def _bury(
        self, context: context_.RequestContext, builds: list[base.Build],
        owner: str,
    ) -> None:
        for _, group in itertools.groupby(
                builds, key=lambda build: id(build.failed)):
            batch = list(group)
            reason = batch[0].failed
            assert reason is not None
            try:
                self._cell0.bury(
                    context, [build.instance for build in batch], reason,
                    owner)
            except Exception:
                LOG.exception('Cell0 cannot take %s; they stay until it can',
                              [build.uuid for build in batch])
