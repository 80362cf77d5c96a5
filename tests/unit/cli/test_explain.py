# SPDX-License-Identifier: Apache-2.0
"""Decisions that are kept, as they are told."""

import dataclasses
import json

import yaml

from cellsched.db.api import decisions
from cellsched.scheduler.decision import ranking
from cellsched.scheduler.explanation import decision_document
from cellsched.scheduler.explanation import decision_record
from cellsched.testing import builders
from cellsched.testing import databases
from tests.unit.cli import base
from tests.unit.db import samples


def place(host, cell, **weights):
    """Return a place, with what each weigher gave it."""
    shares = [ranking.WeightShare(by, weight * 100, weight, 1.0, weight)
              for by, weight in weights.items()]
    return decision_record.Place(
        host, host, cell, sum(weights.values()), shares)


class TestExplain(base.CommandTestCase):

    def setUp(self):
        super().setUp()
        self.api = self.useFixture(databases.APIDatabase())
        self.write_api_conf(self.api.url)
        self.cell = samples.map_cell(
            self.api.database, samples.cell('north')).uuid
        self.one, self.two = samples.uuids(2)

    def keep(self, *uuids, at=1.0, version=1, request_id='req-1',
             extra_specs=None, **fields):
        decided = decision_record.Decision(**{
            'hosts': 3, 'stages': [
                decision_record.Count('ComputeFilter', 3, 2, 'is down')],
            'picks': [], **fields})
        made = decision_document.of(
            decided, builders.request(
                hints={'a': 'b'}, extra_specs=extra_specs or {}),
            uuids, request_id, samples.NOW)
        with self.api.database.writer() as connection:
            decisions.create(connection, [decisions.DecisionRow(
                request_id, at, uuids,
                json.dumps({**made, 'version': version}))], samples.NOW)

    def keep_choice(self, *uuids, second=None, **fields):
        first = place('n1', self.cell, RAMWeigher=0.5, CPUWeigher=1.0)
        self.keep(*uuids, **fields, picks=[
            decision_record.Pick(uuid, 2, first, None if number else second)
            for number, uuid in enumerate(uuids)])

    def explain(self, name, *argv):
        return self.shell('explain', name, *argv)

    def test_choice_is_told_with_weights_and_why_not_the_second(self):
        self.keep_choice(self.one, second=place(
            'n2', self.cell, RAMWeigher=1.0, CPUWeigher=0.125))

        ran = self.explain(self.one)

        self.assertEqual((0, ''), (ran.code, ran.err))
        lines = [' '.join(line.split()) for line in ran.out.splitlines()]
        for line in (
                'Decision of 2026-01-02T03:04:05.000Z on one server, request '
                'req-1',
                'Each: small (1 VCPU, 512 MEMORY_MB, 1 DISK_GB)',
                'Hints: a=b',
                'ComputeFilter 3 2 a host that is down',
                f'{self.one} n1 n1 north 2 1.5',
                'RAMWeigher n1 50 0.5 1 0.5', 'n2 100 1 1 1',
                'Sum n1 1.5', 'n2 1.125',
                'n2 was not chosen because it weighs 0.375 less: CPUWeigher '
                'made the largest difference, 0.875.'):
            self.assertIn(line, lines)

    def test_way_is_told_where_there_are_several(self):
        for reasons, line in (
                ([], 'Decided on columns'),
                (['a', 'b'], 'Decided on columns, because of a; b')):
            [uuid] = samples.uuids(1)
            self.keep_choice(uuid, way=decision_record.Way('columns', reasons))

            self.assertIn(line, self.explain(uuid).out.splitlines())
        self.keep_choice(self.one)
        self.assertNotIn('Decided on', self.explain(self.one).out)

    def test_demand_that_makes_no_sense_is_told(self):
        self.keep_choice(self.one, extra_specs={'resources:VGPU': 'many'})

        self.assertIn('resources:VGPU', self.explain(self.one).out)

    def test_second_that_is_as_good_or_better_is_explained(self):
        for second, text in (
                (place('n2', self.cell, RAMWeigher=1.0, CPUWeigher=0.5),
                 'weighs the same'),
                (place('n2', self.cell, RAMWeigher=1.0, CPUWeigher=1.0),
                 'by chance'),
                (None, 'n1 was the only one')):
            [uuid] = samples.uuids(1)
            self.keep_choice(uuid, second=second)

            self.assertIn(text, self.explain(uuid).out)

    def test_each_server_of_a_request_is_explained(self):
        self.keep_choice(self.one, self.two, second=place(
            'n2', self.cell, RAMWeigher=1.0, CPUWeigher=0.0))

        ran = self.explain(self.two)
        both = self.explain('req-1')

        self.assertIn(f'Weights, as of {self.one}, the first:', ran.out)
        self.assertIn(self.two, ran.out)
        for uuid in (self.one, self.two):
            self.assertIn(uuid, both.out)

    def test_providers_of_the_host_are_told_where_several_give(self):
        first = place('n1', self.cell, RAMWeigher=0.5)
        first.providers = [
            {'group': '', 'provider': self.two, 'name': 'n1',
             'resources': {'VCPU': 1, 'MEMORY_MB': 512}},
            {'group': '_GPU', 'provider': self.two, 'name': None,
             'resources': {'VGPU': 1}}]
        self.keep(self.one, picks=[decision_record.Pick(self.one, 1, first)],
                  extra_specs={'resources_GPU:VGPU': '1',
                               'trait_GPU:CUSTOM_FAST': 'required',
                               'trait_GPU:CUSTOM_OLD': 'forbidden'})

        lines = [' '.join(line.split())
                 for line in self.explain(self.one).out.splitlines()]

        for line in ('Group _GPU: 1 VGPU with CUSTOM_FAST, no CUSTOM_OLD',
                     'Server Group Provider Gives',
                     f'{self.one} n1 1 VCPU, 512 MEMORY_MB',
                     f'{self.one} _GPU {self.two} 1 VGPU'):
            self.assertIn(line, lines)

    def test_decision_of_a_release_that_knew_no_groups_is_told(self):
        self.keep_choice(self.one)
        with self.api.database.writer() as connection:
            [row] = decisions.find(connection, self.one, 1)
            document = json.loads(row.text)
            del document['request']['groups']
            del document['picks'][0]['first']['providers']
            decisions.create(connection, [dataclasses.replace(
                row, decided_at=2.0, text=json.dumps(document))], samples.NOW)

        self.assertIn('n1 was the only one', self.explain(self.one).out)

    def test_refusal_is_told_with_hosts_and_cells(self):
        self.keep(
            self.one, reason='There are not enough hosts.',
            rejections=[
                {'by': 'capacity:MEMORY_MB', 'hosts': 2,
                 'reason': 'lacks memory', 'nearest': {
                     'hosts': 1, 'amount': 512, 'unit': 'MB'}},
                {'by': 'claims', 'hosts': 1, 'reason': 'lost'},
                {'by': 'cells', 'hosts': 0, 'reason': 'does not answer',
                 'cells': ['south']}],
            examples={'capacity:MEMORY_MB': ['n1', 'n2'], 'claims': ['n3']})

        lines = [' '.join(line.split())
                 for line in self.explain(self.one).out.splitlines()]

        for line in ('No host: There are not enough hosts.',
                     'capacity:MEMORY_MB 2 1 by 512 MB n1, n2',
                     'claims 1 n3', 'cells 0 south'):
            self.assertIn(line, lines)

    def test_newest_is_shown_or_all(self):
        for at in (1.0, 3.0, 2.0):
            self.keep(self.one, at=at, reason=f'reason {at}')

        newest = self.explain(self.one, '-f', 'json')
        every = yaml.safe_load(
            self.explain(self.one, '--all', '-f', 'yaml').out)

        self.assertEqual('reason 3.0', newest.data['reason'])
        self.assertEqual([f'reason {at}' for at in (3.0, 2.0, 1.0)],
                         [each['reason'] for each in every])
        self.assertEqual(2, self.explain(
            self.one, '--all').out.count('\n---'))

    def test_kept_host_is_told(self):
        self.keep(self.one)

        self.assertIn('kept the host', self.explain(self.one).out)

    def test_what_is_not_there_says_how_long_it_would_be(self):
        self.assertEnds(1, self.explain(self.one), self.one, '3600 seconds')
        self.write_api_conf(
            self.api.url, scheduler={'decision_retention': 0})
        self.assertEnds(
            1, self.explain('req-2'), 'req-2', 'decision_retention is 0')

    def test_wrong_arguments_are_refused(self):
        for name in ('', 'x' * 300, 'a\0'):
            self.assertEnds(1, self.explain(name), 'SERVER|REQUEST_ID')
        self.assertEnds(1, self.explain(self.one, '-f', 'csv'), 'csv')

    def test_decision_of_a_newer_release_is_refused(self):
        self.keep(self.one, version=2)

        self.assertEnds(1, self.explain(self.one), 'version', 'another')
