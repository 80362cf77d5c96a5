# SPDX-License-Identifier: Apache-2.0

from cellsched.db.api import build_requests
from cellsched.db.api import instance_mappings
from cellsched.db.cell import instance_history
from cellsched.db.cell import instances
from tests.unit.audit import base
from tests.unit.db import samples


class TestValidStates(base.TestCase):

    def test_valid_states_have_no_finding(self):
        self.running()
        self.running('cell2', 'b1')
        self.failed()
        self.failed('cell2', action=False)
        self.claims.release([self.deleted()])

        self.assertClean()
        # Nothing had to be looked at again.
        self.assertEqual([], self.clock.slept)

    def test_builds_in_progress_have_no_finding(self):
        self.accept()
        decided = self.accept()
        self.decide(decided, 'cell1')
        written = self.accept()
        self.take(written, 'a1')
        self.decide(written, 'cell1')
        self.put_row(written, 'cell1')
        buried = self.accept()
        self.decide(buried, 'cell0')

        self.assertClean()

    def test_deletion_in_progress_has_no_finding(self):
        uuid = self.running()
        self.write(self.database, instance_mappings.mark_deleted, [uuid],
                   samples.NOW)
        self.change_row(uuid, 'cell1', task_state='deleting')

        self.assertClean()


class TestUnmapped(base.TestCase):

    def test_request_without_mapping_is_mapped(self):
        uuid = self.accept()
        self.unmap(uuid)

        self.assertMends(('S3', 'request-unmapped', uuid, ''))

    def test_unmapped_row_is_mapped_to_its_cell(self):
        uuid = self.running('cell2', 'b1')
        self.unmap(uuid)

        self.assertMends(('S3', 'row-unmapped', uuid, 'cell2'))

        mapping = self.read(
            self.database, instance_mappings.get_many, [uuid])[uuid]
        self.assertEqual(
            ('cell2', 'project', 'user'),
            (mapping.cell_mapping.name, mapping.project_id, mapping.user_id))


class TestDeleted(base.TestCase):

    def test_request_of_a_deleted_server_goes(self):
        uuid = self.accept()
        self.write(self.database, instance_mappings.mark_deleted, [uuid],
                   samples.NOW)

        self.assertMends(('S2', 'request-of-deleted', uuid, ''))

    def test_row_of_a_deleted_server_without_a_host_is_removed(self):
        uuid = self.failed('cell1')
        self.write(self.database, instance_mappings.mark_deleted, [uuid],
                   samples.NOW)

        self.assertMends(('S2', 'deleted-visible', uuid, 'cell1'))


class TestRequested(base.TestCase):

    def test_request_of_a_running_server_is_removed(self):
        uuid = self.running()
        self.request(uuid)

        self.assertMends(('S2', 'request-left', uuid, 'cell1'))

    def test_leased_request_of_a_running_server_stays(self):
        uuid = self.running()
        self.request(uuid)
        self.write(self.database, build_requests.lease, [uuid], 'somebody',
                   self.clock.timestamp(), self.clock.timestamp() + 60)

        self.assertFound(('S2', 'request-left', uuid, 'cell1'), fix=True)


