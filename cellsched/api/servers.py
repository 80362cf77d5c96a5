# SPDX-License-Identifier: Apache-2.0
"""Servers: create, get, list, change, delete, retry, reset."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import datetime
import re
import types
from typing import Any

from oslo_log import log
from oslo_utils import uuidutils

from cellsched.api import authorization
from cellsched.api import base
from cellsched.api import validation
from cellsched import batching
from cellsched.cells import target
from cellsched.claims import base as claims_base
from cellsched.clock import Clock
from cellsched.context import RequestContext
from cellsched.db.api import build_requests
from cellsched.db.api import flavors
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_groups
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instance_children
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db.cell import server_moves
from cellsched.db import session
from cellsched.deletion import Deletion
from cellsched import exception
from cellsched.hardware.aliases import Aliases
from cellsched.listing import query
from cellsched.listing import server
from cellsched.listing import servers as listing
from cellsched.migrations import Migrations
from cellsched import objects
from cellsched.observability import tracing
from cellsched.quota import base as quota_base
from cellsched.rpc.compute import ComputeAPIs
from cellsched.rpc.conductor import ConductorAPI
from cellsched.validation import json_schema
from cellsched.validation.uuids import canonical

LOG = log.getLogger(__name__)

#: The first characters of a uuid, and the servers that an error names at most.
_UUID_BEGIN = re.compile('[0-9a-fA-F-]{4,35}')
_NAMED_MAX = 10

#: Transactions that accept the same servers, if connections are lost.
_ATTEMPTS_MAX = 3


class Servers(base.ServerController):
    """Creates, reads, changes and deletes servers.

    When :meth:`create` returns, the servers are accepted: they are in the API
    database. Each accepted server ends in a cell, in cell0 with the reason of
    its failure, or deleted. If a message to the conductors is lost, they find
    the server in the database.

    :param conductor: returns the client of conductors
    :param compute: returns the clients of agents
    :param reached: called after each step: ``Accept``, the server is in the
        API database; ``Tell``, the conductors are notified; ``Delete``, the
        API database has the deletion
    :param host: the host that is recorded in faults
    :param down_s: seconds without a report after which a host is down
    :param default_zone: the zone of servers that are created without one
    :param aliases: names of PCI devices, which flavors ask for
    """

    def __init__(
        self, authorizer: authorization.Authorizer, database: session.Database,
        targets: target.Targets, reader: listing.ServerListing,
        conductor: Callable[[], ConductorAPI],
        compute: Callable[[], ComputeAPIs],
        claims: claims_base.Claims,
        clock: Clock, quotas: quota_base.QuotaDriver,
        bounds: validation.ServerBounds,
        new_uuid: Callable[[], str] = uuidutils.generate_uuid,
        reached: Callable[[str], None] = lambda step: None,
        host: str = 'api', down_s: float = 60.0,
        default_zone: str | None = None,
        aliases: Aliases = types.MappingProxyType({}),
    ) -> None:
        super().__init__(authorizer, reader)
        self._default_zone = default_zone
        self._aliases = aliases
        self._database = database
        self._conductor = conductor
        self._clock = clock
        self._quotas = quotas
        self._bounds = bounds
        self._new_uuid = new_uuid
        self._reached = reached
        self._deletion = Deletion(
            database, targets, compute, claims, clock, down_s, reached)
        self._revision = Revision(database, targets, clock)
        self._retry = Retry(database, targets, clock, aliases)
        self._state_reset = StateReset(
            database, targets, Migrations(claims, host))
        self._accepting = batching.GroupCommit(
            self._accept_together, make_lock=clock.lock)

    @base.requires('os_compute_api:servers:create')
    def create(
        self, context: RequestContext, name: str, flavor: str,
        image_ref: str | None = None, availability_zone: str | None = None,
        hints: Mapping[str, Sequence[str]] | None = None,
        min_count: int = 1, max_count: int | None = None,
        tags: Sequence[str] = (),
        block_device_mappings: Sequence[Mapping[str, Any]] = (),
        host: str | None = None, hypervisor_hostname: str | None = None,
    ) -> list[str]:
        """Accept servers; return their uuids.

        If at least ``min_count`` servers fit, as many as fit are built, up to
        ``max_count``; otherwise none is built. Servers beyond the quota of
        the project are not accepted.

        :param flavor: its id or its name
        :param availability_zone: by default ``[DEFAULT]
            default_schedule_zone``. ``ZONE:HOST``, ``ZONE:HOST:NODE`` and
            ``ZONE::NODE`` force the servers to a host or a node, which no
            filter checks; that needs another rule
        :param hints: scheduler hints; ``group`` is the id of a server group
            of the project, which the servers join
        :param max_count: by default ``min_count``
        :param tags: the tags of each server
        :param block_device_mappings: the block devices of each server, as
            fields of :class:`cellsched.objects.BlockDeviceMapping`
        :param host: the only possible host, which the filters check; needs
            another rule
        :param hypervisor_hostname: the only possible node, likewise
        :raises cellsched.exception.InvalidField: names the field and the
            bound
        :raises cellsched.exception.HostMappingNotFound: the host does not
            exist
        :raises cellsched.exception.FlavorNotFound: the flavor does not exist,
            is disabled, or is private and the user is no administrator
        :raises cellsched.exception.HardwareRequestInvalid: the flavor asks
            for impossible CPUs, memory pages or PCI devices
        :raises cellsched.exception.InstanceGroupNotFound: the group does not
            exist in the project
        :raises cellsched.exception.OverQuota: the quota of the project does
            not allow ``min_count`` servers
        :raises cellsched.exception.RateLimitExceeded: the project requests
            too many servers in a minute
        """
        count = min_count if max_count is None else max_count
        zone, forced_host, forced_node = validation.parse_zone(
            availability_zone)
        if zone is None and forced_host is None and forced_node is None:
            zone = self._default_zone
        request = validation.ServerRequest(
            name, flavor, image_ref, zone, {} if hints is None else hints,
            min_count, count, tags, block_device_mappings, forced_host,
            forced_node, host, hypervisor_hostname)
        context = self._authorize_hosts(context, request)
        request.check(self._bounds)
        with tracing.span('accept', context) as span:
            accepted = self._accept_request(context, request, flavor)
            span.serve(accepted.uuids)
            self._tell(context, accepted.uuids)
        return accepted.uuids

    def _authorize_hosts(
        self, context: RequestContext, request: validation.ServerRequest
    ) -> RequestContext:
        """Check whether the user may choose the host of the request."""
        is_forced = request.forced_host or request.forced_node
        if is_forced:
            context = self._authorize(
                context, 'os_compute_api:servers:create:forced_host')
        if request.host is None and request.hypervisor_hostname is None:
            return context
        if is_forced:
            raise exception.InvalidField(
                where='server', field='availability_zone',
                problem='it names a host, and so does host or '
                        'hypervisor_hostname',
                expected='a host in one of them')
        return self._authorize(
            context, 'compute:servers:create:requested_destination')

    def _accept_request(
        self, context: RequestContext, request: validation.ServerRequest,
        flavor: str,
    ) -> '_Acceptance':
        """Write the servers of a request to the API database."""
        creation = _Creation(context, request, flavor)
        if request.max_count == 1 and request.group is None:
            # Other requests share the transaction, so nothing else waits in
            # it, such as for the lock of a group.
            if not self._quotas.keeps_limits:
                # A quota driver may ask another service; no transaction waits.
                with self._database.reader() as connection:
                    creation.admitted = self._admit(connection, creation)
            self._accepting.do(creation)
        else:
            self._accept_together([creation])
        if creation.error is not None:
            raise creation.error
        assert creation.accepted is not None
        return creation.accepted

    def _admit(
        self, connection: Any, creation: '_Creation'
    ) -> '_Acceptance':
        """Return the servers of a request that the quota allows."""
        context, request = creation.context, creation.request
        for host in filter(None, (request.forced_host, request.host)):
            host_mappings.get(connection, host)
        group = self._group(connection, context, request)
        sizes = flavors.get(connection, creation.flavor)
        if sizes.disabled or not (sizes.is_public or context.is_admin):
            raise exception.FlavorNotFound(flavor=creation.flavor)
        request.check_local_disks(sizes)
        spec = _spec(context, request, sizes, group)
        spec.add_hardware(self._aliases)
        count = self._quotas.accept(
            connection, context.project_id, context.user_id, sizes,
            request.min_count, request.max_count)
        # Servers whose transaction is repeated keep their identity.
        earlier = creation.accepted
        reservation_id = (earlier.reservation_id if earlier
                          else f'r-{self._new_uuid()}')
        uuids = earlier.uuids[:count] if earlier else []
        return _Acceptance(
            context, dataclasses.replace(request, max_count=count), sizes,
            spec, reservation_id, [*uuids, *(
                self._new_uuid() for _ in range(count - len(uuids)))],
            tracing.current())

    def _accept_together(self, creations: Sequence['_Creation']) -> None:
        lost: exception.ConnectionLost | None = None
        try:
            for attempt in range(1, _ATTEMPTS_MAX + 1):
                try:
                    return self._accept_all(creations, lost is not None)
                except exception.ConnectionLost as exc:
                    lost = exc
                    if attempt == _ATTEMPTS_MAX:
                        raise
                    LOG.info('Accepting servers again: %s', exc)
                except exception.ConstraintViolated:
                    # A lost transaction may have been committed only now.
                    if lost is None or attempt == _ATTEMPTS_MAX:
                        raise
        except exception.DATABASE_UNAVAILABLE as exc:
            # A separate attempt for each would wait as long each time, and
            # the transaction may have been committed.
            for each in creations:
                each.error = each.error or exception.copy_of(exc)

    def _accept_all(
        self, creations: Sequence['_Creation'], is_repeated: bool
    ) -> None:
        """Accept servers in one transaction.

        :param is_repeated: whether an earlier transaction may have been
            committed
        """
        with self._database.writer() as connection:
            written = instance_mappings.get_many(connection, [
                uuid for each in creations if each.accepted
                for uuid in each.accepted.uuids]) if is_repeated else {}
            accepted = []
            for each in creations:
                each.error = None
                if each.accepted and each.accepted.uuids[0] in written:
                    continue
                try:
                    each.accepted = each.admitted or self._admit(
                        connection, each)
                except exception.DATABASE_UNAVAILABLE:
                    raise
                except exception.CellschedException as exc:
                    # Only this request is refused.
                    each.error = exc
                else:
                    accepted.append(each.accepted)
            if accepted:
                _accept(connection, accepted, self._database.now(),
                        self._new_uuid)

    @base.requires('os_compute_api:servers:show', resource_param='uuid')
    def get(
        self, context: RequestContext, uuid: str
    ) -> server.Server:
        """Return a server.

        :raises cellsched.exception.InvalidField: the id is invalid
        :raises cellsched.exception.InstanceNotFound: it does not exist
        """
        return self._get(context, uuid)

    @base.requires('os_compute_api:servers:delete', resource_param='uuid')
    def delete(self, context: RequestContext, uuid: str) -> None:
        """Delete a server, in any state.

        The deletion is accepted when the database of the cell has it. If the
        host gets no message, its agent finds the deletion there. If the host
        is down, the deletion is completed in the cell. Returns at once if
        another call of this process deletes the server.

        :raises cellsched.exception.InvalidField: the id is invalid
        :raises cellsched.exception.InstanceNotFound: it does not exist
        :raises cellsched.exception.DatabaseUnreachable: its cell does not
            answer. A conductor continues the deletion later, and another call
            does so, too
        :raises cellsched.exception.ServiceBusy: another call to delete it
            waits for long
        """
        validation.check_text('server', 'id', uuid)
        self._reader.get(context, uuid, to_delete=True)
        self._deletion.run(context, uuid)

    @base.requires('os_compute_api:servers:update', resource_param='uuid')
    def update(
        self, context: RequestContext, uuid: str, name: str
    ) -> None:
        """Rename a server, in any state.

        :raises cellsched.exception.InvalidField: names the field and the
            bound
        :raises cellsched.exception.InstanceNotFound: it does not exist
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
        """Replace the tags of a server.

        :raises cellsched.exception.InvalidField: names the field and the
            bound
        :raises cellsched.exception.InstanceNotFound: it does not exist
        """
        json_schema.check('server', tags, validation.TAGS, 'tags')
        self._get(context, uuid)
        self._revision.set_tags(uuid, list(dict.fromkeys(tags)))

    @base.requires('cellsched:servers:retry', resource_param='uuid')
    def retry(self, context: RequestContext, uuid: str) -> None:
        """Build a server in cell0 again, with the same uuid.

        :raises cellsched.exception.HardwareRequestInvalid: an alias of a PCI
            device is not defined
        :raises cellsched.exception.InvalidField: the id is invalid
        :raises cellsched.exception.InstanceNotFound: it does not exist
        :raises cellsched.exception.InstanceInvalidState: it is not in cell0
        """
        self._get(context, uuid)
        self._retry.run(uuid)
        self._tell(context, [uuid])

    @base.requires(
        'os_compute_api:os-admin-actions:reset_state', resource_param='uuid')
    def reset_state(
        self, context: RequestContext, uuid: str, state: str
    ) -> None:
        """Set the state of a server, and end its task.

        WARNING: the guest is not changed and not checked. A server in a state
        that is not its own may be unusable. A move of the server is ended,
        and its destination removes what it has built.

        :param state: ``active`` or ``error``
        :raises cellsched.exception.InvalidField: names the field and the
            expectation
        :raises cellsched.exception.InstanceNotFound: it does not exist, or is
            being deleted
        :raises cellsched.exception.InstanceInvalidState: it is on no host, or
            is to be active while it is being built
        """
        validation.check_choice('server', 'state', state, STATES)
        self._get(context, uuid)
        self._state_reset.run(uuid, state)

    @base.requires('os_compute_api:servers:index')
    def find(self, context: RequestContext, name: str) -> str:
        """Return the uuid of the server that a user names.

        :param name: its uuid, the first characters of its uuid, or its name
        :raises cellsched.exception.InvalidField: it is not a name
        :raises cellsched.exception.InstanceNotFound: no server is meant
        :raises cellsched.exception.NoUniqueServer: several are meant
        :raises cellsched.exception.CellsDown: a cell does not answer, and may
            have a server of this name
        """
        validation.check_text('server', 'name', name)
        uuid = canonical(name)
        if uuid is not None:
            return uuid
        found, down = dict[str, None](), dict[str, None]()
        if _UUID_BEGIN.fullmatch(name):
            with self._database.reader() as connection:
                found.update(dict.fromkeys(instance_mappings.list_beginning(
                    connection, name.lower(),
                    None if context.is_admin else context.project_id or '',
                    _NAMED_MAX)))
        page = self.list(context, {'name': name})
        while page.servers and len(found) < _NAMED_MAX:
            found.update(dict.fromkeys(
                each.uuid for each in page.servers if each.name == name))
            down.update(dict.fromkeys(page.down_cells))
            page = self.list(context, {'name': name}, marker=page.marker)
        down.update(dict.fromkeys(page.down_cells))
        if len(found) > 1:
            raise exception.NoUniqueServer(name=name, uuids=', '.join(found))
        if down:
            raise exception.CellsDown(cells=', '.join(down))
        if not found:
            raise exception.InstanceNotFound(uuid=name)
        return next(iter(found))

    @base.requires('os_compute_api:servers:index')
    def list(
        self, context: RequestContext,
        filters: Mapping[str, Any] | None = None,
        sort_keys: Sequence[str] = (), sort_dirs: Sequence[str] = (),
        limit: int | None = None, marker: str | None = None,
    ) -> listing.Page:
        """Return a page of the servers of the project, or of all for an admin.

        The order is the same for servers without a cell, in a cell and in
        cell0. The page names cells that do not answer.

        :param filters: values, or lists of values, by the names of
            ``listing.query.FILTERS``; ``flavor`` is an id or a name
        :param sort_keys: of ``db.cell.instance_list.SORT_KEYS``; by default
            the newest servers come first
        :param sort_dirs: ``asc`` or ``desc``, for each key
        :param limit: the most servers; by default ``[api] max_limit``
        :param marker: the ``marker`` of the previous page. All pages then list
            each unchanged server once, even if the last server of a page
            changes. The uuid of any server is a marker too; for the last
            server of a page it does the same in the process that listed it
        :raises cellsched.exception.InvalidField: names the field and the
            bound
        :raises cellsched.exception.FlavorNotFound: the flavor does not exist
        :raises cellsched.exception.MarkerNotFound: the server does not exist
            in the project
        :raises cellsched.exception.CellsDown: a cell does not answer, and
            every cell is required
        """
        limit = self._bounds.limit_max if limit is None else limit
        validation.check_count(
            'server list', 'limit', limit, self._bounds.limit_max, least=0)
        is_admin = bool(context.is_admin)
        order = query.order(sort_keys, sort_dirs, is_admin)
        if marker is not None:
            validation.check_text(
                'server list', 'marker', marker, query.MARKER_LENGTH_MAX)
        filters = {} if filters is None else filters
        flavor = None
        if isinstance(filters, Mapping) and 'flavor' in filters:
            filters = dict(filters)
            flavor = filters.pop('flavor')
        flavor_id = None
        if flavor is not None:
            validation.check_text('server list', 'filters.flavor', flavor)
            with self._database.reader() as connection:
                flavor_id = flavors.get(connection, flavor).id
        query_filters = query.parse_filters(
            filters, None if is_admin else context.project_id or '', is_admin,
            flavor_id)
        return self._reader.list(context, query.ServerQuery(
            query_filters, order, limit,
            query.Marker.parse(marker, order) if marker is not None else None,
            is_admin))

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
            # The servers are accepted without the message, and the caller
            # needs their ids.
            LOG.warning('Request %s: could not cast build_and_schedule for '
                        'instances %s; conductors will find them: %s',
                        context.request_id, exception.name_some(uuids),
                        exception.describe(exc))
        self._reached('Tell')

    def _group(
        self, connection: Any, context: RequestContext,
        request: validation.ServerRequest,
    ) -> objects.InstanceGroup | None:
        """Return the group to join, without its members.

        The members are read again when the servers are scheduled.
        """
        if request.group is None:
            return None
        group = instance_groups.get(
            connection, request.group, context.project_id or '', lock=True)
        most, members = self._bounds.group_members_max, len(group.members)
        if members + request.max_count > most:
            raise exception.InvalidField(
                where='server', field='hints.group',
                problem=f'the group has {members} of at most {most} members, '
                        f'and {request.max_count} more are requested',
                expected='a server group with fewer members')
        group.members = []
        return group


