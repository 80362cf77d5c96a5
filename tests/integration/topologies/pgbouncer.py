# SPDX-License-Identifier: Apache-2.0
"""PgBouncer, configured as the page shows."""

import os
import shutil
from tests.integration import processes
from tests.integration import serving
from tests.integration.topologies import example

CONFIGURATION = '/etc/pgbouncer/pgbouncer.ini'
ACCOUNTS = '/etc/pgbouncer/userlist.txt'


class PgBouncer(serving.Server):
    """A pooler of connections to PostgreSQL."""

    package = 'pgbouncer'
    programs = ('pgbouncer',)
    ports = ()
    port_taken = 'not a port of these machines'

    machine = '10.0.0.10'

    def __init__(self, page: example.Example) -> None:
        super().__init__()
        self._page = page

    @classmethod
    def usual_places(cls) -> list[str]:
        return ['/usr/sbin']

    def prepare(self) -> None:
        self._page.write(ACCOUNTS, self.machine)
        self._path = self._page.write(CONFIGURATION, self.machine)
        if os.geteuid() == 0:
            shutil.chown(self.directory, 'postgres', 'postgres')

    def make_processes(self) -> list[processes.Process]:
        # It refuses to run as root.
        user = ['-u', 'postgres'] if os.geteuid() == 0 else []
        return [processes.Process(
            [self.program['pgbouncer'], *user, str(self._path)],
            self.directory, ready=self._listens)]

    def _listens(self) -> bool:
        return serving.is_open(self._page.address(self.machine), 6432)
