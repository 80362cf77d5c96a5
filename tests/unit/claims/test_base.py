# SPDX-License-Identifier: Apache-2.0
"""Claims, inventories and the defaults of the contract."""

import random

from cellsched import claims
from cellsched.claims import base
from cellsched.claims import coordination
from cellsched.claims import memory
from cellsched.claims import sql
from cellsched import clock
from cellsched.conf import loader
from cellsched.db import session
from cellsched import objects
from cellsched.testing import builders
from tests.unit import base as tests
from tests.unit import restricted


class Parts:
    """Parts of a process that a store does not receive."""

    clock = clock.Clock()
    databases = session.Databases(clock)
    locks = coordination.ContentionLock(clock)
    random = random.Random()
    secret = None


class OldStore(memory.MemoryClaims):
    """A store without its own ``inventories``."""

    inventories = base.ClaimStore.inventories


class TestInventories(tests.TestCase):

    SAID = {'VCPU': base.Inventory(8, 2, 4.0, 2, 4, 2),
            'DISK_GB': base.Inventory(7)}

    def stores(self):
        opened = session.Databases(clock.Clock())
        self.addCleanup(opened.close)
        kept = sql.SQLClaims(opened.get(
            f'sqlite:///{self.temporary_directory()}/claims', 'claims'))
        kept.sync()
        return memory.MemoryClaims(), kept

    def test_inventories_are_returned_as_set(self):
        for store in self.stores():
            store.set_inventory('a', self.SAID)

            self.assertEqual({'a': self.SAID}, store.inventories())
            self.assertEqual({'a': self.SAID}, store.inventories(['a', 'b']))

    def test_default_inventories_come_from_usages(self):
        store = OldStore()
        store.set_inventory('a', self.SAID)
        store.set_inventory('b', {})

        self.assertEqual(
            {'a': {'VCPU': base.Inventory(24, 0, 1.0, 2, 4, 2),
                   'DISK_GB': base.Inventory(7)}, 'b': {}},
            store.inventories())
        self.assertEqual({'b': {}}, store.inventories(['b', 'c']))


class TestClaimStoreParts(tests.TestCase):

    def test_stores_need_no_other_parts(self):
        parts = restricted.Restricted(base.ClaimStoreParts, Parts())
        directory = self.temporary_directory()
        for name, kind in (('memory', memory.MemoryClaims),
                           ('sql', sql.SQLClaims)):
            path = directory / name
            path.write_text(
                f'[claims]\nstore = {name}\nconnection = sqlite://\n')
            conf = loader.load(files=[str(path)], dirs=[])

            self.assertIsInstance(claims.load(conf, parts), kind)

    def test_other_parts_are_refused(self):
        parts = restricted.Restricted(base.ClaimStoreParts, Parts())

        self.assertRaises(AttributeError, getattr, parts, 'secret')


class TestTraits(tests.TestCase):

    def test_each_has_a_meaning(self):
        self.assertEqual([*base.Capability], [*base.MEANINGS])


class TestInventory(tests.TestCase):

    def test_capacity_is_the_unreserved_total_times_the_ratio(self):
        for expected, inventory in (
                (144, base.Inventory(10, reserved=1, allocation_ratio=16.0)),
                (4, base.Inventory(3, allocation_ratio=1.5)),
                # In floating point this product is 114.99999999999999.
                (115, base.Inventory(100, allocation_ratio=1.15)),
                (0, base.Inventory(1, reserved=2))):
            self.assertEqual(expected, inventory.capacity)

    def test_amounts_keep_to_the_units(self):
        has = base.Inventory(100, min_unit=4, max_unit=8, step_size=2)

        self.assertEqual(
            [4, 6, 8], [amount for amount in range(12) if has.admits(amount)])


class TestMembership(tests.TestCase):

    def membership(self, **group):
        return base.membership(
            builders.request(group=group).instance_group, 'h', 'i')

    def test_hard_policies_are_the_store_s(self):
        found = self.membership(
            policy='anti-affinity', rules={'max_server_per_host': '2'})

        group = builders.request(group={}).instance_group.uuid
        self.assertEqual(
            base.Membership(group, 'h', 'anti-affinity', 2, 'i'), found)
        self.assertEqual(
            base.Membership(group, 'h', 'affinity', 1, 'i'),
            self.membership(policy=None, policies=['affinity']))

    def test_other_policies_are_not(self):
        for policy in ('soft-affinity', 'soft-anti-affinity', None):
            self.assertIsNone(self.membership(policy=policy))
        self.assertIsNone(base.membership(None, 'h', 'i'))
        # What only lists instances that are to be spread has no policy.
        self.assertIsNone(base.membership(
            objects.InstanceGroup(members=['i']), 'h', 'i'))

    def test_claims_of_a_selection_have_the_membership(self):
        group = builders.request(
            group={'policy': 'affinity'}).instance_group
        selection = objects.Selection.of(
            compute_node_uuid='p', service_host='h', nodename='n',
            cell_uuid='c', limits=None,
            allocation_request=objects.Selection.allocation(
                'p', {'VCPU': 1}),
            allocation_request_version='1.36', availability_zone=None)

        [alone] = base.of_selection('i', selection)
        [joined] = base.of_selection('i', selection, group)

        self.assertIsNone(alone.group)
        self.assertIsNone(alone.project_id)
        self.assertEqual(
            base.Membership(group.uuid, 'h', 'affinity', 1, 'i'),
            joined.group)

    def test_claims_of_a_selection_have_its_project_and_user(self):
        selection = objects.Selection(
            compute_node_uuid='p', service_host='h',
            allocation_request=objects.Selection.allocation(
                'p', {'VCPU': 1}))
        for text, expected in (('x', 'x'), ('', None), (None, None)):
            [claim] = base.of_selection(
                'i', selection, project_id=text, user_id=text and 'u')

            self.assertEqual((expected, expected and 'u'),
                             (claim.project_id, claim.user_id))
