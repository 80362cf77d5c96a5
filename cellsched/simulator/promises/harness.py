# SPDX-License-Identifier: Apache-2.0
"""The setup that runs share: configurations and databases."""

from collections.abc import Iterator
from collections.abc import Mapping
import json
import pathlib
import sqlite3
import tempfile
import types
from typing import Any

from oslo_config import cfg

from cellsched.api import authorization
from cellsched.api import flavors
from cellsched.conf import loader
from cellsched import context
from cellsched.db import api as api_schema
from cellsched.db.api import cell_mappings
from cellsched.db import cell as cell_schema
from cellsched import objects
from cellsched.simulator.promises import processes
from cellsched.simulator.promises import stores
from cellsched.wiring import services

#: Cells and their hosts, with the VCPUs of each host.
CELLS = {'cell1': {'a1': 4, 'a2': 3}, 'cell2': {'b1': 4}}

#: Flavors by name: VCPUs, MB and GB. No host has capacity for ``huge``.
FLAVORS = {'small': (1, 512, 1), 'large': (2, 1024, 1),
           'huge': (64, 512, 1)}

#: Two NUMA cells of each host, each with room for two small servers or one
#: large one, and three devices.
_CELLS = [{'id': cell, 'memory_mb': 4096, 'cpus': f'{4 * cell}',
           'dedicated': f'{4 * cell + 1}-{4 * cell + 2}',
           'pages': [{'size_kb': 4, 'total': 2 ** 19},
                     {'size_kb': 2048, 'total': 512}]} for cell in (0, 1)]
_DEVICE = {'vendor_id': '8086', 'product_id': '154c'}
_DEVICES = [{**_DEVICE, 'count': count, 'numa_node': cell}
            for cell, count in ((0, 2), (1, 1))]

#: Arguments of a harness in which each server has dedicated CPUs, pages and a
#: device.
HARDWARE: tuple[Mapping[str, Mapping[str, Any]], Mapping[str, str]] = ({
    'fake_virt': {'hardware': json.dumps(
        {'cells': _CELLS, 'devices': _DEVICES})},
    'filter_scheduler': {'enabled_filters': (
        'ComputeFilter,NUMATopologyFilter,PciPassthroughFilter')},
    'pci': {'alias': json.dumps({'name': 'nic', **_DEVICE})},
}, {'hw:cpu_policy': 'dedicated', 'hw:mem_page_size': '2048',
    'pci_passthrough:alias': 'nic:1'})

#: Interval of periodic tasks that must not run twice.
NEVER_S = 10 ** 6

#: Options of all services. Hosts never go down and nothing is refreshed
#: periodically: the simulation does not test that, and it takes time.
_SHARED: Mapping[str, Mapping[str, Any]] = {
    'DEFAULT': {'service_down_time': 10 ** 7, 'report_interval': NEVER_S,
                'initial_cpu_allocation_ratio': 1.0,
                'reserved_host_memory_mb': 0},
    'scheduler': {'refresh_interval': 0, 'decision_retention': 0,
                  'stale_cell_timeout': 10 ** 6, 'max_attempts': 2},
    'cells': {'refresh_interval': 10 ** 7},
    'claims': {'connection': 'sqlite:///simulated/claims'},
    'quota': {'instances': -1, 'cores': -1, 'ram': -1},
}

API = 'sqlite:///simulated/api'
CELL0 = 'sqlite:///simulated/cell0'
CLAIMS = 'sqlite:///simulated/claims'


def database(cell: str) -> str:
    """Return the URL of a cell's database."""
    return f'sqlite:///simulated/{cell}'


def broker(name: str) -> str:
    """Return the URL of the broker of a cell, or of the API."""
    return f'local://simulated/{name}'


class Harness:
    """Configurations, schemas, and a new deployment.

    :param options: options for every service, by group
    :param extra_specs: those of all flavors
    :ivar state_path: the directory of what hosts keep
    """

    def __init__(
        self, options: Mapping[str, Mapping[str, Any]] | None = None,
        extra_specs: Mapping[str, str] | None = None,
    ) -> None:
        self._state = tempfile.TemporaryDirectory()
        self.state_path = self._state.name
        self.confs = _confs(options or {}, self.state_path)
        self.stores = {
            url: stores.Store(url, schema) for url, schema in [
                (API, api_schema.SCHEMA.name),
                (CELL0, cell_schema.SCHEMA.name), (CLAIMS, 'claims'),
                *((database(cell), cell_schema.SCHEMA.name)
                  for cell in CELLS)]}
        #: Hosts by provider.
        self.hosts: dict[str, str] = {}
        self._images: dict[str, sqlite3.Connection] = {}
        #: The files that hosts keep, with their first contents.
        self._files: dict[pathlib.Path, str] = {}
        self._prepare(extra_specs or {})

    def reset(self) -> None:
        """Restore the first content of all stores and files."""
        for url, store in self.stores.items():
            store.load(self._images[url])
        for path, text in self._files.items():
            path.write_text(text, encoding='ascii')
            for kept in 'unfinished', 'places':
                for each in path.parent.glob(f'{kept}/*'):
                    each.unlink()

    def close(self) -> None:
        """Close the stores."""
        self._state.cleanup()
        for store in self.stores.values():
            store.database.close()
        for image in self._images.values():
            image.close()

    def _prepare(self, extra_specs: Mapping[str, str]) -> None:
        world = processes.World(self.stores)
        api = world.add('api', services.api, self.confs['api'])
        parts = api.parts()
        api_schema.SCHEMA.sync(parts.database)
        parts.claims.sync()
        for url in (CELL0, *map(database, CELLS)):
            cell_schema.SCHEMA.sync(
                parts.databases.get(url, cell_schema.SCHEMA.name))
        with parts.database.writer() as connection:
            for mapping in _mappings():
                cell_mappings.create(connection, mapping, parts.clock.now())
        for hosts in CELLS.values():
            for host in hosts:
                world.add(host, services.compute, self.confs[host]).start()
        parts.discovery.discover()
        made = flavors.Flavors(
            authorization.LocalOperator(), parts.database, parts.clock)
        for flavor, sizes in FLAVORS.items():
            made.create(context.admin(), flavor, *sizes)
            if extra_specs:
                made.set_extra_specs(context.admin(), flavor, extra_specs)
        for cell in CELLS:
            self.hosts.update(self.stores[database(cell)].query(
                'select uuid, host from compute_nodes'))
        self._images = {
            url: store.image() for url, store in self.stores.items()}
        self._files = {
            path: path.read_text(encoding='ascii')
            for path in pathlib.Path(self.state_path).glob('*/compute_*')}


