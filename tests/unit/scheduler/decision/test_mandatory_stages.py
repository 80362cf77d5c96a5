# SPDX-License-Identifier: Apache-2.0
"""Stages that every request has to pass."""

import uuid

import numpy as np

from cellsched import objects
from cellsched.scheduler.decision import mandatory_stages
from cellsched.scheduler.decision import pipeline
from cellsched.testing import builders
from tests.unit import base
from tests.unit.scheduler import prefiltering
from tests.unit import strategies

EAST, WEST, DARK = (builders.aggregate(number) for number in (1, 2, 3))

CELL_A, CELL_B = (str(uuid.UUID(int=number)) for number in (1, 2))

HOSTS = ['alpha', 'Beta', 'beta', 'gamma']


def destination(**fields):
    if 'cell' in fields and fields['cell'] is not None:
        fields['cell'] = objects.CellMapping(uuid=fields['cell'])
    return {'requested_destination': objects.Destination(**fields)}


def tried(*names):
    return objects.SchedulerRetries(
        num_attempts=1, hosts=objects.ComputeNodeList(objects=[
            objects.ComputeNode(host=name, hypervisor_hostname=None)
            for name in names]))


class TestStages(base.TestCase):

    def setUp(self):
        super().setUp()
        self.hosts = builders.hosts(
            host=HOSTS, nodename=['n1', 'n2', 'N2', 'n3'],
            cell=[CELL_A, CELL_A, CELL_B, CELL_B],
            aggregates=[(EAST,), (EAST, WEST), (WEST, DARK), ()])
        self.stages = mandatory_stages.destination_stages(30.0)

    def kept(self, **fields):
        """Return the rows that are left, and by what others were rejected."""
        request = builders.request(**fields)
        found = pipeline.Pipeline([], [], self.stages).candidates(
            self.hosts, request)
        for stage in self.stages:
            # Verdicts are the same however many hosts are seen.
            self.assertEqual(
                strategies.kept_by_columns(stage, self.hosts, request),
                strategies.kept_of_some(stage, self.hosts, request))
        return found.rows.tolist(), [
            each.by for each in found.rejections(request)]

    def test_stage_applies_only_to_its_part_of_the_request(self):
        for expected, fields in (
                ('RequestedCell', destination(cell=CELL_A)),
                ('RequestedHost', destination(host='alpha')),
                ('RequestedHost', destination(node='n1')),
                ('RequestedAggregates', destination(aggregates=[EAST.uuid])),
                ('RequestedAggregates',
                 destination(forbidden_aggregates={EAST.uuid})),
                ('ForcedHost', {'force_hosts': ['alpha']}),
                ('ForcedHost', {'force_nodes': ['n1']}),
                ('IgnoredHost', {'ignore_hosts': ['alpha']})):
            request = builders.request(**fields)
            self.assertEqual(
                ['SilentCell', *['DisabledCell'] * (
                    expected != 'RequestedCell'), expected],
                [stage.name for stage in self.stages
                 if stage.applies(request)])

    def test_request_without_a_destination_keeps_all_hosts(self):
        for fields in ({}, {'ignore_hosts': [], 'force_hosts': None},
                       destination(),
                       destination(host='', node=None, cell=None,
                                   aggregates=[],
                                   forbidden_aggregates=set())):
            self.assertEqual(([0, 1, 2, 3], []), self.kept(**fields))

    def test_disabled_cell_accepts_only_moves_within_the_cell(self):
        self.hosts.columns.snapshot.cells.disable({CELL_B: 'north'})

        for fields in ({}, destination(host='alpha'),
                       {'force_hosts': ['alpha', 'BETA']},
                       destination(cell=CELL_A)):
            self.assertTrue({0, 1}.issuperset(self.kept(**fields)[0]), fields)
        self.assertEqual(([0, 1], ['DisabledCell']), self.kept())
        self.assertEqual(
            ([2, 3], ['RequestedCell']), self.kept(**destination(cell=CELL_B)))
        self.assertEqual(([0, 1], ['DisabledCell']), self.kept(**destination(
            cell=CELL_B, allow_cross_cell_move=True)))

    def test_ignored_hosts_are_out_in_any_case(self):
        for ignored, left in ((['ALPHA'], [1, 2, 3]), (['BETA'], [0, 3]),
                              (['beta'], [0, 1, 3]),
                              (['alpha', 'GAMMA', 'x'], [1, 2]),
                              (['x', ''], [0, 1, 2, 3])):
            rows, by = self.kept(ignore_hosts=ignored)
            self.assertEqual(left, rows)
            self.assertEqual(['IgnoredHost'] * (len(left) < 4), by)

    def test_ignored_host_is_rejected_though_forced(self):
        self.assertEqual(([], ['ForcedHost', 'IgnoredHost']), self.kept(
            force_hosts=['alpha'], ignore_hosts=['alpha']))

    def test_request_keeps_to_its_hosts_nodes_cell_and_aggregates(self):
        for by, left, fields in (
                # Names of hosts match in any case, the exact case first.
                ('ForcedHost', [0], {'force_hosts': ['ALPHA']}),
                ('ForcedHost', [1, 2], {'force_hosts': ['BETA']}),
                ('ForcedHost', [0, 3], {'force_hosts': ['gamma', 'alpha']}),
                ('ForcedHost', [], {'force_hosts': ['x']}),
                ('ForcedHost', [1], {'force_nodes': ['n2']}),
                ('ForcedHost', [0, 3], {'force_nodes': ['n1', 'n3']}),
                ('ForcedHost', [], {'force_nodes': ['N1']}),
                ('ForcedHost', [2], {'force_hosts': ['beta'],
                                     'force_nodes': ['N2', 'n3']}),
                ('RequestedHost', [0], destination(host='ALPHA')),
                ('RequestedHost', [1, 2], destination(host='BETA')),
                ('RequestedHost', [2], destination(host='beta')),
                ('RequestedHost', [1], destination(node='n2')),
                ('RequestedHost', [2], destination(host='beta', node='N2')),
                ('RequestedHost', [], destination(host='alpha', node='n2')),
                ('RequestedHost', [], destination(host='x')),
                ('RequestedCell', [2, 3], destination(cell=CELL_B)),
                ('RequestedCell', [],
                 destination(cell=str(uuid.UUID(int=9)))),
                *(('RequestedAggregates', left,
                   destination(aggregates=texts)) for texts, left in (
                    ([EAST.uuid], [0, 1]),
                    ([f'{EAST.uuid},{WEST.uuid}'], [0, 1, 2]),
                    ([f'{EAST.uuid} , {DARK.uuid}'], [0, 1, 2]),
                    ([EAST.uuid, WEST.uuid], [1]),
                    (['nonsense'], []), ([''], []))),
                *(('RequestedAggregates', left,
                   destination(forbidden_aggregates=texts))
                  for texts, left in (
                      ({EAST.uuid}, [2, 3]), ({EAST.uuid, DARK.uuid}, [3]),
                      ({f'{EAST.uuid},{DARK.uuid}'}, [3]))),
                ('RequestedAggregates', [0, 1], destination(
                    aggregates=[f'{EAST.uuid},{WEST.uuid}'],
                    forbidden_aggregates={DARK.uuid}))):
            with self.subTest(by=by, left=left, fields=fields):
                self.assertEqual((left, [by]), self.kept(**fields))

    def test_allowed_cross_cell_move_keeps_all_cells(self):
        for allowed, left in (False, [2, 3]), (True, [0, 1, 2, 3]):
            rows, _ = self.kept(**destination(
                cell=CELL_B, allow_cross_cell_move=allowed))
            self.assertEqual(left, rows)

    def test_many_ignored_hosts_are_accepted(self):
        rows, _ = self.kept(ignore_hosts=[
            *(f'h{number}' for number in range(10_000)), 'alpha'])

        self.assertEqual([1, 2, 3], rows)

    def test_reasons_begin_with_is_or_was(self):
        for stage in self.stages:
            self.assertRegex(stage.reason, '^(is|was) ')
            self.assertTrue(stage.run_filter_once_per_request)

    def test_hosts_of_failed_builds_are_rejected(self):
        self.assertEqual(
            ([1, 2, 3], ['RetryFilter']), self.kept(
                force_hosts=HOSTS, retry=tried('alpha')))


