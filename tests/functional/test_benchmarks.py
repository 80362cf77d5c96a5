# SPDX-License-Identifier: Apache-2.0
"""The benchmarks run; how long they take is no matter here."""

import json
import pathlib
import subprocess
import sys

from tests.unit import base

RUN = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks' / 'run.py'


class TestBenchmarks(base.TestCase):

    def benchmark(self, *args):
        return subprocess.run(
            [sys.executable, '-W', 'ignore', str(RUN), *args],
            capture_output=True, text=True, check=False, timeout=300)

    def test_workload_gives_figures_and_their_floor(self):
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

    def test_table_is_for_people(self):
        done = self.benchmark('--workload', 'decision-1000', '--repeat', '1')

        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn('median, ms', done.stdout)
        self.assertIn('decision-1000', done.stdout)

    def test_every_workload_is_sound(self):
        done = self.benchmark('--list')

        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(len(list(RUN.parent.glob('workloads/*.yaml'))),
                         len(done.stdout.splitlines()))

    def test_mistake_is_told_in_one_line(self):
        for args in (['--workload', 'nonsense'], ['--repeat', '0'],
                     ['--parameter', 'servers'], ['--parameter', 'a=[']):
            done = self.benchmark(*args)
            self.assertEqual((1, ''), (done.returncode, done.stdout))
            self.assertEqual(1, len(done.stderr.splitlines()), done.stderr)
