# SPDX-License-Identifier: Apache-2.0
"""NUMATopologyFilter."""

import numpy as np

from cellsched import exception
from cellsched.filters import numa_topology
from cellsched.hardware import devices
from cellsched.hardware import documents
from cellsched.hardware import fit
from cellsched.hardware import host
from cellsched.hardware import units
from cellsched.hosts import hardware
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.filters import cells


class TestNUMATopologyFilter(filters.FilterSuite, base.TestCase):

    plugin = numa_topology.NUMATopologyFilter

    def test_host_needs_cells_for_all_guest_cells(self):
        hosts = builders.hosts(numa_topology=[
            *(cells.topology(*free) for free in (
                [8], [2, 2], [4, 3], [4, 4])), None])

        self.assertKeeps(
            [True, False, True, True, False], hosts, cells.pinned(4))
        self.assertKeeps(
            [False, False, False, True, False], hosts,
            cells.pinned(8, cells=2))

    def test_request_without_cells_may_go_anywhere(self):
        self.assertFalse(builders.plugin(self.plugin).applies(
            builders.request()))

    def test_document_of_the_request_is_read(self):
        request = cells.pinned(4)
        request.numa_topology = documents.written_guest(
            request.hardware().topology)
        request.flavor.extra_specs = {}

        self.assertKeeps([True, False], builders.hosts(
            numa_topology=[cells.topology(4), cells.topology(3)]), request)

    def test_ratio_of_each_host_counts(self):
        cell = host.HostCell(0, frozenset(range(4)), frozenset(), 4096,
                             cpu_usage=4)
        request = builders.request(
            vcpus=2, memory_mb=64, extra_specs={'hw:numa_nodes': '1'})

        self.assertKeeps([True, False], builders.hosts(
            numa_topology=[host.HostTopology((cell,))] * 2,
            cpu_allocation_ratio=[2.0, 1.0]), request)

    def test_devices_must_be_near(self):
        request = cells.pinned(
            4, pci_requests=cells.requested(1, affinity='required'))

        self.assertKeeps([True, False], builders.hosts(
            numa_topology=[cells.topology(4, 0)] * 2,
            device_pools=[devices.pools([cells.pool(1, node)])
                          for node in (0, 1)]), request)

    def test_threads_are_required_by_the_raw_values(self):
        request = builders.request(vcpus=2, memory_mb=64, extra_specs={
            'hw:cpu_policy': 'dedicated', 'hw:cpu_thread_policy': 'require'})

        hosts = builders.hosts(numa_topology=[
            cells.topology(8), cells.topology(8, threads=2)])

        self.assertKeeps([False, True], hosts, request)

    def test_limits_are_the_ratios_of_the_host(self):
        hosts = builders.hosts(numa_topology=[cells.topology(8)],
                               cpu_allocation_ratio=[4.0])
        [limit] = builders.plugin(self.plugin).limits(
            hosts, cells.pinned(2))['numa_topology']

        self.assertEqual(
            {'cpu_allocation_ratio': 4.0, 'ram_allocation_ratio': 1.0},
            limit['nova_object.data'])

    def test_impossible_topology_is_refused(self):
        with self.assertRaisesRegex(
                exception.HardwareRequestInvalid, 'evenly distributed'):
            builders.plugin(self.plugin).applies(cells.pinned(3, cells=2))

    def reasons(self, hosts, request):
        return {each.text: np.flatnonzero(each.hosts).tolist()
                for each in builders.plugin(self.plugin).reasons(
                    hosts, request)}

    def test_reasons_have_the_missing_part_of_each_host(self):
        hosts = builders.hosts(numa_topology=[
            cells.topology(3, 3), cells.topology(2), None,
            cells.topology(3, 2)])

        self.assertEqual({
            'has 4 free dedicated CPUs, but on 2 NUMA cells': [0, 3],
            'lacks 4 free dedicated CPUs in a NUMA cell': [1],
            'has no NUMA cells': [2]}, self.reasons(hosts, cells.pinned(4)))

    def test_reason_names_distant_devices(self):
        self.assertEqual({
            'lacks room in NUMA cells near 1 PCI device of alias gpu': [0]},
            self.reasons(builders.hosts(
                numa_topology=[cells.topology(4, 0)],
                device_pools=[devices.pools([cells.pool(1, 1)])]),
                cells.pinned(4, pci_requests=cells.requested(
                    1, affinity='required'))))

    def test_reason_names_threads(self):
        hosts = builders.hosts(numa_topology=[cells.topology(8)])
        specs = {'hw:cpu_policy': 'dedicated',
                 'hw:cpu_thread_policy': 'require'}
        request = builders.request(vcpus=2, memory_mb=64, extra_specs=specs)
        stored = builders.request(
            vcpus=2, memory_mb=64, extra_specs=specs,
            numa_topology=documents.written_guest(
                cells.pinned(2).guest_topology()))

        self.assertEqual(
            {'lacks 2 free threads of whole cores in a NUMA cell': [0]},
            self.reasons(hosts, request))
        self.assertEqual({'has no CPUs with several threads': [0]},
                         self.reasons(hosts, stored))

    def test_claims_count_before_hosts_report(self):
        unused = cells.topology(8)
        hosts = builders.hosts(
            numa_topology=[unused] * 2, claims_hardware=[True] * 2, **{
                f'available:{name}': [float(total)] * 2 for name, total
                in units.inventory(unused, (), fit.Ratios()).items()})
        for expected in True, True, False:
            self.assertKeeps([expected, True], hosts, cells.pinned(4))
            used, _, ratios, _ = hardware.on_host(hosts, 0)
            placement = fit.fit(used, cells.pinned(4).hardware(), ratios)
            if placement is not None:
                hosts.take(0, units.amounts(used, placement), 'x')
