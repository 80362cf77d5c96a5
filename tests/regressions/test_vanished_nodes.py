# SPDX-License-Identifier: Apache-2.0
"""A node that its driver no longer reports gets no more servers."""

import dataclasses

from cellsched.objects import resources
from cellsched.virt import fake
from tests.functional import base
from tests.regressions import machines

NODE = '11111111-1111-4111-8111-111111111111'


class TestVanishedNode(machines.TestCase):

    def setUp(self):
        super().setUp()
        # The test lets the agents report, one report at a time.
        self.begin({'cell1': ['a1', 'a2'], 'cell2': ['b1']},
                   DEFAULT={'report_interval': 3600,
                            'service_down_time': 7200},
                   scheduler=base.READ_EACH_TIME)
        flavors = self.world.api.flavors
        flavors.create(base.ADMIN, 'metal', 1, 512, 0)
        flavors.set_extra_specs(base.ADMIN, 'metal', {
            'resources:VCPU': '0', 'resources:MEMORY_MB': '0',
            'resources:DISK_GB': '0', 'resources:CUSTOM_METAL': '1'})

    def has(self, host, *nodes, **uuids):
        """Let a driver report bare-metal nodes; wait for the report."""
        conf = self.world.agents[host].parts.conf
        [one] = fake.FakeDriver(conf, base.CLOCK).nodes().values()
        one = dataclasses.replace(
            one, vcpus=0, memory_mb=0, local_gb=0,
            inventories={'CUSTOM_METAL': resources.Inventory(1)})
        self.driver(host).nodes = lambda: {
            node: dataclasses.replace(one, uuid=uuids.get(node))
            for node in nodes}
        self.report(host)

    def metal(self, status='ACTIVE'):
        [found] = self.built(flavor='metal')
        self.assertEqual(status, found.status)
        return found.uuid

    def capacity(self, provider):
        return self.world.api.parts.claims.inventories([provider]).get(
            provider, {}).get('CUSTOM_METAL', resources.Inventory(0)).capacity

    def test_vanished_node_gets_no_server_and_loses_its_row(self):
        self.has('a1', 'node-1', 'node-2')
        [first] = self.provider_of('a1', node='node-1')

        self.has('a1', 'node-2')

        self.assertEqual('node-2', self.row(self.metal()).node)
        self.metal('ERROR')
        self.assertEqual([], self.provider_of('a1', node='node-1'))
        self.assertEqual(0, self.capacity(first))

    def test_vanished_node_with_a_server_keeps_its_row(self):
        self.has('a1', 'node-1')
        uuid = self.metal()
        [provider] = self.provider_of('a1', node='node-1')

        self.has('a1', 'node-2')

        self.assertEqual([provider], self.provider_of('a1', node='node-1'))
        self.assertEqual([provider], [
            claim.provider for claim in self.held(uuid)])
        self.assertEqual('node-2', self.row(self.metal()).node)
        self.assertIn(('node-vanished', provider), self.audited())
        self.assertEqual(
            {'node-2', 'a2', 'b1'},
            {each.name for each in self.world.api.providers.list(
                base.ADMIN).providers})

        self.delete(uuid)
        self.gone(uuid)
        self.report('a1')
        self.assertEqual([], self.provider_of('a1', node='node-1'))
        self.assertNotIn('node-vanished', dict(self.audited()))

    def test_node_with_a_uuid_takes_its_server_to_another_agent(self):
        self.has('a1', 'node-1', **{'node-1': NODE})
        uuid = self.metal()
        self.has('a2', 'renamed', renamed=NODE)
        self.assertEqual([], self.provider_of('a2', node='renamed'))

        self.has('a1')
        self.report('a2')

        self.assertEqual([NODE], self.provider_of('a2', node='renamed'))
        self.assertEqual([], self.provider_of('a1', node='node-1'))
        row = self.row(uuid)
        self.assertEqual(('a2', 'renamed'), (row.host, row.node))
        self.assertEqual([NODE], [each.provider for each in self.held(uuid)])
        self.metal('ERROR')

    def test_node_with_a_reused_name_gets_no_server(self):
        self.has('a1', 'node-1', **{'node-1': NODE})
        uuid = self.metal()

        other = NODE.replace('1', '2')
        self.has('a1', 'node-1', **{'node-1': other})

        self.assertEqual([NODE], self.provider_of('a1', node='node-1'))
        self.assertEqual(0, self.capacity(other))
        self.metal('ERROR')

        self.delete(uuid)
        self.gone(uuid)
        self.has('a1', 'node-1', **{'node-1': other})

        self.assertEqual([other], self.provider_of('a1', node='node-1'))
        self.metal()

    def test_node_with_a_uuid_moves_to_another_cell(self):
        self.has('a1', 'node-1', **{'node-1': NODE})
        self.has('b1', 'node-1', **{'node-1': NODE})

        # The former host empties it after the new host has reported it.
        self.has('a1')
        self.assertEqual(0, self.capacity(NODE))
        self.report('b1')

        self.assertEqual(1, self.capacity(NODE))
        [found] = self.built(flavor='metal')
        self.assertEqual(('ACTIVE', 'b1'), (found.status, found.host))
