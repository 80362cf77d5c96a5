# SPDX-License-Identifier: Apache-2.0
"""Topologies and devices are those of Nova's own code."""

import collections
import pathlib
import random
import runpy
import types
import unittest

import nova.conf
from nova import exception as nova_exception
from nova import objects as nova_objects
from nova.objects import pci_device_pool
from nova.pci import stats
from nova.scheduler.filters import numa_topology_filter
from nova.scheduler.filters import pci_passthrough_filter
from nova.virt import hardware

import cellsched
from cellsched import exception
from cellsched.filters import numa_topology
from cellsched.filters import pci_passthrough
from cellsched.hardware import devices
from cellsched.hardware import documents
from cellsched.hardware import fit
from cellsched.hardware import guest
from cellsched.testing import builders
from cellsched_nova import enabled_plugins
from cellsched_nova import requests
from tests import test_requests

nova_objects.register_all()

CONF = nova.conf.CONF

SEEDS = 400

#: Hosts of a random cloud.
HOSTS = 12

#: Values of extra specs and image properties, some of which are invalid.
EXTRA_SPECS = {
    'hw:numa_nodes': ['1', '2', '3', '0', '-1', 'two', '02', ' 2 ', '+2'],
    'hw:cpu_policy': ['shared', 'dedicated', 'mixed', 'other'],
    'hw:cpu_thread_policy': ['prefer', 'isolate', 'require', 'other'],
    'hw:cpu_dedicated_mask': ['0', '^0', '0-1', '0-3', '9', '^0-1,^3', '0-9'],
    'hw:cpu_realtime': ['yes', 'no', '1'],
    'hw:cpu_realtime_mask': ['^0', '^0-1', '0-3', '2-9', '^0-3', '1-3,^2'],
    'hw:emulator_threads_policy': ['share', 'isolate', 'other'],
    'hw:mem_page_size': [
        'small', 'large', 'any', '2048', '0', '2MB', '2MiB', '1GB', '2048KB',
        '1Gb', '1.5M', 'other', '-1', ' 2048 ', '1TB', '3kB'],
    'hw:numa_cpus.0': ['0-1', '0-3,^1-2', '0', '0-3', '^1', '3-1', '0,,1'],
    'hw:numa_cpus.1': ['2-3', '1-2', '1,2,3', '4'],
    'hw:numa_mem.0': ['512', ' 256 ', '1024'],
    'hw:numa_mem.1': ['512', '768'],
    'resources:PCPU': ['4', '5'], 'resources:VCPU': ['4'],
    'resources1:PCPU': ['4'],
    'trait:HW_CPU_HYPERTHREADING': ['required', 'forbidden'],
    'hw:pmem': ['4GB', ' , '], 'hw:locked_memory': ['true', 'false'],
}

PROPERTIES = {
    'hw_numa_nodes': [1, 2], 'hw_cpu_policy': ['shared', 'dedicated', 'mixed'],
    'hw_cpu_thread_policy': ['prefer', 'isolate', 'require'],
    'hw_cpu_realtime_mask': ['^0', '0-3'],
    'hw_mem_page_size': ['small', '2048', '1GB', 'other'],
    'hw_numa_cpus': [[{0, 1}, {2, 3}], [{0, 1, 2, 3}]],
    'hw_numa_mem': [[512, 512], [1024]], 'hw_locked_memory': [True, False],
    'traits_required': [['HW_CPU_HYPERTHREADING']],
}


def _module(name):
    """Return the names of a module of the product's tests.

    The package of these tests has the same name as that of the product.
    """
    directory = pathlib.Path(cellsched.__file__).parents[1] / 'tests'
    return types.SimpleNamespace(**runpy.run_path(
        str(directory / 'unit' / 'hardware' / f'{name}.py'), run_name=name))


cases, generated = _module('cases'), _module('generated')


def _constraints(vcpus, memory_mb, extra_specs, properties=None):
    """Return the topology that Nova makes."""
    flavor = nova_objects.Flavor(
        id=1, flavorid='1', name='flavor', vcpus=vcpus, memory_mb=memory_mb,
        extra_specs=extra_specs)
    return hardware.numa_get_constraints(flavor, nova_objects.ImageMeta(
        properties=nova_objects.ImageMetaProps(**properties or {})))


def _choices():
    """Yield extra specs and image properties: each alone, and random ones."""
    values = [(key, value) for source in (EXTRA_SPECS, PROPERTIES)
              for key in source for value in source[key]]
    yield from ([each] for each in values)
    chance = random.Random(1)
    for _ in range(5 * SEEDS):
        yield chance.sample(values, chance.randint(2, 6))


