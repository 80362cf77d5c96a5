# SPDX-License-Identifier: Apache-2.0
"""From accepted build requests to builds in their cells."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import itertools
import logging
from typing import Any

from oslo_log import log
from oslo_utils import uuidutils

from cellsched import batching
from cellsched.cells.cell0 import Cell0
from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched.conductor.tasks.build import Batch
from cellsched.conductor.tasks.build import Build
from cellsched.conductor.tasks.build import by_any_cell
from cellsched.conductor.tasks.build import by_cell
from cellsched.conductor.tasks.build import is_transient
from cellsched.conductor.tasks.build import Outcome
from cellsched.conductor.tasks.lease import Attempt
from cellsched.conductor.tasks.lease import Leases
from cellsched.conductor.tasks.lease import renew
from cellsched.conductor.tasks.lease import resolve_lost
from cellsched.conductor.tasks.lease import Retries
from cellsched.conductor.tasks import saga
from cellsched.conductor.tasks.steps import decide
from cellsched.conductor.tasks.steps import release
from cellsched.conductor.tasks.steps import schedule
from cellsched.conductor.tasks.steps import write_rows
from cellsched.context import RequestContext
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.api import request_rows
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db import session
from cellsched.notify import notifiers
from cellsched.quota import base as quota
from cellsched.rpc import compute as compute_rpc
from cellsched.rpc import delivery
from cellsched.rpc import scheduler as scheduler_rpc

LOG = log.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class TaskLimits:
    """The bounds of a task.

    :param lease_s: seconds for which a batch is ours
    :param deadline_s: seconds after which a request that was taken up
        ``attempts`` times is not tried any more
    :param joined: how many transactions of a step there may be at a time;
        what comes meanwhile waits, and is done in the next one together
    :param retry_delay_s: seconds until a batch that failed of what passes is
        tried again, here and for the first time
    :param retries: how often it is tried again here, before it is left to
        whoever finds it
    """

    lease_s: float
    deadline_s: float = 1800.0
    attempts: int = 3
    joined: int = 1
    retry_delay_s: float = 1.0
    retries: int = 3
    #: Whether claims can be released while a transaction is open on the API
    #: database; not where both are in one SQLite file.
    fenced: bool = True


class BuildAndSchedule:
    """Builds a batch of accepted requests, or buries them with the reason.

    The batch is leased, placed by one call of the scheduler, given its cells,
    written there, and handed to the compute hosts. Whatever fails on the way
    is undone and buried in cell0. A request that its user deletes meanwhile
    leaves nothing behind.

    Batches that are built at the same time go through the steps together.

    :param database: the API database
    :param host: who says so in faults
    :param reached: is told which step was done: ``Lease``, those of
        ``steps``, ``Bury``
    :param notifier: is told what becomes of servers in their cells
    """

    def __init__(
        self, database: session.Database, targets: target.Targets,
        cell0: Cell0, scheduler: scheduler_rpc.SchedulerAPI,
        compute: compute_rpc.ComputeAPIs, claims: claims_base.ClaimStore,
        quotas: quota.QuotaDriver, clock: Clock, host: str,
        limits: TaskLimits,
        new_uuid: Callable[[], str] = uuidutils.generate_uuid,
        reached: Callable[[str], None] = lambda step: None,
        notifier: notifiers.TaskNotifier | None = None,
    ) -> None:
        self._database = database
        self._targets = targets
        self._cell0 = cell0
        self._scheduler = scheduler
        self._compute = compute
        self._claims = claims
        self._quotas = quotas
        self._clock = clock
        self._host = host
        self._limits = limits
        self._new_uuid = new_uuid
        self._reached = reached
        self._notifier = notifier or notifiers.TaskNotifier()
        #: What this process has leased; somebody is to renew it.
        self.leases = Leases(database, limits.lease_s)
        #: What is to be tried again; somebody is to do that.
        self.retries = Retries(
            clock, limits.retry_delay_s, limits.retries)
        self._leasing = batching.GroupCommit(
            self._lease, limits.joined, clock.lock)
        self._runner = saga.Runner(
            self._make_steps(), limits.joined, clock.lock)

    def run(
        self, context: RequestContext, uuids: Sequence[str]
    ) -> None:
        """Build these instances; those that are taken or gone are left out.

        What fails of something that passes is put into :attr:`retries`.
        """
        self.attempt(Attempt(context, uuids))

    def attempt(self, attempt: Attempt) -> None:
        """Try builds, for the first time or once more; as :meth:`run`."""
        lease = _Lease(attempt.uuids, self._new_uuid(), attempt.owner)
        left: Sequence[str] = ()
        try:
            self._leasing.do(lease)
            self._reached('Lease')
            left = self._put_off(
                attempt, lease, self._build(attempt.context, lease))
        except Exception as exc:
            if is_transient(exc):
                left = self._put_off(attempt, lease, [
                    entry.request.instance_uuid for entry in lease.leased
                ] or attempt.uuids)
            if not left:
                raise
            LOG.warning('The builds of %s are tried again: %s', left,
                        delivery.describe(exc))
        finally:
            for owner in filter(None, (attempt.owner, lease.owner)):
                self.leases.release(
                    [uuid for uuid in attempt.uuids if uuid not in left],
                    owner)

    def _put_off(
        self, attempt: Attempt, lease: '_Lease',
        uuids: Sequence[str],
    ) -> Sequence[str]:
        """Have builds tried again; return those that will be."""
        again = dataclasses.replace(
            attempt, uuids=uuids,
            owner=lease.owner if lease.leased else attempt.owner)
        return uuids if uuids and self.retries.defer(again) else ()

    def _build(
        self, context: RequestContext, lease: '_Lease'
    ) -> list[str]:
        """Build what was leased; return what is to be tried again."""
        leased = lease.leased
        if not leased:
            LOG.info('Nothing to build of %s: deleted, or taken up by '
                     'another conductor', list(lease.uuids))
            return []
        builds = [
            Build(entry.request, entry.spec, context, lease.owner,
                  entry.revision, entry.tries)
            for entry in leased]
        for build, entry in zip(builds, leased, strict=True):
            if entry.broken:
                build.end(Outcome.FAILED, entry.broken)
        self._find_earlier([build for build in builds
                            if build.again or build.ended])
        gone_on = self._runner.run(
            Batch(builds, leased[0].min_count),
            fence=self._fence, reached=self._reached)
        self._bury(
            context, [build for build in builds if build.to_bury],
            lease.owner)
        self._reached('Bury')
        again = [build for build in builds if build.to_retry]
        self._explain(again)
        LOG.info('Of %d builds %d were handed to compute hosts',
                 len(builds), len(gone_on))
        return [build.uuid for build in again]

    def _lease(self, leases: Sequence['_Lease']) -> None:
        owner = leases[0].owner
        held = {uuid: each.held_by for each in leases if each.held_by
                for uuid in each.uuids}
        with self._database.writer() as connection:
            now = self._database.timestamp()
            if held:
                # Then they are free for this try, and locked for no other.
                build_requests.renew(connection, held, now)
            found = {entry.request.instance_uuid: entry
                     for entry in build_requests.lease(
                         connection,
                         [uuid for each in leases for uuid in each.uuids],
                         owner, now, now + self._limits.lease_s)}
        for each in leases:
            # Where a message came twice only one of the two has it.
            each.owner = owner
            each.leased = [found.pop(uuid) for uuid in each.uuids
                           if uuid in found]
            self.leases.hold(dict.fromkeys(
                [entry.request.instance_uuid for entry in each.leased],
                owner))

    def _find_earlier(self, builds: Sequence[Build]) -> None:
        """Look up what earlier tries decided, and whose what is broken is."""
        if not builds:
            return
        with self._database.reader() as connection:
            mappings = instance_mappings.get_many(
                connection, [build.uuid for build in builds])
        for build in builds:
            mapping = mappings.get(build.uuid)
            build.earlier = mapping.cell_mapping if mapping else None
            if build.reason:
                LOG.error('Server %s cannot be built: %s %s', build.uuid,
                          build.reason, build.reason.__cause__ or '')
                build.instance.user_id = build.instance.get('user_id') or (
                    mapping and mapping.user_id)

    @contextlib.contextmanager
    def _fence(self, builds: Sequence[Build]) -> Iterator[Any]:
        """Find out which builds are ours to undo, and keep them so.

        A lease may have run out, and another conductor taken the build up or
        even finished it. What it did must not be undone here, but rows that
        were written where it did not go are nobody else's. As long as this is
        open nobody can take up what is ours, however slowly it is undone.
        """
        with self._database.writer() as connection:
            mine = renew(
                connection, builds,
                self._database.timestamp() + self._limits.lease_s)
            resolve_lost(connection, [
                build for build in builds if build not in mine])
            self._leave_begun([build for build in builds if build.deleted])
            yield connection
        self._purge([
            build for build in builds
            if build.outcome is Outcome.BUILT_ELSEWHERE])

    def _leave_begun(self, builds: Sequence[Build]) -> None:
        """Leave deleted servers to their hosts where they came to one.

        Another conductor handed them over then, and there they are deleted.
        """
        for cell, batch in by_any_cell(builds):
            uuids = [build.uuid for build in batch]
            begun = set(uuids)
            try:
                with self._targets.database(cell).reader() as connection:
                    begun = {
                        uuid for uuid, found in instances.get_many(
                            connection, uuids).items() if found.host}
            except Exception:
                LOG.exception('Cell %s cannot be asked for %s; what they '
                              'hold is found when it leaked', cell.identity,
                              uuids)
            for build in batch:
                if build.uuid in begun:
                    build.end(Outcome.FINISHED)

    def _purge(self, builds: Sequence[Build]) -> None:
        for cell, batch in by_cell(builds):
            uuids = [build.uuid for build in batch]
            try:
                with self._targets.database(cell).writer() as connection:
                    instances.purge(connection, uuids)
            except Exception:
                LOG.exception('Cell %s may have rows of %s, which are '
                              'elsewhere', cell.identity, uuids)

    def _make_steps(self) -> list[saga.Step]:
        """Return the steps in their order; each relies on those before it.

        The decision is recorded before the rows that follow from it, and the
        request goes when both are there, so that a reader finds the server at
        every moment and a conductor that dies leaves the request to another.
        """
        return [
            schedule.Expire(
                self._database, self._limits.deadline_s,
                self._limits.attempts),
            schedule.RemoveFromCell0(
                self._database, self._cell0, self._limits.lease_s),
            schedule.Schedule(
                self._database, self._scheduler, self._claims,
                self._limits.fenced),
            decide.FindCell(self._database, self._claims),
            decide.Decide(
                self._database, self._targets, self._clock,
                self._limits.lease_s),
            write_rows.WriteRows(
                self._database, self._targets, self._clock,
                self._limits.lease_s, self._notifier, self._limits.joined),
            release.Release(
                self._database, self._targets, self._quotas, self._clock),
            release.Cast(
                self._targets, self._compute, self._claims, self._clock,
                self._host, self._notifier),
        ]

    def _explain(self, builds: Sequence[Build]) -> None:
        """Let requests that stay say what they failed of."""
        for batch in _by_reason(builds):
            uuids, reason = [build.uuid for build in batch], batch[0].reason
            assert reason is not None
            try:
                with self._database.writer() as connection:
                    build_requests.explain(
                        connection, uuids, instance_history.message_of(reason),
                        batch[0].owner, again=False)
            except Exception as exc:
                LOG.log(logging.WARNING if is_transient(exc)
                        else logging.ERROR,
                        '%s cannot say why they failed: %s', uuids,
                        delivery.describe(exc),
                        exc_info=not is_transient(exc))

    def _bury(
        self, context: RequestContext, builds: list[Build],
        owner: str,
    ) -> None:
        if not builds:
            return
        reasons = {build.uuid: build.reason for build in builds
                   if build.reason is not None}
        try:
            self._cell0.bury(
                context, [build.instance for build in builds],
                reasons[builds[0].uuid], owner, {
                    build.uuid: build.spec for build in builds
                    if build.spec.get('flavor')}, reasons)
        except Exception:
            LOG.exception('Cell0 cannot take %s; they stay until it can',
                          [build.uuid for build in builds])


def _by_reason(builds: Sequence[Build]) -> list[list[Build]]:
    """Return builds by the error that they failed of."""
    return [list(batch) for _, batch in itertools.groupby(
        builds, key=lambda build: id(build.reason))]


@dataclasses.dataclass
class _Lease:
    """Requests to be taken up, and those that were."""

    uuids: Sequence[str]
    owner: str
    #: Who has leased them for this, if anybody has.
    held_by: str | None = None
    leased: Sequence[request_rows.LeasedRequest] = ()