class TestSilentCell(base.TestCase):

    def kept(self, limit_s, *rows, **heard):
        table = builders.table(cell=['a', 'b', 'c'])
        for cell, heard_at in {'a': 970.0, 'b': 1000.0, **heard}.items():
            table.cells.heard(cell, heard_at)
        hosts = table.view(1000.0)
        stage = mandatory_stages.SilentCell(limit_s)
        mask = stage.keep(hosts.at(np.array(rows)) if rows else hosts,
                          builders.request())
        return mask if mask is None else mask.tolist()

    def test_hosts_of_a_long_silent_cell_are_rejected(self):
        self.assertEqual([False, True, True], self.kept(29.9))
        self.assertEqual([True, True], self.kept(29.9, 1, 2))

    def test_silence_up_to_the_limit_is_accepted(self):
        self.assertIn(self.kept(30.0), (None, [True] * 3))
        self.assertEqual([True, True, False], self.kept(30.0, c=969.0))


def aggregate(number, metadata):
    return builders.aggregate(number, **metadata)


class TestAlways(prefiltering.PrefilterTestCase):

    def test_disabled_host_is_out(self):
        hosts = builders.hosts(service_disabled=[True, False])

        self.assertEqual(([1], ['DisabledCompute']), self.kept(hosts))
        self.assertEqual(([1], ['DisabledCompute']), self.kept(
            hosts, builders.request(force_hosts=['host1', 'host2'])))

    def test_hosts_of_another_zone_are_rejected(self):
        hosts = builders.hosts(availability_zone=['east', 'west', 'east'])

        for zone, left in (('east', [0, 2]), ('north', [])):
            self.assertEqual(
                (left, ['AvailabilityZoneFilter']), self.kept(
                    hosts, builders.request(availability_zone=zone)))
        for zone in (None, ''):
            self.assertEqual(([0, 1, 2], []), self.kept(
                hosts, builders.request(availability_zone=zone)))

    def test_forced_request_stays_in_its_zone(self):
        self.assertEqual(([], ['AvailabilityZoneFilter']), self.kept(
            builders.hosts(), builders.request(
                availability_zone='north', force_hosts=['host1'])))


