# SPDX-License-Identifier: Apache-2.0
"""Move of a server to another host of its cell."""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
from typing import Any

from oslo_log import log

from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched.conductor.tasks import steps
from cellsched.context import RequestContext
from cellsched.db.api import aggregates
from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instances
from cellsched.db.cell import server_moves
from cellsched.db.cell import states
from cellsched.db import session
from cellsched import exception
from cellsched import migrations
from cellsched.notify import notifiers
from cellsched import objects
from cellsched.rpc import compute as compute_rpc
from cellsched.rpc import delivery
from cellsched.rpc import scheduler as scheduler_rpc

LOG = log.getLogger(__name__)

#: Names of the tasks in notifications.
_METHODS = {server_moves.MIGRATION: 'migrate_server',
            server_moves.UNSHELVE: 'unshelve_instance',
            server_moves.EVACUATION: 'rebuild_server',
            server_moves.REBUILD: 'rebuild_server'}


@dataclasses.dataclass
class MoveWork:
    """A move in progress.

    :param instance: the server as its cell has it
    :param image_ref: the image after the move
    :param host: requested destination; None for any host of the cell
    :param rebuild: whether a migration may lose local disks
    :param disks: descriptions of the local disks that a migration must keep
    :param transfers: whether a migration transfers disks: the source can, and
        once a destination is selected, both hosts can
    """

    move: server_moves.Migration
    cell: objects.CellMapping
    instance: objects.Instance
    image_ref: str | None
    host: str | None = None
    spec: objects.RequestSpec | None = None
    rebuild: bool = False
    disks: Sequence[str] = ()
    transfers: bool = False

    @property
    def stays(self) -> bool:
        """Return whether the server stays and needs no decision."""
        return (self.move.migration_type == server_moves.REBUILD
                and self.image_ref == self.instance.image_ref)


