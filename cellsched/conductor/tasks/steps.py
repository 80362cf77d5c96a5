# SPDX-License-Identifier: Apache-2.0
"""Steps of ``build_and_schedule``, in their order.

A step is a subclass of ``saga.Step``, named after its action, and has its
place in ``BuildAndSchedule._make_steps``. ``do`` ends builds with
``Build.end`` or ``Build.fail``. ``undo`` rolls the step back, also after an
incomplete ``do``. A step that must not run for a build of another conductor
renews the lease in the same transaction with ``lease.renew`` and ends lost
builds with ``lease.resolve_lost``.
"""

from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import copy
import dataclasses
import datetime
import threading
from typing import Any
import weakref

from oslo_config import cfg
from oslo_log import log
import oslo_messaging

from cellsched import batching
from cellsched.cells.cell0 import Cell0
from cellsched.cells.cell0 import EVENT
from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched.conductor.tasks import lease
from cellsched.conductor.tasks import saga
from cellsched.conductor.tasks.saga import Build
from cellsched.conductor.tasks.saga import by_any_cell
from cellsched.conductor.tasks.saga import by_cell
from cellsched.conductor.tasks.saga import by_written_cell
from cellsched.conductor.tasks.saga import in_progress
from cellsched.conductor.tasks.saga import Outcome
from cellsched.context import RequestContext
from cellsched.db.api import build_requests
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_groups
from cellsched.db.api import instance_mappings
from cellsched.db.cell import build_casts
from cellsched.db.cell import instance_children
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db import session
from cellsched import exception
from cellsched import migrations
from cellsched.notify import notifiers
from cellsched import objects
from cellsched.observability.conditions import Conditions
from cellsched.observability import tracing
from cellsched.quota import base as quota
from cellsched.quota.db import admit_recorded
from cellsched.rpc import compute as compute_rpc
from cellsched.rpc import delivery
from cellsched.rpc import scheduler as scheduler_rpc

LOG = log.getLogger(__name__)

#: Seconds that a build waits for a call of the scheduler for equal requests.
#: Then it has a call of its own.
_TURN_S = 1.0


@dataclasses.dataclass(eq=False)
class Expire(saga.Step):
    """Fail builds older than the deadline, by the API database's clock.

    At least ``attempts`` attempts are made first, so that a clock jump cannot
    fail a new build.

    :param database: the API database
    :param deadline_s: seconds since the request was accepted
    :param attempts: minimum number of attempts
    """

    database: session.Database
    deadline_s: float
    attempts: int

    def do(self, builds: Sequence[Build]) -> None:
        now = self.database.timestamp()
        for build in builds:
            accepted = build.request.created_at.replace(tzinfo=datetime.UTC)
            if (build.tries > self.attempts
                    and now - accepted.timestamp() > self.deadline_s):
                build.end(
                    Outcome.FAILED, exception.BuildDeadlineExceeded(
                        seconds=round(self.deadline_s),
                        attempts=build.tries - 1,
                        reason=build.request.get('failure')
                        or 'It did not end.'))


@dataclasses.dataclass(eq=False)
class RemoveFromCell0(saga.Step):
    """Remove the cell0 record of a server that its user retries.

    The record must be gone before the server can have another cell. The
    request is marked in the same transaction, and is locked while it is open.
    So no other conductor can write a new record in cell0 that this step would
    remove.

    :param lease_s: seconds for which the leases are renewed
    """

    database: session.Database
    cell0: Cell0
    lease_s: float

    def do(self, builds: Sequence[Build]) -> None:
        buried = [build for build in builds if build.request.get('buried')]
        if not buried:
            return
        try:
            self._remove(buried)
        except exception.TransactionLost:
            raise
        except Exception as exc:
            self.cell0.explain(
                [build.uuid for build in buried], exc, buried[0].owner)
            raise

    def _remove(self, buried: Sequence[Build]) -> None:
        cell0 = self.cell0.database()
        with self.database.writer() as connection:
            owned = lease.renew(
                connection, buried,
                self.database.timestamp() + self.lease_s)
            if owned:
                uuids = [build.uuid for build in owned]
                self.cell0.remove(cell0, uuids)
                build_requests.mark_unburied(connection, uuids)
            lost = [build for build in buried if build not in owned]
            if lost:
                lease.resolve_lost(connection, lost)


