# SPDX-License-Identifier: Apache-2.0
"""Archived servers are forgotten."""

import sqlalchemy as sa

from cellsched.db.api import archive
from cellsched.db.api import build_requests
from cellsched.db.api import instance_groups
from cellsched.db.api import instance_mappings
from cellsched.db.api import models
from cellsched import objects
from tests.unit.db.api import base
from tests.unit.db import samples


class TestForget(base.TestCase):

    def setUp(self):
        super().setUp()
        self.here, self.there = (
            samples.map_cell(self.database, samples.cell(name)).id
            for name in ('here', 'there'))
        group = objects.InstanceGroup(
            uuid=samples.uuids(1)[0], name='g', project_id='project',
            user_id='user', policy='affinity')
        self.write(instance_groups.create, group, samples.NOW)
        self.group = self.read(instance_groups.get, group.uuid).id

    def accept(self, cell=None, deleted=True, requested=False):
        uuid, = samples.uuids(1)
        samples.accept(self.database, [uuid])
        self.write(instance_groups.add_members, self.group, [uuid],
                   samples.NOW)
        if cell is not None:
            self.write(instance_mappings.decide, [uuid], cell, samples.NOW)
        if deleted:
            self.write(instance_mappings.mark_deleted, [uuid], samples.NOW)
        if not requested:
            self.write(build_requests.delete, [uuid])
        return uuid

    def known(self):
        return [self.read(lambda connection: set(connection.execute(
            sa.select(table.c.instance_uuid)).scalars()))
            for table in (models.instance_mappings, models.request_specs,
                          models.instance_group_member)]

    def test_deleted_server_is_forgotten_and_another_is_kept(self):
        uuid, other = self.accept(self.here), self.accept(self.here)

        self.assertEqual({uuid}, self.write(
            archive.forget, [uuid], self.here))

        self.assertEqual([{other}] * 3, self.known())
        # To do it again is no matter.
        self.assertEqual({uuid}, self.write(
            archive.forget, [uuid], self.here))

    def test_server_without_a_cell_is_forgotten(self):
        uuid = self.accept()

        self.write(archive.forget, [uuid], self.here)

        self.assertEqual([set()] * 3, self.known())

    def test_server_with_a_build_request_is_kept(self):
        uuid = self.accept(self.here, requested=True)

        self.assertEqual(set(), self.write(
            archive.forget, [uuid], self.here))

        self.assertEqual([{uuid}] * 3, self.known())

    def test_server_of_another_cell_is_kept(self):
        for mapped in (self.accept(self.there),
                       self.accept(self.there, deleted=False),
                       self.accept(deleted=False)):
            before = self.known()

            self.assertEqual({mapped}, self.write(
                archive.forget, [mapped], self.here))

            self.assertEqual(before, self.known())
