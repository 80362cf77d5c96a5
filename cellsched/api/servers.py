# SPDX-License-Identifier: Apache-2.0
"""Servers: create, get, list, change, delete, try again."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import datetime
from typing import Any
from typing import TYPE_CHECKING

from oslo_log import log
from oslo_utils import uuidutils

from cellsched.api import authorization
from cellsched.api import base
from cellsched.api import block_devices
from cellsched.api import deletion
from cellsched.api.retry import Retry
from cellsched.api import revision
from cellsched.api import validation
from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched.db.api import build_requests
from cellsched.db.api import flavors
from cellsched.db.api import instance_groups
from cellsched.db.api import instance_mappings
from cellsched.db.api import request_rows
from cellsched.db.api import request_specs
from cellsched.db import session
from cellsched import exception
from cellsched.listing import pages
from cellsched.listing import query
from cellsched.listing import server
from cellsched.listing import servers as listing
from cellsched import objects
from cellsched.quota import base as quota_base

# Who only reads servers sends no messages.
if TYPE_CHECKING:
    from cellsched.rpc import compute as compute_rpc
    from cellsched.rpc import conductor as conductor_rpc

LOG = log.getLogger(__name__)


class Servers(base.ServerController):
    """Takes users' wishes.

    A server is accepted when :meth:`create` returns: it is in the API
    database then, and one way or another it will end as one server in one
    cell, as one in cell0 that says why, or deleted. Whether the broker took
    the message to the conductors makes no difference: they look for what they
    were not told of.

    :param conductor: returns the client of conductors
    :param compute: returns the clients of agents
    :param reached: is told what was done: ``Accept``, it is in the API
        database; ``Tell``, a conductor was told; ``Delete``, the API database
        says that it is deleted
    """

    def __init__(
        self, authorizer: authorization.Authorizer, database: session.Database,
        targets: target.Targets, reader: listing.ServerListing,
        conductor: 'Callable[[], conductor_rpc.ConductorAPI]',
        compute: 'Callable[[], compute_rpc.ComputeAPIs]',
        claims: claims_base.ClaimStore,
        clock: Clock, quotas: quota_base.QuotaDriver,
        bounds: validation.ServerBounds,
        new_uuid: Callable[[], str] = uuidutils.generate_uuid,
        reached: Callable[[str], None] = lambda step: None,
    ) -> None:
        super().__init__(authorizer, reader)
        self._database = database
        self._conductor = conductor
        self._clock = clock
        self._quotas = quotas
        self._bounds = bounds
        self._new_uuid = new_uuid
        self._reached = reached
        self._deletion = deletion.Deletion(
            database, targets, compute, claims, clock, reached)
        self._revision = revision.Revision(database, targets, clock)
        self._retry = Retry(database, targets, clock)

    @base.requires('os_compute_api:servers:create')
    def create(
        self, context: RequestContext, name: str, flavor: str,
        image_ref: str | None = None, availability_zone: str | None = None,
        hints: Mapping[str, Sequence[str]] | None = None,
        min_count: int = 1, max_count: int | None = None,
        tags: Sequence[str] = (),
        block_device_mappings: Sequence[Mapping[str, Any]] = (),
    ) -> list[str]:
        """Accept servers; return their uuids.

        As many as ``max_count`` are built if they fit, and none if fewer than
        ``min_count`` do. Those that the project's quota has no room for are
        not accepted.

        :param flavor: its id or its name
        :param hints: scheduler hints; ``group`` is the id of a server group
            of the project, whose members the servers become
        :param max_count: ``min_count`` unless it is given
        :param tags: of each of them
        :param block_device_mappings: of each of them; fields of
            :class:`cellsched.objects.BlockDeviceMapping`
        :raises cellsched.exception.InvalidField: names the field and the
            bound
        :raises cellsched.exception.FlavorNotFound: no such flavor
        :raises cellsched.exception.InstanceGroupNotFound: the project has no
            such server group
        :raises cellsched.exception.OverQuota: the project's quota has no room
            for ``min_count``
        """
        count = min_count if max_count is None else max_count
        request = validation.ServerRequest(
            name, flavor, image_ref, availability_zone,
            {} if hints is None else hints, min_count, count, tags,
            block_device_mappings)
        request.check(self._bounds)
        block_devices.check(block_device_mappings, several=count > 1)
        with self._database.writer() as connection:
            group = self._group(connection, context, request)
            sizes = flavors.get(connection, flavor)
            request = dataclasses.replace(
                request, max_count=self._quotas.check(
                    connection, context.project_id, context.user_id, sizes,
                    min_count, count))
            uuids = _accept(
                connection, context, request, sizes, group,
                self._database.now(), self._new_uuid)
        self._tell(context, uuids)
        return uuids

    @base.requires('os_compute_api:servers:show', resource_param='uuid')
    def get(
        self, context: RequestContext, uuid: str
    ) -> server.Server:
        """Return a server.

        :raises cellsched.exception.InvalidField: no id that can be kept
        :raises cellsched.exception.InstanceNotFound: there is none
        """
        return self._get(context, uuid)

    @base.requires('os_compute_api:servers:delete', resource_param='uuid')
    def delete(self, context: RequestContext, uuid: str) -> None:
        """Delete a server, whatever is being done with it.

        It is accepted when the cell's database has it. A host that could not
        be told finds it there.

        :raises cellsched.exception.InvalidField: no id that can be kept
        :raises cellsched.exception.InstanceNotFound: there is none
        :raises cellsched.exception.DatabaseUnreachable: its cell does not
            answer; nobody brings it into one any more, and another call goes
            on from there
        """
        validation.check_text('server', 'id', uuid)
        self._reader.get(context, uuid, to_delete=True)
        self._deletion.run(context, uuid)

    @base.requires('os_compute_api:servers:update', resource_param='uuid')
    def update(
        self, context: RequestContext, uuid: str, name: str
    ) -> None:
        """Rename a server, whatever is being done with it.

        :raises cellsched.exception.InvalidField: names the field and the
            bound
        :raises cellsched.exception.InstanceNotFound: there is none
        """
        validation.check_text('server', 'name', name)
        self._get(context, uuid)
        self._revision.rename(uuid, name)

    @base.requires(
        'os_compute_api:os-server-tags:update_all', resource_param='uuid')
    def set_tags(
        self, context: RequestContext, uuid: str,
        tags: Sequence[str],
    ) -> None:
        """Give a server these tags, and no others.

        :raises cellsched.exception.InvalidField: names the field and the
            bound
        :raises cellsched.exception.InstanceNotFound: there is none
        """
        validation.check_tags('server', tags)
        self._get(context, uuid)
        self._revision.set_tags(uuid, list(dict.fromkeys(tags)))

    @base.requires('cellsched:servers:retry', resource_param='uuid')
    def retry(self, context: RequestContext, uuid: str) -> None:
        """Have a server in cell0 built again, under the same uuid.

        :raises cellsched.exception.InvalidField: no id that can be kept
        :raises cellsched.exception.InstanceNotFound: there is none
        :raises cellsched.exception.InstanceInvalidState: it is not in cell0
        """
        self._get(context, uuid)
        self._retry.run(uuid)
        self._tell(context, [uuid])

    @base.requires('os_compute_api:servers:index')
    def list(
        self, context: RequestContext,
        filters: Mapping[str, Any] | None = None,
        sort_keys: Sequence[str] = (), sort_dirs: Sequence[str] = (),
        limit: int | None = None, marker: str | None = None,
    ) -> pages.Page:
        """Return a page of the servers of the project, or of all for an admin.

        They are in one order, wherever they are: waiting for a cell, in one,
        or in cell0. Cells that do not answer are named.

        :param filters: by the names of ``listing.query.FILTERS``, a text or
            several, or ``flavor``, the id or name of one
        :param sort_keys: of ``db.cell.instance_list.SORT_KEYS``; without any
            the newest come first
        :param sort_dirs: ``asc`` or ``desc`` of each key
        :param limit: no more than this; by default what ``[api] max_limit``
            allows
        :param marker: the uuid of the last server of the page before
        :raises cellsched.exception.InvalidField: names the field and the
            bound
        :raises cellsched.exception.FlavorNotFound: no such flavor
        :raises cellsched.exception.MarkerNotFound: the project has no such
            server
        :raises cellsched.exception.CellsDown: a cell does not answer, where
            none may be left out
        """
        limit = self._bounds.limit_max if limit is None else limit
        validation.check_count(
            'server list', 'limit', limit, self._bounds.limit_max, least=0)
        if marker is not None:
            validation.check_text('server list', 'marker', marker)
        is_admin = bool(context.is_admin)
        order = query.order(sort_keys, sort_dirs, is_admin)
        filters = {} if filters is None else dict(filters)
        flavor = filters.pop('flavor', None)
        flavor_id = None
        if flavor is not None:
            validation.check_text('server list', 'filters.flavor', flavor)
            with self._database.reader() as connection:
                flavor_id = flavors.get(connection, flavor).id
        wanted = query.wanted(
            filters, None if is_admin else context.project_id or '', is_admin,
            flavor_id)
        return self._reader.list(context, query.ServerQuery(
            wanted, order, limit, marker, is_admin))

    def _get(
        self, context: RequestContext, uuid: str
    ) -> server.Server:
        return self._read(context, uuid)[0]

    def _tell(
        self, context: RequestContext, uuids: Sequence[str]
    ) -> None:
        self._reached('Accept')
        try:
            self._conductor().build_and_schedule(context, uuids)
        except Exception as exc:
            # They are accepted whatever became of the message, and who asked
            # needs their ids.
            from cellsched.rpc import delivery

            LOG.warning('Request %s: could not cast build_and_schedule for '
                        'instances %s; conductors will find them: %s',
                        context.request_id, ', '.join(uuids),
                        delivery.describe(exc))
        self._reached('Tell')

    def _group(
        self, connection: Any, context: RequestContext,
        request: validation.ServerRequest,
    ) -> objects.InstanceGroup | None:
        """Return the group to join, without its members.

        They change, and are read again when the servers are placed.
        """
        if request.group is None:
            return None
        group = instance_groups.get(
            connection, request.group, context.project_id or '', lock=True)
        most, there = self._bounds.group_members_max, len(group.members)
        if there + request.max_count > most:
            raise exception.InvalidField(
                where='server', field='hints.group',
                expected=f'a server group with room for {request.max_count} '
                         f'more; it has {there} of at most {most} members')
        group.members = []
        return group


def _accept(
    connection: Any, context: RequestContext,
    request: validation.ServerRequest, flavor: objects.Flavor,
    group: objects.InstanceGroup | None, now: datetime.datetime,
    new_uuid: Callable[[], str],
) -> list[str]:
    """Put the servers of a request into the API database; return their uuids.

    What they share is made once, and checked once.

    :param request: whose ``max_count`` says how many
    :param group: the group to join, without its members
    """
    project_id = context.project_id or ''
    reservation_id = f'r-{new_uuid()}'
    uuids = [new_uuid() for _ in range(request.max_count)]
    instance = _instance(
        context, request, flavor, uuids[0], reservation_id, now)
    spec = _spec(context, request, flavor, group, uuids)
    build_requests.create_all(connection, [
        request_rows.Wanted(
            uuid, project_id,
            _with(instance, uuid=uuid, launch_index=index,
                  display_name=_name(request, index)),
            _tags(request, uuid), _devices(request, uuid, new_uuid))
        for index, uuid in enumerate(uuids)], now, request.min_count)
    request_specs.create(
        connection, [_with(spec, instance_uuid=uuid) for uuid in uuids], now)
    # To the second, as objects tell when a server was created: listings
    # compare the two.
    instance_mappings.create(
        connection, uuids, project_id, context.user_id,
        now.replace(microsecond=0), flavor)
    if group is not None:
        instance_groups.add_members(connection, group.id, uuids, now)
    return uuids


def _instance(
    context: RequestContext, request: validation.ServerRequest,
    flavor: objects.Flavor, uuid: str, reservation_id: str,
    now: datetime.datetime,
) -> dict[str, Any]:
    """Return the primitive of the first server."""
    return objects.Instance(
        uuid=uuid, project_id=context.project_id, user_id=context.user_id,
        image_ref=request.image_ref, display_name=_name(request, 0),
        launch_index=0, vm_state='building', task_state='scheduling',
        power_state=0, vcpus=flavor.vcpus, memory_mb=flavor.memory_mb,
        root_gb=flavor.root_gb, ephemeral_gb=flavor.ephemeral_gb,
        instance_type_id=flavor.id, reservation_id=reservation_id,
        created_at=now, flavor=flavor,
        availability_zone=request.availability_zone).obj_to_primitive()


def _spec(
    context: RequestContext, request: validation.ServerRequest,
    flavor: objects.Flavor, group: objects.InstanceGroup | None,
    uuids: Sequence[str],
) -> dict[str, Any]:
    """Return the primitive of what is asked for the first server."""
    return objects.RequestSpec(
        project_id=context.project_id, user_id=context.user_id,
        availability_zone=request.availability_zone, flavor=flavor,
        image=(objects.ImageMeta(id=request.image_ref)
               if request.image_ref else None),
        num_instances=len(uuids), instance_uuid=uuids[0],
        ignore_hosts=None, force_hosts=None, force_nodes=None, retry=None,
        limits=None, instance_group=group, is_bfv=False,
        scheduler_hints={name: list(values)
                         for name, values in request.hints.items()},
    ).obj_to_primitive()


def _with(primitive: dict[str, Any], **values: Any) -> dict[str, Any]:
    """Return the primitive of an object that differs in these values."""
    return {**primitive, 'nova_object.data': {
        **primitive['nova_object.data'], **values}}


def _name(request: validation.ServerRequest, index: int) -> str:
    return (f'{request.name}-{index + 1}' if request.max_count > 1
            else request.name)


def _tags(
    request: validation.ServerRequest, uuid: str
) -> dict[str, Any] | None:
    names = dict.fromkeys(request.tags)
    if not names:
        return None
    return objects.TagList.made(uuid, names).obj_to_primitive()


def _devices(
    request: validation.ServerRequest, uuid: str, new_uuid: Callable[[], str]
) -> dict[str, Any] | None:
    made = block_devices.made(request.block_device_mappings, uuid, new_uuid)
    return None if made is None else made.obj_to_primitive()
