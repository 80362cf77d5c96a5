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


proven = profile.full_only(
    'queries on MariaDB; they are proven on PostgreSQL')


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


@proven
class TestDeleteCounted(base.OnMariaDB, test_queries.TestDeleteCounted):
    pass


@proven
class TestAggregates(base.OnMariaDB, test_queries.TestAggregates):
    pass


@proven
class TestAggregateChanges(base.OnMariaDB, test_queries.TestAggregateChanges):
    pass


@proven
class TestBuildRequests(base.OnMariaDB, test_queries.TestBuildRequests):
    pass


@proven
class TestLease(base.OnMariaDB, test_queries.TestLease):
    pass


@proven
class TestBatches(base.OnMariaDB, test_queries.TestBatches):
    pass


@proven
class TestClaim(base.OnMariaDB, test_queries.TestClaim):
    pass


@proven
class TestExtend(base.OnMariaDB, test_queries.TestExtend):
    pass


@proven
class TestOverdue(base.OnMariaDB, test_queries.TestOverdue):
    pass


@proven
class TestRevise(base.OnMariaDB, test_queries.TestRevise):
    pass


@proven
class TestKept(base.OnMariaDB, test_queries.TestKept):
    pass


@proven
class TestCellMappings(base.OnMariaDB, test_queries.TestCellMappings):
    pass


@proven
class TestCreateApart(base.OnMariaDB, test_queries.TestCreateApart):
    pass


@proven
class TestDecisions(base.OnMariaDB, test_queries.TestDecisions):
    pass


@proven
class TestFlavors(base.OnMariaDB, test_queries.TestFlavors):
    pass


@proven
class TestHostMappings(base.OnMariaDB, test_queries.TestHostMappings):
    pass


@proven
class TestInstanceGroups(base.OnMariaDB, test_queries.TestInstanceGroups):
    pass


@proven
class TestInstanceMappings(base.OnMariaDB, test_queries.TestInstanceMappings):
    pass


@proven
class TestRequestSpecs(base.OnMariaDB, test_queries.TestRequestSpecs):
    pass


@proven
class TestBelongings(base.OnMariaDB, test_queries.TestBelongings):
    pass


@proven
class TestBlockDevices(base.OnMariaDB, test_queries.TestBlockDevices):
    pass


@proven
class TestTags(base.OnMariaDB, test_queries.TestTags):
    pass


@proven
class TestComputeNodes(base.OnMariaDB, test_queries.TestComputeNodes):
    pass


@proven
class TestHostChanges(base.OnMariaDB, test_queries.TestHostChanges):
    pass


@proven
class TestInstanceActions(base.OnMariaDB, test_queries.TestInstanceActions):
    pass


@proven
class TestInstanceFaults(base.OnMariaDB, test_queries.TestInstanceFaults):
    pass


@proven
class TestCreate(base.OnMariaDB, test_queries.TestCreate):
    pass


@proven
class TestRead(base.OnMariaDB, test_queries.TestRead):
    pass


@proven
class TestUpdate(base.OnMariaDB, test_queries.TestUpdate):
    pass


@proven
class TestFail(base.OnMariaDB, test_queries.TestFail):
    pass


@proven
class TestDelete(base.OnMariaDB, test_queries.TestDelete):
    pass


@proven
class TestPurge(base.OnMariaDB, test_queries.TestPurge):
    pass


@proven
class TestServices(base.OnMariaDB, test_queries.TestServices):
    pass


@proven
class TestAPISurveying(base.OnMariaDB, test_queries.TestAPISurveying):
    pass


@proven
class TestCellSurveying(base.OnMariaDB, test_queries.TestCellSurveying):
    pass


@proven
class TestForget(base.OnMariaDB, test_queries.TestForget):
    pass


@proven
class TestArchiveServers(base.OnMariaDB, test_queries.TestArchiveServers):
    pass


@proven
class TestArchiveOtherRows(base.OnMariaDB, test_queries.TestArchiveOtherRows):
    pass


@proven
class TestArchivePurge(base.OnMariaDB, test_queries.TestArchivePurge):
    pass
