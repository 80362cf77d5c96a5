# SPDX-License-Identifier: Apache-2.0
"""Servers with dedicated CPUs on the NUMA cells of a host."""

import contextlib
import io
import json
import pathlib
import uuid

import sqlalchemy as sa

from cellsched.cli import app
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


#: A network device and a device for one use.
DEVICES = [
    {'vendor_id': '8086', 'product_id': '154c', 'count': 4, 'numa_node': 1,
     'dev_type': 'type-VF', 'tags': {'physical_network': 'red'}},
    {'vendor_id': '10de', 'product_id': '1db4', 'count': 1, 'numa_node': 1,
     'tags': {'address': '0000:81:00.0', 'one_time_use': 'yes'}}]


class HostCellsCase(base.TestCase):

    def restart(self, host='a1'):
        former = self.world.agents[host]
        former.stop()
        conf = self.world.conf('cell1', f'hosts/{host}')
        parts = services.Components(conf)
        parts.driver = former.parts.driver
        agent = self.world.agents[host] = services.compute(conf, parts)
        agent.start()
        self.addCleanup(agent.stop)


class TestHostCells(HostCellsCase):

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

    def test_dedicated_cpus_belong_to_a_server_until_its_deletion(self):
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


class TestClaimedCells(HostCellsCase):
    """Schedulers that select NUMA cells and claim the CPUs."""

    def setUp(self):
        super().setUp()
        self.deploy({'cell1': [deployment.DeployedHost(
            name, behaviour={'hardware': json.dumps(HARDWARE)})
            for name in ('a1', 'a2')], 'cell2': ['b1']},
            filter_scheduler={'enabled_filters': [
                'ComputeFilter', 'NUMATopologyFilter',
                'PciPassthroughFilter']})
        for name, vcpus in ('pinned', 2), ('wide', 3):
            self.world.api.flavors.create(base.ADMIN, name, vcpus, 512, 1)
            self.world.api.flavors.set_extra_specs(
                base.ADMIN, name, {'hw:cpu_policy': 'dedicated'})

    def claimed_cpus(self, servers):
        """Return the claimed CPUs of servers, with their hosts."""
        return [(each.host, sorted(
            int(name.rpartition('_')[2]) for claim in self.held(each.uuid)
            for name in claim.resources if name.startswith('CUSTOM_PCPU_')))
            for each in servers]

    def pinned_cpus(self):
        """Return the CPUs in use that the hosts have reported."""
        table = models.compute_nodes
        for name in ('a1', 'a2'):
            # A new agent reports at once.
            self.restart(name)
        found = {}
        for host, text in self.query('cell1', sa.select(
                table.c.host, table.c.numa_topology)):
            cells = documents.host_topology(json.loads(text)).cells
            found[host] = sorted(cpu for cell in cells for cpu in cell.pinned)
        return found

    def test_reason_names_the_missing_part_of_a_cell(self):
        [refused] = self.built(flavor='wide')

        self.assertEqual('ERROR', refused.status)
        self.assertIn('2 have 3 free dedicated CPUs, but on 2 NUMA cells (by '
                      '1 dedicated CPU)', refused.reason)

    def run_shell(self, *argv):
        """Return the JSON of a command."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = app.Shell(out, err).run([
                '--config-file',
                str(self.world.directory / 'etc' / 'api.conf'), *argv,
                '-f', 'json'])
        self.assertEqual(0, code, err.getvalue())
        return json.loads(out.getvalue())

    def test_operators_see_the_cells_of_servers(self):
        [server] = self.built(flavor='pinned')

        # 1. The host, with its server.
        first, second = self.run_shell('host', 'show', server.host)['Cells']
        self.assertEqual({'total': 2, 'free': 0}, first['dedicated_cpus'])
        self.assertEqual({'total': 2, 'free': 2}, second['dedicated_cpus'])
        self.assertEqual([server.uuid], list(dict.fromkeys(
            cpu['server'] for core in first['cores'] for cpu in core)))
        self.assertEqual([2, 3], first['servers'][0]['cpus'])
        # 2. The decision.
        explained = self.until(
            lambda: self.explained(server.uuid),
            'the decision is recorded')
        [part] = explained['picks'][0]['first']['hardware']
        self.assertEqual((0, [2, 3]), (part['cell'], part['cpus']))
        # 3. The other hosts, and the room on all of them.
        *_, row = self.run_shell('capacity', '--flavor', 'pinned')
        self.assertEqual(
            (3, 'lack dedicated CPUs'), (row['Servers'], row['Full Hosts']))
        report = self.run_shell('report')
        self.assertEqual(0, report['hosts']['full'])
        self.assertEqual([], [name for name in report['resources']
                              if name.startswith('CUSTOM_')])
        exported = self.world.directory / 'hosts.json'
        with contextlib.redirect_stdout(io.StringIO()):
            app.Shell(io.StringIO(), io.StringIO()).run([
                '--config-file',
                str(self.world.directory / 'etc' / 'api.conf'), 'host',
                'export', str(exported)])
        *_, row = self.run_shell('capacity', '--flavor', 'pinned',
                                 '--snapshot', str(exported))
        self.assertEqual(3, row['Servers'])

    def explained(self, uuid):
        try:
            return self.run_shell('explain', uuid)
        except AssertionError:
            return None

    def test_each_server_gets_its_claimed_cpus(self):
        servers = self.built(flavor='pinned', max_count=5)

        placed = [each for each in servers if each.status == 'ACTIVE']
        self.assertEqual(4, len(placed))
        self.assertEqual(
            [('a1', [2, 3]), ('a1', [6, 7]), ('a2', [2, 3]), ('a2', [6, 7])],
            sorted(self.claimed_cpus(placed)))
        self.assertEqual({'a1': [2, 3, 6, 7], 'a2': [2, 3, 6, 7]},
                         self.pinned_cpus())
        [refused] = [each for each in servers if each.status == 'ERROR']
        self.assertIn('3 lack dedicated CPUs', refused.reason)

        self.delete(placed[0].uuid)
        self.gone(placed[0].uuid)
        [again] = self.built(flavor='pinned')
        self.assertEqual(
            ('ACTIVE', placed[0].host), (again.status, again.host))


class TestDevices(HostCellsCase):
    """A port with a network device, and a device for one use."""

    def setUp(self):
        super().setUp()
        self.deploy({'cell1': [deployment.DeployedHost(
            'a1', behaviour={'hardware': json.dumps(
                {**HARDWARE, 'devices': DEVICES})})]},
            filter_scheduler={'enabled_filters': [
                'ComputeFilter', 'NUMATopologyFilter',
                'PciPassthroughFilter']})
        self.conductor = embedding.EmbeddedConductor(self.world.conf('api'))
        self.addCleanup(self.conductor.close)

    def built_with_devices(self):
        server = str(uuid.uuid4())
        self.conductor.accept(base.USER, {server: 'fast'}, (
            objects.RequestSpec(flavor=objects.Flavor(
                id=1, flavorid='1', name='fast', vcpus=1, memory_mb=512,
                root_gb=1, extra_specs={'hw:cpu_policy': 'dedicated'}),
                pci_requests={'requests': [
                    {'count': 1, 'request_id': 'port', 'spec': [{
                        'physical_network': 'red',
                        'remote_managed': 'False'}]},
                    {'count': 1, 'request_id': 'card', 'alias_name': 'card',
                     'spec': [{'vendor_id': '10de'}]}]})))
        self.conductor.run(base.USER, [server])
        [found] = self.settled([server])
        return found

    def test_driver_gets_the_devices_until_the_card_is_used(self):
        server = self.built_with_devices()
        self.assertEqual('ACTIVE', server.status, server.reason)
        driver = self.world.agents['a1'].parts.driver
        topology, devices = driver.hardware_of(server.uuid)
        [cell] = topology.cells
        self.assertEqual((1, {0: 6}), (cell.id, cell.cpu_pinning))
        self.assertEqual(
            [('port', 'type-VF', None), ('card', 'type-PCI', '0000:81:00.0')],
            [(each.request_id, each.dev_type, each.address)
             for each in devices])

        self.delete(server.uuid)
        self.gone(server.uuid)
        self.restart()
        self.assertEqual('ERROR', self.built_with_devices().status)

        [path] = pathlib.Path(self.world.agents['a1'].parts.conf.state_path,
                              'used_devices').iterdir()
        path.unlink()
        self.restart()
        self.assertEqual('ACTIVE', self.built_with_devices().status)
