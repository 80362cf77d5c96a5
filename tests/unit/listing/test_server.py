# SPDX-License-Identifier: Apache-2.0
"""One server, as its user sees it."""

from cellsched.db.cell import instance_list
from cellsched.listing import server
from cellsched import objects
from tests.unit import base
from tests.unit.db import samples


class TestServer(base.TestCase):

    def row(self, **fields):
        """Return a row of a server."""
        instance = samples.instance(samples.uuids(1)[0], **fields)
        return [0 if name == 'deleted' else instance.get(name)
                for name in instance_list.SHOWN]

    def test_record_has_the_fields_of_the_row(self):
        row = self.row(
            vm_state='active', task_state=None, host='h1', image_ref='image',
            availability_zone='zone', build_attempts=2)

        self.assertEqual(
            server.Server(
                uuid=row[0], name='server', project_id='project',
                status='ACTIVE', task_state=None, cell='cell1', host='h1',
                availability_zone='zone', attempts=2, reason='So.',
                created_at=samples.NOW, tags=('a', 'b'), user_id='user',
                image_ref='image'),
            server.Server.of_row(row, 'cell1', 'So.', ['a', 'b']))

    def test_host_is_shown_only_with_permission(self):
        row = self.row(vm_state='active', host='h1')

        self.assertEqual((None, 'h1'), tuple(
            server.Server.of_row(row, 'cell1', shows_host=shown).host
            for shown in (False, True)))

    def test_states_have_statuses_of_the_api(self):
        for state, status in (
                ('building', 'BUILD'), ('active', 'ACTIVE'),
                ('error', 'ERROR'), ('deleted', 'DELETED'),
                ('shelved_offloaded', 'SHELVED_OFFLOADED'), (None, 'BUILD')):
            self.assertEqual(status, server.status_of(state))
            self.assertEqual(state or 'building', server.vm_state_of(status))
        self.assertEqual('DELETED', server.Server.of_row(
            [*self.row(vm_state='active')[:-1], 3], 'cell1').status)

    def test_request_with_few_fields_has_defaults(self):
        [uuid] = samples.uuids(1)
        found = server.Server.requested(objects.BuildRequest(
            instance_uuid=uuid, instance=objects.Instance(uuid=uuid)))

        self.assertEqual(
            ('BUILD', None, None, 0, ''),
            (found.status, found.name, found.cell, found.attempts,
             found.reason))

    def test_request_has_its_tags_and_its_failure(self):
        [uuid] = samples.uuids(1)
        found = server.Server.requested(objects.BuildRequest(
            instance_uuid=uuid, instance=samples.instance(uuid),
            tags=objects.TagList.made(uuid, ['b', 'a']), failure='So.'))

        self.assertEqual(
            ('BUILD', None, ('a', 'b'), 'So.'),
            (found.status, found.cell, found.tags, found.reason))

    def test_cell_without_a_name_is_shown_by_its_uuid(self):
        cell = samples.cell(None)

        self.assertEqual(cell.uuid, server.name_of(cell))
        self.assertEqual('cell1', server.name_of(samples.cell('cell1')))

    def test_deleted_record_keeps_its_last_host(self):
        last = server.Server.of_row(self.row(
            vm_state='active', task_state='deleting', host='h1'), 'cell1')

        gone = last.deleted()

        self.assertEqual(('DELETED', None, 'h1'), (
            gone.status, gone.task_state, gone.host))
        self.assertEqual('ACTIVE', last.status)
