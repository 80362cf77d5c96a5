# SPDX-License-Identifier: Apache-2.0
"""What an operator does with cells whose databases are on MariaDB.

Each database has an account of its own, whose password has every character
that means something anywhere.
"""

import io
import json
from urllib import parse

from cellsched.cli import app
from cellsched.standalone import deployment
from tests.functional import base as stories
from tests.integration import base
from tests.integration import mariadb
from tests.integration import servers
from tests.integration import serving
from tests import profile

PASSWORD = 'a/b@c:d%e#f?g h&i=j+k,l;m$n"o\\p[q]{r}'

NEW_PASSWORD = PASSWORD[::-1]


@profile.full_only(
    'MariaDB: by default a page leads through the same on PostgreSQL')
class TestCells(stories.TestCase, base.TestCase):

    def setUp(self):
        super().setUp()
        self.part = self.part_of(mariadb.MariaDB)
        self.server = base.installed(servers.shared, mariadb.MariaDB)
        self.database_url = self.url
        self.urls = {}

    def url(self, name):
        if name not in self.urls:
            url = self.part.url(name)
            database = url.rpartition('/')[2]
            self.urls[name] = self.account(database, database, PASSWORD)
        return self.urls[name]

    def account(self, user, database, password):
        """Make an account of a database; return its URL."""
        who = self.who(user)
        self.server.execute(f'CREATE USER {who} IDENTIFIED BY %s', password)
        self.addCleanup(self.server.execute, f'DROP USER {who}')
        self.server.execute(f'GRANT ALL ON `{database}`.* TO {who}')
        return (f'mysql+pymysql://{user}:{parse.quote(password, safe="")}@'
                f'{serving.ADDRESS}:{self.server.port["sql"]}/{database}')

    def who(self, user):
        return f"'{user}'@'{serving.ADDRESS}'"

    def lock(self, cell, locked):
        """Shut the account of a cell's database out, or let it in again."""
        user = self.urls[cell].rpartition('/')[2]
        state = 'LOCK' if locked else 'UNLOCK'
        self.server.execute(f'ALTER USER {self.who(user)} ACCOUNT {state}')
        if locked:
            self.server.execute(f'KILL CONNECTION USER {self.who(user)}')

    def run_cli(self, program, *args, code=0):
        """Run a command; return what it prints."""
        out, err = io.StringIO(), io.StringIO()
        path = self.world.directory / 'etc/api.conf'
        self.assertEqual(code, program(out, err).run(
            [f'--config-file={path}', *args]), err.getvalue())
        for piece in ('g h', 'e#f', parse.quote(PASSWORD, safe='')):
            self.assertNotIn(piece, out.getvalue() + err.getvalue())
        return out.getvalue()

    def shell(self, *args, code=0):
        return json.loads(self.run_cli(
            app.Shell, *args, '-f', 'json', code=code))

    def active_in(self, cell):
        """Build a server in a cell, which is a zone; return its uuid."""
        [found] = self.built(availability_zone=cell)
        self.assertEqual(('ACTIVE', cell), (found.status, found.cell))
        return found.uuid

    def statuses(self):
        return {each['ID']: (each['Status'], each['Cell'])
                for each in self.shell('server', 'list')}

    def move_host(self, host, cell):
        """Have a host without servers go on in another cell."""
        self.world.agents[host].stop()
        self.shell('service', 'set', '--down', host, 'nova-compute')
        [service] = self.shell('service', 'list', '--host', host)
        self.shell('service', 'delete', service['ID'])
        self.world.start_host(cell, deployment.DeployedHost(host))
        self.run_cli(app.Manage, 'cell_v2', 'discover_hosts')

    def test_cell_is_down_changed_emptied_and_removed(self):
        self.deploy({
            cell: [deployment.DeployedHost(host, availability_zone=cell)
                   for host in hosts] for cell, hosts in {
                       'one': ['a1', 'a2'], 'two': ['b1'],
                       'three': ['c1']}.items()})
        cells = {each['Name']: each['UUID']
                 for each in self.shell('cell', 'list')}
        one, two, three = map(self.active_in, ('one', 'two', 'three'))

        self.lock('three', True)
        self.assertEqual(('UNKNOWN', 'three'), self.statuses()[three])
        self.active_in('two')
        self.lock('three', False)
        self.assertEqual(('ACTIVE', 'three'), self.statuses()[three])

        host = self.get(one).host
        self.assertEqual(['moved'], [each['Outcome'] for each in self.shell(
            'host', 'drain', host)])
        self.assertNotEqual(host, self.get(one).host)
        self.assertEqual('one', self.get(one).cell)

        self.shell('server', 'delete', '--wait', three)
        self.move_host('c1', 'one')
        # The name of a host that is mapped again has no aggregates.
        self.run_cli(app.Shell, 'aggregate', 'add-host', 'zone:three', 'c1')
        [moved] = self.built(availability_zone='three')
        self.assertEqual(('ACTIVE', 'one', 'c1'),
                         (moved.status, moved.cell, moved.host))

        database = self.urls['two'].rpartition('/')[2]
        self.run_cli(
            app.Manage, 'cell_v2', 'update_cell', '--cell_uuid', cells['two'],
            '--database_connection',
            self.account(f'{database}_new', database, NEW_PASSWORD))
        # Its own services have the old one until they are started again.
        self.assertEqual(('ACTIVE', 'two'), self.statuses()[two])
        self.active_in('two')

        self.run_cli(app.Manage, 'cell_v2', 'delete_cell', '--force',
                     '--cell_uuid', cells['three'])
        self.assertEqual(
            ['cell0', 'one', 'two'],
            [each['Name'] for each in self.shell('cell', 'list')])
        # It would end with 1 if it found anything.
        self.run_cli(app.Manage, 'audit')
        listed = self.run_cli(
            app.Manage, 'cell_v2', 'list_cells', '--verbose')
        self.assertEqual(3, listed.count('****'))
