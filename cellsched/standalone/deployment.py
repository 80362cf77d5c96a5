# SPDX-License-Identifier: Apache-2.0
"""A whole deployment in one process: many cells, no server to start.

SQLite files, or other databases by their URLs, and the in-process transport
replace the databases and brokers. Everything else is as in production: the
services read configuration files, are made by ``cellsched.wiring``, and share
only what is configured. By default projects have no limits, and commits do not
wait for the disk.
"""

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from concurrent import futures
import dataclasses
import json
import pathlib
from typing import Any
from typing import cast
from typing import Self

from oslo_config import cfg
from oslo_utils import uuidutils

from cellsched.claims.sql import schema as claims_schema
from cellsched.clock import Clock
from cellsched.conf import loader
from cellsched.db import api as api_schema
from cellsched.db.api import aggregates
from cellsched.db.api import cell_mappings
from cellsched.db.api import shared_providers
from cellsched.db import cell as cell_schema
from cellsched.db.schema import Schema
from cellsched import objects
from cellsched.objects import resources
from cellsched.standalone import sqlite_template
from cellsched.wiring import compute
from cellsched.wiring import conductor
from cellsched.wiring import services

#: Services that are waited for at the same time.
STOPPED_AT_ONCE = 64

#: Seconds between the reports of agents in groups, at least, and how many of
#: them there are in a second.
_REPORT_S = 10
_REPORTS_PER_S = 20

Options = Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class DeployedHost:
    """A host; memory in MB, disk in GB.

    :param behaviour: options of ``[fake_virt]``, such as ``fail_builds``
    :param providers: child providers by name, each a mapping as described for
        ``[fake_virt] providers``
    """

    name: str
    vcpus: int = 8
    memory_mb: int = 16384
    disk_gb: int = 200
    availability_zone: str | None = None
    aggregates: Sequence[str] = ()
    behaviour: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    providers: Mapping[str, Mapping[str, Any]] = dataclasses.field(
        default_factory=dict)


@dataclasses.dataclass(frozen=True)
class DeployedSharingProvider:
    """A provider that the hosts of an aggregate share.

    :param aggregate: the aggregate's name
    :param inventories: totals by resource class
    :param traits: names
    """

    name: str
    aggregate: str
    inventories: Mapping[str, int]
    traits: Sequence[str] = ()


@dataclasses.dataclass(frozen=True)
class DeployedCell:
    """A cell and its hosts."""

    name: str
    hosts: Sequence[DeployedHost]


