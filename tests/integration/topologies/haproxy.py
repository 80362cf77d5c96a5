# SPDX-License-Identifier: Apache-2.0
"""HAProxy, configured as the page shows."""

import re

from tests.integration import processes
from tests.integration import serving
from tests.integration.topologies import example

CONFIGURATION = '/etc/haproxy/haproxy.cfg'


class HAProxy(serving.Server):
    """A proxy of connections."""

    package = 'haproxy'
    programs = ('haproxy',)
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
        self._path = self._page.write(CONFIGURATION, self.machine)

    def make_processes(self) -> list[processes.Process]:
        return [processes.Process(
            [self.program['haproxy'], '-db', '-f', str(self._path)],
            self.directory, ready=self._listens)]

    def reconfigure(self, pattern: str, replacement: str) -> None:
        """Restart with the file of the page, in which a text is replaced.

        :param pattern: a regular expression; nothing else changes
        """
        path = self._page.write(CONFIGURATION, self.machine)
        text, count = re.subn(pattern, replacement, path.read_text())
        if not count:
            raise ValueError(f'{path} has no {pattern}')
        path.write_text(text)
        self.kill()
        self.start()

    def _listens(self) -> bool:
        return serving.is_open(self._page.address(self.machine), 3306)
