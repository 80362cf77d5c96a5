# SPDX-License-Identifier: Apache-2.0
"""The benchmark of real processes runs; how long that takes is no matter."""

import json
import pathlib
import sys
from typing import Any

from tests.integration import base
from tests.integration.nova import caller
from tests.integration import servers
from tests import profile

RUN = pathlib.Path(__file__).resolve().parents[2] / 'benchmarks' / 'run.py'


@profile.full_only(
    'benchmarks of real processes; by default some run in one process')
class TestBenchmarks(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        for kind in (servers.RabbitMQ, servers.PostgreSQL):
            base.installed(kind)

    def test_benchmark_of_builds_reports_each_process(self):
        found = self.benchmark(
            'builds-processes-active', servers=6, first=2, callers=2, idle=1,
            cells=1, hosts=1, scheduling='other')

        times = {line['what']: line for line in found['results']}
        self.assertEqual(6, times['accepted to ACTIVE']['samples'])
        self.assertGreater(times['accepted to ACTIVE']['min_ms'], 0)
        self.assertIn('per second', times['build']['bar'])
        for name in ('floor', 'CPU of callers', 'CPU of RabbitMQ',
                     'CPU of PostgreSQL', 'CPU of scheduler',
                     'CPU of conductor', 'CPU of conductors of cells',
                     'CPU of agents'):
            self.assertEqual(1, times[name]['samples'])
        figures = {line['what']: line['value'] for line in found['figures']}
        # It is accepted and taken up; and it is there, begun and done.
        self.assertGreater(figures['commits per build to api'], 1)
        self.assertGreater(figures['commits per build to cell1'], 2)

    def test_cells_with_many_agents_start_report_and_build(self):
        found = self.benchmark(
            'scale-80x125', cells=3, hosts=5, servers=12, first=3, callers=4,
            report_interval=3)

        times = {line['what']: line for line in found['results']}
        self.assertEqual(12, times['accepted to ACTIVE']['samples'])
        figures = {line['what']: line['value'] for line in found['figures']}
        self.assertLess(figures['mapped, s'], figures['known, s'])
        self.assertGreater(figures['reports per second'], 0)
        self.assertGreater(figures['cells with builds'], 1)
        # Each agent has a connection, and the conductor of its cell too.
        self.assertGreaterEqual(
            figures['connections to RabbitMQ of a cell'], 6)
        self.assertGreaterEqual(figures['RabbitMQ, connections'],
                                3 * 6 + 2)
        self.assertGreater(figures['memory, MiB of a cell'],
                           figures['memory, MiB of an agent'])

    def test_benchmark_of_calls_reports_their_floor(self):
        found = self.benchmark('calls-1', hosts=20, cells=2, calls=3)

        times = {line['what']: line for line in found['results']}
        self.assertEqual({'select_destinations', 'floor'}, set(times))
        self.assertIn(times['select_destinations']['bar'],
                      ('at most 1.5 ms above the floor: met',
                       'at most 1.5 ms above the floor: MISSED'))
        self.assertAlmostEqual(
            times['select_destinations']['median_ms']
            - times['floor']['median_ms'],
            times['select_destinations']['above_floor_ms'], 3)
        self.assertAlmostEqual(
            times['select_destinations']['median_ms']
            / times['floor']['median_ms'],
            times['select_destinations']['floors'], 1)

    def test_benchmark_of_a_killed_scheduler_reports_all_builds(self):
        found = self.benchmark(
            'fault-scheduler-killed', servers=6, seconds=1, first=2, cells=1,
            hosts=1)

        [times] = found['results']
        self.assertEqual(('accepted to ACTIVE', 6),
                         (times['what'], times['samples']))
        self.assertIn('p99 at most 20000 ms', times['bar'])
        [longest] = found['figures']
        self.assertGreaterEqual(
            1000 * longest['value'] + 1, times['p99_ms'])

    def test_hosts_with_child_providers_pass_as_with_placement(self):
        base.installed(caller.python)

        found = self.benchmark(
            'providers-10000', hosts=60, cells=2, nova=1)

        times = {line['what']: line for line in found['results']}
        for name in ('plain', 'eight', 'group', 'groups'):
            whole = times[f'nova {name}, whole']
            self.assertEqual(1, whole['samples'])
            self.assertGreater(
                whole['median_ms'],
                times[f'nova {name}, candidates']['median_ms']
                + times[f'nova {name}, claim']['median_ms'])
        figures = {line['what']: line for line in found['figures']}
        for name in ('eight', 'group'):
            ratio = figures[f'nova over {name}, without its claim']
            self.assertIn(ratio['bar'],
                          ('at least 500: met', 'at least 500: MISSED'))
            self.assertLess(0, ratio['value'])
            self.assertLess(ratio['value'],
                            figures[f'nova over {name}']['value'])

    def test_benchmark_compares_nova_and_the_manager(self):
        base.installed(caller.python)

        found = self.benchmark(
            'novas-place-1', hosts=20, cells=2, nova=1, turns=1)

        times = {line['what']: line for line in found['results']}
        self.assertEqual({'ours', 'nova', 'decision'}, set(times))
        # A decision is a part of a request.
        self.assertLess(0, times['decision']['median_ms'])
        self.assertLess(times.pop('decision')['median_ms'],
                        times['ours']['median_ms'])
        figures = {line['what']: line for line in found['figures']}
        ratio = figures['nova over ours']
        self.assertIn(ratio['bar'],
                      ('at least 50: met', 'at least 50: MISSED'))
        self.assertAlmostEqual(
            times['nova']['median_ms'] / times['ours']['median_ms'],
            ratio['value'], 2)
        for name in times:
            self.assertEqual(1, times[name]['samples'])
            # Each claims with one request at least.
            for what in ('requests to Placement', 'memory, MiB',
                         'start to first answer, s'):
                self.assertGreater(figures[f'{name}, {what}']['value'], 0)
            share = figures[f'{name}, share of Placement']['value']
            self.assertLess(0, share)
            self.assertLess(share, 1)

    def test_claims_and_a_batch_are_held_against_the_same_writes(self):
        found = self.benchmark('claims-postgresql', clients='[2]', claims=8,
                               hosts=4, hot=1, beside='null')

        figures = {line['what']: line['value'] for line in found['figures']}
        for pattern in 'spread', 'hot':
            name = f'{pattern}, 2 clients'
            self.assertGreater(figures[f'{name}, of plain'], 0)
            self.assertEqual(0, figures[f'{name}, wasted'])
            for what in 'refused although it fitted', 'oversold':
                self.assertEqual(0, figures[f'{name}, last places, {what}'])
        found = self.benchmark('claims-batch-postgresql', claims=8, batch=4,
                               hosts=4)
        self.assertIn('at least 10000 per second',
                      found['results'][0]['bar'])

    def test_exactness_is_reported_beside_nova(self):
        base.installed(caller.python)

        rows = {row['store']: row for row in json.loads(self.run_command(
            sys.executable, '-W', 'ignore', str(RUN.with_name(
                'exactness.py')), '--store', 'postgresql', '--store',
            'nova-no-retry', '--schedulers', '2', '--clients', '4',
            '--hosts', '1', '--rounds', '1', '-f', 'json',
            timeout_s=450.0))['results']}

        self.assertEqual({'postgresql', 'nova-no-retry'}, set(rows))
        for row in rows.values():
            self.assertEqual((26, 0), (row['places'], row['oversold']))
            self.assertGreater(row['p99_ms'], 0)
        self.assertEqual(26, rows['postgresql']['claims'])
        self.assertEqual(
            0, rows['postgresql']['refused_although_it_fitted'])

    def test_last_places_are_claimed_once_beside_nova(self):
        base.installed(caller.python)
        kinds = {'novas-place', 'novas-place-and-nova-no-retry'}

        rows = {row['store']: row for row in json.loads(self.run_command(
            sys.executable, '-W', 'ignore', str(RUN.with_name(
                'exactness.py')),
            *(word for kind in sorted(kinds) for word in ('--store', kind)),
            '--schedulers', '2', '--clients', '16', '--hosts', '2',
            '--rounds', '1', '-f', 'json', timeout_s=1000.0))['results']}

        self.assertEqual(kinds, set(rows))
        for row in rows.values():
            self.assertEqual((52, 52, 0, 0), (
                row['places'], row['claims'], row['oversold'],
                row['refused_although_it_fitted']))

    def benchmark(self, name: str, **parameters: int | str) -> dict[str, Any]:
        own = [word for name_, value in parameters.items()
               for word in ('--parameter', f'{name_}={value}')]
        return json.loads(self.run_command(
            sys.executable, '-W', 'ignore', str(RUN), '--workload', name,
            '--repeat', '1', *own, '-f', 'json', timeout_s=1000.0))
