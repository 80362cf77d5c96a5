# SPDX-License-Identifier: Apache-2.0
"""What the checks of references leave alone; faults are in the functional
test of corrupted records.
"""

import sqlalchemy as sa

from cellsched.claims import base as claims_base
from cellsched.db.api import host_mappings
from cellsched.db.api import instance_groups
from cellsched.db.api import models as api_models
from cellsched.db.cell import compute_nodes
from cellsched.db.cell import models
from cellsched.db.cell import services
from cellsched import objects
from cellsched.objects import child_providers
from tests.unit.audit import base
from tests.unit.db import recording
from tests.unit.db import samples


class TestConsumers(base.TestCase):

    def kinds(self, **how):
        report = self.audit(**how)
        return [(each.kind, each.of) for each in report.remaining], report

    def test_unknown_consumer_is_found_and_keeps_its_claim(self):
        self.running()
        [unknown] = samples.uuids(1)
        self.take(unknown, 'a2')

        found, report = self.kinds(fix=True, foreign=False)

        self.assertEqual(
            ([('consumer-unknown', unknown)], 0), (found, report.foreign))
        self.assertNotEqual({}, self.held(unknown))

    def test_consumers_are_foreign_without_known_servers(self):
        [unknown] = samples.uuids(1)
        self.take(unknown, 'a2')

        found, report = self.kinds(foreign=False)

        self.assertEqual(([], 1), (found, report.foreign))

    def test_unknown_consumer_is_no_finding_while_a_cell_is_silent(self):
        self.running()
        [unknown] = samples.uuids(1)
        self.take(unknown, 'a2')
        self.take_down('cell2')

        found, report = self.kinds(foreign=False)

        self.assertEqual(
            ([('cell-unreachable', self.by_name['cell2'].uuid)], 1),
            (found, report.foreign))

    def test_unmapped_server_is_no_unknown_consumer(self):
        self.running()
        uuid = self.running()
        self.unmap(uuid)

        found, _ = self.kinds(foreign=False)

        self.assertEqual([('row-unmapped', uuid)], found)

    def test_migration_begun_during_the_audit_is_known(self):
        uuid = self.running()
        begin = [lambda: self.take(self.move(uuid), 'a2'),
                 lambda: self.change_row(
                     uuid, 'cell1', task_state='resize_prep')]
        size = self.auditor.size()

        def progress(done):
            while done == size and begin:
                begin.pop()()

        report = self.auditor.run(0, progress=progress)

        self.assertEqual(([], []), (begin, report.remaining))


class TestCost(base.TestCase):

    def test_statements_do_not_grow_with_the_servers_of_a_page(self):
        def statements(count):
            uuids = [self.running() for _ in range(count)]
            with (recording.recorded(self.database) as above,
                  recording.recorded(self.cell('cell1')) as below):
                self.reader.servers(uuids, asked=True)
            return len(above), len(below)

        self.offer('cell1', 'a1', 10)
        # The first one reads the cells and the sharing providers.
        statements(1)

        self.assertEqual(statements(1), statements(5))


class TestHosts(base.TestCase):

    def test_mapped_host_of_a_silent_cell_is_no_finding(self):
        self.write(self.database, host_mappings.create_missing, ['x'],
                   self.by_name['cell1'].id, samples.NOW)
        self.assertFound(('S3', 'host-mapping-unknown', 'x', 'cell1'))

        self.take_down('cell1')

        self.assertFound(('S2', 'cell-unreachable',
                          self.by_name['cell1'].uuid, 'cell1'))

    def test_host_with_a_service_and_no_node_exists(self):
        self.write(self.database, host_mappings.create_missing, ['x'],
                   self.by_name['cell1'].id, samples.NOW)
        self.write(self.cell('cell1'), services.report, samples.uuids(1)[0],
                   'x', services.COMPUTE, 'compute', samples.NOW)

        self.assertClean()

    def test_new_node_without_service_and_inventory_is_no_finding(self):
        self.write(self.cell('cell1'), compute_nodes.save,
                   samples.uuids(1)[0], 'new', 'node-new', samples.NODE,
                   samples.NOW)

        self.assertClean()


class TestArchive(base.TestCase):

    def test_node_restored_after_its_archival_is_no_finding(self):
        table = models.compute_nodes
        shadow = models.SHADOWS[table]
        columns = [column.name for column in table.columns]
        with self.cell('cell1').writer() as connection:
            connection.execute(sa.insert(shadow).from_select(
                columns, sa.select(table)))
            connection.execute(sa.update(table).where(
                table.c.host == 'a1').values(created_at=samples.LATER))

        self.assertFound(
            ('S3', 'row-archived', self.providers['a2'], 'cell1'))

    def test_deleted_server_in_the_shadow_table_is_no_finding(self):
        uuid = self.deleted()
        table = models.instances
        with self.cell('cell1').writer() as connection:
            connection.execute(sa.insert(models.SHADOWS[table]).from_select(
                [column.name for column in table.columns], sa.select(table)))
        self.claims.release([uuid])

        self.assertClean()


