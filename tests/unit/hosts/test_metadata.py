# SPDX-License-Identifier: Apache-2.0
"""What hosts' aggregates say."""

from cellsched.hosts import metadata
from cellsched.testing import builders
from tests.unit import base


class TestMetadata(base.TestCase):

    def setUp(self):
        super().setUp()
        one = builders.aggregate(1, ssd='yes, maybe', nic='10')
        two = builders.aggregate(2, ssd='no')
        self.table = builders.table(
            aggregates=[(one,), (one, two), (two,), ()])
        self.hosts = self.table.view(builders.NOW)

    def assertAgree(self, expected, *wanted):
        mask = metadata.agree(self.hosts, wanted)
        self.assertEqual(
            expected, [True] * 4 if mask is None else mask.tolist())

    def test_texts_of_all_aggregates_are_put_together(self):
        asked = []

        self.assertAgree([True] * 4, (
            'ssd', lambda texts: asked.append(texts) or True))

        self.assertEqual(
            {frozenset({'yes', 'maybe'}), frozenset({'yes', 'maybe', 'no'}),
             frozenset({'no'}), frozenset()}, set(asked))
        self.assertEqual(4, len(asked))

    def test_hosts_accepted_by_every_predicate_are_kept(self):
        def has(text):
            return lambda texts: text in texts

        self.assertAgree([True, True, False, False], ('ssd', has('yes')))
        self.assertAgree([False, True, False, False],
                         ('ssd', has('no')), ('nic', has('10')))
        self.assertAgree([False] * 4, ('nic', has('10')), ('gpu', has('1')))
        self.assertAgree([False, False, True, True],
                         ('nic', lambda texts: not texts),
                         ('gpu', lambda texts: not texts))
        self.assertAgree([True] * 4)

    def test_some_hosts_have_the_same_verdicts(self):
        self.assertEqual([True, False], metadata.agree(
            self.hosts.at(self.hosts.rows[1:3]),
            [('ssd', lambda texts: 'yes' in texts)]).tolist())

    def test_keys_are_collected_from_aggregates_of_hosts(self):
        self.assertEqual({'ssd', 'nic'}, metadata.keys(self.hosts))
        self.assertEqual(frozenset(), metadata.keys(builders.hosts(0)))

    def test_change_of_aggregates_applies(self):
        wanted = [('ssd', lambda texts: 'new' in texts)]
        self.assertFalse(metadata.agree(self.hosts, wanted).any())

        self.table.put(
            self.hosts['uuid'][:1],
            {'aggregates': [(builders.aggregate(3, ssd='new', gpu='1'),)]})
        self.hosts = self.table.view(builders.NOW)

        self.assertEqual([True, False, False, False],
                         metadata.agree(self.hosts, wanted).tolist())
        self.assertIn('gpu', metadata.keys(self.hosts))

    def test_unknown_keys_are_not_cached(self):
        before = len(self.hosts.columns.snapshot.kept)

        for number in range(100):
            metadata.agree(self.hosts, [(f'key{number}', bool)])

        self.assertLess(len(self.hosts.columns.snapshot.kept) - before, 2)