@dataclasses.dataclass(eq=False)
class Schedule(saga.Step):
    """Call the scheduler once for a batch.

    If the scheduler can place at least the minimum of the batch, the first
    builds are placed and the others fail. The request carries the current
    members of the server group.

    Batches of one build with equal requests of one user that arrive during a
    call share the next call. If it fails, each of them calls alone.

    :param make_lock: see :meth:`cellsched.clock.Clock.lock`
    """

    span = 'schedule'

    database: session.Database
    scheduler: scheduler_rpc.SchedulerAPI
    claims: claims_base.Claims
    fenced: bool = True
    make_lock: Callable[[], Any] = threading.Lock

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        #: Groups in use, by the properties that their builds share.
        self._groups: weakref.WeakValueDictionary[
            Hashable, batching.GroupCommit[_Call]] = (
                weakref.WeakValueDictionary())

    def do(self, builds: Sequence[Build]) -> None:
        pending = builds
        batch = builds[0].batch
        least = batch.least if batch else 1
        while pending:
            try:
                return self._select(pending)
            except exception.NoValidHost as exc:
                # Other requests may have claimed capacity since the count.
                placed = exc.kwargs.get('placed', 0)
                if not least <= placed < len(pending):
                    placed = 0
                for build in pending[placed:]:
                    build.end(Outcome.FAILED, exc)
                pending = pending[:placed]

    def _select(self, builds: Sequence[Build]) -> None:
        spec = builds[0].spec
        spec.num_instances = len(builds)
        if spec.get('instance_group') is not None:
            with self.database.reader() as connection:
                read_group(connection, spec, self.database.conditions)
        elif self._select_together(builds):
            return
        chosen = self._ask(builds[0].context, spec,
                           [build.uuid for build in builds])
        for build, selections in zip(builds, chosen, strict=True):
            build.selections = selections

    def _select_together(self, builds: Sequence[Build]) -> bool:
        """Select a host in a call that equal requests share.

        :returns: False if the build needs a call of its own
        """
        build = builds[0]
        if len(builds) > 1 or build.again or not build.alike:
            return False
        context = build.context
        key = (build.alike, context.user_id, context.project_id,
               context.is_admin, tuple(context.roles or ()))
        with self._lock:
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = batching.GroupCommit(
                    self._ask_together, make_lock=self.make_lock,
                    turn_s=_TURN_S)
        call = _Call(build)
        try:
            group.do(call)
        except exception.ServiceBusy:
            # A call takes long: do not wait for its end.
            return False
        if call.error is not None:
            raise call.error
        build.selections = call.selections
        return bool(call.selections)

    def _ask_together(self, calls: Sequence['_Call']) -> None:
        error = None
        for start in range(0, len(calls), saga.LARGE):
            chunk = calls[start:start + saga.LARGE]
            # A service that does not answer would not answer the others.
            error = error or self._ask_once(chunk)
            for call in chunk:
                call.error = error and exception.copy_of(error)

    def _ask_once(self, calls: Sequence['_Call']) -> Exception | None:
        """Call for some builds; return the error that is that of all.

        After an error that is that of one of them, they have no hosts.
        """
        first = calls[0].build
        spec = copy.copy(first.spec)
        spec.num_instances = len(calls)
        if len(calls) > 1:
            LOG.info('Scheduling in one call: %s', exception.name_some(
                f'instance {call.build.uuid} of request '
                f'{call.build.context.request_id}' for call in calls))
        try:
            chosen = self._ask(
                first.context, spec, [call.build.uuid for call in calls])
        except Exception as exc:
            return exc if len(calls) == 1 or saga.is_transient(exc) else None
        for call, selections in zip(calls, chosen, strict=True):
            call.selections = selections
        return None

    def _ask(
        self, context: RequestContext, spec: objects.RequestSpec,
        uuids: list[str],
    ) -> list[list[objects.Selection]]:
        """Call the scheduler; repeat the call once after a timeout.

        The scheduler that had the first call was probably killed or stopped.
        Claims that it made, or makes later, are for the same instances, which
        keep them.
        """
        try:
            return self.scheduler.select_destinations(context, spec, uuids)
        except oslo_messaging.MessagingTimeout:
            LOG.warning('No scheduler answered in time for instances %s; '
                        'repeating the call', exception.name_some(uuids))
        return self.scheduler.select_destinations(context, spec, uuids)

    def undo(self, connection: Any, builds: Sequence[Build]) -> None:
        if self.fenced:
            self.claims.release([build.uuid for build in builds])

    def after_undo(self, builds: Sequence[Build]) -> None:
        if not self.fenced:
            self.claims.release([build.uuid for build in builds])