@dataclasses.dataclass(eq=False)
class Move:
    """Moves a server to another host of its cell.

    The scheduler is called once, for this cell alone. It claims for a second
    consumer until the destination host has the server. After any failure the
    server has the state and the host that it had before; only a failed
    rebuild ends in ERROR.

    :param database: the API database
    :param host: recorded as the host of faults
    :param reached: called with the name of each step that was done:
        ``MovePrepare``, ``MoveSelect``, ``MoveDecide``, ``MoveCast``,
        ``MoveGiveUp``
    :param default_zone: the availability zone of hosts without one
    """

    database: session.Database
    targets: target.Targets
    scheduler: scheduler_rpc.SchedulerAPI
    compute: compute_rpc.ComputeAPIs
    claims: claims_base.Claims
    host: str
    notifier: notifiers.TaskNotifier = dataclasses.field(
        default_factory=notifiers.TaskNotifier)
    reached: Callable[[str], None] = lambda step: None
    default_zone: str = 'nova'

    def __post_init__(self) -> None:
        self._migrations = migrations.Migrations(self.claims, self.host)

    def run(
        self, context: RequestContext, instance_uuid: str,
        migration_uuid: str, host: str | None = None,
        image_ref: str | None = None, rebuild: bool = False,
    ) -> None:
        """Move a server, unless another conductor already does.

        :param migration_uuid: uuid of the accepted move
        :param host: destination; by default any host of the cell
        :param image_ref: image for a rebuild; by default the current one
        :param rebuild: whether a migration builds the server anew; otherwise
            it keeps local disks, or fails
        """
        work = self._prepare(instance_uuid, migration_uuid, host, image_ref)
        if work is None:
            LOG.info('Not moving the server: it is deleted, or moved already',
                     instance_uuid=instance_uuid, context=context)
            return
        work.rebuild = rebuild
        self.reached('MovePrepare')
        try:
            self._move(context, work)
        except (exception.HostStateUncertain, exception.NoValidHost,
                exception.DisksNotTransferable) as exc:
            self._give_up(context, work, exc)
        except (*delivery.ERRORS, *exception.DATABASE_UNAVAILABLE) as exc:
            LOG.warning('The %s failed: %s', work.move.migration_type,
                        exception.describe(exc), instance_uuid=instance_uuid,
                        context=context)
            self._give_up(context, work, exc)
        except Exception as exc:
            LOG.exception('The %s failed', work.move.migration_type,
                          instance_uuid=instance_uuid, context=context)
            self._give_up(context, work, exc)

    def _move(self, context: RequestContext, work: MoveWork) -> None:
        work.spec = read(self.database, work.instance)
        if work.move.migration_type == server_moves.MIGRATION:
            self._check_disks(context, work)
        selection = None if work.stays else self._select(context, work)
        self.reached('MoveSelect')
        if not self._decide(work, selection):
            # The move has ended meanwhile: release the new claim too.
            self._migrations.abort(
                self.targets.database(work.cell), work.move,
                exception.InstanceNotFound(uuid=work.instance.uuid))
            return
        self.reached('MoveDecide')
        self._cast(context, work)
        self.reached('MoveCast')
        if work.move.migration_type in (
                server_moves.REBUILD, server_moves.EVACUATION):
            self.notifier.rebuild_scheduled(context, work.instance)

    def _prepare(
        self, uuid: str, migration_uuid: str, host: str | None,
        image_ref: str | None,
    ) -> MoveWork | None:
        """Start a move; of several deliveries of a message one succeeds."""
        with self.database.reader() as connection:
            mapping = instance_mappings.get_many(connection, [uuid]).get(uuid)
        if mapping is None or mapping.cell_mapping is None:
            return None
        cell = mapping.cell_mapping
        database = self.targets.database(cell)
        with database.writer() as connection:
            server_moves.hold(connection, uuid)
            taken = server_moves.advance(
                connection, migration_uuid, [server_moves.ACCEPTED],
                server_moves.PREPARING, database.now())
            move = (server_moves.get(connection, migration_uuid) if taken
                    else None)
            instance = instances.get(connection, uuid)
        if move is None or move.instance_uuid != uuid:
            return None
        if instance is None:
            self._migrations.abort(
                database, move, exception.InstanceNotFound(uuid=uuid))
            return None
        return MoveWork(move, cell, instance, image_ref or instance.image_ref,
                        host)

    def _check_disks(self, context: RequestContext, work: MoveWork) -> None:
        """Find out whether a migration has to transfer disks, and can."""
        source = work.move.source_compute
        assert source is not None
        if work.rebuild:
            return
        with self.targets.database(work.cell).reader() as connection:
            work.disks = migrations.local_disks(connection, work.instance.uuid)
            work.transfers = migrations.can_transfer(
                connection, source, work.move.source_node)
        if work.disks and not work.transfers:
            raise exception.DisksNotTransferable(
                uuid=work.instance.uuid, which='its host',
                disks=' and '.join(work.disks))
        client = self._client(self.targets.target_cell(context, work.cell))
        if work.disks:
            client.check_transfers()
        work.transfers &= client.can_send(compute_rpc.TRANSFERS)

    def _select(
        self, context: RequestContext, work: MoveWork
    ) -> objects.Selection:
        assert work.spec is not None
        with_image(work.spec, work.image_ref)
        asked = restrict(work.spec, work.cell, work.move, work.host)
        if work.disks:
            asked.require_of_root(migrations.TRANSFER_TRAIT)
        self._drop_lost_zone(asked, work)
        [[selection, *_]] = self.scheduler.select_destinations(
            context, asked, [work.instance.uuid])
        if selection.cell_uuid != work.cell.uuid:
            raise exception.NoValidHost(
                reason='The scheduler chose a host of another cell.')
        found: objects.Selection = selection
        return found

    def _drop_lost_zone(
        self, asked: objects.RequestSpec, work: MoveWork
    ) -> None:
        """Ignore the zone of a server if its cell has no such zone any more.

        A zone cannot go while servers are on its hosts, but a shelved server
        is on no host, and can be restored in its cell only.
        """
        zone = asked.get('availability_zone')
        if not zone or zone == self.default_zone:
            return
        with self.database.reader() as connection:
            if aggregates.is_zone_in_cell(connection, zone, work.cell.id):
                return
        LOG.warning('Moving the server without its availability zone %s, '
                    'which no host of cell %s has', zone, work.cell.identity,
                    instance_uuid=work.instance.uuid)
        asked.availability_zone = None

    def _decide(
        self, work: MoveWork, selection: objects.Selection | None
    ) -> bool:
        """Record the destination, if the server still waits for it."""
        move, instance = work.move, work.instance
        place = ((move.source_compute, move.source_node) if selection is None
                 else (selection.service_host, selection.nodename))
        work.move = move._replace(
            dest_compute=place[0], dest_node=place[1])
        if selection is not None:
            instance.availability_zone = selection.get('availability_zone')
        asked = states.TRANSITIONS[move.kind.ask].after
        database = self.targets.database(work.cell)
        with database.writer() as connection:
            now = database.now()
            server_moves.hold(connection, instance.uuid)
            row = instances.get(connection, instance.uuid)
            if row is None or (row.task_state, row.host) != (
                    asked.task_state, move.source_compute):
                return False
            if not server_moves.advance(
                    connection, move.uuid, [server_moves.PREPARING],
                    server_moves.MIGRATING, now, dest_compute=place[0],
                    dest_node=place[1]):
                return False
            work.transfers = work.transfers and migrations.can_transfer(
                connection, *place)
            if work.disks and not work.transfers:
                # The table of the scheduler was old.
                raise exception.DisksNotTransferable(
                    uuid=instance.uuid, which='its new host',
                    disks=' and '.join(work.disks))
            if work.image_ref != instance.image_ref:
                instances.update(connection, instance.uuid,
                                 {'image_ref': work.image_ref}, now)
        if work.image_ref != instance.image_ref:
            self._keep_image(work)
        return True

    def _keep_image(self, work: MoveWork) -> None:
        """Store the image in the request spec for later requests."""
        assert work.spec is not None
        work.instance.image_ref = work.image_ref
        with self.database.writer() as connection:
            build_requests.save_spec(
                connection, work.instance.uuid,
                saved(work.spec), self.database.now())

    def _cast(self, context: RequestContext, work: MoveWork) -> None:
        cell_context = self.targets.target_cell(context, work.cell)
        assert work.spec is not None
        client = self._client(cell_context)
        work.instance.flavor = work.spec.flavor
        tell = {server_moves.MIGRATION: client.migrate_in,
                server_moves.UNSHELVE: client.unshelve_instance,
                }.get(work.move.migration_type, client.rebuild_instance)
        host, node = work.move.dest_compute, work.move.dest_node
        if work.transfers:
            # The source has the destination fetch the server.
            tell, host = client.prepare_migration, work.move.source_compute
        assert host is not None and node is not None
        tell(cell_context, host, work.instance, work.move.uuid, node)

    def _client(self, cell_context: RequestContext) -> compute_rpc.ComputeAPI:
        return self.compute.get(cell_context.cell.transport)

    def _give_up(
        self, context: RequestContext, work: MoveWork,
        reason: Exception
    ) -> None:
        def tell() -> None:
            after = states.TRANSITIONS[work.move.kind.revert].after
            state = after.vm_state or work.instance.vm_state or ''
            self.notifier.failed(
                context, _METHODS[work.move.migration_type],
                work.instance, work.spec, reason, state)

        self._migrations.abort(
            self.targets.database(work.cell), work.move, reason,
            notify=tell)
        self.reached('MoveGiveUp')


