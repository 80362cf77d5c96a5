# SPDX-License-Identifier: Apache-2.0
"""Following one cell: hosts that go, that are strange, and that fail."""

import sqlalchemy as sa

from cellsched.cells import discovery
from cellsched.db.api import aggregates
from cellsched.db.api import host_mappings
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import models
from cellsched import exception
from tests.unit.hosts import following


class TestGoing(following.FollowerTestCase):

    def setUp(self):
        super().setUp()
        self.a = self.world.add_host('cell1', 'a')
        self.b = self.world.add_host('cell1', 'b')
        self.read()

    def test_deleted_host_is_removed(self):
        self.delete('a')

        self.read()

        self.assertEqual([self.b], self.known())

    def test_recreated_host_is_added(self):
        for is_read in True, False:
            self.delete('a')
            if is_read:
                self.read()

            new = self.world.add_host('cell1', 'a')

            self.assertEqual([new], self.read())
            self.assertEqual(sorted([new, self.b]), self.known())

    def test_node_is_removed_with_its_service(self):
        self.execute(sa.update(models.services).where(
            models.services.c.host == 'a').values(deleted=1))
        self.read()
        self.assertEqual(sorted([self.a, self.b]), self.known())

        self.read(everything=True)
        self.assertEqual([self.b], self.known())

        self.service('a')
        self.assertEqual([self.a], self.read())

    def test_row_deleted_outside_is_removed_by_a_full_read(self):
        self.execute(sa.delete(models.compute_nodes).where(
            models.compute_nodes.c.host == 'a'))
        self.read()
        self.assertEqual(sorted([self.a, self.b]), self.known())

        self.read(everything=True)

        self.assertEqual([self.b], self.known())

    def test_removed_cell_removes_its_hosts(self):
        other = self.follow('cell2')
        uuid = self.world.add_host('cell2', 'c')
        other.read(self.world.targets.database(self.world.cells['cell2']),
                   False)

        self.follower.forget()

        self.assertEqual([uuid], self.known())
        self.assertEqual(
            self.world.own_clock.timestamp(), self.table.cells.oldest)

    def test_read_ending_after_removal_of_the_cell_writes_no_host(self):
        self.follower.forget()
        self.world.add_host('cell1', 'late')

        self.assertEqual([], self.read(everything=True))

        self.assertEqual([], self.known())
        self.assertEqual(float('inf'), self.table.cells.oldest)

    def test_idle_read_ending_after_removal_writes_no_time(self):
        self.read()
        self.follower.forget()

        self.assertEqual([], self.read())

        self.assertEqual(float('inf'), self.table.cells.oldest)


class TestStrangers(following.FollowerTestCase):

    def setUp(self):
        super().setUp()
        self.world.add_host('cell2', 'a')
        self.follow('cell2').read(
            self.world.targets.database(self.world.cells['cell2']), False)

    def test_new_nodes_are_mapped_and_marked(self):
        self.world.add_host('cell1', 'b')

        self.read()

        self.assertEqual({'b': 'cell1'}, self.world.mapped('b'))
        with self.database.reader() as connection:
            self.assertEqual([], compute_nodes.list_unmapped(connection))

    def test_host_of_another_cell_is_omitted_and_logged_once(self):
        self.world.add_host('cell1', 'a', 'stranger')
        self.world.add_host('cell1', 'b')

        for everything in (False, False, True):
            self.read(everything)

        self.assertEqual(['a', 'b'], sorted(self.table['nodename']))
        self.assertEqual({'a': 'cell2'}, self.world.mapped('a'))
        self.assertEqual(1, self.logs.output.count(
            'host names are unique across cells'))

    def test_host_is_added_once_the_conflicting_mapping_is_deleted(self):
        uuid = self.world.add_host('cell1', 'a', 'stranger')
        self.read()
        with self.world.database.writer() as connection:
            connection.execute(sa.text('DELETE FROM host_mappings'))

        self.assertEqual([uuid], self.read())


class TestFlaws(following.FollowerTestCase):

    def test_unreadable_node_value_logs_begin_and_end(self):
        self.node('b', stats='{')
        self.service('b')
        conditions = self.follower.conditions
        for stats, flawed in ('{', True), ('[]', True), ('{}', False):
            uuid = self.node('a', stats=stats)
            self.service('a')
            text = f'Values of compute node {uuid} are ignored'
            for everything in False, True:
                self.read(everything)
                self.assertEqual(flawed, text in conditions)
        self.assertEqual(1, self.logs.output.count(
            f'{text}: stats is not a JSON object'))
        self.assertEqual(2, self.logs.output.count('is not a JSON object'))

    def test_node_without_host_logs_begin_and_end(self):
        uuid = self.node('a')
        self.service('a')
        table = models.compute_nodes
        text = (f'Compute nodes of cell {self.follower.cell.identity} have no '
                'host or no uuid and are left out')
        for host, known in (None, []), (None, []), ('a', ['a']):
            self.execute(sa.update(table).values(host=host))
            self.read(everything=True)
            self.assertEqual(known, [*self.table['host']])
            self.assertEqual(not known, text in self.follower.conditions)
        self.assertEqual(1, self.logs.output.count(f'{text}: {uuid}'))


