# SPDX-License-Identifier: Apache-2.0
"""Queries for the services of a cell."""

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.db.cell import services
from tests.unit.db.cell import base
from tests.unit.db import samples
from tests.unit import racing


class TestServices(base.TestCase):

    def report(self, host='host', binary=services.COMPUTE, topic='compute',
               now=samples.NOW):
        return self.write(services.report, samples.uuids(1)[0], host, binary,
                          topic, now)

    def rows(self):
        return self.read(lambda connection: connection.execute(
            sa.select(models.services).order_by(models.services.c.id)).all())

    def test_new_service_is_up_and_enabled(self):
        self.report()

        row, = self.rows()

        self.assertEqual(('host', 'nova-compute', 'compute'),
                         (row.host, row.binary, row.topic))
        self.assertEqual(samples.NOW, row.last_seen_up)
        self.assertEqual(1, row.report_count)
        self.assertFalse(row.disabled)
        self.assertFalse(row.forced_down)
        self.assertEqual(0, row.deleted)

    def test_known_service_is_seen_again(self):
        first = self.report()
        before, = self.rows()

        self.assertEqual(first, self.report(now=samples.LATER))

        after, = self.rows()
        self.assertEqual(before.uuid, after.uuid)
        self.assertEqual(before.created_at, after.created_at)
        self.assertEqual(samples.LATER, after.last_seen_up)
        self.assertEqual(2, after.report_count)

    def test_report_leaves_what_operators_set(self):
        self.report()
        self.write(lambda connection: connection.execute(
            sa.update(models.services).values(
                disabled=True, forced_down=True)))

        self.report()

        row, = self.rows()
        self.assertTrue(row.disabled)
        self.assertTrue(row.forced_down)

    def test_hosts_and_binaries_are_services_of_their_own(self):
        numbers = {self.report(), self.report('other'),
                   self.report(binary='nova-conductor', topic='conductor')}

        self.assertEqual(3, len(numbers))

    def test_hosts_are_listed_by_binary(self):
        first = self.report()
        for host in 'other', 'gone':
            last = self.report(host)
        self.report('third', 'nova-conductor', 'conductor')
        self.write(lambda connection: connection.execute(
            sa.update(models.services).values(deleted=last)
            .where(models.services.c.id == last)))

        self.assertEqual(
            ['host', 'other'],
            self.read(services.list_hosts, services.COMPUTE))
        self.assertLess(first, last)

    def test_service_that_was_deleted_is_new_again(self):
        first = self.report()
        self.write(lambda connection: connection.execute(
            sa.update(models.services).values(deleted=first)))

        self.assertNotEqual(first, self.report())

    def test_service_that_reports_at_once_is_one(self):
        self.assertEqual([1] * 6, racing.race(*[self.report] * 6))
        self.assertEqual(1, len(self.rows()))
