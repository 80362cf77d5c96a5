# SPDX-License-Identifier: Apache-2.0
"""Requests for instances that have a host already."""

import json

from cellsched.claims import base as claims_base
from cellsched import exception
from cellsched import migrations
from cellsched import objects
from cellsched.scheduler.decision import pipeline
from cellsched.scheduler.selection import existing_claims
from cellsched.testing import builders
from tests.unit import base
from tests.unit.db import samples
from tests.unit.scheduler import schedulers
from tests.unit.scheduler import toys


class TestMoves(schedulers.MovingTestCase):

    def setUp(self):
        super().setUp()
        self.moved = migrations.consumer(self.uuids[0])
        self.place(uuids=self.uuids, vcpus=2)

    def move(self, vcpus=2, **wishes):
        [[chosen]] = self.place(uuids=self.uuids, vcpus=vcpus, **wishes)
        return chosen.service_host

    def test_instance_moves_off_an_ignored_host(self):
        for _ in range(2):
            self.assertEqual('a2', self.move(ignore_hosts=['A1']))

        self.assertEqual({self.uuids[0]: ('a1', 2), self.moved: ('a2', 2)},
                         self.held())
        self.assertTableIsRight()

    def test_named_migrations_have_separate_claims(self):
        moves = samples.uuids(2)
        for uuid in (*moves, *moves):
            self.assertEqual('a2', self.move(
                ignore_hosts=['a1'], migration_uuid=uuid))

        claims = self.world.claims.claims_of(
            [*migrations.consumers(self.uuids), *moves])
        self.assertEqual({*self.uuids, *moves}, {*claims})
        self.assertTableIsRight()

    def test_migration_of_an_instance_without_claims_has_its_own(self):
        self.uuids, [move] = samples.uuids(1), samples.uuids(1)

        self.move(migration_uuid=move)

        self.assertEqual({move}, {*self.world.claims.claims_of(
            [*migrations.consumers(self.uuids), move])})

    def test_claim_of_a_move_is_for_the_same_project_and_user(self):
        self.move(ignore_hosts=['a1'])

        self.assertEqual(
            {self.uuids[0]: ('project', 'user'),
             self.moved: ('project', 'user')},
            {name: (claim.project_id, claim.user_id) for name, [claim]
             in self.world.claims.claims_of(
                 migrations.consumers(self.uuids)).items()})

    def test_instance_moves_to_the_requested_destination(self):
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

    def test_resized_instance_claims_its_new_size(self):
        self.assertEqual('a2', self.move(vcpus=4))

        self.assertEqual({self.uuids[0]: ('a1', 2), self.moved: ('a2', 4)},
                         self.held())
        self.assertTableIsRight()

    def test_instance_remains_on_the_requested_host(self):
        for wishes in (
                {'force_hosts': ['a1']}, {'ignore_hosts': ['a2']},
                {'requested_destination': objects.Destination(host='a1')}):
            self.assertEqual('a1', self.move(**wishes))

        self.assertEqual({self.uuids[0]: ('a1', 2)}, self.held())

    def test_released_source_host_is_free(self):
        self.move(ignore_hosts=['a1'])

        self.placer.release('a1', self.uuids[0])

        self.assertEqual({self.moved: ('a2', 2)}, self.held())
        # And so it can be moved again.
        self.assertEqual('a1', self.move(ignore_hosts=['a2']))

    def test_release_on_another_host_releases_no_claim(self):
        for host in ('a2', 'unknown', 'b1'):
            self.placer.release(host, self.uuids[0])

        self.assertEqual({self.uuids[0]: ('a1', 2)}, self.held())

    def test_third_place_at_a_time_is_refused(self):
        self.move(ignore_hosts=['a1'])

        self.assertRaises(exception.ClaimConflict, self.move,
                          ignore_hosts=['a1', 'a2'])

        self.assertTableIsRight()

    def test_held_claims_are_not_given_to_other_requests(self):
        self.move(ignore_hosts=['a1'])

        self.assertEqual([['a1'], ['a2'], ['a3'], ['a3']], schedulers.hosts(
            self.place(4, vcpus=2)))

    def test_failed_move_claims_no_resources(self):
        self.fill('a2', 'a3', 'b1', 'b2')

        self.assertRaises(exception.NoValidHost, self.move,
                          ignore_hosts=['a1'])

        self.assertEqual({self.uuids[0]: ('a1', 2)}, self.held())
        self.assertTableIsRight()

    def test_moving_and_remaining_instances_are_separated(self):
        others = samples.uuids(2)
        self.place(uuids=others, vcpus=2, force_hosts=['b1'])

        places = self.place(
            uuids=[*self.uuids, *others], vcpus=2, ignore_hosts=['a1'],
            num_instances=3)

        self.assertEqual([['a2'], ['b1'], ['b1']], schedulers.hosts(places))


HINT = {'_nova_check_type': 'rebuild'}


