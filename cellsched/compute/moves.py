# SPDX-License-Identifier: Apache-2.0
"""RPC endpoint of a compute agent for moves of servers."""

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

from oslo_concurrency import lockutils
from oslo_log import log
import oslo_messaging

from cellsched.claims import base as claims_base
from cellsched.compute.guests import Guests
from cellsched.compute.progress import RUNNING
from cellsched.context import admin
from cellsched.context import RequestContext
from cellsched.db.cell import instances
from cellsched.db.cell import on_host
from cellsched.db.cell import server_moves
from cellsched.db.cell import states
from cellsched.db import session
from cellsched import exception
from cellsched import migrations
from cellsched.network import base as network_base
from cellsched import objects
from cellsched.rpc import compute
from cellsched.rpc import delivery
from cellsched.virt import base as virt_base

LOG = log.getLogger(__name__)


#: Tasks of servers that may run on another host or are being deleted.
_NOT_REVERTED = (states.RESIZE_MIGRATING.task_state, 'deleting')


class MovingAgent:
    """Takes servers over from other hosts of the cell, and removes them.

    The row of the move and the row of the server change together and control
    each step. So a repeated message, or one for an aborted move, does nothing,
    and a deletion takes precedence at any time. The server's row has the new
    host before anything on the old host is removed.

    A migration that transfers disks begins on the source, which stops the
    server. The destination starts it only while the move is in progress. The
    source starts it again only after the move has ended in an error.

    :param compute: the agents of the cell
    :param guests: the guests of the host
    :param reached: called with the name of each step that was done:
        ``MoveLeave``, ``MoveStop`` on the source, ``MoveBegin``,
        ``MoveTransfer``, ``MoveSpawn``, ``MoveFinish``, ``MoveClaim`` on the
        destination, ``MoveDestroy``, ``MoveRevert``
    :param locks: as for :class:`cellsched.compute.agent.Agent`
    """

    target = oslo_messaging.Target(version=compute.VERSION)

    def __init__(
        self, host: str, database: session.Database,
        claims: claims_base.Claims, driver: virt_base.ComputeDriver,
        compute_: compute.ComputeAPI, network: network_base.NetworkAPI,
        guests: Guests, reached: Callable[[str], None] = lambda step: None,
        locks: Any = None,
    ) -> None:
        self._host = host
        self._database = database
        self._guests = guests
        self._driver = driver
        self._compute = compute_
        self._network = network
        self._migrations = migrations.Migrations(claims, host)
        self._reached = reached
        self._locks = locks

    def rebuild_instance(
        self, context: RequestContext, instance: objects.Instance,
        migration_uuid: str, node: str,
    ) -> None:
        """Rebuild a server of this host, or one whose host is down."""
        self._bring_up(context, instance, migration_uuid, node)

    def prepare_migration(
        self, context: RequestContext, instance: objects.Instance,
        migration_uuid: str, node: str,
    ) -> None:
        """Stop a server, and have its destination fetch it.

        If the message may have been sent, the end of the move keeps the
        destination from starting the server.
        """
        uuid = instance.uuid
        with self._lock(uuid):
            move = self._begin(uuid, migration_uuid, leaves=True)
            if move is None:
                return
            self._reached('MoveLeave')
            try:
                disks = self._driver.prepare_migration(instance)
            except Exception as exc:
                self._fail_on_source(instance, move, exc)
                return
            self._reached('MoveStop')
        assert move.dest_compute is not None
        try:
            self._compute.migrate_in(context, move.dest_compute, instance,
                                     move.uuid, node, disks)
        except Exception as exc:
            with self._lock(uuid):
                self._fail_on_source(instance, move, exc)

    def migrate_in(
        self, context: RequestContext, instance: objects.Instance,
        migration_uuid: str, node: str,
        disks: Mapping[str, Any] | None = None,
    ) -> None:
        """Start a server that migrates to this host.

        :param disks: the source driver's data; without it the server is built
            anew
        """
        self._bring_up(context, instance, migration_uuid, node, disks)

    def unshelve_instance(
        self, context: RequestContext, instance: objects.Instance,
        migration_uuid: str, node: str,
    ) -> None:
        """Build a shelved server."""
        self._bring_up(context, instance, migration_uuid, node)

    def shelve_offload_instance(
        self, context: RequestContext, instance: objects.Instance,
        migration_uuid: str,
    ) -> None:
        """Remove a shelved server from this host."""
        with self._lock(instance.uuid):
            move = self._begin_offload(instance.uuid, migration_uuid)
            if move is None:
                return
            self._reached('MoveBegin')
            self._remove(context, instance)
            self._reached('MoveDestroy')
            if not self._change(move, {'host': None, 'node': None}):
                self._abandon(move)
                return
            self._reached('MoveFinish')
            self._migrations.finish(self._database, move)
            self._reached('MoveClaim')

    def migrate_out(
        self, context: RequestContext, instance: objects.Instance,
        migration_uuid: str,
    ) -> None:
        """End a move on its source host.

        A guest stays unless the move, or another record, says that this host
        must lose it: the guest can be newer than a move of a restored
        database. A guest that was stopped for a move that failed is started
        again. Idempotent.
        """
        with self._lock(instance.uuid):
            fate = self._guests.fate(instance.uuid)
            if fate is on_host.Fate.LOST or (
                    fate is not on_host.Fate.HERE
                    and instance.uuid not in self._driver.list_instances()):
                self._remove(context, instance)
                self._reached('MoveDestroy')
            else:
                self._revert(instance)
            with self._database.writer() as connection:
                if migration_uuid in {each.uuid for each in (
                        server_moves.list_left(
                            connection, self._host, self._guests.host_id))}:
                    server_moves.advance(
                        connection, migration_uuid, [server_moves.FINISHED],
                        server_moves.DONE, self._database.now())

    def clean_up(self) -> None:
        """Remove servers that left this host while it was down."""
        with self._database.reader() as connection:
            moves = server_moves.list_left(
                connection, self._host, self._guests.host_id)
        for move in moves:
            instance = objects.Instance(uuid=move.instance_uuid)
            try:
                self.migrate_out(admin(), instance, move.uuid)
            except Exception:
                # A conductor of the cell casts migrate_out again.
                LOG.exception('Could not remove the server, which has moved '
                              'to another host', instance_uuid=instance.uuid)

    def revert_failed(self) -> None:
        """Start the servers that were stopped for moves that have failed.

        Safe at any time: servers that a message is working on are locked and
        skipped.
        """
        for uuid in self._driver.list_prepared():
            try:
                with self._lock(uuid, blocking=False):
                    self._revert(objects.Instance(uuid=uuid))
            except lockutils.AcquireLockFailedException:
                LOG.debug('Not reverting the server: it is locked',
                          instance_uuid=uuid)
            except Exception:
                # A failure of one server must not stop the next ones.
                LOG.exception('Could not start the server again, whose '
                              'migration has failed', instance_uuid=uuid)

    def _lock(self, uuid: str, blocking: bool = True) -> Any:
        return lockutils.lock(f'{self._host}-{uuid}', semaphores=self._locks,
                              blocking=blocking)

    def _bring_up(
        self, context: RequestContext, instance: objects.Instance,
        migration_uuid: str, node: str,
        disks: Mapping[str, Any] | None = None,
    ) -> None:
        with self._lock(instance.uuid):
            move = self._begin(instance.uuid, migration_uuid)
            if move is None:
                return
            self._reached('MoveBegin')
            # A guest that was on this host before is removed only if a record
            # says so.
            may_remove = move.source_compute != self._host and (
                instance.uuid not in self._driver.list_instances())
            try:
                if disks is not None and self._has_left(instance.uuid):
                    self._guests.destroy(instance)
                    may_remove = True
                if disks is not None and not may_remove:
                    raise exception.BuildFailed(
                        uuid=instance.uuid, reason='its new host has an '
                        'older copy of it')
                self._guests.place(
                    instance.uuid, node, consumer=_consumer(move))
                if move.source_compute == self._host:
                    # A rebuilt server keeps its NUMA cells and devices.
                    self._driver.destroy(instance)
                self._network.setup_instance_network_on_host(
                    context, instance, self._host)
                if disks is None:
                    self._guests.spawn(instance, node, _consumer(move))
                else:
                    self._fetch(instance, move, node, disks)
            except Exception as exc:
                LOG.exception('The %s failed on this host',
                              move.migration_type,
                              instance_uuid=instance.uuid, context=context)
                if may_remove:
                    self._remove(context, instance)
                self._migrations.abort(self._database, move, exc)
                arrived = False
            else:
                self._reached('MoveSpawn')
                arrived = self._arrive(
                    context, instance, move, node, may_remove)
        if arrived and move.kind.leaves or disks is not None:
            # The source removes the server, or starts it again.
            self._release_source(context, instance, move)

    def _fetch(
        self, instance: objects.Instance, move: server_moves.Migration,
        node: str, disks: Mapping[str, Any],
    ) -> None:
        """Transfer a server to this host, and start it."""
        def check() -> None:
            if not self._continue(move):
                raise exception.MoveAbandoned(
                    kind=move.migration_type, reason='it took too long, or '
                    'the server is deleted')

        check()
        self._guests.transfer(instance, node, disks, check, _consumer(move))
        self._reached('MoveTransfer')
        # Restart the deadline, so that the source does not start the server
        # at the same time.
        check()
        self._guests.finish_migration(instance, node, _consumer(move))

    def _arrive(
        self, context: RequestContext, instance: objects.Instance,
        move: server_moves.Migration, node: str, may_remove: bool,
    ) -> bool:
        """Record that a server is on this host, or abort its move."""
        if self._change(move, {
                'host': self._host, 'node': node, 'power_state': RUNNING,
                'availability_zone': instance.get('availability_zone')}):
            self._guests.arrive(instance.uuid)
            self._reached('MoveFinish')
            self._migrations.finish(self._database, move)
            self._reached('MoveClaim')
            return True
        if may_remove:
            self._remove(context, instance)
        self._abandon(move)
        return False

    def _has_left(self, uuid: str) -> bool:
        """Return whether a guest was stopped here for a move that succeeded.

        The message to remove it can come later than the server itself.
        """
        if uuid not in self._driver.list_prepared():
            return False
        with self._database.reader() as connection:
            return server_moves.has_migrated(
                connection, uuid, self._host,
                [server_moves.FINISHED, server_moves.DONE])

    def _continue(self, move: server_moves.Migration) -> bool:
        """Restart the deadline of a move; return if it is in progress."""
        with self._database.writer() as connection:
            server_moves.hold(connection, move.instance_uuid)
            return _is_begun(
                instances.get(connection, move.instance_uuid), move
            ) and server_moves.advance(
                connection, move.uuid, [server_moves.MIGRATING],
                server_moves.MIGRATING, self._database.now())

    def _fail_on_source(
        self, instance: objects.Instance, move: server_moves.Migration,
        reason: Exception,
    ) -> None:
        """End a migration that failed on its source, and start the server."""
        LOG.warning('The server could not leave this host for host %s: %s',
                    move.dest_compute, exception.describe(reason),
                    instance_uuid=instance.uuid)
        self._migrations.abort(self._database, move, reason)
        self._revert(instance)

    def _revert(self, instance: objects.Instance) -> None:
        """Start a server of this host whose migration has failed.

        A record must say so: a migration from this host ended in an error,
        the server is on this host, and no other migration has begun.
        """
        uuid = instance.uuid
        if uuid not in self._driver.list_prepared():
            return
        with self._database.reader() as connection:
            row = instances.get(connection, uuid)
            failed = server_moves.has_migrated(
                connection, uuid, self._host, [server_moves.ERROR])
        if (row is None or row.host != self._host or not failed
                or row.task_state in _NOT_REVERTED):
            return
        LOG.warning('Starting the server on this host again: its migration '
                    'has failed', instance_uuid=uuid)
        self._driver.revert_migration(instance)
        self._reached('MoveRevert')

    def _remove(
        self, context: RequestContext, instance: objects.Instance
    ) -> None:
        """Remove a server from this host; its networks stay allocated."""
        self._guests.destroy(instance)
        try:
            self._network.cleanup_instance_network_on_host(
                context, instance, self._host)
        except exception.NetworkError:
            LOG.exception('Could not clean up networks on this host',
                          instance_uuid=instance.uuid, context=context)

    def _release_source(
        self, context: RequestContext, instance: objects.Instance,
        move: server_moves.Migration,
    ) -> None:
        """Have the source host remove the server, or start it again."""
        assert move.source_compute is not None
        try:
            self._compute.migrate_out(
                context, move.source_compute, instance, move.uuid)
        except (*delivery.ERRORS, exception.VersionNotSendable) as exc:
            LOG.warning('Could not cast migrate_out to host %s; a conductor '
                        'casts it later: %s',
                        move.source_compute, exception.describe(exc),
                        instance_uuid=instance.uuid, context=context)

    def _begin(
        self, uuid: str, migration_uuid: str, leaves: bool = False
    ) -> server_moves.Migration | None:
        """Begin a move to this host, or continue it.

        :param leaves: whether the move is a migration from this host
        :returns: None if there is nothing to do
        """
        with self._database.writer() as connection:
            server_moves.hold(connection, uuid)
            move = server_moves.get(connection, migration_uuid)
            if not self._is_current(move, uuid, leaves):
                LOG.info('Not moving the server: it was moved, or the move '
                         'was given up', instance_uuid=uuid)
                return None
            assert move is not None and move.kind.begin is not None
            begun = instances.transit(
                connection, uuid, move.kind.begin, self._database.now(),
                host=move.source_compute)
            row = instances.get(connection, uuid)
            if leaves and not begun and _is_begun(row, move):
                # The message came twice.
                return None
            begun = begun or _is_begun(row, move)
        if not begun:
            self._abandon(move)
            return None
        return move

    def _is_current(
        self, move: server_moves.Migration | None, uuid: str, leaves: bool
    ) -> bool:
        if (move is None or move.instance_uuid != uuid
                or move.status != server_moves.MIGRATING):
            return False
        if leaves:
            return (move.migration_type == server_moves.MIGRATION
                    and move.source_compute == self._host)
        return (move.dest_compute == self._host
                and move.kind.begin is not None)

    def _begin_offload(
        self, uuid: str, migration_uuid: str
    ) -> server_moves.Migration | None:
        offloading = states.TRANSITIONS['offload'].after
        with self._database.writer() as connection:
            server_moves.hold(connection, uuid)
            move = server_moves.get(connection, migration_uuid)
            if (move is None or move.instance_uuid != uuid
                    or move.migration_type != server_moves.SHELVE
                    or move.source_compute != self._host
                    or move.status not in server_moves.UNMOVED):
                LOG.info('Not shelving the server: it left this host, or '
                         'its move was aborted', instance_uuid=uuid)
                return None
            row = instances.get(connection, uuid)
            begun = row is not None and (row.task_state, row.host) == (
                offloading.task_state, self._host)
            if begun:
                server_moves.advance(
                    connection, move.uuid, server_moves.UNMOVED,
                    server_moves.MIGRATING, self._database.now())
        if not begun:
            self._abandon(move)
            return None
        return move

    def _change(
        self, move: server_moves.Migration, values: dict[str, Any]
    ) -> bool:
        """Set the host in the server's row, if the move is in progress."""
        kind = move.kind
        with self._database.writer() as connection:
            now = self._database.now()
            server_moves.hold(connection, move.instance_uuid)
            current = server_moves.get(connection, move.uuid)
            if current is None or current.status != server_moves.MIGRATING:
                return False
            if not instances.transit(
                    connection, move.instance_uuid, kind.finish, now, values,
                    host=move.source_compute):
                return False
            return server_moves.advance(
                connection, move.uuid, [server_moves.MIGRATING],
                server_moves.MOVED, now)

    def _abandon(self, move: server_moves.Migration) -> None:
        """Abort a move whose server is deleted or no longer waits for it."""
        LOG.info('Not finishing the %s: the server is deleted, or the move '
                 'was aborted', move.migration_type,
                 instance_uuid=move.instance_uuid)
        self._migrations.abort(
            self._database, move,
            exception.InstanceNotFound(uuid=move.instance_uuid))


def _consumer(move: server_moves.Migration) -> str:
    """Return the consumer of the claims on the destination of a move."""
    # A rebuilt server keeps its claims.
    return (move.instance_uuid
            if move.migration_type == server_moves.REBUILD else move.uuid)


def _is_begun(
    row: objects.Instance | None, move: server_moves.Migration
) -> bool:
    assert move.kind.begin is not None
    after = states.TRANSITIONS[move.kind.begin].after
    return row is not None and (row.task_state, row.host) == (
        after.task_state, move.source_compute)