@dataclasses.dataclass(eq=False)
class _Call:
    """A build that needs a host, and the result of the call for it."""

    build: Build
    selections: list[objects.Selection] = dataclasses.field(
        default_factory=list)
    error: Exception | None = None


def read_group(
    connection: Any, spec: objects.RequestSpec, conditions: Conditions
) -> None:
    """Update the server group of a request to its current state."""
    spec.instance_group = instance_groups.find(
        connection, spec.instance_group.uuid, conditions=conditions)
    if spec.instance_group is None:
        # The group was deleted, so there is no policy to keep.
        spec.scheduler_hints = {
            name: values for name, values
            in (spec.get('scheduler_hints') or {}).items()
            if name != 'group'}


#: Attempts of a claim that conflicts with a claim of the same instance.
_CONFLICTS_MAX = 5


class Alternates:
    """Claims an alternate in place of the host that a build leaves."""

    def __init__(self, claims: claims_base.Claims) -> None:
        self._claims = claims

    def claim_first(
        self, instance: objects.Instance, hosts: list[objects.Selection],
        group: objects.InstanceGroup | None, look: Callable[[], bool | None],
    ) -> objects.Selection | None:
        """Claim the first host with capacity; return None if there is none.

        Removes it and the hosts before it from ``hosts``. Releases the claims
        on the host that the build leaves.

        :param look: for :func:`.migrations.withdraw`; if the claims are not
            released, the result is None
        :raises cellsched.exception.ClaimBusy: only hosts with locked rows are
            left
        """
        with tracing.span('claim', uuids=[instance.uuid]):
            uuid, busy = instance.uuid, None
            if not self._withdraw(uuid, look):
                return None
            while hosts:
                chosen = hosts.pop(0)
                try:
                    claimed = self._claim(claims_base.of_selection(
                        uuid, chosen, group, instance.get('project_id'),
                        instance.get('user_id')), look)
                except exception.ClaimRefused as exc:
                    LOG.info('Host %s is skipped: %s', chosen.service_host,
                             exc, instance_uuid=uuid)
                except exception.ClaimBusy as exc:
                    LOG.info('Host %s is busy, and is skipped: %s',
                             chosen.service_host, exc, instance_uuid=uuid)
                    busy = exc
                else:
                    return chosen if claimed else None
            if busy is not None:
                raise busy
            return None

    def _withdraw(self, uuid: str, look: Callable[[], bool | None]) -> bool:
        return migrations.withdraw(
            self._claims, uuid, migrations.consumer(uuid), look)

    def _claim(
        self, claims: Sequence[claims_base.Claim],
        look: Callable[[], bool | None],
    ) -> bool:
        """Claim in place of the claims that the instance holds now.

        A scheduler whose call was repeated may have claimed again after the
        release.

        :returns: False if the call is outdated
        """
        for attempt in range(1, _CONFLICTS_MAX + 1):
            try:
                self._claims.claim(claims)
                return True
            except exception.ClaimConflict:
                if attempt == _CONFLICTS_MAX:
                    raise
                if not self._withdraw(claims[0].consumer, look):
                    break
        return False


