# SPDX-License-Identifier: Apache-2.0
"""AllHostsFilter."""

from cellsched.filters import all_hosts
from cellsched.testing import builders
from cellsched.testing.suite import filters
from tests.unit import base


class TestAllHostsFilter(filters.FilterSuite, base.TestCase):

    plugin = all_hosts.AllHostsFilter

    def test_every_host_is_kept(self):
        hosts = builders.hosts(
            forced_down=[False, True, False], free_ram_mb=[0, -5, 9])

        self.assertKeeps([True, True, True], hosts)
