# SPDX-License-Identifier: Apache-2.0
"""What strangers write into scheduler hints, and what filters make of it.

Each value is refused with an error that names the hint, in one line and
without the value itself, or is harmless: no host fits.
"""

import json
import uuid

from cellsched import exception
from cellsched import plugins
from cellsched.testing import builders
from tests.unit import base

SERVER = str(uuid.UUID(int=0xabcdef))

#: Texts that are no uuid, no address and no query.
TEXTS = (
    'x' * 10_000_000, '\u0430' * 36, SERVER.replace('a', '\u0430'),
    SERVER + '\0', SERVER + '\r\nINFO root logged in', '%s%n', '../../etc',
    '$__class__', '$__init__.__globals__', '{{7*7}}', "' OR 1=1 --",
    'NaN', '1e400', '-1', 'null', '\ud800')

QUERIES = (
    '[' * 10_000 + ']' * 10_000, '["not",' * 10_000 + '1' + ']' * 10_000,
    '["and", "' + 'x' * 1_000_000 + '"]', '["xor", 1]', '[]', '{}', '5',
    '"and"', '[1, 2]', '[[], 1]', '["=", NaN, 1]', '["=", Infinity]',
    '["=", 1e400, 1]', '["=", null]', '["=", {"a": 1}]',
    '["=", ' + '9' * 10_000 + ']', '["=", "$__class__", 1]',
    '["=", "$__init__.__globals__", 1]', '["=", "$stats.__class__", 1]',
    '["=", "$_anything", 1]', '["<", "$host", 5]',
    json.dumps(['in', *['$host'] * 100_000]),
    json.dumps(['=', '$host', 'x' * 256]))

HARMLESS = (
    ['=', '$host_ip', "' OR 1=1 --"], ['=', '$host', '%s%n'],
    ['=', '$host', '../../etc'], ['=', '$host', 'a\0b'],
    ['=', '$host', '\r\n'], ['=', '$mro', 1], ['=', '$host.upper', 1],
    ['=', '$stats.get', 1], ['=', '$free_ram_mb.real', 1],
    ['=', '$aggregates.metadata', 1], ['>', '$limits', 0],
    ['=', *['$stats.a'] * 62], ['in', *['$host'] * 31, *['$stats.a'] * 31],
    ['<', *['$free_ram_mb', '$stats.a'] * 31])

REFUSED = {
    'build_near_host_ip': [
        *([text] for text in TEXTS), ['10.0.0.1'] * 100_000,
        ['10.0.0.1/0'], ['fe80::1%' + 'x' * 30], ['\u0661.1.1.1']],
    'cidr': [*([text] for text in TEXTS), ['/24'] * 100_000, ['/99'], ['']],
    'different_host': [
        *([text] for text in TEXTS), [''], [SERVER, ''],
        [f'{number:08x}-0000-4000-8000-000000000000'
         for number in range(100_000)]],
    'query': [*([text] for text in (*TEXTS, *QUERIES)),
              ['["and"]'] * 100_000],
}
REFUSED['same_host'] = REFUSED['different_host']

#: What else a hint needs to be read at all.
BESIDE = {'cidr': {'build_near_host_ip': ['10.0.0.1']}}


def installed():
    """Return a filter of each kind that reads hints, by hint."""
    return {hint: builders.plugin(kind)
            for kind in plugins.load_shipped(plugins.FILTERS).values()
            for hint in getattr(kind, 'hints', ())}


class TestHints(base.TestCase):

    def setUp(self):
        super().setUp()
        self.filters = installed()
        self.hosts = builders.hosts(20, stats='{"a": 5}')

    def query(self, hint, values):
        return builders.request(hints={**BESIDE.get(hint, {}), hint: values})

    def ask(self, hint, values):
        plugin, request = self.filters[hint], self.query(hint, values)
        self.assertTrue(plugin.applies(request))
        list(plugin.located(request))
        return plugin.keep(self.hosts, request)

    def test_hostile_values_are_for_known_hints(self):
        self.assertEqual(set(), REFUSED.keys() - self.filters.keys())

    def test_no_filter_reads_an_internal_hint(self):
        for hint in self.filters:
            self.assertRegex(hint, '^[a-z]')

    def test_bad_hint_is_refused(self):
        for hint, cases in REFUSED.items():
            for values in cases:
                with self.subTest(hint=hint, value=ascii(values[0])[:60]):
                    error = self.assertRaises(
                        exception.InvalidField, self.ask, hint, values)
                    self.assertTrue(error.field.startswith(
                        f'scheduler_hints.{hint}'), error.field)
                    text = str(error)
                    self.assertLess(len(text), 200)
                    self.assertTrue(text.isprintable() and text.isascii())
        self.assertEqual('', self.logs.output)

    def test_query_of_odd_texts_and_names_fits_no_host_or_all(self):
        for query in HARMLESS:
            with self.subTest(query=str(query)[:60]):
                mask = self.ask('query', [json.dumps(query)])
                self.assertEqual(1, len(set(mask.tolist())))

    def test_repeated_server_in_a_hint_is_located_once(self):
        for hint, expected in ('different_host', True), ('same_host', False):
            plugin = self.filters[hint]
            request = self.query(hint, [SERVER] * 100_000)
            self.assertEqual([SERVER], list(plugin.located(request)))
            self.assertEqual([expected] * 20,
                             plugin.keep(self.hosts, request).tolist())
