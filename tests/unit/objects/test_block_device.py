# SPDX-License-Identifier: Apache-2.0
"""The block devices of a server."""

from cellsched import objects
from tests.unit import base
from tests.unit.db import samples
from tests.unit.objects import wire


class TestBlockDevices(base.TestCase):

    def test_device_is_read_with_what_is_not_known_here_left_out(self):
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
