# SPDX-License-Identifier: Apache-2.0
"""Recorded decisions that are made again by a command."""

import fixtures

from cellsched.cli import app
from tests.unit.cli import base
from tests.unit.scheduler import recordings


class TestReplay(base.CommandTestCase, recordings.RecordingTestCase):

    options = {'weight_classes': ['RAMWeigher'],
               'rotate_best_same_weighed_hosts': False}

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.EnvironmentVariable(
            'CELLSCHED_CONFIG', str(self.write('api.conf'))))
        self.table.put([self.nodes['n07']], {'free_ram_mb': 99_999})
        [self.server], _ = self.ask(name='small')
        self.clock.advance(60)
        self.ask(2, name='big', vcpus=1000)
        self.recorder.close()

    def replay(self, *argv):
        return self.run_app(app.Shell, 'replay', self.path, *argv)

    def test_recorded_policy_is_the_default(self):
        ran = self.replay('--fail-on-change')

        self.assertEqual((0, ''), (ran.code, ran.err))
        self.assertIn('2 requests for 3 servers, from 2023-11-14T22:13:20.000Z'
                      ' to 2023-11-14T22:14:20.000Z', ran.out)
        self.assertIn('3  get the same host or refusal', ran.out)
        self.assertIn('without servers                          19        19',
                      ran.out)

    def test_other_multiplier(self):
        ran = self.replay('--weight-multiplier', 'RAMWeigher=-1',
                          '-f', 'json', '--fail-on-change')

        self.assertEqual(1, ran.code)
        data = ran.data
        self.assertEqual(
            {'same': 2, 'elsewhere': 1, 'refused': 0, 'fits': 0, 'skipped': 0},
            data['summary'])
        [change] = data['changes']
        self.assertEqual(
            (self.server, 'small', 'elsewhere', 'n07', 'n00', 'req-1'),
            tuple(change[name] for name in (
                'server', 'flavor', 'change', 'host_before', 'host_after',
                'request_id')))
        self.assertIn('RAMWeigher prefers it', change['reason'])
        self.assertEqual(0, self.replay(
            '--weight-multiplier', 'RAMWeigher=-1').code)

    def test_other_plugins(self):
        rows = self.replay(
            '--filters', 'ComputeFilter, NumInstancesFilter', '--weighers',
            'NumInstancesWeigher', '-f', 'csv').out.splitlines()

        self.assertIn('"elsewhere","n07","n00"', rows[1])

    def test_other_file(self):
        path = self.write('new.conf', filter_scheduler={
            'weight_classes': 'RAMWeigher', 'ram_weight_multiplier': '-1',
            'rotate_best_same_weighed_hosts': 'false'})

        ran = self.replay('--config-file', path, '-f', 'yaml')

        self.assertIn('elsewhere: 1', ran.out)

    def test_replay_follows_a_change_of_the_recorded_policy(self):
        self.restart(ram_weight_multiplier=-1.0)
        self.clock.advance(60)
        self.table.put([*self.nodes.values()], {
            'last_seen_up': self.clock.steady()})
        self.ask()
        self.recorder.close()

        ran = self.replay('-f', 'json', '--all', '--fail-on-change')

        self.assertEqual(0, ran.code)
        self.assertEqual(['n07', None, None, 'n00'], [
            each['host_after'] for each in ran.data['changes']])

    def test_time_and_all_servers(self):
        ran = self.replay('--since', '2023-11-14T22:14', '--all')

        self.assertIn('1 request for 2 servers', ran.out)
        self.assertEqual(2, ran.out.count('2023-11-14T22:14:20.000Z  '))

    def test_errors(self):
        for argv, problem in (
                (['--since', 'x'], "--since: 'x' is not a time"),
                (['--until', '2023-01-01'],
                 'no decision is recorded in this time.'),
                (['--filters', 'No'], 'No plug-in No in cellsched.scheduler.'),
                (['--weight-multiplier', 'No=1'],
                 "'No' is no enabled weigher; expected one of RAMWeigher"),
                (['--weight-multiplier', 'RAMWeigher=x'],
                 "'x' is not valid for RAMWeigher; expected a number")):
            ran = self.replay(*argv)
            self.assertEqual((1, ''), (ran.code, ran.out), argv)
            self.assertIn(problem, ran.err)
            self.assertEqual(1, ran.err.count('\n'), ran.err)
        ran = self.run_app(app.Shell, 'replay', self.directory / 'none')
        self.assertIn('there is no such file', ran.err)
