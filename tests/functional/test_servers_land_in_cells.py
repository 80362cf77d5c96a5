# SPDX-License-Identifier: Apache-2.0
"""Servers land in cells, each in exactly one."""

from cellsched import context
from cellsched import exception
from cellsched.standalone import deployment
from tests.functional import base

THREE_CELLS = {'cell1': ['a1', 'a2'], 'cell2': ['b1', 'b2'],
               'cell3': ['c1', 'c2']}


class TestLanding(base.TestCase):

    def test_servers_of_a_request_are_spread_over_all_hosts(self):
        self.deploy(THREE_CELLS)

        found = self.built('web', min_count=6)

        self.assertEqual(['ACTIVE'] * 6, [each.status for each in found])
        self.assertEqual([f'web-{number}' for number in range(1, 7)],
                         [each.name for each in found])
        self.assertEqual(
            [('cell1', 'a1'), ('cell1', 'a2'), ('cell2', 'b1'),
             ('cell2', 'b2'), ('cell3', 'c1'), ('cell3', 'c2')],
            sorted((each.cell, each.host) for each in found))
        for each in found:
            self.assertIsIn(each.cell, each.uuid)
        self.assertClaimsMatch()

    def test_servers_of_successive_requests_are_spread(self):
        self.deploy(THREE_CELLS)

        found = self.settled(
            [uuid for _ in range(6) for uuid in self.create()])

        self.assertEqual(['a1', 'a2', 'b1', 'b2', 'c1', 'c2'],
                         sorted(each.host for each in found))
        self.assertClaimsMatch()

    def test_listing_has_every_server_once_the_newest_first(self):
        self.deploy(THREE_CELLS)
        found = [*self.built(), *self.built(min_count=5),
                 *self.built(flavor='huge')]
        # These have no cell yet, and nobody is going to build them.
        found += map(self.get, self.unheard().servers.create(
            base.USER, 'waiting', 'small', min_count=5))

        newest_first = sorted(
            found, key=lambda each: (each.created_at, each.uuid), reverse=True)
        page = self.world.api.servers.list(base.ADMIN)
        self.assertEqual(newest_first, page.servers)
        self.assertEqual([], page.down_cells)
        page = self.world.api.servers.list(base.USER, limit=3)
        self.assertEqual(3, len(page.servers))
        self.assertEqual(
            [], self.world.api.servers.list(base.USER, limit=0).servers)

    def test_servers_of_other_projects_are_not_listed_or_found(self):
        self.deploy({'cell1': ['a1']})
        [theirs] = self.built()
        me = context.member('me', 'mine')
        servers = self.world.api.servers

        self.assertEqual([], servers.list(me).servers)
        self.assertRaises(
            exception.InstanceNotFound, servers.get, me, theirs.uuid)
        self.assertRaises(
            exception.InstanceNotFound, servers.delete, me, theirs.uuid)
        self.assertEqual('ACTIVE', self.get(theirs.uuid).status)
        self.assertEqual(
            [theirs], servers.list(context.admin()).servers)

    def test_availability_zone_is_kept(self):
        self.deploy({
            'cell1': ['a1'],
            'cell2': [deployment.DeployedHost('b1', availability_zone='lab'),
                      deployment.DeployedHost('b2', availability_zone='lab')]})

        found = self.built(availability_zone='lab', min_count=3)
        [default] = self.built(availability_zone='nova')

        for each in found:
            self.assertEqual(('ACTIVE', 'cell2', 'lab'), (
                each.status, each.cell, each.availability_zone))
        self.assertEqual('a1', default.host)

    def test_different_host_keeps_servers_apart(self):
        self.deploy(
            {'cell1': ['a1'], 'cell2': ['b1']},
            filter_scheduler={'enabled_filters': [
                'ComputeFilter', 'DifferentHostFilter']})
        [first] = self.built()
        [second] = self.built(hints={'different_host': [first.uuid]})
        [third] = self.built(
            hints={'different_host': [first.uuid, second.uuid]})

        self.assertEqual({'a1', 'b1'}, {first.host, second.host})
        self.assertEqual(('ERROR', 'cell0'), (third.status, third.cell))

    def test_hosts_are_filled_to_the_last_place_and_no_further(self):
        self.deploy({'cell1': [deployment.DeployedHost('a1', vcpus=2)],
                     'cell2': [deployment.DeployedHost('b1', vcpus=3)]})

        found = self.settled([uuid for _ in range(8)
                              for uuid in self.create()])

        self.assertEqual(
            {'ACTIVE': 5, 'ERROR': 3},
            {status: sum(each.status == status for each in found)
             for status in ('ACTIVE', 'ERROR')})
        self.assertClaimsMatch()
