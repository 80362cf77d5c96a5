# SPDX-License-Identifier: Apache-2.0
"""The ``Containerfile`` and ``compose.yaml``, as far as files can say.

``tests.integration.test_containers`` runs their commands. Linters check them
where they are installed.
"""

import configparser
from importlib import metadata
import json
import re
import shutil
import subprocess

import jsonschema
import yaml

from tests.unit import base
from tests.unit import tidy

CONTAINERS = tidy.ROOT / 'etc' / 'containers'

_TEXTS = {'type': 'array', 'items': {'type': 'string'}, 'minItems': 1}
_RECORD = {'type': 'object', 'additionalProperties': False}

#: The parts of the Compose Specification that the file uses.
SCHEMA = {**_RECORD, 'required': ['services'], 'properties': {
    'volumes': {'type': 'object', 'additionalProperties': {'type': 'null'}},
    'services': {'type': 'object', 'additionalProperties': {
        **_RECORD, 'required': ['image'], 'properties': {
            'image': {'type': 'string', 'pattern': r'^[a-z./-]+:[a-z0-9.-]+$'},
            'build': {**_RECORD, 'properties': {
                'context': {'type': 'string'},
                'dockerfile': {'type': 'string'}}},
            'hostname': {'type': 'string'},
            'environment': {'type': 'object', 'additionalProperties': {
                'type': 'string'}},
            'command': _TEXTS, 'volumes': _TEXTS,
            'restart': {'enum': ['on-failure']},
            'stop_grace_period': {'type': 'string', 'pattern': r'^\d+s$'},
            'depends_on': {'type': 'object', 'additionalProperties': {
                **_RECORD, 'required': ['condition'], 'properties': {
                    'condition': {'enum': [
                        'service_healthy',
                        'service_completed_successfully']}}}},
            'healthcheck': {**_RECORD, 'required': ['test'], 'properties': {
                'test': _TEXTS, 'retries': {'type': 'integer'},
                **{name: {'type': 'string', 'pattern': r'^\d+s$'} for name in
                   ('interval', 'timeout', 'start_period')}}},
        }}}}}


def compose():
    """Return the services of the compose file, and all of its content."""
    content = yaml.safe_load((tidy.ROOT / 'compose.yaml').read_text())
    return content['services'], content


def configuration(name):
    """Return a configuration file of the containers."""
    parsed = configparser.RawConfigParser()
    parsed.read(CONTAINERS / name)
    return parsed


