# SPDX-License-Identifier: Apache-2.0
"""Requests that their users change, and that stay with a reason."""

from cellsched.db.api import build_requests
from cellsched import objects
from tests.unit.db.api import base
from tests.unit.db import samples
from tests.unit import racing


class RequestCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.uuids = samples.uuids(3)
        samples.accept(self.database, self.uuids)

    def revise(self, uuid, name='new', tags=('a',)):
        def change(request):
            request.instance.display_name = name
            request.tags = objects.TagList.made(uuid, tags)

        return self.write(build_requests.revise, uuid, change)

    def lease(self, owner='me', now=0):
        return self.write(
            build_requests.lease, self.uuids, owner, now, now + 60)

    def read_all(self):
        return {each.request.instance_uuid: each for each
                in self.read(build_requests.read, self.uuids)}


class TestRevise(RequestCase):

    def test_change_is_what_is_read_from_now_on(self):
        uuid = self.uuids[0]

        self.assertTrue(self.revise(uuid))

        request = self.read(build_requests.get, uuid)
        self.assertEqual(('new', ['a']), (
            request.instance.display_name, request.tag_names))
        self.assertEqual([1, 0, 0], [
            self.read_all()[each].revision for each in self.uuids])
        self.assertEqual([1, 0, 0], [each.revision for each in self.lease()])

    def test_request_that_is_gone_is_not_changed(self):
        self.write(build_requests.delete, self.uuids)

        self.assertFalse(self.revise(self.uuids[0]))
        self.assertEqual([], self.read(build_requests.read, self.uuids))

    def test_no_change_of_several_is_lost(self):
        uuid = self.uuids[0]

        def tag(name):
            def change(request):
                request.tags = objects.TagList.made(
                    uuid, [*request.tag_names, name])

            return lambda: self.write(build_requests.revise, uuid, change)

        racing.race(*map(tag, 'abcdef'))

        found = self.read_all()[uuid]
        self.assertEqual('abcdef', ''.join(sorted(found.request.tag_names)))
        self.assertEqual(6, found.revision)

    def test_only_what_is_as_it_was_read_is_deleted(self):
        self.lease()
        revisions = {uuid: 0 for uuid in self.uuids[:2]}
        self.revise(self.uuids[0])
        self.revise(self.uuids[2])

        def delete(owner, revisions):
            return self.write(build_requests.delete, self.uuids, owner,
                              revisions)

        self.assertEqual(set(), delete('other', revisions))
        self.assertEqual({self.uuids[1]}, delete('me', revisions))
        self.assertEqual({self.uuids[0]}, delete('me', {
            self.uuids[0]: 1, self.uuids[2]: 0}))
        self.assertEqual([self.uuids[2]], [*self.read_all()])


class TestKept(RequestCase):

    def test_belongings_are_kept_as_they_were_accepted(self):
        uuid, = samples.uuids(1)
        device = objects.BlockDeviceMapping(
            uuid=uuid, instance_uuid=uuid, source_type='blank')
        self.write(build_requests.create, [objects.BuildRequest(
            instance_uuid=uuid, project_id='p', buried=True,
            instance=samples.instance(uuid),
            tags=objects.TagList.made(uuid, ['b', 'a']),
            block_device_mappings=objects.BlockDeviceMappingList(
                objects=[device]))], samples.NOW)

        request = self.read(build_requests.get, uuid)

        self.assertEqual(['b', 'a'], request.tag_names)
        [kept] = request.block_device_mappings
        self.assertEqual(device.obj_to_primitive(), kept.obj_to_primitive())
        self.assertTrue(request.buried)
        self.write(build_requests.mark_unburied, [uuid])
        self.assertFalse(self.read(build_requests.get, uuid).buried)

    def test_tags_that_were_all_removed_are_none(self):
        self.revise(self.uuids[0], tags=[])

        self.assertEqual(
            [], self.read(build_requests.get, self.uuids[0]).tag_names)

    def test_failure_is_said_by_who_leases_the_request(self):
        self.lease('me')

        self.write(build_requests.explain, self.uuids, 'x', 'other')
        self.assertEqual({None}, {
            each.request.failure for each in self.read_all().values()})
        self.write(build_requests.explain, self.uuids[:1], 'because', 'me')
        self.assertEqual(['because', None, None], [
            each.request.failure for each in self.read_all().values()])

    def test_held_are_those_of_the_owner(self):
        self.lease('me')

        self.assertEqual(dict.fromkeys(self.uuids, 0), self.write(
            build_requests.held, dict.fromkeys(self.uuids, 'me')))
        self.assertEqual({}, self.write(
            build_requests.held, dict.fromkeys(self.uuids, 'other')))
        self.assertEqual(dict.fromkeys(self.uuids, 0), self.write(
            build_requests.held, dict.fromkeys(self.uuids)))
        self.assertEqual({}, self.write(build_requests.held, {}))
