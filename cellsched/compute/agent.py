# SPDX-License-Identifier: Apache-2.0
"""RPC endpoint of a compute agent."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import threading
from typing import Any
import weakref

from oslo_concurrency import lockutils
from oslo_log import log
import oslo_messaging

from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched.clock import Semaphore
from cellsched.compute.guests import Guests
from cellsched.compute import progress
from cellsched.context import of_owner
from cellsched.context import RequestContext
from cellsched.db.cell import build_casts
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db.cell import on_host
from cellsched.db.cell import server_moves
from cellsched.db import session
from cellsched import exception
from cellsched import migrations
from cellsched.network import base as network_base
from cellsched.network import deallocation
from cellsched import objects
from cellsched.objects import child_providers
from cellsched.observability import metrics
from cellsched.observability.metrics import Metrics
from cellsched.observability import tracing
from cellsched.rpc import compute
from cellsched.rpc import conductor as conductor_rpc
from cellsched.rpc import delivery
from cellsched.virt import base as virt_base

LOG = log.getLogger(__name__)

#: Maximum number of builds that wait for the database in memory.
POSTPONED_MAX = 1000


class Agent:
    """Builds and removes the servers of a host.

    The row of a server controls its changes: each update has the expected
    state as its condition. So a repeated message does nothing, and a deletion
    takes precedence over a build at any time.

    :param guests: the guests of the host
    :param recorded: records the results of builds
    :param builds_max: builds at the same time; 0 for no limit
    :param reached: called with the name of each step that was done
    :param locks: semaphores of instances by name, shared by all endpoints of a
        host; by default those of oslo.concurrency
    """

    target = oslo_messaging.Target(version=compute.VERSION)

    def __init__(
        self, host: str, database: session.Database,
        claims: claims_base.Claims, driver: virt_base.ComputeDriver,
        conductor: conductor_rpc.ConductorAPI, clock: Clock,
        outcomes: progress.Outcomes, network: network_base.NetworkAPI,
        guests: Guests, recorded: Metrics, builds_max: int = 0,
        reached: Callable[[str], None] = lambda step: None,
        locks: Any = None,
    ) -> None:
        self._metrics = recorded
        self._host = host
        self._database = database
        self._guests = guests
        self._claims = claims
        self._driver = driver
        self._conductor = conductor
        self._clock = clock
        self._outcomes = outcomes
        self._network = network
        self._progress = progress.ProgressReports(host, database, clock)
        self._deallocation = deallocation.NetworkDeallocation(
            network, database, clock)
        self._turn: contextlib.AbstractContextManager[Any] = (
            clock.semaphore(builds_max) if builds_max
            else contextlib.nullcontext())
        #: Builds beyond this wait in the queue of the server.
        self.at_once = ({'build_and_run_instance': builds_max} if builds_max
                        else {})
        self._reached = reached
        self._locks = locks
        #: Whether a database failure has interrupted work.
        self._is_interrupted = False
        #: Builds that could not begin because of a database failure, by uuid.
        self._postponed: dict[str, tuple[
            RequestContext, objects.Instance, build_casts.BuildMessage]] = {}

    def build_and_run_instance(
        self, context: RequestContext, instance: objects.Instance,
        request_spec: objects.RequestSpec,
        filter_properties: Mapping[str, Any], node: str,
        limits: Mapping[str, Any], host_list: Sequence[objects.Selection],
        node_uuid: str | None = None,
    ) -> None:
        """Build a server, or reschedule it to another host of the cell.

        A build for a node that this host does not have is skipped, even if a
        node of this host has its name. A conductor finds the build.
        """
        chosen = objects.Selection(service_host=self._host, nodename=node)
        if node_uuid is not None:
            chosen.compute_node_uuid = node_uuid
        self._begin(context, instance, build_casts.BuildMessage(
            chosen, host_list, request_spec, filter_properties))

    def _begin(
        self, context: RequestContext, instance: objects.Instance,
        message: build_casts.BuildMessage,
    ) -> None:
        # A build that waits for its turn has not begun: its server can be
        # deleted.
        with (self._interruptions_noted(), self._turn,
              self._lock(instance.uuid)):
            try:
                had_networks = self._progress.begin(instance.uuid, message)
            except exception.DATABASE_UNAVAILABLE:
                self._postpone(context, instance, message)
                raise
            if had_networks is None:
                self._skip(instance.uuid)
                return
            self._reached('Begin')
            self._build(context, instance, message, had_networks)

    def terminate_instance(
        self, context: RequestContext, instance: objects.Instance
    ) -> None:
        """Remove a server and release its resources."""
        with self._interruptions_noted(), self._lock(instance.uuid):
            self._terminate(context, instance)

    def resume(self) -> None:
        """Resume interrupted work on this host.

        An interrupted build is built again from its stored message; without
        the message it ends in ERROR. An interrupted deletion is finished. A
        guest is destroyed only if a record says that this host must lose it,
        see :func:`cellsched.db.cell.on_host.explain`. Other guests that do not
        belong here, and servers without a guest, are reported to the cell.

        Safe at any time: instances that a message is working on are locked and
        skipped.
        """
        with self._database.reader() as connection:
            building = on_host.list_building(connection, self._host)
            deleting = on_host.list_deleting(connection, self._host)
        lost = [record.uuid for record in self._guests.explain()
                if record.fate is on_host.Fate.LOST]
        for uuid in deleting:
            self._resume_one(uuid, self._resume_deletion)
        for uuid in lost:
            self._resume_one(uuid, self._remove_lost)
        for uuid in self._guests.list_vanished():
            self._resume_one(uuid, self._free_place)
        for uuid in self._guests.list_unplaced():
            self._resume_one(uuid, self._place_again)
        for uuid in building:
            # Take the turn before the lock, as messages do: otherwise both
            # could wait for each other.
            with self._turn:
                self._resume_one(uuid, self._resume_build)
        self._guests.report(self._is_idle)

    def _is_idle(self, uuid: str) -> bool:
        """Return whether no message is working on an instance."""
        try:
            with self._lock(uuid, blocking=False):
                return True
        except lockutils.AcquireLockFailedException:
            return False

    def _postpone(
        self, context: RequestContext, instance: objects.Instance,
        message: build_casts.BuildMessage,
    ) -> None:
        """Postpone a build that could not begin to :meth:`resume_soon`.

        A conductor casts it again, but only after a while.
        """
        if len(self._postponed) < POSTPONED_MAX:
            self._postponed[instance.uuid] = context, instance, message

    def resume_soon(self) -> None:
        """Resume work that was interrupted by a database failure, if any."""
        if self._is_interrupted:
            self._is_interrupted = False
            with self._interruptions_noted():
                self.resume()
            self._begin_postponed()

    def _begin_postponed(self) -> None:
        """Begin the postponed builds.

        A message that a conductor cast again may have begun one meanwhile.
        """
        for uuid in list(self._postponed):
            context, instance, message = self._postponed.pop(uuid)
            if not self._is_idle(uuid):
                continue
            try:
                self._begin(context, instance, message)
            except exception.DATABASE_UNAVAILABLE as exc:
                # The build is postponed again, and the next ones wait too.
                LOG.warning('Could not begin the build yet: %s', exc,
                            instance_uuid=uuid, context=context)
                break

    @contextlib.contextmanager
    def _interruptions_noted(self) -> Iterator[None]:
        """Mark interrupted work for :meth:`resume_soon`."""
        try:
            yield
        except exception.DATABASE_UNAVAILABLE:
            self._is_interrupted = True
            raise

    def _lock(self, uuid: str, blocking: bool = True) -> Any:
        return lockutils.lock(f'{self._host}-{uuid}', semaphores=self._locks,
                              blocking=blocking)

    # Builds.

    def _skip(self, uuid: str) -> None:
        """Skip a build that must not start; release a deleted one.

        The claim may be newer than the deletion. Claims of an instance that
        was never on this host belong to another cell.
        """
        LOG.info('Not building the server: it is deleted, its build was begun '
                 'already, or it is to be built on another node',
                 instance_uuid=uuid)
        with self._database.reader() as connection:
            deleted = instances.is_deleted(connection, uuid)
        if deleted:
            self._claims.release([uuid])

    def _build(
        self, context: RequestContext, instance: objects.Instance,
        message: build_casts.BuildMessage, had_networks: bool,
        again: bool = False,
    ) -> None:
        """Build an instance whose row says that the build has begun.

        :param again: whether the build was begun on this host before
        """
        with tracing.span(
                'build on host', context, [instance.uuid]) as span:
            span.set(tracing.HOST, self._host)
            node, started_at = message.chosen.nodename, self._clock.now()
            LOG.info('Building on node %s', node, instance_uuid=instance.uuid,
                     context=context)
            try:
                self._guests.place(instance.uuid, node, message.request_spec)
                with tracing.span(
                        'allocate networks', context, [instance.uuid]):
                    self._allocate_networks(
                        context, instance, message.requested_networks,
                        had_networks, again)
                self._reached('GiveNetworks')
                with tracing.span('spawn', context, [instance.uuid]):
                    self._guests.spawn(instance, node)
            except (exception.BuildFailed, exception.NetworkError) as exc:
                self._outcomes.failed(node)
                self._reschedule(context, instance, message, exc)
            except exception.DATABASE_UNAVAILABLE:
                # The agent resumes the build later.
                raise
            except Exception as exc:
                self._outcomes.failed(node)
                LOG.exception('The build failed for good',
                              instance_uuid=instance.uuid, context=context)
                self._end_in_error(context, instance, exc)
            else:
                self._reached('Spawn')
                self._outcomes.succeeded(node)
                if self._progress.finish(instance.uuid, started_at):
                    self._guests.arrive(instance.uuid)
                    self._count('active')
                    LOG.info('The build is complete',
                             instance_uuid=instance.uuid, context=context)
                    self._reached('Finish')
                else:
                    self._count('deleted')
                    LOG.info('The server was deleted while it was built',
                             instance_uuid=instance.uuid, context=context)
                    self._leave(context, instance)

    def _count(self, result: str) -> None:
        tracing.note(tracing.RESULT, result)
        self._metrics.add(metrics.COMPUTE_BUILDS, (result,))

    def _allocate_networks(
        self, context: RequestContext, instance: objects.Instance,
        requested_networks: Any, had_networks: bool, again: bool,
    ) -> None:
        """Allocate networks, or set up those of an earlier host.

        The row may say that the server has networks before the allocation, so
        it is always requested.
        """
        if had_networks and not again and (
                self._driver.deallocate_networks_on_reschedule(instance)):
            # The earlier host could not deallocate them.
            self._network.deallocate_for_instance(context, instance)
        self._network.allocate_for_instance(
            context, instance, requested_networks, self._host)
        if had_networks:
            self._network.setup_instance_network_on_host(
                context, instance, self._host)

    def _reschedule(
        self, context: RequestContext, instance: objects.Instance,
        message: build_casts.BuildMessage, reason: Exception,
    ) -> None:
        """Have a conductor of the cell try the next host.

        The claims on this host are released before the row is free, because
        later claims belong to the next host. Until a conductor resumes the
        build, it has no task, so that a repeated message cannot start it
        again.
        """
        uuid = instance.uuid
        LOG.info('The build failed on this host: %s', reason,
                 instance_uuid=uuid, context=context)
        if not self._is_spawning(uuid):
            self._leave(context, instance)
            return
        if not message.retry:
            self._end_in_error(context, instance, reason)
            return
        updates = self._remove_networks(context, instance)
        if not self._withdraw(uuid):
            self._leave(context, instance)
            return
        with self._database.writer() as connection:
            freed = instances.transit(
                connection, uuid, 'hand_on', self._clock.now(),
                {'host': None, 'node': None, **updates}, host=self._host)
            if freed:
                instance_history.give_up(
                    connection, uuid, self._host, self._database.now(), reason)
        if not freed:
            return
        self._count('rescheduled')
        self._reached('HandOn')
        try:
            self._conductor.build_instances(
                context, [instance], message.failed(reason),
                message.request_spec, [list(message.host_list)])
        except delivery.ERRORS as exc:
            LOG.warning('Could not cast build_instances; a conductor will '
                        'find the server: %s', exception.describe(exc),
                        instance_uuid=uuid, context=context)

    def _remove_networks(
        self, context: RequestContext, instance: objects.Instance
    ) -> dict[str, Any]:
        """Remove the networks from this host; return updates of the row."""
        if self._driver.deallocate_networks_on_reschedule(instance) and (
                self._deallocation.deallocate(context, instance)):
            return {'network_allocated': False}
        self._clean_up(context, instance)
        return {}

    def _clean_up(
        self, context: RequestContext, instance: objects.Instance
    ) -> None:
        try:
            self._network.cleanup_instance_network_on_host(
                context, instance, self._host)
        except exception.NetworkError:
            # The deallocation of the networks removes the rest.
            LOG.exception('Could not clean up networks on this host',
                          instance_uuid=instance.uuid, context=context)

    def _end_in_error(
        self, context: RequestContext, instance: objects.Instance,
        reason: Exception,
    ) -> None:
        """Set ERROR if the row is in the state that this agent set.

        The claims are released first. If the claim store does not answer, the
        row stays as it is, and the agent resumes the build later. Claims of a
        server in ERROR would stay until an audit releases them.
        """
        uuid = instance.uuid
        failed = self._withdraw(uuid)
        if failed:
            with self._database.writer() as connection:
                failed = instances.fail(
                    connection, uuid, reason, self._host,
                    self._database.now(), instance_history.BUILD_EVENT,
                    host=self._host, task_state='spawning')
        if failed:
            self._count('error')
            self._deallocation.free(context, instance)
        else:
            self._leave(context, instance)

    def _withdraw(self, uuid: str) -> bool:
        """Release the claims of a build that ends on this host.

        Its NUMA cells and devices go first, because the next server with
        these claims needs them.

        :returns: whether it ends here; another host may build the server now
        """
        self._guests.free_place(uuid)
        return migrations.withdraw(
            self._claims, uuid, migrations.consumer(uuid),
            lambda: self._ends_here(uuid))

    def _leave(
        self, context: RequestContext, instance: objects.Instance
    ) -> None:
        """Remove a build that no longer belongs to this agent."""
        self._guests.destroy(instance)
        with self._database.reader() as connection:
            row = instances.get(connection, instance.uuid)
        if row is None or (row.vm_state == 'error' and row.host is None):
            # The cell ended the build before it allocated networks here.
            self._deallocation.free(context, instance)
        elif row.host != self._host:
            self._clean_up(context, instance)
        # Else its deletion waits for this build's lock and does the rest.

    def _is_spawning(self, uuid: str) -> bool:
        with self._database.reader() as connection:
            row = instances.get(connection, uuid)
        return (row is not None and row.host == self._host
                and row.task_state == 'spawning')

    def _ends_here(self, uuid: str) -> bool | None:
        """Return whether the claims of a build may be released.

        They may if the build ends on this host or a deletion removes the
        server. None if that is not known yet; see
        :func:`.migrations.withdraw`.
        """
        with self._database.reader() as connection:
            row = instances.get(connection, uuid)
            if row is None or row.host == self._host and (
                    row.task_state in ('spawning', 'deleting')):
                return True
            return False if migrations.is_at_rest(connection, row) else None

    # Deletions.

    def _terminate(
        self, context: RequestContext, instance: objects.Instance
    ) -> None:
        uuid, now = instance.uuid, self._clock.now()
        LOG.info('Deleting the guest', instance_uuid=uuid, context=context)
        self._guests.destroy(instance)
        freed = self._deallocation.deallocate(context, instance)
        self._reached('Destroy')
        # The row stays until the release, so that a recovery finds the claims.
        # No lock is held meanwhile: the claim store may not answer.
        self._claims.release([uuid])
        with self._database.writer() as connection:
            server_moves.hold(connection, uuid)
            if freed:
                instances.update(
                    connection, uuid, {'network_allocated': False}, now)
            ended_at = self._clock.now()
            instance_history.finish(
                connection, {uuid: now}, 'delete',
                instance_history.DELETE_EVENT, ended_at, self._host)
            instances.delete(connection, uuid, ended_at)
        self._reached('Terminate')
        # A task of a move may have claimed in between. If it reads the row
        # later, it releases its claims itself, because the server is deleted.
        self._claims.release([uuid])

    # Interrupted work.

    def _resume_one(
        self, uuid: str, resume: Callable[[objects.Instance], None]
    ) -> None:
        """Resume work on an instance that is not locked."""
        try:
            with self._lock(uuid, blocking=False):
                with self._database.reader() as connection:
                    instance = on_host.get(connection, uuid)
                if instance is not None:
                    resume(instance)
        except exception.DATABASE_UNAVAILABLE as exc:
            self._is_interrupted = True
            LOG.warning('Could not resume work on the server yet: %s', exc,
                        instance_uuid=uuid)
        except lockutils.AcquireLockFailedException:
            LOG.debug('Not resuming work on the server: it is locked',
                      instance_uuid=uuid)
        except Exception:
            # A failure of one server must not stop the work on the next ones.
            LOG.exception('Could not resume work on the server; the agent '
                          'tries again', instance_uuid=uuid)

    def _resume_deletion(self, instance: objects.Instance) -> None:
        if (instance.host, instance.task_state) == (self._host, 'deleting'):
            LOG.warning('Resuming the interrupted deletion',
                        instance_uuid=instance.uuid)
            self._terminate(of_owner(instance), instance)

    def _remove_lost(self, instance: objects.Instance) -> None:
        if self._guests.is_lost(instance.uuid):
            LOG.warning('Removing the guest: its server was deleted or has '
                        'left this host', instance_uuid=instance.uuid)
            self._leave(of_owner(instance), instance)

    def _free_place(self, instance: objects.Instance) -> None:
        if self._guests.fate(instance.uuid) is not on_host.Fate.HERE:
            self._guests.free_place(instance.uuid)

    def _place_again(self, instance: objects.Instance) -> None:
        if (instance.task_state is None and instance.node is not None
                and self._guests.fate(instance.uuid) is on_host.Fate.HERE):
            LOG.warning('The file of the NUMA cells and the devices of the '
                        'server is lost', instance_uuid=instance.uuid)
            self._guests.place(instance.uuid, instance.node)

    def _resume_build(self, instance: objects.Instance) -> None:
        uuid = instance.uuid
        if not (instance.vm_state == 'building' and self._is_spawning(uuid)):
            return
        LOG.warning('Resuming the interrupted build', instance_uuid=uuid)
        with self._database.reader() as connection:
            cast = build_casts.get(connection, uuid)
            node = cast and compute_nodes.find(
                connection, self._host, cast.node)
        context = of_owner(instance)
        if cast is None or cast.host != self._host:
            self._guests.destroy(instance)
            self._end_in_error(context, instance, exception.BuildAborted(
                uuid=uuid, reason='it was interrupted, and its message is '
                'lost'))
            return
        message = build_casts.BuildMessage.read(cast)
        providers = {message.chosen.compute_node_uuid, *(
            child.uuid for child in child_providers.load(
                node[1] if node else None))}
        if providers.isdisjoint(
                each.provider
                for each in self._claims.claims_of([uuid]).get(uuid, ())):
            # The claim was released when the build was rescheduled last. If
            # the request came twice, a scheduler may have claimed another host
            # since.
            self._guests.destroy(instance)
            self._reschedule(context, instance, message, exception.BuildFailed(
                uuid=uuid, reason='it was interrupted'))
        else:
            self._build(
                context, instance, message, had_networks=True, again=True)


class Semaphores:
    """Semaphores by name, for ``oslo_concurrency.lockutils.lock``.

    Replaces ``lockutils.Semaphores`` with semaphores of the clock. Unused
    semaphores are removed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: weakref.WeakValueDictionary[str, Semaphore] = (
            weakref.WeakValueDictionary())

    def get(self, name: str) -> Semaphore:
        """Return the semaphore of a name, which one thread may hold."""
        with self._lock:
            return self._known.setdefault(name, self._clock.semaphore(1))
