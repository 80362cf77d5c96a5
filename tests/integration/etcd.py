# SPDX-License-Identifier: Apache-2.0
"""A real etcd that is started for the tests and removed with them."""

from collections.abc import Mapping
from urllib import parse

import etcd3gw

from tests.integration import processes
from tests.integration import serving


class Etcd(serving.SharedServer):
    """A cluster of one member; each part is a prefix.

    It waits for its disk with each commit, as releases before 3.5 always do.
    """

    package = 'etcd-server'
    programs = ('etcd',)
    ports: tuple[str, ...] = ('client0', 'peer0')
    port_taken = 'address already in use'
    #: Options of each member.
    options: Mapping[str, str] = {}

    @property
    def members(self) -> range:
        """Numbers of the members."""
        return range(len(self.ports) // 2)

    def prepare(self) -> None:
        """Do nothing: a member makes its directory."""

    def make_processes(self) -> list[processes.Process]:
        return [self._member(number) for number in self.members]

    def start(self) -> None:
        # A member is not ready before most of the members run.
        self._check_ownership()
        for process in self.processes:
            process.start()
        processes.wait_until(self._is_ready, 'etcd to elect a leader')

    def url(self, name: str) -> str:
        hosts = ','.join(
            f'{serving.ADDRESS}:{self.port[f"client{number}"]}'
            for number in self.members)
        return f'etcd://{hosts}/{parse.quote(name, safe="")}'

    def drop(self, name: str) -> None:
        self.client().delete_prefix(f'/{name}/')

    def client(self, number: int = 0) -> etcd3gw.Etcd3Client:
        """Return a client of a member, for an administrator."""
        return etcd3gw.Etcd3Client(
            serving.ADDRESS, self.port[f'client{number}'], timeout=10,
            api_path='/v3/')

    def compact(self) -> None:
        """Compact the history of all keys."""
        client = self.client()
        revision = client.status()['header']['revision']
        client.post(client.get_url('/kv/compaction'),
                    json={'revision': revision, 'physical': True})

    def add_root(self, password: str) -> None:
        """Add the user ``root``, and have every client log in."""
        client = self.client()
        for path, body in (
                ('user/add', {'name': 'root', 'password': password}),
                ('user/grant', {'user': 'root', 'role': 'root'}),
                ('enable', {})):
            client.post(client.get_url(f'auth/{path}'), json=body)

    def _member(self, number: int) -> processes.Process:
        client = f'http://{serving.ADDRESS}:{self.port[f"client{number}"]}'
        settings = {
            'name': f'member{number}',
            'data-dir': f'{self.directory}/data{number}',
            'listen-client-urls': client,
            'advertise-client-urls': client,
            'listen-peer-urls': self._peer(number),
            'initial-advertise-peer-urls': self._peer(number),
            'initial-cluster': ','.join(
                f'member{each}={self._peer(each)}' for each in self.members),
            'initial-cluster-token': self.directory.name,
            'log-level': 'warn',
            **self.options,
        }
        args = [f'--{name}={value}' for name, value in settings.items()]
        return processes.Process(
            [self.program['etcd'], *args], self.directory,
            name=f'etcd{number}')

    def _peer(self, number: int) -> str:
        return f'http://{serving.ADDRESS}:{self.port[f"peer{number}"]}'

    def _is_ready(self) -> bool:
        for process in self.processes:
            if not process.running:
                raise processes.ProcessFailed(process.output())
        try:
            return all(self.client(number).get('-', serializable=False) == []
                       for number in self.members)
        except etcd3gw.exceptions.Etcd3Exception:
            return False


class EtcdCluster(Etcd):
    """A cluster of three members."""

    ports = tuple(f'{name}{number}' for number in range(3)
                  for name in ('client', 'peer'))


class EtcdWithWebTokens(Etcd):
    """A server whose logins are JSON Web Tokens."""

    programs = (*Etcd.programs, 'openssl')

    def prepare(self) -> None:
        private, public = (f'{self.directory}/{name}.pem'
                           for name in ('private', 'public'))
        processes.run([self.program['openssl'], 'genrsa', '-out', private],
                      self.directory)
        processes.run([self.program['openssl'], 'rsa', '-in', private,
                       '-pubout', '-out', public], self.directory)
        self.options = {'auth-token': (
            f'jwt,pub-key={public},priv-key={private},sign-method=RS256')}