def read(
    database: session.Database, instance: objects.Instance
) -> objects.RequestSpec:
    """Return the request spec of a server, with its current state.

    The image and the members of the server group are the current ones.

    :param database: the API database
    :raises cellsched.exception.InstanceMappingNotFound: it has no request spec
    :raises cellsched.exception.RequestUnreadable: it cannot be read
    """
    with database.reader() as connection:
        spec = build_requests.read_spec(connection, instance.uuid)
        spec.instance_uuid, spec.num_instances = instance.uuid, 1
        with_image(spec, instance.image_ref)
        if spec.get('instance_group') is not None:
            steps.read_group(connection, spec, database.conditions)
    return spec


def with_image(spec: objects.RequestSpec, image_ref: str | None) -> None:
    """Set the image of a request; known properties of the same image stay.

    A server without an image may boot from a volume, whose image stays.
    """
    image = spec.get('image')
    if image_ref and (image.get('id') if image else None) != image_ref:
        spec.image = objects.ImageMeta(id=image_ref)


def restrict(
    spec: objects.RequestSpec, cell: objects.CellMapping,
    move: server_moves.Migration, host: str | None,
) -> objects.RequestSpec:
    """Return a request for a host in the server's own cell.

    :param host: the requested destination; by default any host except the
        source
    """
    asked = objects.RequestSpec.obj_from_primitive(spec.obj_to_primitive())
    destination = objects.Destination(
        cell=cell, allow_cross_cell_move=False)
    if move.migration_type == server_moves.REBUILD:
        destination.host = move.source_compute
        destination.node = move.source_node
    elif host is not None:
        destination.host = host
    asked.requested_destination = destination
    asked.ignore_hosts = ([move.source_compute] if move.kind.leaves else None)
    asked.force_hosts = asked.force_nodes = asked.retry = None
    asked.migration_uuid = move.uuid
    return asked


def saved(spec: objects.RequestSpec) -> dict[str, Any]:
    """Return a request as it is stored: without the members of its group."""
    primitive: dict[str, Any] = spec.obj_to_primitive()
    group = primitive['nova_object.data'].get('instance_group')
    if group is not None:
        group['nova_object.data']['members'] = []
    return primitive
