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
from oslo_serialization import jsonutils
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
from cellsched.conf import pci
from cellsched.conf import quota
from cellsched.conf import scheduler as scheduler_conf
from cellsched.context import RequestContext
from cellsched.db import api as api_schema
from cellsched.db.api import build_requests
from cellsched.db.api import cell_mappings
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_groups
from cellsched.db.api import instance_mappings
from cellsched.db import cell as cell_schema
from cellsched.db.cell.instance_list import InstanceFilter
from cellsched.db import session
from cellsched import exception
from cellsched.hardware import aliases
from cellsched.listing import query
from cellsched.listing import server
from cellsched.listing import servers as listing
from cellsched import objects
from cellsched.objects import keys
from cellsched.observability.metrics import Metrics
from cellsched.observability import tracing
from cellsched.rpc import scheduler as scheduler_rpc
from cellsched import urls
from cellsched.validation import json_schema
from cellsched.validation.uuids import canonical
from cellsched.wiring.components import Components
from cellsched.wiring import conductor

__all__ = ['Components', 'EmbeddedConductor', 'Mappings', 'configuration',
           'create_schemas', 'register_opts']

#: Options of ``[scheduler]`` that are read: the bounds of a request.
_BOUNDS = ('max_instances_per_request', 'max_names_per_request',
           'max_values_per_list')

#: Groups of options that are read, besides ``[DEFAULT]``.
_GROUPS = (
    (default.CELLS_GROUP, default.CELLS_OPTS), (claims.GROUP, claims.OPTS),
    (conductor_conf.GROUP, conductor_conf.OPTS),
    (database.API_GROUP, database.OPTS), (database.GROUP, database.OPTS),
    (default.TRACING_GROUP, default.TRACING_OPTS),
    (notifications.GROUP, notifications.OPTS), (pci.GROUP, pci.OPTS),
    (quota.GROUP, quota.OPTS), (scheduler_conf.GROUP, [
        opt for opt in scheduler_conf.OPTS if opt.dest in _BOUNDS]),
    (default.UPGRADE_LEVELS_GROUP, default.UPGRADE_LEVELS_OPTS))

#: Options of ``[DEFAULT]`` that are read, besides those of oslo.messaging.
_DEFAULT = ('host', 'service_down_time', 'cell_worker_thread_pool_size',
            'long_rpc_timeout', 'default_schedule_zone')

#: The options that are read, by group and name.
_OPTIONS: dict[tuple[str, str], cfg.Opt] = {
    ('DEFAULT', 'transport_url'): cfg.StrOpt('transport_url', secret=True),
    **{('DEFAULT', opt.dest): opt for opt in default.OPTS
       if opt.dest in _DEFAULT},
    **{(group.name, opt.dest): opt
       for group, options in _GROUPS for opt in options}}

#: Amounts of a flavor, of which the first three are required.
_AMOUNTS = ('vcpus', 'memory_mb', 'root_gb', 'ephemeral_gb', 'swap')
_REQUIRED = _AMOUNTS[:3]
_AMOUNT_MAX = 2 ** 31 - 1

#: The name of a server, a host, a cell, a zone or an image, and several.
_NAME = {'type': 'string', 'minLength': 1, 'maxLength': 255,
         'format': 'printable'}
_NAMES = {'type': 'array', 'items': _NAME}

#: Lists of hosts and nodes in a request.
_HOST_LISTS = ('force_hosts', 'force_nodes', 'ignore_hosts')

#: Seconds to wait for the names of servers in cells.
_NAMES_S = 2.0

#: Fields of a stored request that differ between servers of one request, or
#: between the users of one project.
_OF_SERVER = ('instance_uuid', 'num_instances', 'project_id', 'user_id')

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
        its value is invalid; names the option and the value
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
            if not isinstance(options, Mapping):
                raise exception.ConfigurationInvalid(
                    field=f'[{group}]',
                    problem=f'{json_schema.shown(options)} is not valid',
                    expected='a mapping of options to values')
            for name, value in options.items():
                _set(conf, group, name, value, source is given)
    return conf


