# SPDX-License-Identifier: Apache-2.0

from oslo_serialization import jsonutils

from cellsched.audit import state
from cellsched import objects
from cellsched.testing import builders
from tests.unit import base
from tests.unit.db import samples


def text_of(uuid, **fields):
    return jsonutils.dumps(objects.RequestSpec(
        instance_uuid=uuid, flavor=samples.flavor(), **fields,
    ).obj_to_primitive())


class TestSizeOf(base.TestCase):

    def of(self, **fields):
        [uuid] = samples.uuids(1)
        return state.size_of(uuid, text_of(uuid, **fields))

    def test_size_is_read_from_the_request(self):
        self.assertEqual(
            ({'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 10}, None, ''),
            (self.of().resources, self.of().group, self.of().problem))
        self.assertNotIn('DISK_GB', self.of(is_bfv=True).resources)

    def test_equal_specifications_are_read_once(self):
        self.assertIs(self.of(), self.of())
        self.assertIsNot(self.of(), self.of(is_bfv=True))

    def test_group_is_included(self):
        group = objects.InstanceGroup(
            uuid=samples.uuids(1)[0], policy='affinity', rules={})

        self.assertEqual(group.uuid, self.of(instance_group=group).group)

    def test_groups_are_added_up_beside_the_rest(self):
        [uuid] = samples.uuids(1)
        size = state.size_of(uuid, jsonutils.dumps(builders.request(
            instance_uuid=uuid, extra_specs={
                'resources:VGPU': '1', 'resources1:VGPU': '2',
                'resources2:VGPU': '1', 'resources2:CUSTOM_A': '3',
                'group_policy': 'none'}).obj_to_primitive()))

        self.assertEqual({'VGPU': 3, 'CUSTOM_A': 3}, size.grouped)
        self.assertEqual(1, size.resources['VGPU'])
        self.assertEqual({**size.resources, 'VGPU': 4, 'CUSTOM_A': 3},
                         size.total)
        self.assertEqual({}, self.of().grouped)
        self.assertEqual(self.of().resources, self.of().total)
        self.assertIsNone(state.MISSING.total)

    def test_lost_server_has_no_size(self):
        self.assertIs(state.MISSING, state.size_of('a', None))
        without_flavor = jsonutils.dumps(
            objects.RequestSpec(is_bfv=True).obj_to_primitive())
        no_amount = jsonutils.dumps(builders.request(
            extra_specs={'resources:VGPU': 'x'}).obj_to_primitive())
        for text in (*samples.UNREADABLE, without_flavor, no_amount):
            self.assertIs(state.UNREADABLE, state.size_of('a', text))