class TestTenantAggregate(prefiltering.PrefilterTestCase):

    limit = {'limit_tenants_to_placement_aggregate': True}
    required = {'placement_aggregate_required_for_tenants': True, **limit}
    hosts_ = property(lambda self: builders.hosts(aggregates=[
        (aggregate(1, {'filter_tenant_id': 'mine'}),),
        (aggregate(2, {'filter_tenant_id3': 'mine', 'x': 'y'}),),
        (aggregate(3, {'filter_tenant_id': 'yours', 'x': 'mine'}),), ()]))

    def test_project_keeps_to_its_aggregates(self):
        for project, left in ('mine', [0, 1]), ('yours', [2]):
            self.assertEqual((left, ['TenantAggregate']), self.kept(
                self.hosts_, builders.request(project_id=project),
                **self.limit))

    def test_project_without_an_aggregate_may_use_all_or_no_hosts(self):
        request = builders.request(project_id='other')

        self.assertEqual(([0, 1, 2, 3], []), self.kept(
            self.hosts_, request, **self.limit))
        self.assertEqual(([], ['TenantAggregate']), self.kept(
            self.hosts_, request, **self.required))
        self.assertEqual(([], ['TenantAggregate']), self.kept(
            self.hosts_, builders.request(project_id=None), **self.required))

    def test_filter_is_disabled_by_default(self):
        self.assertEqual(([0, 1, 2, 3], []), self.kept(
            self.hosts_, builders.request(project_id='mine'),
            placement_aggregate_required_for_tenants=True))

    def test_project_is_matched_by_its_whole_name(self):
        self.assertEqual(([0, 1, 2, 3], []), self.kept(
            self.hosts_, builders.request(project_id='min'), **self.limit))


class TestIsolatedAggregate(prefiltering.PrefilterTestCase):

    hosts_ = property(lambda self: builders.hosts(aggregates=[
        (aggregate(1, {'trait:GPU': 'required'}),),
        (aggregate(2, {'trait:GPU': 'required', 'trait:SSD': 'required'}),),
        (aggregate(3, {'trait:GPU': 'forbidden', 'GPU': 'required'}),), ()],
        traits=frozenset({'GPU', 'SSD'})))

    def kept_rows(self, extra_specs=None, image=None, on=True):
        rows, by = self.kept(
            self.hosts_, builders.request(
                extra_specs=extra_specs or {}, image=image),
            enable_isolated_aggregate_filtering=on)
        self.assertEqual(['IsolatedAggregate'] * (len(rows) < 4), by)
        return rows

    def test_isolated_hosts_require_all_traits_in_the_request(self):
        both = {'trait:GPU': 'required', 'trait:SSD': 'required'}

        self.assertEqual([2, 3], self.kept_rows())
        self.assertEqual([0, 2, 3], self.kept_rows({'trait:GPU': 'required'}))
        self.assertEqual([2, 3], self.kept_rows({'trait:SSD': 'required'}))
        self.assertEqual([0, 1, 2, 3], self.kept_rows(both))

    def test_traits_of_the_image_count(self):
        self.assertEqual([0, 1, 2, 3], self.kept_rows(
            {'trait:GPU': 'required'}, {'traits_required': ['SSD']}))

    def test_filter_is_disabled_by_default(self):
        self.assertEqual([0, 1, 2, 3], self.kept_rows(on=False))


class TestInvalidMetadata(base.TestCase):

    def test_hosts_of_an_aggregate_with_an_invalid_value_are_rejected(self):
        hosts = builders.hosts(aggregates=[
            (aggregate(1, {'trait:CUSTOM_SSD': 'required'}),),
            (aggregate(2, {'trait:CUSTOM_SSD': 'Required'}),),
            (aggregate(3, {'rack': 'x', 'cpu_allocation_ratio': 'x'}), EAST),
            ()])
        stage = mandatory_stages.InvalidMetadata()

        self.assertEqual([True, False, False, True], stage.keep(
            hosts, builders.request()).tolist())
        self.assertTrue(stage.reason_for(
            hosts.at(np.array([1, 2])), builders.request()).endswith(
                ' (cpu_allocation_ratio, trait:CUSTOM_SSD)'))

    def test_valid_metadata_rejects_no_host(self):
        hosts = builders.hosts(aggregates=[
            (aggregate(1, {'trait:CUSTOM_SSD': 'required', 'rack': 'x'}),)])

        self.assertIsNone(mandatory_stages.InvalidMetadata().keep(
            hosts, builders.request()))
