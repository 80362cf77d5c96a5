# SPDX-License-Identifier: Apache-2.0
"""Stories with the plug-ins of ``examples/third_party_filter``.

They need the package to be installed, so an integration test runs them, in a
process of their own.
"""

import json
import uuid

import sqlalchemy as sa

from cellsched import exception
from cellsched.rpc import scheduler
from cellsched.standalone import deployment
from cellsched.testing import builders
from tests.functional import base

GPU = {'gpu_memory_mb': ['4096']}
PRODUCT = {'licence:product': 'database'}

BY_PATH = 'third_party_filter.licences.LicenceFilter'


class TestCase(base.TestCase):
    """Two cells; ``a1`` and ``b1`` are licensed for a database."""

    def deploy_licensed(self, servers='9', **options):
        a1, b1 = (deployment.DeployedHost(name, aggregates=['licensed'])
                  for name in ('a1', 'b1'))
        self.deploy(
            {'cell1': [a1, 'a2'], 'cell2': [b1]},
            {'licensed': {'licence_products': 'database',
                          'licence_servers': servers}},
            scheduler={'full_refresh_interval': 0, **base.READ_EACH_TIME},
            **options)

    def report_gpu_memory(self, **free_mb):
        """Say what is free, as if a virtualisation driver had."""
        nodes = base.cell_models.compute_nodes
        targets = self.world.api.parts.targets
        for cell in self.cells().values():
            with targets.database(cell).writer() as connection:
                for host, free in free_mb.items():
                    connection.execute(
                        sa.update(nodes).where(nodes.c.host == host).values(
                            stats=json.dumps({'gpu_memory_free_mb': free})))

    def select(self, count=1, **request):
        """Ask the running scheduler; return the hosts it chose."""
        client = scheduler.SchedulerAPI(
            self.world.api.parts.transports.get(), timeout_s=base.TIMEOUT_S)
        uuids = [str(uuid.uuid4()) for _ in range(count)]
        found = client.select_destinations(
            base.USER, builders.request(
                instance_uuid=uuids[0], num_instances=count, **request),
            uuids, return_alternates=False)
        return [first.service_host for first, *_ in found]


class TestBothFilters(TestCase):

    def setUp(self):
        super().setUp()
        self.deploy_licensed(
            filter_scheduler={'enabled_filters': (
                'ComputeFilter', 'GPUMemoryFilter', 'LicenceFilter')},
            gpu_memory={'reserve_mb': 1000})
        self.report_gpu_memory(a1=5096, a2=5095, b1=5095)

    def test_filters_keep_hosts_alone_and_together(self):
        self.assertEqual(['a1'], self.select(hints=GPU))
        self.assertIn(*self.select(extra_specs=PRODUCT), ['a1', 'b1'])
        self.report_gpu_memory(a1=0, a2=9999, b1=9999)
        self.assertEqual(['b1'], self.select(hints=GPU, extra_specs=PRODUCT))

    def test_weigher_keeps_licensed_hosts_for_licensed_servers(self):
        self.assertEqual(['a2'], self.select())

    def test_reason_has_the_counts_of_both_filters_in_order(self):
        self.report_gpu_memory(a1=0, a2=9999, b1=5095)

        failure = self.assertRaises(
            exception.NoValidHost, self.select, hints=GPU,
            extra_specs=PRODUCT)

        self.assertEqual(
            [('GPUMemoryFilter', 2, {'hosts': 1, 'amount': 1, 'unit': 'MB'}),
             ('LicenceFilter', 1, None)],
            [(each['by'], each['hosts'], each.get('nearest'))
             for each in failure.rejections])
        self.assertIn('2 lack free GPU memory (the nearest by 1 MB)',
                      str(failure))
        self.assertIn('1 lacks a licence', str(failure))

    def test_server_with_the_hint_is_built(self):
        [found] = self.built(hints=GPU)

        self.assertEqual(('ACTIVE', 'a1'), (found.status, found.host))

    def test_hint_without_an_amount_is_refused(self):
        failure = self.assertRaises(
            exception.InvalidField, self.select,
            hints={'gpu_memory_mb': 'much'})

        self.assertIn('scheduler_hints.gpu_memory_mb', str(failure))


class TestByPath(TestCase):

    def test_filter_named_by_its_path_decides(self):
        self.deploy_licensed(filter_scheduler={
            'available_filters': BY_PATH,
            'enabled_filters': ('ComputeFilter', 'LicenceFilter')})

        self.assertIn(*self.select(extra_specs=PRODUCT), ['a1', 'b1'])
        failure = self.assertRaises(
            exception.NoValidHost, self.select,
            extra_specs={'licence:product': 'other'})
        self.assertEqual([('LicenceFilter', 3)], [
            (each['by'], each['hosts']) for each in failure.rejections])


class TestFailure(TestCase):

    def test_failing_filter_fails_the_request_and_is_named(self):
        self.deploy_licensed(servers='many', filter_scheduler={
            'enabled_filters': ('ComputeFilter', 'LicenceFilter')})

        failure = self.assertRaises(
            exception.PluginFailed, self.select, extra_specs=PRODUCT)

        self.assertEqual('Filter LicenceFilter failed.',
                         failure.format_message())
        self.assertIn('many', self.logs.output)
        # Who has nothing to do with it is served as before.
        self.assertEqual(['a2'], self.select())
        [found] = self.built()
        self.assertEqual('ACTIVE', found.status)
