# SPDX-License-Identifier: Apache-2.0
"""The setup that runs share: configurations and databases."""

from collections.abc import Mapping
import json
import pathlib
import sqlite3
import tempfile
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

#: Options of services whose hosts have them, and extra specs of flavors.
_HARDWARE = {
    'fake_virt': {'hardware': json.dumps(
        {'cells': _CELLS, 'devices': _DEVICES})},
    'filter_scheduler': {'enabled_filters': (
        'ComputeFilter,NUMATopologyFilter,PciPassthroughFilter')},
    'pci': {'alias': json.dumps({'name': 'nic', **_DEVICE})}}
_EXTRA_SPECS = {
    'hw:cpu_policy': 'dedicated', 'hw:mem_page_size': '2048',
    'pci_passthrough:alias': 'nic:1'}

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

    :param hardware: whether each server has dedicated CPUs, pages and a device
    :ivar state_path: the directory of what hosts keep
    """

    def __init__(self, hardware: bool = False) -> None:
        self._state = tempfile.TemporaryDirectory()
        self.state_path = self._state.name
        self.confs = _confs(_HARDWARE if hardware else {}, self.state_path)
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
        self._prepare(_EXTRA_SPECS if hardware else {})

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
            for number, name in enumerate(['cell0', *CELLS]):
                cell_mappings.create(connection, objects.CellMapping(
                    uuid=f'00000000-0000-0000-0000-{number:012}', name=name,
                    transport_url=broker(name) if number else 'none:///',
                    database_connection=database(name), disabled=False),
                    parts.clock.now())
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


def _confs(
    options: Mapping[str, Mapping[str, Any]], state_path: str
) -> dict[str, cfg.ConfigOpts]:
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
    confs = {}
    for name, values in made.items():
        path = pathlib.Path(state_path) / f'{name}.conf'
        path.write_text(
            loader.file_text(_SHARED, options, values), 'utf-8')
        confs[name] = loader.load(files=[str(path)], dirs=[])
    return confs
