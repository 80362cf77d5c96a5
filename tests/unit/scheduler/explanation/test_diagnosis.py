# SPDX-License-Identifier: Apache-2.0
"""Why no host was found."""

import numpy as np
from oslo_serialization import jsonutils

from cellsched import exception
from cellsched.filters.base import Reason
from cellsched.scheduler.decision import pipeline
from cellsched.scheduler.explanation import diagnosis
from cellsched.testing import builders
from tests.unit import base
from tests.unit.scheduler import toys

MEMORY = pipeline.Rejection('capacity:MEMORY_MB', 6, 'lacks memory',
                            pipeline.Nearest(1, 512, 'MB'))
DOWN = pipeline.Rejection('ComputeFilter', 2, 'is down or disabled')


class TestText(base.TestCase):

    def test_text_counts_hosts_cells_and_servers(self):
        few = 'There are not enough hosts available'
        down = f'{few}: of 2 hosts 2 are down or disabled'
        a, b = (pipeline.Rejection('A', count, f'is {name}')
                for count, name in ((1, 'a'), (2, 'b')))
        for expected, found in (
                (f'{few}: of 8 hosts 6 lack memory (the nearest by 512 MB), '
                 '2 are down or disabled.', diagnosis.Diagnosis(
                     8, [MEMORY, DOWN])),
                (f'{few}: the only host is a.', diagnosis.Diagnosis(1, [a])),
                (f'{few}: of 3 hosts 1 is a, 2 are b.',
                 diagnosis.Diagnosis(3, [a, b])),
                *((f'{few}: of 4 hosts 4 lack disk ({text}).',
                   diagnosis.Diagnosis(4, [pipeline.Rejection(
                       'x', 4, 'lacks disk', pipeline.Nearest(
                           near, 123456789, 'GB'))]))
                  for near, text in (
                      (1, 'the nearest by 123456789 GB'),
                      (2, 'the nearest 2 by 123456789 GB'),
                      (4, 'by 123456789 GB'))),
                ('No compute hosts are known.', diagnosis.Diagnosis(0)),
                ('No compute hosts are known; 2 cells do not answer.',
                 diagnosis.Diagnosis(0, silent=['a', 'b'])),
                # No cell is named to users.
                (f'{down}; 1 cell does not answer.',
                 diagnosis.Diagnosis(2, [DOWN], silent=['secret'])),
                (f'{few}: of 6 hosts 2 are down or disabled, 3 lost their '
                 'room to another request, 1 was left untried.',
                 diagnosis.Diagnosis(6, [DOWN], lost=3)),
                (down.replace(':', ', only for 3 of 5 servers:') + '.',
                 diagnosis.Diagnosis(2, [DOWN], requested=5, placed=3))):
            self.assertEqual(expected, found.text())


class TestFigures(base.TestCase):

    def test_figures_are_plain_data_in_the_order_of_the_pipeline(self):
        figures = diagnosis.Diagnosis(
            9, [MEMORY, DOWN], lost=1, silent=['a(b)']).to_list()

        self.assertEqual([
            {'by': 'capacity:MEMORY_MB', 'hosts': 6, 'reason': 'lacks memory',
             'nearest': {'hosts': 1, 'amount': 512, 'unit': 'MB'}},
            {'by': 'ComputeFilter', 'hosts': 2,
             'reason': 'is down or disabled'},
            {'by': 'claims', 'hosts': 1,
             'reason': 'lost its room to another request'},
            {'by': 'cells', 'hosts': 0, 'reason': 'does not answer',
             'cells': ['a(b)']},
        ], figures)
        self.assertEqual(figures, jsonutils.loads(jsonutils.dumps(figures)))

    def test_empty_diagnosis_is_an_empty_list(self):
        self.assertEqual([], diagnosis.Diagnosis(0).to_list())

    def test_error_carries_text_and_figures(self):
        found = diagnosis.Diagnosis(8, [MEMORY, DOWN])

        error = found.error()

        self.assertIsInstance(error, exception.NoValidHost)
        self.assertEqual('No valid host was found. ' + found.text(),
                         str(error))
        self.assertEqual(found.to_list(), error.rejections)


class TestPlural(base.TestCase):

    def test_verb_agrees_with_several(self):
        for one, several in (
                ('lacks memory', 'lack memory'),
                ('is down', 'are down'),
                ('was rejected', 'were rejected'),
                ('has no GPU', 'have no GPU'),
                ('does not answer', 'do not answer'),
                ('already runs its limit', 'already run their limit'),
                ('runs a server', 'run a server')):
            self.assertEqual(several, diagnosis.plural(one))

    def test_strange_reason_is_no_error(self):
        for reason in ('', '???', 'cannot'):
            self.assertEqual(reason, diagnosis.plural(reason))


class TestExamples(base.TestCase):

    def examples(self, *stages, count=12, **rows):
        hosts = builders.hosts(
            host=[f'h{number}' for number in range(count)])
        rejections = pipeline.Pipeline(stages, []).candidates(
            hosts, builders.request()).rejections(
                builders.request(), besides=rows.get('lost', ()))
        return diagnosis.examples(hosts, rejections, **rows)

    def test_each_of_several_reasons_has_examples(self):
        stage = toys.Filter([False] * 3)
        stage.reasons = lambda hosts, request: [
            Reason('lacks A', np.array([True, False, True])),
            Reason('lacks B', np.array([False, True, False]))]

        self.assertEqual(
            {'Filter': ['h0', 'h2', 'h1'], 'lacks A': ['h0', 'h2'],
             'lacks B': ['h1']}, self.examples(stage, count=3))

    def test_examples_name_hosts_by_rejection(self):
        for expected, answer, rows in (
                ({'Filter': ['h0'], 'claims': ['h2'], 'server-group': ['h3']},
                 [False, True, True, True], {'lost': [2], 'denied': [3]}),
                # A lost host is an example of claims only.
                ({'Filter': ['h0'], 'claims': ['h1']}, [False, False, True],
                 {'lost': [1]})):
            self.assertEqual(expected, self.examples(
                toys.Filter(answer), count=len(answer), **rows))

    def test_few_are_named(self):
        names = [f'h{number}' for number in range(12)]
        rejecting = toys.Filter([False] * 12)

        self.assertEqual(names[:10], self.examples(rejecting)['Filter'])
        self.assertEqual({'claims': names[:2], 'Filter': names[2:]},
                         self.examples(rejecting, lost=[0, 1]))
        self.assertEqual({'claims': names[:10]},
                         self.examples(lost=range(12)))

    def test_examples_before_the_first_stage_are_of_claims(self):
        self.assertEqual({'claims': ['h0']}, self.examples(lost=[0]))
