# SPDX-License-Identifier: Apache-2.0
"""Following one cell: what is read, and in which order it comes."""

import sqlalchemy as sa

from cellsched.db.cell import compute_nodes
from cellsched.db.cell import hosts
from cellsched.db.cell import models
from cellsched.db.cell import services
from cellsched import exception
from tests.unit.db import recording
from tests.unit.db import samples
from tests.unit.hosts import following


class TestReading(following.FollowerTestCase):

    def test_only_changed_hosts_are_read(self):
        for host in ('a', 'b'):
            self.world.add_host('cell1', host)
        self.read()

        # The token is read past what records.
        with recording.recorded(self.database) as statements:
            self.assertEqual([], self.read())
        self.assertEqual([], statements)

        self.service('b')
        with recording.recorded(self.database) as statements:
            self.read()
        self.assertEqual(2, len(statements))

    def test_full_reading_is_possible(self):
        uuid = self.world.add_host('cell1', 'a')
        self.read()
        self.execute(sa.update(models.compute_nodes).values(vcpus=3))
        self.execute(sa.update(models.services).values(disabled=True))

        self.read()
        self.assertEqual(8, self.value(uuid, 'vcpus_total'))

        self.assertEqual([], self.read(everything=True))
        self.assertEqual(3, self.value(uuid, 'vcpus_total'))
        self.assertTrue(self.value(uuid, 'service_disabled'))

    def test_new_nodes_are_logged_once(self):
        uuid = self.world.add_host('cell1', 'a')

        self.assertEqual([uuid], self.read())
        self.node('a')
        self.assertEqual([], self.read())

    def test_read_updates_the_time_of_the_cell(self):
        self.read()
        now = self.world.own_clock.timestamp()

        self.assertEqual(now, self.table.cells.oldest)
        self.assertEqual(5.0, self.table.cells.silent_s(
            self.follower.cell.uuid, now + 5))

    def test_service_report_updates_each_of_its_nodes(self):
        self.world.add_host('cell1', 'a', 'n1', 'n2')
        self.world.add_host('cell1', 'b')
        self.read()
        before = self.value(self.world.providers['b'], 'last_seen_up')

        self.service('a')
        self.read()

        self.assertEqual(
            [self.world.own_clock.timestamp() - 1] * 2 + [before],
            [self.value(self.world.providers[node], 'last_seen_up')
             for node in ('n1', 'n2', 'b')])

    def rename(self, name, other):
        with self.world.database.writer() as connection:
            connection.execute(
                sa.text(f'ALTER TABLE {name} RENAME TO {other}'))

    def test_failed_read_is_repeated(self):
        uuid = self.node('a')
        self.service('a')
        self.rename('host_mappings', 'away')
        self.assertRaises(exception.DatabaseError, self.read)
        self.assertEqual([], self.known())

        self.rename('away', 'host_mappings')
        self.assertEqual([uuid], self.read())


class TestOrder(following.FollowerTestCase):
    """A node is there from when its service is known too."""

    def test_node_waits_for_its_service(self):
        uuid = self.node('a')
        self.assertEqual([], self.read())
        self.assertEqual([], self.known())

        self.service('a')

        self.assertEqual([uuid], self.read())
        self.assertEqual(self.world.own_clock.timestamp() - 1,
                         self.value(uuid, 'last_seen_up'))

    def test_waiting_node_has_its_last_report(self):
        uuid = self.node('a')
        self.read()
        self.node('a', vcpus=3)
        self.read()
        self.service('a')

        self.read()

        self.assertEqual(3, self.value(uuid, 'vcpus_total'))

    def test_service_waits_for_its_node(self):
        self.service('a')
        self.read()
        at = self.world.own_clock.timestamp() - 1
        uuid = self.node('a')

        self.assertEqual([uuid], self.read())

        self.assertEqual(at, self.value(uuid, 'last_seen_up'))

    def test_second_node_has_the_data_of_the_service(self):
        self.world.add_host('cell1', 'a')
        with self.database.writer() as connection:
            services.set_disabled(
                connection, 'a', True, 'x', self.world.clock.now())
        self.read()
        at = self.world.own_clock.timestamp() - 1
        with self.database.writer() as connection:
            uuid = compute_nodes.save(
                connection, samples.uuids(1)[0], 'a', 'other',
                self.world.node_values(8, 8192, 100), self.world.clock.now())

        self.assertEqual([uuid], self.read())

        self.assertEqual((True, at), (
            self.value(uuid, 'service_disabled'),
            self.value(uuid, 'last_seen_up')))

    def test_moved_node_is_kept_when_its_former_host_is_deleted(self):
        uuid = self.node('a')
        self.service('a')
        self.service('b')
        self.read()
        with self.database.writer() as connection:
            compute_nodes.take(
                connection, compute_nodes.holder(connection, uuid), 'b', 'b',
                self.world.clock.now())
        self.read()
        self.assertEqual('b', self.value(uuid, 'host'))

        self.delete('a')
        self.read()

        self.assertEqual([uuid], self.known())

    def test_vanished_node_is_absent_until_the_next_report(self):
        uuid = self.node('a')
        self.service('a')
        self.read()
        with self.database.writer() as connection:
            compute_nodes.mark_vanished(
                connection, compute_nodes.holder(connection, uuid),
                self.world.clock.now(), delete=False)

        for everything in False, True:
            self.read(everything)
            self.assertEqual([], self.known())
        with self.database.reader() as connection:
            for nodes, names in ((None, ()), ([uuid], ()), ((), ['a'])):
                self.assertEqual([], hosts.selected(
                    connection, nodes, names).nodes)

        self.node('a')
        self.read()

        self.assertEqual([uuid], self.known())

    def test_node_deleted_before_a_service_report_is_not_added(self):
        for is_known in True, False:
            self.node('a')
            self.read()
            if is_known:
                self.delete('a')
                self.read()
            else:
                self.execute(sa.delete(models.compute_nodes))
            self.service('a')

            self.assertEqual([], self.read(everything=not is_known))
            self.assertEqual([], self.known())
