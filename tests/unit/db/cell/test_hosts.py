# SPDX-License-Identifier: Apache-2.0
"""Queries for what changed of the hosts of a cell."""

import itertools

import sqlalchemy as sa

from cellsched.db.cell import compute_nodes
from cellsched.db.cell import hosts
from cellsched.db.cell import models
from cellsched.db.cell import services
from cellsched.objects import child_providers
from tests.unit.db.cell import base
from tests.unit.db.cell import following
from tests.unit.db import meanwhile
from tests.unit.db import recording
from tests.unit.db import samples


class TestSelected(following.Writing, base.TestCase):

    def found(self, nodes=(), names=()):
        with self.database.reader() as connection:
            found = hosts.selected(connection, nodes, names)
        return ([row.hypervisor_hostname for row in found.nodes],
                sorted(row.host for row in found.services))

    def test_nodes_are_found_by_uuid_and_by_the_names_of_hosts(self):
        self.save('a', 'a1', 8)
        uuid = self.save('b', 'b1', 8)
        self.save('B', 'b2', 8)
        last = self.save('c', 'c1', 8)
        for host in 'abc':
            self.report(host)

        self.assertEqual((['b1', 'c1'], ['b', 'c']), self.found([last, uuid]))
        self.assertEqual((['b1', 'b2'], ['b']), self.found(
            [uuid, *samples.uuids(600)], ['B', 'x']))
        self.assertEqual(([], []), self.found())
        self.assertEqual(4, len(self.found(None)[0]))

    def test_deleted_host_is_not_found(self):
        uuid = self.save('a', 'a1', 8)
        self.report('a')
        with self.database.writer() as connection:
            hosts.delete(connection, 'a', samples.NOW)

        self.assertEqual(([], []), self.found([uuid], ['a']))

    def test_heartbeats_are_of_nodes_with_a_service(self):
        uuids = {self.save('a', node, 8) for node in ('one', 'two')}
        self.save('b', 'three', 8)
        self.report('a')

        with self.database.reader() as connection:
            found = hosts.beats(connection)

        self.assertEqual(uuids, {row.uuid for row in found})


class TestChanges(following.Tests, base.TestCase):

    def setUp(self):
        super().setUp()
        self.follower = following.Follower(self.database)

    def poll(self):
        """Return the names of nodes and of services that changed."""
        changes = self.follower.poll()
        return ([row.hypervisor_hostname for row in changes.nodes],
                [row.host for row in changes.services])

    def test_first_read_returns_all_hosts_and_later_reads_changes(self):
        self.save('a', 'one', 8)
        self.save('b', 'two', 8)
        self.report('b')
        self.assertEqual((['one', 'two'], ['b']), self.poll())
        self.assertEqual(([], []), self.poll())

        self.save('a', 'one', 16)
        self.assertEqual((['one'], []), self.poll())

        self.report('a')
        self.report('b')
        nodes, found = self.poll()
        self.assertEqual(([], {'a', 'b'}), (nodes, set(found)))

    def test_each_write_is_a_change(self):
        self.save('a', 'one', 8)
        self.report('a')
        self.poll()

        for change in (
            lambda: self.report('a'), lambda: self.disable('a', True),
            lambda: self.disable('a', False),
            lambda: self.force_down('a', True),
        ):
            change()
            self.assertEqual(([], ['a']), self.poll())

    def test_mark_of_a_mapped_node_is_no_change(self):
        uuid = self.save('a', 'one', 8)
        self.poll()

        self.write(compute_nodes.mark_mapped, [uuid])

        self.assertEqual(([], []), self.poll())
        node, = self.read(hosts.changes).nodes
        self.assertEqual(1, node.mapped)

    def test_rows_have_the_written_values(self):
        values = {
            'free_disk_gb': 90, 'disk_available_least': -3,
            'cpu_info': '{"arch": "x86_64"}', 'supported_instances': '[]',
            'stats': '{"io_workload": 1}', 'metrics': '[{"name": "cpu"}]',
            'numa_topology': '{}', 'pci_stats': '{}',
            'traits': '["HW_CPU_X86_AVX"]',
            'host_ip': '192.0.2.7', 'providers': '[]'}
        uuid = self.write(
            compute_nodes.save, samples.uuids(1)[0], 'a', 'one',
            samples.NODE | values, samples.NOW)
        self.report('a')
        self.disable('a', True)

        changes = self.read(hosts.changes)

        node, = changes.nodes
        expected = samples.NODE | values | {
            'uuid': uuid, 'host': 'a', 'hypervisor_hostname': 'one',
            'mapped': 0, 'deleted': 0}
        del expected['vcpus_used']
        self.assertEqual(expected, node._asdict())
        service, = changes.services
        self.assertEqual(
            {'host': 'a', 'disabled': True, 'forced_down': False,
             'last_seen_up': samples.NOW, 'created_at': samples.NOW,
             'deleted': 0}, service._asdict())

    def test_node_without_a_host_keeps_no_other(self):
        whole = self.save('a', 'one', 8)
        lost = self.save('b', 'two', 8)
        self.report('a')
        self.execute(
            sa.update(models.compute_nodes)
            .where(models.compute_nodes.c.uuid == lost).values(host=None))

        changes = self.read(hosts.changes)
        self.assertEqual([whole], [row.uuid for row in changes.nodes])
        self.assertEqual([lost], [row.uuid for row in changes.partial])
        self.assertEqual(
            [whole], [row.uuid for row in self.read(
                compute_nodes.list_unmapped)])

    def test_service_without_a_host_is_no_host(self):
        self.report('a')
        self.report('b')
        self.execute(
            sa.update(models.services)
            .where(models.services.c.host == 'b').values(host=None))

        self.assertEqual(
            ['a'], self.read(services.list_hosts, services.COMPUTE))

    def test_services_of_other_binaries_are_not_read(self):
        self.poll()
        self.write(services.report, samples.uuids(1)[0], 'a',
                   'nova-conductor', 'conductor', samples.NOW)

        self.assertEqual(([], []), self.poll())
        self.assertEqual([], self.read(hosts.changes).services)

    def test_children_are_deleted_with_their_node(self):
        one, two, child = samples.uuids(3)
        text = child_providers.dump([child_providers.Child(child, 'gpu0')])
        for uuid, node, text in (one, 'one', text), (two, 'two', None):
            self.write(
                compute_nodes.save, uuid, 'a', node,
                samples.NODE | {'providers': text}, samples.NOW)

        self.assertEqual(
            [one, child, two],
            self.write(hosts.delete, 'a', samples.LATER))

    def test_deleted_host_is_reported_once(self):
        uuid = self.save('a', 'one', 8)
        self.report('a')
        self.poll()

        self.delete('a')

        changes = self.follower.poll()
        self.assertFalse(changes.complete)
        self.assertEqual([uuid], [row.uuid for row in changes.nodes])
        self.assertTrue(changes.nodes[0].deleted)
        self.assertTrue(changes.services[0].deleted)
        self.delete('a')
        self.assertEqual(([], []), self.poll())
        everything = self.read(hosts.changes)
        self.assertEqual(([], []), (everything.nodes, everything.services))

    def test_recreated_host_is_reported_after_its_deletion(self):
        self.report('a')
        self.poll()
        self.delete('a')
        self.report('a')

        gone, back = self.follower.poll().services

        self.assertTrue(gone.deleted)
        self.assertEqual(0, back.deleted)
        self.assertEqual(['a'], list(self.follower.services))

    def test_token_of_another_database_returns_all_hosts(self):
        self.save('a', 'one', 8)
        self.report('b')
        token = self.read(hosts.changes).token

        for since in tuple(number + 1 for number in token), token[1:]:
            changes = self.read(hosts.changes, since)

            self.assertTrue(changes.complete)
            self.assertEqual(token, changes.token)
            self.assertEqual((1, 1), (
                len(changes.nodes), len(changes.services)))

    def test_rows_of_other_services_are_in_a_full_reading(self):
        """Agents of Nova know nothing of lanes."""
        uuid = self.save('a', 'one', 8)
        self.poll()
        self.execute(
            sa.insert(models.compute_nodes).values(
                samples.NODE | {'uuid': samples.uuids(1)[0], 'host': 'b',
                                'hypervisor_hostname': 'two'}))
        self.execute(
            sa.update(models.compute_nodes).values(vcpus=3)
            .where(models.compute_nodes.c.uuid == uuid))

        self.assertEqual(([], []), self.poll())
        self.assertEqual(
            [('one', 3), ('two', 8)],
            [(row.hypervisor_hostname, row.vcpus)
             for row in self.read(hosts.changes).nodes])


