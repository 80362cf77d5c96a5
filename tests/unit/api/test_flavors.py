# SPDX-License-Identifier: Apache-2.0
"""Flavors: create, get, list, delete."""

from cellsched.api import authorization
from cellsched.api import flavors
from cellsched.api import validation
from cellsched import context
from cellsched import exception
from cellsched.testing import clock
from cellsched.testing import databases
from tests.unit.api import hostile
from tests.unit import base

ADMIN = context.admin()


class TestFlavors(base.TestCase):

    def setUp(self):
        super().setUp()
        self.flavors = flavors.Flavors(
            authorization.LocalOperator(), self.useFixture(
                databases.APIDatabase()).database,
            clock.FakeClock())

    def test_flavor_is_found_by_name_and_by_id(self):
        made = self.flavors.create(ADMIN, 'small', 1, 512, 10, 2, 100, 'f1')

        for name in 'small', 'f1':
            found = self.flavors.get(ADMIN, name)
            self.assertEqual(
                ('small', 'f1', 1, 512, 10, 2, 100), (
                    found.name, found.flavorid, found.vcpus, found.memory_mb,
                    found.root_gb, found.ephemeral_gb, found.swap))
        self.assertEqual('f1', made.flavorid)

    def test_missing_flavor_id_is_generated(self):
        one, two = (
            self.flavors.create(ADMIN, name, 1, 1) for name in ('a', 'b'))

        self.assertNotEqual(one.flavorid, two.flavorid)
        self.assertEqual(
            ['a', 'b'], [each.name for each in self.flavors.list_all(ADMIN)])

    def test_name_and_id_are_unique(self):
        self.flavors.create(ADMIN, 'small', 1, 1, flavorid='1')

        # A flavor is found by its id or its name, so neither may be another's.
        for name, flavorid, field in (('small', '2', 'name'),
                                      ('other', '1', 'id'),
                                      ('1', '2', 'name'),
                                      ('other', 'small', 'id')):
            error = self.assertRaises(
                exception.FlavorExists, self.flavors.create, ADMIN, name, 1, 1,
                flavorid=flavorid)
            self.assertEqual(field, error.field)
        self.assertEqual(1, len(self.flavors.list_all(ADMIN)))

    def test_extra_specs_are_set_and_removed(self):
        self.flavors.create(ADMIN, 'small', 1, 1, flavorid='1')

        for specs, expected in (
                ({'a': 'x', 'x:b c.d-e_f': 'y=z'},
                 {'a': 'x', 'x:b c.d-e_f': 'y=z'}),
                ({'a': 'v', 'nothing': None},
                 {'a': 'v', 'x:b c.d-e_f': 'y=z'}),
                ({'x:b c.d-e_f': None}, {'a': 'v'}), ({}, {'a': 'v'})):
            for found in (self.flavors.set_extra_specs(ADMIN, 'small', specs),
                          self.flavors.get(ADMIN, '1')):
                self.assertEqual(expected, found.extra_specs)

    def test_bad_extra_specs_are_refused(self):
        self.flavors.create(ADMIN, 'small', 1, 1)
        self.flavors.set_extra_specs(ADMIN, 'small', {'a': 'x'})

        for specs in ({'': 'x'}, {'a/b': 'x'}, {'é': 'x'}, {'a' * 256: 'x'},
                      {'a': ''}, {'a': 'x' * 256}, {'a': 'x\n'}, {'a': 1},
                      {f'k{number}': 'x' for number in range(128)}):
            error = self.assertRaises(
                exception.InvalidField, self.flavors.set_extra_specs, ADMIN,
                'small',
                specs)
            self.assertTrue(error.field.startswith('extra_specs'))
        self.assertRaises(exception.FlavorNotFound,
                          self.flavors.set_extra_specs, ADMIN, 'nix', {})
        self.assertEqual(
            {'a': 'x'}, self.flavors.get(ADMIN, 'small').extra_specs)

    def test_resource_class_and_amount_of_extra_specs_are_checked(self):
        self.flavors.create(ADMIN, 'small', 1, 1)

        for key, said in (('resources:VGPU', 'x'), ('resources:GPU', '1'),
                          ('resources1:VGPU', 'x'), ('resources1:GPU', '1'),
                          ('trait1:A', 'required'), ('group_policy', 'x')):
            error = self.assertRaises(
                exception.InvalidField, self.flavors.set_extra_specs, ADMIN,
                'small', {'a': 'x', key: said})
            self.assertEqual(f'extra_specs.{key}', error.field)
        self.assertEqual(
            {}, self.flavors.get(ADMIN, 'small').extra_specs)
        said = {'resources:VGPU': '1', 'resources:CUSTOM_X': '0',
                'resources1:VGPU': '1', 'resources2:VGPU': '1'}
        self.assertEqual(said, self.flavors.set_extra_specs(
            ADMIN, 'small', said).extra_specs)

    def test_deleted_flavor_is_gone(self):
        for name in 'by-name', 'by-id':
            self.flavors.create(ADMIN, 'by-name', 1, 1, flavorid='by-id')

            self.flavors.delete(ADMIN, name)

            self.assertRaises(
                exception.FlavorNotFound, self.flavors.get, ADMIN, 'by-name')
            self.assertRaises(
                exception.FlavorNotFound, self.flavors.delete, ADMIN, 'by-id')
        self.assertEqual([], self.flavors.list_all(ADMIN))

    def test_sizes_have_bounds(self):
        most = validation.NUMBER_MAX
        self.flavors.create(ADMIN, 'least', 1, 1, 0, 0, 0)
        self.flavors.create(ADMIN, 'most', most, most, most, most, most)
        for place, least, field in (
                (1, 1, 'vcpus'), (2, 1, 'ram'), (3, 0, 'disk'),
                (4, 0, 'ephemeral'), (5, 0, 'swap')):
            for bad in (least - 1, most + 1, 2 ** 63, 1.0, '1', True, None):
                sizes = ['bad', 1, 1, 0, 0, 0]
                sizes[place] = bad
                error = self.assertRaises(
                    exception.InvalidField, self.flavors.create, ADMIN, *sizes)
                self.assertEqual(field, error.field)
        self.assertEqual(2, len(self.flavors.list_all(ADMIN)))

    def test_bad_names_are_refused(self):
        for bad in hostile.NAMES:
            for ask in (lambda: self.flavors.create(ADMIN, bad, 1, 1),
                        lambda: self.flavors.get(ADMIN, bad),
                        lambda: self.flavors.delete(ADMIN, bad)):
                error = self.assertRaises(exception.InvalidField, ask)
                self.assertEqual('name', error.field)
            if bad is not None:
                error = self.assertRaises(
                    exception.InvalidField, self.flavors.create, ADMIN, 'a',
                    1, 1, flavorid=bad)
                self.assertEqual('id', error.field)
        self.assertEqual([], self.flavors.list_all(ADMIN))
