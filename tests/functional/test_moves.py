# SPDX-License-Identifier: Apache-2.0
"""Servers are rebuilt, evacuated, migrated, shelved and unshelved."""

from cellsched import exception
from cellsched.wiring import compute
from tests.functional import base
from tests.functional import moving
from tests.functional import test_churn
from tests import losing


class TestMoves(moving.TestCase):

    def setUp(self):
        super().setUp()
        self.start({'cell1': self.hosts('a1', 'a2'),
                    'cell2': self.hosts('b1', memory_mb=1024)})
        self.uuid = self.active()
        self.host = self.row(self.uuid).host
        self.assertRests('active', self.host, self.uuid)

    def test_migrated_server_is_on_the_other_host_of_its_cell(self):
        self.moves.migrate(base.ADMIN, self.uuid)

        self.assertRests('active', self.other(self.host), self.uuid)
        self.soon(lambda: self.assertEqual(
            ['done'], self.statuses(self.uuid)))
        self.assertEqual([('migrate', None)], self.actions(self.uuid))
        self.assertEqual([], self.faults(self.uuid))

    def test_move_is_begun_although_a_connection_is_lost(self):
        _, cell = self.moves._reader.get(base.USER, self.uuid)
        database = self.moves._targets.database(cell)
        for is_made in False, True:
            losing.lose(database, is_made)

            self.moves.rebuild(base.USER, self.uuid)

            self.assertRests('active', self.host, self.uuid)
        self.assertEqual(2, len(self.statuses(self.uuid)))

    def test_server_of_a_running_host_is_not_evacuated(self):
        error = self.assertRaises(
            exception.InvalidField, self.moves.evacuate, base.ADMIN, self.uuid)

        self.assertIn('forced down', str(error))
        self.assertRests('active', self.host, self.uuid)
        self.assertEqual([], self.statuses(self.uuid))

    def test_evacuated_host_cleans_up_when_running_again(self):
        down = self.world.agents[self.host]
        self.down(self.host)
        for server in down.servers:
            server.stop()
            server.wait()
        self.moves.evacuate(base.ADMIN, self.uuid)
        self.until(lambda: self.statuses(self.uuid) == ['finished'],
                   'it is evacuated')
        self.assertEqual(['a1', 'a2'], self.running(self.uuid))
        self.assertClaimsMatch()

        compute.moving_agent(down.parts).clean_up()

        self.assertRests('active', self.other(self.host), self.uuid)
        self.assertEqual(['done'], self.statuses(self.uuid))

    def test_rebuilt_server_keeps_its_host_and_claim(self):
        for image in (None, '11111111-0000-4000-8000-000000000000'):
            self.moves.rebuild(base.USER, self.uuid, image)

            self.assertRests('active', self.host, self.uuid)
            self.assertEqual(image, self.row(self.uuid).image_ref)

    def test_shelved_server_is_deleted(self):
        self.moves.shelve(base.USER, self.uuid)
        self.assertRests('shelved_offloaded', None, self.uuid)

        self.delete(self.uuid)

        self.assertIsGone(self.uuid)

    def test_wrong_state_is_named(self):
        self.moves.shelve(base.USER, self.uuid)
        self.assertRests('shelved_offloaded', None, self.uuid)

        for move in (self.moves.migrate, self.moves.rebuild,
                     self.moves.shelve, self.moves.evacuate):
            error = self.assertRaises(
                exception.InstanceInvalidState, move, base.ADMIN, self.uuid)

            self.assertIn('shelved_offloaded', str(error))

    def test_server_has_a_single_move_at_a_time(self):
        held = self.driver(self.other(self.host)).hold_builds()
        self.addCleanup(held.set)
        self.moves.migrate(base.ADMIN, self.uuid)

        error = self.assertRaises(exception.InstanceInvalidState,
                                  self.moves.rebuild, base.USER, self.uuid)

        self.assertEqual('moved already', error.state)
        held.set()
        self.assertRests('active', self.other(self.host), self.uuid)

    def test_host_of_another_cell_is_refused(self):
        for host, kind in (('b1', exception.InvalidField),
                           (self.host, exception.InvalidField),
                           ('c1', exception.HostMappingNotFound)):
            self.assertRaises(
                kind, self.moves.migrate, base.ADMIN, self.uuid, host)

        self.assertRests('active', self.host, self.uuid)


class TestAuditOfMoves(moving.TestCase):

    def test_moving_servers_have_no_findings(self):
        self.start({'cell1': self.hosts('a1', 'a2', 'a3')})
        group = self.world.api.server_groups.create(
            base.USER, 'group', 'anti-affinity', {'max_server_per_host': 2})
        uuids = [server.uuid for hints in ({}, {'group': [group.uuid]})
                 for server in self.built(min_count=2, hints=hints)]
        audits = test_churn.Audits(self.world, settle_s=10.0)
        audits.start()
        for kind in 'migrate', 'shelve', 'unshelve', 'migrate':
            for uuid in uuids:
                getattr(self.moves, kind)(base.ADMIN, uuid)
            for uuid in uuids:
                # The record of a move ends after the task of the server.
                self.until(lambda: {'done'} == set(self.statuses(uuid)) and (
                    all(row.task_state is None
                        for row in self.rows(uuid).values())), 'it has moved')
        for uuid in uuids:
            self.delete(uuid)
        self.gone(*uuids)
        audits.end()

        self.assertEqual(([], None), (audits.found, audits.failure))


