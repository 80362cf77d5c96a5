# SPDX-License-Identifier: Apache-2.0
"""A server."""

import datetime

from cellsched import objects
from tests.unit import base
from tests.unit.db import samples
from tests.unit.objects import wire


class TestInstance(base.TestCase):

    def test_times_are_utc_without_a_zone(self):
        instance = objects.Instance(created_at='2026-01-02T03:04:05Z')

        self.assertEqual(
            datetime.datetime(2026, 1, 2, 3, 4, 5), instance.created_at)

    def test_times_travel_as_iso_8601(self):
        sent = samples.instance(samples.uuids(1)[0]).obj_to_primitive()

        self.assertEqual('2026-01-02T03:04:05Z',
                         sent['nova_object.data']['created_at'])

    def test_older_versions_have_no_attempts(self):
        instance = samples.instance(samples.uuids(1)[0])

        self.assertNotIn('build_attempts',
                         instance.obj_to_primitive()['nova_object.data'])
        self.assertEqual(0, instance.get('build_attempts', 0))


class TestBlockDevices(base.TestCase):

    def test_unknown_fields_of_a_device_are_dropped(self):
        uuid, = samples.uuids(1)
        sent = wire.as_sent(
            'BlockDeviceMappingList', '1.18', objects=[wire.as_sent(
                'BlockDeviceMapping', '1.21', uuid=uuid, instance_uuid=uuid,
                source_type='image', destination_type='volume',
                image_id='i', volume_size=1, boot_index=0, encrypted=False,
                connection_info='secret')])

        [device] = objects.BlockDeviceMappingList.obj_from_primitive(sent)

        self.assertEqual(('image', 'volume', 'i', 1, 0), tuple(
            device.get(name) for name in (
                'source_type', 'destination_type', 'image_id', 'volume_size',
                'boot_index')))
        self.assertNotIn('secret', str(device.obj_to_primitive()))


class TestTags(base.TestCase):

    def test_tags_are_sent_as_objects_of_their_server(self):
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

    def test_request_without_tags_has_an_empty_list(self):
        for fields in {}, {'tags': None}:
            self.assertEqual([], objects.BuildRequest(**fields).tag_names)
