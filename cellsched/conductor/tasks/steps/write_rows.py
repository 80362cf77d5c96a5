# SPDX-License-Identifier: Apache-2.0
"""The step that writes servers into their cells."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import threading
from typing import Any

from oslo_log import log

from cellsched import batching
from cellsched.cells import target
from cellsched.clock import Clock
from cellsched.conductor.tasks import lease
from cellsched.conductor.tasks import saga
from cellsched.conductor.tasks.saga import Build
from cellsched.conductor.tasks.saga import by_cell
from cellsched.conductor.tasks.saga import by_written_cell
from cellsched.db.cell import build_casts
from cellsched.db.cell import instance_children
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db import session
from cellsched import exception
from cellsched.notify import notifiers
from cellsched import objects

LOG = log.getLogger(__name__)


class WriteRows(saga.Step):
    """Write the servers into their cells, one transaction for each cell.

    The message to the host is stored with the row. A cell that cannot be
    written fails its own builds only, and a slow cell delays no other cell.
    Builds that wait for the same cell are written together.

    Rows of an earlier attempt are replaced: they may be for another host, and
    from an older revision of the request. The request is locked meanwhile,
    because another conductor could have written the row and cast it already.

    :param lease_s: seconds for which the leases of retried builds are renewed
    :param at_once: transactions in one cell at a time
    """

    def __init__(
        self, database: session.Database, targets: target.Targets,
        clock: Clock, lease_s: float,
        notifier: notifiers.TaskNotifier | None = None, at_once: int = 1,
    ) -> None:
        self._database = database
        self._targets = targets
        self._clock = clock
        self._lease_s = lease_s
        self._notifier = notifier or notifiers.TaskNotifier()
        self._at_once = at_once
        self._lock = threading.Lock()
        self._waiting: dict[int, batching.GroupCommit[_Rows]] = {}

    def do(self, builds: Sequence[Build]) -> None:
        again = [build for build in builds if build.again]
        self._write_all([build for build in builds if not build.again],
                        self._write_together)
        if again:
            with self._database.writer() as connection:
                owned = lease.renew(
                    connection, again,
                    self._database.timestamp() + self._lease_s)
                lease.resolve_lost(connection, [
                    build for build in again if build not in owned])
                self._write_all([
                    build for build in again if build in owned], self._write)

    def _write_all(
        self, builds: Sequence[Build],
        write: Callable[[objects.CellMapping, Sequence[Build]], None],
    ) -> None:
        for cell, batch in by_cell(builds):
            try:
                write(cell, batch)
            except exception.DATABASE_UNAVAILABLE as exc:
                LOG.warning('Could not write to cell %s: %s', cell.identity,
                            exc)
                for build in batch:
                    build.fail(exc)
            except exception.TransactionLost:
                raise
            except Exception as exc:
                LOG.exception('Could not write to cell %s', cell.identity)
                for build in batch:
                    build.fail(exc)

    def _write_together(
        self, cell: objects.CellMapping, builds: Sequence[Build]
    ) -> None:
        with self._lock:
            waiting = self._waiting.get(cell.id)
            if waiting is None:
                waiting = self._waiting[cell.id] = batching.GroupCommit(
                    self._write_rows, self._at_once, self._clock.lock)
        rows = _Rows(cell, builds)
        waiting.do(rows)
        if rows.error is not None:
            raise rows.error

    def _write_rows(self, group: Sequence['_Rows']) -> None:
        try:
            self._write(group[0].cell, [
                build for rows in group for build in rows.builds])
        except exception.DATABASE_UNAVAILABLE as exc:
            # A separate attempt for each would wait as long each time.
            for rows in group:
                rows.error = exc

    def _write(
        self, cell: objects.CellMapping, builds: Sequence[Build]
    ) -> None:
        servers = [build.instance for build in builds]
        for build, server in zip(builds, servers, strict=True):
            server.availability_zone = (
                build.selections[0].get('availability_zone'))
            server.build_attempts = 1
        database = self._targets.database(cell)
        with database.writer() as connection:
            now, told_at = database.now(), database.timestamp()
            for build in builds:
                build.written.add(cell.id)
            # A deleted row stays: it prevents this build.
            instances.purge(connection, instances.lock(
                connection, [build.uuid for build in builds if build.again]))
            new = set(instances.create(
                connection, servers, now, {
                    build.uuid: build.spec.image_properties()
                    for build in builds}))
            instance_children.add(
                connection, [build.request for build in builds
                             if build.uuid in new], now)
            build_casts.create(connection, [
                build_casts.BuildMessage.first(
                    build.selections, build.spec).kept(build.uuid, told_at)
                for build in builds])
            instance_history.create_all(
                connection, {build.uuid: build.context for build in builds
                             if build.uuid in new}, 'create', now)
        for build, server in zip(builds, servers, strict=True):
            if build.uuid in new:
                self._notifier.updated(
                    build.context, server, (None, None),
                    (server.vm_state, server.task_state))

    def undo(self, connection: Any, builds: Sequence[Build]) -> None:
        for cell, batch in by_written_cell(builds):
            deleted = [build for build in batch if build.deleted]
            for build in deleted:
                self._notifier.deleted(build.context, 'start', build.instance)
            with self._targets.database(cell).writer() as in_cell:
                instances.purge(in_cell, [
                    build.uuid for build in batch if not build.deleted])
                for build in deleted:
                    # A deleted row prevents a late write. A row on a host
                    # belongs to its agent.
                    instances.delete(
                        in_cell, build.uuid, self._clock.now(), host=None)
            for build in deleted:
                self._notifier.deleted(build.context, 'end', build.instance)


@dataclasses.dataclass(eq=False)
class _Rows:
    """Builds to write into a cell, and the error of the write."""

    cell: objects.CellMapping
    builds: Sequence[Build]
    error: Exception | None = None
