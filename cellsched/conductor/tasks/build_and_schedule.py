# SPDX-License-Identifier: Apache-2.0
"""From accepted build requests to builds in their cells.

The life of a build in this task:

1. Lease the build requests. A deleted request is not leased.
2. ``Expire``, ``RemoveFromCell0``: fail old builds, and clean up for retries.
3. ``Schedule``: call ``select_destinations`` once for the batch, or once for
   several equal requests; the scheduler claims.
4. ``FindCell``: look up the cells of the selected hosts.
5. ``Decide``: set the cell of the instance mapping, compare-and-set on NULL.
6. ``WriteRows``: write the rows, one transaction for each cell.
7. ``Release``: check the quota and delete the build requests.
8. ``Cast``: send the builds to the compute hosts.

A failure before step 8 is rolled back in reverse order. Then the build is
recorded in cell0, or retried if the error is transient.
"""

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
from cellsched.conductor.tasks.lease import Attempt
from cellsched.conductor.tasks.lease import Leases
from cellsched.conductor.tasks.lease import renew
from cellsched.conductor.tasks.lease import resolve_lost
from cellsched.conductor.tasks.lease import Retries
from cellsched.conductor.tasks import saga
from cellsched.conductor.tasks.saga import Batch
from cellsched.conductor.tasks.saga import Build
from cellsched.conductor.tasks.saga import by_any_cell
from cellsched.conductor.tasks.saga import by_cell
from cellsched.conductor.tasks.saga import is_transient
from cellsched.conductor.tasks.saga import Outcome
from cellsched.conductor.tasks import steps
from cellsched.context import RequestContext
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db import session
from cellsched.db import statements
from cellsched import exception
from cellsched.notify import notifiers
from cellsched.observability import metrics
from cellsched.observability.metrics import Metrics
from cellsched.observability import tracing
from cellsched.quota import base as quota
from cellsched.rpc import compute as compute_rpc
from cellsched.rpc import scheduler as scheduler_rpc

LOG = log.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class TaskLimits:
    """The bounds of a task.

    :param lease_s: seconds until a lease expires if it is not renewed
    :param deadline_s: seconds after which a request with ``attempts`` attempts
        fails
    :param joined: transactions of a step that may run at a time; batches that
        arrive meanwhile share the next transaction
    :param retry_delay_s: seconds until the first retry after a transient error
    :param retries: retries by this conductor, before any conductor may resume;
        more of them while the database does not answer
    """

    lease_s: float
    deadline_s: float = 1800.0
    attempts: int = 3
    joined: int = 1
    retry_delay_s: float = 1.0
    retries: int = 3
    #: Whether claims can be released during a transaction on the API
    #: database. They cannot if both are in one SQLite file.
    fenced: bool = True


