# SPDX-License-Identifier: Apache-2.0
"""The questions that simulated deployments answer."""

import itertools

from benchmarks import answers
from cellsched.simulator.capacity import scenario
from tests.functional import base


class TestAnswers(base.TestCase):

    def test_each_change_applies_to_its_scenario(self):
        for name, question in answers.questions().items():
            for changes in itertools.chain(*(
                    choices.values()
                    for choices in question.dimensions.values())):
                with self.subTest(question=name, changes=changes):
                    scenario.load(question.scenario, None,
                                  [*question.changes, *changes])
            self.assertLessEqual(
                {*question.drawn}, {*question.figures.values()}, name)

    def test_answer_is_a_repeatable_table_and_chart(self):
        question = answers.questions()['packing']._replace(
            changes=['hosts.count=2', 'hosts.rack=2', 'hours=1'],
            dimensions={
                'policy': {name: answers.POLICIES[name]
                           for name in ('spread', 'pack')},
                'seed of a run': {'7': ['seed=7']}})

        rows = answers.answer(question)

        self.assertEqual(
            [('spread', '7', 7), ('pack', '7', 7)],
            [(row['policy'], row['seed of a run'], row['seed'])
             for row in rows])
        self.assertEqual(rows, answers.answer(question))
        image = answers.draw(question, rows)
        self.assertEqual(image, answers.draw(question, rows))
        self.assertTrue(image.startswith('<?xml'))
        self.assertIn('memory at first failure', answers.as_csv(rows))
