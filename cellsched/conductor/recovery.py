# SPDX-License-Identifier: Apache-2.0
"""Recovery of interrupted work.

Above the cells: build requests, casts of builds and deletions. In a cell:
migrations, deletions on hosts that are down, and leftover networks.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
import contextlib
import dataclasses
import datetime
from typing import NamedTuple

from oslo_log import log
from oslo_utils import uuidutils

from cellsched.cells import gather
from cellsched.cells import registry
from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched.conductor.tasks import build_and_schedule
from cellsched.conductor.tasks import lease
from cellsched.conductor.tasks import steps
from cellsched.context import admin
from cellsched.context import of_owner
from cellsched.context import RequestContext
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.api import leases
from cellsched.db.cell import build_casts
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db.cell import server_moves
from cellsched.db.cell import services
from cellsched.db.cell import states
from cellsched.db import session
from cellsched.deletion import Deletion
from cellsched.deletion import LEASE_S
from cellsched import exception
from cellsched import migrations
from cellsched.network import deallocation
from cellsched import objects
from cellsched.observability.conditions import Conditions
from cellsched.observability import metrics
from cellsched.observability.metrics import Metrics
from cellsched.observability import tracing
from cellsched.rpc import compute as compute_rpc
from cellsched.rpc import conductor as conductor_rpc
from cellsched.rpc import delivery

LOG = log.getLogger(__name__)


#: Seconds after which batches that run count as waiting for something
#: outside.
_WAITS_S = 0.5

#: How many times as many batches run then.
_GROWTH = 4


@dataclasses.dataclass(eq=False)
class Recoverer:
    """Resumes build requests whose lease has expired.

    If a message is lost, or its conductor is killed, the build request
    remains. Any conductor may resume it. Conductors that search at the same
    time lease different requests. The lease only avoids duplicate work; the
    conditions in the task's updates keep a build from being done twice.

    Requests that were accepted as one batch are resumed as one batch, because
    they are built together or not at all.

    The recoverer also runs the retries that this conductor has deferred.

    :param lease_s: seconds after which an unleased request is overdue
    :param executor: runs the batches, for a context and uuids; should let
        projects take turns
    :param at_once: batches that may run at a time; more of them run if these
        wait for something outside
    :param page: requests to lease at a time; the next page is read at once if
        this one was full
    :param queued: returns the instances whose messages wait in this process;
        their builds need no recovery
    """

    database: session.Database
    task: build_and_schedule.BuildAndSchedule
    lease_s: float
    executor: futures.Executor
    at_once: int = 16
    page: int = 100
    new_uuid: Callable[[], str] = uuidutils.generate_uuid
    metrics: Metrics = dataclasses.field(default_factory=Metrics)
    queued: Callable[[], Collection[str]] = tuple

    def __post_init__(self) -> None:
        self._running: set[futures.Future[None]] = set()

    def run(self) -> None:
        """Start all overdue batches and due retries.

        Returns when each is done or running; does not wait for the last ones.
        """
        for attempt in self.task.retries.pop_due():
            self._begin(attempt)
        for attempt in self._claimed():
            self._begin(attempt)

    def _begin(self, attempt: lease.Attempt) -> None:
        while len(self._running) >= self.at_once:
            done, self._running = futures.wait(
                self._running, _WAITS_S, futures.FIRST_COMPLETED)
            if not done and len(self._running) < _GROWTH * self.at_once:
                # All of them may wait for the same cell.
                break
        self._running.add(self.executor.submit(
            self._try, attempt.context, attempt.uuids, attempt))

    def _claimed(self) -> Iterator[lease.Attempt]:
        """Yield overdue batches after leasing them for this conductor."""
        after = 0
        queued = frozenset(self.queued())
        while True:
            with self.database.reader() as connection:
                due = leases.LeaseDeadline(
                    self.database.timestamp(),
                    self.database.now() - datetime.timedelta(
                        seconds=self.lease_s))
                page = leases.list_overdue(
                    connection, due, self.page, after)
                batches = leases.list_batches(
                    connection, [each.uuid for each in page
                                 if each.uuid not in queued], due)
            if batches:
                yield from self._claim(batches, due)
            if len(page) < self.page:
                return
            after = page[-1].id

    def _claim(
        self, batches: list[list[str]], due: leases.LeaseDeadline
    ) -> Iterator[lease.Attempt]:
        owner = self.new_uuid()
        with self.database.writer() as connection:
            claimed = leases.claim(
                connection, batches, owner, due, due.now + self.lease_s)
            first = [batch[0] for batch in claimed]
            projects = build_requests.projects(connection, first)
            traces = (build_requests.traces(connection, first)
                      if tracing.is_on() else {})
        for batch in claimed:
            self.task.leases.hold(dict.fromkeys(batch, owner))
        self.metrics.add(
            metrics.RECOVERED, ('lease_expired',), sum(map(len, claimed)))
        for batch in claimed:
            LOG.warning('Resuming the interrupted builds of instances %s',
                        exception.name_some(batch))
            # Here and in the scheduler, the batches of projects take turns.
            context = admin()
            context.project_id = projects.get(batch[0])
            yield lease.Attempt(context, batch, owner,
                                trace=traces.get(batch[0], ''))

    def _try(
        self, context: RequestContext, uuids: Sequence[str],
        attempt: lease.Attempt,
    ) -> None:
        try:
            self.task.attempt(attempt)
        except Exception:
            # One failure does not stop the others.
            LOG.exception('Could not resume the builds of instances %s',
                          exception.name_some(uuids))


#: Upper limit for the growth of the timeout.
_GROWTH_MAX = 8


class RetryPolicy(NamedTuple):
    """Limits for casting a build to its host again.

    :param timeout_s: seconds for a host to begin a build after the first cast;
        doubles with each further cast
    :param casts: maximum casts to one host
    :param down_s: seconds without a report after which a service is down
    """

    timeout_s: float
    casts: int
    down_s: float

    def more_s(self, casts: int) -> float:
        """Return the seconds to add to the timeout after a repeated cast.

        :param casts: number of casts before this one
        """
        return self.timeout_s * (min(2 ** casts, _GROWTH_MAX) - 1)


class _Found(NamedTuple):
    """A build whose last cast is old, and its current state."""

    cast: build_casts.BuildCast
    instance: objects.Instance | None
    is_host_up: bool


@dataclasses.dataclass(eq=False)
class StalledBuilds:
    """Casts builds again that no compute host has begun.

    In every cell:

    * A build that its host has not begun is cast again, up to
      ``RetryPolicy.casts`` times; then the cell's conductor tries the next
      host.
    * A build in progress moves to the next host if the host's service is down.
    * A build that waits for a conductor of the cell is cast to one again.

    A receiver of an old message finds a changed row and does nothing.
    Conductors that search at the same time get different builds. Cells are
    processed independently of each other. Builds with a build request are left
    to :class:`Recoverer`. A cell that does not answer is skipped until the
    next run.

    :param executor: runs the work in cells
    :param page: builds of a cell to read at a time; the next page is read at
        once if this one was full
    """

    database: session.Database
    cells: registry.CellRegistry
    gatherer: gather.Gatherer
    targets: target.Targets
    compute: compute_rpc.ComputeAPIs
    conductors: conductor_rpc.ConductorAPIs
    policy: RetryPolicy
    executor: futures.Executor
    page: int = 200
    metrics: Metrics = dataclasses.field(default_factory=Metrics)

    def __post_init__(self) -> None:
        #: Running work, by the uuid of the cell.
        self._running: dict[str, futures.Future[None]] = {}
        self._conditions = Conditions(LOG, self.database.clock.monotonic)

    def run(self) -> None:
        """Search all cells; return when the work is done or running."""
        context = admin()
        self._running = {
            uuid: future for uuid, future in self._running.items()
            if not future.done()}
        cells = {cell.uuid: cell for cell in self.cells.real()
                 if cell.uuid not in self._running}
        gathered = self.gatherer.gather(context, cells.values(), self._find)
        for uuid, found in gathered.results.items():
            if found:
                self._running[uuid] = self.executor.submit(
                    self._process_all,
                    self.targets.target_cell(context, cells[uuid]), found)

    def _process_all(
        self, cell_context: RequestContext, found: list[_Found]
    ) -> None:
        """Process these builds of a cell, and the pages after them."""
        postponed = ('Check of stalled builds in cell '
                     f'{cell_context.cell.name} is postponed')
        try:
            while found:
                self._process_page(cell_context, found)
                found = (self._find(cell_context)
                         if len(found) == self.page else [])
            self._conditions.end(postponed)
        except Exception as exc:
            self._conditions.occur(postponed, exc)

    def _process_page(
        self, cell_context: RequestContext, found: list[_Found]
    ) -> None:
        waiting = [each.cast.instance_uuid for each in found]
        with self.database.reader() as connection:
            requested = build_requests.present(connection, waiting)
            mappings = instance_mappings.get_many(connection, waiting)
        for each in found:
            mapping = mappings.get(each.cast.instance_uuid)
            present = mapping.cell_mapping if mapping else None
            if each.cast.instance_uuid not in requested:
                self._try(cell_context, each, present and present.uuid)

    def _find(self, cell_context: RequestContext) -> list[_Found]:
        """Reserve stalled builds for this conductor and return them."""
        database = cell_context.cell.database
        with database.reader() as connection:
            now = database.timestamp()
            before = now - self.policy.timeout_s
            if not build_casts.is_any_before(connection, before):
                return []
        with database.writer() as connection:
            casts = build_casts.take_before(
                connection, before, now, self.page)
        with database.reader() as connection:
            rows = instances.get_many(
                connection, [each.instance_uuid for each in casts])
            up = services.list_up(
                connection, services.COMPUTE,
                database.now() - datetime.timedelta(
                    seconds=self.policy.down_s))
        return [
            _Found(cast, rows.get(cast.instance_uuid), cast.host in up)
            for cast in casts]

    def _try(
        self, cell_context: RequestContext, found: _Found, cell: str | None
    ) -> None:
        try:
            instance = found.instance
            if cell == cell_context.cell.uuid or (
                    instance is not None and instance.host is not None):
                self._process(cell_context, found)
            else:
                self._remove(cell_context.cell.database, found.cast)
        except steps.UNSENT as exc:
            LOG.warning('Could not cast the build in cell %s; the cast is '
                        'retried: %s', cell_context.cell.name,
                        exception.describe(exc),
                        instance_uuid=found.cast.instance_uuid)
        except Exception:
            # One failure does not stop the others.
            LOG.exception('Could not resume the build',
                          instance_uuid=found.cast.instance_uuid)

    def _process(self, cell_context: RequestContext, found: _Found) -> None:
        cast, instance = found.cast, found.instance
        state = instance and states.State(
            instance.vm_state, instance.task_state)
        database = cell_context.cell.database
        # 1. A build in progress is checked again after the timeout.
        if state == states.SPAWNING and found.is_host_up:
            return
        # 2. Change nothing before the message can be read. That of a later
        #    release is left to its services.
        if instance is not None and state in states.OF_BUILD:
            try:
                message = build_casts.BuildMessage.read(cast)
            except objects.READ_ERRORS as exc:
                LOG.warning('Not resuming the build: its message cannot be '
                            'read by this release (%s)', type(exc).__name__,
                            instance_uuid=cast.instance_uuid)
                return
        # 3. A build that has ended needs no message. One that did not begin is
        #    cast to the same host again, because the message may be lost. The
        #    writes are conditional, so only one conductor casts. After some
        #    casts, or if the host is down, the next alternate gets the build;
        #    ``_free`` first makes sure that the host cannot begin it.
        if instance is None or state not in states.OF_BUILD:
            with database.writer() as connection:
                build_casts.drop(connection, [cast.instance_uuid])
        elif (state == states.SCHEDULING and found.is_host_up
              and cast.casts < self.policy.casts):
            with database.writer() as connection:
                is_current = build_casts.tell_again(
                    connection, cast, self._next(database, cast))
            if is_current:
                self.metrics.add(metrics.RECOVERED, ('cast_again',))
                LOG.warning('Casting to host %s again: it did not begin the '
                            'build', cast.host,
                            instance_uuid=cast.instance_uuid)
                client = self.compute.get(cell_context.cell.transport)
                with self._due_again_if_unsent(database, cast):
                    client.build_and_run_instance(
                        cell_context, instance=instance, **message.arguments())
        elif self._detach(database, instance, cast):
            with self._due_again_if_unsent(database, cast):
                self._reschedule(cell_context, instance, cast, message)

    @contextlib.contextmanager
    def _due_again_if_unsent(
        self, database: session.Database, cast: build_casts.BuildCast
    ) -> Iterator[None]:
        """Make the cast due again at once if the message is not sent."""
        try:
            yield
        except steps.UNSENT:
            with database.writer() as connection:
                build_casts.take_back(
                    connection, cast,
                    database.timestamp() - self.policy.timeout_s)
            raise

    def _next(
        self, database: session.Database, cast: build_casts.BuildCast
    ) -> float:
        """Return the start of the timeout after a repeated cast."""
        return database.timestamp() + self.policy.more_s(cast.casts)

    def _remove(
        self, database: session.Database, cast: build_casts.BuildCast
    ) -> None:
        """Remove the row of a build that belongs to another cell.

        A conductor wrote it after its lease had expired, when another
        conductor had already withdrawn its decision.
        """
        uuid = cast.instance_uuid
        with database.writer() as connection:
            if not build_casts.tell_again(
                    connection, cast, database.timestamp()):
                return
            LOG.warning('Removing the build: its server is not in this cell',
                        instance_uuid=uuid)
            instances.undo_builds(connection, [uuid])
            build_casts.drop(connection, [uuid])

    def _detach(
        self, database: session.Database, instance: objects.Instance,
        cast: build_casts.BuildCast,
    ) -> bool:
        """Remove the host of a build, so that a conductor reschedules it.

        :returns: False if the build has changed meanwhile
        """
        with database.writer() as connection:
            if not build_casts.tell_again(
                    connection, cast, self._next(database, cast)):
                return False
            now = database.now()
            freed = instance.task_state is None or instances.transit(
                connection, instance.uuid, 'hand_on', now,
                {'host': None, 'node': None}, host=instance.host,
                build_attempts=instance.build_attempts)
            if freed and instance.host is not None:
                # If the host has spawned a guest, it must remove the guest.
                instance_history.give_up(
                    connection, instance.uuid, instance.host, now,
                    _not_begun(instance.uuid))
            return freed

    def _reschedule(
        self, cell_context: RequestContext, instance: objects.Instance,
        cast: build_casts.BuildCast, message: build_casts.BuildMessage,
    ) -> None:
        self.metrics.add(metrics.RECOVERED, ('other_host',))
        LOG.warning('Rescheduling the build, which host %s did not begin',
                    cast.host, instance_uuid=instance.uuid)
        reason = _not_begun(instance.uuid)
        self.conductors.get(cell_context.cell.transport).build_instances(
            cell_context, [instance],
            {**message.filter_properties, 'retry': {
                **message.filter_properties['retry'],
                'num_attempts': instance.build_attempts,
                'exc_reason': exception.user_text(reason)}},
            message.request_spec, [list(message.host_list)])


def _not_begun(uuid: str) -> exception.BuildFailed:
    return exception.BuildFailed(
        uuid=uuid, reason='its host did not take it up')


_Cast = Callable[
    [RequestContext, str, objects.Instance, str], None]


@dataclasses.dataclass(eq=False)
class StalledMigrations:
    """Ends migrations that have made no progress until their deadline.

    The server's row decides how. If the server is still on its source, the
    migration is aborted and its claims are released. If the server is on its
    destination, its claims are transferred to it. A server that was being
    offloaded leaves its host. A late agent or conductor finds the migration
    ended and reverts its own work.

    :param database: the cell's database
    :param compute: the agents of the cell
    :param host: recorded as the host of faults
    :param deadline_s: seconds without progress after which a migration ends
    :param down_s: seconds without a report after which a host is down
    :param moves_max: migrations to check in each run
    """

    database: session.Database
    compute: compute_rpc.ComputeAPI
    claims: claims_base.Claims
    host: str
    deadline_s: float
    down_s: float
    moves_max: int = 100

    def __post_init__(self) -> None:
        self._migrations = migrations.Migrations(self.claims, self.host)

    def run(self) -> None:
        """End the overdue migrations."""
        with self.database.reader() as connection:
            before = self.database.now() - datetime.timedelta(
                seconds=self.deadline_s)
            overdue = server_moves.list_before(
                connection, before, self.moves_max)
            # A late scheduler may have claimed after their end.
            ended = server_moves.list_given_up(
                connection, before - datetime.timedelta(
                    seconds=self.deadline_s), before)
        for move in overdue:
            try:
                self._end(move, before)
            except Exception:
                # A failure of one migration does not stop the others.
                LOG.exception('Could not end the %s', move.migration_type,
                              instance_uuid=move.instance_uuid)
        for move in ended:
            try:
                self._migrations.release_ended(self.database, move)
            except Exception:
                LOG.exception('Could not release the claims of an ended move',
                              instance_uuid=move.instance_uuid)

    def _end(
        self, move: server_moves.Migration, before: datetime.datetime
    ) -> None:
        offloads = (move.migration_type == server_moves.SHELVE
                    and move.status == server_moves.MIGRATING)
        if move.status == server_moves.FINISHED:
            self._cast_again(move, before, self.compute.migrate_out)
        elif move.status == server_moves.MOVED:
            if self._migrations.finish(self.database, move):
                LOG.warning('Ended the stranded %s', move.migration_type,
                            instance_uuid=move.instance_uuid)
                if move.kind.leaves:
                    self._cast(move, move.source_compute,
                               self.compute.migrate_out)
        elif offloads and self._exists(move.instance_uuid):
            # The host may have removed the server already: finish, not abort.
            self._cast_again(
                move, before, self.compute.shelve_offload_instance)
        elif self._migrations.abort(
                self.database, move, exception.MoveDeadlineExceeded(
                    kind=move.migration_type, seconds=self.deadline_s),
                [move.status]):
            if move.dest_compute in (None, move.source_compute):
                return
            self._cast(move, move.dest_compute, self.compute.migrate_out)
            if move.migration_type == server_moves.MIGRATION:
                # It may have stopped the server.
                self._cast(move, move.source_compute, self.compute.migrate_out)

    def _exists(self, uuid: str) -> bool:
        with self.database.reader() as connection:
            return instances.get(connection, uuid) is not None

    def _cast_again(
        self, move: server_moves.Migration, before: datetime.datetime,
        cast: _Cast,
    ) -> None:
        """Cast to the source host again and restart the deadline.

        A host that is down gets no further message, because messages would
        pile up in its queue.
        """
        host = move.source_compute
        assert host is not None
        with self.database.writer() as connection:
            now = self.database.now()
            if move.status == server_moves.FINISHED and (
                    not services.is_known(connection, host)):
                # An operator deleted the host. If it returns, it removes its
                # guest, because the server has left it.
                server_moves.advance(
                    connection, move.uuid, [server_moves.FINISHED],
                    server_moves.DONE, now)
                return
            is_overdue = server_moves.touch(
                connection, move.uuid, before, now)
            up = services.is_up(connection, host, now, self.down_s)
        if is_overdue and up:
            self._cast(move, host, cast)

    def _cast(
        self, move: server_moves.Migration, host: str | None, cast: _Cast
    ) -> None:
        if host is None:
            return
        try:
            cast(admin(), host,
                 objects.Instance(uuid=move.instance_uuid), move.uuid)
        except delivery.ERRORS as exc:
            LOG.warning('Could not cast to host %s to end a move: %s', host,
                        exception.describe(exc),
                        instance_uuid=move.instance_uuid)


@dataclasses.dataclass(eq=False)
class InterruptedDeletions:
    """Continues deletions whose process has stopped, above the cells.

    Several conductors may do this at the same time.

    :param database: the API database
    :param owner: name of this process
    :param executor: runs the deletions of a cell one after the other
    :param page: deletions to read at a time
    """

    database: session.Database
    deletion: Deletion
    owner: str
    executor: futures.Executor
    page: int = 100

    def __post_init__(self) -> None:
        #: Running work, by the id of the cell.
        self._running: dict[int | None, futures.Future[None]] = {}

    def run(self) -> None:
        """Start to continue the deletions.

        Each that fails is retried after its lease.
        """
        with self.database.reader() as connection:
            now = self.database.timestamp()
            found = leases.list_interrupted_deletions(
                connection, now, self.page)
        if not found:
            return
        with self.database.writer() as connection:
            uuids = leases.take_deletions(
                connection, found, self.owner, now, now + LEASE_S)
            mappings = instance_mappings.get_many(connection, uuids)
        by_cell: dict[int | None, list[str]] = {}
        for uuid in uuids:
            mapping = mappings.get(uuid)
            cell = mapping.cell_mapping if mapping else None
            by_cell.setdefault(cell.id if cell else None, []).append(uuid)
        for number, of_cell in by_cell.items():
            running = self._running.get(number)
            if running is None or running.done():
                self._running[number] = self.executor.submit(
                    self._continue, admin(), of_cell)

    def _continue(
        self, context: RequestContext, uuids: Sequence[str]
    ) -> None:
        """Continue the deletions of a cell, while it answers."""
        for uuid in uuids:
            LOG.warning('Continuing the interrupted deletion',
                        instance_uuid=uuid)
            try:
                self.deletion.run(context, uuid, resumes=True)
            except exception.DATABASE_UNAVAILABLE as exc:
                LOG.warning('Could not continue the deletion yet: %s',
                            exception.describe(exc), instance_uuid=uuid)
                break
            except Exception:
                # One failure does not stop the others.
                LOG.exception('Could not continue the deletion',
                              instance_uuid=uuid)


@dataclasses.dataclass(eq=False)
class StrandedDeletions:
    """Completes deletions that wait for the agent of a host that is down.

    Several conductors may do this at the same time.

    :param database: the cell's database
    :param down_s: seconds without a report after which a host is down
    """

    database: session.Database
    claims: claims_base.Claims
    down_s: float

    def run(self) -> None:
        """Complete the deletions; a failure is retried in the next run."""
        migrations.LocalDeletion(self.claims, self.down_s).delete_all(
            self.database)


@dataclasses.dataclass(eq=False)
class NetworkCleanup:
    """Deallocates the networks of ended servers.

    The API deletes a server that waits for a host without access to the
    networks of cells. A failed plug-in or a killed process leaves networks
    behind too. Several conductors may do this at the same time.

    :param database: the cell's database
    :param batch: servers to read at a time
    """

    database: session.Database
    networks: deallocation.NetworkDeallocation
    batch: int = 100

    def run(self) -> None:
        """Deallocate the networks; a failure is retried in the next run."""
        after = ''
        while True:
            with self.database.reader() as connection:
                found = instances.list_with_networks(
                    connection, self.batch, after)
            if not found:
                return
            for instance in found:
                LOG.info('Deallocating networks of the ended server',
                         instance_uuid=instance.uuid)
                self.networks.free(of_owner(instance), instance)
            after = found[-1].uuid
