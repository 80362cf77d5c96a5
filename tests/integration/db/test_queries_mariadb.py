# SPDX-License-Identifier: Apache-2.0
"""What holds of queries on PostgreSQL holds of them on MariaDB."""

from oslo_db import exception as db_exc
import sqlalchemy as sa

from cellsched.db.api import models
from tests.integration.db import base
from tests.integration.db import test_queries
from tests.unit.db import recording
from tests.unit.db import test_statements


class TestStatements(base.OnMariaDB, test_queries.TestStatements):

    def test_many_rows_are_one_statement_where_none_is_there(self):
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

    def test_names_are_told_apart_by_each_character(self):
        names = ['a', 'A', '\xe4', 'a ', 'a\0', '\U0001f600', '\U0001f601']

        for name in names:
            self.add(name)

        with self.database.reader() as connection:
            self.assertEqual(sorted(names), connection.execute(
                sa.select(models.flavors.c.name)
                .order_by(models.flavors.c.name)).scalars().all())
        self.assertRaises(db_exc.DBDuplicateEntry, self.add, '\U0001f600')

    def test_text_that_is_too_long_is_refused(self):
        error = self.assertRaises(db_exc.DBDataError, self.add, 'x' * 256)

        self.assertIn("'name'", str(error))

    def test_sessions_see_what_others_committed(self):
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
    test_lists_of_any_length_are_one_statement = None


class TestDeleteCounted(base.OnMariaDB, test_queries.TestDeleteCounted):
    pass


class TestAggregates(base.OnMariaDB, test_queries.TestAggregates):
    pass


class TestAggregateChanges(base.OnMariaDB, test_queries.TestAggregateChanges):
    pass


class TestBuildRequests(base.OnMariaDB, test_queries.TestBuildRequests):
    pass


class TestLease(base.OnMariaDB, test_queries.TestLease):
    pass


class TestBatches(base.OnMariaDB, test_queries.TestBatches):
    pass


class TestClaim(base.OnMariaDB, test_queries.TestClaim):
    pass


class TestExtend(base.OnMariaDB, test_queries.TestExtend):
    pass


class TestOverdue(base.OnMariaDB, test_queries.TestOverdue):
    pass


class TestRevise(base.OnMariaDB, test_queries.TestRevise):
    pass


class TestKept(base.OnMariaDB, test_queries.TestKept):
    pass


class TestCellMappings(base.OnMariaDB, test_queries.TestCellMappings):
    pass


class TestCreateApart(base.OnMariaDB, test_queries.TestCreateApart):
    pass


class TestDecisions(base.OnMariaDB, test_queries.TestDecisions):
    pass


class TestFlavors(base.OnMariaDB, test_queries.TestFlavors):
    pass


class TestHostMappings(base.OnMariaDB, test_queries.TestHostMappings):
    pass


class TestInstanceGroups(base.OnMariaDB, test_queries.TestInstanceGroups):
    pass


class TestInstanceMappings(base.OnMariaDB, test_queries.TestInstanceMappings):
    pass


class TestRequestSpecs(base.OnMariaDB, test_queries.TestRequestSpecs):
    pass


class TestBelongings(base.OnMariaDB, test_queries.TestBelongings):
    pass


class TestBlockDevices(base.OnMariaDB, test_queries.TestBlockDevices):
    pass


class TestTags(base.OnMariaDB, test_queries.TestTags):
    pass


class TestComputeNodes(base.OnMariaDB, test_queries.TestComputeNodes):
    pass


class TestHostChanges(base.OnMariaDB, test_queries.TestHostChanges):
    pass


class TestInstanceActions(base.OnMariaDB, test_queries.TestInstanceActions):
    pass


class TestInstanceFaults(base.OnMariaDB, test_queries.TestInstanceFaults):
    pass


class TestCreate(base.OnMariaDB, test_queries.TestCreate):
    pass


class TestRead(base.OnMariaDB, test_queries.TestRead):
    pass


class TestUpdate(base.OnMariaDB, test_queries.TestUpdate):
    pass


class TestFail(base.OnMariaDB, test_queries.TestFail):
    pass


class TestDelete(base.OnMariaDB, test_queries.TestDelete):
    pass


class TestPurge(base.OnMariaDB, test_queries.TestPurge):
    pass


class TestServices(base.OnMariaDB, test_queries.TestServices):
    pass


class TestAPISurveying(base.OnMariaDB, test_queries.TestAPISurveying):
    pass


class TestCellSurveying(base.OnMariaDB, test_queries.TestCellSurveying):
    pass


class TestForget(base.OnMariaDB, test_queries.TestForget):
    pass


class TestArchiveServers(base.OnMariaDB, test_queries.TestArchiveServers):
    pass


class TestArchiveOthers(base.OnMariaDB, test_queries.TestArchiveOthers):
    pass


class TestArchivePurge(base.OnMariaDB, test_queries.TestArchivePurge):
    pass
