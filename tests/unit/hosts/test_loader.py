# SPDX-License-Identifier: Apache-2.0
"""Filling the host table from the cells."""

from concurrent import futures
import queue
import threading

import sqlalchemy as sa

from cellsched.db.api import aggregates
from cellsched.db.api import models as api_models
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import models
from cellsched import exception
from cellsched.hosts import columns
from tests.unit.db import samples
from tests.unit.hosts import loading
from tests.unit.hosts import world

DEADLINE_S = 30


class TestCells(loading.LoaderTestCase):

    def test_rows_are_what_cells_say(self):
        self.refresh()

        self.assertEqual(['a1', 'b1'], self.names())
        wanted = {
            'host': 'a1', 'nodename': 'a1', 'uuid': self.a1,
            'cell': self.world.cells['cell1'].uuid,
            'availability_zone': 'nova', 'service_disabled': False,
            'forced_down': False, 'vcpus_total': 8,
            'total_usable_ram_mb': 8192, 'unreserved_ram_mb': 8192,
            'total_usable_disk_gb': 100, 'unreserved_disk_mb': 102400,
            'cpu_allocation_ratio': 1.0, 'hypervisor_version': 1,
            'last_seen_up': self.world.clock.timestamp() - 1}
        self.assertEqual(wanted, {
            column: self.value('a1', column) for column in wanted})
        self.assertEqual([], self.loader.silent)

    def test_each_node_of_a_host_has_a_row(self):
        self.world.add_host('cell1', 'a2', 'n1', 'n2')

        self.refresh()

        self.assertEqual(['a1', 'a2', 'a2', 'b1'], self.names())
        self.assertEqual('n2', self.value('n2', 'nodename'))

    def test_what_a_host_keeps_for_itself_is_not_free(self):
        self.change('cell1', models.compute_nodes, 'a1',
                    memory_mb_used=512, local_gb_used=10)

        self.refresh()

        self.assertEqual(8192, self.value('a1', 'total_usable_ram_mb'))
        self.assertEqual(7680, self.value('a1', 'free_ram_mb'))
        self.assertEqual(90 * 1024, self.value('a1', 'free_disk_mb'))

    def test_host_that_comes_is_added(self):
        self.refresh()
        self.world.add_host('cell2', 'b2')

        self.refresh()

        self.assertEqual(['a1', 'b1', 'b2'], self.names())
        self.assertEqual(8, self.value('b2', 'room:VCPU'))

    def test_host_that_changes_is_changed(self):
        self.refresh()
        self.change('cell1', models.services, 'a1', disabled=True)
        self.change('cell2', models.services, 'b1', forced_down=True)
        self.change('cell2', models.compute_nodes, 'b1', vcpus=5)

        self.refresh()

        self.assertTrue(self.value('a1', 'service_disabled'))
        self.assertTrue(self.value('b1', 'forced_down'))
        self.assertEqual(5, self.value('b1', 'vcpus_total'))

    def test_host_that_goes_is_dropped(self):
        self.world.add_host('cell1', 'a2')
        self.refresh()
        self.change('cell1', models.compute_nodes, 'a1', deleted=1)

        self.refresh()

        self.assertEqual(['a2', 'b1'], self.names())

    def test_host_that_never_reported_counts_from_its_creation(self):
        self.change('cell1', models.services, 'a1', last_seen_up=None)

        self.refresh()

        self.assertEqual(self.world.clock.timestamp() - 1,
                         self.value('a1', 'last_seen_up'))

    def test_what_old_rows_leave_empty_is_no_matter(self):
        self.change('cell1', models.services, 'a1', disabled=None,
                    forced_down=None, last_seen_up=None, created_at=None)
        self.change('cell1', models.compute_nodes, 'a1',
                    cpu_allocation_ratio=None, ram_allocation_ratio=None,
                    disk_allocation_ratio=None, mapped=None)

        self.refresh()

        self.assertEqual((False, 0.0, 1.0), (
            self.value('a1', 'service_disabled'),
            self.value('a1', 'last_seen_up'),
            self.value('a1', 'cpu_allocation_ratio')))

    def test_zone_is_that_of_an_aggregate(self):
        with self.world.database.writer() as connection:
            aggregates.create(
                connection, samples.uuids(1)[0], 'z', ['b1'],
                {'availability_zone': 'east'}, samples.NOW)

        self.refresh()

        self.assertEqual(['nova', 'east'], [
            self.value(host, 'availability_zone') for host in ('a1', 'b1')])

    def test_disabled_cell_is_not_read(self):
        self.refresh()
        with self.world.database.writer() as connection:
            connection.execute(
                sa.update(api_models.cell_mappings)
                .where(api_models.cell_mappings.c.name == 'cell1')
                .values(disabled=True))

        self.refresh()

        self.assertEqual(['b1'], self.names())
        self.assertEqual([], self.loader.silent)

    def test_extra_columns_are_there(self):
        extra = columns.Column('colour', 'object', 'green', 'its colour')
        self.loader = self.world.loader(extra_columns=[extra])

        self.refresh()

        self.assertEqual('green', self.value('a1', 'colour'))


