# SPDX-License-Identifier: Apache-2.0
"""Metrics: of one process, and summed over several."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import fixtures
from prometheus_client import parser
import yaml

from cellsched.observability import metrics
from tests.unit import base

ROOT = pathlib.Path(__file__).resolve().parents[3]

ETC = ROOT / 'etc' / 'cellsched'

#: Names of metrics in expressions and pages.
NAME = re.compile(r'\bcellsched_[a-z0-9_]+\b')


def samples(recorded):
    """Return the published values by name and labels."""
    body, _ = recorded.exposition('')
    return {(sample.name, *sample.labels.values()): sample.value
            for family in parser.text_string_to_metric_families(body.decode())
            for sample in family.samples}


def published():
    """Return the names of the samples that metrics may have."""
    return {name for each in metrics.FIGURES for name in (
        [f'{each.name}_{suffix}' for suffix in ('bucket', 'count', 'sum')]
        if each.kind == metrics.HISTOGRAM else [each.name])}


class TestFigures(base.TestCase):

    def test_names_follow_the_conventions_of_prometheus(self):
        for each in metrics.FIGURES:
            self.assertRegex(each.name, r'^cellsched_[a-z]+(_[a-z]+)*$')
            self.assertEqual(
                each.kind == metrics.COUNTER, each.name.endswith('_total'))
            self.assertEqual(each.kind == metrics.HISTOGRAM,
                             each.name.endswith('_duration_seconds'))
            self.assertTrue(each.help.endswith('.'), each.name)

    def test_labels_have_few_values(self):
        self.assertEqual(
            {'binary', 'cell', 'filter', 'kind', 'phase', 'plugin', 'queue',
             'reason', 'resource_class', 'result', 'state', 'version'},
            {label for each in metrics.FIGURES for label in each.labels})

    def test_samples_of_two_metrics_do_not_share_a_name(self):
        names = [each.base for each in metrics.FIGURES]

        self.assertEqual(len(names), len(set(names)))


class TestMetrics(base.TestCase):

    def test_metrics_that_are_off_publish_nothing(self):
        off = metrics.Metrics()
        off.add(metrics.CLAIM_RETRIES)
        off.add_later(self.fail)
        off.add_source(self.fail)
        off.publish()
        off.close()

        self.assertEqual(b'', off.exposition('')[0])

    def test_counters_of_the_service_are_zero_at_first(self):
        found = samples(metrics.PrometheusMetrics('conductor'))

        self.assertEqual(0, found['cellsched_conductor_builds_total', 'cast'])
        self.assertEqual(set(), {name for name, *_ in found
                                 if 'scheduler' in name or 'compute' in name})

    def test_durations_are_counted_in_cumulative_buckets(self):
        recorded = metrics.PrometheusMetrics('scheduler')
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

    def test_failed_metrics_function_keeps_other_values(self):
        recorded = metrics.PrometheusMetrics('scheduler')

        def fail():
            raise KeyError('seconds')

        recorded.add_later(fail)
        recorded.add_later(
            lambda: [(metrics.PHASE_SECONDS, ('claim',), .5)])

        self.assertEqual(1, samples(recorded)[
            'cellsched_scheduler_phase_duration_seconds_count', 'claim'])

    def test_values_of_a_function_are_added_before_a_scrape(self):
        recorded = metrics.PrometheusMetrics('scheduler')
        for _ in range(2):
            recorded.add_later(lambda: [(metrics.HOSTS_IN, ('F',), 5)])

        self.assertEqual(10, samples(recorded)[metrics.HOSTS_IN.name, 'F'])

    def test_source_that_fails_costs_its_own_values_only(self):
        recorded = metrics.PrometheusMetrics('scheduler')
        recorded.add_source(lambda: 1 / 0)
        recorded.add_source(lambda: [(metrics.SILENT_CELLS, (), 2)])

        self.assertEqual(2, samples(recorded)[metrics.SILENT_CELLS.name,])

    def test_openmetrics_is_published_to_clients_that_accept_it(self):
        body, kind = metrics.PrometheusMetrics('scheduler').exposition(
            'application/openmetrics-text; version=1.0.0')

        self.assertIn('openmetrics', kind)
        self.assertTrue(body.endswith(b'# EOF\n'))


class TestSeveralProcesses(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = str(self.temporary_directory())
        self.useFixture(fixtures.EnvironmentVariable(
            'PROMETHEUS_MULTIPROC_DIR', self.directory))
        self.one, self.other = self.worker(), self.worker()

    def worker(self):
        made = metrics.PrometheusMetrics('scheduler', self.directory)
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


class TestSharedDirectory(base.TestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch(
            'tempfile.tempdir', str(self.temporary_directory())))

    def test_directory_of_a_killed_service_is_removed_by_the_next(self):
        worker, path = self.run_process('os._exit(9)')
        worker.wait()

        found = metrics.SharedDirectory()

        self.assertFalse(os.path.exists(path))
        self.assertTrue(os.path.isdir(found.path))

    def test_directory_stays_while_a_worker_runs(self):
        worker, path = self.run_process(
            'if os.fork(): os._exit(9)\nsys.stdin.read(1)')

        metrics.SharedDirectory()
        self.assertTrue(os.path.isdir(path))

        worker.communicate(b'.')
        metrics.SharedDirectory()
        self.assertFalse(os.path.exists(path))

    def test_directory_is_removed_at_the_end(self):
        worker, path = self.run_process('')
        worker.communicate()

        self.assertFalse(os.path.exists(path))

    def test_other_directories_stay(self):
        kept = self.temporary_directory() / 'kept'
        for path in (kept, pathlib.Path(
                tempfile.tempdir, 'cellsched-metrics-new')):
            path.mkdir()
        (kept / 'service').touch()
        pathlib.Path(tempfile.tempdir, 'cellsched-metrics-link').symlink_to(
            kept)

        metrics.SharedDirectory()

        self.assertEqual([kept / 'service'], [*kept.iterdir()])
        self.assertTrue(os.path.isdir(path))

    def run_process(self, then):
        """Run a process with a directory, which it prints, and some code."""
        process = subprocess.Popen(
            [sys.executable, '-W', 'ignore', '-c',
             'import os, sys\nfrom cellsched import metrics\n'
             'made = metrics.SharedDirectory()\n'
             f'print(made.path, flush=True)\n{then}'],
            env={**os.environ, 'TMPDIR': tempfile.tempdir},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(process.communicate)
        path = process.stdout.readline().decode().strip()
        return process, path


class TestFiles(base.TestCase):
    """The alert rules and the dashboard name metrics that exist."""

    def test_alert_rules(self):
        document = yaml.safe_load((ETC / 'alerts.yaml').read_text())
        rules = [rule for group in document['groups']
                 for rule in group['rules']]

        self.assertGreater(len(rules), 5)
        for rule in rules:
            names = set(NAME.findall(rule['expr']))
            self.assertLessEqual(names, published(), rule['alert'])
            self.assertTrue(rule['annotations']['summary'])
            self.assertIn(rule['labels']['severity'], ('critical', 'warning'))

    def test_promtool_accepts_the_alert_rules(self):
        promtool = shutil.which('promtool')
        if promtool is None:
            self.skipTest('promtool is not installed')
        done = subprocess.run(
            [promtool, 'check', 'rules', ETC / 'alerts.yaml'],
            capture_output=True, text=True)

        self.assertEqual(0, done.returncode, done.stdout + done.stderr)

    def test_dashboard(self):
        document = json.loads((ETC / 'dashboard.json').read_text())
        panels = document['panels']

        self.assertEqual(len(panels), len({each['id'] for each in panels}))
        for panel in panels:
            self.assertTrue(panel['title'])
            for target in panel['targets']:
                names = set(NAME.findall(target['expr']))
                self.assertTrue(names, panel['title'])
                self.assertLessEqual(names, published(), panel['title'])

    def test_page_lists_each_metric_with_its_labels(self):
        page = (ROOT / 'doc/source/admin/metrics.rst').read_text()
        table = page[page.index('.. list-table:: Metrics'):]

        rows = re.findall(r'\* - ``(\w+)``\n     - (.*)\n', table)

        self.assertEqual(
            [(each.name, ', '.join(f'``{label}``' for label in each.labels)
              or 'none') for each in metrics.FIGURES], rows)
