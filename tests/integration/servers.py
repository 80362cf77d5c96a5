# SPDX-License-Identifier: Apache-2.0
"""Real servers, each started for the tests and gone with them.

They listen on free ports of the loopback interface and keep everything in a
directory of their own, so that they never meet a server that happens to run.
"""

import atexit
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import functools
import os
import pathlib
import re
import secrets
import shutil
import signal
import subprocess
from typing import Any
from typing import TypeVar
from urllib import parse

import fixtures
import psycopg2
import psycopg2.errors
import psycopg2.sql

from tests.integration import processes
from tests.integration import serving
from tests.integration import sharing


class RabbitMQ(serving.SharedServer):
    """A broker; its parts are virtual hosts, open to the user ``guest``."""

    package = 'rabbitmq-server'
    programs = ('rabbitmq-server', 'epmd', 'erl', 'erl_call')
    ports = ('amqp', 'distribution', 'epmd')
    port_taken = 'eaddrinuse'

    @classmethod
    def usual_places(cls) -> list[str]:
        # What Debian has in the path is a wrapper that runs the server as a
        # user of its own, in a directory of that user's.
        return ['/usr/lib/rabbitmq/bin']

    def prepare(self) -> None:
        cookie = self._cookie_file()
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o400)
        (self.directory / 'rabbitmq.conf').write_text(
            'disk_free_limit.absolute = 1MB\n')
        (self.directory / 'enabled_plugins').write_text('[].\n')
        (self.directory / 'env.conf').touch()
        self._link_libraries()

    def make_processes(self) -> list[processes.Process]:
        env = self._environment()
        return [
            processes.Process(
                [self.program['epmd'], '-address', serving.ADDRESS,
                 '-port', str(self.port['epmd'])],
                self.directory, env=env, ready=self._has_epmd),
            processes.Process(
                [self.program['rabbitmq-server']], self.directory, env=env,
                ready='Server startup complete'),
        ]

    def url(self, name: str) -> str:
        self._evaluate(f"""
            ok = rabbit_vhost:add(<<"{name}">>, <<"tests">>),
            ok = rabbit_auth_backend_internal:set_permissions(
                <<"guest">>, <<"{name}">>, <<".*">>, <<".*">>, <<".*">>,
                <<"tests">>).
        """)
        return (f'rabbit://guest:guest@{serving.ADDRESS}:{self.port["amqp"]}/'
                f'{parse.quote(name, safe="")}')

    def drop(self, name: str) -> None:
        self._evaluate(f"""
            case rabbit_vhost:exists(<<"{name}">>) of
                true -> ok = rabbit_vhost:delete(<<"{name}">>, <<"tests">>);
                false -> ok
            end.
        """)

    def add_user(self, name: str, password: str, *parts: str) -> None:
        """Add a user, and open parts to it."""
        user, secret = _erlang(name), _erlang(password)
        self._evaluate(f"""
            ok = rabbit_auth_backend_internal:add_user(
                {user}, {secret}, <<"tests">>).
        """)
        for part in parts:
            self._evaluate(f"""
                ok = rabbit_auth_backend_internal:set_permissions(
                    {user}, {_erlang(part)}, <<".*">>, <<".*">>, <<".*">>,
                    <<"tests">>).
            """)

    def import_definitions(self, path: pathlib.Path) -> None:
        """Import users, virtual hosts and permissions from a file."""
        self._evaluate(f"""
            {{ok, Text}} = file:read_file({_erlang(str(path))}),
            ok = rabbit_definitions:import_raw(Text).
        """)

    def set_full(self, full: bool) -> None:
        """Have the broker take no messages, as one that has no memory left.

        Who sends one waits until it is set back.
        """
        self._evaluate(f"""
            ok = vm_memory_monitor:set_vm_memory_high_watermark(
                {1e-9 if full else 0.4:.10f}),
            ok.
        """)

    def check_queue(self, name: str, queue: str, quorum: bool) -> None:
        """Make sure that a part has a queue, of this kind.

        :param quorum: whether it is a quorum queue, or else a classic one
        """
        kind = 'rabbit_quorum_queue' if quorum else 'rabbit_classic_queue'
        self._evaluate(f"""
            {{ok, Queue}} = rabbit_amqqueue:lookup(rabbit_misc:r(
                <<"{name}">>, queue, <<"{queue}">>)),
            {kind} = amqqueue:get_type(Queue),
            ok.
        """)

    def _cookie_file(self) -> pathlib.Path:
        return self.directory / '.erlang.cookie'

    def _environment(self) -> dict[str, str]:
        """Return settings that keep the broker out of the system's files.

        Variables of the same kind that are set around here are made void.
        """
        directory = self.directory
        void = {name: '' for name in os.environ
                if name.startswith(('RABBITMQ_', 'ERL_'))}
        return {
            **void,
            'HOME': str(directory),
            'ERL_EPMD_ADDRESS': serving.ADDRESS,
            'ERL_EPMD_PORT': str(self.port['epmd']),
            'RABBITMQ_ADVANCED_CONFIG_FILE': f'{directory}/advanced.config',
            'RABBITMQ_CONFIG_FILE': f'{directory}/rabbitmq.conf',
            'RABBITMQ_CONFIG_FILES': f'{directory}/conf.d',
            'RABBITMQ_CONF_ENV_FILE': f'{directory}/env.conf',
            'RABBITMQ_DIST_PORT': str(self.port['distribution']),
            'RABBITMQ_ENABLED_PLUGINS_FILE': f'{directory}/enabled_plugins',
            'RABBITMQ_LOGS': '-',
            'RABBITMQ_LOG_BASE': f'{directory}/log',
            'RABBITMQ_MNESIA_BASE': f'{directory}/mnesia',
            'RABBITMQ_NODENAME': 'cellsched@localhost',
            'RABBITMQ_NODE_IP_ADDRESS': serving.ADDRESS,
            'RABBITMQ_NODE_PORT': str(self.port['amqp']),
            'RABBITMQ_PID_FILE': f'{directory}/pid',
            'RABBITMQ_PLUGINS_DIR': f'{directory}/plugins',
            'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS':
                '-kernel inet_dist_use_interface {127,0,0,1}',
        }

    def _link_libraries(self) -> None:
        """Give the broker its libraries without its plug-ins.

        It reads the code of all that it finds beside it, enabled or not,
        which is a third of the time that it takes to start.
        """
        server = pathlib.Path(self.program['rabbitmq-server']).resolve()
        plugins = self.directory / 'plugins'
        plugins.mkdir()
        for library in (server.parent.parent / 'plugins').iterdir():
            if (not library.name.startswith('rabbitmq_')
                    or library.name.startswith('rabbitmq_prelaunch')):
                (plugins / library.name).symlink_to(library)

    def _has_epmd(self) -> bool:
        return serving.is_open(self._address(), self.port['epmd'])

    def _address(self) -> str:
        """Return the address that other Erlang nodes connect to."""
        return serving.ADDRESS

    def counts(self) -> dict[str, int]:
        """Return the number of connections, channels and queues."""
        found = self._value("""
            {length(rabbit_networking:connections()),
             length(rabbit_channel:list()), rabbit_amqqueue:count()}.
        """)
        numbers = map(int, re.findall(r'\d+', found))
        return dict(zip(('connections', 'channels', 'queues'), numbers,
                        strict=True))

    def count_queues(self, name: str) -> int:
        """Return the number of queues of a part."""
        return int(self._value(
            f'length(rabbit_amqqueue:list({_erlang(name)})).\n'))

    def _evaluate(self, expressions: str) -> None:
        """Have the broker evaluate Erlang that ends with ``ok``."""
        value = self._value(expressions)
        if value != 'ok':
            raise RuntimeError(f'the broker says {value} to {expressions}')

    def _value(self, expressions: str) -> str:
        """Return what the broker evaluates Erlang to.

        That takes milliseconds, where rabbitmqctl takes half a second.
        """
        # The names of its own choice are the same within a second, and the
        # broker refuses a second node of a name.
        name = f'tests{secrets.token_hex(8)}'
        ended = subprocess.run(
            [self.program['erl_call'], '-c',
             self._cookie_file().read_text(), '-h', name, '-address',
             f'{self._address()}:{self.port["distribution"]}', '-e'],
            input=expressions, capture_output=True, text=True, timeout=300)
        found = re.fullmatch(r'\{ok, (.*)\}', ended.stdout.strip(), re.DOTALL)
        if found is None:
            raise RuntimeError(
                f'the broker says {ended.stdout}{ended.stderr} to '
                f'{expressions}')
        return found[1]


