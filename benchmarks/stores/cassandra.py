# SPDX-License-Identifier: Apache-2.0
"""Claims in Cassandra, and a plain compare-and-set loop."""

import contextlib
import pathlib
import sys

import cassandra
from cassandra import auth
from cassandra import cluster
from cassandra import policies
from cassandra import query

from cellsched.claims.cassandra import client
from cellsched.claims.cassandra import options
from cellsched.claims.cassandra import requests
from stores import base

# The test suite has the code to start the servers.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2]))

from tests.integration import cassandra as server_  # noqa: E402
from tests.integration import servers  # noqa: E402

#: The table of the plain writes, with a partition for each provider.
TABLE = """
    CREATE TABLE IF NOT EXISTS plain (
        provider text, consumer text, vcpu bigint STATIC,
        memory_mb bigint STATIC, disk_gb bigint STATIC, resources text,
        PRIMARY KEY (provider, consumer))"""
SET = """
    UPDATE plain SET vcpu = %s, memory_mb = %s, disk_gb = %s
    WHERE provider = %s IF vcpu = %s AND memory_mb = %s AND disk_gb = %s"""
INSERT = """
    INSERT INTO plain (provider, consumer, resources) VALUES (%s, %s, %s)"""
NAMES = ('VCPU', 'MEMORY_MB', 'DISK_GB')
READ = 'SELECT vcpu, memory_mb, disk_gb FROM plain WHERE provider = %s LIMIT 1'


class Cassandra(base.Kind):

    @contextlib.contextmanager
    def served(self):
        with servers.part_of(server_.Cassandra, durable=True) as part:
            url = part.url('claims')
            yield {'url': url, 'options': '[claims]\nstore = cassandra\n'
                                          f'connection = {url}\n'}

    def version(self, address):
        with contextlib.closing(Plain(address['url'])) as plain:
            [row] = plain.execute('SELECT release_version FROM system.local')
            return f'Cassandra {row.release_version}'

    def settle(self, address):
        # Clients that create a table at the same time disturb each other.
        with contextlib.closing(Plain(address['url'])) as plain:
            plain.execute(TABLE)

    def counting(self, parts):
        lost = []

        def notice(request, answer):
            if isinstance(request, requests.Together):
                for each in zip(request.requests, answer):
                    notice(*each)
            elif (isinstance(request, (requests.ChangeProvider,
                                       requests.WriteConsumer))
                  and not getattr(answer, 'applied', answer)):
                lost.append(request)

        base.watch(client.CassandraClient, notice)
        return base.CountingClaims(parts.claims, lost=lambda: len(lost))

    def plain(self, address):
        return Plain(address['url'])


class Plain(base.Plain):
    """Reads the usage, and sets it on condition that it has not changed.

    If it has changed, the answer contains the current usage.
    """

    def __init__(self, url):
        super().__init__()
        place = options.address(url)
        hosts, [port, *_] = zip(*place.hosts)
        self._cluster = cluster.Cluster(
            hosts, port=port, protocol_version=5,
            auth_provider=place.user and auth.PlainTextAuthProvider(
                place.user, place.password),
            execution_profiles={
                cluster.EXEC_PROFILE_DEFAULT: cluster.ExecutionProfile(
                    load_balancing_policy=policies.RoundRobinPolicy(),
                    retry_policy=policies.FallthroughRetryPolicy(),
                    consistency_level=cassandra.ConsistencyLevel.QUORUM,
                    request_timeout=60)})
        self._session = self._cluster.connect(place.keyspace)
        self.execute = self._session.execute

    def claim(self, takes):
        for take in takes:
            seen = self.execute(READ, [take.provider]).one()
            while (seen := self._set(take, seen)) is not None:
                self.lost += 1

    def _set(self, take, seen):
        """Return None, or the current usage if it is not the seen one."""
        # A provider without any write has no row.
        seen = [None] * len(NAMES) if seen is None else [
            getattr(seen, name.lower()) for name in NAMES]
        batch = query.BatchStatement()
        batch.add(query.SimpleStatement(SET), [
            *((used or 0) + take.resources[name]
              for used, name in zip(seen, NAMES)), take.provider, *seen])
        batch.add(query.SimpleStatement(INSERT), [
            take.provider, take.consumer, str(take.resources)])
        found = self.execute(batch).one()
        return None if found[0] else found

    def release(self, takes):
        """Do nothing: the rows are not read, and the capacity suffices."""

    def close(self):
        self._cluster.shutdown()
