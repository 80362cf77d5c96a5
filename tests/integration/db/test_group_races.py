# SPDX-License-Identifier: Apache-2.0
"""Servers join and leave a group, and it is deleted, all at the same time."""

from cellsched.db.api import instance_groups
from cellsched import exception
from cellsched import objects
from tests.integration.db import base
from tests import profile
from tests.unit.db import samples
from tests.unit import racing

ROUNDS = profile.RACING_ROUNDS

#: What takes part in a race, and the members that a group may have.
JOINERS, MOST = 8, 5


class TestGroupRaces(base.APITestCase):

    def setUp(self):
        super().setUp()
        self.database = self.make_database()

    def group(self):
        group = objects.InstanceGroup(
            uuid=samples.uuids(1)[0], name='group', project_id='project',
            user_id='user', policy='affinity')
        self.write(instance_groups.create, group, samples.NOW)
        return group.uuid

    def write(self, query, *args):
        with self.database.writer() as connection:
            return query(connection, *args)

    def join(self, uuid):
        """Join a group that has room; return whether it had."""
        with self.database.writer() as connection:
            group = instance_groups.get(connection, uuid, lock=True)
            if len(group.members) >= MOST:
                return False
            instance_groups.add_members(
                connection, group.id, samples.uuids(1), samples.NOW)
            return True

    def test_group_is_joined_up_to_its_limit_in_a_race(self):
        for _ in range(ROUNDS):
            uuid = self.group()

            outcomes = racing.race(*[lambda: self.join(uuid)] * JOINERS)

            self.assertEqual(
                [False] * (JOINERS - MOST) + [True] * MOST, sorted(outcomes))

    def test_group_is_changed_and_deleted_at_once_without_an_error(self):
        for _ in range(ROUNDS):
            uuid, old = self.group(), samples.uuids(3)
            found = self.write(instance_groups.get, uuid)
            self.write(instance_groups.add_members, found.id, old,
                       samples.NOW)

            *joined, left, deleted = racing.race(
                lambda: self.join(uuid), lambda: self.join(uuid),
                lambda: self.write(instance_groups.remove_members, old),
                lambda: self.write(instance_groups.delete, uuid))

            self.assertEqual([None, None], [left, deleted])
            for outcome in joined:
                self.assertTrue(
                    outcome is True or isinstance(
                        outcome, exception.InstanceGroupNotFound), outcome)
            self.assertIsNone(self.write(instance_groups.find, uuid))


@profile.full_only('MariaDB; the rules are proven on PostgreSQL')
class TestGroupRacesOnMariaDB(base.OnMariaDB, TestGroupRaces):
    pass
