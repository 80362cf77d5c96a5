# SPDX-License-Identifier: Apache-2.0
import collections
import unittest

from cellsched.hardware import devices
from cellsched.hardware import fit
from tests import profile
from tests.unit.hardware import cases
from tests.unit.hardware import generated
from tests.unit.hardware import oracle

SEEDS = profile.size(300, 20_000)

#: Servers that a request places on one host.
SERVERS = 3


def _cores(cell, cpus):
    """Return the number of CPUs by core: which thread is taken is open."""
    return collections.Counter(
        number for number, core in enumerate(cell.siblings)
        for cpu in cpus if cpu in core)


def _shown(topology, placed, pools):
    """Return the resources of a server, and the usage of its host.

    :param topology: the host with the server
    :param placed: host cell, page size, pins and CPUs of the emulator
    """
    return {
        'cells': [(cell, size, _cores(topology.by_id[cell], pins),
                   _cores(topology.by_id[cell], reserved))
                  for cell, size, pins, reserved in placed],
        'usage': [(each.id, each.cpu_usage, each.memory_usage,
                   _cores(each, each.pinned), each.pages)
                  for each in topology.cells],
        'pools': pools and [{'count': each.count, **each.values}
                            for each in pools]}


def _expected(case):
    """Yield the resources of each server by the oracle; None without room."""
    cells, pools = case['host'], case['pools']
    for _ in range(SERVERS):
        answer = oracle.place(case, cells, pools)
        if answer is None:
            yield None
            return
        placed, cells, pools = answer
        after = {**case, 'host': cells, 'pools': pools}
        yield _shown(cases.host_topology(after), placed, cases.pools(after))


def _taken(case):
    """Yield the resources of each server; None without room."""
    topology, pools = cases.host_topology(case), cases.pools(case)
    demand, mappings = cases.demand(case), cases.mappings(case)
    for _ in range(SERVERS):
        placement = fit.fit(
            topology, demand, cases.ratios(case), pools, mappings)
        if placement is None:
            yield None
            return
        if demand.devices and pools is not None:
            pools = devices.take(
                pools, demand.devices, mappings,
                [each.host_cell for each in placement], topology)
        topology = fit.used(topology, placement)
        yield _shown(topology, [
            (each.host_cell, each.page_size,
             [cpu for _, cpu in each.pins.cpus], each.pins.reserved)
            for each in placement], pools)


class OracleTest(unittest.TestCase):
    def test_random_servers_take_the_same_as_by_the_oracle(self):
        fitting = 0
        for seed in range(SEEDS):
            case = generated.case(seed)
            with self.subTest(seed=seed):
                expected = list(_expected(case))
                self.assertEqual(expected, list(_taken(case)))
            fitting += expected[0] is not None
        # Cases that always or never fit prove little.
        self.assertGreater(fitting, SEEDS // 5)
        self.assertLess(fitting, SEEDS * 3 // 4)

    def test_random_devices_without_topology(self):
        for seed in range(SEEDS):
            case = generated.case(seed)
            if case['pools'] is None:
                continue
            with self.subTest(seed=seed):
                try:
                    expected = cases.pools({'pools': oracle.take(
                        case, case['pools'], None, case['host'])})
                except oracle.Misfit:
                    expected = None
                self.assertEqual(expected, devices.take(
                    cases.pools(case), cases.requests(case),
                    cases.mappings(case)))
