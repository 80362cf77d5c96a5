# SPDX-License-Identifier: Apache-2.0
"""Reporting what filters and weighers of schedulers read of a host."""

import json

from cellsched.compute import provider_config
from cellsched.compute import tracker
from cellsched.db.cell import hosts
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched import exception
from cellsched.host_manager import node_columns
from cellsched.virt import base as virt
from tests.unit.compute import tracking
from tests.unit.db import recording
from tests.unit.db import samples


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

    def test_what_a_driver_says_is_what_schedulers_read(self):
        self.driver.found = {'node1': virt.NodeResources(
            4, 8192, 100, cpu_info={'arch': 'aarch64'},
            supported_instances=[('aarch64', 'qemu', 'hvm'),
                                 ('armv7l', 'qemu', 'hvm')],
            host_ip='192.0.2.7', metrics=[{'name': 'm', 'value': 0.5}],
            traits=frozenset({'HW_B', 'CUSTOM_A'}), stats={'nests': 2})}

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

    def test_driver_that_says_no_more_than_it_must_is_read_as_well(self):
        self.tracker().report()

        read = self.read()
        self.assertEqual(('', (), None, tracker.TRAITS, 0, 0), tuple(
            read[name] for name in (
                'cpu_info', 'supported_instances', 'host_ip', 'traits',
                'num_io_ops', 'failed_builds')))
        self.assertEqual([], json.loads(read['metrics']))
        self.assertEqual('', self.logs.output)

    def test_traits_of_files_are_told_beside_those_of_the_driver(self):
        uuid = samples.uuids(1)[0]
        path = self.temporary_directory() / 'provider.yaml'
        more = provider_config.ProviderConfig(str(path.parent))
        self.driver.found = {'node1': virt.NodeResources(
            4, 8192, 100, traits=frozenset({'HW_B'}))}
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

    def test_node_that_a_file_names_by_uuid_has_its_traits_at_once(self):
        uuid = samples.uuids(1)[0]
        path = self.temporary_directory() / 'provider.yaml'
        path.write_text(
            "meta: {schema_version: '1.0'}\nproviders:\n"
            f"- identification: {{uuid: '{uuid}'}}\n"
            '  traits: {additional: [CUSTOM_UUID]}\n')

        self.tracker(
            provider_config=provider_config.ProviderConfig(str(path.parent)),
            new_uuid=lambda: uuid).report()

        self.assertIn('CUSTOM_UUID', self.read()['traits'])

    def test_text_of_cpu_info_stays_as_it_is(self):
        self.driver.found = {'node1': virt.NodeResources(
            4, 8192, 100, cpu_info='{"model":  "x"}')}

        self.tracker().report()

        self.assertEqual('{"model":  "x"}', self.read()['cpu_info'])

    def test_images_of_servers_are_told_by_node(self):
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

    def test_images_are_looked_at_only_where_servers_changed(self):
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

    def test_builds_that_failed_are_told_with_the_next_report(self):
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

    def test_counts_of_the_agent_go_before_those_of_the_driver(self):
        self.driver.found = {'node1': virt.NodeResources(
            4, 8192, 100, stats={'num_instances': 9, 'failed_builds': 9})}

        self.tracker().report()

        self.assertEqual(
            {'num_instances': 0, 'io_workload': 0, 'failed_builds': 0},
            self.stats()['node1'])

    def test_node_is_written_only_when_something_changed(self):
        reports = self.tracker()
        self.assertEqual(1, self.nodes_changed_by(reports.report))
        self.assertEqual(0, self.nodes_changed_by(reports.report))

        self.add(2)
        self.assertEqual(1, self.nodes_changed_by(reports.report))
        self.assertEqual(0, self.nodes_changed_by(reports.report))

        self.driver.found = {'node1': virt.NodeResources(
            4, 8192, 100, 'kind', 7, traits=frozenset({'CUSTOM_A'}))}
        self.assertEqual(1, self.nodes_changed_by(reports.report))
        self.assertEqual(0, self.nodes_changed_by(reports.report))

    def test_figures_that_changed_are_no_matter_of_the_claim_store(self):
        reports = self.tracker()
        reports.report()

        self.outcomes.failed('node1')
        reports.report()

        self.assertEqual(1, self.claims.said)

    def test_report_of_nothing_new_asks_once_and_beats(self):
        reports = self.tracker()
        reports.report()

        with recording.recorded(self.cell) as statements:
            reports.report()

        self.assertEqual(
            ['SELECT', 'UPDATE', 'UPDATE'],
            [text.split(None, 1)[0] for text, _ in statements])

    def test_inventory_that_failed_is_told_with_the_next_report(self):
        self.claims.failure = exception.DatabaseUnreachable(
            schema='claims', url='x', reason='y')
        reports = self.tracker()
        self.assertRaises(exception.DatabaseUnreachable, reports.report)

        self.claims.failure = None
        reports.report()

        [usage] = self.claims.usages().usages
        self.assertEqual(8192 - 512, usage.capacity['MEMORY_MB'])

    def test_node_that_was_deleted_comes_back_with_its_inventory(self):
        reports = self.tracker()
        reports.report()
        with self.cell.writer() as connection:
            hosts.delete(connection, 'host1', self.clock.now())

        self.add()
        reports.report()

        [node] = self.changes().nodes
        [usage] = self.claims.usages(providers=[node.uuid]).usages
        self.assertEqual(100, usage.capacity['DISK_GB'])
