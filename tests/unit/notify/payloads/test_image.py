# SPDX-License-Identifier: Apache-2.0
from cellsched.notify.payloads import image
from cellsched import objects
from tests.unit import base
from tests.unit.notify import wire


class TestImage(base.TestCase):

    def test_no_image_is_nothing(self):
        self.assertIsNone(image.versioned(None))
        self.assertEqual({}, image.legacy(None))

    def test_object_and_what_travels_are_told_alike(self):
        loaded = objects.ImageMeta.obj_from_primitive(wire.IMAGE_META)

        self.assertEqual(image.versioned(wire.IMAGE_META),
                         image.versioned(loaded))
        self.assertEqual(image.legacy(wire.IMAGE_META), image.legacy(loaded))

    def test_plain_dict_is_read_too(self):
        told = image.versioned({'id': wire.IMAGE, 'properties': {'a': 'b'}})

        fields = told['nova_object.data']
        self.assertEqual(wire.IMAGE, fields['id'])
        self.assertIsNone(fields['name'])
        self.assertEqual({'a': 'b'}, fields['properties']['nova_object.data'])

    def test_field_that_is_not_named_is_not_told(self):
        told = image.versioned({'password': 's3cret'})

        self.assertNotIn('s3cret', str(told))

    def test_password_of_the_store_is_not_told(self):
        for told in (image.versioned(wire.IMAGE_META),
                     image.legacy(wire.IMAGE_META)):
            self.assertIn('swift://images:****@store.test', str(told))

    def test_times_are_in_the_form_that_each_kind_has(self):
        told = image.versioned(wire.IMAGE_META)['nova_object.data']

        self.assertEqual('2026-01-02T03:04:05Z', told['created_at'])
        self.assertEqual('2026-01-02T03:04:05.000000',
                         image.legacy(wire.IMAGE_META)['created_at'])
