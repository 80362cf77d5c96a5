# SPDX-License-Identifier: Apache-2.0
"""Block devices, as users ask for them."""

from cellsched.api import block_devices
from cellsched import exception
from tests.unit.api import hostile
from tests.unit import base
from tests.unit.db import samples

LOCAL = {'source_type': 'blank', 'destination_type': 'local'}
IMAGE = {'source_type': 'image', 'destination_type': 'volume',
         'image_id': 'i', 'boot_index': 0, 'volume_size': 1,
         'delete_on_termination': True, 'tag': 'root'}
VOLUME = {'source_type': 'volume', 'destination_type': 'volume',
          'volume_id': 'v', 'volume_type': None}
SNAPSHOT = {'source_type': 'snapshot', 'destination_type': 'volume',
            'snapshot_id': 's'}


class TestCheck(base.TestCase):

    def assertRefused(self, devices, field, several=False):
        error = self.assertRaises(
            exception.InvalidField, block_devices.check, devices, several)
        self.assertEqual(f'block_device_mappings{field}', error.field)

    def test_what_can_be_made_is_taken(self):
        for devices in (), [IMAGE, LOCAL, VOLUME, SNAPSHOT], (LOCAL,) * 64:
            block_devices.check(devices, several=False)
        block_devices.check([IMAGE, SNAPSHOT], several=True)

    def test_what_is_no_list_of_mappings_is_refused(self):
        for devices in ({}, 'x', None, 3, (LOCAL,) * 65):
            self.assertRefused(devices, '')
        for device in 'x', None, {**LOCAL, 'id': 1}, {1: 2}:
            self.assertRefused([LOCAL, device], '[1]')

    def test_unknown_ways_are_refused(self):
        self.assertRefused([{}], '[0].source_type')
        for source in hostile.NAMES:
            self.assertRefused(
                [{**LOCAL, 'source_type': source}], '[0].source_type')
        self.assertRefused(
            [{**VOLUME, 'destination_type': 'local'}],
            '[0].destination_type')
        self.assertRefused(
            [{'source_type': 'blank'}], '[0].destination_type')

    def test_what_is_needed_is_named(self):
        for device in IMAGE, VOLUME, SNAPSHOT:
            name = f"{device['source_type']}_id"
            for wrong in None, '', 'x' * 37:
                self.assertRefused([{**device, name: wrong}], f'[0].{name}')
        self.assertRefused(
            [{**LOCAL, 'destination_type': 'volume'}], '[0].volume_size')

    def test_bounds_of_fields_are_named(self):
        for name, wrong in (
                ('volume_size', 0), ('volume_size', 2 ** 31),
                ('volume_size', True), ('boot_index', -2),
                ('boot_index', '0'), ('device_name', 'x' * 256),
                ('tag', ''), ('delete_on_termination', 'yes')):
            self.assertRefused([{**LOCAL, name: wrong}], f'[0].{name}')

    def test_order_of_booting_is_clear(self):
        other = {**VOLUME, 'boot_index': -1}
        block_devices.check([IMAGE, other, other], several=False)

        self.assertRefused([IMAGE, {**LOCAL, 'boot_index': 0}], '')

    def test_volume_goes_to_one_server_only(self):
        self.assertRefused(
            [LOCAL, VOLUME], '[1].source_type', several=True)


class TestMade(base.TestCase):

    def test_each_has_a_name_of_its_own(self):
        uuid, *names = samples.uuids(3)

        one, other = block_devices.made(
            [IMAGE, LOCAL], uuid, iter(names).__next__)

        self.assertEqual(names, [one.uuid, other.uuid])
        self.assertEqual((uuid, 'i', 'blank'), (
            one.instance_uuid, one.image_id, other.source_type))
        self.assertIsNone(block_devices.made((), uuid, None))
