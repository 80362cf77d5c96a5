# SPDX-License-Identifier: Apache-2.0
"""Decisions that claim stores share."""

import dataclasses

from cellsched.claims import base
from cellsched.claims import validation
from cellsched import exception
from tests.unit import base as tests


def claim(consumer='c', provider='p', group=None, **resources):
    return base.Claim(consumer, provider, resources, group)


def member(consumer, host, policy='anti-affinity', most=1, name=''):
    return claim(consumer, f'p{host}', VCPU=1, group=base.Membership(
        'g', host, policy, most, name))


class TestCheck(tests.TestCase):

    def test_valid_claims_are_accepted(self):
        validation.check_claims([
            claim(VCPU=1), claim('d', VCPU=2 ** 31 - 1),
            claim(provider='q', CUSTOM_GPU_80=1)])
        self.assertRaises(
            exception.InvalidField, validation.check_claims, [
                claim(VCPU=1), claim('d', VCPU=2 ** 31)])

    def test_error_names_field_and_bound(self):
        for bad, field, words in (
            (claim('x' * 37, VCPU=1), 'consumer', 'a uuid'),
            (claim(provider='', VCPU=1), 'provider', 'a uuid'),
            (claim(), 'resources', 'at least one'),
            (claim(vcpu=1), 'resource class', "'vcpu' is not valid"),
            (claim(VCPU=0), 'VCPU', '0 is not valid; expected a whole number '
                                    'from 1 to 2147483647'),
        ):
            error = self.assertRaises(
                exception.InvalidField, validation.check_claims, [bad])

            self.assertEqual(field, error.field)
            self.assertIn(words, error.detail)

    def test_other_form_of_a_uuid_is_no_other_consumer(self):
        one = '4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e'
        validation.check_claims([claim(one, VCPU=1)])
        for form in one.upper(), one.replace('-', ''):
            for check, field in (
                    (lambda: validation.check_claims([claim(form, VCPU=1)]),
                     'consumer'),
                    (lambda: validation.check_claims(
                        [claim(provider=form, VCPU=1)]), 'provider'),
                    (lambda: validation.check_transfer(one, form), 'target'),
                    (lambda: validation.check_inventory(form, {}),
                     'provider')):
                error = self.assertRaises(exception.InvalidField, check)
                self.assertEqual(field, error.field)
                self.assertIn('a uuid in lower case', str(error))

    def test_error_about_a_long_name_is_short(self):
        error = self.assertRaises(
            exception.InvalidField, validation.check_claims,
            [claim('x' * 10 ** 6)])

        self.assertLess(len(str(error)), 200)

    def test_provider_is_named_once_for_a_consumer(self):
        error = self.assertRaises(
            exception.InvalidField, validation.check_claims,
            [claim(VCPU=1), claim(GB=1)])

        self.assertEqual('provider', error.field)

    def test_membership_error_names_field_and_bound(self):
        good = base.Membership('g', 'h', 'affinity')
        for field, value, name in (
            ('group', '', 'group'), ('host', '', 'group host'),
            ('host', 'x' * 256, 'group host'),
            ('host', 'x\0', 'group host'), ('host', None, 'group host'),
            ('member', 'x' * 37, 'group member'),
            ('policy', 'soft-affinity', 'group policy'),
            ('max_server_per_host', 0, 'group max_server_per_host'),
        ):
            bad = claim(VCPU=1, group=dataclasses.replace(
                good, **{field: value}))

            error = self.assertRaises(
                exception.InvalidField, validation.check_claims, [bad])

            self.assertEqual(name, error.field)
        validation.check_claims([claim(VCPU=1, group=good)])

    def test_second_membership_of_a_consumer_is_refused(self):
        good = base.Membership('g', 'h', 'affinity')
        for rest in (None, base.Membership('g', 'i', 'affinity')):
            error = self.assertRaises(
                exception.InvalidField, validation.check_claims,
                [claim(VCPU=1, group=good),
                 claim(provider='q', VCPU=1, group=rest)])

            self.assertEqual('group', error.field)

    def test_inventory_error_names_class_and_field(self):
        for field, value in (('total', -1), ('reserved', 2 ** 31),
                             ('min_unit', 0), ('max_unit', True),
                             ('step_size', None), ('allocation_ratio', -1.0)):
            has = base.Inventory(**{'total': 8, field: value})

            error = self.assertRaises(
                exception.InvalidField, validation.check_inventory, 'p',
                {'VCPU': has})

            self.assertEqual(f'VCPU {field}', error.field)

    def test_empty_inventory_is_accepted(self):
        validation.check_inventory('p', {})
        validation.check_inventory('p', {'VCPU': base.Inventory(0)})
        self.assertRaises(
            exception.InvalidField, validation.check_inventory, 'p',
            {'VCPU': base.Inventory(-1)})


