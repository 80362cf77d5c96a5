# SPDX-License-Identifier: Apache-2.0
"""Decisions that claim stores share."""

import dataclasses

from cellsched.claims import base
from cellsched.claims import validation
from cellsched import exception
from tests.unit import base as tests

#: Values that are no names or no numbers, from JSON or a careless caller.
NO_NAMES = (None, 7, 1.5, True, b'c', ['c'], {'c': 1}, '', 'a b', 'ä',
            'c' * 10 ** 3, '\0')
NO_NUMBERS = (None, '1', 1.5, True, [1], -1)

NO_CLASS = ("'vcpu' is not valid; expected A-Z, 0-9 and _, at most 255 "
            'characters')


def whole_number(least, value):
    return (f'{value!r} is not valid; expected a whole number from {least} to '
            '2147483647')


def claim(consumer='c', provider='p', group=None, **resources):
    return base.Claim(consumer, provider, resources, group)


def member(consumer, host, policy='anti-affinity', most=1, name=''):
    return claim(consumer, f'p{host}', VCPU=1, group=base.Membership(
        'g', host, policy, most, name))


class TestBounds(tests.TestCase):
    """Errors name the place, the field and the bound."""

    def assertRefused(self, where, field, expected, check, *args):
        error = self.assertRaises(exception.InvalidField, check, *args)

        self.assertEqual(
            (where, field, expected if '; ' in expected
             else f'expected {expected}'),
            (error.where, error.field, error.detail))

    def claims(self, **fields):
        return [dataclasses.replace(claim(VCPU=1), **fields)]

    def test_claim(self):
        for fields in (
                {'consumer': 'x' * 36}, {'provider': '~' * 36},
                {'resources': {'A' * 255: 1}}, {'resources': {'_9': 1}},
                {'resources': {'VCPU': 2 ** 31 - 1}}):
            validation.check_claims(self.claims(**fields))
        for fields, field, expected in (
                *(({'provider': bad}, 'provider', 'a uuid')
                  for bad in (*NO_NAMES, 'x' * 37)),
                *(({'resources': {'VCPU': bad}}, 'VCPU', whole_number(1, bad))
                  for bad in (*NO_NUMBERS, 0, 2 ** 31)),
                ({'resources': {}}, 'resources', 'at least one'),
                ({'resources': {'vcpu': 1}}, 'resource class', NO_CLASS),
                ({'resources': {'A' * 256: 1}}, 'resource class',
                 NO_CLASS.replace("'vcpu'", f"'{'A' * 79}"))):
            with self.subTest(field=field, fields=str(fields)[:80]):
                self.assertRefused(
                    "claim of 'c'", field, expected, validation.check_claims,
                    self.claims(**fields))
        for bad in *NO_NAMES, 'x' * 37:
            self.assertRefused(
                f'claim of {bad!r:.80}', 'consumer', 'a uuid',
                validation.check_claims, self.claims(consumer=bad))

    def test_batch(self):
        validation.check_claims([
            claim(VCPU=1), claim('d', VCPU=1), claim(provider='q', VCPU=1)])
        self.assertRefused(
            "claim of 'c'", 'provider',
            'p is repeated; expected each provider once',
            validation.check_claims, [claim(VCPU=1), claim(GB=1)])
        self.assertRefused(
            "claim of 'd'", 'VCPU', whole_number(1, 0),
            validation.check_claims, [claim(VCPU=1), claim('d', VCPU=0)])

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

    def test_ids_of_project_and_user(self):
        for field in 'project_id', 'user_id':
            for good in None, 'x', 'x' * 255, '\ud7ff\ue000', '\n':
                validation.check_claims(self.claims(**{field: good}))
            for bad in ('', 'x' * 256, 'x\0', '\ud800', '\udfff', 7, 1.5, True,
                        b'c', ['c'], {'c': 1}, ('c',), object()):
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
        for field, bad, expected in (
                *(('group', bad, 'a uuid') for bad in (*NO_NAMES, 'g' * 37)),
                *(('member', bad, 'a uuid')
                  for bad in (*filter(None, NO_NAMES), 'm' * 37)),
                *(('host', bad, 'a name of at most 255 characters')
                  for bad in ('h' * 256, '', 'x\0', None)),
                ('policy', 'soft-affinity', 'one of affinity, anti-affinity'),
                ('max_server_per_host', 0, whole_number(1, 0))):
            with self.subTest(field=field, bad=str(bad)[:80]):
                self.assertRefused(
                    "claim of 'c'", f'group {field}'.replace(
                        'group group', 'group'), expected,
                    validation.check_claims, self.claims(
                        group=dataclasses.replace(good, **{field: bad})))
        for other in None, base.Membership('g', 'i', base.AFFINITY):
            self.assertRefused(
                "claim of 'c'", 'group',
                'the same in all claims of a consumer',
                validation.check_claims, [
                    *self.claims(group=good),
                    *self.claims(provider='q', group=other)])

    def test_inventory(self):
        def check(field, value, provider='p'):
            validation.check_inventory(provider, {
                'VCPU': base.Inventory(**{'total': 8, field: value})})

        validation.check_inventory('p', {})
        for field, least in (('total', 0), ('reserved', 0), ('min_unit', 1),
                             ('max_unit', 1), ('step_size', 1)):
            for value in least, 2 ** 31 - 1:
                check(field, value)
            for value in *NO_NUMBERS, least - 1, 2 ** 31:
                self.assertRefused(
                    "inventory of 'p'", f'VCPU {field}',
                    whole_number(least, value), check, field, value)
        for ratio in 1e-9, 1, 1e6:
            check('allocation_ratio', ratio)
        for ratio in 0, 0.0, -1.0, 1e6 + 1, None, '1', float('nan'):
            self.assertRefused(
                "inventory of 'p'", 'VCPU allocation_ratio',
                f'{ratio!r} is not valid; expected above 0 and at most '
                '1000000', check,
                'allocation_ratio', ratio)
        for bad in NO_NAMES:
            self.assertRefused(
                f'inventory of {bad!r:.80}', 'provider', 'a uuid',
                validation.check_inventory, bad, {})
        for bad in 'vcpu', 7:
            self.assertRefused(
                "inventory of 'p'", 'resource class',
                NO_CLASS.replace("'vcpu'", repr(bad)),
                validation.check_inventory, 'p', {bad: base.Inventory(8)})

    def test_transfer(self):
        validation.check_transfer('s' * 36, 't' * 36)
        for source, target, field, expected in (
                *((bad, 't', 'source', 'a uuid') for bad in NO_NAMES),
                *(('s', bad, 'target', 'a uuid') for bad in NO_NAMES),
                ('s', 's', 'target', 'another consumer')):
            self.assertRefused(
                f'transfer from {source!r:.80}', field, expected,
                validation.check_transfer, source, target)

    def test_limit(self):
        for limit in 1, 2 ** 31 - 1:
            validation.check_limit(limit)
        for limit in 0, -1, None, True, 2 ** 31:
            self.assertRefused(
                'consumers', 'limit', whole_number(1, limit),
                validation.check_limit, limit)


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
