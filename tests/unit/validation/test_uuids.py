# SPDX-License-Identifier: Apache-2.0
"""The forms of a uuid mean one uuid."""

import uuid

import hypothesis
from hypothesis import strategies as st
from oslo_utils import uuidutils

from cellsched.validation import uuids
from tests.unit import base

ONE = '4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e'


class TestCanonical(base.TestCase):

    def test_forms_of_a_uuid_have_a_single_canonical_form(self):
        for form in (ONE, ONE.upper(), ONE.replace('-', ''), f'{{{ONE}}}',
                     f'urn:uuid:{ONE.upper()}'):
            self.assertEqual(ONE, uuids.canonical(form))

    def test_other_values_have_no_canonical_form(self):
        for value in ('', 'server', ONE[:-1], f'{ONE} ', f'{ONE}\n', None, 5,
                      uuid.UUID(ONE), ONE.encode(), '４' + ONE[1:],
                      ONE.replace('b', '_')):
            self.assertIsNone(uuids.canonical(value))

    @hypothesis.given(st.text('0123456789abcdefABCDEF-{}:urnid', max_size=46))
    def test_library_accepts_the_same_texts(self, text):
        self.assertEqual(
            uuidutils.is_uuid_like(text), uuids.canonical(text) is not None)
