# SPDX-License-Identifier: Apache-2.0
"""Groups of resources that one provider gives, as flavors ask for them."""

import itertools

import hypothesis
from hypothesis import strategies as st

from cellsched import exception
from cellsched.objects import request_groups
from cellsched.testing import builders
from tests.unit import base
from tests.unit.objects import groups

PORT = groups.PORT

asked, envelope = groups.asked, groups.envelope
near, port = groups.near, groups.port


class TestFlavors(groups.TestCase):

    def test_plain_request_has_no_groups(self):
        for extra_specs in ({}, {'resources:VGPU': '1'},
                            {'trait:CUSTOM_A': 'required'},
                            {'group_policy': 'x', 'resources': '1',
                             'trait1': 'required', 'hw:resources1:VGPU': '1'},
                            {'resources1:VGPU': '0'}):
            for requested, level in itertools.product(
                    (None, []), (None, {}, envelope('RequestLevelParams'),
                                 near())):
                self.assertIs(
                    request_groups.NO_GROUPS,
                    asked(extra_specs, requested, level), extra_specs)

    def test_fields_of_a_request_may_not_be_set(self):
        self.assertIs(request_groups.NO_GROUPS,
                      builders.request().group_demand())

    @hypothesis.given(groups.made(), st.booleans(), st.randoms())
    def test_groups_are_those_of_the_extra_specs(self, made, isolate, random):
        specs = [('group_policy', 'isolate' if isolate else 'none')]
        for group in made:
            specs += [(f'resources{group.suffix}:{name}', f'{amount}')
                      for name, amount in group.resources]
            for said in 'required', 'forbidden':
                specs += [(f'trait{group.suffix}:{name}', said)
                          for name in getattr(group, said)]
        random.shuffle(specs)

        self.assertEqual(
            request_groups.GroupDemand(made, isolate), asked(dict(specs)))

    def test_amounts_without_suffix_are_apart(self):
        request = builders.request(extra_specs={
            'resources:VGPU': '1', 'resources1:VGPU': '2'})

        [group] = request.group_demand().groups
        self.assertEqual((('VGPU', 2),), group.resources)
        self.assertEqual(1, request.resources()['VGPU'])

    def test_zero_takes_nothing(self):
        [group] = asked({'resources1:VGPU': '0', 'resources1:VCPU': '1',
                         'resources2:VGPU': '0'}).groups

        self.assertEqual((('VCPU', 1),), group.resources)

    def test_what_has_no_suffix_of_a_group_is_none(self):
        for suffix in '!', ' 1', 'a' * 65, '\u0661':
            self.assertIs(
                request_groups.NO_GROUPS,
                asked({f'resources{suffix}:VGPU': 'x'}), suffix)

    def test_name_is_of_a_class(self):
        for name in 'GPU', '', 'a:b', 'VGPU\n', 'x' * 100_000:
            field, expected = self.refused({f'resources1:{name}': '1'})
            self.assertIn('flavor.extra_specs.resources1:', field)
            self.assertIn('a resource class', expected)

    def test_value_is_an_amount(self):
        for said in '', '-1', '1.5', '2147483648', '9' * 100_000:
            self.assertEqual(
                ('flavor.extra_specs.resources1:VGPU',
                 'a whole number from 0 to 2147483647'),
                self.refused({'resources1:VGPU': said}))

    def test_traits_are_known_or_custom(self):
        for name in (groups.STANDARD, 'CUSTOM_A', 'CUSTOM_' + 'A' * 248):
            [group] = asked({'resources1:VGPU': '1',
                             f'trait1:{name}': 'forbidden'}).groups
            self.assertEqual(({name}, set()),
                             (group.forbidden, group.required))
        for name in ('', 'HW', 'CUSTOM_', 'custom_a', 'CUSTOM_A\n',
                     'CUSTOM_' + 'A' * 249, 'A' * 100_000):
            field, expected = self.refused({
                'resources1:VGPU': '1', f'trait1:{name}': 'required'})
            self.assertIn('flavor.extra_specs.trait1:', field)
            self.assertIn('a trait', expected)

    def test_trait_of_a_group_is_required_or_forbidden(self):
        for said in '', 'x', 'REQUIRED':
            self.assertEqual(
                ('flavor.extra_specs.trait1:CUSTOM_A',
                 'required or forbidden'),
                self.refused({'trait1:CUSTOM_A': said,
                              'resources1:VGPU': '1'}))
            self.assertIs(request_groups.NO_GROUPS, asked({
                'traits:CUSTOM_A': said}))

    def test_traits_alone_need_resources_or_a_place(self):
        specs = {'trait_A:CUSTOM_B': 'required',
                 'trait_A:CUSTOM_A': 'forbidden'}

        self.assertEqual(
            ('flavor.extra_specs.trait_A:CUSTOM_A',
             'resources_A:CLASS beside it'), self.refused(specs))
        self.refused(specs, [port()], near([PORT]))
        demand = asked(specs, [port()], near([PORT, '_A']))
        self.assertEqual([PORT, '_A'], [
            each.suffix for each in demand.groups])
        self.assertEqual((), demand.groups[1].resources)


