# SPDX-License-Identifier: Apache-2.0
"""HAProxy, configured as the page shows."""

from tests.integration import processes
from tests.integration import serving
from tests.integration.topologies import example

CONFIGURATION = '/etc/haproxy/haproxy.cfg'


class HAProxy(serving.Server):
    """A proxy of connections.

    :param configuration: the caption of its file, if there are several
    """

    package = 'haproxy'
    programs = ('haproxy',)
    ports = ()
    port_taken = 'not a port of these machines'

    machine = '10.0.0.10'

    def __init__(
        self, page: example.Example, configuration: str = CONFIGURATION,
    ) -> None:
        super().__init__()
        self._page = page
        self._configuration = configuration

    @classmethod
    def usual_places(cls) -> list[str]:
        return ['/usr/sbin']

    def prepare(self) -> None:
        self._path = self._page.write(self._configuration, self.machine)

    def make_processes(self) -> list[processes.Process]:
        return [processes.Process(
            [self.program['haproxy'], '-db', '-f', str(self._path)],
            self.directory, ready=self._listens)]

    def url(self, name: str) -> str:
        raise NotImplementedError

    def drop(self, name: str) -> None:
        """Do nothing: a proxy has no parts."""

    def _listens(self) -> bool:
        return serving.is_open(self._page.address(self.machine), 3306)
