# SPDX-License-Identifier: Apache-2.0
"""The command that simulates a deployment."""

import csv
import json
from unittest import mock

import yaml

from cellsched.cli import app
from tests import broken_packages
from tests.unit.cli import base
from tests.unit import installing

SCENARIO = {
    'name': 'small', 'hours': 0.02, 'hosts': {'count': 4, 'vcpus': 4},
    'load': {'preset': 'nova-floor', 'rate': 1000}, 'measure': {'every_s': 60}}


class TestSimulate(base.CommandTestCase):

    def setUp(self):
        super().setUp()
        self.path = self.directory / 'small.yaml'
        self.path.write_text(yaml.safe_dump(SCENARIO))

    def simulate(self, *argv, **options):
        return self.run_app(app.Shell, 'simulate', *argv, **{
            'clock': base.StillClock(), **options})

    def test_document_is_the_same_each_time(self):
        first, second = (self.simulate(self.path, '-f', 'json')
                         for _ in range(2))

        self.assertEqual((0, ''), (first.code, first.err))
        self.assertEqual(first.out, second.out)
        self.assertEqual(['scenario', 'seed', 'summary', 'series',
                          'projects', 'checks'], [*first.data])
        self.assertGreater(first.data['summary']['placed'], 0)
        self.assertEqual({'oversold': 0, 'unaccounted': 0},
                         first.data['checks'])

    def test_each_format_is_written(self):
        table = self.simulate(self.path)
        rows = [*csv.DictReader(
            self.simulate(self.path, '-f', 'csv').out.splitlines())]
        document = yaml.safe_load(self.simulate(self.path, '-f', 'yaml').out)

        self.assertRegex(table.out, r'(?m)^placed +\d+$')
        self.assertEqual(['0.0', '60.0'], [row['at_s'] for row in rows[:2]])
        self.assertEqual(1, document['seed'])

    def test_runs_are_compared(self):
        other = self.directory / 'other.json'
        other.write_text(self.simulate(self.path, '-f', 'json').out)

        found = self.simulate(
            self.path, '--seed', '2', '--set', 'schedulers.count=2',
            '--compare', other, '-f', 'json')

        self.assertEqual((0, ''), (found.code, found.err))
        rows = {row['figure']: row for row in found.data}
        self.assertEqual(
            json.loads(other.read_text())['summary']['asked'],
            rows['asked']['other'])
        self.assertNotEqual(rows['asked']['this'], rows['asked']['other'])
        self.assertRegex(self.simulate(
            self.path, '--compare', other).out, r'(?m)^placed +\d+ +\d+$')

    def test_page_shows_both_runs(self):
        other, page = self.directory / 'other.json', self.directory / 'a.html'
        other.write_text(self.simulate(self.path, '-f', 'json').out)

        ran = self.simulate(self.path, '--html', page, '--compare', other)

        self.assertEqual((0, ''), (ran.code, ran.err))
        self.assertIn('<svg', page.read_text())

    def test_weigher_of_another_package_reads_its_column(self):
        self.useFixture(installing.Installed(broken_packages.write_working))
        for change in 'schedulers.count=1', 'schedulers.back_to_back=true':
            ran = self.simulate(self.path, '--set', change, '-f', 'json')

            self.assertEqual((0, ''), (ran.code, ran.err))
            self.assertGreater(ran.data['summary']['placed'], 0)

    def test_scenarios_are_listed(self):
        ran = self.simulate('--list', '-f', 'json')

        self.assertIn('nova-floor', [row['Name'] for row in ran.data])
        self.assertIn('nova-floor: The least', self.simulate('--list').out)

    def test_inexact_store_has_its_exit_code(self):
        ran = self.simulate(
            self.path, '--set', 'store.kind=memory',
            '--set', 'store.defect=1', '--set', 'load.rate=10000')

        self.assertEnds(2, ran, 'the claim store is not exact: oversold is')

    def test_missing_library_is_named_with_its_extra(self):
        for library, argv in (
                ('greenlet', ()), ('jinja2', ('--html', 'x.html'))):
            with mock.patch.dict('sys.modules', {library: None}):
                self.assertEnds(1, self.simulate(self.path, *argv), (
                    f'{library} is not installed; expected {library}, which '
                    'cellsched[simulate] installs'))

    def test_comparison_needs_no_template_library(self):
        other = self.directory / 'other.json'
        other.write_text(self.simulate(self.path, '-f', 'json').out)
        with mock.patch.dict('sys.modules', {'jinja2': None}):
            ran = self.simulate(self.path, '--compare', other)

        self.assertEqual((0, ''), (ran.code, ran.err))

    def test_progress_has_an_estimate_on_a_terminal(self):
        terminal = base.Terminal()

        self.simulate(self.path, stderr=terminal)

        shown = base.without_colors(terminal.getvalue())
        self.assertRegex(shown, 'Simulating small ━+ [0-9]+/[0-9]+ 0:00:00')

    def test_wrong_input_ends_with_a_single_error(self):
        other = self.directory / 'other.json'
        other.write_text('[]')
        for argv, text in (
                ((), 'SCENARIO: it is missing; expected a file, or one of'),
                (('nova-flor',), 'is no scenario of the project'),
                ((self.path, '--set', 'hours'), 'KEY=VALUE'),
                ((self.path, '--set', 'hours=0'),
                 'hours: 0 is out of range; expected a number above 0'),
                ((self.path, '--set', 'load.preset=x'),
                 "load.preset: unknown preset 'x'; expected one of"),
                ((self.path, '--compare', other),
                 '[] is not valid; expected a mapping'),
                ((self.path, '--compare', self.directory / 'no.json'),
                 'No such file')):
            self.assertEnds(1, self.simulate(*argv), text)
