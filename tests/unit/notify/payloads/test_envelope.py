# SPDX-License-Identifier: Apache-2.0
from hypothesis import given
from hypothesis import strategies

from cellsched.notify.payloads import envelope
from cellsched import objects
from tests.unit import base
from tests.unit.objects import wire

LEAVES = strategies.none() | strategies.integers() | strategies.text()


class TestForm(base.TestCase):

    form = envelope.Form('Payload', '1.2', ('a', 'b'))

    def test_payload_has_exactly_the_fields_of_its_form(self):
        self.assertEqual(
            wire.envelope('Payload', '1.2', a=1, b=None, c=3),
            self.form.fill({'a': 1, 'z': 2}, c=3))

    def test_payload_of_none_is_none(self):
        self.assertIsNone(self.form.fill(None, c=3))


class TestPlain(base.TestCase):

    def test_objects_become_dicts_and_lists(self):
        nodes = objects.ComputeNodeList(
            objects=[objects.ComputeNode(host='h1')])

        self.assertEqual([{'host': 'h1'}], envelope.plain(nodes))
        self.assertEqual(
            {'in': [{'host': 'h1'}]},
            envelope.plain({'in': nodes.obj_to_primitive()}))

    def test_members_of_a_list_object_are_a_list(self):
        nodes = wire.envelope('List', '1.0', objects=[1, 2])

        self.assertEqual([1, 2], envelope.members_of(nodes))
        self.assertEqual([1, 2], envelope.members_of([1, 2]))
        self.assertEqual([], envelope.members_of(None))

    @given(strategies.recursive(
        LEAVES, lambda inner: strategies.lists(inner)
        | strategies.dictionaries(strategies.text(max_size=3), inner)))
    def test_plain_values_are_unchanged(self, value):
        self.assertEqual(value, envelope.plain(value))
