# SPDX-License-Identifier: Apache-2.0
"""The step that deletes build requests, if there is quota."""

from collections.abc import Sequence

from oslo_log import log

from cellsched.cells import target
from cellsched.clock import Clock
from cellsched.conductor.tasks.build import Build
from cellsched.conductor.tasks.build import by_cell
from cellsched.conductor.tasks.build import going_on
from cellsched.conductor.tasks.build import Outcome
from cellsched.conductor.tasks import saga
from cellsched.conductor.tasks.steps import ownership
from cellsched.db.api import build_requests
from cellsched.db.cell import belongings
from cellsched.db import session
from cellsched import exception
from cellsched import objects
from cellsched.quota import base as quota

LOG = log.getLogger(__name__)


class Release(saga.Step):
    """Delete the build requests: from here on readers see the cells' rows.

    Who deletes one owns the outcome. If it is gone its user was faster, and
    the deletion wins; if somebody else leases it by now it is left to them;
    if its user changed it since it was read, its row is changed first. Where
    that cannot be done, and too few of its batch are left, all of them fail.

    What its project has no quota for fails instead. The request and the quota
    are of one transaction, so that each server is counted when the next one
    asks.
    """

    final = joint = True

    def __init__(
        self, database: session.Database, targets: target.Targets,
        quotas: quota.QuotaDriver, clock: Clock,
    ) -> None:
        self._database = database
        self._targets = targets
        self._quotas = quotas
        self._clock = clock

    def do(self, builds: Sequence[Build]) -> None:
        left = list(builds)
        while left:
            try:
                return self._release(left)
            except _Changed as exc:
                self._change(exc.builds)
                for build in exc.builds:
                    # Once one is released it is too late.
                    if build.batch is not None:
                        build.batch.fail_together()
                left = going_on(left)

    def _release(self, builds: Sequence[Build]) -> None:
        with self._database.writer() as connection:
            owners = {build.uuid: build.owner for build in builds}
            ours = build_requests.held(connection, owners)
            left = [build for build in builds if build.uuid in ours
                    and build.owner == owners[build.uuid]]
            changed = [build for build in left
                       if build.revision != ours[build.uuid]]
            if changed:
                raise _Changed(changed)
            if len(left) < len(builds):
                ownership.end_lost(connection, [
                    build for build in builds if build not in left])
            refused = self._quotas.admit_all(connection, _by_batch(left))
            build_requests.drop(connection, ours.keys() - refused.keys())
        for build in left:
            if build.uuid in refused:
                build.end(Outcome.FAILED, refused[build.uuid])

    def _change(self, builds: Sequence[Build]) -> None:
        """Bring what users changed meanwhile into the cells.

        That is done while nobody else can take the builds up: once another
        conductor has released one, its user changes the row, and what was
        read before is old.
        """
        with self._database.writer() as connection:
            owners = {build.uuid: build.owner for build in builds}
            ours = build_requests.held(connection, owners)
            now = {entry.request.instance_uuid: entry
                   for entry in build_requests.read(connection, ours)}
            found = [build for build in builds if build.uuid in now
                     and build.owner == owners[build.uuid]]
            for build in found:
                entry, old = now[build.uuid], build.instance
                build.request = entry.request
                build.instance.availability_zone = old.availability_zone
                build.instance.build_attempts = old.build_attempts
            for cell, batch in by_cell(found):
                self._correct(cell, batch)
                # Not before it is there: this may have to be done again.
                for build in going_on(batch):
                    build.revision = now[build.uuid].revision

    def _correct(
        self, cell: objects.CellMapping, builds: Sequence[Build]
    ) -> None:
        try:
            with self._targets.database(cell).writer() as connection:
                for build in builds:
                    belongings.correct(
                        connection, build.request, self._clock.now())
        except exception.TransactionLost:
            raise
        except Exception as exc:
            LOG.exception('Cell %s cannot be written', cell.identity)
            for build in builds:
                build.fail(exc)


class _Changed(Exception):
    """Users changed these since they were read."""

    def __init__(self, builds: Sequence[Build]) -> None:
        super().__init__(len(builds))
        self.builds = builds


def _by_batch(builds: Sequence[Build]) -> list[quota.QuotaBatch]:
    """Return builds by what they were accepted with."""
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