@dataclasses.dataclass(eq=False)
class _Creation:
    """A request for servers, and its acceptance or its error.

    :ivar admitted: the acceptance, if the quota was asked before
    :ivar accepted: the last acceptance that was written, perhaps in a
        transaction that was rolled back
    """

    context: RequestContext
    request: validation.ServerRequest
    flavor: str
    admitted: '_Acceptance | None' = None
    accepted: '_Acceptance | None' = None
    error: Exception | None = None


@dataclasses.dataclass(eq=False)
class _Acceptance:
    """The servers of a request that are written.

    :param request: a request with a ``max_count`` that the quota allows
    :param spec: the request specification, with the group to join, without
        its members
    :param trace: see :class:`cellsched.db.api.build_requests.StoredRequest`
    """

    context: RequestContext
    request: validation.ServerRequest
    flavor: objects.Flavor
    spec: objects.RequestSpec
    reservation_id: str
    uuids: list[str]
    trace: str = ''

    @property
    def owner(self) -> tuple[str, str | None]:
        return self.context.project_id or '', self.context.user_id

    def requests(
        self, now: datetime.datetime, new_uuid: Callable[[], str]
    ) -> list[build_requests.StoredRequest]:
        """Return the build requests.

        The fields that all servers share are serialized and validated once.
        """
        request = self.request
        instance = _instance(
            self.context, request, self.flavor, self.uuids[0],
            self.reservation_id, now)
        return [
            build_requests.StoredRequest(
                uuid, self.owner[0],
                _with(instance, uuid=uuid, launch_index=index,
                      display_name=_name(request, index)),
                _tags(request, uuid), _devices(request, uuid, new_uuid),
                trace=self.trace)
            for index, uuid in enumerate(self.uuids)]

    def specs(self) -> list[dict[str, Any]]:
        """Return the request specifications."""
        self.spec.num_instances = len(self.uuids)
        self.spec.instance_uuid = self.uuids[0]
        spec = self.spec.obj_to_primitive()
        return [_with(spec, instance_uuid=uuid) for uuid in self.uuids]