class PostgreSQL(serving.SharedServer):
    """A database server; its parts are databases.

    URLs are of the driver that ``CELLSCHED_POSTGRESQL_DRIVER`` names.

    :param durable: whether a commit waits for the disk, as it does by
        default elsewhere; if not, it waits for the system to take what is
        committed, so that only the machine's end could lose that
    :param connections: maximum number of connections
    """

    package = 'postgresql'
    programs = ('postgres', 'initdb')
    ports = ('sql',)
    port_taken = 'Address already in use'

    def __init__(
        self, search_path: Sequence[str] | None = None, durable: bool = False,
        connections: int = 500,
    ) -> None:
        super().__init__(search_path)
        self._durable = durable
        self._connections = connections

    @classmethod
    def usual_places(cls) -> list[str]:
        places = pathlib.Path('/usr/lib/postgresql').glob('*/bin')
        return [str(place) for place in sorted(
            places, key=lambda place: _number(place.parent.name),
            reverse=True)]

    def prepare(self) -> None:
        if os.geteuid() == 0:
            shutil.chown(self.directory, 'postgres', 'postgres')
        processes.run(
            [*processes.as_user('postgres'), self.program['initdb'],
             '--pgdata', f'{self.directory}/data', '--auth', 'trust',
             '--username', 'postgres', '--encoding', 'UTF8', '--no-locale',
             '--no-sync'],
            self.directory)

    def make_processes(self) -> list[processes.Process]:
        settings = {
            'listen_addresses': serving.ADDRESS,
            'port': str(self.port['sql']),
            'unix_socket_directories': '',
            'fsync': 'on' if self._durable else 'off',
            'full_page_writes': 'on' if self._durable else 'off',
            'max_connections': str(self._connections),
        }
        return [Postgres(
            [*processes.as_user('postgres'), self.program['postgres'],
             '-D', f'{self.directory}/data',
             *(word for name, value in settings.items()
               for word in ('-c', f'{name}={value}'))],
            self.directory, name='postgres', stop_signal=signal.SIGINT,
            ready='database system is ready to accept connections')]

    def url(self, name: str) -> str:
        try:
            self.execute('CREATE DATABASE {}', name)
        except psycopg2.errors.DuplicateDatabase:
            # It was made when its URL was asked for first.
            pass
        driver = os.environ.get('CELLSCHED_POSTGRESQL_DRIVER') or 'psycopg2'
        return (f'postgresql+{driver}://postgres:postgres@{serving.ADDRESS}:'
                f'{self.port["sql"]}/{parse.quote(name, safe="")}')

    def drop(self, name: str) -> None:
        self.execute('DROP DATABASE IF EXISTS {} WITH (FORCE)', name)

    def execute(self, statement: str, *names: str) -> None:
        """Execute a statement of an administrator.

        :param names: what its braces stand for
        """
        connection = psycopg2.connect(
            host=serving.ADDRESS, port=self.port['sql'], user='postgres',
            dbname='postgres')
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(psycopg2.sql.SQL(statement).format(
                    *map(psycopg2.sql.Identifier, names)))
        finally:
            connection.close()


