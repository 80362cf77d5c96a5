# SPDX-License-Identifier: Apache-2.0
"""Host aggregates, as filters and weighers read them."""

from cellsched.hosts import aggregate
from cellsched.testing import builders
from tests.unit import base


class TestAggregate(base.TestCase):

    def test_two_are_never_equal(self):
        one, other = builders.aggregate(), builders.aggregate()

        self.assertNotEqual(one, other)
        self.assertEqual(2, len({one, other}))

    def test_values_stand_between_commas(self):
        some = builders.aggregate(disk=' ssd,hdd , nvme')

        self.assertEqual({'ssd', 'hdd', 'nvme'}, some.values('disk'))
        self.assertEqual(frozenset(), some.values('cpu'))

    def test_empty_text_is_a_value(self):
        self.assertEqual({''}, builders.aggregate(disk='').values('disk'))

    def test_number_is_read(self):
        for text, number in (('3', 3.0), (' 1.5 ', 1.5), ('-2e3', -2000.0)):
            self.assertEqual(number, builders.aggregate(x=text).number('x'))
        self.assertIsNone(builders.aggregate().number('x'))
        self.assertEqual('', self.logs.output)

    def test_value_without_a_number_is_logged_once(self):
        for text in ('', 'many', '1,2', 'nan', '-inf', '1e999'):
            some = builders.aggregate(x=text)

            self.assertEqual([None] * 3, [some.number('x') for _ in range(3)])

        self.assertEqual(6, self.logs.output.count('is ignored'))
        self.assertIn('many', self.logs.output)

    def test_long_text_is_logged_in_part(self):
        builders.aggregate(x='y' * 100_000).number('x')

        self.assertIn(builders.aggregate().uuid, self.logs.output)
        self.assertLess(len(self.logs.output), 400)


class TestSeveral(base.TestCase):

    some = (builders.aggregate(1, zone='a,b', ratio='2.5'),
            builders.aggregate(2, zone='c', ratio='1'),
            builders.aggregate(3, ratio='none'))

    def test_values_are_collected_from_all_aggregates(self):
        self.assertEqual({'a', 'b', 'c'}, aggregate.values(self.some, 'zone'))
        self.assertEqual(frozenset(), aggregate.values((), 'zone'))

    def test_invalid_value_of_an_aggregate_voids_the_least_number(self):
        self.assertIsNone(aggregate.least(self.some, 'ratio'))

    def test_least_number_counts(self):
        self.assertEqual(1.0, aggregate.least(self.some[:2], 'ratio'))
        self.assertIsNone(aggregate.least(self.some, 'zone'))
        self.assertIsNone(aggregate.least((), 'ratio'))