@dataclasses.dataclass(eq=False)
class BuildAndSchedule:
    """Builds a batch of accepted requests, or records them in cell0.

    A request that its user deletes meanwhile leaves nothing behind. Batches
    that are built at the same time go through the batched steps together.

    :param database: the API database
    :param host: recorded as the host of faults
    :param reached: called with the name of each step that was done: ``Lease``,
        the steps, ``Bury``
    :param notifier: sends notifications about servers in their cells
    :param metrics: records the results of builds
    """

    database: session.Database
    targets: target.Targets
    cell0: Cell0
    scheduler: scheduler_rpc.SchedulerAPI
    compute: compute_rpc.ComputeAPIs
    claims: claims_base.Claims
    quotas: quota.QuotaDriver
    clock: Clock
    host: str
    limits: TaskLimits
    new_uuid: Callable[[], str] = uuidutils.generate_uuid
    reached: Callable[[str], None] = lambda step: None
    notifier: notifiers.TaskNotifier = dataclasses.field(
        default_factory=notifiers.TaskNotifier)
    metrics: Metrics = dataclasses.field(default_factory=Metrics)

    def __post_init__(self) -> None:
        #: Leases of this process; the caller renews them periodically.
        self.leases = Leases(self.database, self.limits.lease_s)
        #: Deferred retries; the caller runs them.
        self.retries = Retries(
            self.clock, self.limits.retry_delay_s)
        self._leasing = batching.GroupCommit(
            self._lease, self.limits.joined, self.clock.lock)
        self._runner = saga.Runner(
            self._make_steps(), self.limits.joined, self.clock.lock)
        self.metrics.add_source(lambda: [
            (metrics.BUILDS_NOW, ('leased',), len(self.leases)),
            (metrics.BUILDS_NOW, ('retrying',), len(self.retries))])

    def run(self, context: RequestContext, uuids: Sequence[str]) -> None:
        """Build these instances; deleted and leased ones are left out.

        Batches with a transient error are added to :attr:`retries`.
        """
        self.attempt(Attempt(context, uuids, trace=self._trace(uuids)))

    def _trace(self, uuids: Sequence[str]) -> str:
        """Return the span that accepted a batch, if no span is current."""
        if not tracing.is_on() or tracing.current():
            return ''
        with self.database.reader() as connection:
            return build_requests.traces(
                connection, uuids[:1]).get(uuids[0], '')

    def attempt(self, attempt: Attempt) -> None:
        """Make one attempt to build a batch; see :meth:`run`."""
        with tracing.span('build and schedule', attempt.context,
                          attempt.uuids, attempt.trace):
            lease = _Lease(attempt.uuids, self.new_uuid(), attempt.owner)
            deferred: Sequence[str] = ()
            try:
                if len(attempt.uuids) > saga.LARGE:
                    self._lease([lease])
                else:
                    self._leasing.do(lease)
                self.reached('Lease')
                deferred = self._defer(
                    attempt, lease, self._build(attempt.context, lease))
            except Exception as exc:
                if is_transient(exc):
                    deferred = self._defer(attempt, lease, [
                        entry.request.instance_uuid for entry in lease.leased
                    ] or attempt.uuids)
                if not deferred:
                    raise
                LOG.warning('The builds of instances %s are retried: %s',
                            exception.name_some(deferred),
                            exception.describe(exc))
            finally:
                for owner in filter(None, (attempt.owner, lease.owner)):
                    self.leases.release(
                        [uuid for uuid in attempt.uuids
                         if uuid not in deferred], owner)

    def _defer(
        self, attempt: Attempt, lease: '_Lease',
        uuids: Sequence[str],
    ) -> Sequence[str]:
        """Defer a retry; return the builds that this conductor will retry."""
        retry = attempt._replace(
            uuids=uuids, trace=attempt.trace or tracing.current(),
            owner=lease.owner if lease.leased else attempt.owner)
        if not uuids or self._hand_over(retry):
            return ()
        return uuids if self.retries.defer(retry) else ()

    def _hand_over(self, attempt: Attempt) -> bool:
        """Let any conductor take builds that failed here too often.

        The leases end at once. If the database does not answer, this conductor
        keeps the builds.
        """
        if attempt.owner is None or attempt.number < self.limits.retries:
            return False
        try:
            with self.database.writer() as connection:
                build_requests.unlease(
                    connection, attempt.uuids, attempt.owner,
                    self.database.timestamp(), tried=True)
        except Exception as exc:
            if not is_transient(exc):
                raise
            LOG.warning('Could not end the leases of instances %s: %s',
                        exception.name_some(attempt.uuids),
                        exception.describe(exc))
            return False
        return True

    def _build(self, context: RequestContext, lease: '_Lease') -> list[str]:
        """Build the leased requests; return the uuids to retry."""
        leased = self._of_this_release(lease)
        if not leased:
            LOG.info('Not building instances %s: deleted, or leased by '
                     'another conductor', exception.name_some(lease.uuids))
            return []
        builds = [
            Build(entry.request, entry.spec, context, lease.owner,
                  entry.revision, entry.tries, entry.quota, entry.alike)
            for entry in leased]
        for build, entry in zip(builds, leased, strict=True):
            if entry.broken:
                build.end(Outcome.FAILED, entry.broken)
        self._find_earlier([build for build in builds
                            if build.again or build.ended])
        cast = self._runner.run(
            Batch(builds, leased[0].min_count),
            fence=self._fence, reached=self.reached)
        self._bury(
            context, [build for build in builds if build.to_bury],
            lease.owner)
        self.reached('Bury')
        retried = [build for build in builds if build.to_retry]
        self._explain(retried)
        for result, number in (
                ('cast', len(cast)), ('retried', len(retried)),
                ('failed', sum(build.to_bury for build in builds)),
                ('deleted', _count(builds, Outcome.DELETED)),
                ('left', _count(builds, Outcome.FINISHED)
                 + _count(builds, Outcome.BUILT_ELSEWHERE))):
            self.metrics.add(metrics.BUILDS, (result,), number)
        LOG.info('Of %d builds %d were handed to compute hosts',
                 len(builds), len(cast))
        return [build.uuid for build in retried]

    def _of_this_release(
        self, lease: '_Lease'
    ) -> Sequence[build_requests.LeasedRequest]:
        """Return the leased requests that are not of a later release.

        The leases of newer ones end, so that its conductors can lease them.
        """
        readable = [entry for entry in lease.leased if not isinstance(
            entry.broken, exception.RequestTooNew)]
        if len(readable) < len(lease.leased):
            if lease.leased[0].min_count > len(readable):
                # The batch is built as a whole.
                readable = []
            uuids = {entry.request.instance_uuid for entry in readable}
            newer = [entry.request.instance_uuid for entry in lease.leased
                     if entry.request.instance_uuid not in uuids]
            LOG.warning('Leaving the builds of instances %s to conductors of '
                        'a later release, which accepted them',
                        exception.name_some(newer))
            with self.database.writer() as connection:
                build_requests.unlease(connection, newer, lease.owner,
                                       self.database.timestamp())
        return readable

    def _lease(self, leases: Sequence['_Lease']) -> None:
        owner = leases[0].owner
        held = {uuid: each.held_by for each in leases if each.held_by
                for uuid in each.uuids}
        uuids = [uuid for each in leases for uuid in each.uuids]
        # A single statement needs no transaction.
        is_alone = (self.database.is_postgresql and not held
                    and len(uuids) <= statements.CHUNK)
        with (self.database.each_alone() if is_alone
              else self.database.writer()) as connection:
            now = self.database.timestamp()
            if held:
                # Expire the lease of the retry in this transaction: no other
                # conductor can lease the requests in between.
                build_requests.renew(connection, held, now)
            found = {entry.request.instance_uuid: entry
                     for entry in build_requests.lease(
                         connection, uuids, owner, now,
                         now + self.limits.lease_s)}
        for each in leases:
            # If a message was delivered twice, only one of the two gets it.
            each.owner = owner
            each.leased = [found.pop(uuid) for uuid in each.uuids
                           if uuid in found]
            self.leases.hold(dict.fromkeys(
                [entry.request.instance_uuid for entry in each.leased],
                owner))

    def _find_earlier(self, builds: Sequence[Build]) -> None:
        """Read the earlier decisions, and the users of unreadable requests."""
        if not builds:
            return
        with self.database.reader() as connection:
            mappings = instance_mappings.get_many(
                connection, [build.uuid for build in builds])
        for build in builds:
            mapping = mappings.get(build.uuid)
            build.earlier = mapping.cell_mapping if mapping else None
            if build.reason:
                LOG.error('The server cannot be built: %s %s', build.reason,
                          build.reason.__cause__ or '',
                          instance_uuid=build.uuid, context=build.context)
                build.instance.user_id = build.instance.get('user_id') or (
                    mapping and mapping.user_id)

    @contextlib.contextmanager
    def _fence(self, builds: Sequence[Build]) -> Iterator[Any]:
        """Keep the builds leased by this conductor while they are rolled back.

        The lease may have expired, and another conductor may have resumed or
        even finished a build. Its work must not be rolled back here. Only rows
        in a cell that it did not choose are removed.
        """
        with self.database.writer() as connection:
            # 1. Renew the leases. Until the transaction ends, no other
            #    conductor can lease these requests.
            owned = renew(
                connection, builds,
                self.database.timestamp() + self.limits.lease_s)
            # 2. Take the outcome of the other builds from the database.
            resolve_lost(connection, [
                build for build in builds if build not in owned])
            self._leave_begun([build for build in builds if build.deleted])
            # 3. Roll back what is still owned.
            yield connection
        # 4. Remove rows in a cell that the other conductor did not choose.
        self._purge([
            build for build in builds
            if build.outcome is Outcome.BUILT_ELSEWHERE])

    def _leave_begun(self, builds: Sequence[Build]) -> None:
        """Leave deleted servers to their hosts if another conductor cast them.

        The host then handles the deletion.
        """
        for cell, batch in by_any_cell(builds):
            uuids = [build.uuid for build in batch]
            begun = set(uuids)
            try:
                with self.targets.database(cell).reader() as connection:
                    begun = {
                        uuid for uuid, found in instances.get_many(
                            connection, uuids).items() if found.host}
            except Exception:
                LOG.exception('Could not read instances %s in cell %s; an '
                              'audit finds claims that they keep',
                              exception.name_some(uuids), cell.identity)
            for build in batch:
                if build.uuid in begun:
                    build.end(Outcome.FINISHED)

    def _purge(self, builds: Sequence[Build]) -> None:
        for cell, batch in by_cell(builds):
            uuids = [build.uuid for build in batch]
            try:
                with self.targets.database(cell).writer() as connection:
                    instances.undo_builds(connection, uuids)
            except Exception:
                LOG.exception('Could not remove rows of instances %s from '
                              'cell %s; they are in another cell',
                              exception.name_some(uuids), cell.identity)

    def _make_steps(self) -> list[saga.Step]:
        """Return the steps in order; each depends on the steps before it.

        The decision is recorded before the rows, and the request is deleted
        after them. So a reader always finds the server, and another conductor
        can resume the build as long as the request exists.
        """
        return [
            steps.Expire(
                self.database, self.limits.deadline_s,
                self.limits.attempts),
            steps.RemoveFromCell0(
                self.database, self.cell0, self.limits.lease_s),
            steps.Schedule(
                self.database, self.scheduler, self.claims,
                self.limits.fenced, self.clock.lock),
            steps.FindCell(self.database, self.claims),
            steps.Decide(
                self.database, self.targets, self.clock,
                self.limits.lease_s),
            steps.WriteRows(
                self.database, self.targets, self.clock,
                self.limits.lease_s, self.notifier, self.limits.joined),
            steps.Release(
                self.database, self.targets, self.quotas, self.clock),
            steps.Cast(
                self.targets, self.compute, self.claims, self.clock,
                self.host, self.notifier),
        ]

    def _explain(self, builds: Sequence[Build]) -> None:
        """Record the error in the requests that are retried."""
        for batch in _by_reason(builds):
            uuids, reason = [build.uuid for build in batch], batch[0].reason
            assert reason is not None
            try:
                with self.database.writer() as connection:
                    build_requests.explain(
                        connection, uuids, instance_history.message_of(reason),
                        batch[0].owner, again=False)
            except Exception as exc:
                LOG.log(logging.WARNING if is_transient(exc)
                        else logging.ERROR,
                        'Could not record the error of instances %s: %s',
                        exception.name_some(uuids), exception.describe(exc),
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
            with tracing.span('bury in cell0', context, [*reasons]) as span:
                span.fail(reasons[builds[0].uuid])
                self.cell0.bury(
                    context, [build.instance for build in builds],
                    reasons[builds[0].uuid], owner, {
                        build.uuid: build.spec for build in builds
                        if build.spec.get('flavor')}, reasons, [
                        build_requests.LeasedRequest(
                            build.request, build.spec, 1,
                            revision=build.revision)
                        # The row of a server with a host has more values.
                        for build in builds if not build.selections])
        except Exception:
            LOG.exception('Could not write instances %s to cell0; the '
                          'requests are retried', exception.name_some(
                              build.uuid for build in builds))


def _count(builds: Sequence[Build], outcome: Outcome) -> int:
    return sum(build.outcome is outcome for build in builds)


def _by_reason(builds: Sequence[Build]) -> list[list[Build]]:
    """Group builds by the error."""
    return [list(batch) for _, batch in itertools.groupby(
        builds, key=lambda build: id(build.reason))]


@dataclasses.dataclass
class _Lease:
    """Requests to lease, and those that were leased."""

    uuids: Sequence[str]
    owner: str
    #: Owner of the lease that the attempt has already, if any.
    held_by: str | None = None
    leased: Sequence[build_requests.LeasedRequest] = ()
