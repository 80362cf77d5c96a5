# SPDX-License-Identifier: Apache-2.0
"""Brokers that refuse, that are away, and passwords of any characters."""

import re
import subprocess
from urllib import parse

import kombu
import oslo_messaging
from oslo_utils import uuidutils

from cellsched.api import authorization
from cellsched.api import flavors
from cellsched import clock
from cellsched.conf import loader
from cellsched import context
from cellsched.db.api import models
from cellsched import exception
from cellsched.rpc import client
from cellsched.rpc import transport
from cellsched.standalone import deployment
from cellsched.testing import databases
from tests.functional import base as functional
from tests.integration import base
from tests.integration import processes
from tests.integration import servers
from tests.integration import serving
from tests import profile
from tests.unit.cmd import processes as unit_processes

ADMIN = context.admin()

#: Between these words are all characters that mean something somewhere.
PASSWORD = ('Xyzzy@Plugh:Frotz/Gnusto%Blorb#Rezrov?Yomin\'Zifmia"Izyuk '
            'Ozmoo\u00e9Nitfol;Kulcad,Lleps&Throck+Espnis')

#: Pieces of it that may be seen nowhere.
PIECES = re.findall(r'[A-Z][a-z]+', PASSWORD)

#: Has libraries log all that they can with ``--debug``.
LEVELS = ','.join(f'{name}=DEBUG' for name in (
    'amqp', 'kombu', 'oslo.messaging', 'oslo_messaging'))


def encoded(text: str) -> str:
    return parse.quote(text, safe='')