def _accept(
    connection: Any, accepted: Sequence[_Acceptance],
    now: datetime.datetime, new_uuid: Callable[[], str],
) -> None:
    """Write servers to the API database.

    :param accepted: requests with the same ``min_count``
    """
    build_requests.create_all(
        connection, [row for each in accepted
                     for row in each.requests(now, new_uuid)],
        now, accepted[0].request.min_count)
    build_requests.create_specs(
        connection, [spec for each in accepted for spec in each.specs()], now)
    # Without microseconds, as in the objects: listings compare the two.
    created_at = now.replace(microsecond=0)
    alike: dict[Any, list[_Acceptance]] = {}
    for each in accepted:
        alike.setdefault((*each.owner, each.flavor.id), []).append(each)
    for (project_id, user_id, _), equal in alike.items():
        instance_mappings.create(
            connection, [uuid for each in equal for uuid in each.uuids],
            project_id, user_id, created_at, equal[0].flavor)
    for each in accepted:
        group = each.spec.instance_group
        if group is not None:
            instance_groups.add_members(connection, group.id, each.uuids, now)


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
) -> objects.RequestSpec:
    """Return the request specification of servers that have no uuids yet."""
    boot = request.boot_device
    image_ref = request.image_ref or (boot.get('image_id') if boot else None)
    return objects.RequestSpec(
        project_id=context.project_id, user_id=context.user_id,
        availability_zone=request.availability_zone, flavor=flavor,
        image=objects.ImageMeta(id=image_ref) if image_ref else None,
        ignore_hosts=None, retry=None, limits=None, instance_group=group,
        force_hosts=request.forced_host and [request.forced_host],
        force_nodes=request.forced_node and [request.forced_node],
        requested_destination=_destination(request),
        is_bfv=boot is not None and boot.is_root_volume,
        scheduler_hints={name: list(values)
                         for name, values in request.hints.items()})


