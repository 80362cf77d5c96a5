# SPDX-License-Identifier: Apache-2.0
"""Child providers of a compute node, as its row in the cell says them."""

import hypothesis
from hypothesis import strategies

from cellsched.objects import child_providers
from tests.unit import base

NODE = '8dce021a-ec0f-4f8c-8a57-39af84ee87a2'

_texts = strategies.text(max_size=9)
_children = strategies.lists(strategies.builds(
    child_providers.Child, _texts, _texts,
    strategies.none() | _texts, strategies.frozensets(_texts)),
    unique_by=lambda child: child.name)


class TestChildProviders(base.TestCase):

    def test_uuid_follows_from_node_and_name(self):
        one = child_providers.uuid_of(NODE, 'gpu0')

        self.assertEqual('2a44c962-f1b1-5047-87af-bc45eb6c049e', one)
        self.assertNotEqual(one, child_providers.uuid_of(NODE, 'gpu1'))
        self.assertNotEqual(one, child_providers.uuid_of(one, 'gpu0'))

    @hypothesis.given(_children)
    def test_written_children_are_read_by_name(self, children):
        text = child_providers.dump(children)

        self.assertEqual(
            sorted(children, key=lambda child: child.name),
            child_providers.load(text))
        self.assertEqual(
            text, child_providers.dump(reversed(children)))

    def test_text_is_a_list_of_mappings(self):
        child = child_providers.Child(
            'x', 'vf1', 'y', frozenset({'B', 'A'}))

        self.assertEqual(
            '[{"uuid": "x", "name": "vf1", "parent": "y", '
            '"traits": ["A", "B"]}]', child_providers.dump([child]))

    def test_no_children_are_no_text(self):
        self.assertIsNone(child_providers.dump([]))
        self.assertEqual([], child_providers.load(None))

    def test_entries_of_other_programs_are_skipped(self):
        for text in ('{', '{}', 'null', '7', '"x"', '[' * 100000):
            self.assertEqual([], child_providers.load(text), text[:9])
        self.assertEqual(
            [child_providers.Child('x', 'y')],
            child_providers.load(
                '[7, {"uuid": "x"}, {"name": "y"}, {"uuid": 1, "name": "y"}, '
                '{"uuid": "x", "name": "y", "parent": 3, "traits": "A"}]'))
