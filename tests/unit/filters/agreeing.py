# SPDX-License-Identifier: Apache-2.0
"""What a property test of a filter checks."""

from cellsched.testing import builders
from tests.unit import strategies


class Agreeing:
    """Mixed into test cases that have ``plugin``."""

    def assertAgrees(self, passes, hosts, request, **options):
        """Check that the columns say what a row form says of each host.

        :param passes: takes a host state and the request
        """
        plugin = builders.plugin(self.plugin, **options)
        expected = strategies.kept_by_rows(passes, hosts, request)
        self.assertEqual(
            expected, strategies.kept_by_columns(plugin, hosts, request))
        self.assertEqual(
            expected, strategies.kept_of_some(plugin, hosts, request))
