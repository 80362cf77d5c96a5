# SPDX-License-Identifier: Apache-2.0
"""Passwords of any characters, where PostgreSQL asks for one."""

import io
from urllib import parse

from cellsched.cli import app
from tests.integration import base
from tests.integration import servers
from tests.integration import serving

PASSWORD = 'a/b@c:d%e#f?g h&i=j+k,l;m$n"o\\p[q]{r}\'s'

DRIVERS = ('psycopg', 'psycopg2')


class TestPostgreSQL(base.TestCase):

    def setUp(self):
        super().setUp()
        self.server = self.own(servers.PostgreSQL)
        self.server.url('cell1')
        quoted = PASSWORD.replace("'", "''")
        self.server.execute(
            f"CREATE ROLE cell1 LOGIN PASSWORD '{quoted}'".replace(
                '{', '{{').replace('}', '}}'))
        rules = self.server.directory / 'data/pg_hba.conf'
        rules.write_text(
            f'host all cell1 {serving.ADDRESS}/32 scram-sha-256\n'
            + rules.read_text())
        self.server.execute('SELECT pg_reload_conf()')

    def version(self, driver, password):
        """Ask for the version of a schema; return the exit code and output."""
        path = self.directory / 'cell1.conf'
        url = (f'postgresql+{driver}://cell1:'
               f'{parse.quote(password, safe="")}@{serving.ADDRESS}:'
               f'{self.server.port["sql"]}/cell1')
        path.write_text(f'[database]\nconnection = {url}\n')
        out = io.StringIO()
        code = app.Manage(out, out).run(
            [f'--config-file={path}', 'db', 'version'])
        return code, out.getvalue()

    def test_password_has_any_characters_and_is_not_shown(self):
        for driver in DRIVERS:
            self.assertEqual((0, 'none\n'), self.version(driver, PASSWORD))

            code, said = self.version(driver, PASSWORD + 'x')

            self.assertEqual(1, code)
            self.assertIn('password authentication failed', said)
            for piece in ('e#f', 'g h', parse.quote(PASSWORD, safe='')):
                self.assertNotIn(piece, said)
