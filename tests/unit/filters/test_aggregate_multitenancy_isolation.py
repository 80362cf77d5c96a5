# SPDX-License-Identifier: Apache-2.0
"""AggregateMultiTenancyIsolation."""

import hypothesis
from hypothesis import strategies as st

from cellsched.filters import aggregate_multitenancy_isolation
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.filters import agreeing
from tests.unit import strategies


class TestAggregateMultiTenancyIsolation(
        agreeing.Agreeing, filters.FilterSuite, base.TestCase):

    plugin = aggregate_multitenancy_isolation.AggregateMultiTenancyIsolation

    def test_host_takes_the_projects_of_its_aggregates(self):
        for expected, *metadata in (
                (True,), (True, {}), (True, {'ssd': 'yes'}),
                (True, {'filter_tenant_id': 'project'}),
                (False, {'filter_tenant_id': 'other'}),
                (False, {'filter_tenant_id': ''}),
                (False, {'filter_tenant_id': 'projects'}),
                (True, {'filter_tenant_id': 'other, project'}),
                (True, {'filter_tenant_id2': 'project'}),
                (True, {'filter_tenant_id': 'other',
                        'filter_tenant_id_b': 'project'}),
                (True, {'filter_tenant_id': 'other'},
                 {'filter_tenant_id': 'project'}),
                (False, {'filter_tenant_id': 'other'}, {'ssd': 'yes'}),
                (True, {'tenant_id': 'other'})):
            with self.subTest(metadata=metadata):
                self.assertKeeps([expected], builders.hosts(aggregates=[tuple(
                    builders.aggregate(number, **each)
                    for number, each in enumerate(metadata, 1))]))

    def test_request_without_a_project_is_kept_off_dedicated_hosts(self):
        kept = builders.aggregate(1, filter_tenant_id='project')

        self.assertKeeps(
            [True, False], builders.hosts(aggregates=[(), (kept,)]),
            builders.request(project_id=None))

    def test_change_of_aggregates_applies(self):
        table = builders.table(2)
        plugin, request = builders.plugin(self.plugin), builders.request()
        self.assertEqual(
            [True, True], plugin.keep(table.view(0.0), request).tolist())

        table.put(table['uuid'][:1], {'aggregates': [(
            builders.aggregate(1, filter_tenant_id='other'),)]})

        self.assertEqual(
            [False, True], plugin.keep(table.view(0.0), request).tolist())

    @hypothesis.given(
        hosts=strategies.hosts({
            'filter_tenant_id': st.sampled_from(
                ['project', 'other', 'other, project', '']),
            'filter_tenant_id7': st.sampled_from(['project', 'third'])}),
        request=strategies.requests())
    def test_column_verdict_equals_row_verdicts(self, hosts, request):
        def passes(host, request):
            texts = [text for each in host.aggregates
                     for key, text in each.metadata.items()
                     if key.startswith('filter_tenant_id')]
            return not texts or request.project_id in [
                project.strip() for text in texts
                for project in text.split(',')]

        self.assertAgrees(passes, hosts, request)
