# SPDX-License-Identifier: Apache-2.0
"""Reporting what a host has, when it has changed, and that it is alive."""

import contextlib
import json
import types

from cellsched.claims import base as claims_base
from cellsched.claims import base as claims
from cellsched.compute import host_name
from cellsched.compute import places
from cellsched.compute import provider_config
from cellsched.compute import tracker
from cellsched.db.cell import hosts
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched.db import session
from cellsched import exception
from cellsched.hardware import description
from cellsched.hardware import devices
from cellsched.hardware import documents
from cellsched.hardware import units
from cellsched.host_manager import node_columns
from cellsched import migrations
from cellsched.objects import child_providers
from cellsched.objects import resources
from cellsched.rpc import compute
from cellsched.virt import base as virt
from tests.unit import base
from tests.unit.compute import tracking
from tests.unit.db import recording
from tests.unit.db import samples

CELLS = [{'id': 0, 'memory_mb': 64, 'cpus': '0', 'dedicated': '2-3'},
         {'id': 1, 'memory_mb': 32, 'cpus': '1', 'dedicated': '5'}]

NICS = {'vendor_id': '8086', 'product_id': '154c', 'count': 2, 'numa_node': 0}

TOPOLOGY, DEVICES = description.read(
    'test', {'cells': CELLS, 'devices': [NICS]})

GUEST = {'cells': [{'id': 0, 'cpuset': [], 'pcpuset': [0], 'memory': 32,
                    'cpu_policy': 'dedicated'}]}

#: The uuid that the host keeps.
HOST_ID = '22222222-2222-4222-8222-222222222222'


class Losing(session.Database):
    """Has so many of its next transactions lose as ``left`` says."""

    left = 0

    @contextlib.contextmanager
    def writer(self):
        with super().writer() as connection:
            yield connection
            if self.left:
                self.left -= 1
                raise exception.TransactionLost(
                    schema=self.schema, reason='another one was faster')


