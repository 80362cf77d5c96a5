# SPDX-License-Identifier: Apache-2.0
"""Merges of sorted sequences that are read in batches."""

import itertools

import hypothesis
from hypothesis import strategies

from cellsched.listing import merge
from tests import profile
from tests.unit import base

SEQUENCES = strategies.lists(
    strategies.lists(strategies.integers(0, 9)), max_size=6)


class Batches(merge.Source):
    """Items that are read in batches."""

    def __init__(self, items, size):
        super().__init__()
        self.items = items
        self.size = size
        self.read = 0

    def next(self):
        batch = self.items[self.read:self.read + self.size]
        self.read += len(batch)
        self.more = len(batch) == self.size
        return [(item, self, item) for item in batch]


def read(sources):
    return [placed for source in sources for placed in source.next()]


class TestMerged(base.TestCase):

    @profile.many_examples
    @hypothesis.given(
        SEQUENCES, strategies.lists(strategies.integers(0, 9)),
        strategies.integers(1, 4), strategies.integers(0, 5),
        strategies.booleans())
    def test_all_items_are_merged_once_in_order(
            self, given, known, size, ahead, descends):
        sources = [Batches(sorted(items, reverse=descends), size)
                   for items in given]

        self.assertEqual(
            sorted([*known, *itertools.chain.from_iterable(given)],
                   reverse=descends),
            list(merge.merged(
                sources, read, [(item, None, item) for item in known],
                descends, ahead)))

    def test_a_single_batch_ahead_is_read_of_each_source(self):
        sources = [Batches(list(range(start, 1000, 2)), 10)
                   for start in (0, 1)]

        found = merge.merged(sources, read)

        self.assertEqual(list(range(45)), list(itertools.islice(found, 45)))
        self.assertEqual([30, 30], [source.read for source in sources])

    def test_source_with_no_new_row_in_its_batch_is_read_again(self):
        source = Batches(list(range(10)), 2)

        def odd(sources):
            return [placed for placed in read(sources) if placed[0] > 5]

        self.assertEqual([6, 7, 8, 9], list(merge.merged([source], odd)))

    def test_merge_without_sources_returns_the_known_rows(self):
        self.assertEqual([], list(merge.merged([], read)))
        self.assertEqual(
            ['a', 'b'], list(merge.merged([], read, [
                (2, None, 'b'), (1, None, 'a')])))
