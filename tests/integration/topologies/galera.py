# SPDX-License-Identifier: Apache-2.0
"""MariaDB and Galera, configured as the page shows."""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import os
import re
import shutil
import signal
from typing import Any

import pymysql

from tests.integration import processes
from tests.integration import serving
from tests.integration.topologies import example

CHECK = '/usr/local/bin/galera-check'
CHECK_ACCOUNT = '/etc/mysql/galera-check.cnf'
SOCKET = '/etc/systemd/system/galera-check.socket'


class MariaDB(serving.Server):
    """A server that is configured as a section of the page shows.

    :ivar nodes: the processes of all servers
    """

    package = 'mariadb-server'
    programs: tuple[str, ...] = ('mariadbd', 'mariadb-install-db')
    ports = ()
    port_taken = 'not a port of these machines'

    machines: tuple[str, ...] = ('10.0.0.11',)
    configuration = '/etc/mysql/mariadb.conf.d/60-cellsched.cnf'
    ready = 'ready for connections'

    def __init__(self, page: example.Example) -> None:
        super().__init__()
        self._page = page
        self._is_new = True

    @classmethod
    def usual_places(cls) -> list[str]:
        return ['/usr/sbin']

    def prepare(self) -> None:
        for machine in self.machines:
            (self.directory / machine / 'data').mkdir(parents=True)
            self._page.write(
                self.configuration, machine, self.machines[0])
        # Other nodes copy the data of the first one.
        processes.run(
            [self.program['mariadb-install-db'], '--no-defaults',
             '--skip-test-db', '--auth-root-authentication-method=normal',
             f'--datadir={self.directory / self.machines[0]}/data',
             *(['--user=root'] if os.geteuid() == 0 else [])],
            self.directory)
        if os.geteuid() == 0:
            for path in [self.directory, *self.directory.rglob('*')]:
                shutil.chown(path, 'mysql', 'mysql')

    def make_processes(self) -> list[processes.Process]:
        self.nodes = [self._node(machine) for machine in self.machines]
        return [*self.nodes]

    def start(self) -> None:
        super().start()
        if self._is_new:
            self._is_new = False
            for statement in self._page.statements('accounts'):
                self.execute(0, statement)

    def create(self, name: str) -> None:
        """Create a database."""
        self.execute(0, f'CREATE DATABASE IF NOT EXISTS `{name}`')

    def execute(self, number: int, statement: str) -> Sequence[tuple[Any]]:
        """Execute a statement on a node as its administrator."""
        with contextlib.closing(self.connect(number)) as connection:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetchall()

    def connect(self, number: int) -> Any:
        """Return a connection to a node as its administrator."""
        return pymysql.connect(
            unix_socket=f'{self.directory / self.machines[number]}/socket',
            user='root', autocommit=True)

    def _node(self, machine: str) -> processes.Process:
        own = self.directory / machine
        return processes.Process(
            [*processes.as_user('mysql'), self.program['mariadbd'],
             '--defaults-file='
             f'{self._page.path(self.configuration, machine)}',
             f'--datadir={own}/data', f'--tmpdir={own}',
             f'--socket={own}/socket', f'--pid-file={own}/pid'],
            self.directory, name=f'mariadbd-{machine}',
            ready=self.ready)


class Galera(MariaDB):
    """A cluster of three nodes, and the check of their state."""

    package = 'mariadb-server galera-4 rsync'
    programs = (*MariaDB.programs, 'mariadb', 'rsync',
                'systemd-socket-activate')

    machines = ('10.0.0.11', '10.0.0.12', '10.0.0.13')
    configuration = '/etc/mysql/mariadb.conf.d/60-galera.cnf'
    ready = 'Synchronized with group, ready for connections'

    def prepare(self) -> None:
        super().prepare()
        for machine in self.machines:
            for path in CHECK, CHECK_ACCOUNT:
                self._page.write(path, machine, self.machines[0])

    def make_processes(self) -> list[processes.Process]:
        return [*super().make_processes(), *map(self._check, self.machines)]

    def start(self) -> None:
        # The first node makes the cluster once.
        bootstrap = '--wsrep-new-cluster'
        if self._is_new:
            self.nodes[0].args.append(bootstrap)
        super().start()
        if bootstrap in self.nodes[0].args:
            self.nodes[0].args.remove(bootstrap)

    def isolate(self, number: int, isolated: bool) -> None:
        """Cut a node off from the others, or let it join them again."""
        self.execute(number, 'SET GLOBAL wsrep_provider_options = '
                             f"'gmcast.isolate={int(isolated)}'")
        if not isolated:
            self.wait_for(number)

    @contextlib.contextmanager
    def lagging(self, number: int) -> Iterator[None]:
        """Keep a node from applying what the first one commits."""
        self.execute(0, 'CREATE TABLE IF NOT EXISTS cellsched_lag.locked '
                        '(id INT AUTO_INCREMENT PRIMARY KEY)')
        with contextlib.closing(self.connect(number)) as connection:
            with connection.cursor() as cursor:
                cursor.execute(
                    'SET STATEMENT wsrep_sync_wait = 1 FOR SELECT 1')
                cursor.execute('LOCK TABLES cellsched_lag.locked READ')
            # All later transactions wait for this one.
            self.execute(0, 'INSERT INTO cellsched_lag.locked VALUES ()')
            yield

    def set_read_only(self, number: int, read_only: bool) -> None:
        """Have a node go on as a reader, or write again."""
        self.execute(number, f'SET GLOBAL read_only = {int(read_only)}')

    def wait_for(self, number: int) -> None:
        """Wait until a node has all that the others have."""
        processes.wait_until(
            lambda: dict(self.execute(
                number, "SHOW STATUS LIKE 'wsrep_local_state'"
            )) == {'wsrep_local_state': '4'}, f'node {number} to be synced')

    def _check(self, machine: str) -> processes.Process:
        """Return what the units of the page start."""
        unit = self._page.write(SOCKET, machine, self.machines[0])
        [listen] = re.findall('ListenStream=(.*)', unit.read_text())
        return processes.Process(
            [self.program['systemd-socket-activate'], '--accept', '--inetd',
             f'--listen={listen}', 'sh',
             str(self._page.path(CHECK, machine))],
            self.directory, name=f'check-{machine}',
            stop_signal=signal.SIGTERM)