class TestTracker(tracking.TrackerTestCase):

    def test_report_is_repeated_after_a_conflict(self):
        self.cell = Losing(self.cell.url, 'cell', clock=self.clock)
        self.addCleanup(self.cell.close)
        self.cell.left = 3

        self.tracker().report()

        self.assertEqual(0, self.cell.left)
        self.assertEqual(1, len(self.rows(models.compute_nodes)))
        [service] = self.rows(models.services)
        self.assertEqual(1, service.report_count)

    def test_report_with_endless_conflicts_fails(self):
        self.cell = Losing(self.cell.url, 'cell', clock=self.clock)
        self.addCleanup(self.cell.close)
        self.cell.left = 1000

        self.assertRaises(exception.TransactionLost, self.tracker().report)

        self.assertLess(900, self.cell.left)

    def capacities(self, **options):
        self.tracker(**options).report()
        [node] = self.rows(models.compute_nodes)
        [usage] = self.claims.usages(providers=[node.uuid]).usages
        return usage.capacity

    def test_node_service_and_inventory_are_reported(self):
        self.tracker(reserved_host_memory_mb=0).report()

        [node] = self.rows(models.compute_nodes)
        self.assertEqual(
            ('host1', 'node1', 4, 8192, 100, 0, 0, 0, 'kind', 7),
            (node.host, node.hypervisor_hostname, node.vcpus, node.memory_mb,
             node.local_gb, node.vcpus_used, node.memory_mb_used,
             node.local_gb_used, node.hypervisor_type,
             node.hypervisor_version))
        [service] = self.rows(models.services)
        self.assertEqual(
            ('host1', 'nova-compute', 'compute', 1, self.clock.now(),
             compute.SERVICE_VERSION),
            (service.host, service.binary, service.topic,
             service.report_count, service.last_seen_up, service.version))
        self.assertEqual([node.uuid], [
            usage.provider for usage in self.claims.usages().usages])

    def test_service_is_reported_each_time_and_the_rest_once(self):
        reports = self.tracker()
        for _ in range(3):
            self.clock.advance(10)
            reports.report()

        [service] = self.rows(models.services)
        self.assertEqual((3, self.clock.now()), (
            service.report_count, service.last_seen_up))
        [node] = self.rows(models.compute_nodes)
        self.assertLess(node.updated_at, self.clock.now())
        self.assertEqual(1, self.claims.said)

    def test_changed_node_is_reported_with_its_uuid(self):
        reports = self.tracker(initial_cpu_allocation_ratio=1.0)
        reports.report()
        [before] = self.rows(models.compute_nodes)

        self.driver.found = {'node1': virt.NodeResources(16, 8192, 100)}
        reports.report()

        [after] = self.rows(models.compute_nodes)
        self.assertEqual((before.uuid, 16), (after.uuid, after.vcpus))
        [usage] = self.claims.usages().usages
        self.assertEqual((after.uuid, 16), (
            usage.provider, usage.capacity['VCPU']))

    def test_restarted_agent_keeps_its_uuids(self):
        self.tracker().report()
        before = [row.uuid for row in self.rows(models.compute_nodes)]
        services = [row.uuid for row in self.rows(models.services)]

        self.tracker().report()

        self.assertEqual(
            before, [row.uuid for row in self.rows(models.compute_nodes)])
        self.assertEqual(
            services, [row.uuid for row in self.rows(models.services)])

    def test_each_node_of_a_host_is_reported(self):
        self.driver.found = {
            f'node{number}': virt.NodeResources(number, 1024, 10)
            for number in (1, 2, 3)}

        self.tracker().report()

        rows = self.rows(models.compute_nodes)
        self.assertEqual(
            [('host1', 'node1', 1), ('host1', 'node2', 2),
             ('host1', 'node3', 3)],
            [(row.host, row.hypervisor_hostname, row.vcpus) for row in rows])
        self.assertEqual(
            {row.uuid for row in rows},
            {usage.provider for usage in self.claims.usages().usages})

    def test_host_is_not_up_before_its_inventory_is_known(self):
        self.claims.failure = exception.DatabaseUnreachable(
            schema='claims', url='x', reason='y')
        reports = self.tracker()

        self.assertRaises(exception.DatabaseUnreachable, reports.report)
        self.assertEqual([], self.rows(models.services))

        self.claims.failure = None
        reports.report()
        self.assertEqual(1, len(self.rows(models.services)))
        self.assertEqual(1, self.claims.said)

    def test_capacity_follows_ratios_and_reservations(self):
        for fact, options, expected in (
                ('initial ratios are the default', {
                    'initial_cpu_allocation_ratio': 2.0,
                    'initial_ram_allocation_ratio': 1.5,
                    'initial_disk_allocation_ratio': 3.0,
                    'reserved_host_memory_mb': 0}, (8, 12288, 300)),
                ('a ratio of zero is as good as none', {
                    'cpu_allocation_ratio': 0.0,
                    'initial_cpu_allocation_ratio': 2.0,
                    'reserved_host_memory_mb': 0}, (8, 8192, 100)),
                ('a reservation above the total leaves no capacity', {
                    'reserved_host_cpus': 5, 'reserved_host_memory_mb': 10000,
                    'reserved_host_disk_mb': 1024000}, (0, 0, 0))):
            with self.subTest(fact):
                self.assertEqual(
                    dict(zip(('VCPU', 'MEMORY_MB', 'DISK_GB'), expected)),
                    self.capacities(**options))

    def test_configured_ratios_override_the_initial_ratios(self):
        self.assertEqual(
            {'VCPU': 12, 'MEMORY_MB': 4096, 'DISK_GB': 200},
            self.capacities(
                cpu_allocation_ratio=3.0, ram_allocation_ratio=0.5,
                disk_allocation_ratio=2.0, reserved_host_memory_mb=0))
        [node] = self.rows(models.compute_nodes)
        self.assertEqual((3.0, 0.5, 2.0), (
            node.cpu_allocation_ratio, node.ram_allocation_ratio,
            node.disk_allocation_ratio))

    def test_initial_ratio_of_zero_is_refused_without_a_report(self):
        error = self.assertRaises(
            exception.ConfigurationInvalid,
            self.tracker(initial_disk_allocation_ratio=0.0).report)

        self.assertEqual(
            '[DEFAULT] initial_disk_allocation_ratio', error.field)
        self.assertEqual([], self.rows(models.compute_nodes))

    def test_node_with_disk_transfers_has_a_trait(self):
        # The trait of the driver's nodes does not count.
        self.offer(traits={migrations.TRANSFER_TRAIT})
        reports = self.tracker()
        for able in True, False:
            self.driver.supports_migration = able
            reports.report()

            [row] = self.rows(models.compute_nodes)
            self.assertEqual(able, migrations.TRANSFER_TRAIT in row.traits)

    def test_reserved_amounts_reduce_the_capacity(self):
        self.assertEqual(
            {'VCPU': 3, 'MEMORY_MB': 8192 - 512, 'DISK_GB': 98},
            self.capacities(
                initial_cpu_allocation_ratio=1.0, reserved_host_cpus=1,
                reserved_host_memory_mb=512, reserved_host_disk_mb=1025))
        [node] = self.rows(models.compute_nodes)
        self.assertEqual(
            (512, 8192 - 512, 2, 98),
            (node.memory_mb_used, node.free_ram_mb, node.local_gb_used,
             node.free_disk_gb))

    def test_no_server_may_be_larger_than_the_host(self):
        self.capacities(initial_cpu_allocation_ratio=4.0)
        [node] = self.rows(models.compute_nodes)

        self.assertRaises(
            exception.ClaimRefused, self.claims.claim,
            [claims_base.Claim(
                samples.uuids(1)[0], node.uuid, {'VCPU': 5})])

    def inventories(self, files=None, **resources_):
        """Report a node; return its inventories in the claim store."""
        self.offer(inventories=resources_)
        self.tracker(files).report()
        [node] = self.rows(models.compute_nodes)
        [usage] = self.claims.usages(providers=[node.uuid]).usages
        return {name: (most, usage.units.get(name))
                for name, most in usage.capacity.items()
                if name not in ('MEMORY_MB', 'DISK_GB')}

    def files(self, **inventories):
        return self.entry(inventories={'additional': [inventories]})

    def entry(self, **fields):
        return self.provider_files({'uuid': '$COMPUTE_NODE'}, **fields)

    def node(self, files=None, places_=None, **fields):
        """Report a node; return its row."""
        self.offer(**fields)
        self.tracker(files, places_=places_).report()
        [node] = self.rows(models.compute_nodes)
        return node

    def test_node_without_hardware_reports_none(self):
        node = self.node()

        self.assertEqual((None, None, 4), (
            node.numa_topology, node.pci_stats, node.vcpus))
        self.assertNotIn('PCPU', self.inventories())

    def test_cells_and_devices_of_driver_or_file_are_reported(self):
        value = {'cells': CELLS, 'devices': [NICS]}
        described = description.read('test', value)
        for files, fields in ((self.entry(hardware=value), {}),
                              (None, described._asdict())):
            node = self.node(files, **fields)

            self.assertEqual(
                (described.topology, devices.reported(described.devices)), (
                    documents.host_topology(json.loads(node.numa_topology)),
                    documents.device_pools(json.loads(node.pci_stats))))
            self.assertEqual(2, self.read_of_schedulers(
                node)['free_pci_devices'][0])

    def read_of_schedulers(self, node):
        with self.cell.reader() as connection:
            return node_columns.of_nodes(
                hosts.changes(connection).nodes, 'cell1')

    def test_hardware_of_the_driver_overrides_the_file(self):
        for name, fields in (('cells', {'topology': TOPOLOGY}),
                             ('devices', {'devices': DEVICES})):
            other = self.entry(hardware={
                'cells': [{'id': 7, 'memory_mb': 1}],
                'devices': [{**NICS, 'count': 9, 'numa_node': None}]})
            tracker = self.tracker(other)
            self.offer(**fields)
            before = self.logs.output
            for _ in range(2):
                tracker.report()

            [line] = self.logs.output.removeprefix(before).splitlines()
            self.assertIn(f'configuration of {name} on node node1 is '
                          'ignored', line)
            [node] = self.rows(models.compute_nodes)
            reported = (documents.host_topology(json.loads(
                node.numa_topology)), documents.device_pools(json.loads(
                    node.pci_stats)))
            if 'topology' in fields:
                self.assertEqual(TOPOLOGY, reported[0])
            else:
                self.assertEqual(devices.reported(DEVICES), reported[1])

    def test_dedicated_cpus_are_inventory_of_their_own(self):
        node = self.node(topology=TOPOLOGY)

        [usage] = self.claims.usages(providers=[node.uuid]).usages
        self.assertEqual(
            (2, 8.0, 3), (node.vcpus, usage.capacity['VCPU'],
                          usage.capacity['PCPU']))
        self.assertEqual(3, usage.units['PCPU'].max_unit)

    def test_cells_without_dedicated_cpus_change_no_inventory(self):
        cells = [{'id': 0, 'memory_mb': 64, 'cpus': '0-1'}]
        node = self.node(topology=description.read(
            'test', {'cells': cells}).topology)

        [usage] = self.claims.usages(providers=[node.uuid]).usages
        self.assertEqual((4, 16), (node.vcpus, usage.capacity['VCPU']))
        self.assertNotIn('PCPU', usage.capacity)

    def test_traits_of_cells_are_reported(self):
        for fields, traits in (
                ({'siblings': 2}, {'HW_CPU_HYPERTHREADING'}),
                ({'socket': 0}, {'COMPUTE_SOCKET_PCI_NUMA_AFFINITY'}),
                ({}, set())):
            topology = description.read('test', {'cells': [
                {'id': 0, 'memory_mb': 64, 'cpus': '0-1', **fields}]}).topology
            self.assertEqual(traits, set(json.loads(self.node(
                topology=topology).traits)) - tracker.TRAITS)

    def test_usage_of_servers_is_in_the_next_report(self):
        kept = places.Places()
        fields = {'topology': TOPOLOGY, 'devices': DEVICES}
        before = self.node(places_=kept, **fields)
        [uuid] = samples.uuids(1)

        kept.place(uuid, 'node1', places.request_of(GUEST, None))
        kept.place(samples.uuids(1)[0], 'node1', places.request_of(
            None, {'requests': [{'count': 2, 'spec': [{
                'vendor_id': '8086'}]}]}))
        used = self.node(places_=kept, **fields)
        kept.remove(uuid)
        after = self.node(places_=kept, **fields)

        _, cell = documents.host_topology(json.loads(used.numa_topology)).cells
        self.assertEqual(({5}, 32), (cell.pinned, cell.memory_usage))
        self.assertEqual([0], [each.count for each in documents.device_pools(
            json.loads(used.pci_stats))])
        self.assertEqual(before.numa_topology, after.numa_topology)

    def test_used_device_is_reserved_in_the_inventory(self):
        directory = self.temporary_directory()
        kept = places.Places(places.PlaceFiles(str(directory)))
        described = description.read('test', {'devices': [{
            'vendor_id': '10de', 'product_id': '1db4', 'count': 1, 'tags': {
                'address': '0000:81:00.0', 'one_time_use': 'true'}}]}).devices
        [card] = devices.reported(described)

        def capacity():
            node = self.node(places_=kept, devices=described)
            [usage] = self.claims.usages(providers=[node.uuid]).usages
            return usage.capacity.get(units.device(card), 0)

        self.assertEqual(1, capacity())
        [uuid] = samples.uuids(1)
        kept.place(uuid, 'node1', places.request_of(None, {'requests': [{
            'count': 1, 'spec': [{'vendor_id': '10de'}]}]}))
        self.assertEqual(1, capacity())
        kept.remove(uuid)
        self.assertEqual(0, capacity())

    def test_ports_find_network_devices(self):
        value = {'devices': [
            {**NICS, 'dev_type': 'type-VF', 'tags': {
                'physical_network': 'red'}},
            {**NICS, 'dev_type': 'type-VF', 'tags': {
                'physical_network': 'blue', 'remote_managed': 'true'}}]}
        node = self.node(self.entry(hardware=value))

        self.assertIn('COMPUTE_REMOTE_MANAGED_PORTS', node.traits)
        pools = documents.device_pools(json.loads(node.pci_stats))
        # Nova's request of a port with the type "direct".
        [request] = documents.device_requests([{'count': 1, 'spec': [
            {'physical_network': 'red', 'remote_managed': 'False'}]}])
        self.assertEqual([True, False], [
            request.describes(each) and request.allows(each)
            for each in sorted(pools, key=lambda pool: pool.values[
                'physical_network'], reverse=True)])

    def test_missing_hardware_of_servers_is_logged_once(self):
        kept = places.Places()
        self.node(places_=kept, topology=TOPOLOGY)
        [uuid] = samples.uuids(1)
        kept.place(uuid, 'node1', places.request_of(GUEST, None))
        before = self.logs.output
        tracker = self.tracker(places_=kept)
        self.driver.found = {'node1': virt.NodeResources(4, 8192, 100)}
        for _ in range(2):
            tracker.report()

        [line] = self.logs.output.removeprefix(before).splitlines()
        self.assertIn(f'does not offer the dedicated CPUs 2 of server {uuid}',
                      line)

    def test_other_classes_come_from_driver_and_files(self):
        self.assertEqual(
            {'VCPU': (16, resources.Units(1, 4, 1)),
             'VGPU': (4, resources.Units(2, 4, 2)),
             'CUSTOM_A': (1, None),
             'CUSTOM_B': (6, resources.Units(1, 3, 1))},
            self.inventories(
                self.files(CUSTOM_B={'total': 3, 'allocation_ratio': 2}),
                VGPU=resources.Inventory(
                    4, min_unit=2, max_unit=4, step_size=2),
                CUSTOM_A=resources.Inventory(1)))

    def test_driver_overrides_the_inventory_of_a_class(self):
        self.assertEqual(
            {'VCPU': (2, resources.Units(1, 1, 1)),
             'PCPU': (2, resources.Units(1, 2, 1))},
            self.inventories(VCPU=resources.Inventory(2, max_unit=1),
                             PCPU=resources.Inventory(2, max_unit=2)))

    def test_file_entry_for_a_class_of_the_driver_is_ignored_once(self):
        files = self.files(CUSTOM_A={'total': 9}, CUSTOM_B={'total': 9})
        for _ in range(2):
            found = self.inventories(
                files, CUSTOM_A=resources.Inventory(1))
            self.assertEqual((1, None), found['CUSTOM_A'])
            self.assertEqual(9, found['CUSTOM_B'][0])
        before = self.logs.output
        tracker = self.tracker(files)
        for _ in range(2):
            tracker.report()
        [line] = self.logs.output.removeprefix(before).splitlines()
        self.assertIn('CUSTOM_A on node node1 is ignored', line)

    def test_class_removed_from_a_file_has_no_capacity(self):
        files = self.files(CUSTOM_A={'total': 9})
        self.assertIn('CUSTOM_A', self.inventories(files))

        self.assertNotIn('CUSTOM_A', self.inventories(self.files()))

    def test_host_without_resources_is_reported(self):
        self.driver.found = {'node1': virt.NodeResources(0, 0, 0)}

        self.assertEqual(
            {'VCPU': 0, 'MEMORY_MB': 0, 'DISK_GB': 0}, self.capacities())


