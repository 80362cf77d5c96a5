# SPDX-License-Identifier: Apache-2.0
"""Nova's services run with this scheduler in the place of their own.

``integrations/nova/tools/functional.py`` runs far more of Nova's tests.
"""

import json
import os
import pathlib
import subprocess
import sys

from benchmarks.peers import environment as peers
from integrations.nova.tools import environment
from tests.integration import base
from tests.integration import commands
from tests.integration.nova import caller
from tests.integration import processes
from tests.integration import servers
from tests.integration import serving
from tests import profile

INTEGRATION = pathlib.Path(environment.__file__).parents[1]

#: What runs a deployment of Nova, and the modules that it needs.
DEPLOYED = pathlib.Path(caller.__file__).with_name('deployed.py')
PEERS = pathlib.Path(peers.__file__).parent

#: What runs commands over it.
PROGRAMS = DEPLOYED.with_name('programs.py')

#: Tests of Nova's, of seconds each: a plain request by columns, groups, a
#: move, and a request that goes by allocation candidates.
TESTS = (
    'test_json_filter',
    'test_server_group.ServerGroupTestV264.test_boot_servers_with_affinity',
    'test_cold_migrate.ColdMigrationAllowSameHost',
    'libvirt.test_vgpu.VGPUTests.test_create_servers_with_vgpu',
)


def python() -> pathlib.Path:
    """Return the python of the environment of Nova's own tests.

    :raises tests.integration.serving.NotInstalled: it cannot be made
    """
    caller.python()
    try:
        return environment.make()
    except subprocess.CalledProcessError as exc:
        raise serving.NotInstalled(
            f'What tests of Nova need cannot be installed: {exc.output}'
        ) from None


def variables() -> dict[str, str]:
    """Return what Nova's python finds this checkout by."""
    return {'PYTHONPATH': os.pathsep.join(environment.paths())}


class TestCase(base.TestCase):

    # Each of Nova's tests starts all of its services.
    timeout_s = 1800

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.python = base.installed(python)

    def run_python(self, *args, code=0):
        """Run Nova's python, which finds this checkout."""
        done = subprocess.run(
            [self.python, '-W', 'ignore', *args], cwd=INTEGRATION, text=True,
            env={**os.environ, **variables()}, capture_output=True,
            check=False, timeout=self.timeout_s)
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        return done.stdout + done.stderr


class TestPackage(TestCase):

    def test_unit_tests_of_the_package_pass(self):
        said = self.run_python(
            '-m', 'unittest', 'discover', '-t', '.', '-s', 'tests')

        self.assertRegex(said, r'Ran [1-9]\d* tests')

    def test_what_cannot_be_honoured_is_named_line_by_line(self):
        conf = self.directory / 'nova.conf'
        conf.write_text(
            '[DEFAULT]\nservicegroup_driver = mc\n'
            '[api_database]\nconnection = sqlite://\n'
            '[database]\nconnection = sqlite://\n'
            '[placement]\nauth_type = none\n'
            '[filter_scheduler]\nenabled_filters = ComputeFilter,Missing\n'
            'weight_classes = no.such.Weigher\n')

        said = self.run_python(
            '-m', 'cellsched_nova.main', '--config-file', str(conf), code=1)

        lines = [line for line in said.splitlines()
                 if line.startswith('invalid configuration: ')]
        for name, line in zip(
                ('servicegroup_driver', 'Missing', 'no.such.Weigher'), lines,
                strict=True):
            self.assertIn(name, line)


@profile.full_only(
    'whole Novas: by default a benchmark runs this scheduler in place of Nova')
class TestFunctional(TestCase):

    def test_tests_of_nova_pass_with_this_scheduler(self):
        done = subprocess.run(
            [sys.executable, INTEGRATION / 'tools' / 'functional.py', *TESTS,
             '--failed', '-f', 'json', '--results', self.directory],
            stdout=subprocess.PIPE, text=True, check=False,
            timeout=self.timeout_s)

        found = json.loads(done.stdout)
        self.assertEqual(
            [], [name for row in found.values()
                 for name in (*row['unexplained'], *row['nova_only'])])
        passed = sum(row['both'] + row['passed_untried']
                     for row in found.values())
        self.assertEqual(sum(row['tests'] for row in found.values()), passed)
        self.assertGreaterEqual(passed, len(TESTS))


@profile.full_only(
    'whole Novas: by default a benchmark runs this scheduler in place of Nova')
