# SPDX-License-Identifier: Apache-2.0
"""Errors name the place, the field and the bound, on each side of a bound."""

import dataclasses

from cellsched.claims import base
from cellsched.claims import validation
from cellsched import exception
from tests.unit import base as tests


def whole_number(least, value):
    return (f'{value} is not valid; expected a whole number from {least} to '
            '2147483647')


class TestBounds(tests.TestCase):

    def assertRefused(self, where, field, expected, check, *args):
        error = self.assertRaises(exception.InvalidField, check, *args)

        self.assertEqual(
            (where, field, expected if '; ' in expected
             else f'expected {expected}'),
            (error.where, error.field, error.detail))

    def claims(self, **fields):
        return [dataclasses.replace(
            base.Claim('c', 'p', {'VCPU': 1}), **fields)]

    def test_claim(self):
        for fields in (
                {'consumer': 'x' * 36}, {'provider': '~' * 36},
                {'resources': {'A' * 255: 1}}, {'resources': {'_9': 1}},
                {'resources': {'VCPU': 2 ** 31 - 1}}):
            validation.check_claims(self.claims(**fields))
        for fields, field, expected in (
                ({'provider': 'x' * 37}, 'provider', 'a uuid'),
                ({'resources': {}}, 'resources', 'at least one'),
                ({'resources': {'A' * 256: 1}}, 'resource class',
                 f"'{'A' * 79} is not valid; expected A-Z, 0-9 and _, at most "
                 '255 characters'),
                ({'resources': {'VCPU': 2 ** 31}}, 'VCPU',
                 whole_number(1, 2 ** 31)),
                ({'resources': {'VCPU': 0}}, 'VCPU', whole_number(1, 0))):
            self.assertRefused(
                "claim of 'c'", field, expected, validation.check_claims,
                self.claims(**fields))
        self.assertRefused(
            f"claim of '{'x' * 79}", 'consumer', 'a uuid',
            validation.check_claims, self.claims(consumer='x' * 100))
        self.assertRefused(
            "claim of 'c'", 'provider',
            'p is repeated; expected each provider once',
            validation.check_claims, self.claims() * 2)

    def test_ids_of_project_and_user(self):
        for field in 'project_id', 'user_id':
            for good in None, 'x', 'x' * 255, '\ud7ff\ue000', '\n':
                validation.check_claims(self.claims(**{field: good}))
            for bad in '', 'x' * 256, 'x\0', '\ud800', '\udfff':
                self.assertRefused(
                    "claim of 'c'", field, 'an id of 1 to 255 characters',
                    validation.check_claims, self.claims(**{field: bad}))

    def test_membership(self):
        good = base.Membership('g', 'h', base.AFFINITY)
        for fields in ({'host': 'h' * 255}, {'group': 'g' * 36},
                       {'member': 'm' * 36}, {'max_server_per_host': 1},
                       {'policy': base.ANTI_AFFINITY}):
            validation.check_claims(self.claims(
                group=dataclasses.replace(good, **fields)))
        for fields, field, expected in (
                ({'group': 'g' * 37}, 'group', 'a uuid'),
                ({'member': 'm' * 37}, 'group member', 'a uuid'),
                ({'host': 'h' * 256}, 'group host',
                 'a name of at most 255 characters'),
                ({'policy': 'x'}, 'group policy',
                 'one of affinity, anti-affinity'),
                ({'max_server_per_host': 0}, 'group max_server_per_host',
                 whole_number(1, 0))):
            self.assertRefused(
                "claim of 'c'", field, expected, validation.check_claims,
                self.claims(group=dataclasses.replace(good, **fields)))
        self.assertRefused(
            "claim of 'c'", 'group', 'the same in all claims of a consumer',
            validation.check_claims,
            [*self.claims(group=good), *self.claims(provider='q')])

    def test_inventory(self):
        def check(field, value, provider='p'):
            validation.check_inventory(provider, {
                'VCPU': base.Inventory(**{'total': 8, field: value})})

        for field, least in (('total', 0), ('reserved', 0), ('min_unit', 1),
                             ('max_unit', 1), ('step_size', 1)):
            for value in least, 2 ** 31 - 1:
                check(field, value)
            for value in least - 1, 2 ** 31:
                self.assertRefused(
                    "inventory of 'p'", f'VCPU {field}',
                    whole_number(least, value), check, field, value)
        for ratio in 1e-9, 1, 1e6:
            check('allocation_ratio', ratio)
        for ratio in 0, 0.0, 1e6 + 1, None:
            self.assertRefused(
                "inventory of 'p'", 'VCPU allocation_ratio',
                f'{ratio!r} is not valid; expected above 0 and at most '
                '1000000', check,
                'allocation_ratio', ratio)
        self.assertRefused(
            "inventory of ''", 'provider', 'a uuid', check, 'total', 8, '')
        self.assertRefused(
            "inventory of 'p'", 'resource class',
            "'vcpu' is not valid; expected A-Z, 0-9 and _, at most 255 "
            'characters',
            validation.check_inventory, 'p', {'vcpu': base.Inventory(8)})

    def test_transfer(self):
        validation.check_transfer('s' * 36, 't' * 36)
        for source, target, field, expected in (
                ('', 't', 'source', 'a uuid'), ('s', '', 'target', 'a uuid'),
                ('s', 's', 'target', 'another consumer')):
            self.assertRefused(
                f'transfer from {source!r}', field, expected,
                validation.check_transfer, source, target)

    def test_limit(self):
        for limit in 1, 2 ** 31 - 1:
            validation.check_limit(limit)
        for limit in 0, 2 ** 31:
            self.assertRefused(
                'consumers', 'limit', whole_number(1, limit),
                validation.check_limit, limit)


class TestRefusal(tests.TestCase):

    def test_last_of_the_room_can_be_taken(self):
        inventories = {'p': {'VCPU': base.Inventory(5)}}
        for amount, fits in (3, True), (4, False):
            refusal = validation.find_refusal(
                [base.Claim('c', 'p', {'VCPU': amount})], inventories,
                {'p': {'VCPU': 2}})

            self.assertEqual(fits, refusal is None)

    def test_violation_has_consumer_group_hosts_and_members(self):
        claims = [
            base.Claim(name, f'p{name}', {'VCPU': 1}, base.Membership(
                'g', 'h', base.ANTI_AFFINITY)) for name in 'cd']

        found = validation.find_violation(claims, [
            ('g', 'x', 'a', 'h'), ('g', 'w', 'b', 'i'), ('f', 'v', 'a', 'h')])

        self.assertEqual(
            {'provider': 'pc', 'consumer': 'c', 'group': 'g',
             'policy': 'anti-affinity', 'hosts': ['h', 'i'],
             'members': ['w', 'x']},
            {name: found.kwargs[name] for name in (
                'provider', 'consumer', 'group', 'policy', 'hosts',
                'members')})
