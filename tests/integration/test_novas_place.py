# SPDX-License-Identifier: Apache-2.0
"""Nova's services run with this scheduler in the place of nova-scheduler.

``integrations/nova/tools/functional.py`` runs many more of Nova's tests.
"""

import contextlib
import http.server
import json
import os
import pathlib
import select
import subprocess
import sys
import threading

from testtools import content

from benchmarks.peers import environment as peers
from integrations.nova.tools import environment
from tests.integration import base
from tests.integration import commands
from tests.integration.nova import caller
from tests.integration import processes
from tests.integration import servers
from tests.integration import serving
from tests import profile
from tests.unit.cmd import processes as unit_processes

INTEGRATION = pathlib.Path(environment.__file__).parents[1]

#: The script that runs a deployment of Nova, and the modules for it.
RUNNER = pathlib.Path(caller.__file__).with_name('deployment_runner.py')
PEERS = pathlib.Path(peers.__file__).parent

#: The script that runs commands for the deployment.
PROGRAMS = RUNNER.with_name('programs.py')

#: Tests of Nova of some seconds each: a plain request on columns, groups, a
#: move, a request on allocation candidates, dedicated CPUs and a device.
TESTS = (
    'test_json_filter',
    'test_server_group.ServerGroupTestV264.test_boot_servers_with_affinity',
    'test_cold_migrate.ColdMigrationAllowSameHost',
    'libvirt.test_vgpu.VGPUTests.test_create_servers_with_vgpu',
    'libvirt.test_numa_servers.NUMAServersTest.'
    'test_create_server_with_pcpu',
    'libvirt.test_pci_sriov_servers.SRIOVServersTest.'
    'test_create_server_with_VF',
)


def python() -> pathlib.Path:
    """Return the python of the environment of Nova's own tests.

    :raises tests.integration.serving.NotInstalled: the creation failed
    """
    caller.python()
    try:
        return environment.make()
    except subprocess.CalledProcessError as exc:
        raise serving.NotInstalled(
            f'The packages of Nova\'s tests cannot be installed: {exc.output}'
        ) from None


def variables() -> dict[str, str]:
    """Return the variables for Nova's python to find this checkout."""
    return {'PYTHONPATH': os.pathsep.join(environment.paths())}


class SlowPlacement(http.server.ThreadingHTTPServer):
    """A Placement without resource providers, which answers slowly.

    :ivar requests: number of answered requests, by connection
    :ivar connected: connections that are open
    :ivar garbled: connections with a request before the answer to another,
        which no single process sends
    """

    daemon_threads = True

    #: Seconds for an answer.
    DELAY_S = 0.03

    def __init__(self):
        super().__init__(('127.0.0.1', 0), _SlowHandler)
        self.requests, self.garbled, self.connected = {}, set(), set()
        #: The next requests that are never answered.
        self.silent = 0
        self.end = threading.Event()

    @property
    def url(self):
        return 'http://127.0.0.1:{}'.format(self.server_address[1])

    @classmethod
    @contextlib.contextmanager
    def running(cls):
        """Serve in a thread until the end of the block."""
        with cls() as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield server
            finally:
                server.end.set()
                server.shutdown()
                thread.join()


class _SlowHandler(http.server.BaseHTTPRequestHandler):

    protocol_version = 'HTTP/1.1'

    def setup(self):
        super().setup()
        self.server.connected.add(self.client_address)

    def finish(self):
        self.server.connected.discard(self.client_address)
        super().finish()

    def do_GET(self):
        server = self.server
        if self.path != '/' and server.silent:
            server.silent -= 1
            server.end.wait()
            self.close_connection = True
            return
        server.end.wait(server.DELAY_S)
        if select.select([self.connection], [], [], 0)[0]:
            server.garbled.add(self.client_address)
        body = json.dumps({'resource_providers': [], 'versions': [{
            'id': 'v1.0', 'status': 'CURRENT', 'min_version': '1.0',
            'max_version': '1.39', 'links': [{'rel': 'self', 'href': ''}],
        }]}).encode()
        self.send_response(200)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if self.path != '/':
            server.requests[self.client_address] = (
                server.requests.get(self.client_address, 0) + 1)

    def log_message(self, *arguments):
        pass


def names_of_processes(parent):
    """Return the names of a process and its children, as ``pgrep`` does."""
    path = pathlib.Path('/proc')
    # Another thread than the first one forks.
    children = ' '.join(each.read_text() for each in path.glob(
        f'{parent}/task/*/children')).split()
    return [(path / f'{pid}/comm').read_text().strip()
            for pid in (parent, *children)]


