# SPDX-License-Identifier: Apache-2.0
"""Requests for instances that have a host already."""

from cellsched import exception
from cellsched import migrations
from cellsched import objects
from cellsched.scheduler.decision import destinations
from tests.unit.db import samples
from tests.unit.hosts import world
from tests.unit.scheduler import schedulers


class TestMoves(schedulers.PlacingTestCase):

    def setUp(self):
        super().setUp()
        self.placer, self.loader = self.world.placer(
            first=destinations.stages(schedulers.FOR_EVER_S))
        self.uuids = samples.uuids(1)
        self.moved = migrations.consumer(self.uuids[0])
        self.place(uuids=self.uuids, vcpus=2)

    def move(self, vcpus=2, **wishes):
        [[chosen]] = self.place(uuids=self.uuids, vcpus=vcpus, **wishes)
        return chosen.service_host

    def held(self):
        """Return the hosts and amounts that the instance holds."""
        hosts = {uuid: host for host, uuid in self.world.providers.items()}
        return {name: (hosts[claim.provider], claim.resources['VCPU'])
                for name, [claim] in self.world.claims.claims_of(
                    migrations.consumers(self.uuids)).items()}

    def test_instance_leaves_a_host_that_is_ignored(self):
        for _ in range(2):
            self.assertEqual('a2', self.move(ignore_hosts=['A1']))

        self.assertEqual({self.uuids[0]: ('a1', 2), self.moved: ('a2', 2)},
                         self.held())
        self.assertTableIsRight()

    def test_claim_of_a_move_is_for_the_same_project_and_user(self):
        self.move(ignore_hosts=['a1'])

        self.assertEqual(
            {self.uuids[0]: ('project', 'user'),
             self.moved: ('project', 'user')},
            {name: (claim.project_id, claim.user_id) for name, [claim]
             in self.world.claims.claims_of(
                 migrations.consumers(self.uuids)).items()})

    def test_instance_goes_where_it_is_sent(self):
        for wishes in (
                {'requested_destination': objects.Destination(
                    host='b1', node='b1')},
                {'force_hosts': ['b1']}, {'force_nodes': ['b1']},
                {'requested_destination': objects.Destination(
                    cell=objects.CellMapping(
                        uuid=self.world.cells['cell2'].uuid))}):
            self.assertEqual('b1', self.move(**wishes))

        self.assertEqual({self.uuids[0]: ('a1', 2), self.moved: ('b1', 2)},
                         self.held())

    def test_instance_that_is_resized_gets_room_for_its_new_size(self):
        self.assertEqual('a2', self.move(vcpus=4))

        self.assertEqual({self.uuids[0]: ('a1', 2), self.moved: ('a2', 4)},
                         self.held())
        self.assertTableIsRight()

    def test_instance_stays_where_the_caller_wants_it_to(self):
        for wishes in (
                {'force_hosts': ['a1']}, {'ignore_hosts': ['a2']},
                {'requested_destination': objects.Destination(host='a1')}):
            self.assertEqual('a1', self.move(**wishes))

        self.assertEqual({self.uuids[0]: ('a1', 2)}, self.held())

    def test_host_that_it_has_left_is_free(self):
        self.move(ignore_hosts=['a1'])

        self.placer.release('a1', self.uuids[0])

        self.assertEqual({self.moved: ('a2', 2)}, self.held())
        # And so it can be moved again.
        self.assertEqual('a1', self.move(ignore_hosts=['a2']))

    def test_host_that_has_not_had_it_releases_nothing(self):
        for host in ('a2', 'unknown', 'b1'):
            self.placer.release(host, self.uuids[0])

        self.assertEqual({self.uuids[0]: ('a1', 2)}, self.held())

    def test_third_place_at_a_time_is_refused(self):
        self.move(ignore_hosts=['a1'])

        self.assertRaises(exception.ClaimConflict, self.move,
                          ignore_hosts=['a1', 'a2'])

        self.assertTableIsRight()

    def test_room_that_is_kept_is_not_given_to_others(self):
        self.move(ignore_hosts=['a1'])

        self.assertEqual([['a1'], ['a2'], ['a3'], ['a3']], schedulers.hosts(
            self.place(4, vcpus=2)))

    def test_nothing_is_taken_where_there_is_no_room(self):
        self.fill('a2', 'a3', 'b1', 'b2')

        self.assertRaises(exception.NoValidHost, self.move,
                          ignore_hosts=['a1'])

        self.assertEqual({self.uuids[0]: ('a1', 2)}, self.held())
        self.assertTableIsRight()

    def test_those_that_move_and_those_that_stay_are_told_apart(self):
        others = samples.uuids(2)
        self.place(uuids=others, vcpus=2, force_hosts=['b1'])

        places = self.placer.place(
            world.CONTEXT, self.request([*self.uuids, *others]),
            [*self.uuids, *others], 0)

        self.assertEqual([['a2'], ['b1'], ['b1']], schedulers.hosts(places))

    @staticmethod
    def request(uuids):
        return schedulers.builders.request(
            vcpus=2, memory_mb=1, root_gb=0, ignore_hosts=['a1'],
            num_instances=len(uuids))
