# SPDX-License-Identifier: Apache-2.0
"""RamFilter, CoreFilter and DiskFilter."""

import hypothesis

from cellsched.filters import resources
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base
from tests.unit.filters import agreeing
from tests.unit import strategies


class _Case(agreeing.Agreeing, filters.FilterSuite):

    def assertLimits(self, expected, hosts):
        limits = builders.plugin(self.plugin).limits(hosts, builders.request())
        self.assertEqual(
            expected, {name: each.tolist() for name, each in limits.items()})

    def assertMisses(self, expected, hosts, **fields):
        amounts, unit = builders.plugin(self.plugin).shortfall(
            hosts, builders.request(**fields))
        self.assertEqual(expected, (amounts.tolist(), unit))

    def test_placement_changes_the_verdict_on_its_host_alone(self):
        self.assertFalse(self.plugin.run_filter_once_per_request)
        self.assertTrue(self.plugin.local)


class TestRamFilter(_Case, base.TestCase):

    plugin = resources.RamFilter

    def test_memory_times_ratio_less_usage_is_the_limit(self):
        for expected, total, free, ratio in (
                (True, 1024, 512, 1.0), (False, 1024, 511, 1.0),
                (True, 1024, -512, 2.0), (False, 1024, -513, 2.0),
                (True, 512, 512, 1.0), (False, 511, 511, 16.0),
                (True, 1024, 1024, 0.5), (False, 1024, 1023, 0.5)):
            with self.subTest(total=total, free=free, ratio=ratio):
                self.assertKeeps([expected], builders.hosts(
                    total_usable_ram_mb=[total], free_ram_mb=[free],
                    ram_allocation_ratio=[ratio]))

    def test_limit_is_total_ram_times_ratio(self):
        self.assertLimits({'memory_mb': [1536.0]}, builders.hosts(
            total_usable_ram_mb=[1024], ram_allocation_ratio=[1.5]))

    def test_shortfall_is_the_missing_amount(self):
        self.assertMisses(([12, 400, -500], 'MB'), builders.hosts(
            total_usable_ram_mb=[1024, 112, 1024],
            free_ram_mb=[500, 112, 1012],
            ram_allocation_ratio=[1.0, 16.0, 1.0]))

    @hypothesis.given(hosts=strategies.hosts(), request=strategies.requests())
    def test_column_verdict_equals_row_verdicts(self, hosts, request):
        def passes(host, request):
            wanted = request.flavor.memory_mb
            used = host.total_usable_ram_mb - host.free_ram_mb
            offered = host.total_usable_ram_mb * host.ram_allocation_ratio
            return wanted <= host.total_usable_ram_mb and (
                offered - used >= wanted)

        self.assertAgrees(passes, hosts, request)


class TestCoreFilter(_Case, base.TestCase):

    plugin = resources.CoreFilter

    def test_cpus_times_ratio_less_usage_are_the_limit(self):
        for expected, total, used, ratio in (
                (True, 4, 2, 1.0), (False, 4, 3, 1.0), (True, 4, 14, 4.0),
                (False, 4, 15, 4.0), (True, 2, 0, 1.0), (False, 1, 0, 16.0),
                (True, 4, 0, 0.5), (False, 4, 1, 0.5), (True, 0, 9, 1.0)):
            with self.subTest(total=total, used=used, ratio=ratio):
                self.assertKeeps([expected], builders.hosts(
                    vcpus_total=[total], vcpus_used=[used],
                    cpu_allocation_ratio=[ratio]), builders.request(vcpus=2))

    def test_limit_is_total_vcpus_times_ratio(self):
        self.assertLimits({'vcpu': [12.0, 2 ** 31 - 1]}, builders.hosts(
            vcpus_total=[8, 0], cpu_allocation_ratio=[1.5, 1.0]))

    def test_shortfall_is_the_missing_amount(self):
        self.assertMisses(([1, 3], 'VCPU'), builders.hosts(
            vcpus_total=[8, 2], vcpus_used=[4, 0],
            cpu_allocation_ratio=[1.0, 16.0]), vcpus=5)

    @hypothesis.given(hosts=strategies.hosts(), request=strategies.requests())
    def test_column_verdict_equals_row_verdicts(self, hosts, request):
        def passes(host, request):
            wanted = request.flavor.vcpus
            offered = host.vcpus_total * host.cpu_allocation_ratio
            return host.vcpus_total == 0 or (
                wanted <= host.vcpus_total
                and offered - host.vcpus_used >= wanted)

        self.assertAgrees(passes, hosts, request)


class TestDiskFilter(_Case, base.TestCase):

    plugin = resources.DiskFilter

    def test_disk_times_ratio_less_usage_is_the_limit(self):
        for expected, total, free, ratio in (
                (True, 4, 2048, 1.0), (False, 4, 2047, 1.0),
                (True, 4, -2048, 2.0), (False, 4, -2049, 2.0),
                (True, 2, 2048, 1.0), (False, 1, 1024, 16.0),
                (True, 4, 4096, 0.5), (False, 4, 4095, 0.5)):
            with self.subTest(total=total, free=free, ratio=ratio):
                self.assertKeeps([expected], builders.hosts(
                    total_usable_disk_gb=[total], free_disk_mb=[free],
                    disk_allocation_ratio=[ratio]),
                    builders.request(root_gb=2))

    def test_ephemeral_disk_and_swap_count(self):
        for fields in ({'ephemeral_gb': 1}, {'swap': 1024}):
            self.assertKeeps(
                [False, True],
                builders.hosts(free_disk_mb=[2047, 2048]),
                builders.request(root_gb=1, **fields))

    def test_root_disk_on_a_volume_uses_no_disk(self):
        self.assertKeeps(
            [False, True], builders.hosts(free_disk_mb=[1023, 1024]),
            builders.request(root_gb=9, ephemeral_gb=1, is_bfv=True))

    def test_limit_is_total_disk_times_ratio(self):
        self.assertLimits({'disk_gb': [15.0]}, builders.hosts(
            total_usable_disk_gb=[10], disk_allocation_ratio=[1.5]))

    def test_shortfall_is_the_missing_amount(self):
        self.assertMisses(([2048, 1024], 'MB'), builders.hosts(
            total_usable_disk_gb=[10, 4], free_disk_mb=[3072, 4096],
            disk_allocation_ratio=[1.0, 16.0]), root_gb=5)

    @hypothesis.given(hosts=strategies.hosts(), request=strategies.requests())
    def test_column_verdict_equals_row_verdicts(self, hosts, request):
        def passes(host, request):
            flavor = request.flavor
            wanted = flavor.swap + 1024 * (flavor.root_gb
                                           + flavor.ephemeral_gb)
            total = host.total_usable_disk_gb * 1024
            used = total - host.free_disk_mb
            return wanted <= total and (
                total * host.disk_allocation_ratio - used >= wanted)

        self.assertAgrees(passes, hosts, request)