def _destination(
    request: validation.ServerRequest
) -> objects.Destination | None:
    fields = {name: value for name, value in (
        ('host', request.host), ('node', request.hypervisor_hostname))
        if value}
    return objects.Destination(**fields) if fields else None


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
    if not request.block_device_mappings:
        return None
    return objects.BlockDeviceMappingList(objects=[
        objects.BlockDeviceMapping(
            uuid=new_uuid(), instance_uuid=uuid, **device)
        for device in request.block_device_mappings]).obj_to_primitive()


#: Attempts to change a server that moves between databases meanwhile.
_TRIES_MAX = 5


@dataclasses.dataclass(eq=False)
class Revision:
    """Renames and tags servers, in the build request or in the cell.

    A build request is changed as long as it exists; a conductor that deletes
    the request sees the change, and writes it to the cell first. After that
    the row in the cell is changed. A row in cell0 is changed while no request
    can be made of it.
    """

    database: session.Database
    targets: target.Targets
    clock: Clock

    def rename(self, uuid: str, name: str) -> None:
        """Rename a server.

        :raises cellsched.exception.InstanceNotFound: it does not exist
        """
        def in_request(request: objects.BuildRequest) -> None:
            request.instance.display_name = name

        def in_cell(connection: Any, now: datetime.datetime) -> bool:
            return instances.update(
                connection, uuid, {'display_name': name}, now)

        self._change(uuid, in_request, in_cell)

    def set_tags(self, uuid: str, tags: Iterable[str]) -> None:
        """Replace the tags of a server.

        :raises cellsched.exception.InstanceNotFound: it does not exist
        """
        def in_request(request: objects.BuildRequest) -> None:
            request.tags = objects.TagList.made(uuid, tags)

        def in_cell(connection: Any, now: datetime.datetime) -> bool:
            present = bool(instances.lock(connection, [uuid]))
            if present:
                instance_children.replace_tags(connection, uuid, tags)
            return present

        self._change(uuid, in_request, in_cell)

    def _change(
        self, uuid: str, in_request: Callable[[objects.BuildRequest], None],
        in_cell: Callable[[Any, datetime.datetime], bool],
    ) -> None:
        for _ in range(_TRIES_MAX):
            with self.database.writer() as connection:
                if build_requests.revise(connection, uuid, in_request):
                    return
                mapping = instance_mappings.get_many(
                    connection, [uuid]).get(uuid)
            cell = mapping.cell_mapping if mapping else None
            if cell is None:
                # A retry may be creating the request again.
                continue
            database = self.targets.database(cell)
            if not cell.is_cell0():
                with database.writer() as connection:
                    changed = in_cell(connection, self.clock.now())
            else:
                with self.database.writer() as connection:
                    changed = self._change_record(
                        connection, uuid, cell, database, in_request, in_cell)
            if changed:
                return
        raise exception.InstanceNotFound(uuid=uuid)

    def _change_record(
        self, connection: Any, uuid: str, cell0: objects.CellMapping,
        database: session.Database,
        in_request: Callable[[objects.BuildRequest], None],
        in_cell: Callable[[Any, datetime.datetime], bool],
    ) -> bool:
        if not instance_mappings.confirm(connection, [uuid], cell0.id):
            return False
        # A retry may have created the request before the mapping was locked.
        if build_requests.revise(connection, uuid, in_request):
            return True
        with database.writer() as in_cell0:
            return in_cell(in_cell0, self.clock.now())


