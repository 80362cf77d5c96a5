# SPDX-License-Identifier: Apache-2.0
"""The commands of ``compose.yaml``, without containers.

The files of the containers are copied with the addresses of our own servers.
Each service runs the command that its container runs.
"""

import json
import re

from tests.functional import test_containers
from tests.integration import base
from tests.integration import servers
from tests.integration import serving
from tests import profile


@profile.full_only(
    'fourteen processes; tests.functional.test_containers reads the files')
class TestCommands(base.TestCase):

    def setUp(self):
        super().setUp()
        self.services, _ = test_containers.compose()
        self.broker = self.own(servers.RabbitMQ)
        self.database = self.own(servers.PostgreSQL)
        self.ports = {}
        self.files = self.directory / 'etc'
        self.files.mkdir()
        for path in test_containers.CONTAINERS.iterdir():
            (self.files / path.name).write_text(
                self.here(path.read_text()))

    def here(self, text):
        """Return text with the addresses and paths of this test."""
        database = f'@{serving.ADDRESS}:{self.database.port["sql"]}/'
        return (text.replace(
            '@rabbitmq:5672', f'@{serving.ADDRESS}:{self.broker.port["amqp"]}')
            .replace('@postgresql/', database)
            .replace('/etc/cellsched', str(self.files)))

    def command(self, name):
        """Return the command of a service, which has its own host name."""
        service = self.services[name]
        command = [self.here(word) for word in service['command']]
        if 'hostname' in service:
            own = self.directory / f'{name}.conf'
            # Containers have addresses of their own, and so the same ports.
            self.ports[name] = self.useFixture(serving.Port()).number
            kind = command[0].removeprefix('cellsched-')
            own.write_text(
                f'[DEFAULT]\nhost = {service["hostname"]}\n'
                f'state_path = {self.directory}/{name}\n'
                f'[monitoring]\n{kind}_port = {self.ports[name]}\n')
            command.append(f'--config-file={own}')
        return command

    def test_cluster_of_containers_builds_servers(self):
        # What the images do with their files when they start.
        self.broker.import_definitions(self.files / 'definitions.json')
        self.database.execute('CREATE ROLE cellsched SUPERUSER LOGIN')
        made = (self.files / 'databases.sql').read_text()
        for statement in re.findall(r'(?m)^CREATE .*;$', made):
            self.database.execute(statement)
        # It can run again.
        for _ in range(2):
            self.run_command(*self.command('set-up'))
        started = [
            self.process(self.command(name), name=name)
            for name in self.services
            if name not in ('postgresql', 'rabbitmq', 'set-up')]
        for each in started:
            each.wait_for(r'has started as .*\n')
        for name, port in self.ports.items():
            kind, *check = self.services[name]['healthcheck']['test']
            self.assertEqual('CMD', kind)
            self.run_command(*check[:-1], re.sub(
                r'127\.0\.0\.1:\d+', f'127.0.0.1:{port}', check[-1]))
        api = f'--config-file={self.files}/api.conf'

        self.run_command('cellsched-manage', api, 'cell_v2', 'discover_hosts')
        mapped = self.run_command(
            'cellsched-manage', api, 'cell_v2', 'list_hosts')
        self.run_command('cellsched', api, 'flavor', 'create', 'm1.small',
                         '--ram=2048', '--vcpus=1', '--disk=20')
        created = json.loads(self.run_command(
            'cellsched', api, 'server', 'create', 'web', '--flavor=m1.small',
            '--count=3', '--wait', '-f', 'json'))

        self.assertEqual(
            ['ACTIVE'] * 3, [each['Status'] for each in created])
        for name, service in self.services.items():
            if name.startswith('compute-'):
                self.assertIn(service['hostname'], mapped)
