# SPDX-License-Identifier: Apache-2.0
"""Queries for servers and their cells."""

import sqlalchemy as sa

from cellsched.db.api import build_requests
from cellsched.db.api import cell_mappings
from cellsched.db.api import instance_groups
from cellsched.db.api import instance_mappings
from cellsched.db.api import models
from cellsched.db import statements
from cellsched import objects
from tests.unit.db.api import base
from tests.unit.db import samples
from tests.unit.quota import projects
from tests.unit import racing


class TestInstanceMappings(base.TestCase):

    def setUp(self):
        super().setUp()
        self.east, self.west = (
            samples.map_cell(self.database, samples.cell(name))
            for name in ('east', 'west'))

    def create(self, count):
        uuids = samples.uuids(count)
        self.write(instance_mappings.create, uuids, 'project', 'user',
                   samples.NOW)
        return uuids

    def decide(self, uuids, cell):
        return self.write(instance_mappings.decide, uuids, cell.id,
                          samples.LATER)

    def delete(self, *uuids):
        self.write(instance_mappings.mark_deleted, uuids, samples.LATER)

    def cells(self, uuids):
        found = self.read(instance_mappings.get_many, uuids)
        return [found[uuid].cell_mapping and found[uuid].cell_mapping.name
                for uuid in uuids]

    def test_new_mapping_has_no_cell(self):
        uuid, = self.create(1)

        mapping = self.read(instance_mappings.get_many, [uuid])[uuid]

        self.assertEqual(uuid, mapping.instance_uuid)
        self.assertEqual('project', mapping.project_id)
        self.assertEqual('user', mapping.user_id)
        self.assertIsNone(mapping.cell_mapping)
        self.assertFalse(mapping.queued_for_delete)

    def test_unknown_instances_are_not_returned(self):
        self.assertEqual(
            {}, self.read(instance_mappings.get_many, samples.uuids(2)))

    def test_decided_instances_have_their_cell(self):
        uuids = self.create(3)

        self.assertEqual(set(uuids[:2]), self.decide(uuids[:2], self.west))

        self.assertEqual(['west', 'west', None], self.cells(uuids))
        mapping = self.read(instance_mappings.get_many, uuids)[uuids[0]]
        self.assertEqual(self.west.obj_to_primitive(),
                         mapping.cell_mapping.obj_to_primitive())

    def test_deciding_again_succeeds(self):
        uuids = self.create(3)
        self.decide(uuids[:1], self.east)

        self.assertEqual(set(uuids), self.decide(uuids, self.east))
        self.assertEqual(set(uuids), self.decide(uuids, self.east))

    def test_decided_instance_keeps_its_cell(self):
        uuids = self.create(2)
        self.decide(uuids[:1], self.east)

        self.assertEqual({uuids[1]}, self.decide(uuids, self.west))
        self.assertEqual(set(), self.decide(uuids[:1], self.west))

        self.assertEqual(['east', 'west'], self.cells(uuids))

    def test_deleted_instance_gets_no_cell(self):
        uuids = self.create(2)
        self.delete(uuids[0])

        self.assertEqual({uuids[1]}, self.decide(uuids, self.east))

        self.assertEqual([None, 'east'], self.cells(uuids))

    def test_instance_deleted_after_its_decision_is_not_decided_again(self):
        uuids = self.create(2)
        self.decide(uuids, self.east)
        self.delete(uuids[0])

        self.assertEqual({uuids[1]}, self.decide(uuids, self.east))

        mapping = self.read(instance_mappings.get_many, uuids)[uuids[0]]
        self.assertTrue(mapping.queued_for_delete)

    def test_unknown_instance_is_not_decided(self):
        known, = self.create(1)
        unknown, = samples.uuids(1)

        self.assertEqual({known}, self.decide([known, unknown], self.east))

    def test_mapping_of_a_release_without_the_mark_is_not_deleted(self):
        uuid, = self.create(1)
        self.execute(
            sa.update(models.instance_mappings).values(queued_for_delete=None))

        self.assertEqual({uuid}, self.decide([uuid], self.east))
        mapping = self.read(instance_mappings.get_many, [uuid])[uuid]
        self.assertFalse(mapping.queued_for_delete)

    def test_decision_can_be_withdrawn_by_its_cell_only(self):
        uuids = self.create(2)
        self.decide(uuids[:1], self.east)
        self.decide(uuids[1:], self.west)

        self.write(instance_mappings.withdraw, uuids, self.east.id,
                   samples.LATER)

        self.assertEqual([None, 'west'], self.cells(uuids))
        self.assertEqual(
            {uuids[0]}, self.decide(uuids[:1], self.west))

    def test_decision_is_reopened_once_and_not_for_the_deleted(self):
        one, deleted = uuids = self.create(2)
        self.decide(uuids, self.east)
        self.delete(deleted)

        def reopen(uuid, cell):
            return self.write(
                instance_mappings.reopen, uuid, cell.id, samples.NOW)

        self.assertFalse(reopen(one, self.west))
        self.assertTrue(reopen(one, self.east))
        self.assertFalse(reopen(one, self.east))
        self.assertFalse(reopen(deleted, self.east))
        self.assertEqual([None, 'east'], self.cells(uuids))

    def test_confirmed_mappings_have_the_cell_and_are_not_deleted(self):
        uuids = self.create(4)
        self.decide(uuids[:2], self.east)
        self.decide(uuids[2:3], self.west)
        self.delete(uuids[0])

        self.assertEqual(
            {uuids[1]},
            self.write(instance_mappings.confirm, uuids, self.east.id))
        self.assertEqual(
            set(), self.write(instance_mappings.confirm, [], self.east.id))

    def test_more_instances_than_a_statement_takes_are_decided(self):
        uuids = self.create(statements.CHUNK + 2)
        self.decide(uuids[-1:], self.west)

        self.assertEqual(set(uuids[:-1]), self.decide(uuids, self.east))

    def test_cells_in_a_race_decide_each_instance_once(self):
        uuids = self.create(20)

        decided = racing.race(
            *[lambda: self.decide(uuids, self.east)] * 3,
            *[lambda: self.decide(uuids[::-1], self.west)] * 3)

        self.assertEqual([decided[0]] * 3 + [decided[3]] * 3, decided)
        self.assertEqual(set(uuids), decided[0] ^ decided[3])
        self.assertEqual(
            ['east' if uuid in decided[0] else 'west' for uuid in uuids],
            self.cells(uuids))

    def test_deletion_and_decision_in_a_race_agree(self):
        uuids = self.create(20)

        decided, *_ = racing.race(
            lambda: set().union(*(
                self.decide([uuid], self.east) for uuid in uuids)),
            *[lambda: [self.delete(uuid) for uuid in uuids[::-1]]] * 2)

        self.assertEqual(
            ['east' if uuid in decided else None for uuid in uuids],
            self.cells(uuids))


