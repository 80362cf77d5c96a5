# SPDX-License-Identifier: Apache-2.0
"""PgBouncer in transaction mode: it is restarted while servers are built."""

from tests.integration import base
from tests.integration import servers
from tests.integration.topologies import pgbouncer
from tests.integration.topologies import postgresql
from tests.integration.topologies import story
from tests import profile


class Server(postgresql.Pair):
    """A server without a standby."""

    machines = ('10.0.0.11',)


@profile.full_only('a pooler, and faults that take their time')
class TestPgBouncer(story.Story):

    section = 'PgBouncer'
    kinds = Server, pgbouncer.PgBouncer

    server: Server
    pooler: pgbouncer.PgBouncer

    @classmethod
    def start(cls):
        cls.server = cls.of_class(base.installed(Server, cls.page))
        cls.pooler = cls.of_class(
            base.installed(pgbouncer.PgBouncer, cls.page))
        return cls.plain_broker(), story.Place(
            cls.options['api_database']['connection'], cls.server.create)

    def test_killed_pooler(self):
        def restart():
            self.pooler.kill()
            self.pooler.start()

        self.assertEndures(restart)

    def test_killed_server(self):
        def restart():
            self.server.kill()
            self.server.start()

        self.assertEndures(restart)

    def test_claims_a_second(self):
        server = self.useFixture(base.installed(
            lambda: servers.PostgreSQL(durable=True)))
        self.compare(servers.by_psycopg(server.url('claims')))