def gpu(total=4, *traits, parent=None):
    return virt.ChildProvider(
        {'VGPU': resources.Inventory(total)}, frozenset(traits), parent)


class TestChildren(tracking.TrackerTestCase):

    def have(self, **providers):
        self.offer(providers=providers)

    def node(self):
        return [row for row in self.rows(models.compute_nodes)
                if not row.deleted][-1]

    def children(self):
        """Return names, parents and traits as the cell has them."""
        found = child_providers.load(self.node().providers)
        names = {child.uuid: child.name for child in found}
        return {child.name: (names.get(child.parent), child.traits)
                for child in found}

    def room(self):
        """Return room of VGPU by the children of all nodes there were."""
        names = {
            child_providers.uuid_of(row.uuid, name): name
            for row in self.rows(models.compute_nodes)
            for name in ('gpu0', 'gpu1', 'vf0')}
        return {names[usage.provider]: usage.capacity.get('VGPU', 0)
                for usage in self.claims.usages().usages
                if usage.provider in names}

    def test_children_are_reported_to_cell_and_claim_store(self):
        self.have(gpu0=gpu(4, 'HW_A'), vf0=gpu(1, parent='gpu0'))

        self.tracker().report()

        self.assertEqual(
            {'gpu0': (None, {'HW_A'}), 'vf0': ('gpu0', frozenset())},
            self.children())
        self.assertEqual({'gpu0': 4, 'vf0': 1}, self.room())

    def find(self, *required, **amounts):
        return self.claims.find_providers(claims.ProviderQuery(
            {name: [amount] for name, amount in amounts.items()},
            frozenset(required)))

    def test_traits_are_reported_to_the_claim_store_with_the_tree(self):
        self.have(gpu0=gpu(4, 'HW_A'))
        reports = self.tracker()

        reports.report()

        node = self.node().uuid
        self.assertEqual([node], self.find('COMPUTE_NODE', VCPU=4))
        self.assertEqual([node], self.find('HW_A', VCPU=4, VGPU=4))
        self.assertEqual([], self.find('HW_B', VCPU=4))

        self.have(gpu0=gpu(4, 'HW_B'))
        reports.report()

        self.assertEqual([node], self.find('HW_B', VCPU=4, VGPU=4))
        self.assertEqual([], self.find('HW_A', VCPU=4))

    def test_invalid_trait_is_reported_to_the_cell_only(self):
        self.offer(traits=frozenset({'lower', 'HW_A'}))

        self.tracker().report()

        self.assertEqual([self.node().uuid], self.find('HW_A', VCPU=1))
        self.assertIn('lower', self.node().traits)

    def test_unchanged_traits_are_reported_once(self):
        told = []
        self.claims.set_traits = lambda *args, **kwargs: told.append(args)
        self.have(gpu0=gpu())
        reports = self.tracker()

        for _ in range(3):
            reports.report()

        self.assertEqual(2, len(told))

    def test_node_without_children_has_no_record_of_children(self):
        self.tracker().report()

        self.assertIsNone(self.node().providers)

    def test_change_of_children_is_a_change_of_the_node(self):
        reports = self.tracker()
        self.have(gpu0=gpu())
        reports.report()
        for change in ({'gpu0': gpu(4, 'HW_A')},
                       {'gpu0': gpu(4, 'HW_A'), 'vf0': gpu(parent='gpu0')},
                       {'gpu0': gpu(4, 'HW_A'), 'vf0': gpu()}, {}):
            with self.cell.reader() as connection:
                since = hosts.changes(connection).token
            self.have(**change)

            reports.report()
            reports.report()

            with self.cell.reader() as connection:
                [row] = hosts.changes(connection, since).nodes
            self.assertEqual(self.node().providers, row.providers)
            self.assertEqual(change.keys(), self.children().keys())

    def test_unchanged_inventories_are_reported_once(self):
        self.have(gpu0=gpu(), gpu1=gpu())
        reports = self.tracker()
        for _ in range(3):
            reports.report()
        self.assertEqual(3, self.claims.said)

        self.have(gpu0=gpu(), gpu1=gpu(2))
        reports.report()

        self.assertEqual(4, self.claims.said)
        self.assertEqual({'gpu0': 4, 'gpu1': 2}, self.room())

    def test_missing_child_has_no_capacity_until_its_return(self):
        reports = self.tracker()
        for have, room in (({'gpu0': gpu(), 'gpu1': gpu()}, (4, 4)),
                           ({'gpu0': gpu()}, (4, 0)), ({}, (0, 0)),
                           ({'gpu1': gpu()}, (0, 4))):
            self.have(**have)

            reports.report()

            self.assertEqual(dict(zip(('gpu0', 'gpu1'), room)), self.room())

    def test_child_removed_while_the_agent_is_down_has_no_capacity(self):
        self.have(gpu0=gpu(), gpu1=gpu())
        self.tracker().report()

        self.have(gpu0=gpu())
        self.tracker().report()

        self.assertEqual({'gpu0': 4, 'gpu1': 0}, self.room())

    def test_child_stays_in_the_cell_until_its_capacity_is_removed(self):
        self.have(gpu0=gpu())
        self.tracker().report()
        self.have()
        self.claims.failure = exception.DatabaseUnreachable(
            schema='claims', url='x', reason='y')
        self.assertRaises(
            exception.DatabaseUnreachable, self.tracker().report)
        self.assertEqual({'gpu0'}, {*self.children()})

        self.claims.failure = None
        self.tracker().report()

        self.assertEqual({}, self.children())
        self.assertEqual({'gpu0': 0}, self.room())

    def test_child_restored_before_its_removal_has_capacity(self):
        reports = self.tracker()
        self.have(gpu0=gpu(), gpu1=gpu())
        reports.report()
        before = self.claims.set_inventory
        calls = []

        def fail_second(provider, inventory):
            calls.append(provider)
            if len(calls) == 2:
                raise exception.DatabaseUnreachable(
                    schema='claims', url='x', reason='y')
            before(provider, inventory)

        self.have()
        self.claims.set_inventory = fail_second
        self.assertRaises(exception.DatabaseUnreachable, reports.report)
        self.assertEqual([0, 4], sorted(self.room().values()))

        self.have(gpu0=gpu(), gpu1=gpu())
        reports.report()

        self.assertEqual({'gpu0': 4, 'gpu1': 4}, self.room())

    def test_restart_never_shows_a_node_without_its_children(self):
        self.have(gpu0=gpu())
        self.tracker().report()
        with self.cell.reader() as connection:
            since = hosts.changes(connection).token
        seen = []
        reports = self.tracker(new_uuid=lambda: seen.append(
            self.children().keys()) or child_providers.uuid_of(
                self.node().uuid, f'new{len(seen)}'))

        reports.report()

        self.assertEqual({frozenset({'gpu0'})}, {*map(frozenset, seen)})
        with self.cell.reader() as connection:
            self.assertEqual(
                1, len(hosts.changes(connection, since).nodes))

    def test_recreated_node_has_new_children(self):
        reports = self.tracker()
        self.have(gpu0=gpu())
        reports.report()
        before = self.node().uuid
        with self.cell.writer() as connection:
            for uuid in hosts.delete(connection, 'host1', self.clock.now()):
                self.claims.set_inventory(uuid, {})

        self.have(gpu0=gpu(5, 'HW_A'))
        reports.report()

        after = self.node().uuid
        self.assertNotEqual(before, after)
        room = {usage.provider: usage.capacity.get('VGPU', 0)
                for usage in self.claims.usages().usages}
        self.assertEqual(
            (0, 5), tuple(room[child_providers.uuid_of(node, 'gpu0')]
                          for node in (before, after)))
        self.assertEqual(
            [child_providers.uuid_of(after, 'gpu0')],
            [child.uuid for child in child_providers.load(
                self.node().providers)])

    def test_files_extend_a_child_by_name_or_uuid(self):
        self.have(gpu0=gpu(4, 'HW_A'), gpu1=gpu())
        self.tracker().report()
        uuid = child_providers.uuid_of(self.node().uuid, 'gpu0')
        for name, kind in (('gpu0', 'name'), (uuid, 'uuid')):
            self.tracker(self.provider_files({kind: name}, traits={
                'additional': ['CUSTOM_A']})).report()
            self.assertEqual(
                {'gpu0': (None, {'HW_A', 'CUSTOM_A'}),
                 'gpu1': (None, frozenset())}, self.children())

            self.tracker(self.provider_files({kind: name}, inventories={
                'additional': [{'CUSTOM_X': {'total': 9}}]})).report()
            self.assertEqual(
                {'gpu0': (None, {'HW_A'}), 'gpu1': (None, frozenset())},
                self.children())
            [usage] = self.claims.usages(providers=[uuid]).usages
            self.assertEqual((4, 9), tuple(
                usage.capacity[name] for name in ('VGPU', 'CUSTOM_X')))
        self.assertEqual('', self.logs.output)

    def test_file_entry_for_a_child_of_the_driver_is_ignored_once(self):
        self.driver.found = {'node1': virt.NodeResources(
            4, 8192, 100, providers={'gpu0': virt.ChildProvider(
                {'CUSTOM_X': resources.Inventory(1)})})}
        reports = self.tracker(self.provider_files(
            {'name': 'gpu0'}, inventories={
                'additional': [{'CUSTOM_X': {'total': 9}}]}))
        for _ in range(2):
            reports.report()

        [usage] = self.claims.usages(providers=[
            child_providers.uuid_of(self.node().uuid, 'gpu0')]).usages
        self.assertEqual({'CUSTOM_X': 1}, usage.capacity)
        [line] = self.logs.output.splitlines()
        self.assertIn(
            "CUSTOM_X on child provider 'gpu0' of node node1 is ignored",
            line)

    def test_entry_without_a_provider_is_logged_once(self):
        self.have(gpu0=gpu())
        reports = self.tracker(self.provider_files(
            {'name': 'gpu1'}, traits={'additional': ['CUSTOM_A']}))
        for _ in range(2):
            reports.report()

        [line] = self.logs.output.splitlines()
        self.assertIn("ignored: 'gpu1'", line)

    def test_invalid_children_of_a_node_prevent_the_report(self):
        self.driver.found = {
            'node0': virt.NodeResources(4, 8192, 100),
            'node1': virt.NodeResources(
                4, 8192, 100, providers={'gpu0': gpu(parent='gpu1')})}

        error = self.assertRaises(
            exception.InvalidField, self.tracker().report)

        self.assertIn("node 'node1': providers['gpu0'].parent", str(error))
        self.assertEqual([], self.rows(models.compute_nodes))
        self.assertEqual(0, self.claims.said)


