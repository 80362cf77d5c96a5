# SPDX-License-Identifier: Apache-2.0
"""The driver that keeps no hosts."""


from cellsched.claims import base as claims
from cellsched.claims import memory
from cellsched.db.api import aggregates
from cellsched.db.cell import services
from cellsched import exception
from cellsched.host_manager import host_reader
from cellsched.host_manager import manager
from cellsched import objects
from cellsched.observability.prometheus import PrometheusMetrics
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler.drivers import provider_scheduler
from cellsched.scheduler.selection import placer
from cellsched.scheduler.selection import selector
from cellsched.simulator import servers
from cellsched.testing import builders
from tests.unit.db import samples
from tests.unit.hosts import world as hosts
from tests.unit.scheduler.drivers import world


class Asked(memory.MemoryClaims):
    """Remembers what it was asked to find, and may refuse a claim."""

    def __init__(self):
        super().__init__()
        self.queries, self.told = [], []
        self.before = lambda: None

    def find_providers(self, query, limit=None):
        self.queries.append((query, limit))
        return super().find_providers(query, limit)

    def usages(self, since=None, providers=None):
        found = super().usages(since, providers)
        self.told.append(len(found.usages))
        return found

    # It claims one batch after the other, by the method below.
    claim_any = claims.ClaimStore.claim_any

    def claim(self, claims):
        before, self.before = self.before, lambda: None
        before()
        return super().claim(claims)


class Mute(memory.MemoryClaims):
    """Finds nothing by query."""

    capabilities = memory.MemoryClaims.capabilities - {claims.Capability.QUERY}