class FindCell(saga.Step):
    """Look up the cell of the selected host; the scheduler returns hosts.

    If the host has left its cell since the selection, the first alternate that
    is mapped and has capacity is claimed. Without one, the build is retried,
    and the scheduler knows the change by then.
    """

    batched = True

    def __init__(
        self, database: session.Database, claims: claims_base.Claims
    ) -> None:
        self._database = database
        self._alternates = Alternates(claims)

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
        lost, *alternates = build.selections
        mapped = [each for each in alternates if each.service_host in cells]
        chosen = self._alternates.claim_first(
            build.instance, mapped, build.spec.get('instance_group'),
            lambda: self._is_leased(build))
        if chosen is None:
            build.end(Outcome.RETRY, exception.HostMappingNotFound(
                host=lost.service_host))
            return
        LOG.warning('Host %s is not mapped to any cell; host %s is used',
                    lost.service_host, chosen.service_host,
                    instance_uuid=build.uuid, context=build.context)
        build.selections = [chosen, *mapped]
        build.cell = cells[chosen.service_host]

    def _is_leased(self, build: Build) -> bool:
        with self._database.writer() as connection:
            return build.uuid in build_requests.held(
                connection, {build.uuid: build.owner})

    def _cells(self, hosts: Iterable[str]) -> dict[str, objects.CellMapping]:
        with self._database.reader() as connection:
            return host_mappings.get_many(connection, hosts)


@dataclasses.dataclass(eq=False)
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

    database: session.Database
    targets: target.Targets
    clock: Clock
    lease_s: float

    def waits(self, builds: Sequence[Build]) -> bool:
        # The rows of the earlier cell are removed first.
        return super().waits(builds) or bool(_moved(builds))

    def do(self, builds: Sequence[Build]) -> None:
        # 1. Withdraw earlier decisions on another cell.
        moved = _moved(builds)
        if moved:
            self._leave_earlier(moved)
        live = in_progress(builds)
        decided: set[str] = set()
        with self.database.writer() as connection:
            # 2. Lock the requests that are still leased by this conductor.
            owned = self._renew(connection, live)
            # 3. Set the cell where the mapping has none, or this one already.
            for cell, batch in by_cell(live):
                decided |= instance_mappings.decide(
                    connection,
                    [build.uuid for build in batch if build in owned],
                    cell.id, self.clock.now())
            # 4. Another conductor, or the user, decided the rest.
            lost = [build for build in live
                    if build not in owned or build.uuid not in decided]
            if lost:
                lease.resolve_lost(connection, lost)

    def undo(self, connection: Any, builds: Sequence[Build]) -> None:
        for cell, batch in by_any_cell(builds):
            instance_mappings.withdraw(
                connection, [build.uuid for build in batch], cell.id,
                self.clock.now())

    def _renew(self, connection: Any, builds: Sequence[Build]) -> set[Build]:
        return lease.renew(
            connection, builds, self.database.timestamp() + self.lease_s)

    def _leave_earlier(self, builds: Sequence[Build]) -> None:
        """Remove rows of earlier attempts while the requests are locked."""
        with self.database.writer() as connection:
            owned = self._renew(connection, builds)
            for build in builds:
                if build in owned and build.earlier is not None:
                    self._leave(connection, build, build.earlier)

    def _leave(
        self, connection: Any, build: Build, cell: objects.CellMapping
    ) -> None:
        try:
            with self.targets.database(cell).writer() as in_cell:
                instances.undo_builds(in_cell, [build.uuid])
        except Exception as exc:
            LOG.exception('Could not remove the row of the server in cell %s',
                          cell.identity, instance_uuid=build.uuid,
                          context=build.context)
            build.fail(exc)
        else:
            instance_mappings.withdraw(
                connection, [build.uuid], cell.id, self.clock.now())


