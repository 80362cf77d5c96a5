# SPDX-License-Identifier: Apache-2.0
"""Health, readiness and metrics of services while servers fail."""

import threading

from cellsched.clock import Clock
from cellsched.observability import monitoring
from cellsched.observability.prometheus import PrometheusMetrics
from cellsched.standalone import deployment
from tests.functional import base
from tests.unit.observability.test_prometheus import samples


class Store:
    """A claim store that can be made silent."""

    def __init__(self, store):
        self._store = store
        self.is_silent = False
        self.over = threading.Event()

    def __getattr__(self, name):
        return getattr(self._store, name)

    def claim(self, claims):
        if self.is_silent:
            self.over.wait(base.TIMEOUT_S)
        return self._store.claim(claims)


class Monitored(deployment.Deployment):
    """A deployment that monitors each service, by its topic and host."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.monitors = {}
        self.services = {}

    def _parts(self, conf):
        parts = super()._parts(conf)
        parts.metrics = PrometheusMetrics('scheduler')
        if conf.api_database.connection:
            parts.claims = Store(parts.claims)
        return parts

    def _run(self, service):
        super()._run(service)
        name = f'{service.servers[0].topic} {service.parts.conf.host}'
        self.services[name] = service
        self.monitors[name] = monitoring.Monitor(
            service.parts.metrics, 2.0, Clock(), lambda function:
            threading.Thread(target=function, daemon=True).start())
        self.monitors[name].watch(
            service.health_checks(2.0), service.unready)


class TestMonitoring(base.TestCase):

    def setUp(self):
        super().setUp()
        self.world = Monitored(self.temporary_directory(), [
            deployment.DeployedCell(name, [deployment.DeployedHost(host)])
            for name, host in (('cell1', 'a1'), ('cell2', 'b1'))],
            options=base.paced({
                'DEFAULT': {'report_interval': 1},
                'scheduler': {'refresh_interval': 0.1},
                'cells': {'refresh_interval': 0, 'timeout': 1}}))
        self.world.start()
        self.addCleanup(self.world.stop)
        self.world.api.flavors.create(base.ADMIN, 'small', 1, 512, 10)

    def ask(self, path, service='scheduler api'):
        answer = self.world.monitors[service].answer(path, '')
        return answer.status, answer.body.decode()

    def metric(self, name, *labels, service='scheduler api'):
        recorded = self.world.services[service].parts.metrics
        return samples(recorded).get((f'cellsched_{name}', *labels))

    def test_every_service_is_healthy_and_ready(self):
        self.until(lambda: self.ask('/readyz')[0] == 200, 'hosts are read')
        for service in self.world.services:
            for path in '/healthz', '/readyz':
                self.assertEqual(
                    200, self.ask(path, service)[0],
                    (service, self.ask(path, service)))

    def test_builds_are_counted_in_each_service(self):
        self.built(min_count=4)
        self.built(min_count=40)

        agents = {name for name in self.world.services if 'compute' in name}
        self.assertEqual(
            (1, 1, 4, 4), (
                self.metric('scheduler_requests_total', 'selected'),
                self.metric('scheduler_requests_total', 'no_valid_host'),
                self.metric('conductor_builds_total', 'cast',
                            service='conductor api'),
                sum(self.metric('compute_builds_total', 'active',
                                service=each) or 0 for each in agents)))
        self.assertEqual(40, self.metric(
            'conductor_builds_total', 'failed', service='conductor api'))
        self.assertEqual(1, self.metric('scheduler_claims_total', 'won'))
        entered, passed = (
            self.metric(f'scheduler_filter_hosts_{way}_total', 'ComputeFilter')
            for way in ('entered', 'passed'))
        self.assertEqual((2, 2), (entered, passed))
        self.assertIsNotNone(self.metric(
            'scheduler_plugin_duration_seconds_count', 'filter',
            'ComputeFilter'))

    def test_capacity_and_hosts_are_published_by_cell(self):
        before = self.until(
            lambda: self.metric('free_memory_bytes', 'cell1'), 'it is read')
        [server] = self.built()

        self.assertEqual(self.metric('capacity_memory_bytes', 'cell1'), before)
        self.soon(lambda: self.assertEqual(
            before - 512 * 2 ** 20,
            self.metric('free_memory_bytes', server.cell)))

    def services_in(self, binary, cell, state, service='scheduler api'):
        return self.metric('services', binary, cell, state, service=service)

    def test_services_of_all_cells_are_counted_by_each_other_service(self):
        for service in 'scheduler api', 'conductor api':
            for binary, cell in (
                    ('nova-scheduler', 'cell0'), ('nova-conductor', 'cell0'),
                    ('nova-conductor', 'cell1'), ('nova-compute', 'cell2')):
                self.until(lambda: self.services_in(
                    binary, cell, 'up', service) == 1,
                    f'{binary} of {cell} is up')

        self.world.services['conductor conductor-cell1'].stop()
        self.world.services['scheduler api'].stop()

        self.until(lambda: self.services_in(
            'nova-conductor', 'cell1', 'stopped', 'conductor api') == 1,
            'it has stopped')
        self.assertEqual(
            {('nova-scheduler', 'api', 'stopped'),
             ('nova-conductor', 'api', 'up'),
             ('nova-conductor', 'conductor-cell1', 'stopped'),
             ('nova-conductor', 'conductor-cell2', 'up')},
            {(each.binary, each.host, each.state)
             for each in self.world.api.services.list(base.ADMIN).services
             if each.binary != 'nova-compute'})

    def test_silent_cell_is_named_and_the_service_stays_healthy(self):
        self.take_down('cell1')

        self.soon(lambda: self.assertIn(
            '[+] cells: ok; no answer of cell1', self.ask('/healthz')[1]))
        self.assertEqual(200, self.ask('/healthz')[0])
        self.until(lambda: self.metric('silent_cells') == 1, 'it is silent')
        self.soon(lambda: self.assertEqual(200, self.ask('/readyz')[0]))

    def test_scheduler_without_any_cell_is_unhealthy(self):
        self.take_down('cell1')
        self.take_down('cell2')

        self.soon(lambda: self.assertEqual(503, self.ask('/healthz')[0]))
        self.assertIn('[-] cells: CellUnreachable: ', self.ask('/healthz')[1])

    def test_silent_claim_store_is_named_in_time(self):
        store = self.world.services['scheduler api'].parts.claims
        self.addCleanup(store.over.set)
        store.is_silent = True

        status, body = self.ask('/healthz')

        self.assertEqual(503, status)
        self.assertRegex(body, r'\[-\] claim store: no answer for [2-9]\.')
        self.assertIn('[+] API database: ok', body)

    def test_broker_without_deliveries_is_named_in_time(self):
        self.world.services['conductor api'].servers[0].stop()

        status, body = self.ask('/healthz', 'conductor api')

        self.assertEqual(503, status)
        self.assertIn('[-] broker, topic conductor: ', body)
        self.assertIn('[+] claim store: ok', body)

    def test_stopping_service_is_not_ready(self):
        self.world.services['scheduler api'].stop()

        self.assertEqual((503, 'not ready: the service stops\n'),
                         self.ask('/readyz'))

    def test_probe_is_seen_nowhere(self):
        for service in self.world.services:
            self.ask('/healthz', service)

        self.assertClaimsMatch()
