# SPDX-License-Identifier: Apache-2.0
"""A switch-over of a database leaves connections to a server that only reads.

The former primary goes on as a reader, so that open connections stay, and
answer a ping. Connections that are opened later lead to the new primary.
"""

import contextlib

import sqlalchemy as sa

from cellsched.claims import base as claims
from cellsched.claims import sql
from cellsched.clock import Clock
from cellsched.db import session
from cellsched import exception
from tests.functional import base as stories
from tests.integration import base
from tests.integration import mariadb
from tests.integration import servers
from tests import profile

#: Connections that were opened before the switch-over.
OPEN = 5

CLAIM = claims.Claim('11111111-1111-4111-8111-111111111111', 'p', {'VCPU': 1})


class SwitchOverTests:

    #: The server, and SQL that makes a session read only.
    kind = read_only = None

    def setUp(self):
        super().setUp()
        self.database = session.Database(
            self.part_of(self.kind).url('claims'), 'claims',
            # A slow database with more uses than half of these is stuck.
            {'max_pool_size': 2 * OPEN}, clock=Clock())
        self.addCleanup(self.database.close)
        self.store = sql.SQLClaims(self.database)
        self.store.sync()
        self.store.set_inventory('p', {'VCPU': claims.Inventory(total=8)})
        self.switch_over()

    def switch_over(self):
        """Make the open connections read only, as a former primary is."""
        with contextlib.ExitStack() as stack:
            for each in [stack.enter_context(self.database.reader())
                         for _ in range(OPEN)]:
                each.execute(sa.text(self.read_only))

    def test_single_transaction_at_most_is_refused(self):
        def write():
            with self.database.writer() as connection:
                connection.execute(sa.text(
                    'UPDATE inventories SET used = used + 0'))

        error = self.assertRaises(exception.DatabaseUnreachable, write)

        self.assertIn(f'{self.database!r}'.split('@')[1][:-1], str(error))
        self.assertRegex(str(error), '(?i)read.only')
        with contextlib.ExitStack() as stack:
            for each in [stack.enter_context(self.database.writer())
                         for _ in range(OPEN)]:
                each.execute(sa.text('DELETE FROM allocations'))

    def test_claims_are_made(self):
        self.assertEqual(1, self.store.claim([CLAIM]))

        self.switch_over()
        self.store.release([CLAIM.consumer])

        self.switch_over()
        self.assertEqual(0, self.store.claim_any([
            [CLAIM], [claims.Claim(CLAIM.consumer, 'q', {'VCPU': 1})]]).chosen)
        self.assertEqual({CLAIM.consumer: [CLAIM]},
                         self.store.claims_of([CLAIM.consumer]))


class TestPostgreSQL(SwitchOverTests, base.TestCase):

    kind = servers.PostgreSQL
    read_only = 'SET SESSION default_transaction_read_only = on'


@profile.full_only('the rule is proven on PostgreSQL')
class TestMariaDB(SwitchOverTests, base.TestCase):

    kind = mariadb.MariaDB
    read_only = 'SET SESSION TRANSACTION READ ONLY'


@profile.full_only('takes a server of its own; connections are tested above')
class TestBuilds(stories.TestCase, base.TestCase):
    """Servers are accepted and built.

    A setting of a role, or a privilege, stands for the new primary: sessions
    that are opened later can write, and older ones cannot.
    """

    def check(self, kind, admin, before, switch):
        server = self.own(kind)
        server.execute(before)
        self.database_url = lambda name: server.url(name).replace(
            f'{admin}:{admin}', 'cloud:cloud')
        self.deploy(
            {'cell1': ['a1']}, conductor={'recovery_interval': 1},
            DEFAULT={'report_interval': 1, 'service_down_time': 15})
        self.assertEqual(
            ['ACTIVE'], [each.status for each in self.built()])
        for statement in switch:
            server.execute(statement)

        self.assertEqual(
            ['ACTIVE'], [each.status for each in self.built()])

    def test_servers_are_built_on_postgresql(self):
        self.check(
            servers.PostgreSQL, 'postgres',
            'CREATE ROLE cloud LOGIN SUPERUSER', [
                'ALTER ROLE cloud SET default_transaction_read_only = off',
                'ALTER SYSTEM SET default_transaction_read_only = on',
                'SELECT pg_reload_conf()'])

    def test_servers_are_built_on_mariadb(self):
        user = "'cloud'@'127.0.0.1'"
        self.check(
            mariadb.MariaDB, 'mariadb',
            'GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX, '
            f"DROP, REFERENCES ON *.* TO {user} IDENTIFIED BY 'cloud'", [
                'SET GLOBAL read_only = 1',
                f'GRANT READ_ONLY ADMIN ON *.* TO {user}'])
