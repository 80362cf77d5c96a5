# SPDX-License-Identifier: Apache-2.0
"""A deployment whose scheduler keeps no hosts."""

import collections

from cellsched.standalone import deployment
from tests.functional import base
from tests.functional import test_moves

SCHEDULER = {'refresh_interval': 0, 'driver': 'provider_scheduler'}


class TestProviderScheduler(base.TestCase):

    gpu = {'gpu0': {'inventories': {'VGPU': 1}, 'traits': ['CUSTOM_GPU']}}

    def setUp(self):
        super().setUp()
        self.deploy({
            'cell1': [deployment.DeployedHost('a1', vcpus=4),
                      deployment.DeployedHost('a2', vcpus=4)],
            'cell2': [deployment.DeployedHost('b1', vcpus=4,
                                              providers=self.gpu)],
        }, scheduler=SCHEDULER)

    def test_servers_fill_all_cells_and_no_more(self):
        found = self.built(min_count=12)

        self.assertEqual({'ACTIVE'}, {each.status for each in found})
        self.assertEqual({'a1': 4, 'a2': 4, 'b1': 4}, dict(
            collections.Counter(each.host for each in found)))
        self.assertClaimsMatch()

        [refused] = self.built()
        self.assertEqual('ERROR', refused.status)
        self.assertIn('of 3 hosts 3 lack room or a trait', refused.reason)
        self.delete(found[0].uuid)
        self.until(lambda: not self.held(found[0].uuid), 'it is released')

        [again] = self.built()
        self.assertEqual(found[0].host, again.host)

    def held(self, uuid):
        return self.world.api.parts.claims.claims_of([uuid])

    def test_provider_below_a_host_is_found_by_room_and_trait(self):
        self.world.api.flavors.create(base.ADMIN, 'gpu', 1, 512, 10)
        self.world.api.flavors.set_extra_specs(base.ADMIN, 'gpu', {
            'resources1:VGPU': '1', 'trait1:CUSTOM_GPU': 'required'})

        [server, other] = [
            self.built(flavor='gpu')[0] for _ in range(2)]

        self.assertEqual(('ACTIVE', 'b1'), (server.status, server.host))
        self.assertEqual('ERROR', other.status)

    def test_servers_of_a_group_are_kept_apart(self):
        group = self.world.api.server_groups.create(
            base.USER, 'quorum', 'anti-affinity')

        found = [self.built(hints={'group': [group.uuid]})[0]
                 for _ in range(4)]

        self.assertEqual(['ACTIVE'] * 3 + ['ERROR'],
                         [each.status for each in found])
        self.assertEqual({'a1', 'a2', 'b1'},
                         {each.host for each in found[:3]})


class TestMoves(test_moves.TestMoves):
    """Servers are moved as with the other driver."""

    def start(self, cells=None, **options):
        super().start(cells, scheduler=SCHEDULER, **options)