class TestIdentity(tracking.TrackerTestCase):
    """Nodes and devices with uuids of their own."""

    def setUp(self):
        super().setUp()
        self.uuids = samples.uuids(3)

    def node(self, uuid=None, device=None):
        return virt.NodeResources(
            4, 8192, 100, uuid=uuid, providers={} if device is None else {
                'gpu': virt.ChildProvider(
                    {'VGPU': resources.Inventory(4)}, uuid=device)})

    def capacity(self, provider, name='VCPU'):
        return self.claims.inventories([provider]).get(provider, {}).get(
            name, resources.Inventory(0)).capacity

    def nodes(self):
        return {(row.host, row.hypervisor_hostname): row.uuid
                for row in self.rows(models.compute_nodes)
                if not row.deleted}

    def test_node_keeps_its_uuid_under_another_name(self):
        self.driver.found = {'node1': self.node(self.uuids[0])}
        tracker = self.tracker()
        tracker.report()

        self.driver.found = {'new': self.node(self.uuids[0])}
        tracker.report()

        self.assertEqual({('host1', 'new'): self.uuids[0]}, self.nodes())
        self.assertTrue(self.capacity(self.uuids[0]))

    def test_name_on_another_node_is_a_new_node(self):
        self.driver.found = {'node1': self.node(self.uuids[0])}
        tracker = self.tracker()
        tracker.report()

        self.driver.found = {'node1': self.node(self.uuids[1])}
        tracker.report()

        self.assertEqual({('host1', 'node1'): self.uuids[1]}, self.nodes())
        self.assertFalse(self.capacity(self.uuids[0]))
        self.assertTrue(self.capacity(self.uuids[1]))

    def test_node_of_a_live_host_is_not_taken(self):
        self.driver.found = {'node1': self.node(self.uuids[0])}
        self.tracker().report()
        other = self.tracker(host='host2')

        other.report()
        other.report()

        self.assertEqual({('host1', 'node1'): self.uuids[0]}, self.nodes())
        self.assertEqual(1, self.logs.output.count('is not reported'))

        self.clock.advance(61)
        other.report()

        self.assertEqual({('host2', 'node1'): self.uuids[0]}, self.nodes())

    def test_device_keeps_its_claims_below_another_node(self):
        device = self.uuids[2]
        self.driver.found = {'node1': self.node(self.uuids[0], device),
                             'node2': self.node(self.uuids[1])}
        tracker = self.tracker()
        tracker.report()
        self.claims.claim([claims_base.Claim(
            self.uuids[0], device, {'VGPU': 1})])

        # Either node may be reported first.
        there = {'node1': self.node(self.uuids[0]),
                 'node2': self.node(self.uuids[1], device)}
        back = {'node1': self.node(self.uuids[0], device),
                'node2': self.node(self.uuids[1])}
        for self.driver.found in there, there, back, back:
            tracker.report()

            self.assertEqual(4, self.capacity(device, 'VGPU'))
            self.assertEqual([device], [
                claim.provider for claim in self.claims.claims_of(
                    [self.uuids[0]])[self.uuids[0]]])

    def test_inventory_is_restored_after_a_late_deletion(self):
        tracker = self.tracker()
        tracker.report()
        [uuid] = self.nodes().values()

        self.claims.set_inventory(uuid, {})
        tracker.report()

        self.assertTrue(self.capacity(uuid))

    def test_nodes_with_the_same_uuid_are_refused(self):
        self.driver.found = {name: self.node(self.uuids[0])
                             for name in ('node1', 'node2')}

        error = self.assertRaises(
            exception.InvalidField, self.tracker().report)

        self.assertIn("'node1'", str(error))
        self.assertEqual({}, self.nodes())

    def test_invalid_uuid_is_refused(self):
        for found in (self.node('x'), self.node('A' * 36),
                      self.node(self.uuids[0], 'x')):
            self.driver.found = {'node1': found}

            error = self.assertRaises(
                exception.InvalidField, self.tracker().report)

            self.assertIn('is not valid; expected a uuid', str(error))

    def test_vanished_node_with_claims_keeps_its_row(self):
        self.driver.found = {'node1': self.node(self.uuids[0])}
        tracker = self.tracker()
        tracker.report()
        self.claims.claim([claims_base.Claim(
            self.uuids[2], self.uuids[0], {'VCPU': 1})])

        self.driver.found = {}
        for _ in range(2):
            tracker.report()

            self.assertEqual(
                {('host1', 'node1'): self.uuids[0]}, self.nodes())
            self.assertFalse(self.capacity(self.uuids[0]))
        self.assertEqual(1, self.logs.output.count('no longer reported'))

        self.claims.release([self.uuids[2]])
        tracker.report()

        self.assertEqual({}, self.nodes())