def _mappings() -> list[objects.CellMapping]:
    """Return the mappings of all cells, first cell0."""
    return [objects.CellMapping(
        uuid=f'00000000-0000-0000-0000-{number:012}', name=name,
        transport_url=broker(name) if number else 'none:///',
        database_connection=database(name), disabled=False)
        for number, name in enumerate(['cell0', *CELLS])]


def _confs(
    options: Mapping[str, Mapping[str, Any]], state_path: str
) -> dict[str, Any]:
    """Return the configurations of all services, by name.

    :param state_path: the directory of what hosts keep
    """
    made: dict[str, dict[str, dict[str, Any]]] = {'api': {
        'DEFAULT': {'host': 'api', 'transport_url': broker('api')},
        'api_database': {'connection': API}}}
    for name in ('scheduler', 'conductor1', 'conductor2'):
        made[name] = {**made['api'], 'DEFAULT': {
            **made['api']['DEFAULT'], 'host': name}}
    for cell, hosts in CELLS.items():
        own = {'transport_url': broker(cell)}
        for name in (f'conductor-{cell}', *hosts):
            made[name] = {
                'DEFAULT': {**own, 'host': name,
                            'state_path': f'{state_path}/{name}'},
                'fake_virt': {'vcpus': hosts.get(name, 0)},
                'database': {'connection': database(cell)}}
    with tempfile.TemporaryDirectory() as directory:
        return {name: _conf(pathlib.Path(directory) / f'{name}.conf',
                            _SHARED, options, own)
                for name, own in made.items()}


def _conf(path: pathlib.Path, *sources: Mapping[str, Any]) -> Any:
    merged: dict[str, dict[str, Any]] = {}
    for source in sources:
        for group, values in source.items():
            merged.setdefault(group, {}).update(values)
    path.write_text('\n'.join(
        line for group, values in merged.items()
        for line in (f'[{group}]', *(
            f'{name} = {value}' for name, value in values.items()))),
        encoding='utf-8')
    return Settings(loader.load(files=[str(path)], dirs=[]))


class _Group(types.SimpleNamespace):
    """A group of options, as attributes and as items."""

    def __getitem__(self, name: str) -> Any:
        return vars(self)[name]

    def __contains__(self, name: object) -> bool:
        return name in vars(self)

    def __iter__(self) -> Iterator[str]:
        return iter(vars(self))

    def get(self, name: str, default: Any = None) -> Any:
        return vars(self).get(name, default)


class Settings(_Group):
    """The values of a configuration.

    Libraries register what they read each time that they are used, and have
    oslo.config forget what it worked out. Here that costs nothing, unless it
    is something new.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__()
        self.__dict__['_conf'] = conf
        self.__dict__['_known'] = set()
        self.__dict__['_changed'] = {}
        self._read()

    def changed(self, **values: Any) -> 'Settings':
        """Return a copy with other values of some options."""
        made = Settings.__new__(Settings)
        vars(made).update(vars(self))
        made.__dict__['_changed'] = {**self._changed, **values}
        made._change()
        return made

    def register_opts(self, opts: Any, group: Any = None) -> None:
        known = (id(opts), str(group))
        if known not in self._known:
            self._known.add(known)
            self._conf.register_opts(opts, group=group)
            self._read()

    def register_opt(self, opt: Any, group: Any = None) -> None:
        self._conf.register_opt(opt, group=group)
        self._read()

    def register_mutate_hook(self, hook: Any) -> None:
        """Do nothing: no value changes while services run."""

    def get_location(self, name: str, group: Any = None) -> Any:
        return self._conf.get_location(name, group)

    def find_file(self, name: str) -> Any:
        return self._conf.find_file(name)

    def _read(self) -> None:
        for name in self._conf:
            value = self._conf[name]
            if isinstance(value, cfg.ConfigOpts.GroupAttr):
                value = _Group(**{each: value[each] for each in value})
            vars(self)[name] = value
        self._change()

    def _change(self) -> None:
        for name, value in self._changed.items():
            if name == 'adopt_guests':
                vars(self)['compute'] = _Group(**{
                    **vars(self.compute), name: value})
            else:
                vars(self)[name] = value
