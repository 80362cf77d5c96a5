# SPDX-License-Identifier: Apache-2.0
"""Values that are no uuid, name or number, in every field."""

from cellsched.claims import base
from cellsched.claims import validation
from cellsched import exception
from tests.unit import base as tests

#: What JSON, or a careless caller, may bring.
NO_NAMES = (None, 7, 1.5, True, b'c', ['c'], {'c': 1}, '', 'a b', 'ä',
            'c' * 10 ** 3, '\0')
NO_AMOUNTS = (None, '1', 1.5, True, [1], 0, -1, 2 ** 31)


class TestHostile(tests.TestCase):

    def refused(self, check, *args):
        return self.assertRaises(exception.InvalidField, check, *args)

    def test_consumers_and_providers_are_texts(self):
        for bad in NO_NAMES:
            # What cannot be in a set comes before who asks whether it is.
            error = self.refused(
                validation.check_claims, [base.Claim(bad, 'p', {'VCPU': 1})])
            self.assertEqual('consumer', error.field)
            error = self.refused(
                validation.check_claims, [base.Claim('c', bad, {'VCPU': 1})])
            self.assertEqual(("claim of 'c'", 'provider'),
                             (error.where, error.field))

    def test_members_and_groups_are_texts(self):
        for field, name in (('group', 'group'), ('member', 'group member')):
            for bad in NO_NAMES:
                if field == 'member' and not bad:
                    continue
                error = self.refused(validation.check_claims, [base.Claim(
                    'c', 'p', {'VCPU': 1}, base.Membership(**{
                        'group': 'g', 'host': 'h', 'policy': base.AFFINITY,
                        field: bad}))])
                self.assertEqual(("claim of 'c'", name),
                                 (error.where, error.field))

    def test_ids_of_project_and_user_are_texts(self):
        for bad in 7, 1.5, True, b'c', ['c'], {'c': 1}, ('c',), object():
            for field in 'project_id', 'user_id':
                error = self.refused(validation.check_claims, [base.Claim(
                    'c', 'p', {'VCPU': 1}, **{field: bad})])
                self.assertEqual(("claim of 'c'", field),
                                 (error.where, error.field))

    def test_amounts_are_whole_numbers(self):
        for bad in NO_AMOUNTS:
            error = self.refused(
                validation.check_claims, [base.Claim('c', 'p', {'VCPU': bad})])
            self.assertEqual(("claim of 'c'", 'VCPU'),
                             (error.where, error.field))

    def test_ends_of_a_transfer_are_texts(self):
        for bad in NO_NAMES:
            for ends, field in (
                    ((bad, 'c'), 'source'), (('c', bad), 'target')):
                error = self.refused(validation.check_transfer, *ends)
                self.assertEqual(field, error.field)
                self.assertIn('transfer from', error.where)
        error = self.refused(validation.check_transfer, 'c', 'c')
        self.assertEqual(("transfer from 'c'", 'target'),
                         (error.where, error.field))

    def test_inventory_names_its_provider(self):
        good = {'total': 8}
        for inventory, field in (
            ({'vcpu': base.Inventory(**good)}, 'resource class'),
            ({7: base.Inventory(**good)}, 'resource class'),
            *(({'VCPU': base.Inventory(**{**good, name: bad})},
               f'VCPU {name}')
              for name in ('total', 'reserved', 'min_unit', 'max_unit',
                           'step_size')
              for bad in (None, '1', 1.5, True, -1, 2 ** 31)),
            *(({'VCPU': base.Inventory(8, allocation_ratio=ratio)},
               'VCPU allocation_ratio')
              for ratio in (None, '1', 0, -1.0, 1e6 + 1, float('nan'))),
        ):
            error = self.refused(validation.check_inventory, 'p', inventory)
            self.assertEqual(("inventory of 'p'", field),
                             (error.where, error.field))
        for bad in NO_NAMES:
            error = self.refused(validation.check_inventory, bad, {})
            self.assertEqual('provider', error.field)

    def test_least_and_most_are_allowed(self):
        validation.check_inventory('p', {'VCPU': base.Inventory(
            0, 0, 1e6, 1, 1, 1), 'A_1': base.Inventory(
            2 ** 31 - 1, 2 ** 31 - 1, 1e-6, 2 ** 31 - 1, 2 ** 31 - 1,
            2 ** 31 - 1)})
        for bad in (0, -1, None, True, 2 ** 31):
            self.assertEqual(
                'limit', self.refused(validation.check_limit, bad).field)
        validation.check_limit(1)
        validation.check_limit(2 ** 31 - 1)
