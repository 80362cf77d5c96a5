# SPDX-License-Identifier: Apache-2.0
"""A real MariaDB that is started for the tests and removed with them."""

from collections.abc import Mapping
from collections.abc import Sequence
import os
from typing import Any
from urllib import parse

import pymysql

from tests.integration import processes
from tests.integration import serving


class MariaDB(serving.SharedServer):
    """A database server; each part is a database.

    A commit does not wait for the disk, but for the operating system, so only
    a crash of the machine could lose it.

    :param durable: wait for the disk with each commit
    """

    package = 'mariadb-server'
    programs = ('mariadbd', 'mariadb-install-db')
    ports = ('sql',)
    port_taken = "Can't start server: Bind on TCP/IP port"

    #: The account that tests use. Its password is one that logs must not show.
    user = password = 'mariadb'

    def __init__(
        self, search_path: Sequence[str] | None = None, *,
        durable: bool = False,
    ) -> None:
        super().__init__(search_path)
        self._durable = durable

    @classmethod
    def usual_places(cls) -> list[str]:
        # Debian has the server where only root's path leads.
        return ['/usr/sbin']

    def prepare(self) -> None:
        (self.directory / 'account.sql').write_text(
            f"CREATE USER IF NOT EXISTS '{self.user}'@'{serving.ADDRESS}' "
            f"IDENTIFIED BY '{self.password}';\n"
            f"GRANT ALL ON *.* TO '{self.user}'@'{serving.ADDRESS}' "
            'WITH GRANT OPTION;\n')
        processes.run(
            [self.program['mariadb-install-db'], '--no-defaults',
             '--skip-test-db', '--auth-root-authentication-method=normal',
             *_arguments(self._settings())],
            self.directory)

    def make_processes(self) -> list[processes.Process]:
        settings = {
            **self._settings(),
            'bind-address': serving.ADDRESS,
            'port': str(self.port['sql']),
            'socket': f'{self.directory}/socket',
            'pid-file': f'{self.directory}/pid',
            'init-file': f'{self.directory}/account.sql',
            'skip-name-resolve': 'ON',
            'max-connections': '300',
        }
        return [processes.Process(
            [self.program['mariadbd'], '--no-defaults',
             *_arguments(settings)],
            self.directory, name='mariadbd', ready='ready for connections')]

    def url(self, name: str) -> str:
        self.execute(f'CREATE DATABASE IF NOT EXISTS {_quoted(name)}')
        return (f'mysql+pymysql://{self.user}:{self.password}@'
                f'{serving.ADDRESS}:{self.port["sql"]}/'
                f'{parse.quote(name, safe="")}')

    def drop(self, name: str) -> None:
        # It would wait for transactions of those who are still connected.
        for process, in self.execute(
                'SELECT id FROM information_schema.processlist WHERE db = %s',
                name):
            try:
                self.execute('KILL %s', process)
            except pymysql.err.OperationalError as exc:
                if exc.args[0] != pymysql.constants.ER.NO_SUCH_THREAD:
                    raise
        self.execute(f'DROP DATABASE IF EXISTS {_quoted(name)}')

    def execute(
        self, statement: str, *args: Any
    ) -> Sequence[tuple[Any, ...]]:
        """Execute a statement as the administrator; return its rows."""
        connection = pymysql.connect(
            host=serving.ADDRESS, port=self.port['sql'], user=self.user,
            password=self.password, autocommit=True)
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement, args)
                return cursor.fetchall()
        finally:
            connection.close()

    def _settings(self) -> dict[str, str]:
        """Return the options that also hold for the installation."""
        settings = {
            'datadir': f'{self.directory}/data',
            # One that starts removes temporary tables of others.
            'tmpdir': str(self.directory)}
        if os.geteuid() == 0:
            settings['user'] = 'root'
        if not self._durable:
            settings |= {
                'innodb-flush-method': 'nosync',
                'innodb-flush-log-at-trx-commit': '2',
                'innodb-doublewrite': 'OFF',
            }
        return settings


def _arguments(settings: Mapping[str, str]) -> list[str]:
    return [f'--{name}={value}' for name, value in settings.items()]


def _quoted(name: str) -> str:
    """Return the quoted name of a database."""
    return '`' + name.replace('`', '``') + '`'
