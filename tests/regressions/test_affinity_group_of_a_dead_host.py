# SPDX-License-Identifier: Apache-2.0
"""Members of a server group leave a host that is down, and keep its policy."""

import datetime

import sqlalchemy as sa

from cellsched.db.cell import models
from cellsched.db.cell import services
from tests.functional import base
from tests.functional import moving


class TestGroups(moving.TestCase):

    def setUp(self):
        super().setUp()
        self.start(
            {'cell1': self.hosts('a1', 'a2', 'a3')},
            scheduler=base.READ_EACH_TIME,
            filter_scheduler={'soft_affinity_weight_multiplier': 100.0})

    def members(self, policy, count=3, rules=None):
        """Create a group with members; return it and their uuids."""
        group = self.world.api.server_groups.create(
            base.USER, 'group', policy, rules)
        return group, [self.member(group) for _ in range(count)]

    def member(self, group):
        [found] = self.built(hints={'group': [group.uuid]})
        self.assertEqual('ACTIVE', found.status, found.reason)
        return found.uuid

    def evacuate(self, host):
        return [(each.outcome, each.reason)
                for each in self.world.api.host_drain.evacuate(
                    base.ADMIN, host, timeout_s=60)]

    def host(self, uuid):
        return self.row(uuid).host

    def test_affinity_group_is_evacuated_together(self):
        group, uuids = self.members('affinity')
        host = self.host(uuids[0])
        self.down(host)

        self.assertEqual([('moved', '')] * 3, self.evacuate(host))

        [new] = {self.host(uuid) for uuid in uuids}
        self.assertNotEqual(host, new)
        self.assertEqual(new, self.host(self.member(group)))
        self.assertClaimsMatch()

    def test_group_is_evacuated_from_a_host_without_a_service(self):
        _, uuids = self.members('affinity', 2)
        host = self.host(uuids[0])
        database = self.lose_agent(host).parts.cell_database
        self.age(database, host)
        with database.writer() as connection:
            connection.execute(
                sa.update(models.services).where(
                    models.services.c.host == host)
                .values(deleted=models.services.c.id))

        self.assertEqual([('moved', '')] * 2, self.evacuate(host))

        self.assertEqual(1, len({self.host(uuid) for uuid in uuids}))

    def test_first_member_selects_the_host_of_the_group(self):
        group, uuids = self.members('affinity')
        host = self.host(uuids[0])
        self.down(host)

        self.moves.evacuate(base.ADMIN, uuids[0])
        new = self.rested(uuids[0]).host

        # A new member follows the one that moved, too.
        self.assertEqual(new, self.host(self.member(group)))
        for uuid in uuids[1:]:
            self.moves.evacuate(base.ADMIN, uuid)
            self.assertEqual(new, self.rested(uuid).host)

    def test_affinity_applies_to_moved_members(self):
        group, uuids = self.members('affinity', 2)
        host = self.host(uuids[0])
        self.down(host)
        self.moves.evacuate(base.ADMIN, uuids[0])
        new = self.rested(uuids[0]).host
        [third] = {'a1', 'a2', 'a3'} - {host, new}

        self.moves.evacuate(base.ADMIN, uuids[1], third)

        self.assertEqual(host, self.rested(uuids[1]).host)
        self.assertEqual('error', self.statuses(uuids[1])[-1])

    def test_members_on_a_running_host_bind_the_group(self):
        _, uuids = self.members('affinity', 2)

        self.moves.migrate(base.ADMIN, uuids[0])

        self.assertEqual(self.host(uuids[1]), self.rested(uuids[0]).host)
        self.assertEqual(['error'], self.statuses(uuids[0]))

    def test_anti_affinity_group_is_evacuated_apart(self):
        _, uuids = self.members('anti-affinity', 2)
        host = self.host(uuids[0])
        self.down(host)

        self.moves.evacuate(base.ADMIN, uuids[0])

        hosts = {self.rested(uuids[0]).host, self.host(uuids[1])}
        self.assertEqual({'a1', 'a2', 'a3'} - {host}, hosts)

    def test_anti_affinity_applies_to_moved_members(self):
        _, uuids = self.members('anti-affinity', 3)
        host = self.host(uuids[0])
        self.down(host)

        self.moves.evacuate(base.ADMIN, uuids[0])

        self.assertEqual(host, self.rested(uuids[0]).host)
        self.assertEqual(['error'], self.statuses(uuids[0]))

    def test_soft_affinity_group_is_evacuated_together(self):
        _, uuids = self.members('soft-affinity')
        host = self.host(uuids[0])
        self.down(host)

        for uuid in uuids:
            self.moves.evacuate(base.ADMIN, uuid)
            self.assertNotEqual(host, self.rested(uuid).host)

        self.assertEqual(1, len({self.host(uuid) for uuid in uuids}))

    def test_silent_host_binds_new_members(self):
        group, uuids = self.members('affinity', 2)
        host = self.host(uuids[0])
        self.age(self.lose_agent(host).parts.cell_database, host)

        [new] = self.built(hints={'group': [group.uuid]})

        self.assertEqual('ERROR', new.status)
        self.assertIn('server of the group', new.reason)

    def age(self, database, host):
        """Let the last report of a host be an hour ago."""
        with database.writer() as connection:
            # It marks the service as changed.
            services.set_disabled(
                connection, host, False, None, database.now())
            connection.execute(
                sa.update(models.services).where(
                    models.services.c.host == host)
                .values(last_seen_up=database.now() - datetime.timedelta(
                    hours=1)))
