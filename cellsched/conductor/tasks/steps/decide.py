# SPDX-License-Identifier: Apache-2.0
"""The step that settles in which cell a build is."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from oslo_log import log

from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched.conductor.tasks.build import Build
from cellsched.conductor.tasks.build import by_any_cell
from cellsched.conductor.tasks.build import by_cell
from cellsched.conductor.tasks.build import in_progress
from cellsched.conductor.tasks.build import Outcome
from cellsched.conductor.tasks import lease
from cellsched.conductor.tasks import saga
from cellsched.conductor.tasks.steps import schedule
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instances
from cellsched.db import session
from cellsched import exception
from cellsched import objects

LOG = log.getLogger(__name__)


class FindCell(saga.Step):
    """Look the chosen hosts up: the scheduler answers hosts, not cells.

    A host may have left its cell since it was chosen. Then the first of the
    alternates is claimed that is there and has room; if there is none, a
    scheduler is asked again later, which knows by then.
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
        gone, *others = build.selections
        left = [each for each in others if each.service_host in cells]
        chosen = self._alternates.claim_first(
            build.instance, left, build.spec.get('instance_group'))
        if chosen is None:
            build.end(Outcome.RETRY, exception.HostMappingNotFound(
                host=gone.service_host))
            return
        LOG.warning('%s, which was chosen for %s, is not mapped to any cell; '
                    '%s is tried', gone.service_host, build.uuid,
                    chosen.service_host)
        build.selections = [chosen, *left]
        build.cell = cells[chosen.service_host]

    def _cells(
        self, hosts: Iterable[str]
    ) -> dict[str, objects.CellMapping]:
        with self._database.reader() as connection:
            return host_mappings.get_many(connection, hosts)


class Decide(saga.Step):
    """Give the instance its cell, where it has none: this settles its fate.

    Only who still leases the request may decide, and has the whole lease
    before it then. What an earlier try decided is taken back where this one
    goes elsewhere: who made it did not hand the build over, and finds the
    request leased by another if it ever goes on.

    :param lease_s: seconds to lease the requests for from now on
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
        moved = [build for build in builds if build.earlier and build.cell
                 and build.earlier.id != build.cell.id]
        if moved:
            self._leave_earlier(moved)
        live = in_progress(builds)
        decided: set[str] = set()
        with self._database.writer() as connection:
            mine = self._renew(connection, live)
            for cell, batch in by_cell(live):
                decided |= instance_mappings.decide(
                    connection,
                    [build.uuid for build in batch if build in mine],
                    cell.id, self._clock.now())
            lost = [build for build in live
                    if build not in mine or build.uuid not in decided]
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
        """Remove what earlier tries wrote, while nobody else can try."""
        with self._database.writer() as connection:
            mine = self._renew(connection, builds)
            for build in builds:
                if build in mine and build.earlier is not None:
                    self._leave(connection, build, build.earlier)

    def _leave(
        self, connection: Any, build: Build, cell: objects.CellMapping
    ) -> None:
        try:
            with self._targets.database(cell).writer() as in_cell:
                # A deleted row is there to keep this one away.
                instances.purge(
                    in_cell, instances.lock(in_cell, [build.uuid]))
        except Exception as exc:
            LOG.exception('Cell %s, which may have %s, cannot be asked',
                          cell.identity, build.uuid)
            build.fail(exc)
        else:
            instance_mappings.withdraw(
                connection, [build.uuid], cell.id, self._clock.now())
