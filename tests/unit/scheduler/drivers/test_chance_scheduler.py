# SPDX-License-Identifier: Apache-2.0
"""The driver that leaves it to chance."""

import collections

import sqlalchemy as sa

from cellsched.db.api import models
from cellsched import exception
from tests.unit.scheduler.drivers import world

HOSTS = [f'host{number}' for number in range(8)]


class TestChanceScheduler(world.DemandCases, world.DriverTestCase):

    name = 'chance_scheduler'

    def setUp(self):
        super().setUp()
        for number, host in enumerate(HOSTS):
            self.world.add_host(f'cell{number % 2 + 1}', host, vcpus=100,
                                memory_mb=100, disk_gb=100)

    def counts(self, driver, count):
        return collections.Counter(host for [host] in self.select(
            driver, count, memory_mb=1, root_gb=0))

    def test_every_host_has_its_chance(self):
        counts = self.counts(self.driver(seed=1), 400)

        self.assertEqual(set(HOSTS), set(counts))
        # 50 each, with a deviation of some 7.
        self.assertLess(max(counts.values()), 90)
        self.assertGreater(min(counts.values()), 20)

    def test_choice_depends_on_the_random_source(self):
        def chosen(seed):
            return self.select(self.driver(seed), 10, memory_mb=1, root_gb=0)

        # In which order several cells are read is chance of another kind.
        with self.world.database.writer() as connection:
            connection.execute(
                sa.update(models.cell_mappings)
                .where(models.cell_mappings.c.name == 'cell2')
                .values(disabled=True))

        self.assertEqual(chosen(7), chosen(7))
        self.assertNotEqual(chosen(7), chosen(8))

    def test_host_without_room_is_not_chosen(self):
        for host in HOSTS[1:]:
            self.world.claim(host, 100)

        self.assertEqual({'host0': 10}, self.counts(self.driver(), 10))

    def test_down_host_is_not_chosen(self):
        self.world.clock.advance(3600)
        self.world.report('cell1', 'host2')

        self.assertEqual({'host2': 10}, self.counts(self.driver(), 10))

    def test_error_has_the_number_of_hosts(self):
        error = self.assertRaises(
            exception.NoValidHost, self.select, self.driver(), vcpus=101)

        self.assertIn('8', str(error))

    def test_alternates_are_of_the_same_cell(self):
        cells = {name: [host for host in HOSTS
                        if int(host[-1]) % 2 == number]
                 for number, name in enumerate(('cell1', 'cell2'))}

        [[first, *others]] = self.select(
            self.driver(), alternates=3, memory_mb=1, root_gb=0)

        [mine] = [there for there in cells.values() if first in there]
        self.assertEqual(sorted(mine), sorted([first, *others]))