class Deployment:
    """Starts cells and the services above them.

    :param directory: an empty directory for databases and configuration
    :param aggregates_: metadata of aggregates, by name
    :param options: options for every service, by group
    :param reached: called with the name of each completed step of a task, in
        the thread of the task
    :param database_url: returns the URL of an empty database by its name:
        ``api``, ``claims`` or that of a cell; by default a SQLite file
    :param groups_agents: whether the agents of a cell are one service, for
        thousands of hosts; the more hosts, the longer the report interval
    :param started: called after the start of each agent
    :param sharing: providers that the hosts of aggregates share
    """

    def __init__(
        self, directory: pathlib.Path, cells: Sequence[DeployedCell],
        aggregates_: Mapping[str, Mapping[str, str]] | None = None,
        options: Options | None = None, clock: Clock | None = None,
        reached: Callable[[str], None] = lambda step: None,
        database_url: Callable[[str], str] | None = None,
        groups_agents: bool = False,
        started: Callable[[], None] = lambda: None,
        sharing: Sequence[DeployedSharingProvider] = (),
    ) -> None:
        self.directory = directory
        self.cells = cells
        self._aggregates = aggregates_ or {}
        self._options = options or {}
        self._clock = clock or Clock()
        self._reached = reached
        self._database_url = database_url or self._sqlite
        self._groups_agents = groups_agents
        self._started = started
        self._sharing = sharing
        # Part of the transport URLs, so that two deployments share no queue.
        self._world = uuidutils.generate_uuid(dashed=False)
        self._services: list[services.Service] = []
        self._api: services.API | None = None
        #: The agents that were started, by their hosts.
        self.agents: dict[str, services.Service | compute.HostAgent] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def api(self) -> services.API:
        """Return the API that a front end of the deployment calls."""
        assert self._api is not None, 'the deployment is not started'
        return self._api

    def conf(self, *names: str) -> cfg.ConfigOpts:
        """Return the configuration of these files of the deployment.

        :raises cellsched.exception.ConfigurationInvalid: names the file and
            the option or the group
        """
        conf, problems = loader.examine(files=self._files(names), dirs=[])
        for problem in problems:
            raise problem
        return conf

    def _service_conf(
        self, kinds: Collection[str], *names: str
    ) -> cfg.ConfigOpts:
        """Return the configuration that the process of a service reads."""
        return loader.load(files=self._files(names), dirs=[], kinds=kinds)

    def _files(self, names: Sequence[str]) -> list[str]:
        etc = self.directory / 'etc'
        return [str(etc / f'{name}.conf') for name in names]

    def start(self) -> None:
        """Make the databases and start every service."""
        try:
            api_conf = self._prepare()
            for cell in self.cells:
                self._start_cell(cell)
            # A scheduler finds all hosts there when it looks first.
            self._run(services.scheduler(api_conf, self._parts(api_conf)))
            self._run(services.conductor(api_conf, self._parts(api_conf)))
            self._api = services.api(api_conf, self._parts(api_conf))
        except BaseException:
            self.stop()
            raise

    def add_cell(self, cell: DeployedCell) -> None:
        """Make one more cell, map it and start its services."""
        self._write_cell(cell)
        mapping = self._mapping_of(cell)
        parts = self._parts(self.conf('api'))
        try:
            self._sync(cell_schema.SCHEMA, parts, cell.name)
            with parts.database.writer() as connection:
                cell_mappings.create(connection, mapping, parts.clock.now())
        finally:
            parts.close()
        self.cells = [*self.cells, cell]
        self._start_cell(cell)

    def _start_cell(self, cell: DeployedCell) -> None:
        conf = self._service_conf(conductor.PLUGINS, cell.name)
        self._run(services.conductor(conf, self._parts(conf)))
        if self._groups_agents:
            self._start_group(cell)
            return
        for host in cell.hosts:
            self.start_host(cell.name, host)

    def start_host(self, cell: str, host: DeployedHost) -> services.Service:
        """Start the agent of one more host."""
        # In a directory of their own, for a cell may have any name too.
        name = f'hosts/{host.name}'
        self._write(name, self._host_options(host))
        conf = self._service_conf(compute.PLUGINS, cell, name)
        service = services.compute(conf, self._parts(conf))
        self._run(service)
        self.agents[host.name] = service
        self._started()
        return service

    def _start_group(self, cell: DeployedCell) -> None:
        """Start the agents of a cell as one service."""
        conf = self._service_conf(compute.PLUGINS, cell.name)
        parts = self._parts(conf)
        try:
            service, agents = compute.agent_group(parts, (
                services.Components(
                    view(conf, self._host_options(host)), parts.clock,
                    parts.claims, parts.databases, parts.transports,
                    self._reached)
                for host in cell.hosts), started=self._started)
        except BaseException:
            parts.close()
            raise
        self._run(service)
        self.agents.update(
            (each.parts.conf.host, each) for each in agents)

    def stop(self) -> None:
        """Stop every service; databases and configuration stay."""
        if self._api is not None:
            self._api.close()
            self._api = None
        running, self._services = self._services[::-1], []
        if running:
            # All of them wait at the same time for messages in progress.
            with futures.ThreadPoolExecutor(STOPPED_AT_ONCE) as pool:
                list(pool.map(lambda service: service.stop(), running))

    def _parts(self, conf: cfg.ConfigOpts) -> services.Components:
        """Return the parts of one service; services share none of them."""
        return services.Components(conf, self._clock, reached=self._reached)

    def _run(self, service: services.Service) -> None:
        self._services.append(service)
        service.start()

    def _prepare(self) -> cfg.ConfigOpts:
        """Write the files, and return the configuration above the cells."""
        etc = self.directory / 'etc'
        (etc / 'hosts').mkdir(parents=True)
        # The rules of the machine that this runs on are not meant.
        (etc / 'policy.yaml').write_text('{}\n', encoding='utf-8')
        self._write('api', {
            'DEFAULT': {'host': 'api', 'transport_url': self._transport('api'),
                        'initial_cpu_allocation_ratio': 1.0},
            'api_database': {'connection': self._database_url('api')}})
        for cell in self.cells:
            self._write_cell(cell)
        conf = self.conf('api')
        parts = self._parts(conf)
        try:
            self._fill(parts)
        finally:
            parts.close()
        return conf

    def _write_cell(self, cell: DeployedCell) -> None:
        self._write(cell.name, {
            'DEFAULT': {'host': f'conductor-{cell.name}',
                        'transport_url': self._transport(cell.name),
                        'initial_cpu_allocation_ratio': 1.0},
            'database': {'connection': self._database_url(cell.name)}})

    def _mapping_of(self, cell: DeployedCell) -> objects.CellMapping:
        return _mapping(
            uuidutils.generate_uuid(), cell.name, self._transport(cell.name),
            self._database_url(cell.name))

    def _fill(self, parts: services.Components) -> None:
        """Make the schemas, the cells' mappings and the aggregates."""
        self._sync(api_schema.SCHEMA, parts, 'api')
        if self._database_url == self._sqlite:
            # The claim store finds its tables there and creates no others.
            sqlite_template.create(self._file('claims'), claims_schema.SCHEMA)
        parts.claims.sync()
        mappings = [_mapping(objects.CELL0_UUID, 'cell0', 'none:///',
                             self._database_url('cell0'))]
        mappings += map(self._mapping_of, self.cells)
        for mapping in mappings:
            self._sync(cell_schema.SCHEMA, parts, mapping.name)
        with parts.database.writer() as connection:
            for mapping in mappings:
                cell_mappings.create(connection, mapping, parts.clock.now())
            uuids = {}
            for name, (hosts, metadata) in self._all_aggregates().items():
                uuids[name] = uuidutils.generate_uuid()
                aggregates.create(
                    connection, uuids[name], name, hosts, metadata,
                    parts.clock.now())
            sharing = [shared_providers.SharedProvider(
                uuidutils.generate_uuid(), each.name, uuids[each.aggregate],
                frozenset(each.traits), {
                    name: resources.Inventory(total)
                    for name, total in each.inventories.items()})
                for each in self._sharing]
            for each in sharing:
                shared_providers.create(connection, each, parts.clock.now())
        for each in sharing:
            parts.claims.set_inventory(each.uuid, each.inventories)

    def _all_aggregates(
        self,
    ) -> dict[str, tuple[list[str], Mapping[str, str]]]:
        """Return hosts and metadata of aggregates; a zone is one too."""
        hosts = [host for cell in self.cells for host in cell.hosts]
        zones = {host.availability_zone for host in hosts}
        named = {name: ([host.name for host in hosts
                         if name in host.aggregates], metadata)
                 for name, metadata in self._aggregates.items()}
        return {**named, **{
            f'zone:{zone}': ([host.name for host in hosts
                              if host.availability_zone == zone],
                             {'availability_zone': zone})
            for zone in sorted(filter(None, zones))}}

    def _host_options(self, host: DeployedHost) -> Options:
        state = self.directory.resolve() / 'state' / host.name
        return {
            'DEFAULT': {'host': host.name, 'reserved_host_memory_mb': 0,
                        'state_path': str(state)},
            'fake_virt': {
                'vcpus': host.vcpus, 'memory_mb': host.memory_mb,
                'local_gb': host.disk_gb,
                'providers': (json.dumps(host.providers) if host.providers
                              else ''),
                **host.behaviour}}

    def _transport(self, name: str) -> str:
        return f'local://{self._world}/{name}'

    def _sqlite(self, name: str) -> str:
        return f'sqlite:///{self._file(name)}'

    def _file(self, name: str) -> pathlib.Path:
        return self.directory.resolve() / f'{name}.sqlite'

    def _sync(
        self, schema: Schema, parts: services.Components, name: str
    ) -> None:
        """Make the schema in the empty database of this name."""
        if self._database_url == self._sqlite:
            sqlite_template.create(self._file(name), schema)
        else:
            schema.sync(parts.databases.get(
                self._database_url(name), schema.name))

    def _write(self, name: str, options: Options) -> None:
        """Write a configuration file, with the options of all services."""
        shared: dict[str, dict[str, Any]] = {
            # They need not outlive the machine.
            'api_database': {'sqlite_synchronous': False},
            'claims': {'connection': self._database_url('claims')},
            'database': {'sqlite_synchronous': False},
            # Tests that assert the selected hosts rely on it.
            'filter_scheduler': {'rotate_best_same_weighed_hosts': False},
            'quota': {'instances': -1, 'cores': -1, 'ram': -1}}
        if self._groups_agents:
            hosts = sum(len(cell.hosts) for cell in self.cells)
            interval_s = max(_REPORT_S, hosts // _REPORTS_PER_S)
            shared['DEFAULT'] = {'report_interval': interval_s,
                                 'service_down_time': 6 * interval_s}
        path = self.directory / 'etc' / f'{name}.conf'
        path.write_text(
            loader.file_text(shared, self._options, options),
            encoding='utf-8')


def _mapping(
    uuid: str, name: str, transport_url: str, database_connection: str
) -> objects.CellMapping:
    return objects.CellMapping(
        uuid=uuid, name=name, transport_url=transport_url,
        database_connection=database_connection, disabled=False)


def view(
    conf: cfg.ConfigOpts, values: Mapping[str, Mapping[str, Any]]
) -> cfg.ConfigOpts:
    """Return a configuration in which some options have other values.

    A view is cheap: to read a separate configuration takes as long as to
    start a service. Options that are registered or changed in one are
    registered or changed in both.

    :param values: values by group and name, of the types of the options
    """
    own = dict(values)
    return cast(cfg.ConfigOpts, _View(conf, {**own.pop('DEFAULT', {}), **own}))


class _View:
    """A configuration, or one of its groups, with some other values."""

    def __init__(self, source: Any, values: Mapping[str, Any]) -> None:
        self._source = source
        self._values = values

    def __getattr__(self, name: str) -> Any:
        return self[name] if name in self else getattr(self._source, name)

    def __getitem__(self, name: str) -> Any:
        found = self._source[name]
        if name not in self._values:
            return found
        return (_View(found, self._values[name])
                if isinstance(found, (cfg.ConfigOpts.GroupAttr, _View))
                else self._values[name])

    def __contains__(self, name: object) -> bool:
        return name in self._source

    def __iter__(self) -> Any:
        return iter(self._source)

    def __len__(self) -> int:
        return len(self._source)
