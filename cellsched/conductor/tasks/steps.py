# SPDX-License-Identifier: Apache-2.0
"""The steps from the decision to a build in its cell."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import threading
from typing import Any

from oslo_log import log

from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched import clock as clock_
from cellsched.conductor.tasks import deciding
from cellsched.conductor.tasks import saga
from cellsched import context as context_
from cellsched.db.api import build_requests
from cellsched.db.cell import belongings
from cellsched.db.cell import build_casts
from cellsched.db.cell import build_message
from cellsched.db.cell import instance_actions
from cellsched.db.cell import instances
from cellsched.db import session
from cellsched import exception
from cellsched import group_commit
from cellsched.notify import task_notifier
from cellsched import objects
from cellsched.quota import base as quota
from cellsched.rpc import compute as compute_rpc
from cellsched.rpc import delivery

LOG = log.getLogger(__name__)


class WriteRows(saga.Step):
    """Write the servers into their cells, each cell in one transaction.

    What their hosts will be told is kept with them. A cell that cannot be
    written fails its own builds only, and one that is slow holds up nobody
    else: builds that wait for the same cell are written together.

    What an earlier try wrote, or writes late, is replaced: it was for another
    host, and from an older request. That is done while nobody else can take
    the build up, or it could be of another one, and handed over already.

    :param lease_s: seconds to lease such requests for from now on
    :param at_once: transactions in one cell at a time
    """

    def __init__(
        self, database: session.Database, targets: target.Targets,
        clock: clock_.Clock, lease_s: float,
        notifier: task_notifier.TaskNotifier | None = None, at_once: int = 1,
    ) -> None:
        self._database = database
        self._targets = targets
        self._clock = clock
        self._lease_s = lease_s
        self._notifier = notifier or task_notifier.TaskNotifier()
        self._at_once = at_once
        self._lock = threading.Lock()
        self._waiting: dict[int, group_commit.GroupCommit[_Rows]] = {}

    def do(self, builds: Sequence[saga.Build]) -> None:
        again = [build for build in builds if build.again]
        self._write_all([build for build in builds if not build.again],
                        self._write_together)
        if again:
            with self._database.writer() as connection:
                mine = deciding.renew(
                    connection, again,
                    self._database.timestamp() + self._lease_s)
                deciding.end_lost(connection, [
                    build for build in again if build not in mine])
                self._write_all([
                    build for build in again if build in mine], self._write)

    def _write_all(
        self, builds: Sequence[saga.Build],
        write: Callable[[objects.CellMapping, Sequence[saga.Build]], None],
    ) -> None:
        for cell, batch in saga.by_cell(builds):
            try:
                write(cell, batch)
            except exception.TransactionLost:
                raise
            except Exception as exc:
                LOG.exception('Cell %s cannot be written', cell.identity)
                for build in batch:
                    build.failed = exc
                saga.put_off(batch, exc)

    def _write_together(
        self, cell: objects.CellMapping, builds: Sequence[saga.Build]
    ) -> None:
        with self._lock:
            waiting = self._waiting.get(cell.id)
            if waiting is None:
                waiting = self._waiting[cell.id] = group_commit.GroupCommit(
                    self._write_rows, self._at_once, self._clock.lock)
        rows = _Rows(cell, builds)
        waiting.do(rows)
        if rows.error is not None:
            raise rows.error

    def _write_rows(self, those: Sequence['_Rows']) -> None:
        try:
            self._write(those[0].cell, [
                build for rows in those for build in rows.builds])
        except exception.DatabaseUnreachable as exc:
            # To try with each of them would take as long for each.
            for rows in those:
                rows.error = exc

    def _write(
        self, cell: objects.CellMapping, builds: Sequence[saga.Build]
    ) -> None:
        for build in builds:
            build.instance.availability_zone = (
                build.selections[0].get('availability_zone'))
            build.instance.build_attempts = 1
        database = self._targets.database(cell)
        with database.writer() as connection:
            now, told_at = database.now(), database.timestamp()
            for build in builds:
                build.written.add(cell.id)
            # A deleted row is there to keep this one away.
            instances.purge(connection, instances.lock(
                connection, [build.uuid for build in builds if build.again]))
            new = set(instances.create(
                connection, [build.instance for build in builds], now,
                {build.uuid: build.spec.image_properties()
                 for build in builds}))
            belongings.add(
                connection, [build.request for build in builds
                             if build.uuid in new], now)
            build_casts.create(connection, [
                build_message.BuildMessage.first(
                    build.selections, build.spec).kept(build.uuid, told_at)
                for build in builds])
            instance_actions.create_all(
                connection, {build.uuid: build.context for build in builds
                             if build.uuid in new}, 'create', now)
        for build in builds:
            if build.uuid not in new:
                continue
            self._notifier.updated(
                build.context, build.instance, (None, None),
                (build.instance.vm_state, build.instance.task_state))

    def undo(self, connection: Any, builds: Sequence[saga.Build]) -> None:
        for cell, batch in saga.by_written_cell(builds):
            deleted = [build for build in batch if build.deleted]
            for build in deleted:
                self._notifier.deleted(build.context, 'start', build.instance)
            with self._targets.database(cell).writer() as in_cell:
                instances.purge(in_cell, [
                    build.uuid for build in batch if not build.deleted])
                for build in deleted:
                    # It stays as deleted, for whoever writes it late. On a
                    # host it is its agent's.
                    instances.delete(
                        in_cell, build.uuid, self._clock.now(), host=None)
            for build in deleted:
                self._notifier.deleted(build.context, 'end', build.instance)


@dataclasses.dataclass(eq=False)
class _Rows:
    """Builds that are to be written into a cell, and what went wrong."""

    cell: objects.CellMapping
    builds: Sequence[saga.Build]
    error: Exception | None = None


class Release(saga.Step):
    """Delete the build requests: from here on readers see the cells' rows.

    Who deletes one owns the outcome. If it is gone its user was faster, and
    the deletion wins; if somebody else leases it by now it is left to them;
    if its user changed it since it was read, its row is changed first.

    What its project has no quota for fails instead. The request and the quota
    are of one transaction, so that each server is counted when the next one
    asks.
    """

    final = joint = True

    def __init__(
        self, database: session.Database, targets: target.Targets,
        quotas: quota.QuotaDriver, clock: clock_.Clock,
    ) -> None:
        self._database = database
        self._targets = targets
        self._quotas = quotas
        self._clock = clock

    def do(self, builds: Sequence[saga.Build]) -> None:
        left = list(builds)
        while left:
            try:
                return self._release(left)
            except _Changed as exc:
                self._change(exc.builds)
                left = [build for build in left if not build.ended]

    def _release(self, builds: Sequence[saga.Build]) -> None:
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
                deciding.end_lost(connection, [
                    build for build in builds if build not in left])
            refused = self._quotas.admit_all(connection, _by_batch(left))
            build_requests.drop(connection, ours.keys() - refused.keys())
        for build in left:
            build.failed = refused.get(build.uuid)

    def _change(self, builds: Sequence[saga.Build]) -> None:
        """Bring what users changed meanwhile into the cells."""
        with self._database.reader() as connection:
            now = {entry.request.instance_uuid: entry
                   for entry in build_requests.read(
                       connection, [build.uuid for build in builds])}
        found = [build for build in builds if build.uuid in now]
        for build in found:
            entry, old = now[build.uuid], build.instance
            build.request = entry.request
            build.instance.availability_zone = old.availability_zone
            build.instance.build_attempts = old.build_attempts
        for cell, batch in saga.by_cell(found):
            try:
                with self._targets.database(cell).writer() as connection:
                    for build in batch:
                        belongings.correct(
                            connection, build.request, self._clock.now())
            except exception.TransactionLost:
                raise
            except Exception as exc:
                LOG.exception('Cell %s cannot be written', cell.identity)
                for build in batch:
                    build.failed = exc
            else:
                # Not before it is there: this may have to be done again.
                for build in batch:
                    build.revision = now[build.uuid].revision


class Cast(saga.Step):
    """Hand the build to the compute host, on its cell's transport.

    Nothing is undone any more. What a broker does not take is left to who
    looks for lost builds. A server that cannot be handed over for another
    reason ends in ERROR in its cell, and does not keep the others.
    """

    final = True

    def __init__(
        self, targets: target.Targets, compute: compute_rpc.ComputeAPIs,
        claims: claims_base.ClaimStore, clock: clock_.Clock, host: str,
        notifier: task_notifier.TaskNotifier,
    ) -> None:
        self._targets = targets
        self._compute = compute
        self._claims = claims
        self._clock = clock
        self._host = host
        self._notifier = notifier

    def do(self, builds: Sequence[saga.Build]) -> None:
        for cell, batch in saga.by_cell(builds):
            try:
                self._cast_all(cell, batch)
            except delivery.ERRORS as exc:
                # Each of the others would wait as long for the same broker.
                LOG.warning('The hosts of cell %s cannot be told of %s; they '
                            'will be: %s', cell.identity,
                            [build.uuid for build in batch],
                            delivery.describe(exc))

    def _cast_all(
        self, cell: objects.CellMapping, builds: Sequence[saga.Build]
    ) -> None:
        aimed: dict[int, context_.RequestContext] = {}
        for build in builds:
            try:
                if id(build.context) not in aimed:
                    aimed[id(build.context)] = self._targets.aim(
                        build.context, cell)
                self._cast(aimed[id(build.context)], build)
            except delivery.ERRORS:
                raise
            except Exception as exc:
                build.failed = exc
                build.finished = True
                self._give_up(cell, build, exc)

    def _cast(
        self, aimed: context_.RequestContext, build: saga.Build
    ) -> None:
        assert aimed.cell is not None
        message = build_message.BuildMessage.first(
            build.selections, build.spec)
        self._compute.get(aimed.cell.transport).build_and_run_instance(
            aimed, instance=build.instance, **message.arguments())

    def _give_up(
        self, cell: objects.CellMapping, build: saga.Build,
        reason: Exception,
    ) -> None:
        uuid = build.uuid
        LOG.error('%s cannot be handed to a host of cell %s: %s',
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
            LOG.exception('%s is left in BUILD', uuid)


class _Changed(Exception):
    """Users changed these since they were read."""

    def __init__(self, builds: Sequence[saga.Build]) -> None:
        super().__init__(len(builds))
        self.builds = builds


def _by_batch(builds: Sequence[saga.Build]) -> list[quota.QuotaBatch]:
    """Return builds by what they were accepted with."""
    batches: dict[int, list[saga.Build]] = {}
    for build in builds:
        batches.setdefault(id(build.batch), []).append(build)
    return [
        quota.QuotaBatch(
            build.request.project_id, build.instance.user_id,
            [quota.QuotaBuild(each.uuid, each.instance.vcpus,
                              each.instance.memory_mb) for each in batch],
            build.batch.needed if build.batch else 1)
        for batch in batches.values() for build in batch[:1]]