class TopologyTest(unittest.TestCase):

    def test_topology_and_error_agree_with_nova(self):
        for chosen in _choices():
            specs = {key: value for key, value in chosen if ':' in key}
            properties = {
                key: value for key, value in chosen if ':' not in key}
            with self.subTest(specs=specs, properties=properties):
                self.assertEqual(self.expected(specs, properties),
                                 self.found(specs, properties))

    def expected(self, specs, properties):
        try:
            topology = _constraints(4, 1024, specs, properties)
        except nova_exception.NovaException as exc:
            return type(exc).__name__, str(exc)
        return topology and documents.guest_topology(
            topology.obj_to_primitive())

    def found(self, specs, properties):
        try:
            return guest.topology(4, 1024, specs, properties)
        except exception.HardwareRequestInvalid as exc:
            return exc.error, exc.problem


def _cores(topology, cell, cpus):
    """Return the number of CPUs by core: which thread is taken is open."""
    return collections.Counter(
        number for number, core in enumerate(topology.by_id[cell].siblings)
        for cpu in cpus if cpu in core)


def _usage(topology):
    return [(each.id, each.cpu_usage, each.memory_usage, each.pages,
             _cores(topology, each.id, each.pinned))
            for each in topology.cells]


def _is_misjudged(demand):
    """Return whether Nova's verdict may be wrong.

    Nova keeps the verdict of a host cell and a guest cell by their ids, and
    the id of the guest cell changes meanwhile. A page size that replaced a
    keyword remains for the next host cells, even if the first ones lack
    devices or networks.
    """
    cells, networks = demand.topology.cells, demand.networks
    kinds = {(len(each.cpus), len(each.pcpus), each.memory_mb)
             for each in cells}
    if cells[0].page_size in (guest.SMALL, guest.LARGE, guest.ANY):
        return bool(len(cells) > 1 or demand.devices or networks.physnets
                    or networks.tunneled)
    return len(kinds) > 1 or (
        len(cells) > 1 and demand.topology.isolates_emulator)


class Host:
    """A random host in Nova's objects, and the request for it."""

    def __init__(self, case):
        CONF.set_override('packing_host_numa_cells_allocation_strategy',
                          case['conf']['pack'], 'compute')
        self.cells = nova_objects.NUMATopology.obj_from_primitive(
            documents.written_host(cases.host_topology(case)))
        self.requests = nova_objects.InstancePCIRequests.obj_from_primitive(
            documents.written_requests(cases.requests(case))).requests
        self.limits = nova_objects.NUMATopologyLimits.obj_from_primitive(
            documents.written_limits(
                cases.ratios(case), cases.demand(case).networks))
        self.mappings = cases.mappings(case)
        self.stats = None if case['pools'] is None else stats.PciDeviceStats(
            self.cells, pci_device_pool.from_pci_stats(case['pools']))

    def fit(self, flavor):
        """Return the placed topology."""
        return hardware.numa_fit_instance_to_host(
            self.cells, _constraints(**flavor), self.mappings, self.limits,
            self.requests, self.stats)

    def pools(self, cells=None):
        """Return the pools after the requests; None if they lack."""
        try:
            self.stats.apply_requests(self.requests, self.mappings, cells)
        except nova_exception.PciDeviceRequestFailed:
            return None
        return devices.pools(self.stats.pools)

    def used(self, placed):
        """Return the topology with a server; None if Nova's code fails.

        It fails on a host that reports no pages, and where the emulator has
        the idle thread of a core that an isolated server uses.
        """
        try:
            return documents.host_topology(
                hardware.numa_usage_from_instance_numa(
                    self.cells, placed).obj_to_primitive())
        except (IndexError, nova_exception.CPUPinningInvalid):
            return None


def _spec(case):
    """Return Nova's request for the server of a case."""
    flavor, network = case['flavor'], case['network']
    made = test_requests.spec(
        flavor['extra_specs'], numa_topology=_constraints(**flavor),
        network_metadata=nova_objects.NetworkMetadata(
            physnets=set(network['physnets']), tunneled=network['tunneled']),
        pci_requests=nova_objects.InstancePCIRequests.obj_from_primitive(
            documents.written_requests(cases.requests(case))))
    made.flavor.vcpus, made.flavor.memory_mb = (
        flavor['vcpus'], flavor['memory_mb'])
    return made


