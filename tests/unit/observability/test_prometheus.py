# SPDX-License-Identifier: Apache-2.0
"""Published metrics of one process, and sums over several."""

import os
import pathlib
import subprocess
import sys

import fixtures
import prometheus_client
from prometheus_client import parser

from cellsched import exception
from cellsched.observability import metrics
from cellsched.observability import monitoring
from cellsched.observability import prometheus
from cellsched.observability.prometheus import PrometheusMetrics
from tests.unit import base


def samples(recorded):
    """Return the published values by name and labels."""
    body, _ = recorded.exposition('')
    return {(sample.name, *sample.labels.values()): sample.value
            for family in parser.text_string_to_metric_families(body.decode())
            for sample in family.samples}


class TestPrometheusMetrics(base.TestCase):

    def test_counters_of_the_service_are_zero_at_first(self):
        found = samples(PrometheusMetrics('conductor'))

        self.assertEqual(0, found['cellsched_conductor_builds_total', 'cast'])
        self.assertEqual(set(), {name for name, *_ in found
                                 if 'scheduler' in name or 'compute' in name})

    def test_durations_are_counted_in_cumulative_buckets(self):
        recorded = PrometheusMetrics('scheduler')
        for seconds in (.001, .002, 99):
            recorded.add(metrics.PHASE_SECONDS, ('claim',), seconds)

        name = 'cellsched_scheduler_phase_duration_seconds'
        found = samples(recorded)

        self.assertEqual(
            [1, 2, 2, 3, 3], [
                *(found[f'{name}_bucket', bound, 'claim']
                  for bound in ('0.001', '0.0025', '10.0', '+Inf')),
                found[f'{name}_count', 'claim']])
        self.assertAlmostEqual(99.003, found[f'{name}_sum', 'claim'])

    def test_failed_source_costs_its_own_values_only(self):
        recorded = PrometheusMetrics('scheduler')
        recorded.add_source(lambda: 1 / 0)
        recorded.add_source(lambda: [(metrics.SILENT_CELLS, (), 2)])

        self.assertEqual(2, samples(recorded)[metrics.SILENT_CELLS.name,])

    def test_registry_of_another_service_collects_the_metrics(self):
        registry = prometheus_client.CollectorRegistry(auto_describe=True)
        registry.register(PrometheusMetrics('conductor'))

        self.assertEqual(0, registry.get_sample_value(
            metrics.BUILDS.name, {'result': 'cast'}))

    def test_clients_accepting_openmetrics_get_openmetrics(self):
        body, kind = PrometheusMetrics('scheduler').exposition(
            'application/openmetrics-text; version=1.0.0')

        self.assertIn('openmetrics', kind)
        self.assertTrue(body.endswith(b'# EOF\n'))


class TestSeveralProcesses(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = str(self.temporary_directory())
        self.one, self.other = self.worker(), self.worker()

    def worker(self):
        made = PrometheusMetrics('scheduler', self.directory)
        made.add_source(lambda: [(metrics.QUEUED, ('scheduler',), 3),
                                 (metrics.SILENT_CELLS, (), 1)])
        made.add(metrics.CLAIMS, ('won',), 2)
        made.add(metrics.REQUEST_SECONDS, (), .5)
        made.publish()
        return made

    def found(self, recorded):
        found = samples(recorded)
        return [found[key] for key in (
            (metrics.WORKERS.name,), (metrics.QUEUED.name, 'scheduler'),
            (metrics.CLAIMS.name, 'won'),
            (f'{metrics.REQUEST_SECONDS.name}_count',),
            (metrics.SILENT_CELLS.name,))]

    def test_each_process_publishes_the_sums(self):
        for each in (self.one, self.other):
            self.assertEqual([2, 6, 4, 2, 1], self.found(each))

    def test_dead_process_leaves_its_counters_only(self):
        self.one.close()

        self.assertEqual([1, 3, 4, 2, 1], self.found(self.other))

    def test_replaced_process_continues_the_counters(self):
        self.one.close()
        third = self.worker()

        self.assertEqual([2, 6, 6, 3, 1], self.found(third))
        self.assertEqual(
            2, len([*pathlib.Path(self.directory).glob('counter_*.db')]))

    def test_killed_process_leaves_its_counters_only(self):
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', KILLED, self.directory],
            capture_output=True, text=True)

        self.assertEqual((9, ''), (-done.returncode, done.stderr))
        self.assertEqual([2, 6, 6, 3, 1], self.found(self.other))

    def test_buckets_of_processes_are_summed_and_cumulative(self):
        self.other.add(metrics.REQUEST_SECONDS, (), 20)
        name = f'{metrics.REQUEST_SECONDS.name}_bucket'
        self.other.publish()

        found = samples(self.one)
        self.assertEqual([0, 2, 2, 3], [
            found[name, bound] for bound in ('0.25', '0.5', '10.0', '+Inf')])
        self.assertEqual(21, found[f'{metrics.REQUEST_SECONDS.name}_sum',])

    def test_fact_without_its_label_is_not_published_any_longer(self):
        cells = ['cell1']
        self.one.add_source(lambda: [(metrics.CELL_READ, (name,), 1.0)
                                     for name in cells])
        self.assertIn((metrics.CELL_READ.name, 'cell1'), samples(self.one))
        cells.clear()

        self.assertNotIn((metrics.CELL_READ.name, 'cell1'), samples(self.one))


#: A worker that is killed after it has published its values.
KILLED = '''
import os, signal, sys
from cellsched.observability import metrics
from cellsched.observability.prometheus import PrometheusMetrics
made = PrometheusMetrics('scheduler', sys.argv[1])
made.add(metrics.CLAIMS, ('won',), 2)
made.add(metrics.REQUEST_SECONDS, (), .5)
made.publish()
os.kill(os.getpid(), signal.SIGKILL)
'''


class TestMakeDirectory(base.TestCase):

    def setUp(self):
        super().setUp()
        self.parent = self.temporary_directory()
        self.useFixture(fixtures.MonkeyPatch(
            'tempfile.tempdir', str(self.parent)))
        self.listener = monitoring.listen('127.0.0.1', 0)
        self.addCleanup(self.listener.close)

    def test_directory_of_a_killed_service_is_emptied(self):
        path = pathlib.Path(prometheus.make_directory(self.listener))
        (path / 'counter_0.db').touch()

        self.assertEqual(str(path), prometheus.make_directory(self.listener))
        self.assertEqual([], os.listdir(path))
        self.assertEqual(0o700, path.stat().st_mode & 0o777)

    def test_services_of_two_ports_have_two_directories(self):
        other = monitoring.listen('127.0.0.1', 0)
        self.addCleanup(other.close)

        self.assertNotEqual(prometheus.make_directory(self.listener),
                            prometheus.make_directory(other))

    def test_link_in_place_of_the_directory_is_refused_and_stays(self):
        path = pathlib.Path(prometheus.make_directory(self.listener))
        path.rmdir()
        kept = self.parent / 'kept'
        kept.mkdir()
        (kept / 'file').touch()
        path.symlink_to(kept)

        error = self.assertRaises(
            exception.ConfigurationInvalid, prometheus.make_directory,
            self.listener)

        self.assertIn(str(path), str(error))
        self.assertEqual(['file'], os.listdir(kept))
