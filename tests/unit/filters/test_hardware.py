# SPDX-License-Identifier: Apache-2.0
"""NUMATopologyFilter and PciPassthroughFilter."""

from cellsched import exception
from cellsched.filters import hardware
from cellsched.hardware import devices
from cellsched.hardware import documents
from cellsched.hardware import host
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base


def topology(*free, threads=1):
    """Return a host whose cells have these free CPUs of 8 dedicated ones."""
    return host.HostTopology(tuple(
        host.HostCell(
            number, frozenset(), frozenset(range(8)), 8192,
            pinned=frozenset(range(8 - count)),
            siblings=tuple(frozenset(range(first, first + threads))
                           for first in range(0, 8, threads)))
        for number, count in enumerate(free)))


def pool(count, node=0, **tags):
    return {'vendor_id': '10de', 'product_id': '20b5', 'numa_node': node,
            'count': count, **tags}


def pinned(vcpus, cells=1, **more):
    """Return a request for dedicated CPUs."""
    return builders.request(vcpus=vcpus, memory_mb=64, extra_specs={
        'hw:cpu_policy': 'dedicated', 'hw:numa_nodes': str(cells)}, **more)


def requested(*counts, affinity=None):
    """Return the document of requests for devices."""
    return documents.written_requests([devices.DeviceRequest(
        count, ({'vendor_id': '10de'},), 'gpu', affinity=affinity)
        for count in counts])


class TestNUMATopologyFilter(filters.FilterSuite, base.TestCase):

    plugin = hardware.NUMATopologyFilter

    def test_host_needs_cells_for_all_guest_cells(self):
        hosts = builders.hosts(numa_topology=[
            topology(8), topology(2, 2), topology(4, 3), topology(4, 4),
            None])

        self.assertKeeps([True, False, True, True, False], hosts, pinned(4))
        self.assertKeeps(
            [False, False, False, True, False], hosts, pinned(8, cells=2))

    def test_request_without_cells_may_go_anywhere(self):
        self.assertFalse(builders.plugin(self.plugin).applies(
            builders.request()))

    def test_document_of_the_request_is_read(self):
        request = pinned(4)
        request.numa_topology = documents.written_guest(
            request.hardware().topology)
        request.flavor.extra_specs = {}

        self.assertKeeps([True, False], builders.hosts(
            numa_topology=[topology(4), topology(3)]), request)

    def test_ratio_of_each_host_counts(self):
        cell = host.HostCell(0, frozenset(range(4)), frozenset(), 4096,
                             cpu_usage=4)
        request = builders.request(
            vcpus=2, memory_mb=64, extra_specs={'hw:numa_nodes': '1'})

        self.assertKeeps([True, False], builders.hosts(
            numa_topology=[host.HostTopology((cell,))] * 2,
            cpu_allocation_ratio=[2.0, 1.0]), request)

    def test_devices_must_be_near(self):
        request = pinned(4, pci_requests=requested(1, affinity='required'))

        self.assertKeeps([True, False], builders.hosts(
            numa_topology=[topology(4, 0)] * 2,
            device_pools=[devices.pools([pool(1, node)]) for node in (0, 1)]),
            request)

    def test_threads_are_required_by_the_raw_values(self):
        request = builders.request(vcpus=2, memory_mb=64, extra_specs={
            'hw:cpu_policy': 'dedicated', 'hw:cpu_thread_policy': 'require'})

        self.assertKeeps([False, True], builders.hosts(
            numa_topology=[topology(8), topology(8, threads=2)]), request)

    def test_limits_are_the_ratios_of_the_host(self):
        hosts = builders.hosts(numa_topology=[topology(8)],
                               cpu_allocation_ratio=[4.0])
        [limit] = builders.plugin(self.plugin).limits(
            hosts, pinned(2))['numa_topology']

        self.assertEqual(
            {'cpu_allocation_ratio': 4.0, 'ram_allocation_ratio': 1.0},
            limit['nova_object.data'])

    def test_impossible_topology_is_refused(self):
        with self.assertRaisesRegex(
                exception.HardwareRequestInvalid, 'evenly distributed'):
            builders.plugin(self.plugin).applies(pinned(3, cells=2))

    def test_reason_counts_hosts_by_the_missing_part(self):
        hosts = builders.hosts(numa_topology=[
            topology(3, 3), topology(2), None])

        self.assertEqual(
            'lacks 4 free dedicated CPUs in a NUMA cell (2 of them), '
            'has no NUMA cells (1 of them)',
            builders.plugin(self.plugin).reason_for(hosts, pinned(4)))

    def test_servers_of_the_request_count(self):
        hosts = builders.hosts(numa_topology=[topology(4, 4), topology(8)])
        for _ in range(2):
            hosts.take(0, {'PCPU': 4}, 'x')

        self.assertKeeps([False, True], hosts, pinned(4))


class TestPciPassthroughFilter(filters.FilterSuite, base.TestCase):

    plugin = hardware.PciPassthroughFilter

    def hosts(self):
        return builders.hosts(device_pools=[
            (), devices.pools([pool(1), pool(1, 1)]),
            devices.pools([pool(3)])])

    def test_host_needs_all_devices(self):
        self.assertKeeps([False, True, True], self.hosts(), builders.request(
            pci_requests=requested(2)))

    def test_two_requests_do_not_share_a_device(self):
        self.assertKeeps([False, False, True], self.hosts(), builders.request(
            pci_requests=requested(2, 1)))

    def test_request_without_devices_may_go_anywhere(self):
        self.assertFalse(builders.plugin(self.plugin).applies(
            builders.request(pci_requests=requested())))

    def test_alias_without_requests_is_refused(self):
        request = builders.request(extra_specs={
            'pci_passthrough:alias': 'gpu:1'})

        with self.assertRaisesRegex(exception.InvalidField, 'pci_requests'):
            builders.plugin(self.plugin).applies(request)

    def test_reason_names_the_alias_and_the_numbers(self):
        self.assertEqual(
            'has at most 3 of the 4 PCI devices of alias gpu',
            builders.plugin(self.plugin).reason_for(
                self.hosts(), builders.request(pci_requests=requested(4))))

    def test_servers_of_the_request_count(self):
        hosts = self.hosts()
        hosts.take(2, {'VCPU': 1}, 'x')

        self.assertKeeps([False, True, False], hosts, builders.request(
            pci_requests=requested(2)))