class TestCost(following.Writing, base.TestCase):
    """Statements do not grow with the cell."""

    def setUp(self):
        super().setUp()
        for number in range(20):
            self.save(f'host{number}', 'node', 8)
            self.report(f'host{number}')
        self.token = self.read(hosts.changes).token

    def test_poll_without_a_change_reads_the_lanes_only(self):
        with recording.recorded(self.database) as statements:
            self.read(hosts.changes, self.token)

        self.assertEqual(1, len(statements))
        self.assertIn('host_lanes', statements[0][0])

    def test_poll_finds_changes_by_index(self):
        for host in 'host3', 'host4', 'host5':
            self.save(host, 'node', 9)
            self.report(host)
        with recording.recorded(self.database) as statements:
            changes = self.read(hosts.changes, self.token)

        self.assertEqual((3, 3), (len(changes.nodes), len(changes.services)))
        self.assertEqual(3, len(statements))
        for text, parameters in statements[1:]:
            with self.database.reader() as connection:
                plan = [row[3] for row in connection.exec_driver_sql(
                    'EXPLAIN QUERY PLAN ' + text, parameters)]
            self.assertTrue(any(
                '_lane_position_idx' in step for step in plan), plan)
            self.assertFalse(any(
                step.startswith('SCAN') for step in plan), plan)

    def test_report_of_a_known_service_is_two_statements(self):
        with recording.recorded(self.database) as statements:
            self.report('host3')

        self.assertEqual(2, len(statements), statements)


class TestConcurrentChanges(following.Writing, base.TestCase):

    def test_follower_misses_no_change_made_between_its_statements(self):
        numbers = itertools.count()

        def report():
            self.save('a', 'one', next(numbers))
            self.report('b')
            self.save('c', f'node{next(numbers)}', 1)

        report()
        follower = following.Follower(self.database)
        for _ in range(3):
            with meanwhile.between_statements(self.database, report):
                follower.poll()
            follower.poll()
            newcomer = following.Follower(self.database)
            newcomer.poll()
            self.assertEqual(newcomer.nodes, follower.nodes)
            self.assertEqual(newcomer.services, follower.services)

    def test_reading_continues_from_an_earlier_token(self):
        self.save('a', 'one', 8)
        before = hosts.token(self.database)
        self.save('a', 'one', 16)

        changes = self.read(hosts.changes, None, before)

        self.assertEqual(before, changes.token)
        self.assertEqual([16], [row.vcpus for row in changes.nodes])
