# SPDX-License-Identifier: Apache-2.0
"""Queries of hosts, as trees."""

import json

from cellsched import exception
from cellsched.objects import queries
from tests.unit import base


def nested(depth):
    query = True
    for _ in range(depth):
        query = ['not', query]
    return json.dumps(query)


class TestQueries(base.TestCase):

    def test_query_is_read_into_a_tree(self):
        self.assertEqual(
            queries.QueryCall('and', (
                queries.QueryCall('=', (
                    queries.Name(('stats', 'a b')), 'x', 1.5)),
                True)),
            queries.parse('["and", ["=", "$stats.a b", "x", 1.5], true]'))

    def test_largest_query_is_read(self):
        texts = ['x' * 255] * 62

        self.assertEqual(
            queries.QueryCall('in', (*texts, 2 ** 63 - 1)),
            queries.parse(json.dumps(['in', *texts, 2 ** 63 - 1])))
        self.assertEqual('not', queries.parse(nested(8)).operator)

    def test_deep_query_is_refused(self):
        # Python 3.13 reads more levels of JSON than 3.11.
        for depth in 9, 1_000, 2_000:
            error = self.assertRaises(
                exception.InvalidField, queries.parse,
                '["not",' * depth + 'true' + ']' * depth)
            self.assertIn('at most 8 levels of lists', str(error))

    def test_bad_query_is_refused_with_its_place(self):
        for place, text in (
                ('', ''), ('', '['), ('', '{}'), ('', 'null'), ('', '"and"'),
                ('', '5'), ('', 'NaN'), ('', '{"and": [1]}'), ('', '[]'),
                ('', '["=", ' + '9' * 5000 + ']'),
                ('', 'x' * 1_000_000), ('', ' ' * 16383 + '[]'),
                ('', '[' * 10_000 + ']' * 10_000),
                ('', '{"a":' * 2_000 + '1' + '}' * 2_000),
                ('[1][1][1][1][1][1][1][1]', nested(9)),
                ('[0]', '["xor", 1]'), ('[0]', '[1, 2]'), ('[0]', '[null]'),
                ('[0]', '[["and"]]'), ('[0]', '["$free_ram_mb", 1]'),
                ('[1]', '["=", null, 1]'), ('[1]', '["=", {}]'),
                ('[1]', '["not", []]'), ('[2]', '["=", 1, NaN]'),
                ('[2]', '["=", 1, -Infinity]'), ('[2]', '["=", 1, 1e400]'),
                ('[1]', '["=", 9223372036854775808]'),
                ('[1]', '["=", ' + '9' * 400 + ']'),
                ('[64]', json.dumps(['=', *[1] * 64])),
                ('[1]', json.dumps(['=', 'x' * 256])),
                ('[1][2]', '["or", ["=", 1, "$"]]'),
                *(('[1]', json.dumps(['=', name, 1])) for name in (
                    '$__class__', '$_anything', '$__init__.__globals__',
                    '$stats.__class__', '$stats._x', '$a..b', '$.a', '$a.'))):
            with self.subTest(text=text[:60]):
                error = self.assertRaises(
                    exception.InvalidField, queries.parse, text)
                self.assertEqual(f'scheduler_hints.query{place}', error.field)
                self.assertLess(len(str(error)), 200)