def by_psycopg(url: str) -> str:
    """Return the URL of a database on PostgreSQL, by psycopg 3."""
    return re.sub(r'^postgresql(\+\w+)?:', 'postgresql+psycopg:', url)


class Postgres(processes.Process):
    """The process of a database server, which cannot be killed outright.

    It would leave its shared memory behind. The signal makes it break off as
    well: it writes nothing more, and recovers when it starts again.
    """

    def kill(self) -> None:
        if self.running:
            os.kill(self.pid, signal.SIGQUIT)
            self._wait(lambda: not self.running, 'it to stop',
                       self._stop_timeout_s)
        super().kill()


class Part(fixtures.Fixture):
    """A test's part of a server that it shares with other tests.

    Names are the test's own, and what has them goes with the test.
    """

    def __init__(self, server: serving.SharedServer) -> None:
        self.server = server

    def _setUp(self) -> None:
        self._prefix = f'test_{secrets.token_hex(4)}_'

    def url(self, name: str) -> str:
        """Return the URL of a part, which is made if it is not there."""
        self.addCleanup(self.server.drop, self._prefix + name)
        return self.server.url(self._prefix + name)


AnyServer = TypeVar('AnyServer', bound=serving.SharedServer)


@contextlib.contextmanager
def part_of(
    kind: type[serving.SharedServer], **options: Any
) -> Iterator[Part]:
    """Use a part of a server that is there for nothing else.

    Where tests run what needs it, they have it use the server that they
    share: they do not measure.

    :param options: of a server of its own
    """
    with contextlib.ExitStack() as stack:
        if os.environ.get(sharing.VARIABLE):
            server = shared(kind)
        else:
            server = stack.enter_context(kind(**options))
        yield stack.enter_context(Part(server))


def shared(kind: type[AnyServer]) -> AnyServer:
    """Return the server that tests share, which starts when it is first used.

    All processes share it where something shares servers with them, see
    :mod:`tests.integration.sharing`; otherwise it is this process's own. Who
    stops or kills a server needs one of its own.

    :raises serving.NotInstalled: there is none on this machine
    """
    return _shared(kind)  # type: ignore[return-value]


@functools.cache
def _shared(kind: type[serving.SharedServer]) -> serving.SharedServer:
    path = os.environ.get(sharing.VARIABLE)
    if path:
        return sharing.attached(kind, path)
    server = kind()
    server.setUp()
    atexit.register(_throw_away, server, os.getpid())
    return server


def _throw_away(server: serving.SharedServer, owner: int) -> None:
    """End a server for good, without the courtesies of a shutdown.

    A fork of the process that started it must leave it alone.
    """
    if os.getpid() == owner:
        server.kill()
        server.cleanUp()


def _erlang(text: str) -> str:
    """Return a text as Erlang writes it, whatever characters it has."""
    return f'<<{",".join(map(str, text.encode()))}>>'


def _number(version: str) -> float:
    """Return a version as a number, to sort by."""
    try:
        return float(version)
    except ValueError:
        return 0.0
