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

    def assertText(self, expected, *args, **kwargs):
        self.assertEqual(expected, diagnosis.Diagnosis(*args, **kwargs).text())

    def test_hosts_are_counted_by_rejection(self):
        self.assertText(
            'There are not enough hosts available: of 8 hosts 6 lack memory '
            '(the nearest by 512 MB), 2 are down or disabled.',
            8, [MEMORY, DOWN])

    def test_single_host_is_described_in_the_singular(self):
        self.assertText(
            'There are not enough hosts available: the only host is in '
            'another zone.',
            1, [pipeline.Rejection('A', 1, 'is in another zone')])
        self.assertText(
            'There are not enough hosts available: of 3 hosts 1 is a, '
            '2 are b.',
            3, [pipeline.Rejection('A', 1, 'is a'),
                pipeline.Rejection('B', 2, 'is b')])

    def test_nearest_miss_has_its_number_of_hosts(self):
        for near, text in ((1, 'the nearest by 3 GB'), (2, 'the nearest 2 by '
                           '3 GB'), (4, 'by 3 GB')):
            rejection = pipeline.Rejection(
                'x', 4, 'lacks disk', pipeline.Nearest(near, 3, 'GB'))
            self.assertText(
                'There are not enough hosts available: of 4 hosts 4 lack '
                f'disk ({text}).', 4, [rejection])

    def test_amounts_are_written_out(self):
        rejection = pipeline.Rejection(
            'x', 2, 'lacks memory', pipeline.Nearest(1, 123456789, 'MB'))

        self.assertIn('by 123456789 MB',
                      diagnosis.Diagnosis(2, [rejection]).text())

    def test_missing_hosts_are_described(self):
        self.assertText('No compute hosts are known.', 0)
        self.assertText(
            'No compute hosts are known; 2 cells do not answer.',
            0, silent=['a', 'b'])

    def test_silent_cells_are_described_beside_the_hosts(self):
        self.assertText(
            'There are not enough hosts available: of 2 hosts 2 are down or '
            'disabled; 1 cell does not answer.', 2, [DOWN], silent=['cell1'])

    def test_lost_claims_are_described_apart_from_rejections(self):
        self.assertText(
            'There are not enough hosts available: of 6 hosts 2 are down or '
            'disabled, 3 lost their room to another request, 1 was left '
            'untried.', 6, [DOWN], lost=3)

    def test_placed_servers_are_counted(self):
        self.assertText(
            'There are not enough hosts available, only for 3 of 5 servers: '
            'of 2 hosts 2 are down or disabled.', 2, [DOWN], requested=5,
            placed=3)

    def test_no_cell_is_named_to_users(self):
        text = diagnosis.Diagnosis(2, [DOWN], silent=['secret-cell']).text()

        self.assertNotIn('secret', text)


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
        self.assertEqual(
            {'Filter': ['h0'], 'claims': ['h2'], 'server-group': ['h3']},
            self.examples(toys.Filter([False, True, True, True]), count=4,
                          lost=[2], denied=[3]))

    def test_lost_host_is_an_example_of_claims_only(self):
        self.assertEqual(
            {'Filter': ['h0'], 'claims': ['h1']},
            self.examples(toys.Filter([False, False, True]), count=3,
                          lost=[1]))

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
