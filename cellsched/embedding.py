# SPDX-License-Identifier: Apache-2.0
"""A conductor above the cells, for services of other projects.

:class:`EmbeddedConductor` builds servers in the process of another service,
and continues builds that were interrupted. It reads an oslo.config
configuration: that of the service, after :func:`register_opts`, or one that
:func:`configuration` makes of arguments. :class:`Components` are the objects
that it uses; :class:`Mappings` reads the mappings of the API database. Two
conductors in one process share nothing.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import datetime
from typing import Any
from typing import Self

from oslo_config import cfg
from oslo_utils import uuidutils

from cellsched.cells.maintenance import CellMaintenance
from cellsched.claims import validation as claims_validation
from cellsched.conductor.tasks import build_and_schedule
from cellsched.conf import claims
from cellsched.conf import conductor as conductor_conf
from cellsched.conf import database
from cellsched.conf import default
from cellsched.conf import loader
from cellsched.conf import notifications
from cellsched.conf import quota
from cellsched.context import RequestContext
from cellsched.db import api as api_schema
from cellsched.db.api import build_requests
from cellsched.db.api import cell_mappings
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_mappings
from cellsched.db import cell as cell_schema
from cellsched.db import session
from cellsched import exception
from cellsched.listing import server
from cellsched.metrics import Metrics
from cellsched import objects
from cellsched.quota.base import QuotaDriver
from cellsched.rpc import scheduler as scheduler_rpc
from cellsched import tracing
from cellsched.wiring.components import Components
from cellsched.wiring import conductor

__all__ = ['Components', 'EmbeddedConductor', 'Mappings', 'configuration',
           'create_schemas', 'register_opts']

#: Groups of options that are read, besides ``[DEFAULT]``.
_GROUPS = (
    (default.CELLS_GROUP, default.CELLS_OPTS), (claims.GROUP, claims.OPTS),
    (conductor_conf.GROUP, conductor_conf.OPTS),
    (database.API_GROUP, database.OPTS), (database.GROUP, database.OPTS),
    (default.TRACING_GROUP, default.TRACING_OPTS),
    (notifications.GROUP, notifications.OPTS), (quota.GROUP, quota.OPTS),
    (default.UPGRADE_LEVELS_GROUP, default.UPGRADE_LEVELS_OPTS))

#: Options of ``[DEFAULT]`` that are read, besides those of oslo.messaging.
_DEFAULT = ('host', 'service_down_time', 'cell_worker_thread_pool_size',
            'long_rpc_timeout', 'default_schedule_zone')

#: Amounts of a flavor, of which the first three are required.
_AMOUNTS = ('vcpus', 'memory_mb', 'root_gb', 'ephemeral_gb', 'swap')
_REQUIRED = _AMOUNTS[:3]
_AMOUNT_MAX = 2 ** 31 - 1

#: The length of a uuid, and the maximum length of a name.
_UUID_LENGTH, _NAME_MAX = 36, 255

#: Fields that schedulers expect in a request.
_UNSET = ('availability_zone', 'image', 'ignore_hosts', 'force_hosts',
          'force_nodes', 'retry', 'limits', 'instance_group')


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options that an embedded conductor reads.

    An option that the service has registered under the same name is kept, and
    is read here. The call is idempotent.
    """
    for opt in default.OPTS:
        if opt.dest in _DEFAULT and opt.dest not in conf:
            conf.register_opt(opt)
    for group, options in _GROUPS:
        known = set(conf[group.name]) if group.name in conf else set()
        conf.register_opts([opt for opt in options if opt.dest not in known],
                           group=group.name)
    loader.register_messaging(conf)


