# SPDX-License-Identifier: Apache-2.0
"""Servers that an audit buries, with their known fields."""

from oslo_serialization import jsonutils
import sqlalchemy as sa

from cellsched.audit import auditor
from cellsched.audit import findings
from cellsched.audit import repairs
from cellsched.cells import cell0
from cellsched.db.api import build_requests
from cellsched.db.api import models
from cellsched.db.cell import instances
from cellsched.db.cell import on_host
from cellsched import exception
from cellsched import objects
from cellsched.testing import clock
from tests.unit.audit import base
from tests.unit.db import samples

Action = findings.Action


class TestCase(base.TestCase):

    def repair(self, uuid, action, repairs_=None):
        """Make one of the repairs of a server."""
        facts = self.reader.servers([uuid], everywhere=True, asked=True)[uuid]
        [found] = [each for each in auditor.judge(facts)
                   if each.action is action]
        (repairs_ or self.repairs).repair(found, facts)

    def lost(self, **fields):
        uuid = self.accept(**fields)
        self.forget(uuid)
        return uuid


class TestLost(TestCase):

    def test_lost_server_releases_its_claim(self):
        uuid = self.lost()
        self.take(uuid, 'a1')

        self.repair(uuid, Action.BURY)

        self.assertEqual({}, self.held(uuid))
        self.assertEqual('cell0', self.mapped(uuid))

    def test_lost_server_is_buried_without_a_shared_store(self):
        uuid = self.lost()
        self.take(uuid, 'a1')
        self.reader.claims = None

        self.repair(uuid, Action.BURY)

        self.assertEqual('cell0', self.mapped(uuid))
        self.assertNotEqual({}, self.held(uuid))

    def test_request_is_recorded(self):
        uuid = self.lost(project_id='whose', user_id='who')
        flavor = samples.flavor(
            id=7, vcpus=2, memory_mb=1024, root_gb=20, ephemeral_gb=5)
        self.spoil(uuid, 'request_specs', spec=jsonutils.dumps(
            objects.RequestSpec(
                instance_uuid=uuid, flavor=flavor, availability_zone='zone',
                image=objects.ImageMeta(id=uuid)).obj_to_primitive()))

        self.repair(uuid, Action.BURY)

        row = self.row(uuid, 'cell0')
        self.assertEqual(
            ('whose', 'who', f'Server {uuid}', 'error', None, None, uuid, 2,
             1024, 20, 5, 7, 'zone', flavor.flavorid),
            (row.project_id, row.user_id, row.display_name, row.vm_state,
             row.task_state, row.host, row.image_ref, row.vcpus,
             row.memory_mb, row.root_gb, row.ephemeral_gb,
             row.instance_type_id, row.availability_zone,
             self.read(self.cell('cell0'), on_host.get,
                       uuid).flavor.flavorid))
        self.assertIn('its record was lost', self.reason(uuid, 'cell0'))
        self.assertIn(uuid, self.reason(uuid, 'cell0'))

    def test_specification_may_lack_all_but_its_flavor(self):
        uuid = self.lost()

        self.repair(uuid, Action.BURY)

        row = self.row(uuid, 'cell0')
        self.assertEqual((1, None, None),
                         (row.vcpus, row.image_ref, row.availability_zone))

    def test_without_a_specification_its_owner_is_recorded(self):
        for values in ({}, {'spec': 'x'}, {'spec': jsonutils.dumps(
                objects.RequestSpec(is_bfv=True).obj_to_primitive())}):
            uuid = self.lost(project_id='whose', user_id='who')
            self.spoil(uuid, 'request_specs', **values)

            self.repair(uuid, Action.BURY)

            row = self.row(uuid, 'cell0')
            self.assertEqual(
                ('whose', 'who', f'Server {uuid}', 'error'),
                (row.project_id, row.user_id, row.display_name,
                 row.vm_state))

    def test_server_with_a_new_request_is_kept(self):
        uuid = self.lost()
        facts = self.reader.servers([uuid], everywhere=True, asked=True)[uuid]
        [found] = auditor.judge(facts)
        self.request(uuid)
        self.take(uuid, 'a1')

        self.repairs.repair(found, facts)

        self.assertIsNone(self.mapped(uuid))
        self.assertEqual(set(), self.rows(uuid))
        self.assertNotEqual({}, self.held(uuid))

    def test_unmapped_server_cannot_be_buried(self):
        uuid = self.lost()
        facts = self.reader.servers([uuid], everywhere=True, asked=True)[uuid]
        [found] = auditor.judge(facts)
        self.unmap(uuid)

        error = self.assertRaises(
            exception.InstanceMappingNotFound, self.repairs.repair, found,
            facts)

        self.assertIn(uuid, error.format_message())


class TestUnreadable(TestCase):

    def unreadable(self):
        uuid = self.accept()
        self.take(uuid, 'a1')
        self.spoil(uuid, 'request_specs')
        return uuid

    def lease(self, uuid):
        """Return the owner of a request's lease, and its seconds."""
        table = models.build_requests
        with self.database.reader() as connection:
            row = connection.execute(sa.select(table).where(
                table.c.instance_uuid == uuid)).one()
        return row.lease_owner, (
            row.lease_expires_at - self.database_clock.timestamp())

    def make_repairs(self, clock_):
        return repairs.Repairs(
            self.reader, self.targets, cell0.Cell0(
                self.database, self.cells, self.targets, clock_, 'audit'),
            clock_, 'audit')

    def test_unreadable_server_releases_its_claim(self):
        uuid = self.unreadable()

        self.repair(uuid, Action.BURY_REQUEST)

        self.assertEqual({}, self.held(uuid))
        self.assertEqual('cell0', self.mapped(uuid))
        self.assertIsNone(self.read(
            self.database, build_requests.get, uuid))

    def test_request_is_leased_while_cell0_is_down(self):
        uuid = self.unreadable()
        self.take_down('cell0')

        for _ in range(2):
            self.assertRaises(
                exception.DatabaseUnreachable, self.repairs.repair,
                findings.Finding('request-unreadable', uuid, '',
                                 action=Action.BURY_REQUEST),
                self.reader.servers([uuid])[uuid])

            owner, seconds = self.lease(uuid)
            self.assertTrue(owner)
            self.assertEqual(60, seconds)
            self.assertNotEqual({}, self.held(uuid))
            self.database_clock.advance(61)

    def test_lease_is_judged_by_the_clock_of_the_database(self):
        uuid = self.unreadable()
        now = self.database_clock.timestamp()
        self.write(self.database, build_requests.lease, [uuid], 'somebody',
                   now, now + 60)

        self.repair(uuid, Action.BURY_REQUEST, self.make_repairs(
            clock.WrongClock(600, self.clock)))

        self.assertEqual(('somebody', 60), self.lease(uuid))
        self.assertEqual(set(), self.rows(uuid))

    def test_server_deleted_meanwhile_keeps_its_claim(self):
        uuid = self.unreadable()
        facts = self.reader.servers([uuid], everywhere=True, asked=True)[uuid]
        [found] = auditor.judge(facts)
        self.forget(uuid)

        self.repairs.repair(found, facts)

        self.assertNotEqual({}, self.held(uuid))
        self.assertIsNone(self.mapped(uuid))

    def test_restored_record_releases_the_claim(self):
        uuid = self.failed()
        self.write(self.cell('cell0'), instances.purge, [uuid])
        self.take(uuid, 'a1')

        self.repair(uuid, Action.BURY)

        self.assertEqual({'cell0'}, self.rows(uuid))
        self.assertEqual({}, self.held(uuid))
