# SPDX-License-Identifier: Apache-2.0
"""Queries for the services of a cell."""

import sqlalchemy as sa

from cellsched.db.cell import hosts
from cellsched.db.cell import models
from cellsched.db.cell import services
from cellsched import exception
from tests.unit.db.cell import base
from tests.unit.db import samples
from tests.unit import racing


class TestServices(base.TestCase):

    def report(self, host='host', binary=services.COMPUTE, topic='compute',
               now=samples.NOW, **options):
        self.write(services.report, samples.uuids(1)[0], host, binary, topic,
                   now, **options)

    def rows(self):
        return self.fetch(
            sa.select(models.services).order_by(models.services.c.id))

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

    def test_report_updates_a_known_service(self):
        self.report()
        before, = self.rows()

        self.report(now=samples.LATER)

        after, = self.rows()
        self.assertEqual((before.id, before.uuid), (after.id, after.uuid))
        self.assertEqual(before.created_at, after.created_at)
        self.assertEqual(samples.LATER, after.last_seen_up)
        self.assertEqual(2, after.report_count)

    def states(self, seen=samples.NOW):
        return {(row.host, row.binary): row.state
                for row in self.read(services.list_all, seen)}

    def test_state_follows_the_last_report_or_the_stop(self):
        self.report('old')
        self.report('new', now=samples.LATER)
        self.report('forced', now=samples.LATER)
        self.write(services.set_forced_down, 'forced', True, samples.LATER)
        self.report('ended', services.CONDUCTOR, 'conductor', samples.LATER)
        self.write(services.stop, 'ended', services.CONDUCTOR, samples.LATER)

        self.assertEqual(
            {('old', services.COMPUTE): 'down',
             ('new', services.COMPUTE): 'up',
             ('forced', services.COMPUTE): 'down',
             ('ended', services.CONDUCTOR): 'stopped'}, self.states())

    def test_report_after_a_stop_is_up_again(self):
        self.report('a', services.SCHEDULER, 'scheduler', samples.LATER)
        self.write(services.stop, 'a', services.SCHEDULER, samples.LATER)
        self.report('a', services.SCHEDULER, 'scheduler', samples.LATER)

        self.assertEqual({('a', services.SCHEDULER): 'up'}, self.states())

    def test_services_are_counted_by_binary_and_state(self):
        for host, now in (('a', samples.LATER), ('b', samples.LATER),
                          ('c', samples.NOW), ('d', samples.NOW)):
            self.report(host, now=now)
        self.report('a', services.CONDUCTOR, 'conductor')
        self.write(services.set_disabled, 'd', True, None, samples.NOW)

        self.assertEqual(
            {(services.COMPUTE, 'up'): 2, (services.COMPUTE, 'down'): 1,
             (services.COMPUTE, 'disabled'): 1,
             (services.CONDUCTOR, 'down'): 1},
            self.read(services.count, samples.NOW))

    def test_service_in_state_up_is_not_deleted(self):
        self.report('a', services.CONDUCTOR, 'conductor', samples.LATER)
        self.report('a', now=samples.LATER)
        delete = (services.delete, 'a', services.CONDUCTOR, samples.LATER)

        self.assertFalse(self.write(*delete, samples.NOW))
        self.assertTrue(self.write(*delete, samples.LATER))

        self.assertEqual({('a', services.COMPUTE): 'up'}, self.states())

    def lowest(self):
        return self.read(services.lowest_version, services.COMPUTE)

    def test_service_has_the_version_of_its_last_report(self):
        for version in (3, 4, 2):
            self.report(version=version)

            self.assertEqual([version], [row.version for row in self.rows()])

    def test_lowest_version_is_of_any_compute_host(self):
        self.assertIsNone(self.lowest())
        for host, version in ('a', 4), ('b', 3), ('c', 5):
            self.report(host, version=version)
        self.report('d', 'nova-conductor', 'conductor', version=1)

        self.assertEqual(3, self.lowest())

    def test_services_without_a_version_do_not_count(self):
        self.report('a')
        self.assertIsNone(self.lowest())
        self.report('b', version=2)

        self.assertEqual(2, self.lowest())

    def test_deleted_services_do_not_count(self):
        for host, version in ('deleted', 1), ('down', 2), ('here', 3):
            self.report(host, version=version)
        self.write(hosts.delete, 'deleted', samples.NOW)
        self.write(services.set_forced_down, 'down', True, samples.NOW)

        self.assertEqual(3, self.lowest())

    def test_service_without_a_state_counts(self):
        self.report(version=3)
        self.execute(sa.update(models.services).values(forced_down=None))

        self.assertEqual(3, self.lowest())

    def test_report_keeps_the_settings_of_operators(self):
        self.report()
        self.write(services.set_disabled, 'host', True, 'broken', samples.NOW)
        self.write(services.set_forced_down, 'host', True, samples.NOW)

        self.report()

        row, = self.rows()
        self.assertTrue(row.disabled)
        self.assertEqual('broken', row.disabled_reason)
        self.assertTrue(row.forced_down)

    def test_enabled_service_has_no_reason(self):
        self.report()
        self.write(services.set_disabled, 'host', True, 'broken', samples.NOW)
        self.write(services.set_forced_down, 'host', True, samples.NOW)

        self.write(services.set_disabled, 'host', False, 'mended',
                   samples.LATER)
        self.write(services.set_forced_down, 'host', False, samples.LATER)

        row, = self.rows()
        self.assertFalse(row.disabled)
        self.assertIsNone(row.disabled_reason)
        self.assertFalse(row.forced_down)
        self.assertEqual(samples.LATER, row.updated_at)

    def test_only_compute_services_are_set(self):
        self.report()
        self.report('other')
        self.report(binary='nova-conductor', topic='conductor')

        self.write(services.set_disabled, 'host', True, None, samples.NOW)
        self.write(services.set_forced_down, 'host', True, samples.NOW)

        self.assertEqual(
            [(True, True), (False, False), (False, False)],
            [(row.disabled, row.forced_down) for row in self.rows()])

    def test_host_without_a_compute_service_is_an_error(self):
        self.report(binary='nova-conductor', topic='conductor')

        for query, *arguments in (
                (services.set_disabled, 'host', True, 'broken'),
                (services.set_forced_down, 'host', True)):
            error = self.assertRaises(
                exception.ServiceNotFound, self.write, query, *arguments,
                samples.NOW)
            self.assertIn("Host 'host' has no service nova-compute",
                          str(error))

    def test_hosts_are_listed_by_binary(self):
        for host in 'host', 'other', 'gone':
            self.report(host)
        self.report('third', 'nova-conductor', 'conductor')
        self.write(hosts.delete, 'gone', samples.NOW)

        self.assertEqual(
            ['host', 'other'],
            self.read(services.list_hosts, services.COMPUTE))

    def test_deleted_service_is_created_by_the_next_report(self):
        self.report()
        self.write(hosts.delete, 'host', samples.NOW)

        self.report()

        gone, back = self.rows()
        self.assertEqual((gone.id, 0), (gone.deleted, back.deleted))
        self.assertNotEqual(gone.uuid, back.uuid)

    def test_simultaneous_reports_create_a_single_service(self):
        self.assertEqual([None] * 6, racing.race(*[self.report] * 6))
        self.assertEqual(1, len(self.rows()))
