# SPDX-License-Identifier: Apache-2.0
"""The demonstration, as a command."""

import contextlib
import threading

import yaml

from cellsched.cli import app
from cellsched.cli import demo
from cellsched.cli import scenario_player
from cellsched import context
from cellsched.standalone import deployment
from cellsched.standalone import scenario
from cellsched.testing import clock
from tests.unit.cli import base
from tests.unit.standalone import test_scenario

#: Longer than anything here takes.
DEADLINE_S = 600


class TestDemo(base.CommandTestCase):

    def write_scenario(self, **changes):
        path = self.directory / 'scenario.yaml'
        path.write_text(yaml.safe_dump({**test_scenario.LEAST, **changes}))
        return path

    def play(self, *args, **options):
        return self.run_app(
            app.Shell, 'demo', *args, clock=base.StillClock(), **options)

    def test_help_names_its_arguments(self):
        ran = self.play('--help')

        self.assertEqual(0, ran.code)
        for word in '--scenario', '--keep', 'Ends', '-f':
            self.assertIn(word, ran.out)

    def test_list_is_on_stdout_and_chart_on_stderr(self):
        for _ in range(2):
            ran = self.play('--scenario', self.write_scenario(), '-f', 'json')

            self.assertEqual(0, ran.code, ran.err)
            [found] = ran.data
            self.assertEqual(
                ('web', 'ACTIVE', 'c1', 'h1', 1, ''),
                tuple(found[name] for name in (
                    'Name', 'Status', 'Cell', 'Host', 'Attempts', 'Reason')))
            self.assertEqual(
                [['c1', 'DISK_GB'], ['MEMORY_MB'], ['VCPU']],
                [[word for word in line.split()
                  if word.replace('_', '').isalnum() and not word.isdigit()
                  and word not in ('of', 'GB')]
                 for line in ran.err.splitlines()])

    def test_terminal_has_a_progress_bar(self):
        terminal = base.Terminal()

        ran = self.play('--scenario', self.write_scenario(), stderr=terminal)

        self.assertEqual(0, ran.code)
        self.assertIn('1/1', ran.err)

    def test_configuration_of_the_caller_is_not_read(self):
        ran = self.play('--config-file', self.directory / 'none.conf',
                        '--scenario', self.write_scenario(), '-f', 'csv')

        self.assertEqual(0, ran.code, ran.err)

    def test_unknown_argument_is_refused_in_a_single_line(self):
        self.assertEnds(1, self.play('--scenarios', 'x'), '--scenarios')
        self.assertEnds(1, self.play('x'), 'x')

    def test_unknown_column_is_refused_before_the_demonstration(self):
        ran = self.play('-c', 'Nothing', '--scenario', '/nowhere')

        self.assertEnds(1, ran, '--column', 'Nothing')

    def test_unusable_keep_directory_is_named(self):
        path = self.write_scenario()

        ran = self.play('--scenario', path, '--keep', path / 'below')

        self.assertEnds(1, ran, '--keep', 'Not a directory')


class TestCluster(base.CommandTestCase):
    """A scenario that is played in a deployment that exists."""

    def play(self, *args, **changes):
        path = self.directory / 'scenario.yaml'
        path.write_text(yaml.safe_dump({
            **{name: test_scenario.LEAST[name]
               for name in ('flavors', 'requests')}, **changes}))
        return self.run_app(
            app.Shell, '--config-file',
            self.directory / 'world' / 'etc' / 'api.conf', 'demo',
            '--cluster', '--scenario', path, '-f', 'json', *args)

    def test_servers_are_created_in_the_deployment_and_deleted(self):
        plan = test_scenario.LEAST['cells']
        with deployment.Deployment(self.directory / 'world', [
                deployment.DeployedCell(cell['name'], [
                    deployment.DeployedHost(**host)
                    for host in cell['hosts']]) for cell in plan]) as world:
            # The second time, the flavor is there.
            for _ in range(2):
                ran = self.play()

                self.assertEqual(0, ran.code, ran.err)
                self.assertEqual(
                    [('ACTIVE', 'c1', 'h1')],
                    [(each['Status'], each['Cell'], each['Host'])
                     for each in ran.data])
                self.assertIn('VCPU', ran.err)
                self.assertEqual(
                    [], world.api.servers.list(context.admin()).servers)

    def test_scenario_must_not_have_cells(self):
        ran = self.play(cells=test_scenario.LEAST['cells'])

        self.assertEnds(1, ran, 'cells', 'an existing deployment')

    def test_keep_is_refused(self):
        self.assertEnds(1, self.play('--keep', '/nowhere'), '--keep',
                        '--cluster')

    def test_scenario_of_the_project_is_valid(self):
        plan = scenario.load(demo._find('cluster.yaml'), deploys=False)

        self.assertEqual([], plan.cells)


class ClockOfTheImpatient(clock.FakeClock):
    """Waits for nothing but the begin of a build."""

    def __init__(self):
        super().__init__()
        self.begun = threading.Event()

    def sleep(self, seconds):
        self.begun.wait(DEADLINE_S)
        super().sleep(seconds)

    def reached(self, step):
        if step == 'Begin':
            self.begun.set()


class TestPlay(base.CommandTestCase):

    def play(self, requests, act=lambda world: None):
        """Play requests for a user who has no patience at all."""
        time = ClockOfTheImpatient()
        path = self.directory / 'scenario.yaml'
        path.write_text(yaml.safe_dump(
            {**test_scenario.LEAST, 'requests': requests}))
        plan = scenario.load(path)
        with contextlib.ExitStack() as stack:
            world = stack.enter_context(deployment.Deployment(
                self.directory / 'world', plan.cells, reached=time.reached))
            event = world.agents['h1'].parts.driver.hold_builds()
            stack.callback(event.set)
            played = scenario_player.Play(world.api, plan, time)
            played.run(self.advanced.append)
        return played

    def setUp(self):
        super().setUp()
        self.advanced = []

    def test_unbuilt_server_at_the_timeout_is_unexpected(self):
        played = self.play([{'name': 'web', 'flavor': 'small'}])

        self.assertEqual(['BUILD'], [each.status for each in played.servers])
        self.assertEqual(
            ['web: expected status ACTIVE, got BUILD'], played.unexpected)
        self.assertEqual({0}, set(self.advanced))

    def test_undeleted_server_at_the_timeout_is_unexpected(self):
        played = self.play([
            {'name': 'web', 'flavor': 'small', 'delete': 'when-built',
             'expect': {'status': 'DELETED'}}])

        self.assertEqual(
            ['web: expected status DELETED, got BUILD'], played.unexpected)
