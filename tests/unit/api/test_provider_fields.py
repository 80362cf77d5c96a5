# SPDX-License-Identifier: Apache-2.0
"""Inventories and traits that an operator says a provider has."""

import hypothesis
from hypothesis import strategies

from cellsched.api import provider_fields
from cellsched.claims import validation
from cellsched import exception
from cellsched.objects import resources
from tests.unit.api import hostile
from tests.unit import base

KNOWN = {'DISK_GB': resources.Inventory(100, 5, 2.0, 1, 50, 5)}


class TestInventories(base.TestCase):

    def refusal(self, changes, known=KNOWN):
        error = self.assertRaises(
            exception.InvalidField, provider_fields.changed, known, changes)
        self.assertEqual('provider', error.where)
        return error

    def test_fields_that_are_not_named_stay(self):
        self.assertEqual(
            {'DISK_GB': resources.Inventory(200, 5, 2.0, 1, 50, 5)},
            provider_fields.changed(KNOWN, {'DISK_GB': {'total': 200}}))

    def test_new_class_has_defaults(self):
        self.assertEqual(
            {**KNOWN, 'CUSTOM_X': resources.Inventory(7, reserved=7)},
            provider_fields.changed(
                KNOWN, {'CUSTOM_X': {'total': 7, 'reserved': 7}}))

    def test_class_is_removed(self):
        self.assertEqual({}, provider_fields.changed(
            KNOWN, {'DISK_GB': None, 'VCPU': None}))

    def test_new_class_needs_its_total(self):
        self.assertEqual(
            'VCPU.total', self.refusal({'VCPU': {'reserved': 1}}).field)

    def test_refusal_names_the_field_and_the_bound(self):
        most = resources.AMOUNT_MAX
        for field, value, bound in (
                ('total', -1, f'0 to {most}'),
                ('total', most + 1, f'0 to {most}'),
                ('total', True, f'0 to {most}'),
                ('total', '5', f'0 to {most}'),
                ('reserved', -1, f'0 to {most}'),
                ('reserved', 101, 'the total, 100, not 101'),
                ('min_unit', 0, f'1 to {most}'),
                ('min_unit', 51, 'the max_unit, 50, not 51'),
                ('max_unit', 0, f'1 to {most}'),
                ('step_size', 0, f'1 to {most}'),
                ('allocation_ratio', 0, 'above 0, at most 1000000'),
                ('allocation_ratio', 1e7, 'above 0, at most 1000000'),
                ('allocation_ratio', float('nan'), 'above 0'),
                ('allocation_ratio', True, 'above 0'),
                ('allocation_ratio', None, 'above 0')):
            error = self.refusal({'DISK_GB': {field: value}})
            self.assertEqual(f'DISK_GB.{field}', error.field)
            self.assertIn(bound, str(error))

    def test_what_is_no_inventory_is_refused(self):
        for changes, field in (
                ('DISK_GB', 'inventories'), (None, 'inventories'),
                ([('DISK_GB', {})], 'inventories'),
                ({'DISK_GB': 5}, 'DISK_GB'),
                ({'DISK_GB': {'size': 5}}, 'field of DISK_GB'),
                ({'DISK_GB': {5: 5}}, 'field of DISK_GB'),
                ({'disk_gb': {'total': 5}}, 'inventories'),
                ({'CUSTOM_': {'total': 5}}, 'inventories'),
                ({f'CUSTOM_{"X" * 249}': None}, 'inventories'),
                ({f'CUSTOM_{number}': {'total': 1} for number in range(1001)},
                 'number of resource classes')):
            self.assertEqual(field, self.refusal(changes).field)
        for bad in hostile.NAMES:
            if bad.__hash__ is not None:
                self.assertEqual(
                    'inventories', self.refusal({bad: {'total': 1}}).field)

    @hypothesis.given(strategies.dictionaries(
        strategies.sampled_from(('total', 'reserved', 'min_unit', 'max_unit',
                                 'step_size', 'allocation_ratio')),
        strategies.integers(-1, 2 ** 33) | strategies.floats()
        | strategies.none()))
    def test_what_is_taken_is_an_inventory_for_claim_stores(self, fields):
        try:
            taken = provider_fields.changed({}, {'DISK_GB': fields})
        except exception.InvalidField:
            return

        validation.check_inventory('a', taken)


class TestTraits(base.TestCase):

    def test_standard_and_custom_names_are_taken(self):
        names = ['STORAGE_DISK_SSD', 'CUSTOM_POOL_1', f'CUSTOM_{"X" * 248}']

        self.assertEqual(frozenset(names), provider_fields.check_traits(
            'traits', [*names, names[0]]))

    def test_others_are_refused(self):
        for bad in ('STORAGE_DISK_SSD', None, 5, ['SSD'], ['custom_x'],
                    ['CUSTOM_'], [f'CUSTOM_{"X" * 249}'], [5],
                    ['CUSTOM_X\n'], ['CUSTOM_X'] * 1001):
            error = self.assertRaises(
                exception.InvalidField, provider_fields.check_traits,
                'traits', bad)
            self.assertIn('traits', error.field)
