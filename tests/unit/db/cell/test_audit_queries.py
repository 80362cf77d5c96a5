# SPDX-License-Identifier: Apache-2.0

import sqlalchemy as sa

from cellsched import context
from cellsched.db.cell import audit_queries
from cellsched.db.cell import build_casts
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from cellsched.db.cell import models
from cellsched.db.cell import server_moves
from cellsched.db.cell import services
from cellsched import exception
from cellsched.objects import child_providers
from tests.unit.db.cell import base
from tests.unit.db import samples


class TestSurveying(base.TestCase):

    def setUp(self):
        super().setUp()
        # They are inserted in this order.
        self.uuids = sorted(samples.uuids(3))
        self.write(instances.create,
                   [samples.instance(uuid) for uuid in self.uuids],
                   samples.NOW)

    def row(self, uuid):
        return self.read(audit_queries.rows, [uuid])[uuid]

    def test_pages_have_undeleted_rows(self):
        self.write(instances.delete, self.uuids[1], samples.NOW)

        found, after = [], 0
        while page := self.read(audit_queries.present_after, after, 1):
            found += [uuid for _, uuid in page]
            after = page[-1][0]

        self.assertEqual([self.uuids[0], self.uuids[2]], found)
        self.assertEqual(2, self.read(audit_queries.count))

    def test_deleted_rows_are_returned(self):
        self.write(instances.delete, self.uuids[1], samples.NOW)

        rows = self.read(
            audit_queries.rows, [*self.uuids, *samples.uuids(1)])

        self.assertEqual(
            {self.uuids[0]: False, self.uuids[1]: True,
             self.uuids[2]: False},
            {uuid: row.deleted for uuid, row in rows.items()})

    def test_row_names_its_compute_node(self):
        uuid, *_ = self.uuids
        node = self.write(
            compute_nodes.save, samples.uuids(1)[0], 'host', 'node',
            samples.NODE, samples.NOW)
        self.assertEqual((None, False),
                         (self.row(uuid).provider, self.row(uuid).ran))

        self.write(samples.put, uuid, {'host': 'host', 'node': 'node'})

        self.assertEqual((node, True),
                         (self.row(uuid).provider, self.row(uuid).ran))
        self.assertEqual(
            {node: audit_queries.NodeRow('host', False, {
                'VCPU': (8, 0, 4.0), 'MEMORY_MB': (16384, 512, 1.0),
                'DISK_GB': (100, 1, 1.0)}, name='node')},
            self.read(audit_queries.nodes))

    def test_row_names_the_children_of_its_compute_node(self):
        uuid, other, unplaced = self.uuids
        one, two, gpu0, gpu1 = samples.uuids(4)
        for node, host, text in (
                (one, 'host', child_providers.dump([
                    child_providers.Child(gpu0, 'gpu0'),
                    child_providers.Child(gpu1, 'gpu1', gpu0)])),
                (two, 'plain', None)):
            self.write(compute_nodes.save, node, host, 'node',
                       samples.NODE | {'providers': text}, samples.NOW)
        self.write(samples.put, uuid, {'host': 'host', 'node': 'node'})
        self.write(samples.put, other, {'host': 'plain', 'node': 'node'})

        self.assertEqual(
            [{gpu0, gpu1}, set(), set()],
            [self.row(each).children for each in (uuid, other, unplaced)])
        self.assertEqual(
            {one: {gpu0, gpu1}, two: set()},
            {node: row.children for node, row
             in self.read(audit_queries.nodes).items()})

    def test_row_has_its_lease_owner(self):
        uuid, other, *_ = self.uuids
        self.assertEqual((None, False, False, False), self.work(uuid))

        self.write(build_casts.create, [
            build_casts.BuildCast(uuid, 'host', 'node', '{}', 1.0)])
        self.assertEqual((None, False, True, False), self.work(uuid))

        self.write(services.report, samples.uuids(1)[0], 'host',
                   services.COMPUTE, 'compute', samples.NOW)
        self.write(samples.put, uuid, {'host': 'host'})
        self.assertEqual((None, False, True, True), self.work(uuid))

        for status in server_moves.DONE, server_moves.FINISHED:
            self.move(uuid, status)
        self.assertEqual((None, True, True, True), self.work(uuid))

        self.move(uuid, server_moves.PREPARING)
        self.assertEqual(
            (('migration', 'preparing'), True, True, True), self.work(uuid))
        self.assertEqual((None, False, False, False), self.work(other))

    def move(self, uuid, status):
        self.write(server_moves.create, server_moves.Migration(
            samples.uuids(1)[0], uuid, server_moves.MIGRATION, status),
            context.admin(), samples.NOW)

    def work(self, uuid):
        row = self.row(uuid)
        return row.move, row.moving, row.cast, row.served

    def test_row_in_error_has_its_last_reason_and_its_action(self):
        uuid, *_ = self.uuids
        self.write(samples.put, uuid,
                   {'vm_state': 'error', 'task_state': None})
        self.assertEqual((None, False), (
            self.row(uuid).reason, self.row(uuid).failed_action))

        for reason in 'First.', 'Last.':
            self.write(
                instance_history.record, uuid,
                exception.NoValidHost(reason=reason), 'host', samples.NOW)
        self.write(instance_history.create_all, {uuid: context.admin()},
                   'create', samples.NOW, 'Error')

        self.assertIn('Last.', self.row(uuid).reason)
        self.assertTrue(self.row(uuid).failed_action)

    def test_successful_and_anonymous_actions_do_not_count(self):
        uuid, *_ = self.uuids
        self.write(samples.put, uuid,
                   {'vm_state': 'error', 'task_state': None})
        nobody = context.admin()
        nobody.request_id = None
        for who, message in (context.admin(), None), (nobody, 'Error'):
            self.write(instance_history.create_all, {uuid: who}, 'create',
                       samples.NOW, message)

        self.assertFalse(self.row(uuid).failed_action)

    def test_server_moves_until_its_migration_has_ended(self):
        uuid, *_ = self.uuids
        for status in (*server_moves.LIVE, server_moves.FINISHED,
                       server_moves.DONE, server_moves.ERROR):
            [name] = samples.uuids(1)
            self.write(server_moves.create, server_moves.Migration(
                name, uuid, server_moves.MIGRATION, status), context.admin(),
                samples.NOW)
            ended = status in (server_moves.DONE, server_moves.ERROR)

            self.assertEqual(not ended, self.row(uuid).moving, status)
            self.write(server_moves.advance, name, [status], server_moves.DONE,
                       samples.LATER)
        page = self.read(audit_queries.moved_after, 0, 3)
        self.assertEqual([uuid] * 3, [each for _, each in page])

    def test_only_servers_never_on_a_host_are_purged(self):
        first, second, third = self.uuids
        self.write(samples.put, second, {'host': 'host'})
        self.write(samples.put, third, {'launched_at': samples.NOW})

        self.assertEqual([True, False, False, False], [
            self.write(audit_queries.purge_unrun, uuid)
            for uuid in (first, first, second, third)])
        self.assertEqual({second, third},
                         {*self.read(audit_queries.rows, self.uuids)})

    def test_host_of_a_row_is_known_by_its_service_or_a_node(self):
        uuid, *_ = self.uuids
        self.write(samples.put, uuid, {'host': 'host', 'node': 'other'})
        self.assertFalse(self.row(uuid).known_host)

        self.write(compute_nodes.save, samples.uuids(1)[0], 'host', 'node',
                   samples.NODE, samples.NOW)
        self.write(compute_nodes.save, samples.uuids(1)[0], 'host', 'second',
                   samples.NODE, samples.NOW)
        self.assertEqual((True, None, 'other'), (
            self.row(uuid).known_host, self.row(uuid).provider,
            self.row(uuid).node))
        self.write(samples.put, uuid, {'host': 'served'})
        self.write(services.report, samples.uuids(1)[0], 'served',
                   services.COMPUTE, 'compute', samples.NOW)

        self.assertTrue(self.row(uuid).known_host)
        for since, down in ((samples.NOW, False), (samples.LATER, True)):
            self.assertEqual(down, self.read(
                audit_queries.rows, [uuid], since)[uuid].down)
        self.write(services.set_forced_down, 'served', True, samples.NOW)
        self.assertTrue(self.row(uuid).down)

    def test_live_rows_of_a_shadow_table_are_found_in_pages(self):
        table = models.instances
        self.execute(
            sa.insert(models.SHADOWS[table]).from_select(
                [column.name for column in table.columns],
                sa.select(table).order_by(table.c.id)))
        self.write(instances.delete, self.uuids[0], samples.NOW)

        found, after = [], 0
        while after is not None:
            after, page = self.read(
                audit_queries.live_in_shadow, table, after, 2)
            found += page

        self.assertEqual(self.uuids[1:], sorted(found))
