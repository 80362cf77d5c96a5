# SPDX-License-Identifier: Apache-2.0
"""FragmentationWeigher, and the measure that it reads."""

import hypothesis
from hypothesis import strategies as st
import numpy as np

from cellsched.testing import builders
from cellsched.testing.suite import weighers
from cellsched.weighers import fragmentation
from tests.unit import base
from tests.unit.hosts import rows

AMOUNTS = st.integers(0, 40)
SIZES = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)),
                 min_size=1, max_size=4)


def unusable_in_steps(free, sizes, shares):
    """Return the unusable room of a host, one server after the other."""
    found = [0.0] * len(free)
    for size, share in zip(sizes, shares):
        remaining = list(free)
        while all(room >= amount for room, amount in zip(remaining, size)):
            remaining = [room - amount
                         for room, amount in zip(remaining, size)]
        found = [total + share * room
                 for total, room in zip(found, remaining)]
    return found


class TestUnusable(base.TestCase):

    def of(self, free, sizes, shares):
        return fragmentation.unusable(*(
            np.array(each, 'float64') for each in (free, sizes, shares)))

    def test_rest_of_each_flavor_counts_by_its_share(self):
        found = self.of([[7, 64], [0, 64]], [[4, 8], [2, 32]], [0.25, 0.75])

        # One of the first and two of the second; no vCPU, no server.
        self.assertEqual([[0.25 * 3 + 0.75 * 3, 0.25 * 56], [0, 64]],
                         found.tolist())

    def test_resource_absent_from_the_flavor_is_no_limit(
        self,
    ):
        self.assertEqual(
            [[1, 0]], self.of([[7, 0]], [[3, 0]], [1]).tolist())

    @hypothesis.given(
        free=st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=5),
        sizes=SIZES)
    def test_columns_agree_with_steps(self, free, sizes):
        shares = np.full(len(sizes), 1 / len(sizes))

        found = self.of(free, sizes, shares)

        np.testing.assert_allclose(
            [unusable_in_steps(each, sizes, shares) for each in free], found)
        self.assertTrue((found >= 0).all())
        self.assertTrue((found <= np.array(free) + 1e-9).all())


class TestFragmentationWeigher(weighers.WeigherSuite, base.TestCase):

    plugin = fragmentation.FragmentationWeigher

    def score(self, free_vcpus, free_ram_mb, mix, **request):
        plugin = builders.plugin(self.plugin, fragmentation_flavors=mix)
        return self.ask(plugin, builders.hosts(available={
            'VCPU': free_vcpus, 'MEMORY_MB': free_ram_mb}),
            builders.request(**request)).tolist()

    def test_host_filled_by_the_server_scores_best(self):
        # The mean server has 4 vCPUs and 4096 MB. With this one of half the
        # size, the first host loses room for half a server in both, and the
        # second one gains it.
        self.assertEqual([-1, 1], self.score(
            [8, 6], [8192, 6144], '4:4096=1', vcpus=2, memory_mb=2048))

    def test_stranded_memory_counts(self):
        # On the first host it strands 1024 MB; on the second one it takes one
        # of the vCPUs that have no memory.
        self.assertEqual([-1, 1], self.score(
            [2, 8], [2048, 2048], '1:1024=1', vcpus=2, memory_mb=1024))

    def test_disk_counts_only_in_a_mix_with_disks(self):
        for mix, resources in (
                ('1:1024=1', ['VCPU', 'MEMORY_MB']),
                ('1:1024:10=1,2:0=3', ['VCPU', 'MEMORY_MB', 'DISK_GB'])):
            plugin = builders.plugin(self.plugin, fragmentation_flavors=mix)
            self.assertEqual(resources, plugin.resources)
            self.assertEqual(1, plugin.shares.sum())

    def test_mix_without_flavors_disables_the_weigher(self):
        plugin = builders.plugin(self.plugin, fragmentation_flavors='')

        self.assertFalse(plugin.applies(builders.request()))

    @hypothesis.given(table=rows.ROWS)
    def test_overcommitted_host_has_no_unusable_room(self, table):
        plugin = builders.plugin(self.plugin)
        hosts = rows.hosts(table, available={
            'VCPU': -1, 'MEMORY_MB': -5, 'DISK_GB': 0})

        self.assertEqual([0] * len(table), self.ask(
            plugin, hosts, builders.request()).tolist())

    def test_invalid_mix_is_refused(self):
        for mix in ('1=2', '1:x=2', '0:0=1', '1:2=0', '1:2=inf', '-1:2=1',
                    '1:2:3:4=1', '1:2'):
            with self.assertRaisesRegex(ValueError, 'VCPUS:MEMORY_MB=SHARE'):
                builders.plugin(self.plugin, fragmentation_flavors=mix)