class TestCase(base.TestCase):

    # Each of Nova's tests starts all of its services.
    timeout_s = 1800

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.python = base.installed(python)

    def run_python(self, *args, code=0):
        """Run Nova's python with this checkout; return its output."""
        done = subprocess.run(
            [self.python, '-W', 'ignore', *args], cwd=INTEGRATION, text=True,
            env={**os.environ, **variables()}, capture_output=True,
            check=False, timeout=self.timeout_s)
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        return done.stdout + done.stderr


class TestPackage(TestCase):

    def test_unit_tests_of_the_package_pass(self):
        output = self.run_python(
            '-m', 'unittest', 'discover', '-t', '.', '-s', 'tests')

        self.assertRegex(output, r'Ran [1-9]\d* tests')

    def test_each_configuration_problem_has_a_line(self):
        conf = self.directory / 'nova.conf'
        conf.write_text(
            '[DEFAULT]\nservicegroup_driver = mc\n'
            '[api_database]\nconnection = sqlite://\n'
            '[database]\nconnection = sqlite://\n'
            '[placement]\nauth_type = none\n'
            '[filter_scheduler]\nenabled_filters = ComputeFilter,Missing\n'
            'weight_classes = no.such.Weigher\n')

        output = self.run_python(
            '-m', 'cellsched_nova.main', '--config-file', str(conf), code=1)

        lines = [line for line in output.splitlines()
                 if line.startswith('invalid configuration: ')]
        for name, line in zip(
                ('servicegroup_driver', 'Missing', 'no.such.Weigher'), lines,
                strict=True):
            self.assertIn(name, line)


@profile.full_only(
    'whole Novas: by default a benchmark runs this scheduler in place of Nova')
class TestFunctional(TestCase):

    def test_functional_tests_of_nova_pass_with_the_scheduler(self):
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
    """Tests of the package in a whole Nova in one process."""

    def run_modules(self, *names):
        output = self.run_python('-m', 'unittest', *(
            f'tests/functional/{name}.py' for name in names))
        self.assertRegex(output, r'Ran [1-9]\d* tests?')

    def test_shadow_agrees_with_the_scheduler_of_nova(self):
        self.run_modules('test_shadow')

    def test_faults_are_hidden_or_reported_without_leaks(self):
        self.run_modules('test_faults', 'test_moves')

    def test_adoption_steps_can_be_reverted(self):
        self.run_modules('test_adoption')


