# SPDX-License-Identifier: Apache-2.0
"""What was decided and how, in a form that can be told."""

import datetime
import json

import numpy as np

from cellsched.hardware import units
from cellsched import objects
from cellsched.scheduler.decision import pipeline
from cellsched.scheduler.decision import ranking
from cellsched.scheduler.explanation import decision_record
from cellsched.testing import builders
from tests.unit import base
from tests.unit.db import samples
from tests.unit.filters import cells
from tests.unit.scheduler import toys


class TestPick(base.TestCase):

    def setUp(self):
        super().setUp()
        self.hosts = builders.hosts(3, nodename=['n1', 'n2', 'n3'], cell='c')
        self.ranking = ranking.Ranking(self.hosts, None, [ranking.WeightPart(
            toys.Weigher(None), np.array([1, 9, 5]), 2.0, None)])

    def test_first_and_second_place_have_their_shares(self):
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

    def test_pick_without_details_has_only_the_first_place(self):
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

    def test_each_stage_counts_hosts_kept_by_the_previous_stage(self):
        self.assertEqual([(4, 3), (3, 3)], self.counts())

    def test_later_rejections_are_added(self):
        self.assertEqual([(4, 3), (3, 1)], self.counts(0, 2))

    def test_stage_has_its_name_and_reason(self):
        (count,) = decision_record.counts(2, [toys.Filter(None)], [])

        self.assertEqual(
            decision_record.Count('Filter', 2, 2, 'is no toy'), count)


class TestDecision(base.TestCase):

    def test_document_has_each_field(self):
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
                'providers': [{'group': '1'}], 'hardware': []}, 'second': {
                'host': 'h2', 'node': 'n2', 'cell': 'c2', 'weight': 1.0,
                'shares': [], 'providers': [], 'hardware': []}}],
            'examples': {'F': ['h']}, 'way': None}, made.to_dict())

    def test_cpus_of_the_host_are_recorded_by_cell(self):
        first = decision_record.Place('h1', 'n1', 'c1', 2.0, hardware=(
            {'PCPU': 2, units.cpu(1): 1, units.cpu(2): 1},
            cells.topology(8), ()))
        made = decision_record.Decision(
            1, [], [decision_record.Pick('i', 1, first)])

        [part] = json.loads(json.dumps(made.to_dict()))['picks'][0]['first'][
            'hardware']

        self.assertEqual((0, [1, 2]), (part['cell'], part['cpus']))

    def test_way_is_recorded_with_its_reasons(self):
        made = decision_record.Decision(
            2, (), (), way=decision_record.Way('columns', ['a', 'b']))

        self.assertEqual({'name': 'columns', 'reasons': ['a', 'b']},
                         made.to_dict()['way'])