class TestUnreadable(base.TestCase):

    def broken(self):
        """Yield requests that are broken, each in its way, and the reason."""
        for table, values, reason in (
                ('build_requests', {'instance': 'x'}, 'cannot be read'),
                ('request_specs', {'spec': 'x'}, 'cannot be read'),
                ('request_specs', {}, 'is missing')):
            uuid = self.accept()
            self.spoil(uuid, table, **values)
            yield uuid, reason

    def test_deleted_server_is_looked_for_in_every_cell(self):
        for waits, shows in ('cell1', 'cell2'), ('cell2', 'cell1'):
            uuid = self.running(waits, 'a1' if waits == 'cell1' else 'b1')
            self.put_row(uuid, shows, vm_state='active', task_state=None)
            self.change_row(uuid, waits, task_state='deleting')
            self.write(self.database, instance_mappings.mark_deleted, [uuid],
                       samples.NOW)

            self.assertMends(('S2', 'deleted-visible', uuid, shows))

    def test_invalid_request_is_buried_with_the_reason(self):
        made = dict(self.broken())
        for uuid in made:
            self.take(uuid, 'a1')

        self.assertMends(*(
            ('S2', 'request-unreadable', uuid, '') for uuid in made))

        for uuid, reason in made.items():
            self.assertEqual('cell0', self.mapped(uuid))
            self.assertIn(reason, self.reason(uuid, 'cell0'))
            row = self.row(uuid, 'cell0')
            self.assertEqual(('project', 'user'),
                             (row.project_id, row.user_id))
            self.assertEqual({}, self.held(uuid))

    def test_request_of_a_later_release_is_reported_only(self):
        uuid = self.accept()
        self.spoil(uuid, 'request_specs', spec=(
            '{"nova_object.name": "RequestSpec", "nova_object.namespace": '
            '"nova", "nova_object.version": "99.0", "nova_object.data": {}}'))

        report = self.assertFound(
            ('S2', 'request-unreadable', uuid, ''), fix=True)

        self.assertIn('start conductors', report.remaining[0].repair)
        self.assertEqual(set(), self.rows(uuid))

    def test_leased_invalid_request_is_not_buried(self):
        made = dict(self.broken())
        self.write(self.database, build_requests.lease, made, 'somebody',
                   self.clock.timestamp(), self.clock.timestamp() + 60)

        self.assertFound(*(
            ('S2', 'request-unreadable', uuid, '') for uuid in made),
            fix=True)

        for uuid in made:
            self.assertEqual(set(), self.rows(uuid))

    def test_server_without_any_fate_or_specification_is_buried(self):
        uuid = self.accept()
        self.forget(uuid)
        self.spoil(uuid, 'request_specs', spec='x')

        self.assertMends(('S2', 'no-fate', uuid, ''))

    def test_invalid_request_does_not_stop_the_audit(self):
        made = dict(self.broken())
        leaked = self.deleted()

        self.assertFound(
            *(('S2', 'request-unreadable', uuid, '') for uuid in made),
            ('S4', 'claim-leaked', leaked, 'cell1'))


class TestUndecided(base.TestCase):

    def test_server_without_any_fate_is_buried_with_the_reason(self):
        uuid = self.accept()
        self.take(uuid, 'a1')
        self.forget(uuid)

        self.assertMends(('S2', 'no-fate', uuid, ''))

        self.assertEqual({'cell0'}, self.rows(uuid))
        [reason] = self.read(self.cell('cell0'), instance_history.latest,
                             [uuid]).values()
        self.assertIn('lost', reason)
        self.assertEqual({}, self.claims.claims_of([uuid]))
        flavor = samples.instance(uuid).flavor
        row = self.row(uuid, 'cell0')
        self.assertEqual(
            (flavor.vcpus, flavor.memory_mb, flavor.root_gb, flavor.id),
            (row.vcpus, row.memory_mb, row.root_gb, row.instance_type_id))

    def test_buried_server_without_a_cell_is_mapped_to_cell0(self):
        uuid = self.failed()
        self.map_to(uuid, None)

        self.assertMends(('S3', 'undecided', uuid, 'cell0'))

    def test_abandoned_row_is_removed_and_buried(self):
        uuid = self.accept()
        self.put_row(uuid, 'cell1')
        self.forget(uuid)

        self.assertMends(('S3', 'undecided', uuid, 'cell1'))

        self.assertEqual({'cell0'}, self.rows(uuid))

    def test_row_of_a_running_server_is_kept_in_two_cells(self):
        uuid = self.running('cell2', 'b1')
        self.map_to(uuid, None)
        self.put_row(uuid, 'cell1')

        self.assertMends(('S2', 'two-cells', uuid, 'cell1'),
                         ('S3', 'undecided', uuid, 'cell2'))

        self.assertEqual({'cell2'}, self.rows(uuid))


class TestDecided(base.TestCase):

    def test_cell0_record_of_a_running_server_is_removed(self):
        uuid = self.running()
        self.put_row(uuid, 'cell0', vm_state='error', task_state=None)

        self.assertMends(('S2', 'cell-and-cell0', uuid, 'cell0'))

        self.assertEqual({'cell1'}, self.rows(uuid))

    def test_lost_record_in_cell0_is_made_again(self):
        uuid = self.failed()
        self.write(self.cell('cell0'), instances.purge, [uuid])

        self.assertMends(('S3', 'row-lost', uuid, 'cell0'))

    def test_mapping_against_row_host_and_claims_is_repaired(self):
        uuid = self.running('cell2', 'b1')
        self.map_to(uuid, 'cell1')

        self.assertMends(('S3', 'row-elsewhere', uuid, 'cell2'))

        self.assertEqual('cell2', self.mapped(uuid))
