# SPDX-License-Identifier: Apache-2.0
"""A cluster of three members of etcd, with TLS and users."""

from collections.abc import Mapping
import json
import ssl
from urllib import request

from tests.integration import processes
from tests.integration import serving
from tests.integration.topologies import example

CONFIGURATION = '/etc/default/etcd'


class Cluster(serving.Server):
    """A cluster that is configured as a section of the page shows.

    :ivar members: the processes of the members
    """

    package = 'etcd-server etcd-client openssl'
    programs = ('etcd', 'etcdctl', 'openssl')
    ports = ()
    port_taken = 'not a port of these machines'

    machines = ('10.0.0.31', '10.0.0.32', '10.0.0.33')

    #: Options that are not those of the page.
    other: Mapping[str, str] = {}

    def __init__(self, page: example.Example) -> None:
        super().__init__()
        self._page = page

    def prepare(self) -> None:
        self._page.certify()
        for machine in self.machines:
            self._page.copy_certificates('/etc/etcd', machine)

    def make_processes(self) -> list[processes.Process]:
        self.members = [self._member(machine) for machine in self.machines]
        return [*self.members]

    def start(self) -> None:
        first = not self._page.path(
            '/var/lib/etcd', self.machines[0]).exists()
        # A member is not ready before most of them are there.
        super().start()
        processes.wait_until(
            lambda: self.leader() is not None, 'etcd to elect a leader')
        if first:
            for command, _ in self._page.block('accounts').commands():
                self.control(command)

    def control(self, command: str, **env: str) -> None:
        """Run a command of the administrator."""
        block = self._page.block('administrator').text
        own = dict(line.removeprefix('export ').split('=', 1)
                   for line in self._page.localize(
                       block, self.machines[0]).splitlines())
        processes.run(['sh', '-c', command], self.directory, env=own | env)

    def leader(self) -> processes.Process | None:
        """Return the member that leads, if one does."""
        context = ssl.create_default_context(
            cafile=self._page.path('/etc/etcd/ca.pem', self.machines[0]))
        for machine, member in zip(self.machines, self.members, strict=True):
            url = f'https://{self._page.address(machine)}:2379'
            try:
                with request.urlopen(
                        f'{url}/v3/maintenance/status', b'{}', timeout=5,
                        context=context) as answer:
                    status = json.load(answer)
            except OSError:
                continue
            if status.get('leader') == status['header']['member_id']:
                return member
        return None

    def _member(self, machine: str) -> processes.Process:
        path = self._page.write(CONFIGURATION, machine, self.machines[0])
        env = dict(line.split('=', 1)
                   for line in path.read_text().splitlines())
        return processes.Process(
            [self.program['etcd']], self.directory, name=f'etcd-{machine}',
            env={**env, **self.other, 'ETCD_LOG_LEVEL': 'warn'})


class SimpleTokens(Cluster):
    """The same cluster with etcd's default of ``ETCD_AUTH_TOKEN``."""

    other = {'ETCD_AUTH_TOKEN': 'simple'}