@dataclasses.dataclass(eq=False)
class Retry:
    """Creates build requests again, from the rows in cell0.

    The row stays in cell0 until a conductor takes the request. The request is
    marked, so that a conductor that finds it removes the row.

    :param aliases: names of PCI devices, which flavors ask for
    """

    database: session.Database
    targets: target.Targets
    clock: Clock
    aliases: Aliases

    def run(self, uuid: str) -> None:
        """Build a server again, with the same uuid.

        :raises cellsched.exception.HardwareRequestInvalid: an alias of a PCI
            device is not defined
        :raises cellsched.exception.InstanceInvalidState: it is not in cell0
        :raises cellsched.exception.InstanceNotFound: it was deleted
        """
        with self.database.reader() as connection:
            pending = build_requests.get(connection, uuid) is not None
            mapping = instance_mappings.get_many(connection, [uuid]).get(uuid)
        cell = mapping.cell_mapping if mapping else None
        if mapping is None or mapping.queued_for_delete and not pending:
            raise exception.InstanceNotFound(uuid=uuid)
        if pending or cell is None:
            # It has a build request, or is getting one.
            raise _refused(uuid, 'BUILD')
        database = self.targets.database(cell)
        if not cell.is_cell0():
            with database.reader() as connection:
                instance = instances.get(connection, uuid)
            if instance is None:
                raise exception.InstanceNotFound(uuid=uuid)
            status = server.status_of(instance.vm_state)
            raise _refused(uuid, f'{status}%(cell)s and not in cell0',
                           {'cell': f' in {server.name_of(cell)}'})
        with self.database.writer() as connection:
            self._accept(connection, uuid, cell, database)

    def _accept(
        self, connection: Any, uuid: str, cell0: objects.CellMapping,
        database: session.Database,
    ) -> None:
        now = self.clock.now()
        if not instance_mappings.reopen(connection, uuid, cell0.id, now):
            # A concurrent request has retried or deleted it.
            if build_requests.get(connection, uuid) is not None:
                raise _refused(uuid, 'BUILD')
            raise exception.InstanceNotFound(uuid=uuid)
        stored = build_requests.get_spec(connection, uuid)
        if stored is None:
            raise _refused(uuid, 'without its request specification')
        # The mapping is locked, so the row cannot change any more.
        with database.reader() as in_cell0:
            instance = instances.get(in_cell0, uuid)
            names = instance_children.get_tags(in_cell0, [uuid]).get(uuid, [])
            devices = instance_children.get_block_devices(
                in_cell0, [uuid]).get(uuid)
        if instance is None:
            raise exception.InstanceNotFound(uuid=uuid)
        instance.vm_state, instance.task_state = 'building', 'scheduling'
        try:
            spec = objects.RequestSpec.obj_from_primitive(stored)
            instance.flavor = spec.flavor
        except (*objects.READ_ERRORS, NotImplementedError):
            raise _refused(
                uuid, 'without a readable request specification') from None
        if spec.add_hardware(self.aliases):
            # An earlier release did not form the documents.
            build_requests.save_spec(
                connection, uuid, spec.obj_to_primitive(), now)
        build_requests.create(connection, [objects.BuildRequest(
            instance_uuid=uuid, project_id=instance.project_id or '',
            instance=instance, buried=True,
            tags=objects.TagList.made(uuid, names) if names else None,
            block_device_mappings=objects.BlockDeviceMappingList(
                objects=devices) if devices else None)], now)