def _hosts(cloud):
    """Return the hosts of cases, as columns."""
    ratios = [cases.ratios(each) for each in cloud]
    return builders.hosts(
        numa_topology=[cases.host_topology(each) for each in cloud],
        device_pools=[cases.pools(each) or () for each in cloud],
        cpu_allocation_ratio=[each.cpu for each in ratios],
        ram_allocation_ratio=[each.memory for each in ratios])


def _states(cloud, hosts):
    """Return the hosts of cases, as host states of Nova."""
    states = {}
    for uuid, case in zip(hosts['uuid'], cloud):
        made = Host({**case, 'pools': case['pools'] or []})
        states[uuid] = types.SimpleNamespace(
            uuid=uuid, numa_topology=made.cells, pci_stats=made.stats,
            limits={})
    return enabled_plugins.HostStates(
        lambda uuids: [states[uuid] for uuid in uuids],
        {uuid: [{'mappings': {}}] for uuid in states})


class FitTest(unittest.TestCase):

    def setUp(self):
        self.addCleanup(
            CONF.clear_override,
            'packing_host_numa_cells_allocation_strategy', 'compute')

    def test_random_servers_take_the_same_as_in_nova(self):
        fitting = 0
        for seed in range(SEEDS):
            case = generated.case(seed)
            if _is_misjudged(cases.demand(case)):
                continue
            with self.subTest(seed=seed):
                fitting += self.compare(case)
        self.assertGreater(fitting, SEEDS // 10)

    def compare(self, case):
        """Compare a placement; return whether there is any."""
        host, topology = Host(case), cases.host_topology(case)
        pools, demand = cases.pools(case), cases.demand(case)
        placement = fit.fit(
            topology, demand, cases.ratios(case), pools, cases.mappings(case))
        placed = host.fit(case['flavor'])
        self.assertEqual(placed is None, placement is None)
        if placed is None:
            return False
        self.assertEqual(
            [(each.id, each.pagesize or None, _cores(
                topology, each.id, (each.cpu_pinning or {}).values()),
              _cores(topology, each.id, each.cpuset_reserved or ()))
             for each in placed.cells],
            [(each.host_cell, each.page_size, _cores(
                topology, each.host_cell, [cpu for _, cpu in each.pins.cpus]),
              _cores(topology, each.host_cell, each.pins.reserved))
             for each in placement])
        used = host.used(placed)
        if used is not None:
            self.assertEqual(
                _usage(used), _usage(fit.used(topology, placement)))
        if host.stats:
            self.assertEqual(host.pools(placed.cells), devices.take(
                pools, demand.devices, cases.mappings(case),
                [each.host_cell for each in placement], topology))
        return True

    def test_filters_on_columns_and_of_nova_keep_the_same_hosts(self):
        kept = 0
        for seed in range(0, 3 * SEEDS, HOSTS):
            cloud = [generated.case(seed + number) for number in range(HOSTS)]
            # The server of one case on the hosts of all.
            with self.subTest(seed=seed):
                kept += self.compare_filters(cloud[0], cloud)
        self.assertGreater(kept, SEEDS // 10)

    def compare_filters(self, asked, cloud):
        """Compare the filters; return the number of hosts that pass."""
        demand = cases.demand(asked)
        spec, hosts = _spec(asked), _hosts(cloud)
        request = requests.read(spec, [test_requests.SERVER])
        states = _states(cloud, hosts)
        fits = [fit.fit(
            cases.host_topology(each), demand, cases.ratios(each),
            cases.pools(each) or ()) is not None for each in cloud]
        kept = builders.plugin(numa_topology.NUMATopologyFilter).keep(
            hosts, request)
        self.assertEqual(fits, kept.tolist())
        if not _is_misjudged(demand):
            self.assertEqual(fits, enabled_plugins.NovaFilter(
                numa_topology_filter.NUMATopologyFilter(), spec,
                states).keep(hosts, request).tolist())
        if demand.devices:
            self.assertEqual(
                enabled_plugins.NovaFilter(
                    pci_passthrough_filter.PciPassthroughFilter(), spec,
                    _states(cloud, hosts)).keep(hosts, request).tolist(),
                builders.plugin(pci_passthrough.PciPassthroughFilter).keep(
                    hosts, request).tolist())
        return sum(fits)

    def test_random_devices_without_topology(self):
        for seed in range(SEEDS):
            case = generated.case(seed)
            if case['pci'] and case['pools'] is not None:
                with self.subTest(seed=seed):
                    self.assertEqual(Host(case).pools(), devices.take(
                        cases.pools(case), cases.requests(case),
                        cases.mappings(case)))
