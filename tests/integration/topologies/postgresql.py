# SPDX-License-Identifier: Apache-2.0
"""A primary of PostgreSQL with a streaming standby."""

from collections.abc import Sequence
import contextlib
import os
import shlex
import shutil
import signal
from typing import Any

import psycopg2
import psycopg2.errors

from tests.integration import processes
from tests.integration import servers
from tests.integration import serving
from tests.integration.topologies import example

CONFIGURATION = '/etc/postgresql/15/main/conf.d/cellsched.conf'
ACCESS = '/etc/postgresql/15/main/pg_hba.conf'


class Pair(serving.Server):
    """Two servers that are configured as a section of the page shows.

    :ivar nodes: the processes of the servers
    :ivar primary: the number of the one that writes
    """

    package = 'postgresql'
    programs = ('postgres', 'initdb', 'pg_basebackup')
    ports = ()
    port_taken = 'not a port of these machines'

    machines: tuple[str, ...] = ('10.0.0.11', '10.0.0.12')

    def __init__(self, page: example.Example) -> None:
        super().__init__()
        self._page = page
        self.primary = 0
        self._is_new = True

    @classmethod
    def usual_places(cls) -> list[str]:
        return servers.PostgreSQL.usual_places()

    def prepare(self) -> None:
        for machine in self.machines:
            (self.directory / machine).mkdir()
            self._page.write(CONFIGURATION, machine, self.machines[0])
            path = self._page.write(ACCESS, machine)
            # The tests are an administrator.
            path.write_text('local all postgres trust\n' + path.read_text())
        self._give_away()
        self._run(0, [self.program['initdb'], f'--pgdata={self._data(0)}',
                      '--auth=trust', '--username=postgres',
                      '--encoding=UTF8', '--no-locale', '--no-sync'])

    def make_processes(self) -> list[processes.Process]:
        self.nodes = [self._node(number)
                      for number in range(len(self.machines))]
        return [*self.nodes]

    def start(self) -> None:
        self.nodes[self.primary].start()
        if self._is_new:
            self._is_new = False
            for statement in self._page.statements('roles'):
                self.execute(0, statement)
            for number in range(1, len(self.machines)):
                self.copy(number)

    def copy(self, number: int) -> None:
        """Make a server a standby of the primary, and start it."""
        self.nodes[number].kill()
        shutil.rmtree(self._data(number), ignore_errors=True)
        [(command, _)] = self._page.block('standby').commands()
        command = self._page.localize(
            command.replace(self.machines[0], self.machines[self.primary]),
            self.machines[number])
        program, *args = shlex.split(command)
        self._run(number, [self.program[program], *(
            f'--pgdata={self._data(number)}' if each.startswith('--pgdata')
            else each for each in args)])
        self.nodes[number].start()

    def create(self, name: str) -> None:
        """Create a database."""
        with contextlib.suppress(psycopg2.errors.DuplicateDatabase):
            self.execute(self.primary,
                         f'CREATE DATABASE "{name}" OWNER cellsched')

    def execute(
        self, number: int, statement: str
    ) -> Sequence[tuple[Any, ...]]:
        """Execute a statement on a server as its administrator."""
        with contextlib.closing(psycopg2.connect(
                host=str(self.directory / self.machines[number]),
                user='postgres', dbname='postgres')) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetchall() if cursor.description else []

    def follow(self, caption: str, number: int) -> None:
        """Execute the statements of a block on a server."""
        for statement in self._page.statements(caption):
            self.execute(number, statement)

    def fail_over(self) -> None:
        """Promote the standby."""
        self.primary = 1 - self.primary
        self.follow('failover', self.primary)

    def cut_off(self) -> None:
        """Have the standby receive nothing more."""
        standby = 1 - self.primary
        for statement in ("ALTER SYSTEM SET primary_conninfo = ''",
                          'SELECT pg_reload_conf()'):
            self.execute(standby, statement)
        processes.wait_until(
            lambda: not self.execute(
                standby, 'SELECT pid FROM pg_stat_wal_receiver'),
            'the standby to stop receiving')

    def wait_for_standby(self) -> None:
        """Wait until the standby has all that the primary has."""
        [(place,)] = self.execute(self.primary, 'SELECT pg_current_wal_lsn()')
        processes.wait_until(
            lambda: self.execute(
                1 - self.primary,
                f"SELECT pg_last_wal_replay_lsn() >= '{place}'") == [(True,)],
            'the standby to have everything')

    def _node(self, number: int) -> processes.Process:
        machine = self.machines[number]
        settings = {
            'config_file': self._page.path(CONFIGURATION, machine),
            'hba_file': self._page.path(ACCESS, machine),
            'unix_socket_directories': self.directory / machine}
        return servers.Postgres(
            [*processes.as_user('postgres'), self.program['postgres'],
             '-D', str(self._data(number)),
             *(word for name, value in settings.items()
               for word in ('-c', f'{name}={value}'))],
            self.directory, name=f'postgres-{machine}',
            stop_signal=signal.SIGINT,
            ready='database system is ready to accept')

    def _data(self, number: int) -> Any:
        return self.directory / self.machines[number] / 'data'

    def _run(self, number: int, args: Sequence[str]) -> None:
        processes.run([*processes.as_user('postgres'), *args],
                      self.directory / self.machines[number])

    def _give_away(self) -> None:
        if os.geteuid() == 0:
            for path in [self.directory, *self.directory.iterdir()]:
                shutil.chown(path, 'postgres', 'postgres')