class TestProviderScheduler(world.DriverTestCase):

    name = 'provider_scheduler'

    BY_RAM = {'weight_classes': 'RAMWeigher',
              'rotate_best_same_weighed_hosts': False}

    def setUp(self):
        super().setUp()
        self.claims = self.world.claims = Asked()
        for number in range(6):
            self.world.add_host(
                f'cell{number % 2 + 1}', f'host{number}', vcpus=4,
                memory_mb=1024 * (number + 1))

    def made(self, filters=(), **options):
        return self.driver(filters={**self.BY_RAM, **dict(filters)},
                           **options)

    def refusal(self, driver, **wishes):
        return self.assertRaises(
            exception.NoValidHost, self.select, driver, **wishes)

    def test_changed_options_apply_to_later_requests(self):
        driver = self.made({'enabled_filters': 'IsolatedHostsFilter'})
        self.assertEqual([['host5']], self.select(driver))

        self.change(driver, isolated_hosts='host5,host0')
        self.assertEqual([['host4']], self.select(driver))

        self.change(driver, ram_weight_multiplier=-1.0)
        self.assertEqual([['host1']], self.select(driver))

    def test_cells_of_the_last_request_are_published(self):
        def fail():
            raise exception.CellUnreachable(cell='cell2', reason='away')

        metrics = PrometheusMetrics('scheduler')
        driver = self.made(metrics=metrics)
        self.select(driver, vcpus=2)
        self.world.targets.behaviour['cell2'] = fail
        self.select(driver, vcpus=2)

        text = metrics.exposition('')[0].decode()
        self.assertEqual('', driver.unready())
        for line in ('cellsched_silent_cells 1.0',
                     'cellsched_cell_read_timestamp_seconds{cell="cell1"} ',
                     'cellsched_cell_read_timestamp_seconds{cell="cell2"} ',
                     'cellsched_scheduler_requests_total{result="selected"} 2',
                     'cellsched_queued_tasks{queue="decisions"} '):
            self.assertIn(f'\n{line}', text)

    def test_best_of_the_hosts_with_room_is_chosen(self):
        self.world.claim('host5', 3)

        self.assertEqual([['host4', 'host2', 'host0']], self.select(
            self.made(), vcpus=2, alternates=2))

    def test_hosts_without_room_are_not_read(self):
        for number in range(4):
            self.world.claim(f'host{number}', 4)
        driver = self.made()
        self.claims.told.clear()

        self.select(driver, vcpus=1)

        self.assertEqual([2], self.claims.told)

    def test_hosts_are_read_again_for_each_request(self):
        driver = self.made()
        self.assertEqual([['host5']], self.select(driver))
        with self.world.writer('cell2') as connection:
            services.set_disabled(
                connection, 'host5', True, 'x', self.world.clock.now())
        self.world.claim('host4', 4)

        self.assertEqual([['host3']], self.select(driver))

    def test_store_without_queries_is_refused_at_start(self):
        self.world.claims = Mute()

        error = self.assertRaises(
            exception.ConfigurationInvalid, self.made)

        self.assertEqual('[claims] store', error.field)
        for word in ('memory', 'sql', 'provider_scheduler', 'by query'):
            self.assertIn(word, str(error))

    def test_refused_claim_repeats_the_query_of_the_store(self):
        driver = self.made({'refused_host_subset_size': 1})
        # Without alternatives, so that the refusal ends the claim.
        self.patch(selector, '_CANDIDATES', 1)
        self.claims.before = lambda: self.world.claim('host5', 4)

        self.assertEqual([['host4']], self.select(driver))

        self.assertEqual(2, len(self.claims.queries))

    def test_lane_reads_no_store_and_no_cell(self):
        driver = self.made({'refused_host_subset_size': 1})
        self.patch(selector, '_CANDIDATES', 1)
        self.claims.before = lambda: self.world.claim('host5', 4)
        deciding, reads = [], []

        def advance(*args, of=placer.Placer.advance):
            deciding.append(args)
            try:
                return of(*args)
            finally:
                deciding.pop()

        def noted(kind, name):
            read = getattr(kind, name)

            def note(*args, **options):
                reads.append((name, len(deciding)))
                return read(*args, **options)

            self.patch(kind, name, note)

        self.patch(placer.Placer, 'advance', advance)
        for name in 'find_providers', 'usages', 'claims_of':
            noted(Asked, name)
        for name in 'read', 'beats':
            noted(host_reader.HostReader, name)

        self.assertEqual([['host4']], self.select(driver))
        self.refusal(driver, vcpus=5)

        self.assertEqual(
            {(name, 0) for name in (
                'find_providers', 'usages', 'claims_of', 'read', 'beats')},
            set(reads))

    def test_refused_host_is_counted_in_the_error(self):
        for number in range(5):
            self.world.claim(f'host{number}', 4)
        self.claims.before = lambda: self.world.claim('host5', 4)

        error = self.refusal(self.made())

        self.assertIn('1 lost its room to another request', str(error))
        self.assertIn('5 lack room or a trait', str(error))

    def test_hosts_missing_in_the_query_are_counted(self):
        for number in range(4):
            self.world.claim(f'host{number}', 4)
        self.world.clock.advance(3600)
        self.world.report('cell1', 'host0')

        error = self.refusal(self.made(), vcpus=1)

        self.assertEqual(
            [('query', 4), ('ComputeFilter', 2)],
            [(each['by'], each['hosts']) for each in error.rejections])

    def test_no_more_are_found_than_configured(self):
        driver = self.made(max_placement_results=2)

        [[chosen]] = self.select(driver)

        [(_, limit)] = self.claims.queries
        self.assertEqual(2, limit)
        self.assertIn(chosen, {'host0', 'host1'})

    def test_refusal_requires_all_hosts_beyond_the_query_limit(self):
        # The reference finds the first ones.
        driver = self.made(max_placement_results=2)

        self.assertEqual([['host5']], self.select(
            driver, availability_zone=None, memory_mb=1,
            hints={'build_near_host_ip': []}, force_nodes=['host5']))
        error = self.refusal(driver, force_nodes=['nowhere'])

        self.assertEqual(6, sum(
            each['hosts'] for each in error.rejections))
        self.assertNotIn('query', {
            each['by'] for each in error.rejections})

    def test_named_host_is_read_without_a_query_of_the_store(self):
        driver = self.made()

        self.assertEqual([['host2']], self.select(
            driver, force_hosts=['HOST2']))
        self.assertEqual([['host3']], self.select(
            driver, requested_destination=objects.Destination(
                host='host3')))
        self.world.claim('host2', 3)
        error = self.refusal(driver, force_hosts=['host2'])

        self.assertEqual([], self.claims.queries)
        self.assertIn('5 are not the host that was requested', str(error))
        self.assertIn('1 lacks CPUs', str(error))

    def test_traits_are_in_the_query(self):
        provider = self.world.providers['host0']
        for name, uuid in self.world.providers.items():
            self.claims.set_traits(uuid, ['CUSTOM_B'], uuid)
        self.claims.set_traits(provider, ['CUSTOM_A'], provider)

        self.refusal(self.made(), extra_specs={
            'trait:CUSTOM_A': 'required', 'trait:CUSTOM_B': 'forbidden',
            'resources1:VCPU': '1', 'trait1:CUSTOM_C': 'required'},
            vcpus=3)

        query, _ = self.claims.queries[0]
        self.assertEqual({'CUSTOM_A', 'CUSTOM_C'}, query.required)
        self.assertEqual({'CUSTOM_B'}, query.forbidden)
        self.assertEqual(
            {'VCPU': {1, 3}, 'MEMORY_MB': {512}, 'DISK_GB': {1}},
            query.resources)

    def test_invalid_trait_is_checked_by_the_filters(self):
        self.assertIn('6 lack a required trait', str(self.refusal(
            self.made(), extra_specs={'trait:\0': 'required'})))

    def test_invalid_amount_is_refused_by_name(self):
        error = self.assertRaises(
            exception.InvalidField, self.select, self.made(), vcpus=-1)

        self.assertEqual('resources.VCPU', error.field)

    def test_unreachable_cell_has_no_hosts(self):
        def fail():
            raise exception.CellUnreachable(cell='cell2')

        driver = self.made()
        self.world.targets.behaviour['cell2'] = fail

        self.assertEqual([['host4']], self.select(driver))
        error = self.refusal(driver, force_hosts=['host5'])

        self.assertIn('1 cell does not answer', str(error))

    def test_project_is_kept_within_its_aggregate(self):
        with self.world.database.writer() as connection:
            aggregates.create(
                connection, samples.uuids(1)[0], 'kept', ['host0'],
                {'filter_tenant_id2': 'project'}, samples.NOW)
        driver = self.made(limit_tenants_to_placement_aggregate=True)
        self.assertEqual([['host0']], self.select(driver, vcpus=1))
        self.world.claim('host0', 3)

        error = self.refusal(driver, vcpus=1)

        self.assertIn("5 are outside of the project's aggregates", str(error))

    def test_reported_aggregates_are_applied(self):
        driver = self.made(limit_tenants_to_placement_aggregate=True)
        driver.update_aggregates([objects.Aggregate(
            id=7, uuid=samples.uuids(1)[0], name='kept', hosts=['host1'],
            metadata={'filter_tenant_id': 'project'})])
        self.assertEqual([['host1']], self.select(driver, vcpus=1))

        driver.delete_aggregate(7)

        self.assertEqual([['host5']], self.select(driver, vcpus=1))

    def test_repeated_request_keeps_its_host(self):
        driver = self.made()
        [uuid] = samples.uuids(1)

        def place():
            [[first]] = driver.select_destinations(
                hosts.CONTEXT, builders.request(vcpus=4), [uuid], 0)
            return first.service_host

        self.assertEqual('host5', place())
        self.assertEqual('host5', place())

    def test_build_counts_until_its_host_reports(self):
        driver = self.made(
            {'weight_classes': 'IoOpsWeigher'}, network_driver='noop')
        [[first], [second], [third]] = [
            self.select(driver)[0] for _ in range(3)]
        self.assertEqual(['host0', 'host2', 'host4'],
                         [first, second, third])

        with self.world.writer('cell1') as connection:
            hosts.compute_nodes.save(
                connection, samples.uuids(1)[0], first, first,
                self.world.node_values(4, 1024, 100, host_ip='10.0.0.1'),
                self.world.clock.now())
        self.select(driver, force_hosts=['host1'])
        self.select(driver, force_hosts=['host3'])
        self.select(driver, force_hosts=['host5'])

        self.assertEqual([['host0']], self.select(driver))

    def test_unclaimed_choice_counts_for_a_minute(self):
        driver = self.made()
        wishes = builders.request(vcpus=3)

        def place():
            [[first]] = driver.select_destinations(
                hosts.CONTEXT, wishes, samples.uuids(1), 0, claim=False)
            return first.service_host

        self.assertEqual(['host5', 'host4'], [place(), place()])
        self.world.clock.advance(61)
        for number in range(6):
            self.world.report(f'cell{number % 2 + 1}', f'host{number}')
        self.assertEqual('host5', place())

    def test_deleted_instance_is_released_on_its_host(self):
        driver = self.made()
        consumer, other = (self.world.claim('host2', 1) for _ in range(2))

        driver.delete_instance('host1', consumer)
        self.assertIn(consumer, self.claims.claims_of([consumer]))
        driver.delete_instance('host2', consumer)

        self.assertEqual(
            {other}, set(self.claims.claims_of([consumer, other])))

    def test_plan_claims_no_resources(self):
        [[chosen]], decision = self.made().plan(
            hosts.CONTEXT, builders.request(vcpus=4), samples.uuids(1), 0)

        self.assertEqual('host5', chosen.service_host)
        self.assertEqual(6, decision.hosts)
        self.assertEqual([], self.claims.consumers())

    def test_request_has_the_silent_cells_of_its_own_reading(self):
        class Reader(host_reader.HostReader):
            """Another request has read after each request."""

            @property
            def silent(self):
                return ['cell1']

            @silent.setter
            def silent(self, value):
                pass

        parts = self.made().parts
        reader = Reader(
            parts.database, parts.cells, parts.gatherer, parts.discovery,
            parts.claims, parts.clock, manager.RefreshPolicy(), 'nova')

        reading = reader.read(
            hosts.CONTEXT, host_reader.EVERYTHING, host_reader.NO_SHARING)

        self.assertEqual([], reading.silent)

    def test_outage_of_all_hosts_is_uncertain(self):
        self.world.clock.advance(120)

        self.assertRaises(
            exception.HostStateUncertain, self.select, self.made())

    def test_snapshot_has_all_hosts_for_any_request(self):
        driver = self.made()
        parts = driver.parts
        reader = host_reader.HostReader(
            parts.database, parts.cells, parts.gatherer, parts.discovery,
            parts.claims, parts.clock, manager.RefreshPolicy(), 'nova')
        source = provider_scheduler.RequestHosts(
            reader, parts.claims, parts.clock,
            filter_scheduler.pipeline_of(driver.conf), objects.RequestSpec(),
            (), 1, lambda instances: {}, lambda request: ())

        taken = source.snapshot(hosts.CONTEXT)

        self.assertEqual([f'host{number}' for number in range(6)],
                         sorted(taken.table['host']))
        self.assertEqual(['cell1', 'cell2'], sorted(taken.cells.values()))
        self.assertEqual([], taken.silent)


class TestOnServers(world.DriverTestCase):
    """Stores on servers of their own, of which these are models."""

    name = 'provider_scheduler'

    def test_hosts_are_filled_and_no_more_are_found(self):
        for name in 'cassandra', 'placement':
            with self.subTest(name):
                self.check(servers.KINDS[name].direct(), name)

    def check(self, store, prefix):
        self.world.claims = store
        names = [f'{prefix}{number}' for number in range(2)]
        for name in names:
            self.world.add_host('cell1', name, vcpus=4)
        driver = self.driver()

        found = [self.select(driver, vcpus=4)[0][0] for _ in range(2)]

        self.assertEqual(names, sorted(found))
        refused = self.assertRaises(
            exception.NoValidHost, self.select, driver, vcpus=1)
        self.assertEqual('query', refused.rejections[0]['by'])
