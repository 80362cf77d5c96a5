# SPDX-License-Identifier: Apache-2.0
"""The last steps: delete the build requests, and cast to the hosts."""

from collections.abc import Sequence

from oslo_log import log

from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched.conductor.tasks import lease
from cellsched.conductor.tasks import saga
from cellsched.conductor.tasks.saga import Build
from cellsched.conductor.tasks.saga import by_cell
from cellsched.conductor.tasks.saga import in_progress
from cellsched.conductor.tasks.saga import Outcome
from cellsched import context
from cellsched.db.api import build_requests
from cellsched.db.cell import build_casts
from cellsched.db.cell import instance_children
from cellsched.db.cell import instances
from cellsched.db import session
from cellsched import exception
from cellsched.notify import notifiers
from cellsched import objects
from cellsched.quota import base as quota
from cellsched.rpc import compute as compute_rpc
from cellsched.rpc import delivery

LOG = log.getLogger(__name__)


class Release(saga.Step):
    """Delete the build requests: from here on readers see the cells' rows.

    The conductor whose transaction deletes a request owns the outcome. If the
    user deleted the request first, the deletion wins. If another conductor has
    leased it, the build is left to that conductor. If the user changed the
    request since it was read, the row is corrected first.

    The quota is checked in the same transaction, so that each server counts
    for the next check. Builds over quota fail.
    """

    final = batched = True

    def __init__(
        self, database: session.Database, targets: target.Targets,
        quotas: quota.QuotaDriver, clock: Clock,
    ) -> None:
        self._database = database
        self._targets = targets
        self._quotas = quotas
        self._clock = clock

    def do(self, builds: Sequence[Build]) -> None:
        pending = list(builds)
        while pending:
            try:
                return self._release(pending)
            except _Changed as exc:
                self._change(exc.builds)
                for build in exc.builds:
                    # After the first release a batch cannot fail as one.
                    if build.batch is not None:
                        build.batch.fail_together()
                pending = in_progress(pending)

    def _release(self, builds: Sequence[Build]) -> None:
        with self._database.writer() as connection:
            owners = {build.uuid: build.owner for build in builds}
            # 1. Lock the requests that this conductor still leases.
            revisions = build_requests.held(connection, owners)
            held = [build for build in builds if build.uuid in revisions
                    and build.owner == owners[build.uuid]]
            # 2. A changed request must be written to its cell first.
            changed = [build for build in held
                       if build.revision != revisions[build.uuid]]
            if changed:
                raise _Changed(changed)
            # 3. The other requests were deleted, or are leased by another
            #    conductor.
            if len(held) < len(builds):
                lease.resolve_lost(connection, [
                    build for build in builds if build not in held])
            # 4. Count the quota and delete the requests together.
            refused = self._quotas.admit_all(connection, _by_batch(held))
            build_requests.drop(
                connection, revisions.keys() - refused.keys())
        for build in held:
            if build.uuid in refused:
                build.end(Outcome.FAILED, refused[build.uuid])

    def _change(self, builds: Sequence[Build]) -> None:
        """Correct the rows in the cells after changes of the requests.

        The requests are locked meanwhile. If another conductor released a
        request, the user would change the row itself, and this correction
        would be out of date.
        """
        with self._database.writer() as connection:
            owners = {build.uuid: build.owner for build in builds}
            held = build_requests.held(connection, owners)
            now = {entry.request.instance_uuid: entry
                   for entry in build_requests.read(connection, held)}
            found = [build for build in builds if build.uuid in now
                     and build.owner == owners[build.uuid]]
            for build in found:
                entry, old = now[build.uuid], build.instance
                build.request = entry.request
                build.instance.availability_zone = old.availability_zone
                build.instance.build_attempts = old.build_attempts
            for cell, batch in by_cell(found):
                self._correct(cell, batch)
                # Last, because the transaction may be repeated.
                for build in in_progress(batch):
                    build.revision = now[build.uuid].revision

    def _correct(
        self, cell: objects.CellMapping, builds: Sequence[Build]
    ) -> None:
        try:
            with self._targets.database(cell).writer() as connection:
                for build in builds:
                    instance_children.correct(
                        connection, build.request, self._clock.now())
        except exception.TransactionLost:
            raise
        except Exception as exc:
            LOG.exception('Could not write to cell %s', cell.identity)
            for build in builds:
                build.fail(exc)


