# SPDX-License-Identifier: Apache-2.0
"""Images that servers are made from."""

import copy

from cellsched import exception
from cellsched import objects
from tests.unit import base
from tests.unit.objects import wire


def read(sample):
    return objects.ImageMeta.obj_from_primitive(sample)


def changed(sample, **data):
    sample = copy.deepcopy(sample)
    sample['nova_object.data'].update(data)
    return sample


class TestImageMeta(base.TestCase):

    def test_image_of_a_volume_has_properties_alone(self):
        image = read(wire.as_sent(
            'ImageMeta', '1.8', properties=wire.IMAGE_PROPS))

        self.assertIsNone(image.get('id'))
        self.assertEqual('x86_64', image.properties.hw_architecture)

    def test_what_is_read_and_malformed_is_named(self):
        for name in 'min_ram', 'min_disk', 'size', 'properties':
            error = self.assertRaises(
                exception.InvalidField, read,
                changed(wire.IMAGE, **{name: ['x']}))

            self.assertEqual(('ImageMeta', name), (error.where, error.field))

    def test_what_nothing_reads_may_be_anything(self):
        sample = changed(wire.IMAGE, created_at='soon', tags={'a': 1})

        self.assertEqual(
            wire.without_changes(sample),
            wire.without_changes(read(sample).obj_to_primitive()))


class TestImageMetaProps(base.TestCase):

    def test_properties_are_read_by_name(self):
        properties = read(wire.IMAGE).properties

        self.assertEqual('x86_64', properties.hw_architecture)
        self.assertEqual('x86_64', properties.get('hw_architecture'))
        self.assertIs(False, properties.get('img_hidden', True))
        self.assertIn('hw_architecture', properties)
        self.assertEqual(wire.IMAGE_PROPS['nova_object.data'],
                         dict(properties.items()))

    def test_property_that_is_not_there_is_not_made_up(self):
        properties = read(wire.IMAGE).properties

        self.assertNotIn('os_distro', properties)
        self.assertIsNone(properties.get('os_distro'))
        self.assertEqual('none', properties.get('os_distro', 'none'))
        self.assertRaises(AttributeError, getattr, properties, 'os_distro')

    def test_unknown_properties_and_newer_versions_are_passed_on(self):
        sample = changed(wire.IMAGE_PROPS, hw_newer={'a': [1, None]},
                         context=1, self=2, get=3, fields=4)
        sample['nova_object.version'] = '1.99'

        again = read(changed(wire.IMAGE, properties=sample))

        self.assertEqual(
            wire.without_changes(sample), wire.without_changes(
                again.properties.obj_to_primitive()))
        self.assertEqual(3, again.properties.get('get'))

    def test_properties_can_be_given(self):
        properties = objects.ImageMetaProps(**{'context': 1, 'trait:X': 'y'})

        self.assertEqual({'context': 1, 'trait:X': 'y'},
                         dict(properties.items()))

    def test_copy_has_properties_of_its_own(self):
        spec = objects.RequestSpec(image=read(wire.IMAGE))

        copied = copy.deepcopy(spec).image.properties
        copied.hw_numa_cpus.append([2])

        self.assertEqual('x86_64', copied.hw_architecture)
        self.assertEqual(
            [[0], [1]], spec.image.properties.hw_numa_cpus)
        self.assertEqual('x86_64', copy.copy(copied).hw_architecture)

    def test_properties_that_are_no_mapping_are_refused(self):
        sample = copy.deepcopy(wire.IMAGE)
        for data in ([], 'x', None, 7):
            sample['nova_object.data']['properties']['nova_object.data'] = data

            error = self.assertRaises(exception.InvalidField, read, sample)

            self.assertEqual('ImageMetaProps', error.where)