class BrokerTestCase(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.user = f'u/{uuidutils.generate_uuid()}'
        self.database = self.useFixture(databases.APIDatabase())
        self.claims_url = self.useFixture(databases.ClaimsDatabase()).url

    def share(self) -> None:
        """Use a virtual host of the shared broker."""
        self.broker = base.installed(servers.shared, servers.RabbitMQ)
        self.name = parse.unquote(
            self.part_of(servers.RabbitMQ).url('vh').rpartition('/')[2])
        self.broker.add_user(self.user, PASSWORD, self.name)

    def url(
        self, password: str = PASSWORD, user: str | None = None,
        name: str | None = None,
    ) -> str:
        return (f'rabbit://{encoded(user or self.user)}:{encoded(password)}@'
                f'{serving.ADDRESS}:{self.broker.port["amqp"]}/'
                f'{encoded(name or self.name)}')

    def configure(
        self, url: str, verbose: bool = False, **groups: dict[str, str]
    ) -> str:
        """Write a configuration; return its path."""
        path = self.directory / 'broker.conf'
        wanted = {
            'DEFAULT': {'transport_url': url, 'host': 'host',
                        'rpc_response_timeout': '30',
                        **({'default_log_levels': LEVELS} if verbose else {})},
            'api_database': {'connection': self.database.url},
            'claims': {'connection': self.claims_url},
            'conductor': {'workers': '2'}, **groups}
        path.write_text('\n'.join(
            line for group, options in wanted.items() for line in (
                f'[{group}]', *(f'{name} = {value.replace("$", "$$")}'
                                for name, value in options.items()))))
        return str(path)

    def end_of(self, *args: str) -> tuple[int, str, str]:
        """Run a command to its end; return its code, and what it wrote."""
        env = processes.environment()
        ended = subprocess.run(
            args, cwd=self.directory, env=env, text=True, timeout=600,
            capture_output=True)
        for piece in PIECES:
            self.assertNotIn(piece, ended.stdout + ended.stderr)
        return ended.returncode, ended.stdout, ended.stderr

    def conductor(self, path: str, *args: str) -> processes.Process:
        return self.process(['cellsched-conductor', '--config-file', path,
                             *args])

    def ping(self, service: processes.Process, url: str) -> str:
        """Return what a conductor answers, once it has started."""
        service.wait_for('has started as host')
        conf = loader.load(files=[self.configure(url)], dirs=[])
        transports = transport.Transports(conf)
        self.addCleanup(transports.close)
        sent = client.Client(
            transports.get(), 'conductor', '1.1', 'baseapi')
        return sent.call(context.admin(), 'ping', arg='x')['service']

    def assert_quiet(self, process: processes.Process) -> None:
        """Check that no traceback is written, and nothing of a password."""
        written = process.log.read_text()
        self.assertNotIn('Traceback', written)
        for piece in PIECES:
            self.assertNotIn(piece, written)


@profile.by_default(
    'test_error_has_the_address_and_the_reason',
    'test_service_ends_with_a_single_line',
    'test_single_accepting_host_suffices',
    reason='more processes whose broker refuses them')
class TestRefusing(BrokerTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.share()
        self.other = parse.unquote(
            self.part_of(servers.RabbitMQ).url('other').rpartition('/')[2])

    def refusals(self) -> dict[str, str]:
        """Return URLs that are refused, and what is said to them."""
        return {
            self.url(PASSWORD + 'x'): 'user name or the password',
            self.url(user='stranger'): 'user name or the password',
            self.url(name='nowhere'): 'nowhere not found',
            self.url(name=self.other): f"access to vhost '{self.other}'",
        }

    def test_error_has_the_address_and_the_reason(self):
        for url, reason in self.refusals().items():
            message = str(self.assertRaises(
                exception.BrokerRefused, self.check, url))

            self.assertIn(f'The broker at {serving.ADDRESS}:', message)
            self.assertIn('[DEFAULT] transport_url', message)
            self.assertIn(reason, message)
            for piece in PIECES:
                self.assertNotIn(piece, message)

    def test_service_ends_with_a_single_line(self):
        path = self.configure(self.url(PASSWORD + 'x'))

        code, out, err = self.end_of(
            'cellsched-conductor', '--config-file', path)

        self.assertEqual((1, ''), (code, out), err)
        [line] = err.splitlines()
        self.assertIn('cellsched-conductor: The broker at', line)

    def check(self, url: str) -> None:
        conf = loader.load(files=[self.configure(url)], dirs=[])
        transport.Transports(conf).check()

    def test_libraries_do_not_log_the_password(self):
        path = self.configure(self.url(PASSWORD + 'x'), verbose=True)

        code, out, err = self.end_of(
            'cellsched-scheduler', '--debug', '--config-file', path)

        self.assertEqual(1, code)
        self.assertNotIn('Traceback', out + err)
        self.assertIn('DEBUG amqp', err)

    def test_broker_of_notifications_is_named(self):
        conf = loader.load(files=[self.configure(
            self.url(), oslo_messaging_notifications={
                'driver': 'messagingv2',
                'transport_url': self.url(name='nowhere')})], dirs=[])

        message = str(self.assertRaises(
            exception.BrokerRefused, transport.Transports(conf).check))

        self.assertIn('[oslo_messaging_notifications] transport_url', message)

    def test_single_accepting_host_suffices(self):
        good, bad = self.url(), self.url(PASSWORD + 'x')
        nowhere = bad.replace(f':{self.broker.port["amqp"]}/', ':1/')

        def check(*urls: str) -> None:
            hosts = [url.split('/')[2] for url in urls]
            self.check(f'rabbit://{",".join(hosts)}/{self.name}')

        check(bad, good)
        check(nowhere, good)
        check(nowhere, nowhere)
        self.assertRaises(exception.BrokerRefused, check, nowhere, bad)
        self.assertRaises(exception.BrokerRefused, check, bad, bad)

    def test_command_ends_with_a_single_line_and_creates_no_server(self):
        flavors.Flavors(
            authorization.LocalOperator(), self.database.database,
            clock.Clock(),
        ).create(ADMIN, 'small', 1, 512)
        path = self.configure(self.url(PASSWORD + 'x'))

        code, out, err = self.end_of(
            'cellsched', '--config-file', path, 'server', 'create', 'web',
            '--flavor', 'small')

        self.assertEqual((1, ''), (code, out))
        [line] = err.splitlines()
        self.assertIn('user name or the password', line)
        code, out, err = self.end_of(
            'cellsched', '--config-file', path, 'server', 'list',
            '-f', 'value')
        self.assertEqual((0, '', ''), (code, out, err))


class TestPasswords(BrokerTestCase):

    def test_password_of_any_characters_works_and_is_not_logged(self):
        self.share()
        service = self.conductor(
            self.configure(self.url(), verbose=True), '--debug')

        self.assertEqual('conductor', self.ping(service, self.url()))

        service.stop()
        self.assert_quiet(service)

    def test_url_with_an_unencoded_character_is_refused_and_not_quoted(self):
        path = self.configure('rabbit://guest:Xyzzy/Plugh@127.0.0.1/Frotz')

        code, out, err = self.end_of(
            'cellsched-conductor', '--debug', '--config-file', path)

        self.assertEqual(1, code)
        self.assertNotIn('Traceback', out + err)
        [line] = [line for line in err.splitlines()
                  if line.startswith('cellsched-conductor: ')]
        self.assertIn('percent-encoded', line)


#: Queries of a URL with other kinds of queues than the default.
CLASSIC = '?rabbit_quorum_queue=false&amqp_durable_queues=true'

CONDUCTOR = oslo_messaging.Target(topic='conductor', server='host')


@profile.by_default(
    'test_queue_of_another_kind_is_named_with_its_option',
    reason='services that wait for queues, or have consistent names of them')
class TestQueues(BrokerTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.share()

    def check(self, query: str = '', *targets: oslo_messaging.Target) -> None:
        conf = loader.load(files=[self.configure(self.url() + query)], dirs=[])
        transport.Transports(conf).check_queues(targets)

    def wait_for_ok(self, port: int, path: str) -> None:
        processes.wait_until(
            lambda: unit_processes.get(port, path)[0] == 200, f'200 of {path}')

    def delete(self) -> None:
        """Delete the queues of a conductor."""
        with kombu.Connection(
                f'amqp{self.url().removeprefix("rabbit")}') as opened:
            channel = opened.channel()
            for name in 'conductor', 'conductor.host':
                channel.queue_delete(name)

    def test_queue_of_another_kind_is_named_with_its_option(self):
        self.check('', CONDUCTOR)
        self.check(CLASSIC, oslo_messaging.Target(topic='older'))
        before = self.broker.count_queues(self.name)

        message = str(self.assertRaises(
            exception.BrokerRefused, self.check, CLASSIC, CONDUCTOR))
        self.assertIn('rabbit_quorum_queue = false for queue conductor: '
                      'PRECONDITION_FAILED', message)
        self.assertIn('virtual host', message)
        message = str(self.assertRaises(
            exception.BrokerRefused, self.check, '',
            oslo_messaging.Target(topic='older')))
        self.assertIn('rabbit_quorum_queue = true for queue older', message)

        # Without servers, all that is declared is deleted.
        self.check(CLASSIC)
        self.check('?rabbit_stream_fanout=false')
        self.assertEqual(before, self.broker.count_queues(self.name))

    def test_service_waits_for_a_queue_and_is_not_ready(self):
        self.check(CLASSIC, CONDUCTOR)
        port = unit_processes.free_port()
        for workers in '1', '2':
            service = self.conductor(self.configure(
                self.url(), conductor={'workers': workers},
                monitoring={'conductor_port': str(port)}))
            service.wait_for('waits for its broker: ')

            status, answer = unit_processes.get(port, '/readyz')
            self.assertEqual(503, status)
            self.assertIn('rabbit_quorum_queue = true', answer)

            self.delete()
            service.wait_for('has started as host')
            self.wait_for_ok(port, '/readyz')
            service.stop()
            self.assertEqual(
                2, service.output().count('waits for its broker'))
            self.assert_quiet(service)
            self.delete()
            self.check(CLASSIC, CONDUCTOR)

    def test_queue_manager_uses_the_directory_of_the_file(self):
        manager = {'use_queue_manager': 'true', 'hostname': 'host',
                   'processname': f'test{uuidutils.generate_uuid()}'}
        path = self.configure(self.url(), oslo_messaging_rabbit=manager)
        code, _, err = self.end_of(
            'cellsched-conductor', '--config-file', path)
        self.assertEqual(1, code)
        self.assertIn('[oslo_concurrency] lock_path: it is not set', err)

        port = unit_processes.free_port()
        service = self.conductor(self.configure(
            self.url(), oslo_messaging_rabbit=manager,
            oslo_concurrency={'lock_path': f'{self.directory}/locks'},
            monitoring={'conductor_port': str(port)}))
        service.wait_for('has started as host')
        self.wait_for_ok(port, '/healthz')

        self.assertTrue(list((self.directory / 'locks').iterdir()))
        service.stop()
        self.assert_quiet(service)


@profile.full_only('a service that waits for its broker for some time')
class TestAway(BrokerTestCase):

    def test_service_waits_for_its_broker_and_works_after_the_start(self):
        self.broker = self.own(servers.RabbitMQ)
        self.name = 'vh'
        self.broker.url(self.name)
        self.broker.add_user(self.user, PASSWORD, self.name)
        self.broker.stop()
        service = self.conductor(self.configure(
            self.url(), oslo_messaging_rabbit={'rabbit_retry_backoff': '0'}))
        service.wait_for(
            r'The broker of \[DEFAULT\] transport_url is unreachable')
        service.wait_for('waits for its broker: .* is unreachable')

        self.broker.start()

        self.assertEqual('conductor', self.ping(service, self.url()))
        service.stop()
        self.assert_quiet(service)


@profile.full_only('the broker of a cell; by default it is that of the API')
class TestCell(BrokerTestCase):

    def test_refusing_broker_of_a_cell_keeps_no_other_waiting(self):
        self.share()
        cloud = deployment.Deployment(
            self.directory,
            [deployment.DeployedCell(f'cell{number}', [deployment.DeployedHost(
                f'host{number}', availability_zone=f'zone{number}')])
             for number in (1, 2)],
            options=functional.paced({'filter_scheduler': {
                'enabled_filters': 'AvailabilityZoneFilter,ComputeFilter'}}))
        cloud.start()
        self.addCleanup(cloud.stop)
        api = cloud.api
        with api.parts.database.writer() as connection:
            connection.execute(models.cell_mappings.update().where(
                models.cell_mappings.c.name == 'cell1').values(
                    transport_url=self.url(PASSWORD + 'x')))
        api.flavors.create(ADMIN, 'small', 1, 256)

        [[refused], [built]] = [
            api.servers.create(functional.USER, 'web', 'small',
                               availability_zone=zone)
            for zone in ('zone1', 'zone2')]

        def status(uuid: str) -> str:
            return api.servers.get(functional.USER, uuid).status

        processes.wait_until(lambda: status(built) == 'ACTIVE', 'its build')
        processes.wait_until(
            lambda: 'AccessRefused' in self.logs.output, 'the log line')
        self.assertEqual('BUILD', status(refused))
        self.assertNotIn('Traceback', self.logs.output)
        for piece in PIECES:
            self.assertNotIn(piece, self.logs.output)
