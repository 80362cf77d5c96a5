# SPDX-License-Identifier: Apache-2.0
"""Putting sorted sequences together."""

import itertools

import hypothesis
from hypothesis import strategies

from cellsched.listing import merge
from tests.unit import base

#: Items are pairs of a key and an identity.
SEQUENCES = strategies.lists(strategies.lists(strategies.tuples(
    strategies.integers(0, 5), strategies.integers(0, 20))), max_size=6)


def merged(sequences):
    return list(merge.merge(
        sequences, key=lambda item: item[0], identity=lambda item: item[1]))


class TestMerge(base.TestCase):

    @hypothesis.settings(max_examples=100, deadline=None)
    @hypothesis.given(SEQUENCES)
    def test_every_identity_comes_once_the_greatest_key_first(self, given):
        sequences = [sorted(items, key=lambda item: item[0], reverse=True)
                     for items in given]
        # All together in a stable order: the earlier sequence goes first.
        together = sorted(itertools.chain.from_iterable(sequences),
                          key=lambda item: item[0], reverse=True)
        first = {}
        for item in together:
            first.setdefault(item[1], item)

        self.assertEqual(list(first.values()), merged(sequences))

    def test_of_equal_keys_the_earlier_sequence_goes_first(self):
        self.assertEqual(
            [(2, 'b'), (1, 'a'), (1, 'c')],
            merged([[(1, 'a')], [(2, 'b'), (1, 'c')]]))

    def test_earlier_sequence_hides_what_a_later_one_has_too(self):
        for wins in 'request', 'row':
            items = {'request': (1, 'x', 'request'), 'row': (1, 'x', 'row')}
            winner = items.pop(wins)
            self.assertEqual([winner],
                             merged([[winner], list(items.values())]))

    def test_nothing_is_read_that_is_not_yielded(self):
        read = []

        def sequence(name):
            for number in reversed(range(100)):
                read.append((name, number))
                yield number, (name, number)

        found = merge.merge(
            [sequence('a'), sequence('b')], key=lambda item: item[0],
            identity=lambda item: item[1])

        self.assertEqual(4, len(list(itertools.islice(found, 4))))
        self.assertLess(len(read), 8)

    def test_no_sequences_give_nothing(self):
        self.assertEqual([], merged([]))
        self.assertEqual([], merged([[], []]))
