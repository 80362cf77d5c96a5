# SPDX-License-Identifier: Apache-2.0
"""Child providers of nodes, as a driver reports them."""

import hypothesis
from hypothesis import strategies

from cellsched.compute import children
from cellsched import exception
from cellsched.objects import resources
from cellsched.virt import base as virt
from tests.unit import base

CHILD = virt.ChildProvider()


def below(name):
    return virt.ChildProvider(parent=name)


class TestCheck(base.TestCase):

    def refused(self, providers):
        error = self.assertRaises(
            exception.InvalidField, children.check, 'node1', providers)
        self.assertEqual("node 'node1'", error.where)
        return error.field, error.detail

    def test_more_than_1000_children_are_refused(self):
        for count in 0, 1000:
            children.check('node1', {
                str(name): CHILD for name in range(count)})
        self.assertEqual(
            ('providers', '1001 are too many; expected at most 1000'),
            self.refused(
                {str(name): CHILD for name in range(1001)}))

    def test_names_are_printable_and_not_the_nodes(self):
        children.check('node1', {
            'x' * 200: CHILD, 'vf \xe4': below('pf'), 'pf': below('x' * 200)})
        for name in '', 'x' * 201, 'a\n', '\0', '\ud800', 7, None, 'node1':
            field, expected = self.refused({name: CHILD})

            self.assertEqual(f'providers[{name!a:.80}]', field)
            self.assertIn('1 to 200 printable characters', expected)

    def test_parent_is_another_child(self):
        for parent in 'node1', 'b', '', 7, ():
            self.assertEqual(
                ("providers['a'].parent",
                 f'{parent!a} is unknown; expected the name of a child of '
                 'the node'),
                self.refused({'a': below(parent)}))

    def test_cycle_of_children_is_refused(self):
        for providers in (
                {'a': below('a')},
                {'a': below('b'), 'b': below('a')},
                {'z': CHILD, 'a': below('b'), 'b': below('c'),
                 'c': below('a')}):
            self.assertEqual(
                ("providers['a'].parent", 'the provider is below itself; '
                 'expected a tree of providers'),
                self.refused(providers))

    def test_inventories_and_traits_have_valid_types_and_names(self):
        inventory = resources.Inventory(1)
        children.check('node1', {'a': virt.ChildProvider(
            {'VGPU': inventory, 'CUSTOM_A': inventory},
            frozenset({'HW_A', 'CUSTOM_B'}))})
        for field, value in (
                ('traits', 'HW_A'), ('traits', {'hw'}), ('traits', {7}),
                ('traits', {'X' * 256}), ('traits', ['HW_A']),
                ('inventories', None), ('inventories', {'GPU': inventory}),
                ('inventories', {7: inventory}), ('inventories', {'VGPU': 4}),
                ('inventories', ['VGPU'])):
            found, _ = self.refused(
                {'a': virt.ChildProvider(**{field: value})})

            self.assertEqual(f"providers['a'].{field}", found, value)

    def test_amounts_are_valid_for_claim_stores(self):
        for name, value in (('total', -1), ('total', 1.5), ('reserved', None),
                            ('max_unit', 0), ('allocation_ratio', 0)):
            field, _ = self.refused({'a': virt.ChildProvider({
                'VGPU': resources.Inventory(**{'total': 1, name: value})})})

            self.assertEqual(
                f"providers['a'].inventories: VGPU {name}", field)

    def test_invalid_child_is_refused(self):
        self.assertEqual('providers', self.refused(['a'])[0])
        self.assertEqual('providers', self.refused(None)[0])
        self.assertEqual("providers['a']", self.refused({'a': {}})[0])

    def test_all_traits_have_a_bound(self):
        traits = frozenset(f'CUSTOM_{"X" * 240}{n:08}' for n in range(5))
        children.check('node1', {
            str(n): virt.ChildProvider(traits=traits) for n in range(822)})

        field, expected = self.refused({
            str(n): virt.ChildProvider(traits=traits) for n in range(823)})

        self.assertEqual('providers', field)
        self.assertIn('at most 1048576 characters', expected)

    @hypothesis.given(strategies.dictionaries(
        strategies.sampled_from('abcdef'),
        strategies.none() | strategies.sampled_from('abcdef')))
    def test_accepted_children_are_a_forest(self, parents):
        try:
            children.check('node1', {
                name: below(parent) for name, parent in parents.items()})
            accepted = True
        except exception.InvalidField:
            accepted = False

        # Take away the leaves that hang on what is there, again and again.
        known = {None}
        for _ in parents:
            known |= {name for name, parent in parents.items()
                      if parent in known}
        self.assertEqual(parents.keys() <= known, accepted)