class _Changed(Exception):
    """Users changed these requests after they were read."""

    def __init__(self, builds: Sequence[Build]) -> None:
        super().__init__(len(builds))
        self.builds = builds


def _by_batch(builds: Sequence[Build]) -> list[quota.QuotaBatch]:
    """Return the builds of each batch, as the quota driver takes them."""
    batches: dict[int, list[Build]] = {}
    for build in builds:
        batches.setdefault(id(build.batch), []).append(build)
    return [
        quota.QuotaBatch(
            build.request.project_id, build.instance.user_id,
            [quota.QuotaBuild(each.uuid, each.instance.vcpus,
                              each.instance.memory_mb) for each in batch],
            build.batch.needed if build.batch else 1)
        for batch in batches.values() for build in batch[:1]]


class Cast(saga.Step):
    """Cast the build to the compute host, on its cell's transport.

    After this step nothing is rolled back. If the broker does not take the
    message, ``recovery.StalledBuilds`` sends it later. A server that cannot be
    cast for another reason ends in ERROR in its cell, without effect on
    others.
    """

    final = True

    def __init__(
        self, targets: target.Targets, compute: compute_rpc.ComputeAPIs,
        claims: claims_base.ClaimStore, clock: Clock, host: str,
        notifier: notifiers.TaskNotifier,
    ) -> None:
        self._targets = targets
        self._compute = compute
        self._claims = claims
        self._clock = clock
        self._host = host
        self._notifier = notifier

    def do(self, builds: Sequence[Build]) -> None:
        for cell, batch in by_cell(builds):
            try:
                self._cast_all(cell, batch)
            except delivery.ERRORS as exc:
                # Each further cast would wait as long for the same broker.
                LOG.warning('Could not cast to the hosts of cell %s for '
                            'instances %s; the cast is retried: %s',
                            cell.identity,
                            [build.uuid for build in batch],
                            delivery.describe(exc))

    def _cast_all(
        self, cell: objects.CellMapping, builds: Sequence[Build]
    ) -> None:
        contexts: dict[int, context.RequestContext] = {}
        for build in builds:
            try:
                if id(build.context) not in contexts:
                    contexts[id(build.context)] = self._targets.target_cell(
                        build.context, cell)
                self._cast(contexts[id(build.context)], build)
            except delivery.ERRORS:
                raise
            except Exception as exc:
                build.end(Outcome.FINISHED, exc)
                self._give_up(cell, build, exc)

    def _cast(
        self, cell_context: context.RequestContext, build: Build
    ) -> None:
        assert cell_context.cell is not None
        message = build_casts.BuildMessage.first(
            build.selections, build.spec)
        self._compute.get(cell_context.cell.transport).build_and_run_instance(
            cell_context, instance=build.instance, **message.arguments())

    def _give_up(
        self, cell: objects.CellMapping, build: Build,
        reason: Exception,
    ) -> None:
        uuid = build.uuid
        LOG.error('Could not cast instance %s to a host of cell %s: %s',
                  uuid, cell.identity, reason)
        try:
            with self._targets.database(cell).writer() as connection:
                failed = instances.fail(
                    connection, uuid, reason, self._host, self._clock.now(),
                    host=None, task_state='scheduling')
            if failed:
                self._claims.release([uuid])
                self._notifier.failed(
                    build.context, 'build_instances', build.instance,
                    build.spec, reason)
        except Exception:
            LOG.exception('Instance %s stays in BUILD', uuid)