class TestKeptUuids(tracking.TrackerTestCase):
    """Nodes without a uuid of their driver, which the host keeps."""

    def setUp(self):
        super().setUp()
        self.state = host_name.StateFile(str(self.temporary_directory()))
        self.own = virt.NodeResources(4, 8192, 100, providers={
            'gpu': virt.ChildProvider({'VGPU': resources.Inventory(4)})})

    def report(self, *names):
        """Report nodes as an agent that has just started."""
        self.driver.found = dict.fromkeys(names, self.own)
        name = host_name.HostName('host1', self.cell, self.clock, 60)
        name.host_id = HOST_ID
        self.tracker(name=name, state=self.state).report()
        return {row.hypervisor_hostname: row.uuid
                for row in self.rows(models.compute_nodes) if not row.deleted}

    def lose(self, *names):
        """Have the database lose nodes, as a restored one has."""
        with self.cell.writer() as connection:
            connection.execute(models.compute_nodes.delete().where(
                models.compute_nodes.c.hypervisor_hostname.in_(names)))

    @property
    def for_sale(self):
        return {usage.provider for usage in self.claims.usages().usages
                if any(usage.capacity.values())}

    def sold(self, nodes):
        """Return the providers of nodes, each with its child."""
        return {*nodes.values(), *(
            child_providers.uuid_of(uuid, 'gpu') for uuid in nodes.values())}

    def test_node_keeps_its_uuid_after_its_row_is_lost(self):
        first = self.report('node1')
        both = self.report('node1', 'node2')
        self.assertEqual(HOST_ID, first['node1'])
        for lost in ('node1',), ('node2',), ('node1', 'node2'):
            self.lose(*lost)

            self.assertEqual(both, self.report('node1', 'node2'))
            self.assertEqual(self.sold(both), self.for_sale)

    def test_former_provider_of_a_node_is_taken_out_of_sale(self):
        self.report('node1')
        # An older release has kept no uuids of nodes.
        self.state.path.with_name('compute_nodes').unlink()
        self.lose('node1')

        nodes = self.report('node1', 'node2')

        self.assertNotIn(HOST_ID, nodes.values())
        self.assertEqual(self.sold(nodes), self.for_sale)
        self.assertIn(f'Provider {HOST_ID} no longer belongs to host host1',
                      self.logs.output)

    def test_only_the_row_of_a_restored_database_is_for_sale(self):
        self.state.write_nodes({'node1': samples.uuids(1)[0]})
        kept = self.report('node1')
        with self.cell.writer() as connection:
            connection.execute(models.compute_nodes.update().values(
                uuid=HOST_ID))

        nodes = self.report('node1')

        self.assertEqual({'node1': HOST_ID}, nodes)
        self.assertNotEqual(kept, nodes)
        self.assertEqual(self.sold(nodes), self.for_sale)
        self.assertEqual(nodes, self.state.read_nodes())

    def test_node_of_another_host_stays_for_sale(self):
        [other] = samples.uuids(1)
        self.state.write_nodes({'node2': other})
        self.driver.found = {'node2': self.own}
        self.tracker(host='host2', new_uuid=lambda: other).report()

        self.assertEqual(self.sold(self.report('node1')), self.for_sale)

    def test_vanished_node_comes_back_with_its_uuid(self):
        both = self.report('node1', 'node2')
        self.assertEqual(['node1'], [*self.report('node1')])

        self.assertEqual(both, self.report('node1', 'node2'))
        self.assertEqual(self.sold(both), self.for_sale)

    def test_invalid_file_of_nodes_prevents_the_report(self):
        file = self.state.path.with_name('compute_nodes')
        for text in '', '[]', '{"node1": 7}', '{"node1": "x"}', '{"node':
            file.write_text(text)

            error = self.assertRaises(
                exception.ConfigurationInvalid, self.report, 'node1')

            self.assertIn(str(file), str(error))
            self.assertEqual(text, file.read_text())