def _set(
    conf: cfg.ConfigOpts, group: str, name: str, value: Any, required: bool
) -> None:
    """Set an option.

    :param required: whether None is no value
    :raises cellsched.exception.ConfigurationInvalid: there is no such option,
        or the value has another type
    """
    opt = _OPTIONS.get((group, name))
    shown = 'its value' if opt is not None and opt.secret else (
        urls.mask_text(json_schema.shown(value)))
    problem: str | None = None
    expected: str | None = None
    # The library would take the text of any object, and drop fractions.
    if isinstance(opt, cfg.StrOpt) and not (
            isinstance(value, str) or value is None and not required):
        problem, expected = f'{shown} is not valid', 'text'
    elif isinstance(opt, cfg.IntOpt) and isinstance(value, bool | float):
        problem, expected = f'{shown} is not valid', 'a whole number'
    else:
        try:
            conf.set_override(
                name, value, None if group == 'DEFAULT' else group)
        except (cfg.NoSuchGroupError, cfg.NoSuchOptError) as exc:
            problem = str(exc)
        except (cfg.Error, TypeError, ValueError) as exc:
            problem = f'{shown} is not valid: {urls.mask_text(str(exc))}'
    if problem is not None:
        raise exception.ConfigurationInvalid(
            field=f'[{group}] {name}', problem=problem, expected=expected)


