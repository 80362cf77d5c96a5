# SPDX-License-Identifier: Apache-2.0
"""The steps up to the decision: a host, its cell, and that it is settled."""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import datetime
from typing import Any

from oslo_log import log
import oslo_messaging

from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched import clock as clock_
from cellsched.conductor.tasks import alternates
from cellsched.conductor.tasks import saga
from cellsched import context as context_
from cellsched.db.api import build_requests
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_groups
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instances
from cellsched.db import session
from cellsched import exception
from cellsched import objects
from cellsched.rpc import scheduler as scheduler_rpc

LOG = log.getLogger(__name__)


class Expire(saga.Step):
    """Fail what was tried for too long.

    That is by the clock of the API database. Where it jumps, that is no
    reason to: what was accepted just now is tried some times before.

    :param database: the API database
    :param deadline_s: seconds since the request was accepted
    :param attempts: how often it is taken up at least
    """

    def __init__(
        self, database: session.Database, deadline_s: float, attempts: int
    ) -> None:
        self._database = database
        self._deadline_s = deadline_s
        self._attempts = attempts

    def do(self, builds: Sequence[saga.Build]) -> None:
        now = self._database.timestamp()
        for build in builds:
            accepted = build.request.created_at.replace(tzinfo=datetime.UTC)
            if (build.tries > self._attempts
                    and now - accepted.timestamp() > self._deadline_s):
                build.failed = exception.BuildDeadlineExceeded(
                    seconds=round(self._deadline_s), attempts=build.tries - 1,
                    reason=build.request.get('failure') or 'It did not end.')


