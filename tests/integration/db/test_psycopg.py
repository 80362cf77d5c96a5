# SPDX-License-Identifier: Apache-2.0
"""What holds of databases by psycopg2 holds of them by psycopg 3.

Each statement is prepared when it is first executed, which is otherwise for
what a process does often.
"""

import sqlalchemy as sa

from cellsched import clock
from cellsched.db import session
from tests.integration.db import base
from tests.integration.db import test_errors
from tests.integration.db import test_feeds
from tests.integration.db import test_guarded_statements
from tests.integration.db import test_queries
from tests.integration import servers
from tests import profile
from tests.unit.db.api import test_instance_mappings


second_driver = profile.full_only(
    'a second driver; the rules are proven with psycopg2')


class ByPsycopg:

    parameters = 'prepare_threshold=0'

    by_driver = staticmethod(servers.by_psycopg)


@second_driver
class TestErrors(ByPsycopg, test_errors.TestErrors):
    pass


@second_driver
class TestHosts(ByPsycopg, test_feeds.TestHosts):
    pass


@second_driver
class TestAggregates(ByPsycopg, test_feeds.TestAggregates):
    pass


@second_driver
class TestStatements(ByPsycopg, test_queries.TestStatements):
    pass


@second_driver
class TestInList(ByPsycopg, test_queries.TestInList):
    pass


@second_driver
class TestInstanceMappings(
        ByPsycopg, base.APITestCase,
        test_instance_mappings.TestInstanceMappings):
    pass


@second_driver
class TestRefusing(ByPsycopg, test_guarded_statements.TestRefusing):
    pass


@second_driver
class TestEachAlone(ByPsycopg, test_guarded_statements.TestEachAlone):
    pass


class TestPreparing(ByPsycopg, base.APITestCase):

    def prepared(self, parameters, times):
        """Return how many statements are prepared after some calls."""
        database = session.Database(self.database.url, 'API', {
            'max_pool_size': 1, 'connection_parameters': parameters},
            clock=clock.Clock())
        self.addCleanup(database.close)
        for _ in range(times):
            with database.reader() as connection:
                found = connection.execute(sa.text(
                    'SELECT count(*) FROM pg_prepared_statements'))
        return found.scalar_one()

    def test_frequent_statements_are_prepared(self):
        self.assertEqual(0, self.prepared('', 2))
        self.assertEqual(1, self.prepared('', 10))

    def test_threshold_can_be_set(self):
        self.assertEqual(1, self.prepared('prepare_threshold=1', 3))
        self.assertEqual(0, self.prepared('prepare_threshold=20', 10))

    def test_statements_are_not_prepared_if_disabled(self):
        self.assertEqual(0, self.prepared('prepare_threshold=none', 20))
