# SPDX-License-Identifier: Apache-2.0
"""Stories with the driver of ``examples/third_party_driver``.

They need the package to be installed, so an integration test runs them, in a
process of their own.
"""

import uuid

from cellsched.wiring import services
from tests.functional import base

SLOT = 'CUSTOM_FPGA_SLOT'


class TestDriver(base.TestCase):

    def setUp(self):
        super().setUp()
        self.deploy(
            {'cell1': ['a1']}, DEFAULT={'compute_driver': 'fpga'},
            fpga={'families': ('agilex', 'stratix'), 'slots': 2})
        self.flavor('design', {
            f'resources1:{SLOT}': '1',
            'trait1:CUSTOM_FPGA_AGILEX': 'required'})
        self.node = self.world.api.providers.get(base.ADMIN, 'a1').uuid

    def flavor(self, name, extra_specs):
        flavors = self.world.api.flavors
        flavors.create(base.ADMIN, name, 1, 512)
        flavors.set_extra_specs(base.ADMIN, name, extra_specs)

    def child(self, name):
        return str(uuid.uuid5(uuid.UUID(self.node), name))

    def slots(self, server):
        """Return the providers of whose slots a server holds some."""
        held = self.world.api.parts.claims.claims_of([server])[server]
        return {each.provider for each in held if SLOT in each.resources}

    def test_server_is_active_and_its_claim_names_the_child(self):
        built = [self.built(flavor='design')[0] for _ in range(3)]

        self.assertEqual(['ACTIVE', 'ACTIVE', 'ERROR'],
                         [each.status for each in built])
        self.assertEqual(
            {self.child('fpga0/slot0'), self.child('fpga0/slot1')},
            self.slots(built[0].uuid) | self.slots(built[1].uuid))
        self.assertIn(f'1 {SLOT} with CUSTOM_FPGA_AGILEX', built[2].reason)

        [slot] = self.slots(built[0].uuid)
        self.delete(built[0].uuid)
        self.assertLeftNothing(built[0].uuid)
        [again] = self.built(flavor='design')
        self.assertEqual('ACTIVE', again.status)
        self.assertEqual({slot}, self.slots(again.uuid))

    def test_two_slots_are_of_two_providers(self):
        self.flavor('pair', {
            f'resources1:{SLOT}': '1', f'resources2:{SLOT}': '1',
            'trait2:CUSTOM_FPGA_STRATIX': 'required',
            'group_policy': 'isolate'})

        [found] = self.built(flavor='pair')

        self.assertEqual('ACTIVE', found.status)
        slots = self.slots(found.uuid)
        self.assertEqual(2, len(slots))
        self.assertTrue(slots & {self.child('fpga1/slot0'),
                                 self.child('fpga1/slot1')})

    def test_providers_are_listed_below_their_host(self):
        listed = {each.name: each for each
                  in self.world.api.providers.list(base.ADMIN).providers}

        self.assertEqual(
            {'a1', 'fpga0', 'fpga0/slot0', 'fpga0/slot1', 'fpga1',
             'fpga1/slot0', 'fpga1/slot1'}, {*listed})
        self.assertEqual(self.child('fpga0/slot0'),
                         listed['fpga0/slot0'].uuid)

    def test_audit_has_no_findings(self):
        self.built(flavor='design')
        auditor = services.auditor(self.world.api.parts)

        self.soon(lambda: self.assertEqual(
            [], auditor.run(settle_s=0).remaining))
