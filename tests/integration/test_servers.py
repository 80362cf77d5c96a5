# SPDX-License-Identifier: Apache-2.0
"""The servers of integration tests: what they promise the other tests."""

import contextlib
import functools
import pathlib
import re
import signal
import socket
import sys

import fixtures
import oslo_messaging
import sqlalchemy as sa
import testtools
from testtools import matchers

from cellsched.conf import loader
from tests.integration import base
from tests.integration import mariadb
from tests.integration import processes
from tests.integration import servers
from tests.integration import serving
from tests.integration import sharing
from tests import profile

#: Where Python finds the tests.
ROOT = str(pathlib.Path(__file__).parents[2])

#: The environment of tests that start what they need.
ALONE = {'PYTHONPATH': ROOT, sharing.VARIABLE: ''}

KINDS = (servers.RabbitMQ, servers.PostgreSQL, mariadb.MariaDB)

#: Makes a server that is not there a failure.
VARIABLE = 'CELLSCHED_REQUIRE_SERVERS'

#: In /proc/net/tcp: the state of a socket that listens.
LISTEN = '0A'

#: There as well: 127.0.0.1 and ::1.
LOOPBACK = ('0100007F', '00000000000000000000000001000000')


class Echo:
    """Answers with a name of its own."""

    target = oslo_messaging.Target(version='1.0')

    def __init__(self, name: str) -> None:
        self.name = name

    def ask(self, context, text):
        return f'{self.name}: {text}'


class TestCase(base.TestCase):

    def assert_loopback(self, server: serving.SharedServer) -> None:
        """Check that it listens on its ports, on no other address or port."""
        found = _listening(server)

        self.assertEqual(
            set(server.port.values()), {port for _, port in found})
        self.assertEqual(
            set(), {address for address, _ in found} - set(LOOPBACK))


class TestRabbitMQ(TestCase):

    def test_virtual_hosts_are_isolated(self):
        broker = self.part_of(servers.RabbitMQ)
        clients = [self.serve(name, broker.url(name))
                   for name in ('one', 'two')]

        answers = [client.call({}, 'ask', text='hello')
                   for client in clients for _ in range(3)]

        self.assertEqual(['one: hello'] * 3 + ['two: hello'] * 3, answers)

    def test_tests_do_not_meet(self):
        broker = self.part_of(servers.RabbitMQ)
        other = self.part_of(servers.RabbitMQ)

        self.assertNotEqual(broker.url('one'), other.url('one'))

    @profile.full_only('a server that dies; other tests kill one')
    def test_broker_can_be_killed_and_started_again(self):
        broker = self.own(servers.RabbitMQ)
        url = broker.url('one')
        self.assertEqual(
            'before: hello', self.ask(self.serve('before', url), 'before'))

        broker.kill()
        with socket.socket() as client:
            self.assertNotEqual(0, client.connect_ex(
                ('127.0.0.1', broker.port['amqp'])))
        broker.start()

        # The first server may be back as well, so one of them is asked.
        self.assertEqual(
            'after: hello', self.ask(self.serve('after', url), 'after'))

    @profile.full_only('a server that ends; tests that are killed leave none')
    def test_stopped_broker_leaves_no_process(self):
        # Clients would look for it for ever, so there are none.
        broker = self.own(servers.RabbitMQ)

        self.assertNotEqual([], processes.inside(broker.directory))
        broker.stop()
        self.assertEqual([], processes.inside(broker.directory))

    def test_all_ports_listen_on_the_loopback_interface(self):
        self.part_of(servers.RabbitMQ)

        self.assert_loopback(servers.shared(servers.RabbitMQ))

    def ask(self, client: oslo_messaging.RPCClient, server: str) -> str:
        return client.prepare(server=server).call({}, 'ask', text='hello')

    def serve(self, name: str, url: str) -> oslo_messaging.RPCClient:
        """Serve a virtual host, and return a client of it."""
        transport = oslo_messaging.get_rpc_transport(
            loader.load([], files=[], dirs=[]), url)
        self.addCleanup(transport.cleanup)
        server = oslo_messaging.get_rpc_server(
            transport, oslo_messaging.Target(topic='echo', server=name),
            [Echo(name)])
        server.start()
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)
        return oslo_messaging.get_rpc_client(
            transport, oslo_messaging.Target(topic='echo', version='1.0'),
            timeout=300)


class DatabaseTests:
    """What every database server promises."""

    #: The kind of the server.
    kind = None

    def test_databases_are_isolated(self):
        database = self.part_of(self.kind)
        one, two = (self.engine(database.url(name)) for name in ('one', 'two'))

        with one.begin() as connection:
            connection.execute(sa.text('CREATE TABLE hosts (name varchar(9))'))

        self.assertEqual(['hosts'], sa.inspect(one).get_table_names())
        self.assertEqual([], sa.inspect(two).get_table_names())

    def test_database_is_made_once(self):
        database = self.part_of(self.kind)

        self.assertEqual(database.url('one'), database.url('one'))

    def test_tests_do_not_meet(self):
        database = self.part_of(self.kind)
        other = self.part_of(self.kind)

        self.assertNotEqual(database.url('one'), other.url('one'))

    def test_used_database_is_deleted_after_its_test(self):
        self.part_of(self.kind)
        part = servers.Part(servers.shared(self.kind))
        with part:
            engine = self.engine(part.url('one'))
            engine.connect()

        self.assertRaises(sa.exc.OperationalError, self.engine(
            str(engine.url.render_as_string(hide_password=False))).connect)

    def test_written_data_survives_a_crash(self):
        database = self.own(self.kind)
        engine = self.engine(database.url('one'))
        with engine.begin() as connection:
            connection.execute(sa.text('CREATE TABLE hosts (name varchar(9))'))
        engine.dispose()

        database.kill()
        self.assertRaises(sa.exc.OperationalError, engine.connect)
        database.start()

        self.assertEqual(['hosts'], sa.inspect(engine).get_table_names())

    def test_server_listens_on_the_loopback_interface(self):
        self.part_of(self.kind)

        self.assert_loopback(servers.shared(self.kind))

    def engine(self, url: str) -> sa.Engine:
        engine = sa.create_engine(url)
        self.addCleanup(engine.dispose)
        return engine