class TestGroups(base.TestCase):

    def member(self, policy='anti-affinity'):
        """Return a server, and the group that its request names."""
        uuid = self.running()
        group = objects.InstanceGroup(
            uuid=samples.uuids(1)[0], name='g', project_id='project',
            user_id='user', policy=policy, rules={})
        self.join(group, uuid)
        spec = objects.RequestSpec(
            instance_uuid=uuid, flavor=samples.flavor(), instance_group=group)
        self.spoil(uuid, 'request_specs', spec=base.text(spec))
        self.claims.release([uuid])
        self.claims.claim([claims_base.Claim(
            uuid, self.providers['a1'], base.SIZE,
            claims_base.membership(group, 'a1', uuid), 'project')])
        return uuid, group

    def test_member_of_a_deleted_group_is_no_finding(self):
        _, group = self.member()
        self.assertClean()

        self.write(self.database, instance_groups.delete, group.uuid)

        self.assertClean()

    def test_member_of_a_group_with_a_soft_policy_claims_as_none(self):
        self.member('soft-anti-affinity')

        self.assertClean()

    def test_member_is_added_to_its_group(self):
        uuid, _ = self.member()
        with self.database.writer() as connection:
            connection.execute(
                sa.delete(api_models.instance_group_member))

        self.assertMends(('S8', 'group-member-missing', uuid, 'cell1'))

    def test_stranded_deletion_leaves_no_member(self):
        uuid, _ = self.member()
        self.change_row(
            uuid, 'cell1', task_state='deleting', host=None, node=None)

        self.assertMends(('L1', 'deleting-stranded', uuid, 'cell1'))

    def test_membership_of_a_moving_server_is_no_finding(self):
        uuid, _ = self.member()
        held = self.claims.claims_of([uuid])[uuid]
        self.claims.release([uuid])
        self.claims.claim(held)
        self.assertFound(('S8', 'member-claim', uuid, 'cell1'))

        self.change_row(uuid, 'cell1', task_state='resize_prep')
        self.move(uuid)

        self.assertClean()


class TestProviders(base.TestCase):

    def test_child_of_two_nodes_is_a_finding(self):
        [child] = samples.uuids(1)
        text = child_providers.dump([child_providers.Child(child, 'gpu')])
        for cell, host in ('cell1', 'a1'), ('cell2', 'b1'):
            with self.cell(cell).writer() as connection:
                connection.execute(
                    sa.update(models.compute_nodes)
                    .where(models.compute_nodes.c.host == host)
                    .values(providers=text))

        self.assertKept(('S1', 'provider-twice', child, ''))

    def test_store_without_trees_has_no_finding(self):
        for name in base.CELLS:
            self.write(self.cell(name), compute_nodes.mark_mapped,
                       self.providers.values())
        self.assertEqual({}, self.claims.roots(self.providers.values()))

        self.assertClean()

    def test_child_provider_in_the_tree_of_another_node_is_a_finding(self):
        [child] = samples.uuids(1)
        with self.cell('cell1').writer() as connection:
            connection.execute(
                sa.update(models.compute_nodes)
                .where(models.compute_nodes.c.host == 'a1')
                .values(providers=child_providers.dump(
                    [child_providers.Child(child, 'gpu')])))
        for provider in self.providers.values():
            self.claims.set_traits(provider, [], provider)
        self.claims.set_traits(child, [], self.providers['b1'])

        self.assertKept(('S1', 'provider-root', child, ''))


class TestLeases(base.TestCase):

    def test_lease_of_an_hour_is_no_finding(self):
        now = self.database.timestamp()
        for name, lasts_s in ('short', 3600), ('long', 10 ** 6):
            with self.database.writer() as connection:
                connection.execute(sa.insert(api_models.leaders).values(
                    name=name, owner='x', expires_at=now + lasts_s))

        self.assertMends(('L1', 'lease-excess', 'long', ''))

        with self.database.reader() as connection:
            ends = {row.name: row.expires_at for row in connection.execute(
                sa.select(api_models.leaders))}
        self.assertEqual(now + 3600, ends['short'])
        self.assertLessEqual(ends['long'], self.database.timestamp())
