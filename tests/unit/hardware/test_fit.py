# SPDX-License-Identifier: Apache-2.0
import unittest

from cellsched.hardware import devices
from cellsched.hardware import fit
from cellsched.hardware import guest
from cellsched.hardware import host
from tests.unit.hardware import cases


def _core(topology, cell, cpu):
    """Return the first CPU of a core: which thread is taken is open."""
    return min((min(each) for each in topology.by_id[cell].siblings
                if cpu in each), default=cpu)


def _shown(topology, cells):
    """Return host cell, page size and cores of each guest cell."""
    return [(cell, size, sorted(_core(topology, cell, each) for each in pins),
             [_core(topology, cell, each) for each in reserved])
            for cell, size, pins, reserved in cells]


def _placed(placement):
    return [(each.host_cell, each.page_size,
             [cpu for _, cpu in each.pins.cpus], sorted(each.pins.reserved))
            for each in placement]


def _expected(answer):
    return [(each['id'], each['pagesize'],
             [cpu for _, cpu in each['pinning']], each['reserved'])
            for each in answer['cells']]


def _usage(topology):
    return [(each.id, each.cpu_usage, each.memory_usage, len(each.pinned),
             [[pages.size_kb, pages.total, pages.used, pages.reserved]
              for pages in each.pages]) for each in topology.cells]


class FitTest(unittest.TestCase):
    def fitting(self):
        """Yield the cases with an answer, and the placement."""
        for case in cases.of_kind('numa'):
            topology = cases.host_topology(case)
            if topology is not None and 'fit' in case['expect']:
                yield case, topology, fit.fit(
                    topology, cases.demand(case), cases.ratios(case),
                    cases.pools(case), cases.mappings(case))

    def test_cells_and_cores_agree_with_nova(self):
        tried = 0
        for case, topology, placement in self.fitting():
            tried += 1
            expect = case['expect']
            answer = expect.get('pure_fit', expect['fit'])
            with self.subTest(case['name']):
                if answer is None:
                    self.assertIsNone(placement)
                    continue
                self.assertEqual(
                    _shown(topology, _expected(answer)),
                    _shown(topology, _placed(placement)))
        self.assertGreater(tried, 280)

    def test_usage_agrees_with_nova(self):
        tried = 0
        for case, topology, placement in self.fitting():
            after = case['expect'].get('host_after')
            if (placement is None or after is None
                    or 'pure_fit' in case['expect']):
                continue
            tried += 1
            with self.subTest(case['name']):
                self.assertEqual(
                    [(each['id'], each['cpu_usage'], each['memory_usage'],
                      len(each['pinned']), each['pages']) for each in after],
                    _usage(fit.used(topology, placement)))
        self.assertGreater(tried, 150)

    def test_servers_of_a_request_fill_a_host(self):
        # Nova: a page size that was resolved for the first server binds the
        # others, and a host that reports no pages never fills.
        better = {'fill-large-pages-same-spec': 4,
                  'fill-no-pages-reported': 16}
        for case in cases.of_kind('fill'):
            topology, pools = cases.host_topology(case), cases.pools(case)
            demand, places = cases.demand(case), []
            while len(places) < case.get('max', 64):
                placement = fit.fit(
                    topology, demand, cases.ratios(case), pools)
                if placement is None:
                    break
                places.append([
                    [cell, sorted(pins), reserved, size]
                    for cell, size, pins, reserved in _placed(placement)])
                topology = fit.used(topology, placement)
                if pools is not None:
                    pools = devices.take(
                        pools, demand.devices, None,
                        [each.host_cell for each in placement], topology)
            with self.subTest(case['name']):
                if case['name'] in better:
                    self.assertEqual(better[case['name']], len(places))
                else:
                    self.assertEqual(case['expect']['placements'], places)

    def test_far_devices_are_not_tried_in_every_order(self):
        # Twenty million orders have the same 495 sets of cells.
        cells = tuple(host.HostCell(
            number, frozenset([number]), frozenset(), 4096)
            for number in range(12))
        pools = devices.pools([
            {'vendor_id': '8086', 'count': 1, 'numa_node': 12}])
        request = devices.DeviceRequest(
            1, ({'vendor_id': '8086'},), 'nic', affinity=devices.REQUIRED)
        topology = guest.topology(8, 1024, {'hw:numa_nodes': '8'}, {})
        self.assertIsNone(fit.fit(
            host.HostTopology(cells), fit.Demand(topology, (request,)),
            pools=pools))

    def test_page_size_of_zero_is_any(self):
        cell = host.HostCell(0, frozenset(range(4)), frozenset(), 4096,
                             pages=(host.Pages(4, 1 << 20),))
        topology = guest.topology(
            2, 512, {'hw:numa_nodes': '1', 'hw:mem_page_size': '0'}, {})
        [placed] = fit.fit(
            host.HostTopology((cell,)), fit.Demand(topology))
        self.assertIsNone(placed.page_size)

    def test_refused_cell_does_not_decide_on_the_page_size(self):
        # Nova 34 keeps the size of the first cell, and refuses the host; see
        # findings/nova-page-size-of-a-refused-cell-stays.sh.
        cells = tuple(host.HostCell(
            number, frozenset(), cpus, 8192, pinned=pinned,
            siblings=tuple(frozenset([cpu]) for cpu in cpus),
            pages=(host.Pages(4, 1024), host.Pages(2048, 1024),
                   host.Pages(1048576, 4, used)))
            for number, cpus, pinned, used in (
                (0, frozenset({0, 1}), frozenset({0}), 0),
                (1, frozenset({2, 3}), frozenset(), 4)))
        pinned = guest.GuestCell(
            0, frozenset(), frozenset({0, 1}), 1024, guest.LARGE,
            guest.DEDICATED)
        for packs in False, True:
            [placed] = fit.fit(host.HostTopology(cells), fit.Demand(
                guest.GuestTopology((pinned,)), packs=packs))
            self.assertEqual(
                (1, 2048), (placed.host_cell, placed.page_size))

    def test_host_without_cores_has_no_dedicated_cpus(self):
        cell = host.HostCell(0, frozenset(), frozenset(range(4)), 4096)
        topology = guest.topology(
            2, 512, {'hw:cpu_policy': 'dedicated'}, {})
        self.assertIsNone(fit.fit(
            host.HostTopology((cell,)), fit.Demand(topology)))


class PinTest(unittest.TestCase):
    CORES = tuple(frozenset([number, number + 4]) for number in range(4))

    def pin(self, vcpus, policy=None, pinned=(), emulator=False):
        cell = host.HostCell(
            0, frozenset(), frozenset(range(8)), 1024,
            pinned=frozenset(pinned), siblings=self.CORES)
        pins = fit.pin(cell, guest.GuestCell(
            0, frozenset(), frozenset(range(vcpus)), 64,
            policy=guest.DEDICATED, thread_policy=policy), emulator)
        return pins and ([cpu for _, cpu in pins.cpus], list(pins.reserved))

    def test_threads_of_a_core_go_together(self):
        self.assertEqual(([1, 5, 2], []), self.pin(3, pinned=[4]))

    def test_scattered_threads_serve_without_policy_only(self):
        self.assertEqual(([0, 1, 2], []), self.pin(3, pinned=range(4, 8)))
        self.assertIsNone(self.pin(3, 'require', pinned=range(4, 8)))

    def test_cpu_of_the_emulator_comes_after_the_vcpus(self):
        self.assertEqual(([0, 4], [1]), self.pin(2, emulator=True))

    def test_cores_with_threads_are_not_isolated(self):
        self.assertIsNone(self.pin(2, 'isolate'))
