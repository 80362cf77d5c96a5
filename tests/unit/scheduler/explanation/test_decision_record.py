# SPDX-License-Identifier: Apache-2.0
"""What was decided and how, in a form that can be told."""

import json

import numpy as np

from cellsched.scheduler.decision import pipeline
from cellsched.scheduler.decision import ranking
from cellsched.scheduler.explanation import decision_record
from cellsched.testing import builders
from tests.unit import base
from tests.unit.scheduler import toys


class TestPick(base.TestCase):

    def setUp(self):
        super().setUp()
        self.hosts = builders.hosts(3, nodename=['n1', 'n2', 'n3'], cell='c')
        self.ranking = ranking.Ranking(self.hosts, None, [ranking.WeightPart(
            toys.Weigher(None), np.array([1, 9, 5]), 2.0, None)])

    def test_first_and_second_are_told_with_their_shares(self):
        told = decision_record.pick(
            self.hosts, self.ranking, 1, 'i', detailed=True)

        self.assertEqual(('i', 3), (told.instance, told.candidates))
        self.assertEqual(decision_record.Place(
            'host2', 'n2', 'c', 2.0,
            [ranking.WeightShare('Weigher', 9.0, 1.0, 2.0, 2.0)]), told.first)
        self.assertEqual(('host3', 1.0, 0.5), (
            told.second.host, told.second.weight,
            told.second.shares[0].scaled))

    def test_choice_by_chance_has_a_better_second(self):
        told = decision_record.pick(
            self.hosts, self.ranking, 0, 'i', detailed=True)

        self.assertEqual(('host1', 'host2'), (
            told.first.host, told.second.host))

    def test_without_details_there_is_the_place_alone(self):
        told = decision_record.pick(
            self.hosts, self.ranking, 1, 'i', detailed=False)

        self.assertEqual(
            (decision_record.Place('host2', 'n2', 'c', 2.0), None),
            (told.first, told.second))

    def test_only_host_has_no_second(self):
        hosts = builders.hosts(1)

        self.assertIsNone(decision_record.pick(
            hosts, ranking.Ranking(hosts), 0, 'i', detailed=True).second)


class TestCounts(base.TestCase):

    def counts(self, *rounds):
        """Return counts after so many instances took a place."""
        hosts, request = builders.hosts(4), builders.request()
        first = toys.Filter([True, True, True, False], once=True)
        second = toys.Filter(
            lambda hosts: hosts['num_instances'] < 1, local=True)
        made = pipeline.Pipeline([first, second], [])
        found = made.candidates(hosts, request)
        for row in rounds:
            hosts.take(row, {})
            found = made.recheck(request, found, row)
        return [(each.entered, each.left) for each in decision_record.counts(
            4, [first, second], found.filtered.steps)]

    def test_each_stage_has_those_that_the_one_before_left(self):
        self.assertEqual([(4, 3), (3, 3)], self.counts())

    def test_what_is_rejected_later_is_added_up(self):
        self.assertEqual([(4, 3), (3, 1)], self.counts(0, 2))

    def test_stage_has_its_name_and_reason(self):
        (count,) = decision_record.counts(2, [toys.Filter(None)], [])

        self.assertEqual(
            decision_record.Count('Filter', 2, 2, 'is no toy'), count)


class TestDecision(base.TestCase):

    def test_it_is_plain_data(self):
        place = decision_record.Place('h', 'n', 'c', 1.0, [
            ranking.WeightShare('W', 1.0, 1.0, 1.0, 1.0)])
        made = decision_record.Decision(
            2, [decision_record.Count('F', 2, 1, 'is full')],
            [decision_record.Pick('i', 1, place)], reason='because')

        told = json.loads(json.dumps(made.to_dict()))

        self.assertEqual(('because', 'F', 'h', 'W'), (
            told['reason'], told['stages'][0]['by'],
            told['picks'][0]['first']['host'],
            told['picks'][0]['first']['shares'][0]['by']))

    def test_it_holds_every_field(self):
        share = ranking.WeightShare('W', 1.0, 0.5, 2.0, 1.0)
        first = decision_record.Place(
            'h1', 'n1', 'c1', 2.0, [share], [{'group': '1'}])
        second = decision_record.Place('h2', 'n2', 'c2', 1.0)
        made = decision_record.Decision(
            2, [decision_record.Count('F', 2, 1, 'is full')],
            [decision_record.Pick('i', 2, first, second)], 'because',
            ({'by': 'F'},), {'F': ['h']})

        self.assertEqual({
            'hosts': 2, 'reason': 'because', 'rejections': [{'by': 'F'}],
            'stages': [
                {'by': 'F', 'entered': 2, 'left': 1, 'reason': 'is full'}],
            'picks': [{'instance': 'i', 'candidates': 2, 'first': {
                'host': 'h1', 'node': 'n1', 'cell': 'c1', 'weight': 2.0,
                'shares': [{'by': 'W', 'raw': 1.0, 'scaled': 0.5,
                            'multiplier': 2.0, 'weight': 1.0}],
                'providers': [{'group': '1'}]}, 'second': {
                'host': 'h2', 'node': 'n2', 'cell': 'c2', 'weight': 1.0,
                'shares': [], 'providers': []}}],
            'examples': {'F': ['h']}, 'way': None}, made.to_dict())

    def test_way_is_told_where_there_are_several(self):
        made = decision_record.Decision(
            2, (), (), way=decision_record.Way('columns', ['a', 'b']))

        self.assertEqual({'name': 'columns', 'reasons': ['a', 'b']},
                         made.to_dict()['way'])