def _moved(builds: Sequence[Build]) -> list[Build]:
    """Return the builds that an earlier attempt decided on another cell."""
    return [build for build in builds if build.earlier and build.cell
            and build.earlier.id != build.cell.id]


@dataclasses.dataclass(eq=False)
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

    database: session.Database
    targets: target.Targets
    clock: Clock
    lease_s: float
    notifier: notifiers.TaskNotifier = dataclasses.field(
        default_factory=notifiers.TaskNotifier)
    at_once: int = 1

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[int, batching.GroupCommit[_Rows]] = {}

    def do(self, builds: Sequence[Build]) -> None:
        again = [build for build in builds if build.again]
        self._write_all([build for build in builds if not build.again],
                        self._write_together)
        if again:
            with self.database.writer() as connection:
                owned = lease.renew(
                    connection, again,
                    self.database.timestamp() + self.lease_s)
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
                    self._write_rows, self.at_once, self.clock.lock)
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
                rows.error = exception.copy_of(exc)

    def _write(
        self, cell: objects.CellMapping, builds: Sequence[Build]
    ) -> None:
        servers = [build.instance for build in builds]
        for build, server in zip(builds, servers, strict=True):
            server.availability_zone = (
                build.selections[0].get('availability_zone'))
            server.build_attempts = 1
        database = self.targets.database(cell)
        with database.writer() as connection:
            now, told_at = database.now(), database.timestamp()
            for build in builds:
                build.written.add(cell.id)
            instances.undo_builds(connection, [
                build.uuid for build in builds if build.again])
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
                for build in builds if build.uuid in new])
            instance_history.create_all(
                connection, {build.uuid: build.context for build in builds
                             if build.uuid in new}, 'create', now)
        for build, server in zip(builds, servers, strict=True):
            if build.uuid in new:
                self.notifier.updated(
                    build.context, server, (None, None),
                    (server.vm_state, server.task_state))

    def undo(self, connection: Any, builds: Sequence[Build]) -> None:
        for cell, batch in by_written_cell(builds):
            deleted = [build for build in batch if build.deleted]
            for build in deleted:
                self.notifier.deleted(build.context, 'start', build.instance)
            with self.targets.database(cell).writer() as in_cell:
                instances.undo_builds(in_cell, [
                    build.uuid for build in batch if not build.deleted])
                for build in deleted:
                    # A deleted row prevents a late write. A row on a host
                    # belongs to its agent.
                    instances.delete(
                        in_cell, build.uuid, self.clock.now(), host=None)
            for build in deleted:
                self.notifier.deleted(build.context, 'end', build.instance)


@dataclasses.dataclass(eq=False)
class _Rows:
    """Builds to write into a cell, and the error of the write."""

    cell: objects.CellMapping
    builds: Sequence[Build]
    error: Exception | None = None


@dataclasses.dataclass(eq=False)
class Release(saga.Step):
    """Delete the build requests: from here on readers see the cells' rows.

    The conductor whose transaction deletes a request owns the outcome. If the
    user deleted the request first, the deletion wins. If another conductor has
    leased it, the build is left to that conductor. If the user changed the
    request since it was read, the row is corrected first.

    The quota is checked in the same transaction, so that each server counts
    for the next check. Builds over quota fail. The limits that an embedding
    service recorded hold in place of those of this conductor.
    """

    final = batched = True

    database: session.Database
    targets: target.Targets
    quotas: quota.QuotaDriver
    clock: Clock

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
        with self.database.writer() as connection:
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
            refused = self._admit(connection, _by_batch(held))
            build_requests.drop(connection, revisions.keys() - refused.keys())
        for build in held:
            if build.uuid in refused:
                build.end(Outcome.FAILED, refused[build.uuid])

    def _admit(
        self, connection: Any, batches: Sequence[quota.QuotaBatch]
    ) -> dict[str, exception.OverQuota]:
        recorded = [each for each in batches if each.limits is not None]
        if not recorded:
            return self.quotas.admit_all(connection, batches)
        unrecorded = [each for each in batches if each.limits is None]
        refused = self.quotas.admit_all(connection, unrecorded)
        # The admitted builds count for those with recorded limits.
        build_requests.drop(connection, [
            build.uuid for batch in unrecorded for build in batch.builds
            if build.uuid not in refused])
        return refused | admit_recorded(
            connection, recorded, self.clock.now())

    def _change(self, builds: Sequence[Build]) -> None:
        """Correct the rows in the cells after changes of the requests.

        The requests are locked meanwhile. If another conductor released a
        request, the user would change the row itself, and this correction
        would be out of date.
        """
        with self.database.writer() as connection:
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
            with self.targets.database(cell).writer() as connection:
                for build in builds:
                    instances.correct(
                        connection, build.request, self.clock.now())
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
            build.batch.needed if build.batch else 1, build.quota)
        for batch in batches.values() for build in batch[:1]]


