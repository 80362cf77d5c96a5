# SPDX-License-Identifier: Apache-2.0
"""The driver that filters and weighs, as its configuration says."""

import functools

from cellsched.claims import base as claims_base
from cellsched.db.api import aggregates
from cellsched.db.cell import services
from cellsched import exception
from cellsched.filters import base as filters
from cellsched import plugins
from cellsched.scheduler.explanation import decision_record
from cellsched.scheduler import recording
from cellsched.scheduler import replay
from cellsched.testing import builders
from tests.unit.db import samples
from tests.unit.hosts import world as hosts
from tests.unit.scheduler.drivers import world


class LateFilter(filters.Filter):
    """Takes five seconds, by the clock that a test gives it."""

    def keep(self, hosts, request):
        self.clock.advance(5)


class TestFilterScheduler(world.DemandCases, world.DriverTestCase):

    name = 'filter_scheduler'

    BY_RAM = {'weight_classes': 'RAMWeigher'}

    def setUp(self):
        super().setUp()
        self.world.add_host('cell1', 'small', vcpus=2, memory_mb=1024)
        self.world.add_host('cell1', 'big', vcpus=8, memory_mb=9216)
        self.world.add_host('cell2', 'middle', vcpus=4, memory_mb=4096)

    def filtering(self, **options):
        return self.driver(filters=options)

    def refusal(self, driver, **wishes):
        return str(self.assertRaises(
            exception.NoValidHost, self.select, driver, **wishes))

    def test_heaviest_host_of_all_cells_is_first(self):
        self.assertEqual([['big'], ['big']], self.select(
            self.filtering(weight_classes='RAMWeigher'), 2))

    def test_slow_plugin_is_logged_above_the_configured_time(self):
        LateFilter.clock = self.world.clock
        late = {'available_filters': f'{__name__}.LateFilter',
                'enabled_filters': 'LateFilter'}
        self.select(self.driver(filters=late, slow_plugin_seconds=6))
        self.assertNotIn('LateFilter took', self.logs.output)

        self.select(self.driver(filters=late, slow_plugin_seconds=4))

        self.assertIn('Filter LateFilter took 5.0 seconds', self.logs.output)

    def test_requested_networks_restrict_the_hosts(self):
        driver = self.driver(network_driver='fake')
        plan = {'requested_networks': {'nova_object.data': {'objects': [
            {'nova_object.data': {'port_id': 'port1'}}]}}}
        self.assertEqual(1, len(self.select(driver, **plan)))

        driver.parts.conf.set_override(
            'remote_managed_ports', ['port1'], 'fake_network')

        self.assertIn('lack the trait COMPUTE_REMOTE_MANAGED_PORTS',
                      self.refusal(driver, **plan))

    def test_alternates_are_of_the_same_cell(self):
        self.assertEqual([['big', 'small']], self.select(
            self.filtering(weight_classes='RAMWeigher'), alternates=2))

    def test_reported_instances_are_located_on_their_host(self):
        driver = self.filtering(
            weight_classes='RAMWeigher',
            enabled_filters='DifferentHostFilter')
        [uuid] = samples.uuids(1)
        apart = {'hints': {'different_host': [uuid]}}
        self.assertEqual([['big']], self.select(driver, **apart))

        driver.update_instances('big', [uuid], complete=False)
        self.assertEqual([['middle']], self.select(driver, **apart))

        driver.delete_instance('big', uuid)
        self.assertEqual([['big']], self.select(driver, **apart))

    def test_configured_weighers_are_used(self):
        packing = self.filtering(
            weight_classes='RAMWeigher', ram_weight_multiplier=-1.0)

        self.assertEqual([['small']], self.select(packing))

    def test_changed_options_apply_to_later_requests(self):
        driver = self.filtering(
            weight_classes='RAMWeigher', enabled_filters='IsolatedHostsFilter')
        self.assertEqual([['big']], self.select(driver))

        self.change(driver, isolated_hosts='big')
        self.assertEqual([['middle']], self.select(driver))

        self.change(driver, ram_weight_multiplier=-1.0)
        self.assertEqual([['small']], self.select(driver))

        self.change(driver, host_subset_size=2)
        chosen = self.select(driver, 20, vcpus=0, memory_mb=0, root_gb=1)
        self.assertEqual({'small', 'middle'}, {host for [host] in chosen})

    def test_recorded_decisions_have_the_options_of_their_time(self):
        driver = self.filtering(weight_classes='RAMWeigher')
        path = self.temporary_directory() / 'decisions'
        recorder = recording.Recorder(
            path, 2 ** 22, lambda: replay.header_of(driver.conf),
            self.world.clock.monotonic)
        driver.parts.recorder = driver.placer.recorder = recorder
        self.addCleanup(recorder.close)
        self.select(driver)
        recorder.flush()
        self.select(driver)

        self.change(driver, ram_weight_multiplier=-1.0)
        self.select(driver)
        recorder.flush()

        self.assertEqual([('big', 1.0), ('big', 1.0), ('small', -1.0)], [
            (entry.answer.hosts[0], entry.header['options'][
                'filter_scheduler']['ram_weight_multiplier'])
            for entry in recording.read(path)])

    def test_host_is_chosen_at_random_from_the_best(self):
        driver = self.filtering(
            weight_classes='RAMWeigher', host_subset_size=2)

        chosen = self.select(driver, 20, vcpus=0, memory_mb=0, root_gb=1)

        self.assertEqual({'big', 'middle'}, {host for [host] in chosen})

    def equals(self, seed, **filters):
        """Return a driver for which hosts have the same weight."""
        return self.driver(seed, {
            **self.BY_RAM, 'ram_weight_multiplier': 0.0, **filters})

    def test_schedulers_begin_with_other_hosts_of_the_same_weight(self):
        def chosen(seed, *names, **filters):
            driver = self.equals(seed, **filters)
            [host] = {host for [host] in [self.select(
                driver, vcpus=0, memory_mb=0, root_gb=1,
                force_hosts=names)[0] for _ in range(3)]}
            return host

        # The cells are read at once, so that the table begins with either.
        # No host is first for all seeds in both orders.
        self.assertLess(1, len({
            chosen(seed, 'big', 'middle', 'small') for seed in range(9)}))
        self.assertEqual({'small'}, {
            chosen(seed, 'big', 'small',
                   rotate_best_same_weighed_hosts=False)
            for seed in range(9)})

    def test_plan_does_not_depend_on_the_random_source(self):
        def planned(seed):
            [[[chosen]], _] = self.equals(seed).plan(
                hosts.CONTEXT, builders.request(
                    force_hosts=['big', 'small']), samples.uuids(1), 0)
            return chosen.service_host

        self.assertEqual({'small'}, {planned(seed) for seed in range(9)})

    def test_evacuation_selects_among_several_best_hosts(self):
        self.disable('big')
        leaving = {'vcpus': 0, 'memory_mb': 0, 'root_gb': 1,
                   'ignore_hosts': ['big']}

        def chosen(**filters):
            return {self.select(self.driver(
                seed, {**self.BY_RAM, **filters}), **leaving)[0][0]
                for seed in range(9)}

        self.assertEqual({'middle', 'small'}, chosen())
        self.assertEqual({'middle'}, chosen(evacuation_host_subset_size=1))

    def test_configured_filters_are_used(self):
        self.world.clock.advance(3600)

        self.assertIn('down', self.refusal(self.filtering()))
        self.assertEqual([['big']], self.select(self.filtering(
            enabled_filters='AllHostsFilter', weight_classes='RAMWeigher')))

    def test_unknown_filter_is_named(self):
        error = self.assertRaises(
            exception.PluginNotFound, self.filtering,
            enabled_filters='ComputeFilter,ComptueFilter')

        self.assertEqual(('ComptueFilter', plugins.FILTERS), (
            error.name, error.namespace))

    def test_zone_is_applied_with_any_filters(self):
        with self.world.database.writer() as connection:
            aggregates.create(
                connection, samples.uuids(1)[0], 'z', ['small'],
                {'availability_zone': 'east'}, samples.NOW)

        for enabled in ('ComputeFilter', 'ComputeFilter,'
                                         'AvailabilityZoneFilter'):
            driver = self.filtering(enabled_filters=enabled)
            self.assertEqual([['small']], self.select(
                driver, availability_zone='east'))
            self.assertIn('are in another availability zone', self.refusal(
                driver, availability_zone='north'))

    def test_disabled_host_is_rejected_with_any_filters(self):
        self.disable('big')

        driver = self.filtering(
            enabled_filters='AllHostsFilter', weight_classes='RAMWeigher')

        self.assertEqual([['middle']], self.select(driver))

    def disable(self, host):
        with self.world.writer('cell1') as connection:
            services.set_disabled(
                connection, host, True, 'x', self.world.clock.now())

    def test_hosts_of_a_long_silent_cell_are_rejected(self):
        driver = self.driver(stale_cell_timeout=30)
        self.assertEqual([['small']], self.select(
            driver, force_hosts=['small']))

        def fail():
            raise exception.CellUnreachable(cell='cell1', reason='x')

        self.world.targets.behaviour['cell1'] = fail
        self.world.clock.advance(30)
        self.assertEqual([['small']], self.select(
            driver, force_hosts=['small']))

        self.world.clock.advance(1)
        self.assertEqual([['middle']], self.select(driver))
        self.assertIn('2 are in a cell that does not answer', self.refusal(
            driver, force_hosts=['small']))

    def test_choices_are_as_many_as_configured(self):
        driver = self.driver(claim_attempts=2)
        claimed = []

        def claim(claims):
            claimed.append(claims)
            raise exception.ClaimRefused(
                provider=claims[0].provider, resource='VCPU', amount=1,
                consumer=claims[0].consumer)

        store = self.world.claims
        store.claim = claim
        store.claim_any = functools.partial(
            claims_base.ClaimStore.claim_any, store)
        self.assertRaises(exception.NoValidHost, self.select, driver)

        # Each attempt names the three hosts.
        self.assertEqual(2 * 3, len(claimed))

    def test_table_is_refreshed_all_the_time_and_decisions_are_written(self):
        self.assertEqual([decision_record.SPACING_S], [
            spacing for _, spacing in self.driver().periodic()])

        # The last one that is given counts.
        (_, _), (refresh, spacing) = self.driver(
            seed=0, full_refresh_interval='5\nrefresh_interval = 3',
        ).periodic()

        refresh()
        self.assertEqual(3.0, spacing)
