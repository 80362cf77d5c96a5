# SPDX-License-Identifier: Apache-2.0
"""A pooler gives each transaction another connection to the server.

A setting of the session reaches any of these connections, and a prepared
statement exists on one of them only.
"""

from concurrent import futures
import re
import shutil
import socket
import uuid

import fixtures
import sqlalchemy as sa

from cellsched.claims import base as claims
from cellsched.claims import sql
from cellsched.clock import Clock
from cellsched.db import session
from cellsched import exception
from tests.integration import base
from tests.integration import servers
from tests import profile

#: The options of the claims, and what a session shows for them.
OPTIONS = {
    'lock_timeout': 5, 'statement_timeout': 7, 'idle_transaction_timeout': 9,
    'plan_cache_mode': 'force_custom_plan', 'max_pool_size': 8}

SHOW = sa.text(
    "SELECT current_setting('lock_timeout'), "
    "current_setting('statement_timeout'), "
    "current_setting('idle_in_transaction_session_timeout'), "
    "current_setting('plan_cache_mode')")

SHOWN = ('5s', '7s', '9s', 'force_custom_plan')

#: Transactions at the same time, and claims of each.
AT_ONCE = 4
CLAIMS = 20


class PoolerTests:
    """Claims and transactions through PgBouncer in one of its modes."""

    driver = 'psycopg'
    mode = 'transaction'

    def setUp(self):
        super().setUp()
        program = shutil.which('pgbouncer', path='/usr/sbin:/usr/bin')
        if program is None:
            self.skipTest('pgbouncer is not installed')
        url = self.part_of(servers.PostgreSQL).url('claims')
        self.direct = self.open(url)
        with socket.create_server(('127.0.0.1', 0)) as free:
            port = free.getsockname()[1]
        (self.directory / 'users').write_text('"postgres" ""\n')
        (self.directory / 'ini').write_text(
            '[databases]\n'
            f'* = host=127.0.0.1 port={sa.make_url(url).port}\n'
            f'[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n'
            'unix_socket_dir =\nauth_type = trust\n'
            f'auth_file = {self.directory}/users\npool_mode = {self.mode}\n')
        for path in self.directory, *self.directory.iterdir():
            shutil.chown(path, 'postgres')
        self.process([program, '-u', 'postgres', f'{self.directory}/ini'],
                     ready='process up')
        self.url = re.sub(r':\d+/', f':{port}/', url)
        self.database = self.open(self.url)

    def open(self, url, **options):
        url = re.sub(r'^postgresql\+\w+', f'postgresql+{self.driver}', url)
        database = session.Database(
            url, 'claims', {**OPTIONS, **options}, clock=Clock())
        self.addCleanup(database.close)
        return database

    def at_once(self, call):
        with futures.ThreadPoolExecutor(AT_ONCE) as pool:
            return list(pool.map(call, range(AT_ONCE)))

    def test_each_transaction_has_the_limits(self):
        def limits(_):
            with self.database.writer() as connection:
                connection.execute(sa.text('SELECT pg_sleep(0.05)'))
                return tuple(connection.execute(SHOW).one())

        def limits_of_a_statement(_):
            with self.database.reader() as connection:
                return tuple(connection.execute(SHOW).one())

        for each in limits, limits_of_a_statement, limits:
            self.assertEqual([SHOWN] * AT_ONCE, self.at_once(each))

    def test_other_clients_inherit_no_settings(self):
        def use(_):
            with self.database.writer() as connection:
                connection.execute(sa.text('SELECT pg_sleep(0.05)'))

        own = self.direct.alone({
            name: 0 for name in OPTIONS if name.endswith('timeout')})
        other = self.open(self.url, **{
            name: 0 for name in OPTIONS if name.endswith('timeout')})
        self.addCleanup(own.close)
        self.at_once(use)

        with own.reader() as connection:
            expected = connection.execute(SHOW).one()
        with other.writer() as connection:
            self.assertEqual(expected, connection.execute(SHOW).one())

    def test_statement_timeout_cancels_the_statement(self):
        database = self.open(self.url, statement_timeout=0.1)

        def wait(use):
            with use() as connection:
                connection.execute(sa.text('SELECT pg_sleep(60)'))

        for use in database.reader, database.writer:
            self.assertRaises(exception.DatabaseBusy, wait, use)

    def test_many_rows_are_written_in_a_single_transaction(self):
        things = sa.Table(
            f'things_{uuid.uuid4().hex}', sa.MetaData(),
            sa.Column('name', sa.Text))
        with self.database.writer() as connection:
            things.metadata.create_all(connection)
        rename = sa.update(things).where(
            things.c.name == sa.bindparam('old')).values(
            name=sa.bindparam('new'))
        for use, names in ((self.database.writer, 'ab'),
                           (self.database.each_alone, 'cd')):
            with use() as connection:
                connection.execute(
                    sa.insert(things), [{'name': name} for name in names])
            with use() as connection:
                connection.execute(rename, [
                    {'old': name, 'new': f"{name}'%"} for name in names])
        with self.database.reader() as connection:
            self.assertEqual(["a'%", "b'%", "c'%", "d'%"], sorted(
                connection.execute(sa.select(things)).scalars()))

    def test_claims_are_exact(self):
        store = sql.SQLClaims(self.database)
        store.sync()
        name = str(uuid.uuid4())
        total = AT_ONCE * CLAIMS - AT_ONCE
        store.set_inventory(name, {'VCPU': claims.Inventory(total=total)})

        def claim(_):
            won = 0
            for _ in range(CLAIMS):
                try:
                    won += store.claim([claims.Claim(
                        str(uuid.uuid4()), name, {'VCPU': 1})])
                except exception.ClaimRefused:
                    pass
            return won

        self.assertEqual(total, sum(self.at_once(claim)))
        [usage] = store.usages(providers=[name]).usages
        self.assertEqual(({'VCPU': total}, total),
                         (usage.used, usage.consumers))


@profile.by_default(
    'test_each_transaction_has_the_limits', 'test_claims_are_exact', own=True,
    reason='consequences of the limits in each transaction')
class TestTransactionMode(PoolerTests, base.TestCase):

    def test_no_statement_is_prepared(self):
        log = self.useFixture(fixtures.FakeLogger())
        database = self.open(
            f'{self.url}?prepare_threshold=0', lock_timeout=6)

        def read(_):
            for number in range(CLAIMS):
                with database.reader() as connection:
                    self.assertEqual(number % 3, connection.execute(
                        sa.text(f'SELECT {number % 3}')).scalar_one())

        self.at_once(read)

        self.assertIn('no statement is prepared', log.output)
        with database.reader() as connection:
            self.assertEqual(0, connection.execute(sa.text(
                'SELECT count(*) FROM pg_prepared_statements')).scalar_one())


@profile.full_only('the rule is proven with psycopg')
class TestByPsycopg2(PoolerTests, base.TestCase):

    driver = 'psycopg2'


@profile.full_only('the rule is proven in transaction mode')
class TestSessionMode(PoolerTests, base.TestCase):

    mode = 'session'


@profile.full_only('the rule is proven in transaction mode')
class TestSessionModeByPsycopg2(TestSessionMode):

    driver = 'psycopg2'