class TestPostgreSQL(DatabaseTests, TestCase):

    kind = servers.PostgreSQL


class TestMariaDB(DatabaseTests, TestCase):

    kind = mariadb.MariaDB

    @profile.full_only('an option of servers that only benchmarks use')
    def test_commits_wait_for_the_disk_if_durable(self):
        for durable, flushes in ((False, 2), (True, 1)):
            server = self.useFixture(base.installed(functools.partial(
                self.kind, durable=durable)))
            with self.engine(server.url('one')).connect() as connection:
                self.assertEqual(flushes, connection.scalar(sa.text(
                    'SELECT @@innodb_flush_log_at_trx_commit')))


@profile.by_default(
    'test_killed_tests_leave_no_servers',
    reason='other ends of a run; one that is killed cleans up nothing itself')
class TestEnd(base.TestCase):
    """Nothing is left, however the end comes."""

    def test_failed_tests_leave_no_servers(self):
        output = self.run_command(
            *self.script('raise Exception', servers.PostgreSQL),
            env=ALONE, expected=1)

        self.assert_gone(output)

    def test_interrupted_tests_leave_no_servers(self):
        self.assert_no_servers_after(signal.SIGINT, servers.PostgreSQL)

    def test_terminated_tests_leave_no_servers(self):
        self.assert_no_servers_after(signal.SIGTERM, servers.PostgreSQL)

    def test_killed_tests_leave_no_servers(self):
        self.assert_no_servers_after(
            signal.SIGKILL, *KINDS)

    def script(
        self, end: str, *kinds: type[serving.SharedServer]
    ) -> list[str]:
        """Return a command that starts servers, says where, and ends."""
        lines = ['import signal', 'from tests.integration import mariadb',
                 'from tests.integration import servers']
        for kind in kinds:
            # What cannot be had here fails in this process already.
            self.part_of(kind)
            module = kind.__module__.rpartition('.')[2]
            lines.append(
                f'server = servers.shared({module}.{kind.__name__})')
            lines.append('print("directory:", server.directory)')
        lines += ['print("all of them run", flush=True)', end]
        return [sys.executable, '-c', '\n'.join(lines)]

    def assert_no_servers_after(
        self, number: signal.Signals, *kinds: type[serving.SharedServer]
    ) -> None:
        tests = self.process(
            self.script('signal.pause()', *kinds), name='tests',
            env=ALONE, ready='all of them run',
            stop_signal=number)
        output = tests.output()

        tests.stop()

        self.assert_gone(output)

    def assert_gone(self, output: str) -> None:
        directories = [pathlib.Path(path) for path in re.findall(
            '^directory: (.+)$', output, re.MULTILINE)]
        self.assertNotEqual([], directories)
        for directory in directories:
            processes.wait_until(
                lambda: not directory.exists(), f'{directory} to go')
            self.assertEqual([], processes.inside(directory))


class TestNotInstalled(testtools.TestCase):

    def test_test_is_skipped_and_names_the_package(self):
        self.useFixture(fixtures.EnvironmentVariable(VARIABLE))

        for kind in KINDS:
            result = self.run_without(kind)

            self.assertTrue(result.wasSuccessful())
            [reason] = result.skip_reasons
            self.assertThat(reason, matchers.EndsWith(
                f'the Debian package {kind.package}'))

    def test_missing_required_server_fails_the_test(self):
        self.useFixture(fixtures.EnvironmentVariable(VARIABLE, '1'))

        for kind in KINDS:
            result = self.run_without(kind)

            self.assertEqual({}, result.skip_reasons)
            [(_, text)] = result.failures
            self.assertIn(f'the Debian package {kind.package}', text)

    def run_without(
        self, kind: type[serving.SharedServer]
    ) -> testtools.TestResult:
        """Run a test on a machine that has nothing in its path."""
        class Test(base.TestCase):
            def test(self):
                self.own(kind, search_path=[])

        result = testtools.TestResult()
        Test('test').run(result)
        return result


def _listening(server: serving.SharedServer) -> set[tuple[str, int]]:
    """Return where the processes of a server listen."""
    sockets = set()
    for pid in processes.inside(server.directory):
        # Others use the server, whose processes and sockets come and go.
        with contextlib.suppress(FileNotFoundError):
            for link in pathlib.Path(f'/proc/{pid}/fd').iterdir():
                with contextlib.suppress(FileNotFoundError):
                    sockets.add(link.readlink().name)
    found = set()
    for table in ('tcp', 'tcp6'):
        lines = pathlib.Path('/proc/net', table).read_text().splitlines()
        for line in lines[1:]:
            words = line.split()
            if words[3] == LISTEN and f'socket:[{words[9]}]' in sockets:
                address, _, port = words[1].partition(':')
                found.add((address, int(port, 16)))
    return found
