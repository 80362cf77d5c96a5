# SPDX-License-Identifier: Apache-2.0
from cellsched.validation import json_schema
from tests.unit import base


class TestInvalid(base.TestCase):

    def test_field_is_named_by_its_path(self):
        for way, field in (
                ((), 'document'), (('a',), 'a'), (('a', 0, 'b'), 'a[0].b'),
                (('line 1',), 'line 1')):
            self.assertEqual(field, json_schema.invalid('x', way, 'y').field)