class TestCompose(base.TestCase):

    def setUp(self):
        super().setUp()
        self.services, self.content = compose()

    def test_file_follows_the_specification(self):
        jsonschema.validate({
            name: value for name, value in self.content.items()
            if not name.startswith('x-')}, SCHEMA)

    def test_services_and_volumes_refer_to_each_other(self):
        used = set()
        for name, service in self.services.items():
            for other, needed in service.get('depends_on', {}).items():
                self.assertIn(other, self.services, name)
                if needed['condition'] == 'service_healthy':
                    self.assertIn('healthcheck', self.services[other])
            for volume in service.get('volumes', ()):
                source = volume.partition(':')[0]
                if source.startswith('.'):
                    self.assertTrue((tidy.ROOT / source).exists(), source)
                else:
                    used.add(source)
        self.assertEqual({*self.content['volumes']}, used)

    def test_commands_are_of_the_package_and_files_exist(self):
        scripts = metadata.distribution('cellsched').entry_points.select(
            group='console_scripts').names
        run = set()
        for service in self.services.values():
            if not service['image'].startswith('localhost/'):
                continue
            program, *args = service['command']
            self.assertIn(program, {*scripts, 'sh'})
            run.add(program)
            for path in args:
                if path.startswith('/etc/cellsched/'):
                    self.assertTrue(
                        (CONTAINERS / path.rpartition('/')[2]).exists(), path)
        self.assertEqual({'cellsched-scheduler', 'cellsched-conductor',
                          'cellsched-compute', 'sh'}, run)

    def test_host_names_are_unique(self):
        names = [service['hostname'] for service in self.services.values()
                 if 'hostname' in service]
        self.assertEqual(len({*names}), len(names))

    def test_named_databases_and_virtual_hosts_are_created(self):
        databases = {*re.findall(r'CREATE DATABASE (\w+);', (
            CONTAINERS / 'databases.sql').read_text())}
        definitions = json.loads(
            (CONTAINERS / 'definitions.json').read_text())
        hosts = {each['name'] for each in definitions['vhosts']}
        used, targets = set(), set()
        for path in CONTAINERS.glob('*.conf'):
            if path.name == 'rabbitmq.conf':
                continue
            conf = configuration(path.name)
            targets.add(conf['DEFAULT']['transport_url'].rpartition('/')[2])
            for group in 'api_database', 'database', 'claims':
                if conf.has_section(group):
                    url = conf[group]['connection']
                    used.add(url.rpartition('/')[2])
                    self.assertIn('@postgresql/', url)
        self.assertEqual(databases, used | {'cellsched_api_cell0'})
        self.assertEqual(hosts, targets)
        self.assertEqual(hosts, {
            each['vhost'] for each in definitions['permissions']})

    def test_health_checks_use_the_ports_of_the_files(self):
        checked = 0
        for name, service in self.services.items():
            program, *args = service.get('command', ('sh',))
            kind = program.removeprefix('cellsched-')
            if kind == program:
                continue
            conf = configuration(args[-1].rpartition('/')[2])
            port = conf['monitoring'][f'{kind}_port']
            self.assertIn(f'http://127.0.0.1:{port}/healthz',
                          service['healthcheck']['test'][-1], name)
            checked += 1
        self.assertEqual(8, checked)

    def test_containers_have_time_to_stop(self):
        for name, service in self.services.items():
            if name not in ('postgresql', 'rabbitmq'):
                self.assertEqual('75s', service['stop_grace_period'])

    def test_composer_reads_the_file(self):
        if shutil.which('podman') is None or subprocess.run(
                ['podman', 'compose', 'version'], capture_output=True,
                check=False).returncode:
            self.skipTest('podman compose is missing; Debian has it in the '
                          'packages podman and podman-compose')
        done = subprocess.run(
            ['podman', 'compose', '--file', tidy.ROOT / 'compose.yaml',
             'config'], capture_output=True, text=True, check=False)
        self.assertEqual(0, done.returncode, done.stderr)


class TestContainerfile(base.TestCase):

    def setUp(self):
        super().setUp()
        text = (tidy.ROOT / 'Containerfile').read_text()
        #: Instructions with their arguments, each on one line.
        self.instructions = [
            tuple(line.split(None, 1)) for line in
            re.sub(r'\\\n\s*', '', text).splitlines()
            if line.strip() and not line.startswith('#')]

    def arguments(self, instruction):
        return [args for name, args in self.instructions
                if name == instruction]

    def test_base_is_pinned_and_services_do_not_run_as_root(self):
        self.assertEqual('FROM', self.instructions[0][0])
        [image] = self.arguments('FROM')
        self.assertRegex(image, r'^docker\.io/library/python:3\.\d+-slim-\w+$')
        self.assertEqual(['cellsched'], self.arguments('USER'))

    def test_image_installs_only_the_wheel(self):
        [copied] = self.arguments('COPY')
        self.assertEqual(
            ['upper-constraints.txt', 'dist/cellsched-*.whl',
             '/tmp/cellsched/'], copied.split())
        [run] = self.arguments('RUN')
        [installed] = re.findall(r'pip install (.*?) &&', run)
        self.assertEqual('"$wheel[postgresql]"', installed.split()[-1])
        self.assertNotRegex(run, r'https?://|apt')

    def test_only_known_instructions_are_used(self):
        self.assertLessEqual(
            {name for name, _ in self.instructions},
            {'FROM', 'COPY', 'RUN', 'USER', 'VOLUME', 'CMD'})

    def test_linter_reports_no_problems(self):
        if shutil.which('hadolint') is None:
            self.skipTest('hadolint is missing')
        done = subprocess.run(
            ['hadolint', tidy.ROOT / 'Containerfile'], capture_output=True,
            text=True, check=False)
        self.assertEqual((0, ''), (done.returncode, done.stdout))

    def test_scripts_are_read_by_the_shell(self):
        [run] = self.arguments('RUN')
        for script in run, (CONTAINERS / 'set-up.sh').read_text():
            subprocess.run(['sh', '-n'], input=script, text=True, check=True)
