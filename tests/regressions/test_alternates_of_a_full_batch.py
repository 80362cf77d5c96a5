# SPDX-License-Identifier: Apache-2.0
"""A request for as many servers as its cell has hosts has alternates."""

import collections

from cellsched.claims import base as claims_base
from cellsched.standalone import deployment
from tests.functional import base
from tests import profile


class TestFullBatch(base.TestCase):

    def statuses(self, **wishes):
        """Return how many servers of a request have which status."""
        found = self.built(**wishes)
        return collections.Counter(each.status for each in found)

    def test_servers_of_a_failing_host_get_the_other_hosts(self):
        self.deploy({'cell1': [
            deployment.DeployedHost(name, vcpus=20)
            for name in ('a1', 'a2', 'a3')]})
        self.driver('a1').fail_builds(99)

        for count in 2, 3, 6, 15:
            self.assertEqual(
                {'ACTIVE': count}, self.statuses(min_count=count))
        self.assertClaimsMatch()

    def test_each_cell_of_a_batch_has_its_own_alternates(self):
        self.deploy({'cell1': ['a1', 'a2'], 'cell2': ['b1', 'b2'],
                     'cell3': ['c1']})
        for host in 'a1', 'b2':
            self.driver(host).fail_builds(99)

        found = self.built(min_count=10)

        self.assertEqual({'ACTIVE'}, {each.status for each in found})
        self.assertEqual(
            {('cell1', 'a2'), ('cell2', 'b1'), ('cell3', 'c1')},
            {(each.cell, each.host) for each in found})
        self.assertClaimsMatch()

    def test_anti_affinity_holds_for_alternates(self):
        self.deploy({'cell1': ['a1', 'a2', 'a3']})
        self.driver('a1').fail_builds(99)
        group = self.world.api.server_groups.create(
            base.USER, 'apart', claims_base.ANTI_AFFINITY)

        found = self.built(min_count=3, hints={'group': [group.uuid]})

        self.assertEqual(['ACTIVE', 'ACTIVE', 'ERROR'],
                         sorted(each.status for each in found))
        self.assertEqual({'a2', 'a3', None}, {each.host for each in found})
        self.assertClaimsMatch()

    def test_soft_anti_affinity_forbids_no_alternate(self):
        self.deploy({'cell1': ['a1', 'a2', 'a3']})
        self.driver('a1').fail_builds(99)
        group = self.world.api.server_groups.create(
            base.USER, 'apart', 'soft-anti-affinity')

        self.assertEqual({'ACTIVE': 3}, self.statuses(
            min_count=3, hints={'group': [group.uuid]}))

    @profile.full_only('other drivers')
    def test_batch_has_alternates_with_each_driver(self):
        for driver in 'provider_scheduler', 'chance_scheduler':
            with self.subTest(driver):
                self.deploy({'cell1': ['a1', 'a2', 'a3']},
                            scheduler={'driver': driver})
                self.driver('a1').fail_builds(99)

                self.assertEqual({'ACTIVE': 6}, self.statuses(min_count=6))
