# SPDX-License-Identifier: Apache-2.0
"""Queries for flavors."""

from cellsched.db.api import flavors
from cellsched import exception
from tests.unit.db.api import base
from tests.unit.db import samples


class TestFlavors(base.TestCase):

    def create(self, flavorid, name, **fields):
        self.write(flavors.create, samples.flavor(
            flavorid=flavorid, name=name, **fields), samples.NOW)

    def get(self, name):
        return self.read(flavors.get, name)

    def test_flavor_is_stored_as_created(self):
        self.create('f1', 'small', memory_mb=512, vcpus=2, root_gb=3,
                    ephemeral_gb=4, swap=5, description='Small.',
                    extra_specs={'hw:cpu_policy': 'shared', 'a': 'b'})

        flavor = self.get('small')

        for name, value in (
                ('id', 1), ('flavorid', 'f1'), ('name', 'small'),
                ('memory_mb', 512), ('vcpus', 2), ('root_gb', 3),
                ('ephemeral_gb', 4), ('swap', 5), ('rxtx_factor', 1.0),
                ('disabled', False), ('is_public', True),
                ('description', 'Small.'),
                ('extra_specs', {'hw:cpu_policy': 'shared', 'a': 'b'})):
            self.assertEqual(value, getattr(flavor, name), name)

    def test_flavor_is_found_by_id_before_name(self):
        self.create('2', '1')
        self.create('1', 'small')

        self.assertEqual('2', self.get('2').flavorid)
        self.assertEqual('1', self.get('small').flavorid)
        self.assertEqual('1', self.get('1').flavorid)

    def test_unknown_flavor_is_an_error(self):
        self.create('f1', 'small')

        for query in flavors.get, flavors.delete:
            error = self.assertRaises(
                exception.FlavorNotFound, self.write, query, 'large')

            self.assertEqual('large', error.flavor)

    def test_name_and_id_are_taken_once(self):
        self.create('f1', 'small')

        for flavorid, name, field, value in (
                ('f2', 'small', 'name', 'small'), ('f1', 'big', 'id', 'f1')):
            error = self.assertRaises(
                exception.FlavorExists, self.create, flavorid, name)

            self.assertEqual((field, value), (error.field, error.value))
        self.assertEqual(1, len(self.read(flavors.list_all)))

    def test_listed_flavors_have_their_extra_specs(self):
        self.assertEqual([], self.read(flavors.list_all))
        self.create('b', 'two', extra_specs={'x': '1'})
        self.create('a', 'one', extra_specs={'x': '2', 'y': '3'})
        self.create('c', 'three')

        self.assertEqual(
            [('two', {'x': '1'}), ('one', {'x': '2', 'y': '3'}),
             ('three', {})],
            [(each.name, each.extra_specs)
             for each in self.read(flavors.list_all)])
        self.assertEqual({'x': '2', 'y': '3'}, self.get('one').extra_specs)

    def test_deleted_flavor_is_deleted_with_its_extra_specs(self):
        self.create('f1', 'small', extra_specs={'x': '1'})
        self.create('f2', 'big', extra_specs={'x': '2'})

        self.write(flavors.delete, 'f1')

        self.assertEqual(
            [('big', {'x': '2'})],
            [(each.name, each.extra_specs)
             for each in self.read(flavors.list_all)])
        self.create('f1', 'small')
        self.assertEqual({}, self.get('f1').extra_specs)