class TestRebuilds(schedulers.PlacingTestCase):

    def setUp(self):
        super().setUp()
        self.other = toys.Filter(None)
        self.image = toys.Filter(
            lambda hosts: hosts['host'] != self.bad, rebuild=True)
        self.image.reason = 'is for other images'
        self.bad = ''
        self.restart(
            filters=[self.other, self.image], first=schedulers.destinations())
        self.uuids = samples.uuids(1)

    def ask(self, uuids=None, claim=True, **wishes):
        [[place]] = self.place(
            alternates=2, uuids=uuids or self.uuids, claim=claim, **{
                'hints': HINT, 'force_hosts': ['a1'],
                'instance_uuid': self.uuids[0], **wishes})
        return place

    def assertRefused(self, *args, **wishes):
        before = len(self.world.claims.batches)
        error = self.assertRaises(
            exception.InvalidField, self.ask, *args, **wishes)

        self.assertEqual('spec_obj.scheduler_hints._nova_check_type',
                         error.field)
        self.assertEqual(before, len(self.world.claims.batches))

    def test_rebuild_selects_the_current_host_without_a_claim(self):
        [[first]] = self.place(uuids=self.uuids)
        batches = len(self.world.claims.batches)
        asked = self.other.asked

        place = self.ask()

        self.assertEqual(
            (first.service_host, first.nodename, first.compute_node_uuid,
             first.cell_uuid, first.availability_zone),
            (place.service_host, place.nodename, place.compute_node_uuid,
             place.cell_uuid, place.availability_zone))
        self.assertEqual(('null', None), (
            place.allocation_request, place.allocation_request_version))
        self.assertIsNone(json.loads(place.allocation_request))
        self.assertEqual({}, place.requested())
        self.assertEqual({}, place.to_dict()['limits'])
        self.assertEqual((batches, asked), (
            len(self.world.claims.batches), self.other.asked))
        self.assertEqual(4, self.used('a1'))
        self.assertTableIsRight()

    def test_host_needs_no_more_room(self):
        self.place(uuids=self.uuids)

        self.assertEqual('a1', self.ask(vcpus=100).service_host)

    def test_rebuild_accepts_the_host_reported_for_the_server(self):
        self.loader.tell_instances('a2', self.uuids, False)

        place = self.ask(force_hosts=['A2'], force_nodes=['a2'])

        self.assertEqual('a2', place.service_host)
        self.assertEqual([], self.world.claims.batches)

    def test_rebuild_accepts_both_hosts_of_a_moving_server(self):
        self.place(uuids=self.uuids)
        self.place(uuids=self.uuids, ignore_hosts=['a1'])

        for host in ('a1', 'a2'):
            self.assertEqual(
                host, self.ask(force_hosts=[host]).service_host)

    def test_rebuild_on_another_host_is_refused(self):
        self.place(uuids=self.uuids)

        for wishes in (
                {'force_hosts': ['a2']}, {'force_hosts': ['nowhere']},
                {'force_hosts': []}, {'force_hosts': None},
                {'force_hosts': ['a1', 'a2']}, {'force_nodes': ['a2']}):
            self.assertRefused(**wishes)

    def test_rebuild_of_an_unplaced_server_is_refused(self):
        self.assertRefused()
        self.assertRefused(claim=False)

    def test_request_for_other_servers_is_refused(self):
        others = samples.uuids(2)
        self.place(uuids=self.uuids)

        for uuids, wishes in (
                (others[:1], {}), (self.uuids, {'num_instances': 2}),
                ([*self.uuids, *others], {'num_instances': 3})):
            self.assertRefused(uuids, **wishes)

    def test_rebuild_without_named_servers_is_accepted(self):
        self.place(uuids=self.uuids)

        self.assertEqual('a1', self.ask(
            samples.uuids(1), claim=False).service_host)

    def test_rebuild_on_a_host_unsuitable_for_the_image_is_refused(self):
        self.place(uuids=self.uuids)
        self.bad = 'a1'

        error = self.assertRaises(exception.NoValidHost, self.ask)

        self.assertIn('the only host is for other images', str(error))
        self.assertEqual(4, self.used('a1'))

    def test_rebuild_with_an_unread_demand_is_refused(self):
        self.place(uuids=self.uuids)

        error = self.assertRaises(
            exception.NoValidHost, self.ask, image={'hw_numa_nodes': 2})

        self.assertIn('hw_numa_nodes', str(error))

    def test_rebuild_on_an_unknown_host_is_refused(self):
        self.loader.tell_instances('gone', self.uuids, False)
        self.world.claims.set_inventory(
            'gone', {'VCPU': claims_base.Inventory(4)})
        self.world.claims.claim([
            claims_base.Claim(self.uuids[0], 'gone', {'VCPU': 4})])

        self.assertRefused(force_hosts=['gone'])


class TestNodes(base.TestCase):
    """Of a host with several nodes the one is meant that holds the claim."""

    def node(self, known, *force_nodes):
        hosts = builders.hosts(host=['a', 'a', 'b'],
                               nodename=['n1', 'n2', 'n3'])
        [[place]] = existing_claims.check(
            hosts, pipeline.Pipeline([], []), builders.request(
                force_hosts=['A'], force_nodes=[*force_nodes]),
            [hosts['uuid'][row] for row in known]).places
        return place.nodename

    def test_node_with_the_claim_is_selected(self):
        for row, name in enumerate(('n1', 'n2')):
            self.assertEqual(name, self.node([row]))
            self.assertEqual(name, self.node([2, row]))

    def test_forced_node_is_chosen(self):
        for row in range(2):
            for name in ('n1', 'n2'):
                self.assertEqual(name, self.node([row], name))

    def test_node_of_another_host_is_refused(self):
        for known, names in (([2], ()), ([0, 2], ('n3',)), ([], ())):
            self.assertRaises(
                exception.InvalidField, self.node, known, *names)
