# SPDX-License-Identifier: Apache-2.0
"""What may lie about on a host."""

from cellsched.db.cell import instances
from cellsched.db.cell import on_host
from cellsched.testing import databases
from tests.unit import base
from tests.unit.db import samples


class TestOnHost(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cell = self.useFixture(databases.CellDatabase()).database

    def make(self, **values):
        [uuid] = samples.uuids(1)
        with self.cell.writer() as connection:
            instances.create(
                connection, [samples.instance(uuid)], samples.NOW)
            samples.put(connection, uuid, {'host': 'host1', **values})
        return uuid

    def ask(self, query, *more):
        with self.cell.reader() as connection:
            return query(connection, 'host1', *more)

    def make_all(self):
        return {name: self.make(**values) for name, values in {
            'spawning': {'task_state': 'spawning'},
            'elsewhere': {'task_state': 'spawning', 'host': 'host2'},
            'unshelving': {'task_state': 'spawning',
                           'vm_state': 'shelved_offloaded'},
            'active': {'task_state': None, 'vm_state': 'active'},
            'deleting': {'task_state': 'deleting', 'vm_state': 'active'},
            'gone': {'vm_state': 'deleted', 'task_state': None, 'deleted': 1},
            'removed': {'task_state': 'deleting', 'deleted': 2},
            'waiting': {'task_state': None, 'host': None},
        }.items()}

    def test_builds_and_deletions_of_the_host_are_found(self):
        made = self.make_all()

        self.assertEqual(
            [made['spawning']], self.ask(on_host.list_building))
        self.assertEqual(
            [made['deleting']], self.ask(on_host.list_deleting))

    def test_strays_are_those_that_the_cell_knows_to_be_gone(self):
        made = self.make_all()

        self.assertEqual(
            {made[name] for name in ('elsewhere', 'gone', 'waiting')},
            set(self.ask(on_host.list_strays,
                         [*made.values(), *samples.uuids(3)])))

    def test_server_comes_with_its_flavor_deleted_or_not(self):
        for deleted in 0, 1:
            uuid = self.make(deleted=deleted)
            with self.cell.reader() as connection:
                found = on_host.get(connection, uuid)
            self.assertEqual((uuid, 'host1', 'small', 'project'), (
                found.uuid, found.host, found.flavor.name, found.project_id))

    def test_unknown_server_is_none(self):
        with self.cell.reader() as connection:
            self.assertIsNone(on_host.get(connection, samples.uuids(1)[0]))
