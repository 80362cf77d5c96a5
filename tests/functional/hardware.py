# SPDX-License-Identifier: Apache-2.0
"""The base of stories of servers with dedicated CPUs, pages and devices."""

import json

from cellsched.compute import places
from cellsched.hardware import description
from cellsched.hardware import units
from cellsched.wiring import services
from tests.functional import base
from tests.functional import moving

#: Has room for a server of the flavor ``telecom`` in each of two cells.
HARDWARE = {
    'cells': [{'id': cell, 'memory_mb': 8192,
               'cpus': f'{4 * cell},{4 * cell + 3}',
               'dedicated': f'{4 * cell + 1}-{4 * cell + 2}',
               'pages': [{'size_kb': 4, 'total': 2 ** 20},
                         {'size_kb': 2 ** 20, 'total': 2}]}
              for cell in (0, 1)],
    'devices': [{'vendor_id': '8086', 'product_id': '154c', 'count': 1,
                 'numa_node': cell} for cell in (0, 1)]}

TOPOLOGY = description.read('host', HARDWARE).topology

OPTIONS = {
    'filter_scheduler': {'enabled_filters': [
        'ComputeFilter', 'NUMATopologyFilter', 'PciPassthroughFilter']},
    'pci': {'alias': [json.dumps(
        {'name': 'nic', 'vendor_id': '8086', 'product_id': '154c'})]}}


class TestCase(moving.TestCase):

    def setUp(self):
        super().setUp()
        self.start({'cell1': self.hosts('a1', 'a2', behaviour={
            'hardware': json.dumps(HARDWARE)})}, **OPTIONS)
        flavors = self.world.api.flavors
        flavors.create(base.ADMIN, 'telecom', 2, 1024, 1)
        flavors.set_extra_specs(base.ADMIN, 'telecom', {
            'hw:cpu_policy': 'dedicated', 'hw:mem_page_size': '1GB',
            'pci_passthrough:alias': 'nic:1'})

    def placed(self, host):
        """Return what the servers on a host have, as its files say."""
        kept = places.PlaceFiles(
            self.world.agents[host].parts.conf.state_path).read()
        return {uuid: units.amounts(TOPOLOGY, place.cells, place.pools)
                for uuid, place in kept.items()}

    def restart(self, host):
        """Replace the agent of a host; its guests run on."""
        former = self.world.agents[host]
        former.stop()
        parts = services.Components(former.parts.conf, reached=self.reach)
        parts.driver = former.parts.driver
        agent = self.world.agents[host] = services.compute(parts.conf, parts)
        agent.start()
        self.addCleanup(agent.stop)

    def assertHas(self, uuid, host):
        """The server has the parts that its only claim names, on this host."""
        def check():
            held = self.holding(uuid)
            self.assertEqual({uuid}, held.keys())
            [claim] = held[uuid]
            self.assertEqual(self.provider('cell1', host), claim.provider)
            named = units.named(claim.resources)
            self.assertEqual(2, sum('PCPU' in name for name in named))
            self.assertEqual({host: named}, {
                name: kept[uuid] for name in self.world.agents
                if uuid in (kept := self.placed(name))})
            self.assertIn(
                uuid, self.driver(host).list_instances())

        self.soon(check)
        return self.placed(host)[uuid]

    def assertHasNone(self, uuid):
        """No host and no claim has parts of the server."""
        def check():
            self.assertEqual({}, self.holding(uuid))
            self.assertNotIn(uuid, {
                *self.placed('a1'), *self.placed('a2')})

        self.soon(check)