#: States that an administrator can set.
STATES = ('active', 'error')


@dataclasses.dataclass(eq=False)
class StateReset:
    """Sets the states of servers in their cells."""

    database: session.Database
    targets: target.Targets
    migrations: Migrations

    def run(self, uuid: str, state: str) -> None:
        """Set the state of a server; its unfinished move ends first.

        :param state: one of :data:`STATES`
        """
        with self.database.reader() as connection:
            mapping = instance_mappings.get_many(connection, [uuid]).get(uuid)
        if mapping is None or mapping.queued_for_delete:
            raise exception.InstanceNotFound(uuid=uuid)
        cell = mapping.cell_mapping
        if cell is None or cell.is_cell0():
            raise _not_settable(uuid, 'in no cell')
        database = self.targets.database(cell)
        with database.reader() as connection:
            _check_settable(instances.get(connection, uuid), uuid, state)
            move = server_moves.live(connection, uuid)
        if move is not None and move.status == server_moves.MOVED:
            self.migrations.finish(database, move)
        elif move is not None:
            self.migrations.abort(
                database, move, exception.MoveAbandoned(
                    kind=move.migration_type,
                    reason='an administrator set the state of the server'),
                [move.status], 'end_task')
        with database.writer() as connection:
            now = database.now()
            server_moves.hold(connection, uuid)
            _check_settable(instances.get(connection, uuid), uuid, state)
            if server_moves.live(connection, uuid) is not None:
                raise _not_settable(uuid, 'moved')
            instances.transit(connection, uuid, f'reset_{state}', now)
            instance_history.close(connection, uuid, now)
        LOG.warning('An administrator set the server to %s', state,
                    instance_uuid=uuid)


def _check_settable(
    row: objects.Instance | None, uuid: str, state: str
) -> None:
    if row is None or row.task_state == 'deleting':
        raise exception.InstanceNotFound(uuid=uuid)
    if row.host is None:
        raise _not_settable(uuid, f'{row.vm_state}, on no host')
    if row.vm_state == 'building' and state == 'active':
        # Its agent would remove the guest of a build that ended without it.
        raise _not_settable(uuid, 'building')


def _not_settable(uuid: str, state: str) -> exception.InstanceInvalidState:
    return exception.InstanceInvalidState(
        uuid=uuid, action='have its state set', state=state)


def _refused(
    uuid: str, state: str, internals: Mapping[str, str] | None = None
) -> exception.InstanceInvalidState:
    return exception.InstanceInvalidState(
        uuid=uuid, action='be retried', state=state, internals=internals)