class TestMapping(loading.LoaderTestCase):

    def test_hosts_that_nobody_mapped_are_mapped(self):
        self.refresh()

        self.assertEqual({'a1': 'cell1', 'b1': 'cell2'},
                         self.world.mapped('a1', 'b1'))
        for cell in ('cell1', 'cell2'):
            with self.world.writer(cell) as connection:
                self.assertEqual(
                    [], compute_nodes.list_unmapped(connection))

    def test_host_of_another_cell_is_left_out_and_told_once(self):
        self.refresh()
        self.world.add_host('cell2', 'a1', 'stranger')

        for _ in range(3):
            self.refresh()

        self.assertEqual(['a1', 'b1'], self.names())
        self.assertEqual(
            self.world.cells['cell1'].uuid, self.value('a1', 'cell'))
        self.assertEqual({'a1': 'cell1'}, self.world.mapped('a1'))
        self.assertEqual(1, self.logs.output.count(
            'host names are unique across cells'))
        self.assertIn(self.world.cells['cell2'].identity, self.logs.output)

    def test_cell_that_cannot_be_written_does_not_keep_the_others(self):
        cell = self.world.cells['cell1']
        path = cell.database_connection.removeprefix('sqlite:///')
        with self.world.database.writer() as connection:
            connection.execute(
                sa.update(api_models.cell_mappings)
                .where(api_models.cell_mappings.c.name == 'cell1').values(
                    database_connection=f'sqlite:///file:{path}'
                                        '?mode=ro&uri=true'))

        self.refresh()

        self.assertEqual(['b1'], self.names())
        self.assertEqual([cell.identity], self.loader.silent)


class TestSilence(loading.LoaderTestCase):

    def fail(self):
        raise exception.CellUnreachable(cell='cell1', reason='as told')

    def test_cell_that_fails_loses_its_rows_and_is_named(self):
        self.refresh()
        self.world.targets.behaviour['cell1'] = self.fail

        self.refresh()

        self.assertEqual(['b1'], self.names())
        self.assertEqual(
            [self.world.cells['cell1'].identity], self.loader.silent)
        self.assertIn('as told', self.logs.output)

    def test_cell_that_comes_back_has_its_rows_and_what_is_taken(self):
        self.refresh()
        self.world.targets.behaviour['cell1'] = self.fail
        self.world.claim('a1', 3)
        self.refresh()
        del self.world.targets.behaviour['cell1']

        self.refresh()

        self.assertEqual(['a1', 'b1'], self.names())
        self.assertEqual([], self.loader.silent)
        self.assertEqual((5, 1), (self.value('a1', 'room:VCPU'),
                                  self.value('a1', 'num_instances')))

    def test_cell_that_hangs_loses_its_rows_and_is_named(self):
        self.loader = self.world.loader(timeout_s=1.5)
        self.refresh()
        go_on = threading.Event()
        self.addCleanup(go_on.set)
        submitted = self.world.threads.submitted = queue.Queue()

        def hang():
            both = [submitted.get(timeout=DEADLINE_S) for _ in range(2)]
            # Time passes when the other cell has answered.
            futures.wait(both, DEADLINE_S, futures.FIRST_COMPLETED)
            self.world.clock.advance(world.TIMEOUT_S)
            go_on.wait(DEADLINE_S)

        self.world.targets.behaviour['cell1'] = hang
        self.refresh()

        self.assertEqual(['b1'], self.names())
        self.assertEqual(
            [self.world.cells['cell1'].identity], self.loader.silent)
        # It still hangs, so it is not asked.
        self.refresh()
        self.assertEqual(['b1'], self.names())

    def test_all_may_be_silent(self):
        self.refresh()
        self.world.targets.behaviour.update(
            cell1=self.fail, cell2=self.fail)

        self.refresh()

        self.assertEqual([], self.names())
        self.assertEqual(2, len(self.loader.silent))


class TestInterval(loading.LoaderTestCase):

    def refreshed(self, after_s=0.0, loader=None, **options):
        self.world.clock.advance(after_s)
        return (loader or self.loader).refresh(world.CONTEXT, **options)

    def test_table_is_good_for_so_long(self):
        self.assertEqual(
            [True, False, False, True, False],
            [self.refreshed(after) for after in (0, 0.5, 0.4, 0.1, 0.9)])

    def test_without_an_interval_it_is_read_each_time(self):
        always = self.world.loader(interval_s=0.0)

        self.assertEqual(
            [True] * 3, [self.refreshed(loader=always) for _ in range(3)])

    def test_caller_may_want_it_newer(self):
        self.refreshed()
        asked_at = self.world.clock.monotonic()

        self.assertTrue(self.refreshed(0.1, since=asked_at))
        self.assertFalse(self.refreshed(0.1, since=asked_at))

    def test_threads_that_ask_at_once_read_it_once(self):
        reads = []
        self.world.targets.behaviour['cell1'] = lambda: reads.append(1)
        start = threading.Barrier(4)

        def ask():
            start.wait()
            self.refreshed()

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        self.assertEqual(1, len(reads))
