# SPDX-License-Identifier: Apache-2.0

import sqlalchemy as sa

from cellsched.db.api import aggregates
from cellsched.db.api import audit_queries
from cellsched.db.api import build_requests
from cellsched.db.api import instance_groups
from cellsched.db.api import instance_mappings
from cellsched.db.api import leases
from cellsched.db.api import models
from cellsched.db.api import shared_providers
from cellsched import objects
from tests.unit.db.api import base
from tests.unit.db import samples


class TestSurveying(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cell = samples.map_cell(self.database, samples.cell())
        self.uuids = samples.uuids(5)
        samples.accept(self.database, self.uuids)

    def test_pages_contain_each_row_once(self):
        for query in audit_queries.mapped_after, audit_queries.requested_after:
            found, after = [], 0
            while page := self.read(query, after, 2):
                self.assertLessEqual(len(page), 2)
                found += [uuid for _, uuid in page]
                after = page[-1][0]
            self.assertEqual(self.uuids, found)
        self.assertEqual(5, self.read(audit_queries.count))

    def test_mappings_have_their_cells_and_deletion_flags(self):
        first, second, third, *_ = self.uuids
        self.write(instance_mappings.decide, [first], self.cell.id,
                   samples.NOW)
        self.write(instance_mappings.mark_deleted, [second], samples.NOW)

        self.assertEqual({
            first: audit_queries.MappingRow(
                self.cell.uuid, False, 'project', 'user'),
            second: audit_queries.MappingRow(None, True, 'project', 'user'),
            third: audit_queries.MappingRow(None, False, 'project', 'user'),
        }, self.read(audit_queries.mappings,
                     [first, second, third, *samples.uuids(1)]))

    def test_specifications_are_returned_as_stored(self):
        first, second, third, *_ = self.uuids
        self.write(samples.spoil, first, 'request_specs', spec='nonsense')
        self.write(samples.spoil, second, 'request_specs')

        found = self.read(audit_queries.specs, [first, second, third])

        self.assertEqual({first, third}, {*found})
        self.assertEqual('nonsense', found[first])
        self.assertIn(third, found[third])

    def test_mapping_is_changed_only_from_the_expected_cell(self):
        first, deleted, *_ = self.uuids
        other = samples.map_cell(self.database, samples.cell('other'))
        self.write(instance_mappings.decide, [first, deleted], self.cell.id,
                   samples.NOW)
        self.write(instance_mappings.mark_deleted, [deleted], samples.NOW)

        def remap(uuid):
            return self.write(audit_queries.remap, uuid, self.cell.uuid,
                              other.id, samples.NOW)

        self.assertEqual((True, False, False), (
            remap(first), remap(first), remap(deleted)))
        self.assertEqual(other.uuid, self.read(
            audit_queries.mappings, [first])[first].cell)

    def test_request_of_no_server_is_passed_over(self):
        lost, *others = self.uuids
        self.write(samples.spoil, lost, 'build_requests', instance='x',
                   instance_uuid=None)

        self.assertEqual(others, [
            uuid for _, uuid in self.read(
                audit_queries.requested_after, 0, 9)])
        self.assertEqual(others, [
            each.instance_uuid for each in self.read(
                build_requests.list_all)])
        self.assertEqual(others, [each.uuid for each in self.read(
            leases.list_overdue,
            leases.LeaseDeadline(1e10, samples.LATER), 9)])

    def test_leased_request_is_not_deleted(self):
        first, second, *_ = self.uuids
        self.write(build_requests.lease, [first, second], 'me', 100.0, 160.0)

        self.assertFalse(self.write(audit_queries.forget, first, 159.0))
        self.assertTrue(self.write(audit_queries.forget, first, 160.0))
        self.assertFalse(self.write(audit_queries.forget, first, 160.0))
        self.assertTrue(self.write(audit_queries.forget, self.uuids[4], 0.0))

    def test_server_is_mapped_once(self):
        [uuid] = samples.uuids(1)

        for expected in True, False:
            self.assertEqual(expected, self.write(
                audit_queries.map_missing, uuid, 'project', None, samples.NOW))
        self.assertEqual(
            ('project', None), self.read(audit_queries.owner, uuid))
        self.assertEqual(audit_queries.MappingRow(None, False, 'project'),
                         self.write(audit_queries.lock, uuid))

    def test_unknown_server_has_no_owner_and_no_lock(self):
        [unknown] = samples.uuids(1)
        for query in audit_queries.owner, audit_queries.lock:
            self.assertIsNone(self.read(query, unknown))

    def test_requests_can_be_written_while_another_is_locked(self):
        with audit_queries.holding(self.database) as connection:
            audit_queries.lock(connection, self.uuids[0])
            self.assertTrue(
                self.write(audit_queries.forget, self.uuids[1], 0.0))

    def test_groups_of_servers_are_read_together(self):
        one, two, *_ = self.uuids
        groups = [objects.InstanceGroup(
            uuid=uuid, name='group', project_id='project', user_id='user',
            policy='affinity', rules={}) for uuid in samples.uuids(2)]
        for group in groups:
            self.write(instance_groups.create, group, samples.NOW)
        found = self.read(instance_groups.find_many, [
            *(group.uuid for group in groups), *samples.uuids(1)])
        for group in found.values():
            self.write(instance_groups.add_members, group.id, [one],
                       samples.NOW)

        self.assertEqual({group.uuid for group in groups}, found.keys())
        self.assertEqual({one: frozenset(found)}, self.read(
            audit_queries.groups_of, [one, two]))
        self.assertEqual([one, one], [uuid for _, uuid in self.read(
            audit_queries.members_after, 0, 3)])

    def test_sharing_provider_of_an_unknown_aggregate_is_found(self):
        aggregate, lost, pool, other = samples.uuids(4)
        self.write(aggregates.create, aggregate, 'rack', [], {}, samples.NOW)
        for uuid, name in (pool, 'pool'), (other, 'other'):
            self.write(shared_providers.create,
                       shared_providers.SharedProvider(uuid, name, aggregate),
                       samples.NOW)
        table = models.shared_providers
        self.execute(
            sa.update(table).where(table.c.uuid == pool)
            .values(aggregate_uuid=lost))

        self.assertEqual(
            [(pool, lost)], self.read(audit_queries.unknown_aggregates))

    def test_leases_ending_after_a_time_are_ended(self):
        one, two, *_ = self.uuids
        for uuid, end in (one, 1e9), (two, 4e9):
            self.write(build_requests.lease, [uuid], 'owner', 0.0, end)
        self.write(leases.elect, 'task', 'leader', 0.0, 3e9)

        self.assertEqual(
            [('task', 'leader', 3e9), (two, 'owner', 4e9)],
            self.read(audit_queries.leases_after, 2e9, 5))

        self.write(audit_queries.end_leases_after, 2e9, 1e9)

        self.assertEqual([], self.read(audit_queries.leases_after, 1e9, 5))
        self.assertEqual(
            3, len(self.read(audit_queries.leases_after, 0.0, 5)))
