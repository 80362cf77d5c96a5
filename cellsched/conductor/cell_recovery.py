# SPDX-License-Identifier: Apache-2.0
"""Recovery in a cell: interrupted migrations and leftover networks."""

from collections.abc import Callable
import datetime

from oslo_log import log

from cellsched.claims import base as claims_base
from cellsched import context
from cellsched.db.cell import instances
from cellsched.db.cell import networks
from cellsched.db.cell import server_moves
from cellsched.db.cell import services
from cellsched.db import session
from cellsched import exception
from cellsched import migrations
from cellsched.network import deallocation
from cellsched import objects
from cellsched.rpc import compute as compute_rpc
from cellsched.rpc import delivery

LOG = log.getLogger(__name__)

_Tell = Callable[
    [context.RequestContext, str, objects.Instance, str], None]


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

    def __init__(
        self, database: session.Database, compute: compute_rpc.ComputeAPI,
        claims: claims_base.ClaimStore, host: str, deadline_s: float,
        down_s: float, moves_max: int = 100,
    ) -> None:
        self._database = database
        self._compute = compute
        self._migrations = migrations.Migrations(claims, host)
        self._deadline_s = deadline_s
        self._down_s = down_s
        self._moves_max = moves_max

    def run(self) -> None:
        """End the overdue migrations."""
        with self._database.reader() as connection:
            before = self._database.now() - datetime.timedelta(
                seconds=self._deadline_s)
            overdue = server_moves.list_before(
                connection, before, self._moves_max)
            # A late scheduler may have claimed after their end.
            ended = server_moves.list_given_up(
                connection, before - datetime.timedelta(
                    seconds=self._deadline_s), before)
        for move in overdue:
            try:
                self._end(move, before)
            except Exception:
                # A failure of one migration does not stop the others.
                LOG.exception('Could not end the %s of instance %s',
                              move.migration_type, move.instance_uuid)
        for uuid in ended:
            try:
                self._migrations.release_ended(self._database, uuid)
            except Exception:
                LOG.exception('Could not give back what ended moves of '
                              'instance %s claimed', uuid)

    def _end(
        self, move: server_moves.Migration, before: datetime.datetime
    ) -> None:
        offloads = (move.migration_type == server_moves.SHELVE
                    and move.status == server_moves.MIGRATING)
        if move.status == server_moves.FINISHED:
            self._tell_again(move, before, self._compute.migrate_out)
        elif move.status == server_moves.MOVED:
            if self._migrations.finish(self._database, move):
                LOG.warning('Ended the stranded %s of instance %s',
                            move.migration_type, move.instance_uuid)
                if move.kind.leaves:
                    self._tell(move, move.source_compute,
                               self._compute.migrate_out)
        elif offloads and self._is_there(move.instance_uuid):
            # The host may have removed the server already: finish, not abort.
            self._tell_again(
                move, before, self._compute.shelve_offload_instance)
        elif self._migrations.abort(
                self._database, move, exception.MoveDeadlineExceeded(
                    kind=move.migration_type, seconds=self._deadline_s),
                [move.status]):
            if move.dest_compute != move.source_compute:
                self._tell(move, move.dest_compute, self._compute.migrate_out)

    def _is_there(self, uuid: str) -> bool:
        with self._database.reader() as connection:
            return instances.get(connection, uuid) is not None

    def _tell_again(
        self, move: server_moves.Migration, before: datetime.datetime,
        tell: _Tell,
    ) -> None:
        """Cast to the source host again and restart the deadline.

        A host that is down gets no further message, because messages would
        pile up in its queue.
        """
        host = move.source_compute
        assert host is not None
        with self._database.writer() as connection:
            now = self._database.now()
            own = server_moves.touch(connection, move.uuid, before, now)
            up = services.is_up(connection, host, now, self._down_s)
        if own and up:
            self._tell(move, host, tell)

    def _tell(
        self, move: server_moves.Migration, host: str | None, tell: _Tell
    ) -> None:
        if host is None:
            return
        try:
            tell(context.admin(), host,
                 objects.Instance(uuid=move.instance_uuid), move.uuid)
        except delivery.ERRORS as exc:
            LOG.warning('Could not cast to host %s for instance %s: %s', host,
                        move.instance_uuid, delivery.describe(exc))


class NetworkCleanup:
    """Deallocates the networks of ended servers.

    The API deletes a server that waits for a host without access to the
    networks of cells. A failed plug-in or a killed process leaves networks
    behind too. Several conductors may do this at the same time.

    :param database: the cell's database
    :param batch: servers to read at a time
    """

    def __init__(
        self, database: session.Database,
        networks_: deallocation.NetworkDeallocation, batch: int = 100,
    ) -> None:
        self._database = database
        self._networks = networks_
        self._batch = batch

    def run(self) -> None:
        """Deallocate the networks; a failure is retried in the next run."""
        after = ''
        while True:
            with self._database.reader() as connection:
                found = networks.list_to_free(
                    connection, self._batch, after)
            if not found:
                return
            for instance in found:
                LOG.info('Deallocating networks of ended instance %s',
                         instance.uuid)
                self._networks.free(context.of_owner(instance), instance)
            after = found[-1].uuid
