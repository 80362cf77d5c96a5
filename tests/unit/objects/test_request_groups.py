# SPDX-License-Identifier: Apache-2.0
"""Groups of resources that one provider gives, as flavors ask for them."""

import itertools

import hypothesis
from hypothesis import strategies as st

from cellsched import exception
from cellsched.objects import request_groups
from cellsched.objects import resources
from cellsched.testing import builders
from tests import profile
from tests.unit import base
from tests.unit.objects import groups

PORT = groups.PORT

parse, envelope = groups.parse, groups.envelope
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
                    parse(extra_specs, requested, level), extra_specs)

    def test_fields_of_a_request_may_not_be_set(self):
        self.assertIs(request_groups.NO_GROUPS,
                      builders.request().group_demand())

    @hypothesis.given(groups.made(), st.booleans(), st.randoms())
    def test_groups_are_read_from_extra_specs(self, made, isolate, random):
        specs = [('group_policy', 'isolate' if isolate else 'none')]
        for group in made:
            specs += [(f'resources{group.suffix}:{name}', f'{amount}')
                      for name, amount in group.resources]
            for said in 'required', 'forbidden':
                specs += [(f'trait{group.suffix}:{name}', said)
                          for name in getattr(group, said)]
        random.shuffle(specs)

        self.assertEqual(
            request_groups.GroupDemand(made, isolate), parse(dict(specs)))

    def test_amounts_without_suffix_are_apart(self):
        request = builders.request(extra_specs={
            'resources:VGPU': '1', 'resources1:VGPU': '2'})

        [group] = request.group_demand().groups
        self.assertEqual((('VGPU', 2),), group.resources)
        self.assertEqual(1, request.resources()['VGPU'])

    def test_zero_amount_is_omitted(self):
        [group] = parse({'resources1:VGPU': '0', 'resources1:VCPU': '1',
                         'resources2:VGPU': '0'}).groups

        self.assertEqual((('VCPU', 1),), group.resources)

    def test_key_without_a_suffix_is_in_no_group(self):
        for suffix in '!', ' 1', 'a' * 65, '\u0661':
            self.assertIs(
                request_groups.NO_GROUPS,
                parse({f'resources{suffix}:VGPU': 'x'}), suffix)

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
            [group] = parse({'resources1:VGPU': '1',
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
            self.assertIs(request_groups.NO_GROUPS, parse({
                'traits:CUSTOM_A': said}))

    def test_traits_alone_need_resources_or_a_place(self):
        specs = {'trait_A:CUSTOM_B': 'required',
                 'trait_A:CUSTOM_A': 'forbidden'}

        self.assertEqual(
            ('flavor.extra_specs.trait_A:CUSTOM_A',
             'resources_A:CLASS too'), self.refused(specs))
        self.refused(specs, [port()], near([PORT]))
        demand = parse(specs, [port()], near([PORT, '_A']))
        self.assertEqual([PORT, '_A'], [
            each.suffix for each in demand.groups])
        self.assertEqual((), demand.groups[1].resources)


class TestBounds(groups.TestCase):

    def test_flavor_has_at_most_64_groups(self):
        specs = {f'resources{number}:VGPU': '1' for number in range(64)}
        specs['group_policy'] = 'none'
        self.assertEqual(64, len(parse(specs).groups))

        for more, named in (
                ({f'resources{number}:VGPU': '1'
                  for number in range(64, 10_000)}, 'resources64:VGPU'),
                ({'trait64:CUSTOM_A': 'required'}, 'trait64:CUSTOM_A')):
            self.assertEqual(
                (f'flavor.extra_specs.{named}', 'at most 64 groups'),
                self.refused({**specs, **more}))

    def test_group_of_a_flavor_has_at_most_64_classes_and_traits(self):
        for kind, said in ('resources', '1'), ('trait', 'required'):
            specs = {'resources1:VGPU': '1', **{
                f'{kind}1:CUSTOM_{number}': said for number in range(
                    63 if kind == 'resources' else 64)}}
            self.assertEqual(1, len(parse(specs).groups))
            self.assertEqual(
                (f'flavor.extra_specs.{kind}1:CUSTOM_A',
                 'at most 64 classes and as many traits in a group'),
                self.refused({**specs, f'{kind}1:CUSTOM_A': said}))


class TestPolicy(groups.TestCase):

    POLICY = ('flavor.extra_specs.group_policy',
              'none or isolate: whether each of several groups has a '
              'provider of its own')

    def test_several_groups_of_a_flavor_require_a_policy(self):
        specs = {'resources1:VGPU': '1', 'resources2:VGPU': '1'}

        self.assertEqual(self.POLICY, self.refused(specs))
        for policy, isolate in ('none', False), ('isolate', True):
            self.assertEqual(isolate, parse(
                {**specs, 'group_policy': policy}).isolate)

    def test_groups_of_ports_require_no_policy(self):
        for specs in {}, {'resources1:VGPU': '1'}:
            demand = parse(specs, [port(), port(requester_id=groups.OTHER)])
            self.assertIs(False, demand.isolate)
            self.assertEqual(2 + len(specs), len(demand.groups))

    def test_policy_of_the_flavor_applies_to_groups_of_ports(self):
        self.assertTrue(parse(
            {'group_policy': 'isolate'},
            [port(), port(requester_id=groups.OTHER)]).isolate)

    def test_unknown_policy_is_refused(self):
        for policy in '', 'ISOLATE', 'x' * 100_000:
            self.assertEqual(self.POLICY, self.refused(
                {'resources1:VGPU': '1', 'group_policy': policy}))


class TestCheck(base.TestCase):

    def test_extra_specs_are_checked_individually(self):
        request_groups.check({'resources1:VGPU': '1', 'resources2:VGPU': '1'})
        request_groups.check({'trait1:CUSTOM_A': 'required'})
        request_groups.check({'group_policy': 'isolate'})
        for bad in ({'resources1:GPU': '1'}, {'trait1:A': 'required'},
                    {'resources1:VGPU': 'x'}, {'group_policy': 'x'}):
            error = self.assertRaises(
                exception.InvalidField, request_groups.check, bad)
            self.assertEqual(f'extra_specs.{[*bad][0]}', error.field)


parse, envelope = groups.parse, groups.envelope
near, port = groups.near, groups.port

#: Anything that JSON says, with words that mean something among it.
WORDS = st.sampled_from([
    'nova_object.name', 'nova_object.data', 'RequestGroup', 'resources',
    'required_traits', 'aggregates', 'requester_id', 'same_subtree',
    'in_tree', 'use_same_provider', 'VGPU', 'CUSTOM_A', PORT, '1'])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    | WORDS | st.just(10 ** 4000),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(
        WORDS | st.text(), inner, max_size=5), max_leaves=20)


class TestRequested(groups.TestCase):

    @hypothesis.given(
        groups.made(
            in_tree=st.none() | groups.UUIDS,
            aggregates=st.lists(
                st.frozensets(groups.UUIDS), max_size=2).map(tuple),
            forbidden_aggregates=st.frozensets(groups.UUIDS, max_size=2)),
        st.booleans())
    def test_groups_are_read_from_objects_and_dicts(self, made, plain):
        documents = [port(
            resources=dict(group.resources), requester_id=group.suffix,
            required_traits=[*group.required],
            forbidden_traits=[*group.forbidden], in_tree=group.in_tree,
            aggregates=[[*each] for each in group.aggregates],
            forbidden_aggregates=[*group.forbidden_aggregates])
            for group in reversed(made)]

        self.assertEqual(
            request_groups.GroupDemand(made),
            parse({}, [each['nova_object.data'] for each in documents]
                  if plain else documents))

    def test_omitted_class_is_not_requested(self):
        self.assertEqual(
            (request_groups.RequestGroup('1', (('VGPU', 2),)),),
            parse({}, [{'requester_id': '1', 'resources': {
                'VGPU': 2, 'VCPU': 0}}, {'requester_id': '2'}]).groups)

    def test_groups_without_resources_are_ignored(self):
        self.assertIs(request_groups.NO_GROUPS, parse({}, [
            {'requester_id': '1'}, port(resources={'VGPU': 0})]))

    def test_uuids_are_normalized(self):
        [group] = parse({}, [port(
            in_tree=PORT.upper(), aggregates=[[groups.OTHER.replace('-', '')]],
            forbidden_aggregates=[PORT.upper()])]).groups

        self.assertEqual((PORT, ({groups.OTHER},), {PORT}), group[-3:])

    def test_invalid_value_is_refused_by_its_field(self):
        for bad, named in (
                ({'use_same_provider': False}, 'use_same_provider'),
                ({'use_same_provider': 'yes'}, 'use_same_provider'),
                ({'requester_id': None}, 'requester_id'),
                ({'requester_id': ''}, 'requester_id'),
                ({'requester_id': 'a' * 65}, 'requester_id'),
                ({'requester_id': 'a\n'}, 'requester_id'),
                ({'requester_id': 1}, 'requester_id'),
                ({'resources': ['VGPU']}, 'resources'),
                ({'resources': {'GPU': 1}}, 'resources.GPU'),
                ({'resources': {'VGPU': -1}}, 'resources.VGPU'),
                ({'resources': {'VGPU': 2 ** 31}}, 'resources.VGPU'),
                ({'resources': {'VGPU': 10 ** 5000}}, 'resources.VGPU'),
                ({'resources': {'VGPU': 1.0}}, 'resources.VGPU'),
                ({'resources': {'VGPU': True}}, 'resources.VGPU'),
                ({'resources': {'VGPU': '1'}}, 'resources.VGPU'),
                ({'required_traits': 'CUSTOM_A'}, 'required_traits'),
                ({'required_traits': ['A']}, 'required_traits'),
                ({'required_traits': [['CUSTOM_A']]}, 'required_traits'),
                ({'forbidden_traits': [None]}, 'forbidden_traits'),
                ({'forbidden_traits': ['CUSTOM_A'],
                  'required_traits': ['CUSTOM_A']}, 'forbidden_traits'),
                ({'aggregates': [PORT]}, 'aggregates'),
                ({'aggregates': [['x']]}, 'aggregates'),
                ({'forbidden_aggregates': ['x']}, 'forbidden_aggregates'),
                ({'in_tree': 'x'}, 'in_tree'), ({'in_tree': ''}, 'in_tree'),
                ({'in_tree': PORT + ' ' * 100_000}, 'in_tree'),
                ({'in_tree': [PORT]}, 'in_tree'),
                ({'resources': {}, 'required_traits': ['CUSTOM_A']},
                 'resources'),
                ({'resources': {}, 'in_tree': PORT}, 'resources'),
                ({'in_tree': f'urn:uuid:{PORT}'}, 'in_tree'),
                ({'resources': {1: 1}}, 'resources.key'), ({1: 1}, 'key'),
                ({'height': 400}, 'height'),
                ({'\U00010000' * 9: 1}, '\\U00010000' * 8)):
            document = port()
            document['nova_object.data'].update(bad)
            field, _ = self.refused({}, [port(requester_id='1'), document])
            self.assertEqual(f'request.requested_resources[1].{named}', field)

    def test_unknown_field_with_null_is_ignored(self):
        self.assertEqual(parse({}, [port()]), parse({}, [port(height=None)]))

    def test_duplicate_suffix_is_refused(self):
        for specs, ports in (({}, [port(), port()]),
                             ({'resources1:VGPU': '1'},
                              [port(requester_id='0'),
                               port(requester_id='1')])):
            self.assertEqual(
                ('request.requested_resources[1].requester_id',
                 'a different one for each group of the request'),
                self.refused(specs, ports))

    def test_object_of_another_kind_is_passed_over(self):
        self.assertEqual(
            parse({}, [port()]),
            parse({}, [port(), envelope('Orbit', height=400)]))

    def test_invalid_group_is_refused_by_its_place(self):
        for bad in None, 1, 'x', [], {'nova_object.data': 1}:
            self.assertEqual(
                'request.requested_resources[1]',
                self.refused({}, [port(), bad])[0])
        for bad in 'x', {'1': port()}, 1:
            self.assertEqual(
                'request.requested_resources', self.refused({}, bad)[0])


class TestSameSubtree(groups.TestCase):

    def test_sets_are_of_suffixes_of_all_groups(self):
        for level in near([PORT, '1'], ['1']), near(
                [PORT, '1'], ['1'])['nova_object.data']:
            self.assertEqual(
                ({PORT, '1'}, {'1'}),
                parse({'resources1:VGPU': '1'}, [port()], level).same_subtree)

    def test_provider_in_a_subtree_may_give_no_resources(self):
        demand = parse({}, [port(), port(
            requester_id='1', resources={}, required_traits=['CUSTOM_A'])],
            near([PORT, '1']))

        self.assertEqual(
            request_groups.RequestGroup('1', (), frozenset({'CUSTOM_A'})),
            demand.groups[0])

    def test_invalid_value_is_refused(self):
        field = 'request_level_params.same_subtree'
        for bad, named in (
                (near(['x']), field), (near([PORT, 'x']), field),
                (near([]), field), (near([PORT], []), field),
                (near([1]), field), (near([[PORT]]), field),
                (near(PORT), field), (near(['x' * 100_000]), field),
                ({'same_subtree': PORT}, field),
                (envelope('Orbit'), 'request_level_params'),
                ({'nova_object.data': []}, 'request_level_params'),
                ('x', 'request_level_params')):
            self.assertEqual(
                f'request.{named}', self.refused({}, [port()], bad)[0])
        self.assertEqual(f'request.{field}', self.refused(
            {}, None, near(['1']))[0])


class TestRequestBounds(groups.TestCase):

    def test_request_has_at_most_64_groups(self):
        ports = [port(requester_id=f'p{number}') for number in range(65)]

        self.assertEqual(64, len(parse({}, ports[:64]).groups))
        self.assertEqual(
            ('request.requested_resources', 'a list of at most 64 groups'),
            self.refused({}, ports))
        self.assertEqual(
            ('request.requested_resources',
             'at most 64 groups, including the groups of the flavor'),
            self.refused({'resources1:VGPU': '1'}, ports[:64]))

    def test_group_of_a_request_has_at_most_64_classes_and_traits(self):
        classes = {f'CUSTOM_{number}': 1 for number in range(65)}
        self.assertEqual(
            ('request.requested_resources[0].resources',
             'amounts of at most 64 resource classes'),
            self.refused({}, [port(resources=classes)]))
        for name, many in (('required_traits', [*classes]),
                           ('forbidden_traits', [*classes]),
                           ('aggregates', [[PORT]] * 65),
                           ('aggregates', [[PORT] * 65]),
                           ('forbidden_aggregates', [PORT] * 65)):
            self.assertEqual(
                (f'request.requested_resources[0].{name}',
                 'a list of at most 64'),
                self.refused({}, [port(**{name: many})]))

    def test_same_subtree_has_at_most_64_sets_of_64(self):
        for sets in [[PORT]] * 65, [[PORT] * 65]:
            self.assertEqual(
                ('request.request_level_params.same_subtree',
                 'a list of at most 64'),
                self.refused({}, [port()], near(*sets)))


class TestHostileInput(groups.TestCase):

    @profile.many_examples
    @hypothesis.given(
        st.dictionaries(st.builds(
            '{}{}:{}'.format, st.sampled_from(['resources', 'trait']),
            groups.SUFFIXES | st.text(), WORDS | st.text()),
            st.sampled_from(['1', 'required']) | st.text(), max_size=5),
        JSON, JSON)
    def test_arbitrary_input_is_read_or_refused_in_a_single_line(
        self, specs, requested, level
    ):
        try:
            demand = parse(specs, requested, level)
        except exception.InvalidField as exc:
            self.assertTrue(str(exc).isprintable(), str(exc))
            self.assertLess(len(str(exc)), 300)
        else:
            hash(demand)
            suffixes = [group.suffix for group in demand.groups]
            self.assertEqual(sorted({*suffixes}), suffixes)
            for group in demand.groups:
                self.assertTrue(all(
                    resources.is_known(name) and amount > 0
                    for name, amount in group.resources))
