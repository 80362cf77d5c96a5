# SPDX-License-Identifier: Apache-2.0
"""Builds while an administrator cancels every statement of PostgreSQL."""

import threading

import psycopg2
import sqlalchemy as sa

from cellsched.db.api import models
from cellsched import exception
from cellsched.standalone import deployment
from tests.functional import base as stories
from tests.integration import base
from tests.integration import servers
from tests.integration import serving
from tests import profile

CANCEL = '''
    SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND state <> 'idle'
    AND backend_type = 'client backend'
'''

#: Sessions to cancel, and the threads that create servers meanwhile.
CANCELLED, THREADS, EACH = 150, 10, 5


@profile.full_only('a server of its own; unit tests prove each retry')
class TestCancelledStatements(stories.TestCase, base.TestCase):

    def setUp(self):
        super().setUp()
        self.server = self.own(servers.PostgreSQL)
        self.database_url = self.server.url
        # With the intervals that services have by default.
        self.world = deployment.Deployment(
            self.temporary_directory(), [
                deployment.DeployedCell(name, [
                    deployment.DeployedHost(
                        f'{name}-{number}', vcpus=32, memory_mb=32768,
                        disk_gb=1000) for number in range(2)])
                for name in ('cell1', 'cell2')],
            database_url=self.database_url)
        self.world.start()
        self.addCleanup(self.world.stop)
        self.world.api.flavors.create(stories.ADMIN, 'small', 1, 512, 10)

    def cancel(self):
        """Cancel sessions until enough were cancelled."""
        connection = psycopg2.connect(
            host=serving.ADDRESS, port=self.server.port['sql'],
            user='postgres', dbname='postgres')
        connection.autocommit = True
        cancelled = 0
        with connection.cursor() as cursor:
            while cancelled < CANCELLED:
                cursor.execute(CANCEL)
                cancelled += cursor.fetchone()[0]
                stories.CLOCK.sleep(0.005)
        connection.close()

    def create_some(self, uuids):
        for _ in range(EACH):
            while True:
                try:
                    uuids += self.create()
                    break
                except exception.DATABASE_UNAVAILABLE:
                    stories.CLOCK.sleep(0.05)

    def test_builds_continue_after_cancelled_statements(self):
        uuids = []
        threads = [
            threading.Thread(target=self.cancel),
            *(threading.Thread(target=self.create_some, args=(uuids,))
              for _ in range(THREADS))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        found = self.settled(uuids)

        self.assertEqual(THREADS * EACH, len(found))
        self.assertEqual({'ACTIVE'}, {each.status for each in found})
        self.assertClaimsMatch()
        with self.world.api.parts.database.reader() as connection:
            self.assertEqual([], connection.execute(
                sa.select(models.build_requests.c.instance_uuid)).all())