class Schedule(saga.Step):
    """Ask the scheduler, once for a batch.

    If not all of them fit but as many as were asked for at least, the first
    ones are placed and the others fail. It is told who is in their server
    group now: others joined and left since they were accepted.
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

    def do(self, builds: Sequence[saga.Build]) -> None:
        wanted = builds
        batch = builds[0].batch
        least = batch.least if batch else 1
        while wanted:
            try:
                return self._select(wanted)
            except exception.NoValidHost as exc:
                # Others may have taken room since it was counted.
                placed = exc.kwargs.get('placed', 0)
                if not least <= placed < len(wanted):
                    placed = 0
                for build in wanted[placed:]:
                    build.failed = exc
                wanted = wanted[:placed]

    def _select(self, builds: Sequence[saga.Build]) -> None:
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
        self, context: context_.RequestContext, spec: objects.RequestSpec,
        uuids: list[str],
    ) -> list[list[objects.Selection]]:
        """Return where builds go; ask once more if no scheduler answers.

        The one that had the question was killed or stopped, most likely, and
        is given no more. What it may have claimed, or claims when it goes on,
        is for the same builds, which get the same hosts.
        """
        try:
            return self._scheduler.select_destinations(context, spec, uuids)
        except oslo_messaging.MessagingTimeout:
            LOG.warning('No scheduler answered for %s in time; they are asked '
                        'again', uuids)
        return self._scheduler.select_destinations(context, spec, uuids)

    def undo(self, connection: Any, builds: Sequence[saga.Build]) -> None:
        if self._fenced:
            self._claims.release([build.uuid for build in builds])

    def undone(self, builds: Sequence[saga.Build]) -> None:
        if not self._fenced:
            self._claims.release([build.uuid for build in builds])


class FindCell(saga.Step):
    """Look the chosen hosts up: the scheduler answers hosts, not cells.

    A host may have left its cell since it was chosen. Then the first of the
    alternates is claimed that is there and has room; if there is none, a
    scheduler is asked again later, which knows by then.
    """

    joint = True

    def __init__(
        self, database: session.Database, claims: claims_base.ClaimStore
    ) -> None:
        self._database = database
        self._alternates = alternates.Alternates(claims)

    def do(self, builds: Sequence[saga.Build]) -> None:
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
        self, build: saga.Build, cells: Mapping[str, objects.CellMapping]
    ) -> None:
        gone, *others = build.selections
        left = [each for each in others if each.service_host in cells]
        chosen = self._alternates.claim_first(
            build.uuid, left, build.spec.get('instance_group'))
        if chosen is None:
            build.failed = exception.HostMappingNotFound(
                host=gone.service_host)
            build.later = True
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

    joint = True

    def __init__(
        self, database: session.Database, targets: target.Targets,
        clock: clock_.Clock, lease_s: float,
    ) -> None:
        self._database = database
        self._targets = targets
        self._clock = clock
        self._lease_s = lease_s

    def do(self, builds: Sequence[saga.Build]) -> None:
        moved = [build for build in builds if build.earlier and build.cell
                 and build.earlier.id != build.cell.id]
        if moved:
            self._leave_earlier(moved)
        live = [build for build in builds if not build.ended]
        decided: set[str] = set()
        with self._database.writer() as connection:
            mine = self._renew(connection, live)
            for cell, batch in saga.by_cell(live):
                decided |= instance_mappings.decide(
                    connection,
                    [build.uuid for build in batch if build in mine],
                    cell.id, self._clock.now())
            lost = [build for build in live
                    if build not in mine or build.uuid not in decided]
            if lost:
                end_lost(connection, lost)

    def undo(self, connection: Any, builds: Sequence[saga.Build]) -> None:
        for cell, batch in saga.by_any_cell(builds):
            instance_mappings.withdraw(
                connection, [build.uuid for build in batch], cell.id,
                self._clock.now())

    def _renew(
        self, connection: Any, builds: Sequence[saga.Build]
    ) -> set[saga.Build]:
        return renew(
            connection, builds, self._database.timestamp() + self._lease_s)

    def _leave_earlier(self, builds: Sequence[saga.Build]) -> None:
        """Remove what earlier tries wrote, while nobody else can try."""
        with self._database.writer() as connection:
            mine = self._renew(connection, builds)
            for build in builds:
                if build in mine and build.earlier is not None:
                    self._leave(connection, build, build.earlier)

    def _leave(
        self, connection: Any, build: saga.Build, cell: objects.CellMapping
    ) -> None:
        try:
            with self._targets.database(cell).writer() as in_cell:
                # A deleted row is there to keep this one away.
                instances.purge(
                    in_cell, instances.lock(in_cell, [build.uuid]))
        except Exception as exc:
            LOG.exception('Cell %s, which may have %s, cannot be asked',
                          cell.identity, build.uuid)
            build.failed = exc
            saga.put_off([build], exc)
        else:
            instance_mappings.withdraw(
                connection, [build.uuid], cell.id, self._clock.now())


def read_group(connection: Any, spec: objects.RequestSpec) -> None:
    """Let a request have its server group as it is now, if there is one."""
    spec.instance_group = instance_groups.find(
        connection, spec.instance_group.uuid)
    if spec.instance_group is None:
        # It was deleted, so there is nothing left to be placed by.
        spec.scheduler_hints = {
            name: values for name, values
            in (spec.get('scheduler_hints') or {}).items()
            if name != 'group'}


def end_lost(connection: Any, builds: Sequence[saga.Build]) -> None:
    """End builds that somebody else settled, by asking who it was."""
    uuids = [build.uuid for build in builds]
    mappings = instance_mappings.get_many(connection, uuids)
    requested = build_requests.present(connection, uuids)
    for build in builds:
        mapping = mappings.get(build.uuid)
        build.deleted = mapping is None or mapping.queued_for_delete
        build.finished = not build.deleted
        decided = mapping.cell_mapping if mapping else None
        if build.finished and build.cell and decided:
            # While there is a request it may be decided anew.
            build.elsewhere = (decided.id != build.cell.id
                               and build.uuid not in requested)


def renew(
    connection: Any, builds: Sequence[saga.Build], until: float
) -> set[saga.Build]:
    """Lease requests for longer; return the builds that are ours still.

    :param until: in seconds since the epoch
    """
    owners = {build.uuid: build.owner for build in builds}
    mine = build_requests.renew(connection, owners, until)
    return {build for build in builds
            if build.uuid in mine and owners[build.uuid] == build.owner}