#: Errors after which a message to a host is sent later.
UNSENT = (*delivery.ERRORS, cfg.Error)


@dataclasses.dataclass(eq=False)
class Cast(saga.Step):
    """Cast the build to the compute host, on its cell's transport.

    After this step nothing is rolled back. If the broker does not take the
    message, or an option that the transport reads is invalid,
    ``recovery.StalledBuilds`` sends it later. A server that cannot be
    cast for another reason ends in ERROR in its cell, without effect on
    others.
    """

    final = True
    span = 'cast to hosts'

    targets: target.Targets
    compute: compute_rpc.ComputeAPIs
    claims: claims_base.Claims
    clock: Clock
    host: str
    notifier: notifiers.TaskNotifier

    def do(self, builds: Sequence[Build]) -> None:
        for cell, batch in by_cell(builds):
            try:
                self._cast_all(cell, batch)
            except UNSENT as exc:
                # Each further cast would wait as long for the same broker.
                LOG.warning('Could not cast to the hosts of cell %s for '
                            'instances %s; the cast is retried: %s',
                            cell.identity,
                            exception.name_some(
                                build.uuid for build in batch),
                            exception.describe(exc))

    def _cast_all(
        self, cell: objects.CellMapping, builds: Sequence[Build]
    ) -> None:
        contexts: dict[int, RequestContext] = {}
        for build in builds:
            try:
                if id(build.context) not in contexts:
                    contexts[id(build.context)] = self.targets.target_cell(
                        build.context, cell)
                self._cast(contexts[id(build.context)], build)
            except UNSENT:
                raise
            except Exception as exc:
                build.end(Outcome.FINISHED, exc)
                self._give_up(cell, build, exc)

    def _cast(self, cell_context: RequestContext, build: Build) -> None:
        message = build_casts.BuildMessage.first(build.selections, build.spec)
        LOG.info('Sending the build to host %s in cell %s',
                 message.chosen.service_host, cell_context.cell.name,
                 instance_uuid=build.uuid, context=build.context)
        self.compute.get(cell_context.cell.transport).build_and_run_instance(
            cell_context, instance=build.instance, **message.arguments())

    def _give_up(
        self, cell: objects.CellMapping, build: Build,
        reason: Exception,
    ) -> None:
        uuid = build.uuid
        LOG.error('Could not cast the build to a host of cell %s: %s',
                  cell.identity, reason, instance_uuid=uuid,
                  context=build.context)
        try:
            with self.targets.database(cell).writer() as connection:
                failed = instances.fail(
                    connection, uuid, reason, self.host, self.clock.now(),
                    EVENT, host=None, task_state='scheduling')
            if failed:
                self.claims.release([uuid])
                self.notifier.failed(
                    build.context, 'build_instances', build.instance,
                    build.spec, reason)
        except Exception:
            LOG.exception('The server stays in BUILD', instance_uuid=uuid,
                          context=build.context)