class TestCommands(TestCase):
    """Commands with Nova's databases and Placement."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        base.installed(servers.PostgreSQL)
        cls.commands = cls.of_class(commands.Commands(
            [cls.python, '-P', '-W', 'ignore', PROGRAMS], variables()))
        # Placement is installed in the environment of the peers.
        process = subprocess.Popen(
            [caller.python(), '-P', '-W', 'ignore', RUNNER], text=True,
            env={**os.environ, 'PYTHONPATH': os.pathsep.join(
                [*environment.paths(), str(PEERS)])},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        cls.addClassCleanup(process.wait, cls.timeout_s)
        cls.addClassCleanup(process.communicate)
        cls.deployed = json.loads(process.stdout.readline())

    def output_of(self, name, conf, *args, code=0):
        """Return the output of a command with a configuration file."""
        ended = self.commands.end_of(
            [name, '--config-file', str(conf), *args], self.directory)
        self.assertEqual(code, ended.code, ended)
        return ended.output + ended.errors

    def ask(self, *args, code=0):
        """Return the output of a command with the deployment."""
        return self.output_of(
            'cellsched-nova', self.deployed['conf'], *args, code=code)

    def answer(self, *args):
        """Return the JSON output of a command."""
        return json.loads(self.ask(*args, '-f', 'json'))

    def test_unreadable_configuration_is_reported_in_a_line(self):
        conf = self.directory / 'nova.conf'
        for text in (None, '[DEFAULT\n'):
            if text is not None:
                conf.write_text(text)
            for command in (
                    ('cellsched-nova', 'plan', '--flavor', '4'),
                    ('cellsched-nova-scheduler',),
                    ('cellsched-nova-shadow', 'run')):

                output = self.output_of(command[0], conf, *command[1:], code=1)

                [line] = output.splitlines()
                self.assertIn(str(conf), line)

    @profile.full_only('the unit tests of the package name invalid values')
    def test_invalid_value_is_reported_in_a_line(self):
        conf = self.directory / 'nova.conf'
        conf.write_text(
            '[cellsched]\nrefresh_interval = often\n'
            '[oslo_messaging_notifications]\ndriver = messagingv2\n')
        for command in (('cellsched-nova-scheduler',),
                        ('cellsched-nova-shadow', 'run')):

            output = self.output_of(command[0], conf, *command[1:], code=1)

            [line] = output.splitlines()
            self.assertIn('[cellsched] refresh_interval', line)
            self.assertIn('often', line)

    @profile.full_only('the unit tests of the package name missing options')
    def test_missing_option_is_reported_in_a_line(self):
        conf = self.directory / 'nova.conf'
        api, own = (f'[{group}]\nconnection = sqlite://\n'
                    for group in ('api_database', 'database'))
        way = '[placement]\nauth_type = none\n'
        notified = '[oslo_messaging_notifications]\ndriver = messagingv2\n'
        for text, missing, *command in (
                (own + way, '[api_database] connection',
                 'cellsched-nova-scheduler'),
                (api + way, '[database] connection',
                 'cellsched-nova-scheduler'),
                (api + own, '[placement] auth_type',
                 'cellsched-nova-scheduler'),
                (notified + way, '[api_database] connection',
                 'cellsched-nova-shadow', 'run'),
                (notified + api, '[placement] auth_type',
                 'cellsched-nova-shadow', 'run'),
                (own, '[api_database] connection', 'cellsched-nova', 'plan',
                 '--flavor', '4')):
            conf.write_text(text)

            output = self.output_of(command[0], conf, *command[1:], code=1)

            [line] = output.splitlines()
            self.assertIn(missing, line)

    def test_database_without_tables_is_reported_in_a_line(self):
        conf = self.directory / 'nova.conf'
        conf.write_text(''.join(
            f'[{group}]\nconnection = sqlite:///{self.directory}/new.db\n'
            for group in ('api_database', 'database'))
            + '[placement]\nauth_type = none\n')

        output = self.output_of('cellsched-nova-scheduler', conf, code=1)

        [line] = output.splitlines()
        self.assertIn('cannot start: The Nova database at ', line)

    def start_scheduler(self, conf):
        """Start the scheduler with one more file of the configuration.

        :returns: the process, and the path of its log
        """
        log = self.directory / 'log'
        with open(log, 'w') as output:
            process = subprocess.Popen(
                [self.python, '-W', 'ignore', '-m', 'cellsched_nova.main',
                 '--config-file', self.deployed['conf'], '--config-file',
                 str(conf)], env={**os.environ, **variables()}, stdout=output,
                stderr=subprocess.STDOUT)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process, log

    def test_workers_share_no_connection_and_survive_a_silent_placement(self):
        conf = self.directory / 'workers.conf'
        with SlowPlacement.running() as server:
            conf.write_text(
                '[scheduler]\nworkers = 2\n'
                '[cellsched]\nrefresh_interval = 0.01\n'
                f'[placement]\nendpoint_override = {server.url}\n'
                'timeout = 1\n')
            process, log = self.start_scheduler(conf)
            self.addCleanup(
                lambda: self.addDetail('log', content.text_content(
                    log.read_text()[-10000:])))

            def have_all_read():
                return server.garbled or sum(
                    count >= 10 for count in server.requests.values()) >= 2

            # 1. Each worker has a connection of its own, and no other one is
            #    open. Probes find all processes by their name.
            processes.wait_until(have_all_read, 'reads of all workers')
            self.assertEqual(set(), server.garbled)
            self.assertEqual(set(), server.connected - server.requests.keys())
            self.assertEqual(
                ['nova-scheduler:'] * 3, names_of_processes(process.pid))
            self.assertNotIn('Placement cannot be read', log.read_text())
            # 2. Each worker reads again after a request without an answer.
            server.silent = 2
            processes.wait_until(lambda: not server.silent, 'silence')
            server.requests.clear()
            processes.wait_until(have_all_read, 'further reads')
            # 3. The end of the process does not wait for an answer.
            server.silent = 10 ** 6
            processes.wait_until(lambda: server.silent < 10 ** 6, 'silence')
            process.terminate()
            self.assertEqual(0, process.wait(170.0))

    def test_scheduler_starts_and_stops_though_keystone_is_down(self):
        conf = self.directory / 'away.conf'
        conf.write_text(
            '[scheduler]\nworkers = 1\n[cellsched]\nrefresh_interval = 0.01\n'
            '[placement]\nauth_type = password\nusername = nova\n'
            'auth_url = http://127.0.0.1:9/\npassword = unspeakable\n')
        process, log = self.start_scheduler(conf)

        # The scheduler has started, and has tried to read hosts.
        processes.wait_until(
            lambda: 'Starting scheduler node' in log.read_text(), log)
        processes.wait_until(
            lambda: 'Placement cannot be read' in log.read_text(), log)
        self.assertNotIn('Traceback', log.read_text())
        process.terminate()

        self.assertEqual(0, process.wait(self.timeout_s), log.read_text())
        for text in 'Hosts could not be read', 'unspeakable':
            self.assertNotIn(text, log.read_text())

    def test_workers_publish_health_and_metrics_on_a_single_port(self):
        conf, port = self.directory / 'port.conf', unit_processes.free_port()
        conf.write_text(
            '[scheduler]\nworkers = 2\n[cellsched]\nrefresh_interval = 0.1\n'
            f'[monitoring]\nscheduler_port = {port}\n')
        process, log = self.start_scheduler(conf)
        self.addCleanup(
            lambda: self.addDetail('log', content.text_content(
                log.read_text()[-10000:])))

        processes.wait_until(
            lambda: 'Starting scheduler node' in log.read_text(), log)
        processes.wait_until(
            lambda: 'cellsched_workers 2.0' in unit_processes.get(
                port, '/metrics')[1], 'metrics of both workers')
        processes.wait_until(
            lambda: unit_processes.get(port, '/readyz') == (200, 'ready\n'),
            'a first reading')
        self.assertEqual(
            (200, '[+] broker, topic scheduler: ok\n[+] API database: ok\n'
                  '[+] cells: ok\n[+] Placement: ok\nhealthy\n'),
            unit_processes.get(port, '/healthz'))
        text = unit_processes.get(port, '/metrics')[1]
        for line in ('cellsched_hosts{cell="cell-1",state="up"} 2.0',
                     'cellsched_silent_cells 0.0',
                     'cellsched_scheduler_requests_total'
                     '{result="selected"} 0.0'):
            self.assertIn(f'\n{line}\n', text)
        process.terminate()
        self.assertEqual(0, process.wait(self.timeout_s))

    def test_plan_on_columns_claims_no_resources(self):
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

    def test_plan_beyond_columns_uses_allocation_candidates(self):
        groups = ('--extra-spec', 'resources1:VCPU=1')

        planned = self.answer('plan', '--flavor', '4', *groups)

        self.assertEqual('allocation candidates', planned['way']['name'])
        self.assertEqual(1, len(planned['places']))
        self.assertIn('groups of the flavor', self.ask(
            'capacity', '--flavor', '4', *groups, code=1))

    def test_unknown_name_is_named(self):
        name = '10000000-0000-4000-8000-000000000000'
        for argv in (
                ('plan', '--flavor', name),
                ('plan', '--flavor', '4', '--group', name),
                ('explain', name)):
            output = self.ask(*argv, code=1)

            [line] = output.splitlines()
            self.assertIn('There is no', line)
            self.assertIn(name, line)

    def test_decisions_are_explained(self):
        placed = self.answer('explain', self.deployed['placed'])
        refused = self.answer('explain', self.deployed['refused'])

        self.assertEqual('columns', placed['way']['name'])
        self.assertEqual(4, placed['picks'][0]['candidates'])
        self.assertIn('not enough hosts', refused['reason'])
        self.assertTrue(refused['examples'])
        # This command runs in a new process.
        output = self.run_python(
            '-m', 'cellsched_nova.commands', '--config-file',
            self.deployed['conf'], 'explain', self.deployed['placed'])
        for text in ('Decided on columns', 'cell-', 'RAMWeigher'):
            self.assertIn(text, output)

    def test_shadow_listens_until_stopped(self):
        conf = self.directory / 'shadow.conf'
        conf.write_text(
            '[oslo_messaging_notifications]\ndriver = messagingv2\n'
            '[notifications]\nnotification_format = both\n')
        process = subprocess.Popen(
            [self.python, '-W', 'ignore', '-m',
             'cellsched_nova.shadow.commands', '--config-file',
             self.deployed['conf'], '--config-file', str(conf), 'run'],
            text=True, env={**os.environ, **variables()},
            stdout=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)

        output = iter(process.stdout.readline, '')
        self.assertTrue(any(
            'Listening to topics versioned_notifications' in line
            for line in output))
        process.terminate()

        self.assertEqual(0, process.wait(self.timeout_s))
        self.assertIn('nothing was compared', self.output_of(
            'cellsched-nova-shadow', self.deployed['conf'], '--config-file',
            str(conf), 'report', code=2))

    def test_plan_uses_exported_hosts(self):
        hosts = self.directory / 'hosts.json'
        self.ask('host', 'export', str(hosts))

        current = self.answer('plan', '--flavor', '4')
        exported = self.answer(
            'plan', '--flavor', '4', '--snapshot', str(hosts))

        self.assertEqual(*([each['host'] for each in planned['places']]
                           for planned in (current, exported)))