class TestOutstanding(tests.TestCase):

    def test_claims_of_consumers_without_claims_are_outstanding(self):
        claims = [claim('a', VCPU=1), claim('b', VCPU=1),
                  claim('a', 'q', VCPU=1)]

        self.assertEqual(claims, validation.outstanding(claims, {}))
        self.assertEqual(claims[1:2], validation.outstanding(
            claims, {'a': [claims[2], claims[0]]}))

    def test_consumer_with_other_claims_is_a_conflict(self):
        claims = [claim('a', VCPU=1), claim('a', 'q', VCPU=1)]

        for holds in ([claim('a', VCPU=2), claims[1]], claims[:1],
                      [*claims, claim('a', 'r', VCPU=1)]):
            error = self.assertRaises(
                exception.ClaimConflict, validation.outstanding, claims,
                {'a': holds})

            self.assertEqual('a', error.consumer)


class TestFindRefusal(tests.TestCase):

    def test_batch_within_capacity_is_not_refused(self):
        self.assertIsNone(validation.find_refusal(
            [claim('a', VCPU=1), claim('b', VCPU=2)],
            {'p': {'VCPU': base.Inventory(5)}}, {'p': {'VCPU': 2}}))

    def test_refusal_names_the_first_claim_beyond_capacity(self):
        refusal = validation.find_refusal(
            [claim('a', VCPU=2), claim('b', VCPU=2), claim('c', VCPU=1)],
            {'p': {'VCPU': base.Inventory(5)}}, {'p': {'VCPU': 2}})

        self.assertEqual(
            {'consumer': 'b', 'provider': 'p', 'resource': 'VCPU',
             'amount': 2, 'code': 409}, refusal.kwargs)

    def test_unknown_provider_has_no_capacity(self):
        self.assertIsNotNone(validation.find_refusal([claim(VCPU=1)], {}, {}))


class TestFindViolation(tests.TestCase):

    def violation(self, *claims, members=()):
        """Return consumer and hosts of the violation."""
        found = validation.find_violation(
            claims, [('g', f'of-{name}', name, host)
                     for name, host in members])
        return found and (found.consumer, found.hosts)

    def test_claims_without_a_group_violate_no_policy(self):
        self.assertIsNone(self.violation(
            claim(VCPU=1), members=[('a', 'h')]))

    def test_anti_affinity_limits_members_on_a_host(self):
        members = [('a', 'h'), ('b', 'h'), ('b', 'i')]
        for most, host, hosts in (
            (1, 'h', ['h', 'i']), (2, 'h', ['h']), (1, 'i', ['h', 'i'])):
            self.assertEqual(('c', hosts), self.violation(
                member('c', host, most=most), members=members))
        for most, host in ((3, 'h'), (2, 'i'), (1, 'j')):
            self.assertIsNone(self.violation(
                member('c', host, most=most), members=members))

    def test_affinity_has_all_members_on_a_host(self):
        members = [('a', 'h'), ('b', 'h')]
        self.assertEqual(('c', ['h']), self.violation(
            member('c', 'i', 'affinity'), members=members))
        self.assertIsNone(self.violation(
            member('c', 'h', 'affinity'), members=members))
        self.assertIsNone(self.violation(member('c', 'i', 'affinity')))

    def test_members_of_the_batch_count_and_are_not_reported(self):
        self.assertEqual(('b', []), self.violation(
            member('a', 'h'), member('b', 'h')))
        self.assertEqual(('c', []), self.violation(
            member('a', 'h', 'affinity'), member('b', 'h', 'affinity'),
            member('c', 'i', 'affinity')))
        self.assertEqual(('b', []), self.violation(
            member('a', 'h', most=2), member('b', 'h', most=2),
            members=[('z', 'h')]))

    def test_member_does_not_count_against_its_own_move(self):
        members = [('a', 'h')]
        for policy in ('affinity', 'anti-affinity'):
            for host in 'h', 'i':
                self.assertIsNone(self.violation(
                    member('moved', host, policy, name='a'), members=members))
        self.assertEqual(('c', ['h']), self.violation(
            member('moved', 'i', name='a'), member('c', 'h'), members=members))
        self.assertEqual(('c', ['h']), self.violation(
            member('moved', 'i', name='a'), member('c', 'i'),
            members=members))

    def test_violation_has_the_names_of_other_members(self):
        found = validation.find_violation(
            [member('moved', 'i', 'affinity', name='b')],
            [('g', 'x', 'a', 'h'), ('g', 'y', 'b', 'h'), ('f', 'z', 'c', 'h')])

        self.assertEqual(['x'], found.members)

    def test_claims_of_a_consumer_count_as_a_single_member(self):
        one = member('a', 'h')
        self.assertIsNone(self.violation(
            one, dataclasses.replace(one, provider='q')))
