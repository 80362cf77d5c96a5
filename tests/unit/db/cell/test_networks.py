# SPDX-License-Identifier: Apache-2.0
"""Rows of servers that may have networks."""

from cellsched.db.cell import instances
from cellsched.db.cell import networks
from tests.unit.db.cell import base
from tests.unit.db import samples


class TestNetworks(base.TestCase):

    def make(self, **values):
        [uuid] = samples.uuids(1)
        with self.database.writer() as connection:
            instances.create(
                connection, [samples.instance(uuid)], samples.NOW)
            samples.put(connection, uuid,
                        {'network_allocated': True, **values})
        return uuid

    def to_free(self, limit=100, after=''):
        return [each.uuid for each in self.read(
            networks.list_to_free, limit, after)]

    def forget(self, uuid):
        self.write(networks.forget, uuid, samples.LATER)

    def test_server_has_no_networks_until_its_row_records_networks(self):
        with self.database.writer() as connection:
            [uuid] = samples.uuids(1)
            self.assertFalse(networks.is_allocated(connection, uuid))
            instances.create(
                connection, [samples.instance(uuid)], samples.NOW)
            self.assertFalse(networks.is_allocated(connection, uuid))
            instances.update(connection, uuid, {'network_allocated': True},
                             samples.NOW)
            self.assertTrue(networks.is_allocated(connection, uuid))

    def test_networks_of_deleted_and_failed_servers_are_listed(self):
        deleted = self.make(deleted=1, vm_state='deleted', host='host1')
        failed = self.make(vm_state='error', task_state=None)
        for values in ({}, {'task_state': 'spawning', 'host': 'host1'},
                       {'vm_state': 'active', 'host': 'host1'},
                       {'vm_state': 'error', 'host': 'host1'},
                       {'task_state': 'deleting', 'host': 'host1'},
                       {'vm_state': 'error', 'network_allocated': False},
                       {'deleted': 1, 'network_allocated': False}):
            self.make(**values)

        self.assertEqual(sorted([deleted, failed]), self.to_free())

    def test_servers_are_listed_in_pages(self):
        wanted = sorted(self.make(vm_state='error') for _ in range(5))

        self.assertEqual(wanted[:2], self.to_free(2))
        self.assertEqual(wanted[2:4], self.to_free(2, wanted[1]))
        self.assertEqual([], self.to_free(2, wanted[4]))

    def test_forgotten_networks_are_not_freed_again(self):
        for values in {'deleted': 1}, {'vm_state': 'error'}:
            uuid = self.make(**values)
            self.forget(uuid)
            self.assertEqual([], self.to_free())

    def test_active_server_keeps_its_networks(self):
        uuid = self.make(vm_state='active', host='host1')

        self.forget(uuid)

        self.assertTrue(self.read(networks.is_allocated, uuid))

    def test_listed_servers_have_their_project_and_user(self):
        self.make(vm_state='error')

        [found] = self.read(networks.list_to_free, 1)
        self.assertEqual(('project', 'user'),
                         (found.project_id, found.user_id))