class TestUsage(base.TestCase):

    def setUp(self):
        super().setUp()
        self.project = projects.Project(self.database)
        self.driver = projects.driver()

    def built(self, *args, **kwargs):
        builds = self.project.accept(*args, **kwargs)
        self.project.admit(self.driver, builds)
        return builds

    def usage(self, **which):
        return tuple(self.project.usage(**which))

    def test_project_without_servers_has_no_usage(self):
        self.assertEqual((0, 0, 0), self.usage())
        self.assertEqual((0, 0, 0), self.usage(user_id='user', accepted=True))

    def test_servers_of_the_project_are_summed_up(self):
        self.built(3, vcpus=2, memory_mb=1024)
        self.built(1, vcpus=1, memory_mb=512, user_id='other')
        self.built(5, project_id='other')

        self.assertEqual((4, 7, 3584), self.usage())
        self.assertEqual((3, 6, 3072), self.usage(user_id='user'))

    def test_server_counts_from_the_end_of_its_request_to_its_deletion(self):
        undecided = self.project.accept(decided=False)
        self.assertEqual((0, 0, 0), self.usage())
        self.assertEqual((1, 1, 512), self.usage(accepted=True))

        decided = self.project.accept()
        self.assertEqual((0, 0, 0), self.usage())
        self.assertEqual((2, 2, 1024), self.usage(accepted=True))

        self.project.admit(self.driver, decided)
        self.assertEqual((1, 1, 512), self.usage())
        self.assertEqual((2, 2, 1024), self.usage(accepted=True))

        self.project.delete(decided)
        self.assertEqual((0, 0, 0), self.usage())
        self.project.delete(undecided)
        self.assertEqual((0, 0, 0), self.usage(accepted=True))

    def test_server_in_cell0_has_no_usage(self):
        self.project.bury(self.project.accept())

        self.assertEqual((0, 0, 0), self.usage())
        self.assertEqual((0, 0, 0), self.usage(accepted=True))
        self.assertEqual({}, self.by_cell())

    def test_each_cell_has_its_own(self):
        self.built(3, vcpus=2)
        self.project.accept(2)
        self.project.delete(self.built(2))

        self.assertEqual(
            {'east': (2, 4, 1024, 0), 'west': (1, 2, 512, 0)}, self.by_cell())

    def test_server_of_unknown_size_is_returned(self):
        [uuid] = samples.uuids(1)
        with self.database.writer() as connection:
            instance_mappings.create(
                connection, [uuid], projects.PROJECT, None, samples.NOW)
            instance_mappings.decide(
                connection, [uuid], self.project.cells[0], samples.NOW)
        self.built()

        self.assertEqual((2, 1, 512), self.usage())
        self.assertEqual({'east': (2, 1, 512, 1)}, self.by_cell())

    def by_cell(self):
        with self.database.reader() as connection:
            found = instance_mappings.usage_by_cell(
                connection, projects.PROJECT)
            names = {mapping.uuid: mapping.name
                     for mapping in cell_mappings.list_all(connection)}
        return {names[uuid]: tuple(usage) for uuid, usage in found.items()}


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
            instance_mappings.forget, [uuid], self.here))

        self.assertEqual([{other}] * 3, self.known())
        # To do it again is no matter.
        self.assertEqual({uuid}, self.write(
            instance_mappings.forget, [uuid], self.here))

    def test_server_without_a_cell_is_forgotten(self):
        uuid = self.accept()

        self.write(instance_mappings.forget, [uuid], self.here)

        self.assertEqual([set()] * 3, self.known())

    def test_server_with_a_build_request_is_kept(self):
        uuid = self.accept(self.here, requested=True)

        self.assertEqual(set(), self.write(
            instance_mappings.forget, [uuid], self.here))

        self.assertEqual([{uuid}] * 3, self.known())

    def test_server_of_another_cell_is_kept(self):
        for mapped in (self.accept(self.there),
                       self.accept(self.there, deleted=False),
                       self.accept(deleted=False)):
            before = self.known()

            self.assertEqual({mapped}, self.write(
                instance_mappings.forget, [mapped], self.here))

            self.assertEqual(before, self.known())
