# SPDX-License-Identifier: Apache-2.0
"""The benchmarks run; how long they take is no matter here."""

import json
import pathlib
import subprocess
import sys

import yaml

from benchmarks import exactness_figures
from tests import profile
from tests.unit import base

RUN = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks' / 'run.py'


@profile.by_default(
    'test_workload_has_results_and_a_floor',
    'test_builds_are_held_against_bars',
    'test_claims_are_held_against_the_same_writes',
    'test_exactness_is_written_to_files', 'test_every_workload_is_sound',
    reason='more benchmarks of a kind that runs by default')
class TestBenchmarks(base.TestCase):

    def benchmark(self, *args, script=RUN):
        return subprocess.run(
            [sys.executable, '-W', 'ignore', str(script), *args],
            capture_output=True, text=True, check=False, timeout=300)

    def exactness(self, *args):
        return self.benchmark(*args, script=RUN.with_name('exactness.py'))

    def test_workload_has_results_and_a_floor(self):
        done = self.benchmark('--workload', 'decision-1000', '--repeat', '2',
                              '-f', 'json')

        self.assertEqual(0, done.returncode, done.stderr)
        figures = json.loads(done.stdout)['results']
        self.assertEqual(['decision', 'floor'],
                         [line['what'] for line in figures])
        for line in figures:
            self.assertEqual(2, line['samples'])
            self.assertLessEqual(line['min_ms'], line['median_ms'])
            self.assertLessEqual(line['median_ms'], line['p99_ms'])

    def test_requests_of_nova_are_read(self):
        done = self.benchmark('--workload', 'reading-full', '--workload',
                              'reading-plain', '--repeat', '1', '-f', 'json')

        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(
            ['reading', 'floor'] * 2,
            [line['what'] for line in json.loads(done.stdout)['results']])

    def test_repeated_decisions_have_bars(self):
        done = self.benchmark(
            '--workload', 'decision-1000000', '--repeat', '2',
            '--parameter', 'hosts=60', '--parameter', 'cells=4', '-f', 'json')

        self.assertEqual(0, done.returncode, done.stderr)
        lines = json.loads(done.stdout)['results']
        bars = {line['what']: line['bar'] for line in lines}
        self.assertEqual(
            {'known', 'returned', 'other', 'floor'}, bars.keys())
        self.assertTrue(bars['known'] and bars['other'])

    def test_builds_are_held_against_bars(self):
        done = self.benchmark(
            '--workload', 'builds-multi-create', '--repeat', '1',
            '--parameter', 'servers=4', '--parameter', 'batch=2',
            '-f', 'json')

        self.assertEqual(0, done.returncode, done.stderr)
        found = json.loads(done.stdout)
        bars = {line['what']: line['bar'] for line in found['results']}
        self.assertIn(bars.pop('build'),
                      ('at least 500 per second: met',
                       'at least 500 per second: MISSED'))
        self.assertEqual({'accepted to ACTIVE': None, 'floor': None}, bars)
        [figure] = found['figures']
        self.assertEqual(('builds-multi-create', 'commits per build'),
                         (figure['workload'], figure['what']))
        self.assertGreater(figure['value'], 0)

    def test_ratios_are_held_against_bars(self):
        done = self.benchmark(
            '--workload', 'providers-10000', '--repeat', '1',
            '--parameter', 'hosts=40', '--parameter', 'nova=0', '-f', 'json')

        self.assertEqual(0, done.returncode, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual(['plain', 'eight', 'group', 'groups'],
                         [line['what'] for line in found['results']])
        figures = {line['what']: line for line in found['figures']}
        self.assertEqual(
            {'eight over plain', 'group over plain', 'groups over plain'},
            set(figures))
        self.assertGreater(figures['eight over plain']['value'], 0)
        self.assertIn(figures['eight over plain']['bar'],
                      ('at most 2: met', 'at most 2: MISSED'))
        self.assertIsNone(figures['groups over plain']['bar'])

    def test_claims_are_held_against_the_same_writes(self):
        done = self.benchmark(
            '--workload', 'claims-sqlite', '--repeat', '1',
            '--parameter', 'clients=[2]', '--parameter', 'claims=4',
            '--parameter', 'hosts=4', '--parameter', 'hot=1', '-f', 'json')

        self.assertEqual(0, done.returncode, done.stderr)
        found = json.loads(done.stdout)
        times = {line['what']: line['median_ms'] for line in found['results']}
        figures = {line['what']: line['value'] for line in found['figures']}
        for pattern in 'spread', 'hot':
            name = f'{pattern}, 2 clients'
            self.assertAlmostEqual(
                times[f'{name}, plain'] / times[name],
                figures[f'{name}, of plain'], 2)
            self.assertLessEqual(
                figures[f'{name}, p50 ms'], figures[f'{name}, p99 ms'])
            for what in ('wasted', 'refused although it fitted', 'oversold'):
                self.assertEqual(0, figures[f'{name}, last places, {what}'])

    def test_exactness_is_written_to_files(self):
        files = self.temporary_directory()
        old = {**dict.fromkeys(exactness_figures.COLUMNS, 1),
               'server': 'a server'}
        (files / 'exactness.csv').write_text(exactness_figures.as_csv(
            [{**old, 'store': store} for store in ('nova', 'sqlite')]))

        done = self.exactness(
            '--store', 'sqlite', '--schedulers', '2', '--clients', '4',
            '--hosts', '1', '--rounds', '1', '--directory', files,
            '-f', 'yaml')

        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn('round 1 of 1', done.stderr)
        rows = yaml.safe_load(done.stdout)
        self.assertEqual(
            ['sqlite', 2, 26, 26, 0, 0],
            [rows[0][name] for name in (
                'store', 'schedulers', 'places', 'claims', 'oversold',
                'refused_although_it_fitted')])
        # What is known of others stays.
        self.assertEqual([{**old, 'store': 'nova'}], rows[1:])
        self.assertEqual(rows, exactness_figures.read(
            files / 'exactness.csv'))
        self.assertEqual(rows, json.loads(
            (files / 'exactness.json').read_text())['results'])
        self.assertIn('<svg', (files / 'exactness.svg').read_text())

    def test_error_of_exactness_is_a_single_line(self):
        for args in (['--store', 'nonsense'], ['--rounds', '0'],
                     ['--schedulers', '0'], ['--schedulers', 'x'],
                     ['--clients', '2', '--schedulers', '3']):
            done = self.exactness(*args)

            self.assertEqual((2, ''), (done.returncode, done.stdout))
            self.assertIn('expected' if len(args) > 2 else args[0],
                          done.stderr.splitlines()[-1])

    def test_table_shows_medians(self):
        done = self.benchmark('--workload', 'decision-1000', '--repeat', '1')

        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn('median, ms', done.stdout)
        self.assertIn('decision-1000', done.stdout)

    def test_every_workload_is_sound(self):
        done = self.benchmark('--list')

        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(len(list(RUN.parent.glob('workloads/*.yaml'))),
                         len(done.stdout.splitlines()))

    def test_error_is_a_single_line(self):
        for args in (['--workload', 'nonsense'], ['--repeat', '0'],
                     ['--parameter', 'servers'], ['--parameter', 'a=[']):
            done = self.benchmark(*args)
            self.assertEqual((1, ''), (done.returncode, done.stdout))
            self.assertEqual(1, len(done.stderr.splitlines()), done.stderr)
