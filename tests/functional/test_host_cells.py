# SPDX-License-Identifier: Apache-2.0
"""Servers with dedicated CPUs on the NUMA cells of a host."""

import json
import uuid

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched import embedding
from cellsched.hardware import documents
from cellsched import objects
from cellsched.standalone import deployment
from cellsched.wiring import services
from tests.functional import base

HARDWARE = {'cells': [
    {'id': 0, 'memory_mb': 8192, 'cpus': '0-1', 'dedicated': '2-3'},
    {'id': 1, 'memory_mb': 8192, 'cpus': '4-5', 'dedicated': '6-7'}]}

#: Two dedicated CPUs in one cell.
TOPOLOGY = {
    'nova_object.name': 'InstanceNUMATopology',
    'nova_object.namespace': 'nova', 'nova_object.version': '1.3',
    'nova_object.data': {'emulator_threads_policy': None, 'cells': [{
        'nova_object.name': 'InstanceNUMACell',
        'nova_object.namespace': 'nova', 'nova_object.version': '1.6',
        'nova_object.data': {
            'id': 0, 'cpuset': [], 'pcpuset': [0, 1], 'memory': 512,
            'pagesize': None, 'cpu_policy': 'dedicated'}}]}}


class TestHostCells(base.TestCase):

    def setUp(self):
        super().setUp()
        # No filter of this deployment reads the topology of a request.
        self.deploy({'cell1': [deployment.DeployedHost(
            'a1', behaviour={'hardware': json.dumps(HARDWARE)})]},
            scheduler={'unmet_demands': 'ignore'})
        self.conductor = embedding.EmbeddedConductor(self.world.conf('api'))
        self.addCleanup(self.conductor.close)

    def built_with_cells(self):
        server = str(uuid.uuid4())
        self.conductor.accept(base.USER, {server: 'pinned'}, (
            objects.RequestSpec(flavor=objects.Flavor(
                id=1, flavorid='1', name='pinned', vcpus=1, memory_mb=512,
                root_gb=1, extra_specs={}), numa_topology=TOPOLOGY)))
        self.conductor.run(base.USER, [server])
        [found] = self.settled([server])
        return found

    def restart(self):
        former = self.world.agents['a1']
        former.stop()
        conf = self.world.conf('cell1', 'hosts/a1')
        parts = services.Components(conf)
        parts.driver = former.parts.driver
        agent = self.world.agents['a1'] = services.compute(conf, parts)
        agent.start()
        self.addCleanup(agent.stop)

    def problems(self):
        """Return the problems of the builds that failed on the host."""
        table = models.instance_actions_events
        return [details for details, in self.query('cell1', sa.select(
            table.c.details).where(
                table.c.host == 'a1', table.c.result == 'Error'))]

    def pinned(self):
        """Return the dedicated CPUs in use that the host has reported."""
        table = models.compute_nodes
        [[text]] = self.query('cell1', sa.select(table.c.numa_topology))
        return [sorted(cell.pinned) for cell in documents.host_topology(
            json.loads(text)).cells]

    def test_dedicated_cpus_belong_to_one_server_until_its_deletion(self):
        first, second = self.built_with_cells(), self.built_with_cells()
        self.assertEqual([('ACTIVE', 'a1')] * 2, [
            (server.status, server.host) for server in (first, second)])

        refused = self.built_with_cells()
        self.assertEqual('ERROR', refused.status)
        [problem] = self.problems()
        self.assertIn('its host has no NUMA cells with enough free CPUs and '
                      'memory', problem)
        self.assertHoldsNothing(refused.uuid)

        self.restart()
        self.assertEqual([[2, 3], [6, 7]], self.pinned())
        self.assertEqual('ERROR', self.built_with_cells().status)

        self.delete(first.uuid)
        self.gone(first.uuid)
        self.assertEqual('ACTIVE', self.built_with_cells().status)