class TestFailures(following.FollowerTestCase):

    def failures(self):
        return self.table.cells.failures(
            self.follower.cell.uuid, self.world.own_clock.timestamp())

    def test_new_failed_builds_are_counted(self):
        # Nobody knows when the first ones were; a reset is no failure.
        for reported, counted in ((2, 0.0), (5, 3.0), (0, 3.0)):
            self.node('a', stats=f'{{"failed_builds": {reported}}}')
            self.service('a')
            self.read()

            self.assertAlmostEqual(counted, self.failures(), places=1)


class TestAggregates(following.FollowerTestCase):

    def group(self, *members):
        return self.grouping.apply(aggregates.AggregateChanges((), False, [
            aggregates.AggregateRow(
                1, 'u', 'n', {'availability_zone': 'east'}, list(members))],
            frozenset({1})))

    def zones(self):
        hosts_ = self.table.view(0.0)
        return {host: (hosts_.value('availability_zone', zone),
                       len(hosts_.value('aggregates', some)))
                for host, zone, some in zip(
                    hosts_['host'], hosts_['availability_zone'],
                    hosts_['aggregates'])}

    def test_new_host_is_in_its_aggregates(self):
        self.group('a')
        for host in ('a', 'b'):
            self.world.add_host('cell1', host)

        self.read()

        self.assertEqual({'a': ('east', 1), 'b': ('nova', 0)}, self.zones())

    def test_hosts_are_regrouped_after_a_report(self):
        for host in ('a', 'b'):
            self.world.add_host('cell1', host)
        self.read()

        self.follower.regroup(self.group('b', 'elsewhere'))

        self.assertEqual({'a': ('nova', 0), 'b': ('east', 1)}, self.zones())


class TestUnreadable(following.FollowerTestCase):

    def test_hosts_of_an_unreadable_cell_are_kept(self):
        uuid = self.world.add_host('cell1', 'a')
        self.read()
        heard = self.table.cells.oldest
        self.execute(sa.text('DROP TABLE services'))
        self.node('a')

        self.assertRaises(exception.DatabaseError, self.read)

        self.assertEqual([uuid], self.known())
        self.assertEqual(heard, self.table.cells.oldest)


class TestWithoutMapping(following.FollowerTestCase):
    """Others map hosts."""

    def setUp(self):
        super().setUp()
        self.follower = self.follow('cell1', maps_hosts=False)
        self.follower.mapped = set()

    def test_host_waits_for_its_mapping(self):
        a = self.world.add_host('cell1', 'a')
        b = self.world.add_host('cell1', 'b')
        self.assertEqual([], self.read())
        self.assertEqual({}, self.owners('a', 'b'))

        self.map('b')

        self.assertEqual([b], self.read())
        self.assertEqual([], self.read())
        self.map('a')
        self.assertEqual([a], self.read())
        self.assertEqual(sorted([a, b]), self.known())

    def test_unmapped_host_deleted_before_its_mapping_is_not_added(self):
        self.world.add_host('cell1', 'a')
        self.read()
        self.delete('a')

        self.map('a')

        self.assertEqual([], self.read())

    def map(self, host):
        discovery.Discovery(
            self.world.database, None, self.world.targets, self.world.clock,
        ).map_host(self.world.cells['cell1'], host)
        self.follower.mapped = self.follower.mapped | {host}

    def owners(self, *hosts):
        with self.world.database.reader() as connection:
            return host_mappings.get_many(connection, hosts)


class TestMovedNode(following.FollowerTestCase):
    """A node keeps its uuid in another cell, which is read before."""

    def setUp(self):
        super().setUp()
        self.uuid = self.world.add_host('cell1', 'a')
        self.follower.mapped = {'a'}
        self.read()
        with self.world.database.writer() as connection:
            connection.execute(sa.text('DELETE FROM host_mappings'))
        self.there = self.follow('cell2')
        self.there.mapped = {'a'}
        self.new = self.world.targets.database(self.world.cells['cell2'])
        with self.new.writer() as connection:
            compute_nodes.save(
                connection, self.uuid, 'a', 'a',
                self.world.node_values(16, 8192, 100), self.world.clock.now())
        self.world.report('cell2', 'a')
        self.there.read(self.new, True)
        self.follower.mapped = set()

    def test_deleted_mapping_keeps_the_node_of_the_new_cell(self):
        self.read()

        self.assertEqual(16, self.value(self.uuid, 'vcpus_total'))

    def test_deleted_host_keeps_the_node_of_the_new_cell(self):
        self.follower.mapped = None
        self.delete('a')
        self.read()

        self.assertEqual(16, self.value(self.uuid, 'vcpus_total'))

    def test_removed_cell_keeps_the_node_of_the_new_cell(self):
        self.follower.forget()

        self.assertEqual(16, self.value(self.uuid, 'vcpus_total'))

    def test_node_removed_by_the_former_cell_is_read_again(self):
        self.follower.mapped = {'a'}
        self.read(everything=True)
        self.delete('a')
        self.read()
        self.assertIsNone(self.table.row(self.uuid))

        self.world.report('cell2', 'a')
        new = self.there.read(self.new, False)

        self.assertEqual([self.uuid], new)
        self.assertEqual(16, self.value(self.uuid, 'vcpus_total'))
        self.assertEqual('a', self.value(self.uuid, 'host'))

    def test_report_of_the_former_host_changes_no_other_cell(self):
        self.follower.mapped = None
        before = self.value(self.uuid, 'last_seen_up')
        self.world.clock.advance(5)
        self.world.report('cell1', 'a')
        self.read()

        self.assertEqual(before, self.value(self.uuid, 'last_seen_up'))
