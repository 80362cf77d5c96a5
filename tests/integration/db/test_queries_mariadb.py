# SPDX-License-Identifier: Apache-2.0
"""What holds of queries on PostgreSQL holds of them on MariaDB."""

import sqlalchemy as sa

from cellsched.db.api import models
from cellsched import exception
from tests.integration.db import base
from tests.integration.db import test_queries
from tests import profile
from tests.unit.db import recording
from tests.unit.db import test_statements


class TestStatements(base.OnMariaDB, test_queries.TestStatements):

    def test_many_rows_are_inserted_by_a_single_statement(self):
        hosts = [f'host{number}' for number in range(10)]

        with recording.recorded(self.database) as said:
            self.assertEqual(set(hosts), self.insert(*map(
                test_statements.row, hosts)))

        self.assertEqual(1, len(said))


class TestText(base.OnMariaDB, base.APITestCase):

    def setUp(self):
        super().setUp()
        self.make_database()

    def add(self, name):
        with self.database.writer() as connection:
            connection.execute(sa.insert(models.flavors), {
                'name': name, 'flavorid': name, 'memory_mb': 1, 'vcpus': 1})

    def test_names_are_compared_by_each_character(self):
        names = ['a', 'A', '\xe4', 'a ', 'a\0', '\U0001f600', '\U0001f601']

        for name in names:
            self.add(name)

        with self.database.reader() as connection:
            self.assertEqual(sorted(names), connection.execute(
                sa.select(models.flavors.c.name)
                .order_by(models.flavors.c.name)).scalars().all())
        self.assertRaises(exception.ConstraintViolated, self.add, '\U0001f600')

    def test_long_text_is_refused(self):
        error = self.assertRaises(exception.DatabaseError, self.add, 'x' * 256)

        self.assertIn("'name'", str(error))

    def test_sessions_read_committed_rows(self):
        with self.database.writer() as connection:
            self.assertEqual('READ-COMMITTED', connection.scalar(
                sa.text('SELECT @@tx_isolation')))
            self.assertEqual(0, connection.scalar(
                sa.select(sa.func.count()).select_from(models.flavors)))
            self.add('a')
            self.assertEqual(1, connection.scalar(
                sa.select(sa.func.count()).select_from(models.flavors)))


class TestInList(base.OnMariaDB, test_queries.TestInList):

    # Each value is a parameter of its own there.
    test_lists_of_any_length_use_the_same_statement = None


globals().update({
    name: profile.full_only(
        'queries on MariaDB; they are proven on PostgreSQL')(case)
    for name, case in test_queries.cases(__name__, base.OnMariaDB).items()})
