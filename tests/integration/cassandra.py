# SPDX-License-Identifier: Apache-2.0
"""A real Cassandra that is started for the tests and removed with them."""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import os
import pathlib
import random
import signal
from typing import Any
import warnings

from tests.integration import processes
from tests.integration import serving

with warnings.catch_warnings():
    warnings.simplefilter('ignore')
    from cassandra.cluster import Cluster
    from cassandra.cluster import EXEC_PROFILE_DEFAULT
    from cassandra.cluster import ExecutionProfile
    from cassandra.cluster import NoHostAvailable
    from cassandra.io import libevreactor
    from cassandra import policies
    from cassandra import query

_SCRIPT = pathlib.Path(__file__).parents[2] / 'tools' / 'cassandra.sh'

#: Where tools/cassandra.sh keeps the jars, by what it is told.
VERSION = '5.0.6'


class Cassandra(serving.SharedServer):
    """A node; each part is a keyspace with one replica.

    It is killed to stop it: acknowledged writes are on the disk, or at least
    in the cache of the operating system.

    :param durable: wait for the disk with each write
    """

    package = 'openjdk-17-jre-headless'
    programs = ('java',)
    ports = ('cql', 'storage')
    port_taken = 'Failed to bind port'

    #: Copies of a keyspace.
    copies = 1

    def __init__(
        self, search_path: Sequence[str] | None = None, *,
        durable: bool = False,
    ) -> None:
        super().__init__(search_path)
        if not (_jars() / 'complete').exists():
            raise serving.NotInstalled(
                f'the jars of Cassandra are not in {_jars()}; run '
                'tools/cassandra.sh fetch, which needs the Debian package '
                'maven')
        self._durable = durable

    def prepare(self) -> None:
        for address in self.addresses():
            (self.directory / address).mkdir()

    def addresses(self) -> list[str]:
        """Return the addresses of the nodes."""
        return [serving.ADDRESS]

    def make_processes(self) -> list[processes.Process]:
        seed, *_ = self.addresses()
        return [processes.Process(
            [str(_SCRIPT), 'run', str(self.directory / address),
             address.rpartition('.')[2]],
            self.directory / address, name='cassandra', env={
                'CASSANDRA_VERSION': VERSION,
                'CASSANDRA_PORT': str(self.port['cql']),
                'CASSANDRA_STORAGE_PORT': str(self.port['storage']),
                'CASSANDRA_SEED': seed,
                'CASSANDRA_SYNC': 'batch' if self._durable else 'periodic',
                'CASSANDRA_YAML': self.further_settings()},
            ready='CassandraDaemon Startup complete',
            stop_signal=signal.SIGKILL) for address in self.addresses()]

    def further_settings(self) -> str:
        """Return further lines of the configuration."""
        return ''

    def url(self, name: str) -> str:
        with self.session() as session:
            session.execute(
                f'CREATE KEYSPACE IF NOT EXISTS {name} WITH replication = '
                "{'class': 'NetworkTopologyStrategy', "
                f"'replication_factor': {self.copies}}}")
        return self.place(name)

    def place(self, name: str) -> str:
        """Return the URL of a part, existing or not."""
        nodes = ','.join(f'{address}:{self.port["cql"]}'
                         for address in self.addresses())
        return f'cassandra://{nodes}/{name}'

    def drop(self, name: str) -> None:
        with self.session() as session:
            session.execute(f'DROP KEYSPACE IF EXISTS {name}')

    @contextlib.contextmanager
    def session(self) -> Iterator[Any]:
        """Use a connection of an administrator."""
        profile = ExecutionProfile(
            load_balancing_policy=policies.RoundRobinPolicy(),
            request_timeout=60.0, row_factory=query.dict_factory)
        cluster = Cluster(
            self.addresses(), port=self.port['cql'],
            connection_class=libevreactor.LibevConnection,
            connect_timeout=60.0, control_connection_timeout=60.0,
            execution_profiles={EXEC_PROFILE_DEFAULT: profile})
        try:
            yield cluster.connect()
        finally:
            cluster.shutdown()


class CassandraCluster(Cassandra):
    """Three nodes, each with its own address, and three replicas."""

    copies = 3

    def addresses(self) -> list[str]:
        # Nobody else's nodes have these.
        if not hasattr(self, '_first'):
            self._first = random.SystemRandom().randrange(10, 240, 3)
        return [f'127.0.0.{self._first + number}' for number in range(3)]

    def start(self) -> None:
        super().start()
        processes.wait_until(
            self._know_each_other, 'the nodes to know each other')

    def _know_each_other(self) -> bool:
        """Return whether each node knows all nodes and the schema."""
        with self.session() as session:
            try:
                versions = [
                    row['schema_version']
                    for node in session.cluster.metadata.all_hosts()
                    for table in ('local', 'peers')
                    for row in session.execute(
                        f'SELECT schema_version FROM system.{table}',
                        host=node)]
            except NoHostAvailable:
                # Others have not heard yet that it is there.
                return False
        return len(versions) == 9 and len({*versions}) == 1


def empty(session: Any, keyspace: str) -> None:
    """Remove all unused claims and providers.

    A TRUNCATE of a table takes a server longer than most tests.
    """
    for table, key in (('claims', 'provider'), ('consumers', 'consumer'),
                       ('trees', 'provider'), ('operations', 'bucket')):
        deleted = [session.execute_async(
            f'DELETE FROM {keyspace}.{table} WHERE {key} = %s', [row[key]])
            for row in session.execute(
                f'SELECT DISTINCT {key} FROM {keyspace}.{table}')]
        for future in deleted:
            future.result()


def _jars(environment: Mapping[str, str] = os.environ) -> pathlib.Path:
    cache = environment.get('CELLSCHED_CACHE') or os.path.join(
        environment.get('XDG_CACHE_HOME')
        or os.path.join(pathlib.Path.home(), '.cache'), 'cellsched')
    return pathlib.Path(cache) / f'cassandra-{VERSION}'
