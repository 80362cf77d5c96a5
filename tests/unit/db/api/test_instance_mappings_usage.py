# SPDX-License-Identifier: Apache-2.0
"""What servers hold of their project's quota."""

from cellsched.db.api import cell_mappings
from cellsched.db.api import instance_mappings
from tests.unit.db.api import base
from tests.unit.db import samples
from tests.unit.quota import projects


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

    def test_project_without_servers_holds_nothing(self):
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

    def test_server_in_cell0_holds_nothing(self):
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

    def test_server_of_unknown_size_is_told_of(self):
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