def create_schemas(
    conf: cfg.ConfigOpts, cell_databases: Iterable[str] = ()
) -> None:
    """Create the schemas of all databases, or update them.

    The databases are the API database, that of the claim store, and those of
    the cells. Existing data is kept.

    :param cell_databases: URLs of the databases of cells, including cell0
    :raises cellsched.exception.InvalidField: these are not several texts
    :raises cellsched.exception.ConfigurationInvalid: an option is missing or
        invalid, or a URL cannot be parsed
    :raises cellsched.exception.DatabaseUnreachable: a database does not answer
    """
    where, field = 'create_schemas', 'cell_databases'
    cell_databases = _listed(where, field, cell_databases)
    for url in cell_databases:
        _check_url(where, field, url)
    loader.check_values(conf, _OPTIONS)
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
        """Return the mappings of hosts; unmapped hosts are omitted.

        :raises cellsched.exception.InvalidField: a name is invalid
        """
        names = _listed('hosts', 'names', names)
        json_schema.check('hosts', names, _NAMES, 'names')
        with self._database.reader() as connection:
            found = host_mappings.get_many(connection, names)
        return [objects.HostMapping(host=host, cell_mapping=cell)
                for host, cell in found.items()]

    def instances(
        self, uuids: Iterable[str]
    ) -> dict[str, objects.InstanceMapping]:
        """Return the mappings of servers by uuid; unknown uuids are omitted.

        A mapping without a cell is of a server that is being scheduled. A
        server in cell0 could not be built. The keys are in lower case, with
        hyphens.

        :raises cellsched.exception.InvalidField: a uuid is invalid
        """
        servers = _uuids('instances', uuids)
        with self._database.reader() as connection:
            return instance_mappings.get_many(connection, servers)

    def create_cell(
        self, name: str, transport_url: str, database_connection: str,
        uuid: str | None = None, check: bool = True,
    ) -> objects.CellMapping:
        """Map a cell. Its database may get its schema later.

        :param name: 1 to 255 characters
        :param uuid: by default a new one
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
        :raises cellsched.exception.InvalidField: an argument is invalid, for
            example a URL with braces that are not fields of a template
        :raises cellsched.exception.ConfigurationInvalid: a URL cannot be
            opened
        """
        where = 'create_cell'
        json_schema.check(where, name, _NAME, 'name')
        _check_url(where, 'transport_url', transport_url)
        _check_url(where, 'database_connection', database_connection)
        if not isinstance(check, bool):
            raise _invalid(where, 'check', 'True or False',
                           f'{json_schema.shown(check)} is not valid')
        uuid = (uuidutils.generate_uuid() if uuid is None
                else _uuid(where, 'uuid', uuid))
        if uuid == objects.CELL0_UUID:
            raise _invalid(where, 'uuid', 'another uuid',
                           'it is that of cell0, which create_cell0 maps')
        return self._create(objects.CellMapping(
            uuid=uuid, name=name, transport_url=transport_url,
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
        _check_url('create_cell0', 'database_connection', database_connection)
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
        invalid; names the option and the value
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
        loader.check_values(conf, _OPTIONS)
        self.parts = Components(conf) if parts is None else parts
        if metrics is not None:
            self.parts.metrics = metrics
        self._own_parts = parts is None
        self._is_closed = False
        try:
            self._aliases = aliases.by_name(self.parts.conf.pci.alias)
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

        A uuid in capitals or without hyphens means the same server. The
        returned uuids are in lower case, with hyphens.

        :param context: has a project
        :param names: names of the servers, by uuid, 1 to 255 characters each
        :param spec: the request for each server; the project, the user and
            the numbers are set here, and so is ``[DEFAULT]
            default_schedule_zone`` if it has no availability zone, and the
            NUMA topology and PCI devices that its flavor and its image ask
            for. The servers join its ``instance_group``, of which only the
            uuid is read
        :param min_count: the minimum number of servers to build, at most all
            of them; with fewer, none is built
        :raises cellsched.exception.InvalidField: an argument is invalid;
            names the field and the bound
        :raises cellsched.exception.HardwareRequestInvalid: the flavor and the
            image ask for impossible CPUs, memory pages or PCI devices
        :raises cellsched.exception.ServerExists: a server has another
            project, name or request. A server is compared as it is now, with
            its new name if a user renamed it. The name of one in a cell that
            does not answer, and of a deleted one, is not compared
        :raises cellsched.exception.InstanceGroupNotFound: the project has no
            such server group
        :raises cellsched.exception.OverQuota: the quota of the project lacks
            capacity for all servers
        :raises cellsched.exception.RateLimitExceeded: the project requests
            more than ``[quota] servers_per_minute``
        :raises cellsched.exception.ConductorClosed: :meth:`close` was called
        """
        self._check_open()
        _check_context('accept', context)
        claims_validation.check_id(
            'accept', 'context.project_id', context.project_id)
        bounds = self.parts.conf.scheduler
        servers = _names(names, bounds)
        json_schema.check('accept', min_count, {
            'type': 'integer', 'minimum': 1, 'maximum': len(servers),
        }, 'min_count')
        _check_spec(spec, bounds)
        spec, zone = spec.obj_clone(), self.parts.conf.default_schedule_zone
        if zone and not any(map(spec.get, (
                'availability_zone', 'force_hosts', 'force_nodes'))):
            spec.availability_zone = zone
        spec.add_hardware(self._aliases)
        with tracing.span('accept', context, [*servers]):
            return self._accept(context, servers, spec, min_count)

    def run(self, context: RequestContext, uuids: Sequence[str]) -> None:
        """Build accepted servers; return after the casts to compute hosts.

        Deleted servers, servers that are built, and servers that another
        conductor builds, are skipped. :attr:`periodic` retries a build after a
        transient error.

        :raises cellsched.exception.InvalidField: an argument is invalid
        :raises cellsched.exception.InstanceNotFound: a server was not
            accepted, or belongs to another project, and the context is not
            that of an administrator; no server is built
        :raises cellsched.exception.ConductorClosed: :meth:`close` was called
        """
        self._check_open()
        _check_context('run', context)
        servers = _uuids('run', uuids)
        with self.parts.database.reader() as connection:
            known = instance_mappings.get_many(connection, servers)
        for uuid in servers:
            if uuid not in known or not listing.visible(
                    context, known[uuid].project_id):
                raise exception.InstanceNotFound(uuid=uuid)
        if servers:
            self.task.run(context, servers)

    def get(self, context: RequestContext, uuid: str) -> server.Server:
        """Return a server of any cell.

        :raises cellsched.exception.InvalidField: an argument is invalid
        :raises cellsched.exception.InstanceNotFound: no server has the uuid,
            or it belongs to another project
        :raises cellsched.exception.ConductorClosed: :meth:`close` was called
        """
        self._check_open()
        _check_context('get', context)
        return self.parts.listing.get(context, _uuid('get', 'uuid', uuid))[0]

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

    def _accept(
        self, context: RequestContext, names: Mapping[str, str],
        spec: objects.RequestSpec, min_count: int,
    ) -> list[str]:
        """Write servers to the API database; return the new uuids.

        Nothing is written before all existing servers are compared, and no
        transaction waits for a cell.

        :raises cellsched.exception.ServerExists: a uuid is that of another
            server
        """
        compared = set[str]()
        while True:
            with self.parts.database.writer() as connection:
                known = instance_mappings.get_many(connection, names)
                if known.keys() <= compared:
                    return self._write(connection, context, {
                        uuid: name for uuid, name in names.items()
                        if uuid not in known}, spec, min_count)
            self._compare(context, names, spec, [*known])
            compared |= known.keys()

    def _compare(
        self, context: RequestContext, names: Mapping[str, str],
        spec: objects.RequestSpec, uuids: Sequence[str],
    ) -> None:
        """Check that existing servers are those of a repeated call.

        :raises cellsched.exception.ServerExists: one is another server
        """
        with self.parts.database.reader() as connection:
            # A request is deleted after the cell is set, so read it first.
            requests = build_requests.read(connection, uuids)
            known = instance_mappings.get_many(connection, uuids)
            stored = {uuid: build_requests.get_spec(connection, uuid)
                      for uuid in uuids}
        for uuid, mapping in known.items():
            if mapping.project_id != context.project_id:
                raise exception.ServerExists(uuid=uuid, field='project')
        present = self._names_in_cells(context, known.values())
        present.update(
            (each.request.instance_uuid, each.request.instance.display_name)
            for each in requests if each.broken is None)
        for uuid in known:
            field = _difference(stored[uuid], _primitive(context, spec))
            if present.get(uuid, names[uuid]) != names[uuid]:
                field = 'name'
            if field is not None:
                raise exception.ServerExists(uuid=uuid, field=field)

    def _names_in_cells(
        self, context: RequestContext,
        mappings: Iterable[objects.InstanceMapping],
    ) -> dict[str, str | None]:
        """Return the names of servers, as far as their cells answer."""
        placed = {each.instance_uuid: each.cell_mapping for each in mappings
                  if each.cell_mapping is not None}
        named = InstanceFilter({'uuid': [*placed]})
        gathered = self.parts.gatherer.gather(
            context, {cell.uuid: cell for cell in placed.values()}.values(),
            lambda cell_context: listing.read_page(
                cell_context.cell.database, '', named, query.NEWEST)[1],
            _NAMES_S)
        return {each.uuid: each.name for found in gathered.results.values()
                for each in found}

    def _write(
        self, connection: Any, context: RequestContext,
        names: Mapping[str, str], spec: objects.RequestSpec, min_count: int,
    ) -> list[str]:
        """Add new servers; return their uuids.

        The limits are recorded, so that they hold for any conductor that
        builds the servers.

        :raises cellsched.exception.OverQuota: the quota lacks capacity for
            all
        :raises cellsched.exception.RateLimitExceeded: too many in a minute
        """
        uuids, quotas = [*names], self.parts.quotas
        if not uuids:
            return []
        now = self.parts.database.now()
        project_id = context.project_id or ''
        if spec.get('instance_group') is not None:
            group = instance_groups.get(
                connection, spec.instance_group.uuid, project_id, lock=True)
            instance_groups.add_members(connection, group.id, uuids, now)
            # The members are read again when the servers are scheduled.
            group.members, spec = [], spec.obj_clone()
            spec.instance_group = group
        quotas.accept(connection, context.project_id, context.user_id,
                      spec.flavor, len(uuids), len(uuids))
        limits = {
            name: quotas.limits(connection, project_id, user_id)
            for name, user_id in (('project', None),
                                  ('user', context.user_id))
            if self.parts.conf.quota.recheck_quota
            and (user_id or name == 'project')}
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


def _invalid(
    where: str, field: str, expected: str, problem: str | None = None
) -> exception.InvalidField:
    return exception.InvalidField(
        where=where, field=field, problem=problem, expected=expected)


def _listed(where: str, field: str, values: Any) -> list[Any]:
    """Return the values of an argument.

    :raises cellsched.exception.InvalidField: names the argument
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise _invalid(where, field, 'a list', 'it is no list')
    return list(values)


def _check_url(where: str, field: str, value: Any) -> None:
    """Check that a URL is a text; its password is not shown.

    :raises cellsched.exception.InvalidField: names the argument
    """
    if not isinstance(value, str) or not value:
        raise _invalid(where, field, 'a URL as text', (
            'it is empty' if value == '' else 'it is no text'))


def _uuid(where: str, field: str, value: Any) -> str:
    """Return a uuid in the form in which it is stored.

    :raises cellsched.exception.InvalidField: names the argument
    """
    uuid = canonical(value)
    if uuid is None:
        raise _invalid(where, field, 'a uuid as text',
                       f'{json_schema.shown(value)} is not valid')
    return uuid


def _uuids(where: str, values: Any) -> list[str]:
    """Return uuids in the form in which they are stored.

    :raises cellsched.exception.InvalidField: names the argument
    """
    return list(dict.fromkeys(
        _uuid(where, 'uuids', value)
        for value in _listed(where, 'uuids', values)))


def _names(names: Any, bounds: Any) -> dict[str, str]:
    """Return the names of new servers by uuid.

    :param bounds: the options of ``[scheduler]``
    :raises cellsched.exception.InvalidField: names the argument
    """
    if not isinstance(names, Mapping) or not names:
        raise _invalid('accept', 'names', 'a mapping of at least one uuid to '
                                          'the name of the server')
    _check_number('names', names, bounds, 'max_instances_per_request')
    found: dict[str, str] = {}
    for value, name in names.items():
        uuid = _uuid('accept', 'names', value)
        if uuid in found:
            raise _invalid('accept', 'names', 'each uuid once',
                           f'{uuid} is repeated, in another form')
        json_schema.check('accept', name, _NAME, 'names')
        found[uuid] = name
    return found


def _check_context(where: str, context: Any) -> None:
    """Check the context of a call.

    :raises cellsched.exception.InvalidField: names the field
    """
    if not isinstance(context, RequestContext):
        raise _invalid(where, 'context', 'a RequestContext')
    for field in ('project_id', 'user_id'):
        value = getattr(context, field)
        if value is not None:
            claims_validation.check_id(where, f'context.{field}', value)


def _check_number(field: str, values: Any, bounds: Any, option: str) -> None:
    """Check that an argument has no more values than schedulers accept.

    :param bounds: the options of ``[scheduler]``
    :raises cellsched.exception.InvalidField: names the argument and the bound
    """
    if len(values or ()) > bounds[option]:
        raise _invalid(
            'accept', field, f'at most {bounds[option]}, which is [scheduler] '
            f'{option}', f'{len(values)} are given')


def _check_spec(spec: Any, bounds: Any) -> None:
    """Check a request as far as the scheduler would refuse it.

    The stages of the scheduler are not known here, so hints and traits that
    none of them reads are refused later.

    :param bounds: the options of ``[scheduler]``
    :raises cellsched.exception.InvalidField: names the field and the bound
    """
    if not isinstance(spec, objects.RequestSpec):
        raise _invalid('accept', 'spec', 'a RequestSpec')
    flavor, names = spec.get('flavor'), 'max_names_per_request'
    if flavor is None:
        raise _invalid('accept', 'spec.flavor', 'a Flavor')
    for field in _AMOUNTS:
        amount = flavor.get(field)
        if field in _REQUIRED and amount is None or not (
                0 <= (amount or 0) <= _AMOUNT_MAX):
            raise _invalid(
                'accept', f'spec.flavor.{field}',
                f'an amount from 0 to {_AMOUNT_MAX}', f'{amount} is not valid')
    try:
        resources = spec.resources()
        spec.group_demand()
    except exception.InvalidField as exc:
        field = exc.field if exc.where == 'request' else (
            f'{exc.where}.{exc.field}')
        raise exception.InvalidField(
            where='accept', field=f'spec.{field}', **exc.reasons) from None
    if not resources:
        raise _invalid('accept', 'spec.flavor', 'an amount of a resource '
                       'class', 'the request needs no resources')
    image = spec.get('image')
    properties = image.get('properties') if image else None
    for field, values, option in (
            ('scheduler_hints', spec.get('scheduler_hints'), names),
            ('flavor.extra_specs', flavor.get('extra_specs'), names),
            ('image.properties', properties and properties.items(), names),
            *((field, spec.get(field), 'max_values_per_list') for field in (
                'ignore_hosts', 'force_hosts', 'force_nodes'))):
        _check_number(f'spec.{field}', values, bounds, option)
    for field, value in (
            ('availability_zone', spec.get('availability_zone')),
            ('image.id', image.get('id') if image else None)):
        if value is not None:
            json_schema.check('accept', value, _NAME, f'spec.{field}')
    _check_hosts(spec)
    _check_group(spec)
    for hint in spec.get('scheduler_hints') or {}:
        if hint.startswith('_'):
            raise _invalid(
                'accept', 'spec.scheduler_hints', 'names that do not begin '
                'with _', f'the name {json_schema.shown(hint)} is reserved')
    keys.check_request(spec, 'accept', 'spec')


def _check_hosts(spec: objects.RequestSpec) -> None:
    """Check the names of hosts and nodes in a request.

    :raises cellsched.exception.InvalidField: names the field
    """
    for name in _HOST_LISTS:
        json_schema.check(
            'accept', spec.get(name) or [], _NAMES, f'spec.{name}')
    target = spec.get('requested_destination')
    for name in ('host', 'node') if target is not None else ():
        if target.get(name) is not None:
            json_schema.check('accept', target.get(name), _NAME,
                              f'spec.requested_destination.{name}')


def _check_group(spec: objects.RequestSpec) -> None:
    """Check that a request joins the server group of its hint.

    :raises cellsched.exception.InvalidField: names the field
    """
    group, hints = spec.get('instance_group'), spec.hint('group')
    if group is not None:
        _uuid('accept', 'spec.instance_group.uuid', group.get('uuid'))
    if hints and (group is None or hints != [group.uuid]):
        raise _invalid(
            'accept', 'spec.scheduler_hints.group', 'the uuid of the server '
            'group in spec.instance_group', 'it names another group')


def _difference(
    stored: Mapping[str, Any] | None, requested: Mapping[str, Any]
) -> str | None:
    """Return a field in which two primitives of requests differ, or None.

    A stored request that was lost or is unreadable differs in none.
    """
    if not stored:
        return None
    former, other = _content(stored), _content(
        jsonutils.loads(jsonutils.dumps(requested)))
    for each in former, other:
        if 'instance_group' in each:
            each['instance_group'] = each['instance_group'].get('uuid')
    return next((
        name for name in sorted({**former, **other})
        if name not in _OF_SERVER
        and former.get(name) != other.get(name)), None)


def _content(value: Any) -> Any:
    """Return a primitive without versions, order and fields without value."""
    if isinstance(value, dict):
        found = {name: _content(each) for name, each in value.get(
            'nova_object.data', value).items()}
        return {name: each for name, each in found.items()
                if each not in (None, {}, [])}
    if isinstance(value, list):
        return sorted(map(_content, value), key=jsonutils.dumps)
    return value


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
    primitive = _primitive(context, spec)
    return [{**primitive, 'nova_object.data': {
        **primitive['nova_object.data'], 'num_instances': len(uuids),
        'instance_uuid': uuid}} for uuid in uuids]


def _primitive(
    context: RequestContext, spec: objects.RequestSpec
) -> dict[str, Any]:
    """Return the primitive of a request for any server."""
    primitive = spec.obj_to_primitive()
    return {**primitive, 'nova_object.data': {
        **dict.fromkeys(_UNSET), 'is_bfv': False, 'scheduler_hints': {},
        **primitive['nova_object.data'], 'project_id': context.project_id,
        'user_id': context.user_id}}
