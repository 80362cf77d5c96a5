# SPDX-License-Identifier: Apache-2.0
"""Migrations of servers: their claims, and their end; local deletion.

Until a server is on its destination it holds its claims on the source, and
the claims on the destination belong to a second consumer: the migration, by
its uuid. If another service asks the scheduler, which cannot know the
migration then, the uuid of the consumer follows from the server's. At the end
of the migration the claims are transferred to the server.

A migration transfers the local disks of a server if both hosts can do that,
see :attr:`cellsched.virt.base.ComputeDriver.supports_migration`. Otherwise the
server is built anew and its local disks are lost, which must be asked for.

A deletion on a host that is down is completed in the cell, without the agent.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
import dataclasses
import datetime
from typing import Any
from uuid import UUID
from uuid import uuid5

from oslo_log import log

from cellsched.claims import base
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import instance_children
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db.cell import on_host
from cellsched.db.cell import server_moves
from cellsched.db.cell import services
from cellsched.db import session
from cellsched import exception
from cellsched import objects

LOG = log.getLogger(__name__)

#: Namespace of the uuids of migrations' consumers.
_NAMESPACE = UUID('6f1e2c7a-5b0d-4d3e-9a84-c2f7d0b9e615')


def consumer(instance: str) -> str:
    """Return the consumer of claims for a migration that is not known."""
    return str(uuid5(_NAMESPACE, instance))


def consumers(instances_: Sequence[str]) -> list[str]:
    """Return the consumers of some instances, except known migrations."""
    return [*instances_, *map(consumer, instances_)]


def withdraw(
    store: base.Claims, uuid: str, name: str,
    look: Callable[[], bool | None],
) -> bool:
    """Release the claims of a server, unless the decision is outdated.

    A process may stop before its request, and resume when the server has new
    claims, perhaps on the same host. To release these would sell the capacity
    twice. So the claims are first transferred to a consumer of their own, and
    the decision is checked again. If it is outdated, they are transferred
    back. They use capacity all the time.

    :param name: the consumer
    :param look: reads the records; returns True if the server still loses its
        claims, False if it keeps them, and None if the check for leaked claims
        has to find out
    :returns: whether the claims are released
    """
    store.transfer(uuid, name)
    is_due = look()
    if is_due:
        store.release([name])
    elif is_due is False:
        restore(store, uuid, [name])
    return bool(is_due)


def restore(
    store: base.Claims, uuid: str, names: Sequence[str],
    providers: Collection[str] | None = None,
) -> bool:
    """Transfer claims back that a late call has taken from a server.

    Does nothing if the server holds claims.

    :param names: the consumers that may have its claims
    :param providers: the providers of its node; None for any
    :returns: whether it had lost its claims
    """
    held = store.claims_of([uuid, *names])
    for name in () if uuid in held else names:
        if name in held and (providers is None or any(
                claim.provider in providers for claim in held[name])):
            LOG.warning('The server gets its claims back, which a late call '
                        'has taken', instance_uuid=uuid)
            return store.transfer(name, uuid)
    return False


def is_at_rest(connection: Any, row: objects.Instance | None) -> bool:
    """Return whether a server is on a host and is not being moved."""
    return (row is not None and row.host is not None
            and server_moves.live(connection, row.uuid) is None)


#: The trait of a node that can transfer the disks of servers.
TRANSFER_TRAIT = 'CUSTOM_DISK_TRANSFER'


def can_transfer(
    connection: Any, host: str, node: str | None = None
) -> bool:
    """Return whether a node, or a node of a host, can transfer disks."""
    return TRANSFER_TRAIT in compute_nodes.traits_of(connection, host, node)


def local_disks(connection: Any, uuid: str) -> list[str]:
    """Return descriptions of the local disks of a server.

    A volume is not local. A root disk of size 0 does not count.
    """
    instance = on_host.get(connection, uuid)
    if instance is None:
        return []
    devices = instance_children.get_block_devices(
        connection, [uuid]).get(uuid, [])
    flavor = instance.get('flavor')
    sizes = flavor or instance
    root, ephemeral = sizes.root_gb, sizes.ephemeral_gb
    disks = []
    if not any(device.is_root_volume for device in devices):
        if root is None:
            disks.append('root disk of unknown size')
        elif root:
            disks.append(f'root disk of {root} GB')
    if ephemeral:
        disks.append(f'ephemeral disk of {ephemeral} GB')
    if flavor is not None and flavor.swap:
        disks.append(f'swap disk of {flavor.swap} MB')
    if not ephemeral and not (flavor and flavor.swap):
        # The flavor limits the other local disks, except in rows of other
        # programs.
        disks += [f'local disk of {device.volume_size or 0} GB'
                  for device in devices
                  if device.destination_type == 'local'
                  and device.boot_index != 0]
    return disks


class Migrations:
    """Ends migrations in a cell: their rows, their servers and their claims.

    No row is locked while the claim store works. A late call changes no claims
    of a later migration: the claims on a destination belong to the migration
    itself, and no other migration begins before the claims of a server that
    has moved are transferred. A late end of a shelving gives the claims of the
    unshelved server back, see :func:`withdraw`.

    :param host: recorded as the host of faults
    """

    def __init__(
        self, claims: base.Claims, host: str) -> None:
        self._claims = claims
        self._host = host

    def abort(
        self, database: session.Database, move: server_moves.Migration,
        reason: Exception,
        statuses: Sequence[str] = server_moves.UNMOVED,
        revert: str | None = None,
        notify: Callable[[], None] = lambda: None,
    ) -> bool:
        """Abort a migration whose server is on its source.

        The server returns to its previous state, or goes to ERROR after a
        rebuild, with a fault. A server that is being deleted is not changed
        and gets no fault. The claims on the destination are released
        afterwards; if that fails, a conductor of the cell repeats it.
        Idempotent.

        :param statuses: the migration must have one of these
        :param revert: transition of the server, if it differs from the usual
            one of such migrations
        :param notify: called if the migration was aborted and the server stays
        :returns: whether this call aborted the migration
        """
        uuid = move.instance_uuid
        with database.writer() as connection:
            now = database.now()
            server_moves.hold(connection, uuid)
            ended = server_moves.advance(
                connection, move.uuid, statuses, server_moves.ERROR, now)
            stays = ended and _stays(instances.get(connection, uuid))
            if stays:
                instances.transit(
                    connection, uuid, revert or move.kind.revert, now,
                    host=move.source_compute)
                instance_history.record(
                    connection, uuid, reason, self._host, now,
                    move.migration_type)
            if ended:
                instance_history.fail(
                    connection, uuid, move.kind.action, move.kind.event, now,
                    reason, self._host, move.migration_type)
        if ended:
            LOG.warning('Aborted the %s: %s', move.migration_type,
                        exception.describe(reason), instance_uuid=uuid)
        if stays:
            notify()
        self.release_ended(database, move)
        return ended

    def finish(
        self, database: session.Database, move: server_moves.Migration
    ) -> bool:
        """Transfer the claims of a server that is on its destination.

        A server that was shelved releases its claims. Idempotent, and safe for
        concurrent callers.

        :returns: whether this call finished the migration
        """
        uuid = move.instance_uuid
        after = (server_moves.FINISHED if move.kind.leaves
                 else server_moves.DONE)
        # 1. Change the claims. The server has the status of a move meanwhile,
        #    so that no other move of it begins.
        with database.reader() as connection:
            current = server_moves.get(connection, move.uuid)
            row = instances.get(connection, uuid)
        if current is None or current.status != server_moves.MOVED:
            return False
        if move.kind.leaves or move.migration_type == server_moves.UNSHELVE:
            if not self._claims.transfer(move.uuid, uuid):
                # A scheduler that does not know the migration has claimed.
                self._claims.transfer(consumer(uuid), uuid)
        elif row is not None and row.host is None and not withdraw(
                self._claims, uuid, move.uuid,
                lambda: self._is_shelved(database, move)):
            return False
        # 2. End the move. The server may have been deleted meanwhile.
        with database.writer() as connection:
            now = database.now()
            server_moves.hold(connection, uuid)
            ended = server_moves.advance(
                connection, move.uuid, [server_moves.MOVED], after, now)
            if ended:
                instance_history.finish(
                    connection, {uuid: None}, move.kind.action,
                    move.kind.event, now,
                    current.dest_compute or current.source_compute)
        self.release_ended(database, move)
        return ended

    def _is_shelved(
        self, database: session.Database, move: server_moves.Migration
    ) -> bool | None:
        """Return whether a shelving must still end; see :func:`withdraw`."""
        with database.reader() as connection:
            current = server_moves.get(connection, move.uuid)
            if current is not None and current.status == server_moves.MOVED:
                return True
            row = instances.get(connection, move.instance_uuid)
            return False if is_at_rest(connection, row) else None

    def release_ended(
        self, database: session.Database, move: server_moves.Migration
    ) -> None:
        """Release the claims of a migration that has ended.

        A slow scheduler may claim after the end of the migration. Does nothing
        while the migration is in progress.
        """
        uuid = move.instance_uuid
        with database.reader() as connection:
            current = server_moves.get(connection, move.uuid)
            live = server_moves.live(connection, uuid)
            is_deleted = instances.get(connection, uuid) is None
        names = []
        if current is None or current.status not in server_moves.LIVE:
            names.append(move.uuid)
        if live is None:
            names.append(consumer(uuid))
        if is_deleted:
            names = [*consumers([uuid]), move.uuid]
        if names:
            self._claims.release(names)


@dataclasses.dataclass(frozen=True)
class LocalDeletion:
    """Completes deletions on hosts that are down.

    The row of the server is marked as deleted, its move ends, and its claims
    are released. A conductor of the cell deallocates the networks. The row
    keeps its host: if the agent returns, the row tells it to remove the guest.
    A move to a host that is down ends with the server, and its claims there
    are released. Idempotent, and safe for concurrent callers and a late agent.

    :param down_s: seconds without a report after which a host is down
    """

    claims: base.Claims
    down_s: float

    def delete(self, database: session.Database, uuid: str) -> bool:
        """Complete the deletion of a server, or end its move to such a host.

        :returns: False if the server is not being deleted, or its host is up
        """
        self._end_moves(database, uuid)
        with database.reader() as connection:
            if not self._is_stranded(connection, database, uuid):
                return False
            moves = server_moves.uuids_of(connection, [uuid]).get(uuid, ())
        # The claims go first, without a lock. If the process stops here, the
        # row is found again. A claim that a late move makes goes at the end.
        self.claims.release([*consumers([uuid]), *moves])
        with database.writer() as connection:
            now = database.now()
            server_moves.hold(connection, uuid)
            if not self._is_stranded(connection, database, uuid):
                return False
            move = server_moves.live(connection, uuid)
            if move is not None:
                server_moves.advance(connection, move.uuid, server_moves.LIVE,
                                     server_moves.ERROR, now)
            instances.delete(connection, uuid, now)
            moves = server_moves.uuids_of(connection, [uuid]).get(uuid, ())
        self.claims.release([*consumers([uuid]), *moves])
        LOG.warning('Deleted the server in its cell: its host is down',
                    instance_uuid=uuid)
        return True

    def delete_all(
        self, database: session.Database, host: str | None = None,
        batch: int = 100,
    ) -> int:
        """Complete the deletions of a cell; return the number of servers.

        A deletion that fails is logged, and can be repeated.

        :param host: of this host only
        :param batch: servers to read at a time
        """
        count, after = 0, ''
        while True:
            with database.reader() as connection:
                uuids = on_host.list_stranded_deletions(
                    connection, self._seen(database), batch, after, host)
            for uuid in uuids:
                try:
                    count += self.delete(database, uuid)
                except Exception:
                    # A failure of one deletion does not stop the others.
                    LOG.exception('Could not delete the server, whose host is '
                                  'down', instance_uuid=uuid)
            if len(uuids) < batch:
                break
            after = uuids[-1]
        self._end_moves(database)
        return count

    def _end_moves(
        self, database: session.Database, uuid: str | None = None
    ) -> None:
        """End moves of deleted servers to hosts that are down.

        A host that is up ends them, and releases its claims, itself.
        """
        with database.reader() as connection:
            moves = server_moves.list_unreachable(
                connection, self._seen(database), uuid)
        for move in moves:
            server = move.instance_uuid
            with database.writer() as connection:
                server_moves.hold(connection, server)
                server_moves.advance(connection, move.uuid, server_moves.LIVE,
                                     server_moves.ERROR, database.now())
                # The agent of the source still removes the guest.
                remains = instances.get(connection, server) is not None
            self.claims.release([move.uuid, consumer(server)] + (
                [] if remains else [server]))
            LOG.warning('Ended the %s of the deleted server: destination %s '
                        'is down', move.migration_type, move.dest_compute,
                        instance_uuid=server)

    def _is_stranded(
        self, connection: Any, database: session.Database, uuid: str
    ) -> bool:
        row = instances.get(connection, uuid)
        return (row is not None and row.host is not None
                and row.task_state == 'deleting'
                and not services.is_up(
                    connection, row.host, database.now(), self.down_s))

    def _seen(self, database: session.Database) -> datetime.datetime:
        return database.now() - datetime.timedelta(seconds=self.down_s)


def _stays(row: objects.Instance | None) -> bool:
    """Return whether a server is neither deleted nor being deleted."""
    return row is not None and row.task_state != 'deleting'