class TestWholeNova(TestCase):
    """Tests of the package in whole Novas, of one process each."""

    def run_modules(self, *names):
        said = self.run_python('-m', 'unittest', *(
            f'tests/functional/{name}.py' for name in names))
        self.assertRegex(said, r'Ran [1-9]\d* tests?')

    def test_shadow_agrees_with_the_scheduler_of_nova(self):
        self.run_modules('test_shadow')

    def test_faults_are_outlasted_or_told_and_nothing_leaks(self):
        self.run_modules('test_faults', 'test_moves')

    def test_steps_of_the_adoption_are_taken_and_taken_back(self):
        self.run_modules('test_adoption')


class TestCommands(TestCase):
    """Commands, over Nova's databases and Placement."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        base.installed(servers.PostgreSQL)
        cls.commands = cls.of_class(commands.Commands(
            [cls.python, '-P', '-W', 'ignore', PROGRAMS], variables()))
        # Placement is installed in the environment of the peers.
        process = subprocess.Popen(
            [caller.python(), '-P', '-W', 'ignore', DEPLOYED], text=True,
            env={**os.environ, 'PYTHONPATH': os.pathsep.join(
                [*environment.paths(), str(PEERS)])},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        cls.addClassCleanup(process.wait, cls.timeout_s)
        cls.addClassCleanup(process.communicate)
        cls.there = json.loads(process.stdout.readline())

    def said(self, name, conf, *args, code=0):
        """Return what a command prints that reads a configuration file."""
        ended = self.commands.end_of(
            [name, '--config-file', str(conf), *args], self.directory)
        self.assertEqual(code, ended.code, ended)
        return ended.output + ended.errors

    def ask(self, *args, code=0):
        """Return what is said by a command that operators type."""
        return self.said(
            'cellsched-nova', self.there['conf'], *args, code=code)

    def answer(self, *args):
        """Return what a command prints as JSON."""
        return json.loads(self.ask(*args, '-f', 'json'))

    def test_configuration_that_cannot_be_read_is_told_of_in_a_line(self):
        conf = self.directory / 'nova.conf'
        for text in (None, '[DEFAULT\n'):
            if text is not None:
                conf.write_text(text)
            for command in (
                    ('cellsched-nova', 'plan', '--flavor', '4'),
                    ('cellsched-nova-scheduler',),
                    ('cellsched-nova-shadow', 'run')):

                said = self.said(command[0], conf, *command[1:], code=1)

                [line] = said.splitlines()
                self.assertIn(str(conf), line)

    def test_value_that_is_wrong_is_named_in_a_line(self):
        conf = self.directory / 'nova.conf'
        conf.write_text(
            '[cellsched]\nrefresh_interval = often\n'
            '[oslo_messaging_notifications]\ndriver = messagingv2\n')
        for command in (('cellsched-nova-scheduler',),
                        ('cellsched-nova-shadow', 'run')):

            said = self.said(command[0], conf, *command[1:], code=1)

            [line] = said.splitlines()
            self.assertIn('[cellsched] refresh_interval', line)
            self.assertIn('often', line)

    def test_what_is_needed_and_missing_is_named_in_a_line(self):
        conf = self.directory / 'nova.conf'
        api, own = (f'[{group}]\nconnection = sqlite://\n'
                    for group in ('api_database', 'database'))
        way = '[placement]\nauth_type = none\n'
        heard = '[oslo_messaging_notifications]\ndriver = messagingv2\n'
        for text, missing, *command in (
                (own + way, '[api_database] connection',
                 'cellsched-nova-scheduler'),
                (api + way, '[database] connection',
                 'cellsched-nova-scheduler'),
                (api + own, '[placement] auth_type',
                 'cellsched-nova-scheduler'),
                (heard + way, '[api_database] connection',
                 'cellsched-nova-shadow', 'run'),
                (heard + api, '[placement] auth_type',
                 'cellsched-nova-shadow', 'run'),
                (own, '[api_database] connection', 'cellsched-nova', 'plan',
                 '--flavor', '4')):
            conf.write_text(text)

            said = self.said(command[0], conf, *command[1:], code=1)

            [line] = said.splitlines()
            self.assertIn(missing, line)

    def test_database_without_tables_is_told_of_in_a_line(self):
        conf = self.directory / 'nova.conf'
        conf.write_text(''.join(
            f'[{group}]\nconnection = sqlite:///{self.directory}/new.db\n'
            for group in ('api_database', 'database'))
            + '[placement]\nauth_type = none\n')

        said = self.said('cellsched-nova-scheduler', conf, code=1)

        [line] = said.splitlines()
        self.assertIn('cannot start: The Nova database at ', line)

    def test_scheduler_starts_and_stops_though_keystone_is_down(self):
        conf = self.directory / 'away.conf'
        conf.write_text(
            '[scheduler]\nworkers = 1\n[cellsched]\nrefresh_interval = 0.01\n'
            '[placement]\nauth_type = password\nusername = nova\n'
            'auth_url = http://127.0.0.1:9/\npassword = unspeakable\n')
        log = self.directory / 'log'
        with open(log, 'w') as output:
            process = subprocess.Popen(
                [self.python, '-W', 'ignore', '-m', 'cellsched_nova.main',
                 '--config-file', self.there['conf'], '--config-file',
                 str(conf)], env={**os.environ, **variables()}, stdout=output,
                stderr=subprocess.STDOUT)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

        # Then it has begun to read hosts, and to answer.
        processes.wait_until(
            lambda: 'Starting scheduler node' in log.read_text(), log)
        processes.wait_until(
            lambda: 'Placement cannot be read' in log.read_text(), log)
        self.assertNotIn('Traceback', log.read_text())
        process.terminate()

        self.assertEqual(0, process.wait(self.timeout_s), log.read_text())
        for text in 'Hosts could not be read', 'unspeakable':
            self.assertNotIn(text, log.read_text())

    def test_plan_is_by_columns_and_takes_nothing(self):
        before = self.answer('capacity', '--flavor', 'm1.large')

        planned = self.answer('plan', '--flavor', '4', '--count', '3')

        self.assertEqual(3, len(planned['places']))
        self.assertEqual(('columns', True),
                         (planned['way']['name'], planned['fits']))
        self.assertEqual(
            [('cell-0', 2, 2), ('cell-1', 2, 2), ('all cells', 4, 4)],
            [tuple(row.values())[:3] for row in before])
        self.assertEqual(
            before, self.answer('capacity', '--flavor', 'm1.large'))

    def test_plan_of_what_columns_do_not_say_is_by_candidates(self):
        groups = ('--extra-spec', 'resources1:VCPU=1')

        planned = self.answer('plan', '--flavor', '4', *groups)

        self.assertEqual('allocation candidates', planned['way']['name'])
        self.assertEqual(1, len(planned['places']))
        self.assertIn('groups of the flavor', self.ask(
            'capacity', '--flavor', '4', *groups, code=1))

    def test_what_is_not_there_is_named(self):
        name = '10000000-0000-4000-8000-000000000000'
        for argv in (
                ('plan', '--flavor', name),
                ('plan', '--flavor', '4', '--group', name),
                ('explain', name)):
            said = self.ask(*argv, code=1)

            [line] = said.splitlines()
            self.assertIn('There is no', line)
            self.assertIn(name, line)

    def test_decisions_are_explained(self):
        placed = self.answer('explain', self.there['placed'])
        refused = self.answer('explain', self.there['refused'])

        self.assertEqual('columns', placed['way']['name'])
        self.assertEqual(4, placed['picks'][0]['candidates'])
        self.assertIn('not enough hosts', refused['reason'])
        self.assertTrue(refused['examples'])
        # That one is a process from its beginning.
        said = self.run_python(
            '-m', 'cellsched_nova.commands', '--config-file',
            self.there['conf'], 'explain', self.there['placed'])
        for text in ('Decided on columns', 'cell-', 'RAMWeigher'):
            self.assertIn(text, said)

    def test_shadow_listens_until_it_is_told_to_stop(self):
        conf = self.directory / 'shadow.conf'
        conf.write_text(
            '[oslo_messaging_notifications]\ndriver = messagingv2\n'
            '[notifications]\nnotification_format = both\n')
        process = subprocess.Popen(
            [self.python, '-W', 'ignore', '-m',
             'cellsched_nova.shadow.commands', '--config-file',
             self.there['conf'], '--config-file', str(conf), 'run'],
            text=True, env={**os.environ, **variables()},
            stdout=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)

        said = iter(process.stdout.readline, '')
        self.assertTrue(any(
            'Listening to topics versioned_notifications' in line
            for line in said))
        process.terminate()

        self.assertEqual(0, process.wait(self.timeout_s))
        self.assertIn('nothing was compared', self.said(
            'cellsched-nova-shadow', self.there['conf'], '--config-file',
            str(conf), 'report', code=2))

    def test_hosts_that_are_exported_are_planned_on(self):
        hosts = self.directory / 'hosts.json'
        self.ask('host', 'export', str(hosts))

        there = self.answer('plan', '--flavor', '4')
        then = self.answer('plan', '--flavor', '4', '--snapshot', str(hosts))

        self.assertEqual(*([each['host'] for each in planned['places']]
                           for planned in (there, then)))
