# SPDX-License-Identifier: Apache-2.0
"""A real Placement that is started for the tests and removed with them."""

from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import os
import pathlib
import signal
import subprocess
from typing import Any
import urllib.error
import urllib.request

import psycopg2
import sqlalchemy as sa

from benchmarks.peers import environment
from tests.integration import processes
from tests.integration import servers
from tests.integration import serving

#: Requests that it answers at a time.
THREADS = 12

_CONFIGURATION = """\
[api]
auth_strategy = noauth2
[placement_database]
connection = {url}
max_pool_size = 20
max_overflow = 40
"""

#: Removes what is claimed, and who can give, but for guards, which all tests
#: use again. Other tables are lists of names.
_EMPTY = """
DELETE FROM allocations WHERE resource_provider_id NOT IN
    (SELECT id FROM resource_providers WHERE name LIKE 'cellsched-guard-%');
DELETE FROM consumers WHERE uuid NOT IN (SELECT consumer_id FROM allocations);
DELETE FROM inventories WHERE resource_provider_id NOT IN
    (SELECT id FROM resource_providers WHERE name LIKE 'cellsched-guard-%');
DELETE FROM resource_provider_traits WHERE resource_provider_id NOT IN
    (SELECT id FROM resource_providers WHERE name LIKE 'cellsched-guard-%');
UPDATE resource_providers
    SET root_provider_id = NULL, parent_provider_id = NULL
    WHERE name NOT LIKE 'cellsched-guard-%';
DELETE FROM resource_providers WHERE name NOT LIKE 'cellsched-guard-%';
"""


class Placement(serving.SharedServer):
    """Placement in its own environment, on the PostgreSQL of the tests.

    Its tables are emptied between tests. All options but those of
    authentication have their defaults, also the number of retries.

    :param database: the server of its database; by default the shared one
    """

    package = 'postgresql'
    programs = ()
    ports = ('http',)
    port_taken = 'Connection in use'

    def __init__(
        self, search_path: Sequence[str] | None = None,
        database: servers.PostgreSQL | None = None,
    ) -> None:
        super().__init__(search_path)
        try:
            self._python = str(environment.make())
        except (OSError, ValueError, subprocess.CalledProcessError) as exc:
            raise serving.NotInstalled(
                'Placement is not here, and its environment cannot be '
                f'made: {exc}\n{getattr(exc, "output", "") or ""}') from None
        self._database = database

    def prepare(self) -> None:
        database = self._database or servers.shared(servers.PostgreSQL)
        name = f'placement_{os.urandom(4).hex()}'
        self.addCleanup(database.drop, name)
        self._url = database.url(name)
        (self.directory / 'placement.conf').write_text(
            _CONFIGURATION.format(url=self._url))
        # Concurrent processes that create the tables would conflict.
        processes.run(
            [str(pathlib.Path(self._python).with_name('placement-manage')),
             '--config-file', f'{self.directory}/placement.conf',
             'db', 'sync'], self.directory)

    def make_processes(self) -> list[processes.Process]:
        return [processes.Process(
            [self._python, '-m', 'gunicorn', 'placement.wsgi.api',
             '--bind', f'{serving.ADDRESS}:{self.port["http"]}',
             '--worker-class', 'gthread', '--threads', str(THREADS),
             '--keep-alive', '600', '--timeout', '600'],
            self.directory, name='placement', env=self._environment(),
            ready=self._answers)]

    def url(self, name: str = '') -> str:
        return f'http://{serving.ADDRESS}:{self.port["http"]}'

    def drop(self, name: str) -> None:
        self.empty()

    def description(self) -> dict[str, Any]:
        return {**super().description(), 'database': self._url}

    def attach(self, description: Mapping[str, Any]) -> None:
        super().attach(description)
        self._url = description['database']

    def empty(self) -> None:
        """Remove all allocations and providers."""
        self.execute(_EMPTY)

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Execute a statement in its database; return the rows, if any."""
        url = sa.make_url(self._url).set(drivername='postgresql')
        with contextlib.closing(psycopg2.connect(
                url.render_as_string(hide_password=False))) as connection:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetchall() if cursor.description else []

    def set_running(self, running: bool) -> None:
        """Continue the server, or suspend it: it accepts connections only."""
        for pid in processes.inside(self.directory):
            os.kill(pid, signal.SIGCONT if running else signal.SIGSTOP)

    def _environment(self) -> dict[str, str]:
        return {'OS_PLACEMENT_CONFIG_DIR': str(self.directory)}

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(self.url(), timeout=60).close()
        except (urllib.error.URLError, ConnectionError):
            return False
        return True
