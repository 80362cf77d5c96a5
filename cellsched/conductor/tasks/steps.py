# SPDX-License-Identifier: Apache-2.0
"""The steps from an accepted build to a build in its cell."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

from oslo_log import log

from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched import clock as clock_
from cellsched.conductor.tasks import base
from cellsched import context as context_
from cellsched.db.api import build_requests
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_groups
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instance_actions
from cellsched.db.cell import instances
from cellsched.db import session
from cellsched import exception
from cellsched import objects
from cellsched.rpc import compute as compute_rpc
from cellsched.rpc import scheduler as scheduler_rpc

LOG = log.getLogger(__name__)


def by_cell(
    builds: Sequence[base.Build],
) -> Iterator[tuple[objects.CellMapping, list[base.Build]]]:
    """Yield builds by their cell; those without one are left out."""
    return _grouped([(build.cell, build) for build in builds])


def by_any_cell(
    builds: Sequence[base.Build],
) -> Iterator[tuple[objects.CellMapping, list[base.Build]]]:
    """Yield builds by each cell that may know of them."""
    return _grouped([
        (cell, build) for build in builds
        for cell in (build.cell, build.earlier)])


def _grouped(
    pairs: Iterable[tuple[objects.CellMapping | None, base.Build]],
) -> Iterator[tuple[objects.CellMapping, list[base.Build]]]:
    groups: dict[int, tuple[objects.CellMapping, list[base.Build]]] = {}
    for cell, build in pairs:
        if cell is not None:
            groups.setdefault(cell.id, (cell, []))[1].append(build)
    for _, group in sorted(groups.items()):
        yield group


class Schedule(base.Step):
    """Ask the scheduler, once for the batch.

    If not all of them fit but as many as were asked for at least, the first
    ones are placed and the others fail. It is told who is in their server
    group now: others joined and left since they were accepted.
    """

    def __init__(
        self, database: session.Database,
        scheduler: scheduler_rpc.SchedulerAPI,
        claims: claims_base.ClaimStore, min_count: int,
    ) -> None:
        self._database = database
        self._scheduler = scheduler
        self._claims = claims
        self._min_count = min_count

    def do(
        self, context: context_.RequestContext, builds: Sequence[base.Build]
    ) -> None:
        wanted = builds
        while wanted:
            try:
                return self._select(context, wanted)
            except exception.NoValidHost as exc:
                # Others may have taken room since it was counted.
                placed = exc.kwargs.get('placed', 0)
                if not self._min_count <= placed < len(wanted):
                    placed = 0
                for build in wanted[placed:]:
                    build.failed = exc
                wanted = wanted[:placed]

    def _select(
        self, context: context_.RequestContext, builds: Sequence[base.Build]
    ) -> None:
        spec = builds[0].spec
        spec.num_instances = len(builds)
        self._read_group(spec)
        chosen = self._scheduler.select_destinations(
            context, spec, [build.uuid for build in builds])
        for build, selections in zip(builds, chosen, strict=True):
            build.selections = selections

    def _read_group(self, spec: objects.RequestSpec) -> None:
        group = spec.get('instance_group')
        if group is None:
            return
        with self._database.reader() as connection:
            spec.instance_group = instance_groups.find(connection, group.uuid)
        if spec.instance_group is None:
            # It was deleted, so there is nothing left to be placed by.
            spec.scheduler_hints = {
                name: values for name, values
                in (spec.get('scheduler_hints') or {}).items()
                if name != 'group'}

    def undo(
        self, context: context_.RequestContext, builds: Sequence[base.Build]
    ) -> None:
        self._claims.release([build.uuid for build in builds])


class FindCell(base.Step):
    """Look the chosen hosts up: the scheduler answers hosts, not cells."""

    def __init__(self, database: session.Database) -> None:
        self._database = database

    def do(
        self, context: context_.RequestContext, builds: Sequence[base.Build]
    ) -> None:
        hosts = [build.selections[0].service_host for build in builds]
        with self._database.reader() as connection:
            cells = host_mappings.get_many(connection, hosts)
        for build, host in zip(builds, hosts):
            build.cell = cells.get(host)
            if build.cell is None:
                build.failed = exception.HostMappingNotFound(host=host)


class Decide(base.Step):
    """Give the instance its cell, where it has none: this settles its fate.

    Only who still leases the request may decide, and has the whole lease
    before it then. What an earlier try decided is taken back where this one
    goes elsewhere: who made it did not hand the build over, and finds the
    request leased by another if it ever goes on.

    :param owner: whose the lease is
    :param lease_s: seconds to lease the requests for from now on
    """

    def __init__(
        self, database: session.Database, targets: target.Targets,
        clock: clock_.Clock, owner: str, lease_s: float,
    ) -> None:
        self._database = database
        self._targets = targets
        self._clock = clock
        self._owner = owner
        self._lease_s = lease_s

    def do(
        self, context: context_.RequestContext, builds: Sequence[base.Build]
    ) -> None:
        moved = [build for build in builds if build.earlier and build.cell
                 and build.earlier.id != build.cell.id]
        if moved:
            self._leave_earlier(moved)
        live = [build for build in builds if not build.ended]
        decided: set[str] = set()
        with self._database.writer() as connection:
            mine = self._renew(connection, live)
            for cell, batch in by_cell(live):
                decided |= instance_mappings.decide(
                    connection,
                    [build.uuid for build in batch if build.uuid in mine],
                    cell.id, self._clock.now())
            lost = [build for build in live if build.uuid not in decided]
            if lost:
                end_lost(connection, lost)

    def undo(
        self, context: context_.RequestContext, builds: Sequence[base.Build]
    ) -> None:
        with self._database.writer() as connection:
            for cell, batch in by_any_cell(builds):
                instance_mappings.withdraw(
                    connection, [build.uuid for build in batch], cell.id,
                    self._clock.now())

    def _renew(
        self, connection: Any, builds: Sequence[base.Build]
    ) -> set[str]:
        return build_requests.renew(
            connection, [build.uuid for build in builds], self._owner,
            self._clock.timestamp() + self._lease_s)

    def _leave_earlier(self, builds: Sequence[base.Build]) -> None:
        with self._database.writer() as connection:
            mine = self._renew(connection, builds)
        for build in builds:
            if build.uuid not in mine or build.earlier is None:
                continue
            cell = build.earlier
            try:
                with self._targets.database(cell).writer() as connection:
                    instances.purge(connection, [build.uuid])
                with self._database.writer() as connection:
                    instance_mappings.withdraw(
                        connection, [build.uuid], cell.id, self._clock.now())
            except Exception as exc:
                LOG.exception('Cell %s, which may have %s, cannot be asked',
                              cell.identity, build.uuid)
                build.failed = exc


class WriteRows(base.Step):
    """Write the servers into their cells, each cell in one transaction.

    A cell that cannot be written fails its own builds only.
    """

    def __init__(
        self, targets: target.Targets, clock: clock_.Clock
    ) -> None:
        self._targets = targets
        self._clock = clock

    def do(
        self, context: context_.RequestContext, builds: Sequence[base.Build]
    ) -> None:
        for cell, batch in by_cell(builds):
            try:
                self._write(context, cell, batch)
            except exception.TransactionLost:
                raise
            except Exception as exc:
                LOG.exception('Cell %s cannot be written', cell.identity)
                for build in batch:
                    build.failed = exc

    def _write(
        self, context: context_.RequestContext, cell: objects.CellMapping,
        builds: Sequence[base.Build],
    ) -> None:
        now = self._clock.now()
        for build in builds:
            build.instance.availability_zone = (
                build.selections[0].get('availability_zone'))
            build.instance.build_attempts = 1
        with self._targets.database(cell).writer() as connection:
            new = instances.create(
                connection, [build.instance for build in builds], now)
            instance_actions.create_all(
                connection, new, 'create', context, now)

    def undo(
        self, context: context_.RequestContext, builds: Sequence[base.Build]
    ) -> None:
        for cell, batch in by_any_cell(builds):
            with self._targets.database(cell).writer() as connection:
                instances.purge(connection, [build.uuid for build in batch])


class DeleteRequest(base.Step):
    """Delete the build request: from here on readers see the cell's row.

    Who deletes it owns the outcome. If it is gone its user was faster, and
    the deletion wins; if somebody else leases it by now it is left to them.
    """

    def __init__(self, database: session.Database, owner: str) -> None:
        self._database = database
        self._owner = owner

    def do(
        self, context: context_.RequestContext, builds: Sequence[base.Build]
    ) -> None:
        with self._database.writer() as connection:
            owned = build_requests.delete(
                connection, [build.uuid for build in builds], self._owner)
            lost = [build for build in builds if build.uuid not in owned]
            if lost:
                end_lost(connection, lost)


class Cast(base.Step):
    """Hand the build to the compute host, on its cell's transport.

    Nothing is undone any more: a server that cannot be handed over ends in
    ERROR in its cell, and does not keep the others.
    """

    def __init__(
        self, targets: target.Targets, compute: compute_rpc.ComputeAPIs,
        claims: claims_base.ClaimStore, clock: clock_.Clock, host: str,
    ) -> None:
        self._targets = targets
        self._compute = compute
        self._claims = claims
        self._clock = clock
        self._host = host

    def do(
        self, context: context_.RequestContext, builds: Sequence[base.Build]
    ) -> None:
        for cell, batch in by_cell(builds):
            for build in batch:
                try:
                    self._cast(self._targets.aim(context, cell), build)
                except Exception as exc:
                    build.failed = exc
                    build.finished = True
                    self._give_up(cell, build.uuid, exc)

    def _cast(
        self, aimed: context_.RequestContext, build: base.Build
    ) -> None:
        assert aimed.cell is not None
        first, *alternates = build.selections
        self._compute.get(aimed.cell.transport).build_and_run_instance(
            aimed, host=first.service_host, instance=build.instance,
            request_spec=build.spec,
            filter_properties=filter_properties(first), node=first.nodename,
            limits=first.to_dict()['limits'], host_list=alternates)

    def _give_up(
        self, cell: objects.CellMapping, uuid: str, reason: Exception
    ) -> None:
        LOG.error('%s cannot be handed to a host of cell %s: %s',
                  uuid, cell.identity, reason)
        try:
            with self._targets.database(cell).writer() as connection:
                failed = instances.fail(
                    connection, uuid, reason, self._host, self._clock.now(),
                    host=None, task_state='scheduling')
            if failed:
                self._claims.release([uuid])
        except Exception:
            LOG.exception('%s is left in BUILD', uuid)


def filter_properties(selection: objects.Selection) -> dict[str, Any]:
    """Return what a first try tells the compute host of tries and limits."""
    return {
        'retry': {'num_attempts': 1,
                  'hosts': [[selection.service_host, selection.nodename]]},
        'limits': selection.to_dict()['limits'],
    }


def end_lost(connection: Any, builds: Sequence[base.Build]) -> None:
    """End builds that somebody else settled, by asking who it was."""
    mappings = instance_mappings.get_many(
        connection, [build.uuid for build in builds])
    for build in builds:
        mapping = mappings.get(build.uuid)
        build.deleted = mapping is None or mapping.queued_for_delete
        build.finished = not build.deleted
        decided = mapping.cell_mapping if mapping else None
        if build.finished and build.cell and decided:
            build.elsewhere = decided.id != build.cell.id
