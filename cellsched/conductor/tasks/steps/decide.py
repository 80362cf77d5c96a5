# SPDX-License-Identifier: Apache-2.0
"""The steps that decide in which cell a build is."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from oslo_log import log

from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched.conductor.tasks import lease
from cellsched.conductor.tasks import saga
from cellsched.conductor.tasks.saga import Build
from cellsched.conductor.tasks.saga import by_any_cell
from cellsched.conductor.tasks.saga import by_cell
from cellsched.conductor.tasks.saga import in_progress
from cellsched.conductor.tasks.saga import Outcome
from cellsched.conductor.tasks.steps import schedule
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instances
from cellsched.db import session
from cellsched import exception
from cellsched import objects

LOG = log.getLogger(__name__)


class FindCell(saga.Step):
    """Look up the cell of the selected host; the scheduler returns hosts.

    If the host has left its cell since the selection, the first alternate that
    is mapped and has capacity is claimed. Without one, the build is retried,
    and the scheduler knows the change by then.
    """

    batched = True

    def __init__(
        self, database: session.Database, claims: claims_base.ClaimStore
    ) -> None:
        self._database = database
        self._alternates = schedule.Alternates(claims)

    def do(self, builds: Sequence[Build]) -> None:
        cells = self._cells(
            build.selections[0].service_host for build in builds)
        for build in builds:
            build.cell = cells.get(build.selections[0].service_host)
        lost = [build for build in builds if build.cell is None]
        if lost:
            cells = self._cells(
                each.service_host for build in lost
                for each in build.selections[1:])
            for build in lost:
                self._take_alternate(build, cells)

    def _take_alternate(
        self, build: Build, cells: Mapping[str, objects.CellMapping]
    ) -> None:
        gone, *rest = build.selections
        mapped = [each for each in rest if each.service_host in cells]
        chosen = self._alternates.claim_first(
            build.instance, mapped, build.spec.get('instance_group'))
        if chosen is None:
            build.end(Outcome.RETRY, exception.HostMappingNotFound(
                host=gone.service_host))
            return
        LOG.warning('Host %s of instance %s is not mapped to any cell; '
                    'host %s is used', gone.service_host, build.uuid,
                    chosen.service_host)
        build.selections = [chosen, *mapped]
        build.cell = cells[chosen.service_host]

    def _cells(
        self, hosts: Iterable[str]
    ) -> dict[str, objects.CellMapping]:
        with self._database.reader() as connection:
            return host_mappings.get_many(connection, hosts)


class Decide(saga.Step):
    """Set the cell of the instance mapping, by compare-and-set on NULL.

    This is the fence of a build. The update applies only where the lease is
    still owned and the mapping has no other cell. The lease is renewed in the
    same transaction, so that the following steps have a whole lease. If an
    earlier attempt decided on another cell, its decision is withdrawn first:
    its conductor has not cast the build and no longer owns the lease.

    :param lease_s: seconds for which the leases are renewed
    """

    batched = True

    def __init__(
        self, database: session.Database, targets: target.Targets,
        clock: Clock, lease_s: float,
    ) -> None:
        self._database = database
        self._targets = targets
        self._clock = clock
        self._lease_s = lease_s

    def do(self, builds: Sequence[Build]) -> None:
        # 1. Withdraw earlier decisions on another cell.
        moved = [build for build in builds if build.earlier and build.cell
                 and build.earlier.id != build.cell.id]
        if moved:
            self._leave_earlier(moved)
        live = in_progress(builds)
        decided: set[str] = set()
        with self._database.writer() as connection:
            # 2. Lock the requests that are still leased by this conductor.
            owned = self._renew(connection, live)
            # 3. Set the cell where the mapping has none, or this one already.
            for cell, batch in by_cell(live):
                decided |= instance_mappings.decide(
                    connection,
                    [build.uuid for build in batch if build in owned],
                    cell.id, self._clock.now())
            # 4. Another conductor, or the user, decided the rest.
            lost = [build for build in live
                    if build not in owned or build.uuid not in decided]
            if lost:
                lease.resolve_lost(connection, lost)

    def undo(self, connection: Any, builds: Sequence[Build]) -> None:
        for cell, batch in by_any_cell(builds):
            instance_mappings.withdraw(
                connection, [build.uuid for build in batch], cell.id,
                self._clock.now())

    def _renew(
        self, connection: Any, builds: Sequence[Build]
    ) -> set[Build]:
        return lease.renew(
            connection, builds, self._database.timestamp() + self._lease_s)

    def _leave_earlier(self, builds: Sequence[Build]) -> None:
        """Remove rows of earlier attempts while the requests are locked."""
        with self._database.writer() as connection:
            owned = self._renew(connection, builds)
            for build in builds:
                if build in owned and build.earlier is not None:
                    self._leave(connection, build, build.earlier)

    def _leave(
        self, connection: Any, build: Build, cell: objects.CellMapping
    ) -> None:
        try:
            with self._targets.database(cell).writer() as in_cell:
                # A deleted row stays: it prevents this build.
                instances.purge(
                    in_cell, instances.lock(in_cell, [build.uuid]))
        except Exception as exc:
            LOG.exception('Could not remove the row of instance %s in cell '
                          '%s', build.uuid, cell.identity)
            build.fail(exc)
        else:
            instance_mappings.withdraw(
                connection, [build.uuid], cell.id, self._clock.now())
