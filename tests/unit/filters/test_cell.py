# SPDX-License-Identifier: Apache-2.0
"""CellFilter."""

import hypothesis
from hypothesis import strategies as st

from cellsched.filters import cell
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.filters import agreeing
from tests.unit import strategies

ALLOWED, DENIED = 'cell_allowed_projects', 'cell_denied_projects'


class TestCellFilter(agreeing.Agreeing, filters.FilterSuite, base.TestCase):

    plugin = cell.CellFilter

    def test_cell_takes_the_projects_of_its_aggregates(self):
        for expected, *metadata in (
                (True,), (True, {}), (True, {'ssd': 'yes'}),
                (True, {ALLOWED: 'project'}), (False, {ALLOWED: 'other'}),
                (False, {ALLOWED: ''}), (False, {ALLOWED: 'projects'}),
                (True, {ALLOWED: 'other, project'}),
                (True, {ALLOWED: 'other'}, {ALLOWED: 'project'}),
                (False, {ALLOWED: 'other'}, {}),
                (False, {DENIED: 'project'}), (True, {DENIED: 'other'}),
                (True, {DENIED: ''}), (False, {DENIED: 'other,project'}),
                (False, {DENIED: 'other'}, {DENIED: 'project'}),
                (False, {ALLOWED: 'project', DENIED: 'project'}),
                (False, {ALLOWED: 'project'}, {DENIED: 'project'}),
                (True, {ALLOWED: 'project', DENIED: 'other'}),
                (False, {ALLOWED: 'other', DENIED: 'other'})):
            with self.subTest(metadata=metadata):
                self.assertKeeps([expected], builders.hosts(aggregates=[tuple(
                    builders.aggregate(number, **each)
                    for number, each in enumerate(metadata, 1))]))

    def test_aggregate_speaks_for_all_hosts_of_its_cells(self):
        other = builders.aggregate(1, **{ALLOWED: 'other'})
        ours = builders.aggregate(2, **{ALLOWED: 'project'})

        self.assertKeeps(
            [False, False, True, True, True, True],
            builders.hosts(cell=['a', 'a', 'b', 'b', 'c', 'd'], aggregates=[
                (other,), (), (), (other, ours), (), (ours,)]))
        self.assertKeeps([True, True], builders.hosts(
            cell=['a', 'a'], aggregates=[(other,), (ours,)]))
        self.assertKeeps([True, True], builders.hosts(
            cell=['a', 'a'], aggregates=[(ours,), (other,)]))

    def test_request_without_a_project_is_kept_off_dedicated_cells(self):
        ours = builders.aggregate(1, **{ALLOWED: 'project'})

        self.assertKeeps(
            [True, False],
            builders.hosts(cell=['a', 'b'], aggregates=[(), (ours,)]),
            builders.request(project_id=None))

    def test_change_of_aggregates_applies(self):
        other = builders.aggregate(1, **{ALLOWED: 'other'})
        table = builders.table(cell=['a', 'a', 'b'])
        plugin, request = builders.plugin(self.plugin), builders.request()
        self.assertTrue(plugin.keep(table.view(0.0), request).all())

        table.put(table['uuid'][:1], {'aggregates': [(other,)]})
        self.assertEqual([False, False, True], plugin.keep(
            table.view(0.0), request).tolist())
        table.put(table['uuid'][:1], {'cell': ['b']})
        self.assertEqual([False, True, False], plugin.keep(
            table.view(0.0), request).tolist())

    @hypothesis.given(
        hosts=strategies.hosts({
            ALLOWED: st.sampled_from(['project', 'other', '', 'x, other']),
            DENIED: st.sampled_from(['project', 'other', ''])}),
        request=strategies.requests())
    def test_column_verdict_equals_row_verdicts(self, hosts, request):
        def said(key, cell_):
            return [project.strip()
                    for code, other in zip(hosts['aggregates'], hosts['cell'])
                    if hosts.value('cell', other) == cell_
                    for each in hosts.value('aggregates', code)
                    if key in each.metadata
                    for project in each.metadata[key].split(',')]

        def passes(host, request):
            allowed = said(ALLOWED, host.cell)
            return request.project_id not in said(DENIED, host.cell) and (
                not allowed or request.project_id in allowed)

        self.assertAgrees(passes, hosts, request)
