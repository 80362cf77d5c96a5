# SPDX-License-Identifier: Apache-2.0
"""The tags of a server."""

from cellsched import objects
from tests.unit import base
from tests.unit.db import samples


class TestTags(base.TestCase):

    def test_tags_travel_as_objects_of_their_server(self):
        uuid, = samples.uuids(1)

        sent = objects.TagList.made(uuid, ['b', 'a']).obj_to_primitive()

        self.assertEqual(('TagList', '1.1'), (
            sent['nova_object.name'], sent['nova_object.version']))
        self.assertEqual(
            [{'resource_id': uuid, 'tag': 'b'},
             {'resource_id': uuid, 'tag': 'a'}],
            [each['nova_object.data']
             for each in sent['nova_object.data']['objects']])
        self.assertEqual(
            ['b', 'a'], objects.TagList.obj_from_primitive(sent).names)

    def test_request_without_tags_has_none(self):
        for fields in {}, {'tags': None}:
            self.assertEqual([], objects.BuildRequest(**fields).tag_names)
