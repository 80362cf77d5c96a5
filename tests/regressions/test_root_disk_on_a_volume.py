# SPDX-License-Identifier: Apache-2.0
"""A server that boots from a volume claims no local disk for its root disk."""

from cellsched import exception
from cellsched.standalone import deployment
from tests.functional import base
from tests.functional import moving

#: Root devices on volumes, by their source.
VOLUMES = [
    {'source_type': source, 'destination_type': 'volume', 'boot_index': 0,
     'volume_size': 10, **({f'{source}_id': ident} if ident else {})}
    for source, ident in (
        ('volume', '0e7b1f5a-0d5f-4b0c-8a2e-111111111111'),
        ('image', 'image'), ('snapshot', 'snapshot'), ('blank', None))]


class TestVolumeRoot(moving.TestCase):

    def setUp(self):
        super().setUp()
        self.start({'cell1': [
            deployment.DeployedHost(name, disk_gb=5) for name in ('a1', 'a2')
        ]})
        self.world.api.flavors.create(
            base.ADMIN, 'local', 1, 512, 10, ephemeral_gb=2, swap_mb=1024)

    def amounts(self, uuid):
        [claim] = self.held(uuid)
        return claim.resources

    def test_root_volume_needs_no_local_disk(self):
        for device in VOLUMES:
            [found] = self.built(block_device_mappings=[device])

            self.assertEqual('ACTIVE', found.status, found.reason)
            self.assertEqual({'VCPU': 1, 'MEMORY_MB': 512},
                             self.amounts(found.uuid))
        # The claim is the same after a move.
        self.moves.migrate(base.ADMIN, found.uuid)
        other = {'a1': 'a2', 'a2': 'a1'}[found.host]
        self.assertRests('active', other, found.uuid)
        self.assertEqual(2, len(self.amounts(found.uuid)))
        self.assertClaimsMatch()

    def test_other_local_disks_are_claimed(self):
        [found] = self.built(flavor='local', block_device_mappings=[
            VOLUMES[0], {'source_type': 'blank', 'destination_type': 'local'},
            {'source_type': 'blank', 'destination_type': 'local',
             'guest_format': 'swap', 'volume_size': 1024}])

        self.assertEqual('ACTIVE', found.status, found.reason)
        self.assertEqual(3, self.amounts(found.uuid)['DISK_GB'])

    def test_volume_other_than_the_root_changes_no_demand(self):
        for index in None, -1, 1:
            [found] = self.built(block_device_mappings=[
                {**VOLUMES[0], 'boot_index': index}])

            self.assertEqual('ERROR', found.status)
            self.assertIn('too small in disk', found.reason)

    def test_local_device_is_no_larger_than_the_disk_of_the_flavor(self):
        local = {'source_type': 'blank', 'destination_type': 'local'}
        swap = {**local, 'guest_format': 'swap'}
        root = {'source_type': 'image', 'destination_type': 'local',
                'image_id': 'i', 'boot_index': 0}
        for number, devices in (
                (0, [{**local, 'volume_size': 3}]), (1, [local, local]),
                (1, [{**local, 'volume_size': 1},
                     {**local, 'volume_size': 2}]),
                (0, [{**swap, 'volume_size': 1025}]), (1, [swap, swap]),
                (0, [{**root, 'volume_size': 11}])):
            error = self.assertRaises(
                exception.InvalidField, self.create, flavor='local',
                block_device_mappings=devices)

            self.assertEqual(f'block_device_mappings[{number}].volume_size',
                             error.field)
        self.assertEqual([], self.listed())
