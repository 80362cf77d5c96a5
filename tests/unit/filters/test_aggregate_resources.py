# SPDX-License-Identifier: Apache-2.0
"""The filters of memory, CPUs and disk by ratios of aggregates."""

import hypothesis
from hypothesis import strategies as st

from cellsched.filters import aggregate_resources
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.filters import agreeing
from tests.unit import strategies

RATIOS = st.sampled_from(['0.5', '4', ' 1.5 ', 'x', '', 'nan', '1,2'])


def ratio(host, key):
    """Return the ratio that the host's aggregates have, or its own."""
    texts = [each.metadata[key] for each in host.aggregates
             if key in each.metadata]
    if not all(text.strip().replace('.', '').isdigit() for text in texts):
        # As in Nova, no aggregate counts then.
        return getattr(host, key)
    return min(map(float, texts), default=getattr(host, key))


class _Case(agreeing.Agreeing, filters.FilterSuite):

    def assertOffers(self, key, limit, **columns):
        """Check what is offered of 8 units by the ratios of aggregates."""
        half = builders.aggregate(1, **{key: '0.5'})
        four = builders.aggregate(2, **{key: '4.0'})
        bad = builders.aggregate(3, **{key: 'all'})
        hosts = builders.hosts(
            aggregates=[(half,), (four,), (half, four), (bad,), (bad, four),
                        ()], **columns, **{key: 2.0})

        offered = builders.plugin(self.plugin).limits(
            hosts, builders.request())
        self.assertEqual([4, 32, 4, 16, 16, 16], offered[limit].tolist())
        self.assertEqual([16], builders.plugin(self.plugin).limits(
            builders.hosts(**columns, **{key: 2.0}),
            builders.request())[limit].tolist())


class TestAggregateRamFilter(_Case, base.TestCase):

    plugin = aggregate_resources.AggregateRamFilter

    def test_least_ratio_of_the_aggregates_counts(self):
        self.assertOffers(
            'ram_allocation_ratio', 'memory_mb', total_usable_ram_mb=8)

    @hypothesis.given(hosts=strategies.hosts({'ram_allocation_ratio': RATIOS}),
                      request=strategies.requests())
    def test_column_verdict_equals_row_verdicts(self, hosts, request):
        def passes(host, request):
            wanted, total = request.flavor.memory_mb, host.total_usable_ram_mb
            used = total - host.free_ram_mb
            return wanted <= total and (
                total * ratio(host, 'ram_allocation_ratio') - used >= wanted)

        self.assertAgrees(passes, hosts, request)


class TestAggregateCoreFilter(_Case, base.TestCase):

    plugin = aggregate_resources.AggregateCoreFilter

    def test_least_ratio_of_the_aggregates_counts(self):
        self.assertOffers('cpu_allocation_ratio', 'vcpu', vcpus_total=8)

    @hypothesis.given(hosts=strategies.hosts({'cpu_allocation_ratio': RATIOS}),
                      request=strategies.requests())
    def test_column_verdict_equals_row_verdicts(self, hosts, request):
        def passes(host, request):
            wanted, total = request.flavor.vcpus, host.vcpus_total
            offered = total * ratio(host, 'cpu_allocation_ratio')
            return total == 0 or (
                wanted <= total and offered - host.vcpus_used >= wanted)

        self.assertAgrees(passes, hosts, request)


class TestAggregateDiskFilter(_Case, base.TestCase):

    plugin = aggregate_resources.AggregateDiskFilter

    def test_least_ratio_of_the_aggregates_counts(self):
        self.assertOffers(
            'disk_allocation_ratio', 'disk_gb', total_usable_disk_gb=8)

    @hypothesis.given(
        hosts=strategies.hosts({'disk_allocation_ratio': RATIOS}),
        request=strategies.requests())
    def test_column_verdict_equals_row_verdicts(self, hosts, request):
        def passes(host, request):
            flavor, total = request.flavor, host.total_usable_disk_gb * 1024
            wanted = flavor.swap + 1024 * (
                flavor.root_gb + flavor.ephemeral_gb)
            used = total - host.free_disk_mb
            return wanted <= total and (
                total * ratio(host, 'disk_allocation_ratio') - used >= wanted)

        self.assertAgrees(passes, hosts, request)