class TestSummary(base.TestCase):

    def summary(self, **wishes):
        return decision_record.summary(builders.request(**wishes), 2)

    def test_summary_has_the_demands_of_the_request(self):
        self.assertEqual({
            'project_id': 'project', 'user_id': 'user', 'instances': 2,
            'flavor': 'small', 'image': '00000000-0000-0000-0000-000000000002',
            'resources': {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1},
            'groups': [], 'availability_zone': 'north',
            'hints': {'a': ['b', 'c']},
            'group': '00000000-0000-0000-0000-000000000003',
            'group_policy': 'affinity', 'force_hosts': ['x'],
            'force_nodes': [], 'ignore_hosts': ['y']},
            self.summary(
                image={'hw': 'x'}, availability_zone='north',
                hints={'a': ['b', 'c']}, group={'policy': 'affinity'},
                force_hosts=['x'], ignore_hosts=['y']))

    def test_summary_has_numbered_groups(self):
        found = self.summary(extra_specs={
            'resources1:VGPU': '2', 'trait1:CUSTOM_FAST': 'required',
            'trait1:CUSTOM_OLD': 'forbidden'})

        self.assertEqual([{
            'suffix': '1', 'resources': {'VGPU': 2},
            'required': ['CUSTOM_FAST'], 'forbidden': ['CUSTOM_OLD']}],
            found['groups'])

    def test_invalid_demand_is_summarized_with_the_problem(self):
        found = self.summary(extra_specs={'resources:VGPU': 'many'})

        self.assertEqual(({}, []), (found['resources'], found['groups']))
        self.assertIn('resources:VGPU', found['problem'])

    def test_values_of_users_are_shortened(self):
        found = self.summary(
            hints={f'{"k" * 1000}{number}': ['v' * 1000] * 1000
                   for number in range(1000)},
            ignore_hosts=['h' * 1000] * 1000, project_id='p' * 10_000,
            requested_resources=[
                {'requester_id': str(number), 'resources': {
                    f'CUSTOM_{other}': 1 for other in range(60)},
                 'required_traits': [
                     f'CUSTOM_{other}' for other in range(60)]}
                for number in range(60)])

        self.assertGreater(200_000, len(json.dumps(found)))
        self.assertEqual(20, len(found['groups']))
        self.assertEqual('… 40 more', found['groups'][0]['required'][-1])
        self.assertEqual('… 980 more', found['ignore_hosts'][-1])

    def test_texts_are_shortened_at_the_end(self):
        for length, kept in ((255, 't' * 255), (256, 't' * 254 + '…')):
            found = self.summary(
                project_id='t' * length, hints={'t' * length: ['t' * length]})

            self.assertEqual(
                (kept, {kept: [kept]}), (found['project_id'], found['hints']))

    def test_omitted_values_are_counted(self):
        values = [f'v{number}' for number in range(21)]
        for count, rest in ((20, []), (21, ['… 1 more'])):
            found = self.summary(
                hints={'a': values[:count]}, force_hosts=values[:count],
                force_nodes=values[:count], ignore_hosts=values[:count])

            for kept in (found['hints']['a'], found['force_hosts'],
                         found['force_nodes'], found['ignore_hosts']):
                self.assertEqual(values[:20] + rest, kept)

    def test_omitted_hints_are_counted(self):
        hints = {f'h{number}': ['v'] for number in range(22)}
        first = dict(list(hints.items())[:20])
        for count, rest in ((20, {}), (22, {'…': ['2 more']})):
            self.assertEqual({**first, **rest}, self.summary(
                hints=dict(list(hints.items())[:count]))['hints'])

    def test_missing_demands_are_empty(self):
        found = self.summary(image=None, project_id=None)

        for name in ('project_id', 'image', 'availability_zone', 'group',
                     'group_policy'):
            self.assertIsNone(found[name], name)
        self.assertEqual({}, found['hints'])
        self.assertNotIn('destination', found)

    def test_destination_is_host_node_and_cell(self):
        cell = samples.cell()
        for fields, expected in (
                ({'host': 'h', 'node': 'n', 'cell': cell},
                 {'host': 'h', 'node': 'n', 'cell': cell.uuid}),
                ({'host': 'h'}, {'host': 'h', 'node': None, 'cell': None})):
            self.assertEqual(expected, self.summary(
                requested_destination=objects.Destination(**fields)
            )['destination'])

    def test_credentials_stay_out(self):
        found = self.summary(requested_destination=objects.Destination(
            host='h', node=None, cell=samples.cell(
                database_connection='mysql://u:secret@h/d',
                transport_url='rabbit://u:secret@h')))

        self.assertNotIn('secret', json.dumps(found))
        self.assertEqual('h', found['destination']['host'])


class TestOf(base.TestCase):

    def test_reasons_of_a_way_are_shortened(self):
        decision = decision_record.Decision(3, (), (), way=(
            decision_record.Way('columns', ['w' * 1000] * 1000)))

        found = decision_record.document_of(
            decision, builders.request(), ['i1'], None,
            datetime.datetime(2023, 11, 14))['way']

        self.assertEqual('columns', found['name'])
        self.assertEqual('… 980 more', found['reasons'][-1])
        self.assertGreater(10_000, len(json.dumps(found)))

    def test_document_has_the_decision_and_the_request(self):
        request = builders.request()
        decision = decision_record.Decision(
            3, [decision_record.Count('F', 3, 0, 'is full')], [],
            reason='because', rejections=[{'by': 'F'}],
            examples={'F': ['h']})

        found = decision_record.document_of(
            decision, request, ['i1', 'i2'], 'req-1',
            datetime.datetime(2023, 11, 14, 22, 13, 20, 123456))

        self.assertEqual({
            'version': 1, 'decided_at': '2023-11-14T22:13:20.123Z',
            'request_id': 'req-1', **decision.to_dict(),
            'request': decision_record.summary(request, 2),
            'instances': ['i1', 'i2']}, found)
        self.assertEqual(found, json.loads(json.dumps(found)))
