# SPDX-License-Identifier: Apache-2.0
"""The embedded conductor in a service of another project."""

import pathlib
import subprocess
import sys
import uuid

from oslo_config import cfg
import oslo_messaging
import prometheus_client

from cellsched import context
from cellsched import embedding
from cellsched import exception
from cellsched import objects
from cellsched.observability.prometheus import PrometheusMetrics
from tests.functional import base
from tests.functional import foreign_service

ROOT = pathlib.Path(__file__).resolve().parents[2]

#: What embedding the task must not bring along.
UNWANTED = ('cellsched.wiring.services', 'cellsched.testing', 'cellsched.cli',
            'cellsched.scheduler', 'cellsched.compute', 'cellsched.api')

#: What need not be installed where databases are files.
SPARED = ('eventlet', 'psycopg', 'psycopg2', 'pymysql')

#: A story that runs where none of these can be imported.
STORY = 'test_foreign_service_builds_a_server'


class TestEmbedding(base.TestCase):

    def setUp(self):
        super().setUp()
        self.perform = self.embed()

    def embed(self):
        """Start a deployment and a foreign service; return a call of it."""
        self.deploy({'cell1': ['a1'], 'cell2': ['b1']})
        theirs = self.world.conf('api')
        listen = f'local://{uuid.uuid4().hex}/stage'
        conf = cfg.ConfigOpts()
        conf([], default_config_files=[], default_config_dirs=[])
        conf.register_opts(foreign_service.OPTS, group='orchestra')
        for name, value in {
                'listen': listen, 'placement': theirs.transport_url,
                'api': theirs.api_database.connection,
                'claims': theirs.claims.connection}.items():
            conf.set_override(name, value, group='orchestra')
        server, transports, self.conductor = foreign_service.make(conf)
        self.addCleanup(self.conductor.close)
        self.addCleanup(transports.close)
        server.start()
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)
        client = oslo_messaging.get_rpc_client(
            transports.get(listen), oslo_messaging.Target(
                topic='orchestra', namespace='orchestra', version='3.0'),
            timeout=base.TIMEOUT_S)
        return lambda uuids: client.call(
            {'who': 'conductor'}, 'perform', pieces=uuids)

    def accept(self, **wishes):
        """Accept servers that our own conductor never hears of."""
        return self.unheard().servers.create(base.USER, 'piece', **wishes)

    def test_foreign_service_builds_a_server(self):
        [one] = self.accept(flavor='small')

        self.assertEqual(1, self.perform([one]))

        [found] = self.settled([one])
        self.assertEqual('ACTIVE', found.status)
        self.assertIsIn(found.cell, one)
        self.assertClaimsMatch()

    def test_foreign_service_builds_a_batch_and_records_failures(self):
        several = self.accept(flavor='small', min_count=3)
        [huge] = self.accept(flavor='huge')

        self.perform(several)
        self.perform([huge])

        self.assertEqual({'ACTIVE'}, {
            found.status for found in self.settled(several)})
        found = self.get(huge)
        self.assertEqual(('ERROR', 'cell0'), (found.status, found.cell))
        self.assertIn('No valid host was found', found.reason)
        self.assertClaimsMatch()

    def test_foreign_service_publishes_the_metrics_of_builds(self):
        registry = prometheus_client.CollectorRegistry(auto_describe=True)
        metrics = PrometheusMetrics('conductor')
        registry.register(metrics)
        conductor = embedding.EmbeddedConductor(
            self.conductor.parts.conf, metrics=metrics)
        self.addCleanup(conductor.close)

        conductor.run(context.admin(), self.accept(flavor='small'))

        self.assertEqual(1, registry.get_sample_value(
            'cellsched_conductor_builds_total', {'result': 'cast'}))

    def test_two_embedded_conductors_are_separate(self):
        first, perform_first = self.world, self.perform
        perform_second = self.embed()
        [second_one] = self.accept(flavor='small')
        second, self.world = self.world, first
        [first_one] = self.accept(flavor='small')

        perform_second([second_one])
        self.assertTrue(self.requested(first_one))
        perform_first([first_one])

        self.assertEqual('ACTIVE', self.settled([first_one])[0].status)
        self.assertClaimsMatch()
        self.world = second
        self.assertEqual('ACTIVE', self.settled([second_one])[0].status)
        self.assertClaimsMatch()

    def test_accepted_servers_are_built_or_buried(self):
        context = base.USER
        small, huge = str(uuid.uuid4()), str(uuid.uuid4())

        for wanted, memory_mb in ((small, 512), (huge, 2 ** 30)):
            spec = objects.RequestSpec(flavor=objects.Flavor(
                id=1, flavorid='1', name='own', vcpus=1, memory_mb=memory_mb,
                root_gb=1, extra_specs={}))
            accepted = [self.conductor.accept(context, {wanted: 'it'}, spec)
                        for _ in range(2)]
            self.assertEqual([[wanted], []], accepted)
            self.conductor.run(context, [wanted])

        [found] = self.settled([small])
        self.assertEqual(('ACTIVE', 'it'), (found.status, found.name))
        found = self.conductor.get(context, huge)
        self.assertEqual(('ERROR', 'cell0'), (found.status, found.cell))
        self.assertIn('No valid host was found', found.reason)
        mapped = self.conductor.mappings.instances([small, huge])
        self.assertEqual('cell0', mapped[huge].cell_mapping.name)
        host = self.conductor.mappings.hosts(
            [self.get(small).host])[0]
        self.assertEqual(
            mapped[small].cell_mapping.uuid, host.cell_mapping.uuid)
        self.assertClaimsMatch()
        self.assertEqual([], self.conductor.accept(
            context, {huge.upper(): 'it'}, spec))
        for server, name, field in (
                (huge, 'other', 'name'), (small, 'other', 'name'),
                (small, 'it', 'flavor')):
            error = self.assertRaises(
                exception.ServerExists, self.conductor.accept, context,
                {server.upper(): name}, spec)
            self.assertEqual((server, field), (
                error.kwargs['uuid'], error.kwargs['field']))

    def test_its_quota_holds_for_any_conductor(self):
        theirs = self.world.conf('api')

        def make(**quota):
            made = embedding.EmbeddedConductor(embedding.configuration(
                theirs.api_database.connection, theirs.transport_url,
                theirs.claims.connection, 'orchestra', quota=quota))
            self.addCleanup(made.close)
            return made

        free, bound = make(driver='NoopQuotaDriver'), make(instances=1)
        first, second, third = (str(uuid.uuid4()) for _ in range(3))
        spec = objects.RequestSpec(flavor=objects.Flavor(
            name='small', vcpus=1, memory_mb=512, root_gb=10))
        bound.accept(base.USER, {first: 'first'}, spec)
        free.accept(base.USER, {second: 'second', third: 'third'}, spec)

        bound.run(base.USER, [second, third])
        free.run(base.USER, [first])

        self.assertEqual(['ACTIVE'] * 2 + ['ERROR'], [
            found.status for found in self.settled([second, third, first])])
        self.assertIn('Quota exceeded for instances', self.get(first).reason)

    def test_periodic_functions_build_servers_without_a_run(self):
        [one] = self.accept(flavor='small')
        later = self.later(3600)
        self.addCleanup(later.close)
        with embedding.EmbeddedConductor(later.conf, later) as late:
            for function, _ in late.periodic:
                function()

            [found] = self.settled([one])
        self.assertEqual('ACTIVE', found.status)
        self.assertClaimsMatch()

    def test_embedding_imports_no_service(self):
        program = ('import sys; import tests.functional.foreign_service; '
                   'print(*sys.modules)')
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', program], cwd=ROOT,
            capture_output=True, text=True, check=True,
            timeout=base.TIMEOUT_S)

        self.assertEqual([], [
            name for name in done.stdout.split() if name.startswith(UNWANTED)])

    def test_embedding_requires_no_eventlet_and_no_driver(self):
        story = f'{self.id().rpartition(".")[0]}.{STORY}'
        program = ('import sys, unittest; '
                   'sys.modules.update(dict.fromkeys(sys.argv[2:])); '
                   'unittest.main(module=None, argv=sys.argv[:2])')
        done = subprocess.run(
            [sys.executable, '-c', program, story, *SPARED], cwd=ROOT,
            capture_output=True, text=True, timeout=base.TIMEOUT_S)

        self.assertRegex(done.stderr, r'^\.\n-+\nRan 1 test in .*\n\nOK\n$')
