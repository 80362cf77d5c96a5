# SPDX-License-Identifier: Apache-2.0
"""Moves of servers: rebuild, evacuate, migrate, shelve, unshelve."""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

from oslo_utils import uuidutils

from cellsched.api import authorization
from cellsched.api import base
from cellsched.api import validation
from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched.context import RequestContext
from cellsched.db.api import build_requests
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db.cell import server_moves
from cellsched.db.cell import services
from cellsched.db import session
from cellsched import exception
from cellsched.listing import servers as listing
from cellsched import migrations
from cellsched import objects
from cellsched.rpc import compute as compute_rpc
from cellsched.rpc import conductor as conductor_rpc
from cellsched.rpc import delivery


class _AcceptedMove(NamedTuple):
    """A move, and the previous state of its server."""

    move: server_moves.Migration
    vm_state: str | None


class Moves(base.ServerController):
    """Begins moves of servers, each within its cell.

    When a method returns, the move is accepted and the server has a task. The
    task ends when the move has succeeded or failed. A server has one move at
    a time.

    :param conductor: returns the client of conductors
    :param compute: returns the clients of agents
    :param host: the host that is recorded in faults
    :param down_s: seconds without a report after which a host is down
    """

    def __init__(
        self, authorizer: authorization.Authorizer, database: session.Database,
        targets: target.Targets, reader: listing.ServerListing,
        conductor: 'Callable[[], conductor_rpc.ConductorAPI]',
        compute: 'Callable[[], compute_rpc.ComputeAPIs]',
        claims: claims_base.Claims,
        host: str, down_s: float,
        new_uuid: Callable[[], str] = uuidutils.generate_uuid,
    ) -> None:
        super().__init__(authorizer, reader)
        self._database = database
        self._targets = targets
        self._conductor = conductor
        self._compute = compute
        self._migrations = migrations.Migrations(claims, host)
        self._down_s = down_s
        self._new_uuid = new_uuid

    @base.requires('os_compute_api:servers:rebuild', resource_param='uuid')
    def rebuild(
        self, context: RequestContext, uuid: str,
        image_ref: str | None = None,
    ) -> None:
        """Rebuild a server on its host; the data on its disk is lost.

        Its host must be up; :meth:`evacuate` is for a host that is down.

        :param image_ref: id of another image, for which the host must be
            suitable
        :raises cellsched.exception.InvalidField: names the field
        :raises cellsched.exception.InstanceNotFound: it does not exist
        :raises cellsched.exception.InstanceInvalidState: names the state
        :raises cellsched.exception.CellUnreachable: the message could not be
            sent, and nothing has changed
        :raises cellsched.exception.VersionNotSendable: its agent is too old
        :raises cellsched.exception.RequestUnreadable: its request
            specification cannot be read, so it could not be built again
        """
        if image_ref is not None:
            validation.check_text('rebuild', 'image', image_ref)
        cell_ctxt = self._target_cell(context, uuid)
        self._check_spec(uuid)
        self._begin(
            cell_ctxt, uuid, server_moves.REBUILD,
            lambda move: self._conductor().rebuild_instance(
                context, uuid, move.uuid, image_ref),
            self._check_up(cell_ctxt, 'rebuild'))

    @base.requires('os_compute_api:os-evacuate', resource_param='uuid')
    def evacuate(
        self, context: RequestContext, uuid: str,
        host: str | None = None,
    ) -> None:
        """Rebuild a server of a failed host on another host of its cell.

        The data on local disks is lost, unless the hosts share them. If a
        host that is down has not finished a task of the server, the task is
        ended first.
        If the evacuation fails, the server has the state that it had before.
        Raises the errors of :meth:`migrate`.

        :param host: the destination; by default the scheduler selects one
        """
        cell_ctxt = self._target_cell(context, uuid, host)

        def check(connection: Any, row: objects.Instance) -> None:
            if self._is_up(cell_ctxt, connection, row.host):
                raise exception.InvalidField(
                    where='evacuate', field='server',
                    problem='its host%(host)s is up',
                    expected='a server whose host is down or forced down',
                    internals={'host': f' {row.host}'})
        self._begin(
            cell_ctxt, uuid, server_moves.EVACUATION,
            lambda move: self._conductor().rebuild_instance(
                context, uuid, move.uuid, host=host), check, host)

    @base.requires(
        'os_compute_api:os-migrate-server:migrate', resource_param='uuid')
    def migrate(
        self, context: RequestContext, uuid: str,
        host: str | None = None, rebuild: bool = False,
    ) -> None:
        """Migrate a server to another host of its cell.

        The host of the server must be up; :meth:`evacuate` moves a server
        whose host is down. The data on local disks is transferred, which both
        hosts must be able to do.

        :param host: the destination, which needs another rule; by default the
            scheduler selects one
        :param rebuild: build the server anew on its new host; the data on its
            local disks is lost
        :raises cellsched.exception.DisksNotTransferable: the data on local
            disks would be lost; names the disks
        :raises cellsched.exception.InvalidField: names the field
        :raises cellsched.exception.InstanceNotFound: it does not exist
        :raises cellsched.exception.InstanceInvalidState: names the state
        :raises cellsched.exception.HostMappingNotFound: the host is not mapped
        :raises cellsched.exception.CellUnreachable: the message could not be
            sent, and nothing has changed
        :raises cellsched.exception.VersionNotSendable: its agent is too old,
            or too old to transfer its disks
        """
        if host is not None:
            self.check_visible(context, uuid)
            context = self._authorize(
                context, 'os_compute_api:os-migrate-server:migrate:host')
        cell_ctxt = self._target_cell(context, uuid, host)
        check_up = self._check_up(cell_ctxt, 'migrate')

        def check(connection: Any, row: objects.Instance) -> None:
            check_up(connection, row)
            if not rebuild:
                self._check_disks(cell_ctxt, connection, row, host)
        self._begin(
            cell_ctxt, uuid, server_moves.MIGRATION,
            lambda move: self._conductor().migrate_server(
                context, uuid, move.uuid, host, rebuild), check, host)

    @base.requires('os_compute_api:os-shelve:shelve', resource_param='uuid')
    def shelve(self, context: RequestContext, uuid: str) -> None:
        """Shelve a server: remove it from its host, and keep its record.

        The data on its local disks is lost. Its host must be up, to remove it.
        Raises the errors of :meth:`rebuild`.
        """
        cell_ctxt = self._target_cell(context, uuid)
        self._check_spec(uuid)
        client = self._compute().get(cell_ctxt.cell.transport)
        self._begin(
            cell_ctxt, uuid, server_moves.SHELVE,
            lambda move: client.shelve_offload_instance(
                cell_ctxt, move.source_compute or '',
                objects.Instance(uuid=uuid), move.uuid),
            self._check_up(cell_ctxt, 'shelve'))

    @base.requires('os_compute_api:os-shelve:unshelve', resource_param='uuid')
    def unshelve(self, context: RequestContext, uuid: str) -> None:
        """Restore a shelved server on a host of its cell.

        It is built anew from its image; shelving has removed its local disks.
        Raises the errors of :meth:`rebuild`.
        """
        cell_ctxt = self._target_cell(context, uuid)
        self._begin(
            cell_ctxt, uuid, server_moves.UNSHELVE,
            lambda move: self._conductor().unshelve_instance(
                context, uuid, move.uuid))

    def _target_cell(
        self, context: RequestContext, uuid: str,
        host: str | None = None,
    ) -> RequestContext:
        """Return a context for the cell of a server.

        :param host: a host that must be in that cell
        """
        validation.check_text('server', 'id', uuid)
        found, cell = self._reader.get(context, uuid)
        with self._database.reader() as connection:
            mapping = instance_mappings.get_many(connection, [uuid]).get(uuid)
            hosts = host_mappings.get_many(connection, [host] if host else [])
        if mapping is None or mapping.queued_for_delete:
            raise exception.InstanceNotFound(uuid=uuid)
        if cell is None or cell.uuid == objects.CELL0_UUID:
            raise exception.InstanceInvalidState(
                uuid=uuid, action='be moved', state='in no cell yet' if
                cell is None else f'{found.status}, without ever having had '
                'a host')
        if host is not None and host not in hosts:
            raise exception.HostMappingNotFound(host=host)
        if host is not None and hosts[host].uuid != cell.uuid:
            raise exception.InvalidField(
                where='move', field='host',
                problem='the host%(host)s is in another cell',
                internals={'host': f' {host}'},
                expected='a host of the cell of the server')
        cell_ctxt = self._targets.target_cell(context, cell)
        client = self._compute().get(cell_ctxt.cell.transport)
        client.check_moves()
        return cell_ctxt

    def _check_spec(self, uuid: str) -> None:
        """Check that a server can be built again before its guest is lost."""
        with self._database.reader() as connection:
            build_requests.read_spec(connection, uuid)

    def _check_disks(
        self, cell_ctxt: RequestContext, connection: Any,
        row: objects.Instance, host: str | None,
    ) -> None:
        """Check that a migration keeps the local disks of a server."""
        disks = migrations.local_disks(connection, row.uuid)
        if not disks:
            return
        for which, name, node in (
                ('its host%(host)s', row.host, row.node),
                ('the host%(host)s', host or row.host, None)):
            if not migrations.can_transfer(connection, name, node):
                raise exception.DisksNotTransferable(
                    uuid=row.uuid, which=which, disks=' and '.join(disks),
                    internals={'host': f' {name}'})
        self._compute().get(cell_ctxt.cell.transport).check_transfers()
        self._conductor().check_transfers()

    def _check_up(
        self, cell_ctxt: RequestContext, where: str
    ) -> Callable[[Any, objects.Instance], None]:
        """Return a check that the host of a server is up."""
        def check(connection: Any, row: objects.Instance) -> None:
            if not self._is_up(cell_ctxt, connection, row.host):
                raise exception.InvalidField(
                    where=where, field='server',
                    problem='its host%(host)s is down',
                    expected='a server whose host is up; for a host that is '
                             'down, use evacuate',
                    internals={'host': f' {row.host}'})
        return check

    def _is_up(
        self, cell_ctxt: RequestContext, connection: Any, host: str
    ) -> bool:
        return services.is_up(
            connection, host, cell_ctxt.cell.database.now(), self._down_s)

    def _end_stalled(
        self, cell_ctxt: RequestContext, uuid: str, kind: str,
        host: str | None,
    ) -> None:
        """End the move of a server if it waits for a host that is down.

        An evacuation replaces every such move. If the server is on this host
        already, the move is completed, so that the server can be evacuated
        from there. Other moves replace only a move to a destination that is
        down, of a server whose own host is up.
        """
        database = cell_ctxt.cell.database
        with database.reader() as connection:
            row = instances.get(connection, uuid)
            move = server_moves.live(connection, uuid)
            if row is None or move is None or (
                    host is not None and host == row.host):
                return
            is_lost = row.host is not None and not self._is_up(
                cell_ctxt, connection, row.host)
            if is_lost != (kind == server_moves.EVACUATION):
                return
            # A transfer of disks needs the source until it is complete.
            stalled = is_lost and _transfers(connection, move) or (
                move.worker is not None and not self._is_up(
                    cell_ctxt, connection, move.worker))
        if move.status == server_moves.MOVED:
            if is_lost:
                self._migrations.finish(database, move)
        elif stalled:
            self._migrations.abort(
                database, move, exception.MoveAbandoned(
                    kind=move.migration_type,
                    reason='the host%(host)s is down',
                    internals={
                        'host': f' {row.host if is_lost else move.worker}'}),
                # A conductor may advance the move meanwhile. That changes the
                # worker, except if the move needs no other host.
                server_moves.UNMOVED if move.migration_type in (
                    server_moves.REBUILD, server_moves.SHELVE)
                else [move.status], 'end_task' if is_lost else None)

    def _begin(
        self, cell_ctxt: RequestContext, uuid: str, kind: str,
        tell: Callable[[server_moves.Migration], None],
        check: Callable[[Any, objects.Instance], None] = (
            lambda connection, row: None),
        host: str | None = None,
    ) -> None:
        """Accept a move, and send the message that begins it.

        If the message is not sent, the move is undone: without the message,
        no conductor would find it.
        """
        self._end_stalled(cell_ctxt, uuid, kind, host)
        move, vm_state = self._accept(cell_ctxt, uuid, kind, check, host)
        try:
            tell(move)
        except Exception as exc:
            self._migrations.abort(
                cell_ctxt.cell.database, move, exc, [server_moves.ACCEPTED],
                'revert_rebuild' if kind == server_moves.REBUILD
                and vm_state == 'active' else None)
            if not isinstance(exc, delivery.ERRORS):
                raise
            raise exception.CellUnreachable(
                cell=cell_ctxt.cell.name, reason='the message could not be '
                'sent, and the move was not begun') from exc

    def _accept(
        self, cell_ctxt: RequestContext, uuid: str, kind: str,
        check: Callable[[Any, objects.Instance], None], host: str | None,
    ) -> _AcceptedMove:
        """Set the task of a server, and record its move, if allowed."""
        database = cell_ctxt.cell.database
        move_kind = server_moves.KINDS[kind]
        accepted: _AcceptedMove | None = None

        def accept(connection: Any) -> _AcceptedMove:
            nonlocal accepted
            # 1. Hold the server: the checks below are true until the commit.
            now = database.now()
            server_moves.hold(connection, uuid)
            row = instances.get(connection, uuid)
            if row is None or row.task_state == 'deleting':
                raise exception.InstanceNotFound(uuid=uuid)
            live = server_moves.live(connection, uuid)
            if accepted and live and live.uuid == accepted.move.uuid:
                # An earlier attempt was committed, and its answer was lost.
                return accepted
            # 2. Refuse. The transition is the last word on the state: it has
            #    the allowed states as its condition.
            if row.host is not None:
                check(connection, row)
            if live is not None:
                raise _invalid(row, move_kind.action, 'moved already')
            if not instances.transit(connection, uuid, move_kind.ask, now):
                raise _invalid(row, move_kind.action)
            if row.host is None and kind != server_moves.UNSHELVE:
                raise _invalid(row, move_kind.action,
                               f'{row.vm_state}, on no host')
            if host is not None and host == row.host:
                raise exception.InvalidField(
                    where='move', field='host',
                    problem='the server is on the host%(host)s',
                    internals={'host': f' {host}'},
                    expected='another host of its cell')
            # 3. Record the move with the transition. A conductor that loses
            #    the message finds it here.
            move = server_moves.Migration(
                self._new_uuid(), uuid, kind, source_compute=row.host,
                source_node=row.node)
            server_moves.create(connection, move, cell_ctxt, now)
            instance_history.create_all(
                connection, {uuid: cell_ctxt}, move_kind.action, now)
            accepted = _AcceptedMove(move, row.vm_state)
            return accepted
        return database.write(accept)


def _transfers(connection: Any, move: server_moves.Migration) -> bool:
    """Return whether a move may be transferring disks."""
    return (move.migration_type == server_moves.MIGRATION
            and move.source_compute is not None
            and move.dest_compute is not None
            and migrations.can_transfer(
                connection, move.source_compute, move.source_node)
            and migrations.can_transfer(
                connection, move.dest_compute, move.dest_node))


def _invalid(
    row: objects.Instance, action: str, state: str | None = None
) -> exception.InstanceInvalidState:
    if state is None:
        state = row.vm_state or 'building'
        if row.task_state:
            state += f' ({row.task_state})'
    return exception.InstanceInvalidState(
        uuid=row.uuid, action=action, state=state)
