# SPDX-License-Identifier: Apache-2.0
"""Queries for the block devices of a cell's servers."""

from cellsched.db.cell import block_devices
from cellsched.db.cell import instances
from cellsched import objects
from tests.unit.db.cell import base
from tests.unit.db import samples


class TestBlockDevices(base.TestCase):

    def setUp(self):
        super().setUp()
        self.uuids = self.write(
            instances.create,
            [samples.instance(uuid) for uuid in samples.uuids(2)],
            samples.NOW)

    def create(self, *devices):
        self.write(block_devices.create_all, devices, samples.NOW)

    def device(self, uuid, **fields):
        return objects.BlockDeviceMapping(
            uuid=samples.uuids(1)[0], instance_uuid=uuid, **fields)

    def test_devices_are_as_they_were_asked_for_and_in_order(self):
        one, other = self.uuids
        root = self.device(
            one, source_type='image', destination_type='volume',
            image_id='i', volume_size=3, volume_type='fast', boot_index=0,
            device_name='vda', disk_bus='virtio', device_type='disk',
            guest_format='ext4', tag='root', delete_on_termination=True)
        more = self.device(one, source_type='blank',
                           destination_type='local')
        self.create(root, more)

        found = self.read(block_devices.get_many, [one, other])

        self.assertEqual([one], [*found])
        for sent, kept in zip((root, more), found[one], strict=True):
            for name in sent.obj_what_changed():
                self.assertEqual(sent.get(name), kept.get(name), name)
        self.assertFalse(found[one][1].delete_on_termination)

    def test_none_are_added_of_none(self):
        self.create()

        self.assertEqual({}, self.read(block_devices.get_many, self.uuids))

    def test_those_of_a_deleted_server_are_marked(self):
        one, other = self.uuids
        self.create(self.device(one), self.device(other))

        for _ in range(2):
            self.write(block_devices.mark_deleted, [one], samples.LATER)

        self.assertEqual(
            [other], [*self.read(block_devices.get_many, self.uuids)])
