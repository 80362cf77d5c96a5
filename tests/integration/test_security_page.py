# SPDX-License-Identifier: Apache-2.0
"""The page "Security": services do with the rights that it gives them."""

import io

import psycopg2
import pymysql
import sqlalchemy as sa
from sqlalchemy import exc as sa_exc

from cellsched.cli import app
from tests.functional import base as stories
from tests.integration import base
from tests.integration import mariadb
from tests.integration import pages
from tests.integration import servers
from tests.integration import serving

PAGE = 'admin/security.rst'

#: Group of the option, and command, that a database's tables are made by.
TABLES = {'api': ('api_database', 'api_db'), 'claims': ('claims', 'claims_db')}
CELL = ('database', 'db')


def statements(language):
    """Return the statements of the page in a language, one by one."""
    [text] = [block.text for block in pages.blocks(PAGE)
              if block.language == language]
    return [each for each in text.split(';') if each.strip()]


class RightsTestCase(base.TestCase, stories.TestCase):
    """A deployment whose services have the rights of the page, and no more.

    Databases have the names of the page.
    """

    def setUp(self):
        super().setUp()
        self.urls = {}
        self.database_url = self.url
        self.prepare()

    def prepare(self):
        """Start a server, and make what is the same for all databases."""
        raise NotImplementedError

    def make(self, name):
        """Make a database; return the URLs of its owner and of services."""
        raise NotImplementedError

    def url(self, name):
        if name not in self.urls:
            owner, self.urls[name] = self.make(f'cellsched_{name}')
            group, command = TABLES.get(name, CELL)
            (self.directory / 'owner.conf').write_text(
                f'[{group}]\nconnection = {owner}\n')
            self.manage(self.directory / 'owner.conf', command, 'sync')
        return self.urls[name]

    def check(self):
        """See that all of a server's life goes, and no table can be made."""
        self.deploy({'cell1': ['a1']})
        [found] = self.built()
        self.assertEqual('ACTIVE', found.status)
        [buried] = self.built(flavor='huge')
        self.assertEqual('cell0', buried.cell)
        for each in (found, buried):
            self.delete(each.uuid)
        self.gone(found.uuid, buried.uuid)
        self.assertHoldsNothing(found.uuid)
        conf = self.world.directory / 'etc/api.conf'
        self.manage(conf, 'db', 'archive_deleted_rows', '--all-cells',
                    '--until-complete', '--settle', '0')
        self.manage(conf, 'db', 'purge', '--all-cells', '--all')
        self.manage(conf, 'audit')

        for url in self.urls.values():
            engine = sa.create_engine(url)
            self.addCleanup(engine.dispose)
            with engine.connect() as connection:
                for statement in ('CREATE TABLE another (id INTEGER)',
                                  'DROP TABLE alembic_version'):
                    self.assertRaises(
                        (sa_exc.ProgrammingError, sa_exc.OperationalError),
                        connection.execute, sa.text(statement))
                    connection.rollback()

    def manage(self, path, *args):
        """Run a command with a configuration file."""
        err = io.StringIO()
        self.assertEqual(0, app.Manage(io.StringIO(), err).run(
            [f'--config-file={path}', *args]), err.getvalue())


class TestPostgreSQL(RightsTestCase):

    def prepare(self):
        self.server = self.own(servers.PostgreSQL)
        for user in ('cellsched_admin', 'cellsched'):
            self.execute('postgres', f'CREATE ROLE {user} LOGIN')

    def execute(self, database, *said):
        connection = psycopg2.connect(
            host=serving.ADDRESS, port=self.server.port['sql'],
            user='postgres', dbname=database)
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                for statement in said:
                    cursor.execute(statement)
        finally:
            connection.close()

    def make(self, name):
        url = self.server.url(name)
        self.execute(name, f'ALTER DATABASE {name} OWNER TO cellsched_admin',
                     *statements('sql'))
        return [url.replace('postgres:postgres@', f'{user}@')
                for user in ('cellsched_admin', 'cellsched')]

    def test_services_do_with_the_rights_of_the_page(self):
        self.check()


class TestMariaDB(RightsTestCase):

    def prepare(self):
        self.server = self.own(mariadb.MariaDB)
        connection = pymysql.connect(
            unix_socket=f'{self.server.directory}/socket', user='root')
        try:
            with connection.cursor() as cursor:
                for statement in statements('mysql'):
                    cursor.execute(statement)
        finally:
            connection.close()

    def make(self, name):
        url = self.server.url(name)
        return [url.replace('mariadb:mariadb@', f'{user}:PASSWORD@')
                for user in ('cellsched_admin', 'cellsched')]

    def test_services_do_with_the_rights_of_the_page(self):
        self.check()