class TestFigures(tracking.TrackerTestCase):

    def add(self, count=1, node='node1', host='host1', **fields):
        """Add servers; return their uuids."""
        uuids = samples.uuids(count)
        with self.cell.writer() as connection:
            instances.create(connection, [
                samples.instance(uuid, host=host, node=node, **fields)
                for uuid in uuids], self.clock.now())
        return uuids

    def stats(self):
        return {row.hypervisor_hostname: json.loads(row.stats)
                for row in self.rows(models.compute_nodes)}

    def changes(self, since=None):
        with self.cell.reader() as connection:
            return hosts.changes(connection, since)

    def nodes_changed_by(self, report):
        """Return the nodes that the feed tells of a report."""
        token = self.changes().token
        report()
        return len(self.changes(token).nodes)

    def read(self):
        """Return what a scheduler reads of the one node."""
        columns = node_columns.of_nodes(self.changes().nodes, 'cell1')
        return {name: values[0] for name, values in columns.items()
                if isinstance(values, list)}

    def test_schedulers_read_the_report_of_the_driver(self):
        self.offer(
            cpu_info={'arch': 'aarch64'},
            supported_instances=[('aarch64', 'qemu', 'hvm'),
                                 ('armv7l', 'qemu', 'hvm')],
            host_ip='192.0.2.7', metrics=[{'name': 'm', 'value': 0.5}],
            traits=frozenset({'HW_B', 'CUSTOM_A'}), stats={'nests': 2})

        self.tracker().report()

        read = self.read()
        self.assertEqual({'arch': 'aarch64'}, json.loads(read['cpu_info']))
        self.assertEqual(
            (('aarch64', 'qemu', 'hvm'), ('armv7l', 'qemu', 'hvm')),
            read['supported_instances'])
        self.assertEqual('192.0.2.7', read['host_ip'])
        self.assertEqual(
            [{'name': 'm', 'value': 0.5}], json.loads(read['metrics']))
        self.assertEqual({'HW_B', 'CUSTOM_A', 'COMPUTE_NODE', 'OWNER_NOVA'},
                         read['traits'])
        self.assertEqual({'nests': 2}, json.loads(read['stats']))

    def test_minimal_report_of_a_driver_is_read(self):
        self.tracker().report()

        read = self.read()
        self.assertEqual(('', (), None, tracker.TRAITS, 0, 0), tuple(
            read[name] for name in (
                'cpu_info', 'supported_instances', 'host_ip', 'traits',
                'num_io_ops', 'failed_builds')))
        self.assertEqual([], json.loads(read['metrics']))
        self.assertEqual('', self.logs.output)

    def test_traits_of_files_are_added_to_traits_of_the_driver(self):
        uuid = samples.uuids(1)[0]
        path = self.temporary_directory() / 'provider.yaml'
        more = provider_config.ProviderConfig(str(path.parent))
        self.offer(traits=frozenset({'HW_B'}))
        reports = self.tracker(provider_config=more, new_uuid=lambda: uuid)
        for name, trait in (('$COMPUTE_NODE', 'CUSTOM_A'),
                            (uuid, 'CUSTOM_UUID')):
            path.write_text(
                "meta: {schema_version: '1.0'}\nproviders:\n"
                f"- identification: {{uuid: '{name}'}}\n"
                f'  traits: {{additional: [{trait}]}}\n')

            reports.report()

            self.assertEqual({'HW_B', trait, *tracker.TRAITS},
                             self.read()['traits'])

    def test_new_node_has_the_traits_of_its_uuid_entry(self):
        uuid = samples.uuids(1)[0]
        self.tracker(
            self.provider_files({'uuid': uuid}, traits={
                'additional': ['CUSTOM_UUID']}),
            new_uuid=lambda: uuid).report()

        self.assertIn('CUSTOM_UUID', self.read()['traits'])

    def test_text_of_cpu_info_is_unchanged(self):
        self.offer(cpu_info='{"model":  "x"}')

        self.tracker().report()

        self.assertEqual('{"model":  "x"}', self.read()['cpu_info'])

    def test_images_of_servers_are_reported_by_node(self):
        self.driver.found = {name: virt.NodeResources(4, 8192, 100)
                             for name in ('node1', 'node2')}
        [uuid, other] = samples.uuids(2)
        with self.cell.writer() as connection:
            instances.create(
                connection, [samples.instance(each, host='host1', node='node1')
                             for each in (uuid, other)], self.clock.now(),
                dict.fromkeys((uuid, other), {'os_distro': 'x'}))
        reports = self.tracker()

        reports.report()
        [first, second] = node_columns.of_nodes(
            self.changes().nodes, 'cell1')['image_props']
        self.assertEqual(((('os_distro', 'x', 2),), ()), (first, second))

        with self.cell.writer() as connection:
            instances.update(connection, uuid, {'image_ref': 'new'},
                             self.clock.now())
        reports.report()
        self.assertEqual((('os_distro', 'x', 1),), self.read()['image_props'])

    def test_images_are_read_after_a_change_of_servers_only(self):
        self.add()
        reports = self.tracker()
        reports.report()
        for added, expected in (0, 0), (1, 1), (0, 0):
            self.add(added)
            with recording.recorded(self.cell) as statements:
                reports.report()
            self.assertEqual(expected, sum(
                'instance_system_metadata' in text for text, _ in statements))

    def test_servers_of_each_node_are_counted(self):
        self.driver.found = {
            name: virt.NodeResources(4, 8192, 100)
            for name in ('node1', 'node2', 'node3')}
        self.add(2, vm_state='active', task_state=None)
        self.add(1, task_state='spawning')
        self.add(1, node='node2', task_state='spawning')
        self.add(3, host='host2')
        self.add(3, host=None, node=None)
        [gone] = self.add(1)
        with self.cell.writer() as connection:
            instances.delete(connection, gone, self.clock.now())

        self.tracker().report()

        self.assertEqual(
            {'node1': (3, 1, 2), 'node2': (1, 1, None),
             'node3': (0, 0, None)},
            {node: (said['num_instances'], said['io_workload'],
                    said.get('num_vm_active'))
             for node, said in self.stats().items()})
        self.assertEqual(1, self.stats()['node2']['num_proj_project'])

    def test_failed_builds_are_in_the_next_report(self):
        reports = self.tracker()
        reports.report()
        self.outcomes.failed('node1')
        self.outcomes.failed('node1')
        self.assertEqual(0, self.read()['failed_builds'])

        reports.report()
        self.assertEqual(2, self.read()['failed_builds'])

        self.outcomes.succeeded('node1')
        reports.report()
        self.assertEqual(0, self.read()['failed_builds'])

    def test_counts_of_the_agent_override_counts_of_the_driver(self):
        self.offer(stats={'num_instances': 9, 'failed_builds': 9})

        self.tracker().report()

        self.assertEqual(
            {'num_instances': 0, 'io_workload': 0, 'failed_builds': 0},
            self.stats()['node1'])

    def test_unchanged_node_is_not_written(self):
        reports = self.tracker()
        self.assertEqual(1, self.nodes_changed_by(reports.report))
        self.assertEqual(0, self.nodes_changed_by(reports.report))

        self.add(2)
        self.assertEqual(1, self.nodes_changed_by(reports.report))
        self.assertEqual(0, self.nodes_changed_by(reports.report))

        self.offer(hypervisor_type='kind', hypervisor_version=7,
                   traits=frozenset({'CUSTOM_A'}))
        self.assertEqual(1, self.nodes_changed_by(reports.report))
        self.assertEqual(0, self.nodes_changed_by(reports.report))

    def test_changed_figures_are_not_reported_to_the_claim_store(self):
        reports = self.tracker()
        reports.report()

        self.outcomes.failed('node1')
        reports.report()

        self.assertEqual(1, self.claims.said)

    def test_unchanged_report_is_three_reads_and_a_heartbeat(self):
        reports = self.tracker()
        reports.report()

        with recording.recorded(self.cell) as statements:
            reports.report()

        self.assertEqual(
            ['SELECT', 'SELECT', 'SELECT', 'UPDATE', 'UPDATE'],
            [text.split(None, 1)[0] for text, _ in statements])

    def test_deleted_node_is_reported_with_its_inventory(self):
        reports = self.tracker()
        reports.report()
        with self.cell.writer() as connection:
            hosts.delete(connection, 'host1', self.clock.now())

        self.add()
        reports.report()

        [node] = self.changes().nodes
        [usage] = self.claims.usages(providers=[node.uuid]).usages
        self.assertEqual(100, usage.capacity['DISK_GB'])