def configuration(
    api_database_url: str, transport_url: str, claims_url: str | None = None,
    host: str | None = None, **groups: Mapping[str, Any],
) -> cfg.ConfigOpts:
    """Return a configuration made of arguments; no file is read.

    :param transport_url: the transport of schedulers
    :param claims_url: the database of claims, by default the API database
    :param host: the host name in faults and notifications
    :param groups: other options by group, such as
        ``conductor={'build_lease': 60}``
    :raises cellsched.exception.ConfigurationInvalid: an option is unknown, or
        its value is invalid; names the option
    """
    conf = cfg.ConfigOpts()
    register_opts(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    given = {'DEFAULT': {'transport_url': transport_url},
             'api_database': {'connection': api_database_url}}
    if claims_url is not None:
        given['claims'] = {'connection': claims_url}
    if host is not None:
        given['DEFAULT']['host'] = host
    for source in (given, groups):
        for group, options in source.items():
            for name, value in options.items():
                try:
                    conf.set_override(
                        name, value, None if group == 'DEFAULT' else group)
                except (cfg.Error, TypeError, ValueError) as exc:
                    raise exception.ConfigurationInvalid(
                        field=f'[{group}] {name}', problem=str(exc)) from None
    return conf


def create_schemas(
    conf: cfg.ConfigOpts, cell_databases: Iterable[str] = ()
) -> None:
    """Create the schemas of all databases, or update them.

    The databases are the API database, that of the claim store, and those of
    the cells. Existing data is kept.

    :param cell_databases: URLs of the databases of cells, including cell0
    :raises cellsched.exception.ConfigurationInvalid: an option is missing or
        invalid, or a URL cannot be parsed
    :raises cellsched.exception.DatabaseUnreachable: a database does not answer
    """
    parts = Components(conf)
    try:
        api_schema.SCHEMA.sync(parts.database)
        parts.claims.sync()
        for url in cell_databases:
            cell_schema.SCHEMA.sync(
                parts.databases.get(url, cell_schema.SCHEMA.name))
    finally:
        parts.close()


class Mappings:
    """Reads the mappings of the API database, and adds cells.

    :param database: the API database
    :param maintenance: adds cells
    """

    def __init__(
        self, database: session.Database,
        maintenance: CellMaintenance,
    ) -> None:
        self._database = database
        self._maintenance = maintenance

    def cells(self) -> list[objects.CellMapping]:
        """Return every cell, including cell0 and disabled cells."""
        with self._database.reader() as connection:
            return cell_mappings.list_all(connection)

    def hosts(self, names: Iterable[str]) -> list[objects.HostMapping]:
        """Return the mappings of hosts; unmapped hosts are omitted."""
        with self._database.reader() as connection:
            found = host_mappings.get_many(connection, names)
        return [objects.HostMapping(host=host, cell_mapping=cell)
                for host, cell in found.items()]

    def instances(
        self, uuids: Iterable[str]
    ) -> dict[str, objects.InstanceMapping]:
        """Return the mappings of servers by uuid; unknown uuids are omitted.

        A mapping without a cell is of a server that is being scheduled. A
        server in cell0 could not be built.
        """
        with self._database.reader() as connection:
            return instance_mappings.get_many(connection, uuids)

    def create_cell(
        self, name: str, transport_url: str, database_connection: str,
        uuid: str | None = None, check: bool = True,
    ) -> objects.CellMapping:
        """Map a cell. Its database may get its schema later.

        :param check: whether its database and its broker must answer
        :raises cellsched.exception.CellMappingExists: another cell has the
            name, one of the URLs, the database or the uuid
        :raises cellsched.exception.DatabaseUnreachable: the database does not
            answer
        :raises cellsched.exception.BrokerUnreachable: the broker does not
            answer
        :raises cellsched.exception.BrokerRefused: the broker refuses the user,
            the password or the virtual host
        :raises cellsched.exception.WrongDatabase: the database has another
            schema
        :raises cellsched.exception.InvalidField: a URL has braces that are
            not fields of a template
        :raises cellsched.exception.ConfigurationInvalid: a URL cannot be
            opened
        """
        return self._create(objects.CellMapping(
            uuid=uuid or uuidutils.generate_uuid(), name=name,
            transport_url=transport_url,
            database_connection=database_connection, disabled=False), check)

    def create_cell0(self, database_connection: str) -> objects.CellMapping:
        """Map cell0, the cell for records of servers that were not built.

        :raises cellsched.exception.CellMappingExists: cell0 is mapped, or the
            database is that of a cell
        :raises cellsched.exception.WrongDatabase: as :meth:`create_cell`
        :raises cellsched.exception.InvalidField: as :meth:`create_cell`
        :raises cellsched.exception.ConfigurationInvalid: as
            :meth:`create_cell`
        """
        return self._create(objects.CellMapping(
            uuid=objects.CELL0_UUID, name='cell0', transport_url='none:///',
            database_connection=database_connection, disabled=False))

    def _create(
        self, mapping: objects.CellMapping, check: bool = False
    ) -> objects.CellMapping:
        self._maintenance.create(mapping, check)
        return mapping


class EmbeddedConductor:
    """A conductor above the cells, in the process of another service.

    An accepted server is built in one cell, recorded in cell0 with the reason
    of the failure, or deleted. This holds after any crash, as long as one
    process calls the functions of :attr:`periodic`.

    Make this object after the process has forked. Its methods are
    thread-safe.

    :param conf: a configuration with the options of :func:`register_opts`
    :param parts: replace the components made here; the caller closes them
    :param metrics: records metrics, for example
        :class:`cellsched.metrics.PrometheusMetrics`
    :raises cellsched.exception.ConfigurationInvalid: an option is missing or
        invalid
    :raises cellsched.exception.BrokerRefused: the broker of schedulers
        refuses the user or the password. An unreachable broker is logged
    :raises cellsched.exception.SchemaOutOfDate: a database lacks its tables
    :raises cellsched.exception.DatabaseUnreachable: a database does not answer
    """

    #: The build task.
    task: build_and_schedule.BuildAndSchedule
    #: The client of schedulers.
    scheduler: scheduler_rpc.SchedulerAPI
    #: Mappings of cells, hosts and servers.
    mappings: Mappings

    def __init__(
        self, conf: cfg.ConfigOpts,
        parts: Components | None = None, metrics: Metrics | None = None,
    ) -> None:
        self.parts = Components(conf) if parts is None else parts
        if metrics is not None:
            self.parts.metrics = metrics
        self._own_parts = parts is None
        self._is_closed = False
        try:
            self.parts.transports.check()
            self.parts.trace('embedding')
            builds = conductor.builds(self.parts)
            self.scheduler = builds.scheduler
            self.task = builds.task
            self._periodic = builds.periodic
            self.mappings = Mappings(
                self.parts.database, CellMaintenance(
                    self.parts.database, self.parts.cells,
                    self.parts.targets, self.parts.clock))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def periodic(self) -> Sequence[tuple[Callable[[], None], float]]:
        """Periodic functions, and the seconds between their calls.

        Call each function in a thread of its own. The functions renew leases,
        continue interrupted builds, repeat casts to compute hosts, and release
        leaked claims. They raise errors while a database or a broker is
        unavailable; call them again.
        """
        return self._periodic

    def accept(
        self, context: RequestContext, names: Mapping[str, str],
        spec: objects.RequestSpec, min_count: int = 1,
    ) -> list[str]:
        """Accept servers; return the uuids of the new ones.

        An accepted server is built even if the process ends before
        :meth:`run`. The call is idempotent: a caller that stores the uuids
        first can repeat the call after a crash.

        :param context: has a project
        :param names: names of the servers, by uuid, 1 to 255 characters each
        :param spec: the request for each server; the project, the user and
            the numbers are set here, and so is ``[DEFAULT]
            default_schedule_zone`` if it has no availability zone
        :param min_count: the minimum number of servers to build, at most all
            of them; with fewer, none is built
        :raises cellsched.exception.InvalidField: an argument is invalid;
            names the field and the bound
        :raises cellsched.exception.ServerExists: a server has another project
            or, before it is built, another flavor, image or zone
        :raises cellsched.exception.OverQuota: the quota of the project lacks
            capacity for all servers
        :raises cellsched.exception.RateLimitExceeded: the project requests
            more than ``[quota] servers_per_minute``
        :raises cellsched.exception.ConductorClosed: :meth:`close` was called
        """
        self._check_open()
        _check(context, names, spec, min_count)
        zone = self.parts.conf.default_schedule_zone
        if zone and not any(map(spec.get, (
                'availability_zone', 'force_hosts', 'force_nodes'))):
            spec = spec.obj_clone()
            spec.availability_zone = zone
        with tracing.span('accept', context, [*names]):
            return _accept(
                self.parts.database, self.parts.quotas, context, names, spec,
                min_count, self.parts.conf.quota.recheck_quota)

    def run(self, context: RequestContext, uuids: Sequence[str]) -> None:
        """Build accepted servers; return after the casts to compute hosts.

        Deleted servers, and servers that another conductor builds, are
        skipped. :attr:`periodic` retries a build after a transient error.

        :raises cellsched.exception.ConductorClosed: :meth:`close` was called
        """
        self._check_open()
        self.task.run(context, uuids)

    def get(self, context: RequestContext, uuid: str) -> server.Server:
        """Return a server of any cell.

        :raises cellsched.exception.InstanceNotFound: no server has the uuid
        :raises cellsched.exception.ConductorClosed: :meth:`close` was called
        """
        self._check_open()
        return self.parts.listing.get(context, uuid)[0]

    def close(self) -> None:
        """Close the components made here; waits for running builds.

        No other method and no function of :attr:`periodic` may be running.
        A second call does nothing.
        """
        if self._is_closed:
            return
        self._is_closed = True
        if self._own_parts:
            self.parts.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise exception.ConductorClosed()


def _check(context: Any, names: Any, spec: Any, min_count: Any) -> None:
    """Check the arguments of :meth:`EmbeddedConductor.accept`.

    :raises cellsched.exception.InvalidField: names the field and the bound
    """
    if not isinstance(context, RequestContext):
        raise _invalid('context', 'a RequestContext')
    for field in ('project_id', 'user_id'):
        value = getattr(context, field)
        if value is not None or field == 'project_id':
            claims_validation.check_id('accept', f'context.{field}', value)
    if not isinstance(names, Mapping) or not names:
        raise _invalid('names', 'a mapping of at least one uuid to the name '
                                'of the server')
    for uuid, name in names.items():
        if not (uuidutils.is_uuid_like(uuid) and len(uuid) == _UUID_LENGTH):
            raise _invalid('names', 'uuids as keys',
                           f'{uuid!r:.60} is not a uuid')
        if not isinstance(name, str) or not (
                0 < len(name) <= _NAME_MAX and name.isprintable()):
            raise _invalid(
                'names', f'names of 1 to {_NAME_MAX} printable characters',
                f'{name!r:.60} is not valid')
    if type(min_count) is not int or not 1 <= min_count <= len(names):
        raise _invalid(
            'min_count', f'a whole number from 1 to {len(names)}, the number '
            'of servers', f'{min_count!r:.60} is not valid')
    if not isinstance(spec, objects.RequestSpec):
        raise _invalid('spec', 'a RequestSpec')
    flavor = spec.get('flavor')
    if flavor is None:
        raise _invalid('spec.flavor', 'a Flavor')
    for field in _AMOUNTS:
        amount = flavor.get(field)
        if field in _REQUIRED and amount is None or not (
                0 <= (amount or 0) <= _AMOUNT_MAX):
            raise _invalid(
                f'spec.flavor.{field}',
                f'an amount from 0 to {_AMOUNT_MAX}', f'{amount} is not valid')


def _invalid(
    field: str, expected: str, problem: str | None = None
) -> exception.InvalidField:
    return exception.InvalidField(
        where='accept', field=field, problem=problem, expected=expected)


def _check_existing(
    known: Mapping[str, objects.InstanceMapping],
    requests: Iterable[build_requests.LeasedRequest], project_id: str,
    spec: objects.RequestSpec,
) -> None:
    """Check that existing servers are those of a repeated call.

    :param requests: of the servers that are not built yet
    :raises cellsched.exception.ServerExists: one is another server
    """
    for uuid, mapping in known.items():
        if mapping.project_id != project_id:
            raise exception.ServerExists(uuid=uuid, field='project')
    image = spec.get('image')
    for each in requests:
        if each.broken is not None:
            continue
        instance = each.request.instance
        for field, same in (
                ('flavor', all(
                    (instance.flavor.get(name) or 0)
                    == (spec.flavor.get(name) or 0) for name in _AMOUNTS)),
                ('image', instance.get('image_ref') == (
                    image.get('id') if image else None)),
                ('availability_zone', instance.get('availability_zone')
                 == spec.get('availability_zone'))):
            if not same:
                raise exception.ServerExists(
                    uuid=instance.uuid, field=field)


def _accept(
    database: session.Database, quotas: QuotaDriver,
    context: RequestContext, names: Mapping[str, str],
    spec: objects.RequestSpec, min_count: int = 1, recheck: bool = True,
) -> list[str]:
    """Write servers to the API database; return the uuids of the new ones.

    The limits are recorded, so that they hold for any conductor that builds
    the servers.

    :param names: names of the servers, by uuid
    :param recheck: whether the quota is checked before a server is built
    :raises cellsched.exception.ServerExists: a uuid is that of another server
    :raises cellsched.exception.OverQuota: the quota lacks capacity for all
    :raises cellsched.exception.RateLimitExceeded: too many in a minute
    """
    project_id = context.project_id or ''
    with database.writer() as connection:
        known = instance_mappings.get_many(connection, names)
        if known:
            _check_existing(known, build_requests.read(connection, [*known]),
                            project_id, spec)
        uuids = [uuid for uuid in names if uuid not in known]
        if not uuids:
            return []
        quotas.accept(connection, context.project_id, context.user_id,
                      spec.flavor, len(uuids), len(uuids))
        limits = {
            name: quotas.limits(connection, project_id, user_id)
            for name, user_id in (('project', None),
                                  ('user', context.user_id))
            if recheck and (user_id or name == 'project')}
        now = database.now()
        build_requests.create(connection, [
            objects.BuildRequest(
                instance_uuid=uuid, project_id=project_id,
                instance=_instance(
                    context, uuid, names[uuid], index, spec, now),
                block_device_mappings=None, tags=None, buried=False)
            for index, uuid in enumerate(uuids)], now, min_count, limits,
            tracing.current())
        build_requests.create_specs(
            connection, _specs(context, spec, uuids), now)
        instance_mappings.create(
            connection, uuids, project_id, context.user_id, now, spec.flavor)
    return uuids


def _instance(
    context: RequestContext, uuid: str, name: str, index: int,
    spec: objects.RequestSpec, now: datetime.datetime,
) -> objects.Instance:
    flavor, image = spec.flavor, spec.get('image')
    return objects.Instance(
        uuid=uuid, project_id=context.project_id, user_id=context.user_id,
        image_ref=image.get('id') if image else None, display_name=name,
        launch_index=index, vm_state='building', task_state='scheduling',
        power_state=0, vcpus=flavor.vcpus, memory_mb=flavor.memory_mb,
        root_gb=flavor.root_gb, ephemeral_gb=flavor.get('ephemeral_gb', 0),
        instance_type_id=flavor.get('id'), created_at=now, flavor=flavor,
        availability_zone=spec.get('availability_zone'))


def _specs(
    context: RequestContext, spec: objects.RequestSpec,
    uuids: list[str],
) -> list[dict[str, Any]]:
    """Return the primitive of the request of each server."""
    primitive = spec.obj_to_primitive()
    return [{**primitive, 'nova_object.data': {
        **dict.fromkeys(_UNSET), 'is_bfv': False, 'scheduler_hints': {},
        **primitive['nova_object.data'], 'project_id': context.project_id,
        'user_id': context.user_id, 'num_instances': len(uuids),
        'instance_uuid': uuid}} for uuid in uuids]