class TestOtherCell(moving.TestCase):
    """Only another cell has capacity."""

    def setUp(self):
        super().setUp()
        self.start({'cell1': self.hosts('a1', memory_mb=65536),
                    'cell2': self.hosts('b1', 'b2')})
        self.uuid = self.active()
        self.world.api.flavors.create(base.ADMIN, 'all', 1, 65536 - 256, 10)

    def test_server_is_not_migrated_to_another_cell(self):
        self.moves.migrate(base.ADMIN, self.uuid)

        self.assertRests('active', 'a1', self.uuid)
        self.assertEqual(['error'], self.statuses(self.uuid))
        self.assertIn('No valid host', self.faults(self.uuid)[0])
        self.assertEqual([('migrate', 'Error')], self.actions(self.uuid))

    def test_server_is_not_evacuated_to_another_cell(self):
        self.down('a1')
        self.moves.evacuate(base.ADMIN, self.uuid)

        self.assertRests('active', 'a1', self.uuid)
        [failed] = self.world.api.history.migrations(
            base.ADMIN, self.uuid).migrations
        self.assertIn('No valid host', failed.reason)

    def test_server_is_not_unshelved_in_another_cell(self):
        self.moves.shelve(base.USER, self.uuid)
        self.assertRests('shelved_offloaded', None, self.uuid)
        [found] = self.built(flavor='all')
        self.assertEqual('a1', found.host)

        self.moves.unshelve(base.USER, self.uuid)

        self.assertRests('shelved_offloaded', None, self.uuid)
        self.assertEqual({}, self.holding(self.uuid))
        self.assertEqual(['done', 'error'], self.statuses(self.uuid))


class TestFullHost(moving.TestCase):
    """A rebuild on a host without room for anything else."""

    def setUp(self):
        super().setUp()
        self.start({'cell1': self.hosts('a1', memory_mb=1024)},
                   filter_scheduler={
                       'isolated_images': 'isolated',
                       'isolated_hosts': 'elsewhere',
                       'enabled_filters': 'ComputeFilter,IsolatedHostsFilter'})
        self.uuid = self.active()

    def test_suitable_image_is_accepted(self):
        self.moves.rebuild(base.USER, self.uuid, 'other')

        self.assertRests('active', 'a1', self.uuid)
        self.assertEqual('other', self.row(self.uuid).image_ref)

    def test_unsuitable_image_is_refused(self):
        self.moves.rebuild(base.USER, self.uuid, 'isolated')

        self.assertRests('error', 'a1', self.uuid)
        self.assertIsNone(self.row(self.uuid).image_ref)
        self.assertIn('No valid host', self.get(self.uuid).reason)

        self.moves.rebuild(base.USER, self.uuid)
        self.assertRests('active', 'a1', self.uuid)


class TestOldServices(moving.TestCase):
    """Some agents, or some conductors, know nothing of moves."""

    def test_refused_moves_change_no_server(self):
        for levels in ({'compute': '6.0'}, {'conductor': '1.19'}):
            self.start({'cell1': self.hosts('a1', 'a2')},
                       upgrade_levels=levels)
            uuid = self.active()
            host = self.row(uuid).host

            for move in (self.moves.migrate, self.moves.rebuild):
                error = self.assertRaises(
                    exception.VersionNotSendable, move, base.ADMIN, uuid)

                self.assertIn(f'[upgrade_levels] {[*levels][0]}', str(error))
                self.assertRests('active', host, uuid)


class TestGroups(moving.TestCase):
    """Members of server groups move if the policy allows it."""

    def setUp(self):
        super().setUp()
        self.start({'cell1': self.hosts('a1', 'a2')}, filter_scheduler={
            'enabled_filters': 'ComputeFilter,ServerGroupAffinityFilter,'
                               'ServerGroupAntiAffinityFilter'})

    def members(self, policy, count):
        group = self.world.api.server_groups.create(
            base.USER, 'group', policy)
        found = self.built(
            hints={'group': [group.uuid]}, min_count=count)
        self.assertEqual({'ACTIVE'}, {each.status for each in found})
        return [each.uuid for each in found]

    def test_only_member_may_move_to_any_host(self):
        for policy in ('affinity', 'anti-affinity'):
            [uuid] = self.members(policy, 1)
            host = self.row(uuid).host

            self.moves.migrate(base.ADMIN, uuid)

            self.assertRests('active', self.other(host), uuid)

    def test_policy_holds_for_moves(self):
        for policy in ('affinity', 'anti-affinity'):
            uuid, _ = self.members(policy, 2)
            host = self.row(uuid).host

            self.moves.migrate(base.ADMIN, uuid)

            self.assertRests('active', host, uuid)
            self.assertEqual(['error'], self.statuses(uuid))