def row(servers, vm_state='active', task_state=None, project_id='project'):
    return types.SimpleNamespace(
        servers=servers, vm_state=vm_state, task_state=task_state,
        project_id=project_id)


class TestOfServers(base.TestCase):

    def test_node_without_servers_has_zero_counts(self):
        self.assertEqual(
            {'num_instances': 0, 'io_workload': 0}, tracker.of_servers([]))

    def test_servers_are_counted_by_state_task_and_project(self):
        self.assertEqual(
            {'num_instances': 6, 'io_workload': 2,
             'num_vm_active': 4, 'num_vm_building': 2,
             'num_task_None': 3, 'num_task_spawning': 2,
             'num_task_deleting': 1, 'num_proj_one': 5, 'num_proj_two': 1},
            tracker.of_servers([
                row(3, project_id='one'),
                row(2, 'building', 'spawning', project_id='one'),
                row(1, task_state='deleting', project_id='two')]))

    def test_disk_intensive_tasks_are_workload(self):
        for vm_state, task_state, expected in (
                ('building', 'spawning', 1), ('building', None, 1),
                ('active', 'rebuilding', 1), ('active', 'resize_prep', 1),
                ('active', 'resize_migrating', 1),
                ('active', 'image_snapshot', 1),
                ('active', 'image_backup', 1), ('stopped', 'rescuing', 1),
                ('shelved', 'unshelving', 1), ('building', 'rebuilding', 2),
                ('active', None, 0), ('active', 'powering-off', 0),
                ('active', 'resize_finish', 0), ('error', None, 0)):
            self.assertEqual(
                expected,
                tracker.of_servers([row(1, vm_state, task_state)])[
                    'io_workload'], (vm_state, task_state))


class TestOfImages(base.TestCase):

    def test_servers_are_counted_by_property_and_value(self):
        self.assertEqual({}, tracker.of_images([]))
        self.assertEqual(
            {'image_props': {'os': {'x': 3, 'y': 1}, 'bus': {'ide': 2}}},
            tracker.of_images([
                ('os', 'x', 3), ('os', 'y', 1), ('bus', 'ide', 2)]))

    def test_most_frequent_properties_are_kept_within_the_limit(self):
        rows = [(f'p{number}', '\u00e9' * 255, number)
                for number in range(1, 1001)]

        said = tracker.of_images(rows)

        self.assertLess(len(json.dumps(said)), 33_000)
        kept = {int(name[1:]) for name in said['image_props']}
        self.assertEqual(set(range(1001 - len(kept), 1001)), kept)
        self.assertLess(10, len(kept))