class TestBounds(groups.TestCase):

    def test_flavor_has_so_many_groups(self):
        specs = {f'resources{number}:VGPU': '1' for number in range(64)}
        specs['group_policy'] = 'none'
        self.assertEqual(64, len(asked(specs).groups))

        for more, named in (
                ({f'resources{number}:VGPU': '1'
                  for number in range(64, 10_000)}, 'resources64:VGPU'),
                ({'trait64:CUSTOM_A': 'required'}, 'trait64:CUSTOM_A')):
            self.assertEqual(
                (f'flavor.extra_specs.{named}', 'at most 64 groups'),
                self.refused({**specs, **more}))

    def test_group_of_a_flavor_has_so_many_classes_and_traits(self):
        for kind, said in ('resources', '1'), ('trait', 'required'):
            specs = {'resources1:VGPU': '1', **{
                f'{kind}1:CUSTOM_{number}': said for number in range(
                    63 if kind == 'resources' else 64)}}
            self.assertEqual(1, len(asked(specs).groups))
            self.assertEqual(
                (f'flavor.extra_specs.{kind}1:CUSTOM_A',
                 'at most 64 classes and as many traits in a group'),
                self.refused({**specs, f'{kind}1:CUSTOM_A': said}))


class TestPolicy(groups.TestCase):

    POLICY = ('flavor.extra_specs.group_policy',
              'none or isolate: whether each of several groups has a '
              'provider of its own')

    def test_several_groups_of_a_flavor_need_one(self):
        specs = {'resources1:VGPU': '1', 'resources2:VGPU': '1'}

        self.assertEqual(self.POLICY, self.refused(specs))
        for policy, isolate in ('none', False), ('isolate', True):
            self.assertEqual(isolate, asked(
                {**specs, 'group_policy': policy}).isolate)

    def test_groups_of_ports_need_none(self):
        for specs in {}, {'resources1:VGPU': '1'}:
            demand = asked(specs, [port(), port(requester_id=groups.OTHER)])
            self.assertIs(False, demand.isolate)
            self.assertEqual(2 + len(specs), len(demand.groups))

    def test_it_holds_for_groups_of_ports_too(self):
        self.assertTrue(asked(
            {'group_policy': 'isolate'},
            [port(), port(requester_id=groups.OTHER)]).isolate)

    def test_there_are_no_others(self):
        for policy in '', 'ISOLATE', 'x' * 100_000:
            self.assertEqual(self.POLICY, self.refused(
                {'resources1:VGPU': '1', 'group_policy': policy}))


class TestCheck(base.TestCase):

    def test_each_extra_spec_is_looked_at_by_itself(self):
        request_groups.check({'resources1:VGPU': '1', 'resources2:VGPU': '1'})
        request_groups.check({'trait1:CUSTOM_A': 'required'})
        request_groups.check({'group_policy': 'isolate'})
        for bad in ({'resources1:GPU': '1'}, {'trait1:A': 'required'},
                    {'resources1:VGPU': 'x'}, {'group_policy': 'x'}):
            error = self.assertRaises(
                exception.InvalidField, request_groups.check, bad)
            self.assertEqual(f'extra_specs.{[*bad][0]}', error.field)
