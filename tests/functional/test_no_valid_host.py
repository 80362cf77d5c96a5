# SPDX-License-Identifier: Apache-2.0
"""Servers without a valid host are in cell0 with the reasons."""

from cellsched.standalone import deployment
from tests.functional import base


class TestNoValidHost(base.TestCase):

    def assertBuried(self, found):
        self.assertEqual(('ERROR', 'cell0', None, 0), (
            found.status, found.cell, found.host, found.attempts))
        self.assertIsIn('cell0', found.uuid)
        self.assertHoldsNothing(found.uuid)
        row = self.rows(found.uuid)['cell0']
        self.assertEqual(('error', None, None), (
            row.vm_state, row.task_state, row.node))

    def test_reasons_contain_no_hosts_or_cells(self):
        self.deploy({'secret-cell': ['secret-a'], 'cell2': ['secret-b']})

        [small] = self.built(availability_zone='moon')
        [huge] = self.built(flavor='huge')

        for found in small, huge:
            self.assertBuried(found)
            self.assertNotIn('secret', found.reason)
        self.assertIn('availability zone', small.reason)

    def test_servers_above_min_count_are_built_as_capacity_allows(self):
        self.deploy({'cell1': [deployment.DeployedHost('a1', vcpus=2)],
                     'cell2': [deployment.DeployedHost('b1', vcpus=2)]})

        found = self.built(min_count=3, max_count=6)

        built = [each for each in found if each.status == 'ACTIVE']
        self.assertEqual(['server-1', 'server-2', 'server-3', 'server-4'],
                         [each.name for each in built])
        for each in found[4:]:
            self.assertBuried(each)
            self.assertIn('No valid host was found', each.reason)
        for each in built:
            self.assertIsIn(each.cell, each.uuid)
        self.assertClaimsMatch()

    def test_freed_capacity_is_used_at_once(self):
        self.deploy({'cell1': [deployment.DeployedHost('a1', vcpus=1)]},
                    scheduler={'refresh_interval': 3600})
        [first] = self.built()
        [second] = self.built()

        self.delete(first.uuid)
        self.gone(first.uuid)
        [third] = self.built()

        self.assertEqual(['ACTIVE', 'ERROR', 'ACTIVE'], [
            each.status for each in (first, second, third)])
        self.assertClaimsMatch()

    def test_fault_names_the_missing_hosts(self):
        self.deploy({'cell1': []})

        [found] = self.built()

        self.assertBuried(found)
        self.assertIn('No valid host was found', found.reason)
