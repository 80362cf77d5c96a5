# SPDX-License-Identifier: Apache-2.0
"""How often the host table is brought up to date."""

from concurrent import futures
import threading

import sqlalchemy as sa

from cellsched.db.api import models as api_models
from cellsched.db.cell import models
from tests.unit.db import recording
from tests.unit.db import samples
from tests.unit.hosts import loading
from tests.unit.hosts import world
from tests.unit import racing

DEADLINE_S = 600


class TestReading(loading.LoaderTestCase):

    def test_unchanged_hosts_cost_three_queries(self):
        # The first one maps the hosts, which is a change.
        self.refresh()
        self.refresh()
        cell = self.world.targets.database(self.world.cells['cell1'])

        with recording.recorded(cell) as in_cell, recording.recorded(
                self.world.database) as above:
            self.refresh()

        # The cell's token is read past what records.
        self.assertEqual([], in_cell)
        # The cells, the token of the aggregates, and that of the mappings.
        self.assertEqual(3, len(above))


class TestFullReading(loading.LoaderTestCase):
    """What others write is seen when everything is read."""

    def setUp(self):
        super().setUp()
        self.loader = self.world.loader(full_interval_s=100.0)
        self.refresh()

    def test_full_read_is_done_within_its_interval(self):
        for cell, host in ('cell1', 'a1'), ('cell2', 'b1'):
            self.change(cell, models.compute_nodes, host, vcpus=3)
        self.world.clock.advance(48)
        self.refresh()
        self.assertEqual([8, 4], self.vcpus())

        self.world.clock.advance(50)
        self.refresh()

        self.assertEqual([3, 3], self.vcpus())

    def vcpus(self):
        return [self.value(host, 'vcpus_total') for host in ('a1', 'b1')]

    def test_full_read_is_repeated_after_its_interval(self):
        self.world.clock.advance(100)
        self.refresh()
        self.change('cell1', models.compute_nodes, 'a1', vcpus=3)
        self.refresh()
        self.assertEqual(8, self.value('a1', 'vcpus_total'))

        self.world.clock.advance(100)
        self.refresh()

        self.assertEqual(3, self.value('a1', 'vcpus_total'))

    def test_aggregates_written_outside_are_read(self):
        with self.world.database.writer() as connection:
            connection.execute(sa.insert(api_models.aggregates).values(
                id=1, uuid=samples.uuids(1)[0], name='z', lane=0, position=0))
            connection.execute(sa.insert(api_models.aggregate_hosts).values(
                aggregate_id=1, host='a1'))
        self.refresh()
        self.assertEqual((), self.value('a1', 'aggregates'))

        self.world.clock.advance(100)
        self.refresh()

        self.assertEqual(
            ['z'], [each.name for each in self.value('a1', 'aggregates')])


class TestFollow(loading.LoaderTestCase):

    def followed(self, after_s=0.0, loader=None):
        self.world.clock.advance(after_s)
        return (loader or self.loader).follow(world.CONTEXT)

    def test_table_is_good_for_twice_its_interval(self):
        self.assertEqual(
            [True, False, False, True, False],
            [self.followed(after) for after in (0, 0.5, 1.4, 0.1, 1.9)])

    def test_table_without_interval_is_read_for_each_request(self):
        always = self.world.loader(interval_s=0.0)

        self.assertEqual(
            [True] * 3, [self.followed(loader=always) for _ in range(3)])

    def test_caller_may_require_a_newer_read(self):
        self.loader.refresh(world.CONTEXT)
        asked_at = self.world.clock.monotonic()
        self.world.clock.advance(0.1)

        self.assertTrue(self.loader.refresh(world.CONTEXT, asked_at))
        self.assertFalse(self.loader.refresh(world.CONTEXT, asked_at))

    def test_simultaneous_follows_read_the_cell_once(self):
        reads = []
        start = threading.Barrier(4)
        self.world.targets.behaviour['cell1'] = lambda: reads.append(1)

        def ask():
            start.wait(DEADLINE_S)
            self.loader.follow(world.CONTEXT)
            return self.names()

        self.assertEqual([['a1', 'b1']] * 4, racing.race(*[ask] * 4))
        self.assertEqual(1, len(reads))

    def test_only_the_first_request_waits_for_a_reading(self):
        self.refresh()
        reading, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def hang():
            reading.set()
            go_on.wait(DEADLINE_S)

        self.world.targets.behaviour['cell1'] = hang
        with futures.ThreadPoolExecutor(2) as threads:
            first = threads.submit(self.loader.refresh, world.CONTEXT)
            self.assertTrue(reading.wait(DEADLINE_S))
            # The table is old by now.
            later = threads.submit(self.followed, 5)

            self.assertFalse(later.result(DEADLINE_S))
            self.assertFalse(first.done())
            # And it is there to be decided on.
            self.assertEqual(['a1', 'b1'], self.names())
            go_on.set()
            self.assertTrue(first.result(DEADLINE_S))

    def test_request_after_a_pause_waits_for_the_read(self):
        """By what was known before, hosts seem to be down."""
        # The break is not to be too long for the cell that is being read.
        self.loader = self.world.loader(timeout_s=1000.0)
        self.refresh()
        self.world.clock.advance(1)
        reading, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def hang():
            reading.set()
            go_on.wait(DEADLINE_S)
            order.append('read')

        order = []
        self.world.targets.behaviour['cell1'] = hang
        with futures.ThreadPoolExecutor(2) as threads:
            first = threads.submit(self.loader.refresh, world.CONTEXT)
            self.assertTrue(reading.wait(DEADLINE_S))
            asked = threading.Event()
            self.world.clock.advance(100)

            def ask():
                asked.set()
                self.loader.follow(world.CONTEXT)
                order.append('decided')

            later = threads.submit(ask)
            self.assertTrue(asked.wait(DEADLINE_S))
            go_on.set()

            later.result(DEADLINE_S)
            first.result(DEADLINE_S)
        # It reads once more if the first is through before it asks.
        self.assertEqual(('read', 'decided'), (order[0], order[-1]))
