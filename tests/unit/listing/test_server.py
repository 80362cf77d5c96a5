# SPDX-License-Identifier: Apache-2.0
"""One server, as its user sees it."""

from cellsched.listing import server
from cellsched import objects
from tests.unit import base
from tests.unit.db import samples


class TestServer(base.TestCase):

    def test_record_says_what_the_instance_does(self):
        [uuid] = samples.uuids(1)
        cell = samples.cell('cell1')
        found = server.Server.of(samples.instance(
            uuid, vm_state='active', task_state=None, host='h1',
            availability_zone='zone', build_attempts=2), cell)

        self.assertEqual(
            server.Server(
                uuid=uuid, name='server', project_id='project',
                status='ACTIVE', task_state=None, cell='cell1', host='h1',
                availability_zone='zone', attempts=2, reason='',
                created_at=samples.NOW),
            found)

    def test_states_have_names_that_users_know(self):
        [uuid] = samples.uuids(1)
        for state, status in (
                ('building', 'BUILD'), ('active', 'ACTIVE'),
                ('error', 'ERROR'), ('deleted', 'DELETED'),
                ('shelved', 'SHELVED'), (None, 'BUILD')):
            found = server.Server.of(samples.instance(uuid, vm_state=state))
            self.assertEqual(status, found.status)

    def test_what_an_instance_does_not_say_is_none(self):
        [uuid] = samples.uuids(1)
        found = server.Server.of(objects.Instance(uuid=uuid))

        self.assertEqual(
            ('BUILD', None, None, 0, ''),
            (found.status, found.name, found.cell, found.attempts,
             found.reason))

    def test_tags_are_sorted(self):
        [uuid] = samples.uuids(1)

        self.assertEqual(('a', 'b'), server.Server.of(
            samples.instance(uuid), tags=['b', 'a']).tags)

    def test_request_tells_its_tags_and_why_it_waits(self):
        [uuid] = samples.uuids(1)
        found = server.Server.requested(objects.BuildRequest(
            instance_uuid=uuid, instance=samples.instance(uuid),
            tags=objects.TagList.made(uuid, ['b', 'a']), failure='So.'))

        self.assertEqual(
            ('BUILD', None, ('a', 'b'), 'So.'),
            (found.status, found.cell, found.tags, found.reason))

    def test_cell_without_a_name_is_shown_by_its_uuid(self):
        [uuid] = samples.uuids(1)
        cell = samples.cell(None)

        self.assertEqual(
            cell.uuid,
            server.Server.of(samples.instance(uuid), cell).cell)

    def test_deleted_record_is_as_it_was_last(self):
        [uuid] = samples.uuids(1)
        last = server.Server.of(samples.instance(
            uuid, vm_state='active', task_state='deleting', host='h1'))

        gone = last.deleted()

        self.assertEqual(('DELETED', None, 'h1'), (
            gone.status, gone.task_state, gone.host))
        self.assertEqual('ACTIVE', last.status)
