# SPDX-License-Identifier: Apache-2.0
"""The driver that filters and weighs, as its configuration says."""

from cellsched import exception
from cellsched import plugins
from tests.unit.scheduler.drivers import world


class TestFilterScheduler(world.DriverTestCase):

    name = 'filter_scheduler'

    def setUp(self):
        super().setUp()
        self.world.add_host('cell1', 'small', vcpus=2, memory_mb=1024)
        self.world.add_host('cell1', 'big', vcpus=8, memory_mb=9216)
        self.world.add_host('cell2', 'middle', vcpus=4, memory_mb=4096)

    def filtering(self, **options):
        """Return a driver with options of ``[filter_scheduler]``."""
        return self.driver(refresh_interval='0\n[filter_scheduler]',
                           **options)

    def test_heaviest_host_of_all_cells_comes_first(self):
        self.assertEqual([['big'], ['big']], self.select(self.driver(), 2))

    def test_alternates_are_of_the_same_cell(self):
        self.assertEqual([['big', 'small']], self.select(
            self.driver(), alternates=2))

    def test_weighers_are_those_that_are_configured(self):
        packing = self.filtering(
            weight_classes='RAMWeigher', ram_weight_multiplier=-1.0)

        self.assertEqual([['small']], self.select(packing))

    def test_filters_are_those_that_are_configured(self):
        self.world.clock.advance(3600)

        self.assertRaises(
            exception.NoValidHost, self.select, self.driver())
        self.assertEqual([['big']], self.select(
            self.filtering(enabled_filters='AllHostsFilter')))

    def test_filter_that_is_not_there_is_named(self):
        error = self.assertRaises(
            exception.PluginNotFound, self.filtering,
            enabled_filters='ComputeFilter,ComptueFilter')

        self.assertEqual(('ComptueFilter', plugins.FILTERS), (
            error.name, error.namespace))

    def test_choices_are_as_many_as_configured(self):
        driver = self.driver(claim_attempts=2)
        claimed = []

        def claim(claims):
            claimed.append(claims)
            raise exception.ClaimRefused(
                provider=claims[0].provider, resource='VCPU', amount=1,
                consumer=claims[0].consumer)

        self.world.claims.claim = claim
        self.assertRaises(exception.NoValidHost, self.select, driver)

        self.assertEqual(2, len(claimed))
