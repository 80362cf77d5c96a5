# SPDX-License-Identifier: Apache-2.0
"""What claim stores decide alike."""

from cellsched.claims import base
from cellsched import exception
from tests.unit import base as tests


def claim(consumer='c', provider='p', **resources):
    return base.Claim(consumer, provider, resources)


class TestInventory(tests.TestCase):

    def test_capacity_is_what_is_not_reserved_times_the_ratio(self):
        self.assertEqual(144, base.Inventory(
            10, reserved=1, allocation_ratio=16.0).capacity)

    def test_capacity_is_whole(self):
        self.assertEqual(4, base.Inventory(3, allocation_ratio=1.5).capacity)

    def test_ratio_that_binary_fractions_miss_loses_nothing(self):
        # In floating point this product is 114.99999999999999.
        self.assertEqual(
            115, base.Inventory(100, allocation_ratio=1.15).capacity)

    def test_capacity_is_never_below_zero(self):
        self.assertEqual(0, base.Inventory(1, reserved=2).capacity)

    def test_amounts_keep_to_the_units(self):
        has = base.Inventory(100, min_unit=4, max_unit=8, step_size=2)

        self.assertEqual(
            [4, 6, 8], [amount for amount in range(12) if has.admits(amount)])


class TestCheck(tests.TestCase):

    def test_claims_that_make_sense_pass(self):
        base.check_claims([claim(VCPU=1), claim('d', VCPU=2 ** 31 - 1),
                           claim(provider='q', CUSTOM_GPU_80=1)])

    def test_error_names_field_and_bound(self):
        for bad, field, words in (
            (claim('x' * 37, VCPU=1), 'consumer', 'a uuid'),
            (claim(provider='', VCPU=1), 'provider', 'a uuid'),
            (claim(), 'resources', 'at least one'),
            (claim(vcpu=1), 'resource class', "not 'vcpu'"),
            (claim(VCPU=0), 'VCPU', 'from 1 to 2147483647, not 0'),
        ):
            error = self.assertRaises(
                exception.InvalidField, base.check_claims, [bad])

            self.assertEqual(field, error.field)
            self.assertIn(words, error.expected)

    def test_error_is_short_whatever_was_given(self):
        error = self.assertRaises(
            exception.InvalidField, base.check_claims, [claim('x' * 10 ** 6)])

        self.assertLess(len(str(error)), 200)

    def test_provider_is_named_once_for_a_consumer(self):
        error = self.assertRaises(
            exception.InvalidField, base.check_claims,
            [claim(VCPU=1), claim(GB=1)])

        self.assertEqual('provider', error.field)

    def test_inventory_error_names_class_and_field(self):
        for field, value in (('total', -1), ('reserved', 2 ** 31),
                             ('min_unit', 0), ('max_unit', True),
                             ('step_size', None), ('allocation_ratio', -1.0)):
            has = base.Inventory(**{'total': 8, field: value})

            error = self.assertRaises(
                exception.InvalidField, base.check_inventory, 'p',
                {'VCPU': has})

            self.assertEqual(f'VCPU {field}', error.field)

    def test_inventory_of_nothing_passes(self):
        base.check_inventory('p', {})
        base.check_inventory('p', {'VCPU': base.Inventory(0)})


class TestOutstanding(tests.TestCase):

    def test_claims_of_consumers_that_hold_nothing_are_left(self):
        claims = [claim('a', VCPU=1), claim('b', VCPU=1),
                  claim('a', 'q', VCPU=1)]

        self.assertEqual(claims, base.outstanding(claims, {}))
        self.assertEqual(claims[1:2], base.outstanding(
            claims, {'a': [claims[2], claims[0]]}))

    def test_consumer_that_holds_something_else_is_a_conflict(self):
        claims = [claim('a', VCPU=1), claim('a', 'q', VCPU=1)]

        for holds in ([claim('a', VCPU=2), claims[1]], claims[:1],
                      [*claims, claim('a', 'r', VCPU=1)]):
            error = self.assertRaises(
                exception.ClaimConflict, base.outstanding, claims,
                {'a': holds})

            self.assertEqual('a', error.consumer)


class TestFindRefusal(tests.TestCase):

    def test_batch_that_fits_is_not_refused(self):
        self.assertIsNone(base.find_refusal(
            [claim('a', VCPU=1), claim('b', VCPU=2)],
            {'p': {'VCPU': base.Inventory(5)}}, {'p': {'VCPU': 2}}))

    def test_first_claim_that_does_not_fit_is_blamed(self):
        refusal = base.find_refusal(
            [claim('a', VCPU=2), claim('b', VCPU=2), claim('c', VCPU=1)],
            {'p': {'VCPU': base.Inventory(5)}}, {'p': {'VCPU': 2}})

        self.assertEqual(
            {'consumer': 'b', 'provider': 'p', 'resource': 'VCPU',
             'amount': 2, 'code': 409}, refusal.kwargs)

    def test_provider_that_nobody_knows_has_nothing(self):
        self.assertIsNotNone(base.find_refusal([claim(VCPU=1)], {}, {}))
