# SPDX-License-Identifier: Apache-2.0
"""The request to a scheduler for a server that moves."""

import json

from cellsched.conductor.tasks import move_request
from cellsched.db.api import instance_groups
from cellsched.db.api import request_specs
from cellsched import objects
from tests.unit.conductor import base
from tests.unit.db import samples


class TestRead(base.TestCase):

    def test_group_has_the_members_that_it_has_now(self):
        [uuid], [group_uuid] = self.accept(), samples.uuids(1)
        with self.database.writer() as connection:
            instance_groups.create(connection, objects.InstanceGroup(
                uuid=group_uuid, name='group', project_id='project',
                user_id='user', policy='anti-affinity', rules={}), samples.NOW)
            group = instance_groups.get(connection, group_uuid)
            spec = objects.RequestSpec.obj_from_primitive(
                request_specs.get(connection, uuid))
            spec.instance_group = group
            samples.spoil(connection, uuid, 'request_specs',
                          spec=json.dumps(spec.obj_to_primitive()))
            instance_groups.add_members(
                connection, group.id, [uuid], samples.NOW)

        asked = move_request.read(self.database, samples.instance(
            uuid, image_ref=None))

        self.assertEqual((group_uuid, [uuid]), (
            asked.instance_group.uuid, asked.instance_group.members))
