# SPDX-License-Identifier: Apache-2.0
"""The servers that the peers need: PostgreSQL and Placement.

Both listen on free ports of the loopback interface and store their data in a
temporary directory. They are stopped by the ids of their processes.
"""

import contextlib
import importlib.metadata
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import sqlalchemy

ADDRESS = '127.0.0.1'

#: By default a commit waits for the disk.
SETTINGS = {
    'listen_addresses': ADDRESS,
    'unix_socket_directories': '',
    'max_connections': '600',
}

#: Processes and threads of Placement, enough to use a small machine fully.
WORKERS, THREADS = 2, 8

PLACEMENT_CONFIGURATION = """\
[api]
auth_strategy = noauth2
[placement_database]
connection = {url}
max_pool_size = 20
max_overflow = 40
"""


class Server:
    """A process of this benchmark with its own log."""

    def start(self, args, directory, stop_signal, env=None):
        self.log = directory / 'log'
        self._stop_signal = stop_signal
        with open(self.log, 'ab') as log:
            self._process = subprocess.Popen(
                args, cwd=directory, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env={**os.environ, **(env or {})})

    def wait(self, is_ready, timeout_s=120):
        """Wait until the server is ready; stop it if it does not start."""
        deadline = time.monotonic() + timeout_s
        try:
            while not is_ready():
                if (self._process.poll() is not None
                        or time.monotonic() > deadline):
                    raise RuntimeError(
                        f'{type(self).__name__} does not start: '
                        + self.log.read_text(errors='replace')[-4000:])
                time.sleep(0.05)
        except BaseException:
            self.stop()
            raise

    def stop(self):
        self._process.send_signal(self._stop_signal)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class PostgreSQL(Server):

    def __init__(self, directory):
        programs = {name: find(name) for name in ('postgres', 'initdb')}
        directory.mkdir()
        as_user = []
        if os.geteuid() == 0:
            # PostgreSQL refuses to run as root.
            as_user = ['setpriv', '--reuid=postgres', '--regid=postgres',
                       '--clear-groups']
            shutil.chown(directory, 'postgres', 'postgres')
        data = directory / 'data'
        subprocess.run(
            [*as_user, programs['initdb'], '--pgdata', data, '--auth',
             'trust', '--username', 'postgres', '--encoding', 'UTF8',
             '--no-locale', '--no-sync'],
            cwd=directory, check=True, stdout=subprocess.DEVNULL)
        self._port = free_port()
        settings = {**SETTINGS, 'port': self._port}
        self.start(
            [*as_user, programs['postgres'], '-D', data,
             *(word for name, value in settings.items()
               for word in ('-c', f'{name}={value}'))],
            directory, signal.SIGINT)
        self.wait(lambda: 'ready to accept connections'
                  in self.log.read_text(errors='replace'))
        self._engine = engine(self.url('postgres'))

    def url(self, name):
        return (f'postgresql+psycopg2://postgres@{ADDRESS}:{self._port}/'
                f'{name}')

    def version(self):
        with self._engine.connect() as connection:
            [text] = connection.execute(sqlalchemy.text(
                'SHOW server_version')).one()
        return f'PostgreSQL {text.partition(" ")[0]}'

    def create(self, name, template='template0'):
        """Create a database, and return its URL."""
        with self._engine.connect() as connection:
            connection.execution_options(isolation_level='AUTOCOMMIT')
            connection.execute(sqlalchemy.text(
                f'CREATE DATABASE "{name}" TEMPLATE "{template}"'))
        return self.url(name)


class Placement(Server):
    """Placement behind a server that keeps connections open.

    :param workers: the number of processes, each with ``threads`` threads
    :param options: further text of its configuration
    """

    def __init__(self, directory, database, workers, threads, options):
        directory.mkdir()
        file = directory / 'placement.conf'
        file.write_text(
            PLACEMENT_CONFIGURATION.format(url=database) + options)
        # If several processes create the tables at the same time, some fail.
        subprocess.run(
            [pathlib.Path(sys.executable).with_name('placement-manage'),
             '--config-file', file, 'db', 'sync'], check=True)
        port = free_port()
        self.url = f'http://{ADDRESS}:{port}'
        self.start(
            [sys.executable, '-m', 'gunicorn', 'placement.wsgi.api',
             '--bind', f'{ADDRESS}:{port}', '--worker-class', 'gthread',
             '--workers', str(workers), '--threads', str(threads),
             '--keep-alive', '600', '--timeout', '600'],
            directory, signal.SIGTERM,
            env={'OS_PLACEMENT_CONFIG_DIR': str(directory)})
        self.wait(self._answers)

    @staticmethod
    def version():
        found = importlib.metadata.version('openstack-placement')
        return f'Placement {found}'

    def create(self, kind, name):
        """Create a custom resource class or trait."""
        urllib.request.urlopen(urllib.request.Request(
            f'{self.url}/{kind}/{name}', method='PUT', headers={
                'X-Auth-Token': 'admin',
                'OpenStack-API-Version': 'placement 1.39'},
        ), timeout=60).close()

    def _answers(self):
        try:
            urllib.request.urlopen(self.url, timeout=60).close()
        except (urllib.error.URLError, ConnectionError):
            return False
        return True


@contextlib.contextmanager
def postgresql():
    """Run PostgreSQL, and stop it at the end or after SIGTERM.

    It sets a signal handler, so it works only in the main thread.

    :returns: a temporary directory, and the server
    """
    with contextlib.ExitStack() as stack:
        # On SIGTERM, exit by an exception, so that the servers are stopped.
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        stack.callback(signal.signal, signal.SIGTERM, before)
        directory = pathlib.Path(stack.enter_context(
            tempfile.TemporaryDirectory()))
        # The user who runs PostgreSQL needs access to its directory.
        directory.chmod(0o755)
        server = PostgreSQL(directory / 'postgres')
        stack.callback(server.stop)
        yield directory, server


@contextlib.contextmanager
def placement(workers=WORKERS, threads=THREADS, options=''):
    """Run Placement over PostgreSQL, like :func:`postgresql`.

    :returns: a temporary directory, PostgreSQL, and Placement
    """
    with postgresql() as (directory, postgres):
        server = Placement(
            directory / 'placement', postgres.create('placement'), workers,
            threads, options)
        try:
            yield directory, postgres, server
        finally:
            server.stop()


def find(program):
    places = sorted(pathlib.Path('/usr/lib/postgresql').glob('*/bin'),
                    key=lambda place: place.parent.name.zfill(8),
                    reverse=True)
    path = os.pathsep.join([*map(str, places), *os.get_exec_path()])
    found = shutil.which(program, path=path)
    if found is None:
        raise FileNotFoundError(f'{program} of PostgreSQL is not installed')
    return found


def engine(url):
    """Return an engine that keeps no connection open."""
    return sqlalchemy.create_engine(url, poolclass=sqlalchemy.pool.NullPool)


def free_port():
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        return probe.getsockname()[1]
