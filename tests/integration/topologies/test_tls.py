# SPDX-License-Identifier: Apache-2.0
"""Databases that accept TLS only."""

from tests.integration import base
from tests.integration.topologies import galera
from tests.integration.topologies import postgresql
from tests.integration.topologies import story
from tests import profile

#: Certificates on the database servers.
CERTIFICATES = '/etc/ssl/cellsched'


class MariaDB(galera.MariaDB):
    """A server with a certificate."""

    def prepare(self):
        self._page.copy_certificates(
            CERTIFICATES, self.machines[0], 'mysql')
        super().prepare()


class PostgreSQL(postgresql.Pair):
    """A server with a certificate, and without a standby."""

    machines = ('10.0.0.12',)

    def prepare(self):
        self._page.copy_certificates(
            CERTIFICATES, self.machines[0], 'postgres')
        super().prepare()


class Databases:
    """The claims on PostgreSQL, and all else on MariaDB."""

    def __init__(self, claims, databases):
        self._claims = claims
        self._databases = databases

    def url(self, name):
        return (self._claims if name == 'claims' else self._databases
                ).url(name)


@profile.full_only('two servers, and a whole deployment')
class TestTls(story.Story):

    section = 'TLS to databases'
    kinds = MariaDB, PostgreSQL

    mariadb: MariaDB

    @classmethod
    def start(cls):
        cls.page.certify()
        cls.page.copy_certificates('/etc/cellsched', 'control')
        cls.mariadb = cls.of_class(base.installed(MariaDB, cls.page))
        claims = cls.of_class(base.installed(PostgreSQL, cls.page))
        return cls.plain_broker(), Databases(
            story.Place(cls.options['claims']['connection'], claims.create),
            story.Place(cls.options['api_database']['connection'],
                        cls.mariadb.create))

    def test_killed_server(self):
        def restart():
            self.mariadb.kill()
            self.mariadb.start()

        self.assertEndures(restart)
