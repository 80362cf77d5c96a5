# SPDX-License-Identifier: Apache-2.0
"""Commands show the stored comparisons."""

import contextlib
import csv
import io
import json
import pathlib
import tempfile
import unittest

from cellsched_nova.shadow import commands
from cellsched_nova.shadow import comparison
from tests import specs

Outcome = comparison.Outcome

REQUEST = 'req-1'


class TestCommands(unittest.TestCase):

    def setUp(self):
        super().setUp()
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.addCleanup(specs.CONF.reset)
        self.conf = pathlib.Path(directory.name, 'nova.conf')
        self.conf.write_text(
            '[cellsched]\nrecords_connection = '
            f'sqlite:///{directory.name}/records\n')

    def app(self):
        # A process reads its configuration only once.
        specs.CONF.reset()
        return commands.ShadowShell(io.StringIO(), io.StringIO())

    def run_command(self, *args, code=0):
        app = self.app()
        self.assertEqual(code, app.run(
            ['--config-file', str(self.conf), *args]), app.stderr.getvalue())
        return app.stdout.getvalue()

    def keep(self, *found):
        app = self.app()
        app.options = app.parser.parse_args(['--config-file', str(self.conf)])
        for number, (outcome, reason) in enumerate(found):
            app.store.add(comparison.Comparison(
                2000.0 + number, f'req-{number}', specs.SERVER, 'host1',
                'host2', comparison.Verdict(outcome, reason, 'rank 2')))

    def test_totals_precede_outcomes_and_reasons(self):
        self.keep((Outcome.SAME, ''), (Outcome.SAME, ''),
                  (Outcome.WEIGHT, 'RAMWeigher'), (Outcome.EQUAL, ''))

        found = json.loads(self.run_command('report', '-f', 'json'))

        self.assertEqual(
            [('all', '', 4, 100.0, 'req-3'),
             ('agreed', '', 3, 75.0, 'req-3'),
             ('same host', '', 2, 50.0, 'req-1'),
             ('equal weight', '', 1, 25.0, 'req-3'),
             ('other weight', '', 1, 25.0, 'req-2'),
             ('other weight', 'RAMWeigher', 1, 25.0, 'req-2')],
            [(each['Outcome'], each['Reason'], each['Requests'],
              each['Percent'], each['Request']) for each in found])
        self.assertEqual({'1970-01-01T00:33:20Z'},
                         {each['Since'] for each in found[:3]})

    def test_report_is_a_table_or_lines(self):
        self.keep((Outcome.REJECTED, 'ComputeFilter'))

        self.assertIn('| ComputeFilter', self.run_command('report'))
        for form in 'csv', 'yaml':
            self.assertIn('ComputeFilter',
                          self.run_command('report', '-f', form))
        rows = list(csv.reader(io.StringIO(
            self.run_command('report', '-f', 'csv'))))
        self.assertEqual(5, len(rows))

    def test_empty_report_ends_with_2(self):
        self.assertEqual([], json.loads(
            self.run_command('report', '-f', 'json', code=2)))

    def test_comparison_is_shown_with_its_figures(self):
        self.keep((Outcome.WEIGHT, 'RAMWeigher'))

        for name in specs.SERVER, 'req-0':
            [one] = json.loads(self.run_command('show', name, '-f', 'json'))
            self.assertEqual(('host1', 'host2', 'rank 2'), (
                one['Host'], one['Nova Host'], one['Detail']))
        self.run_command('show', 'req-9', code=2)

    def test_help_has_an_example(self):
        found = {name: point.load()(None, None).get_parser(name).format_help()
                 for name, point in self.app().command_manager}

        for name in 'report', 'run', 'show':
            text = found[name]
            self.assertIn(name, text.partition('Example')[2], name)

    def assertEnds(self, *texts):
        """Assert that each command ends with 1 and one line of error."""
        for command in ('report',), ('show', 'req-1'), ('run',):
            app = self.app()
            with contextlib.redirect_stderr(app.stderr):
                code = app.run(['--config-file', str(self.conf), *command])
            self.assertEqual(1, code)
            [line] = app.stderr.getvalue().splitlines()
            for text in texts:
                self.assertIn(text, line)

    def test_missing_file_is_named(self):
        self.conf.unlink()

        self.assertEnds('nova.conf')

    def test_invalid_value_is_named(self):
        with self.conf.open('a') as stream:
            stream.write('comparison_retention = ever\n'
                         '[oslo_messaging_notifications]\n'
                         'driver = messagingv2\n')

        self.assertEnds('comparison_retention', "'ever'")

    def test_invalid_database_is_named(self):
        self.conf.write_text('[cellsched]\nrecords_connection = nowhere\n')

        for command in ('report',), ('show', 'req-1'):
            app = self.app()
            self.assertEqual(
                1, app.run(['--config-file', str(self.conf), *command]))
            self.assertIn('records', app.stderr.getvalue())
