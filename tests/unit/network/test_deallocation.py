# SPDX-License-Identifier: Apache-2.0
"""Deallocation of the networks of ended servers."""

from cellsched import context
from cellsched.db.cell import instances
from cellsched.network import deallocation
from cellsched.network import fake
from cellsched.testing import clock
from cellsched.testing import databases
from tests.unit import base
from tests.unit.db import samples
from tests.unit.network import networks

USER = context.member('user', 'project')


class TestFreeing(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cell = self.useFixture(databases.CellDatabase()).database
        self.network = networks.make(fake.FakeNetworks)
        self.freeing = deallocation.NetworkDeallocation(
            self.network, self.cell, clock.FakeClock())
        self.instance = samples.instance(samples.uuids(1)[0])
        with self.cell.writer() as connection:
            instances.create(connection, [self.instance], samples.NOW)
        self.network.allocate_for_instance(USER, self.instance, None, 'host1')
        self.put(network_allocated=True)

    def put(self, **values):
        with self.cell.writer() as connection:
            samples.put(connection, self.instance.uuid, values)

    def allocated(self):
        with self.cell.reader() as connection:
            return (instances.has_networks(connection, self.instance.uuid),
                    self.instance.uuid in self.network.allocated())

    def test_ended_server_is_freed_and_its_row_records_no_networks(self):
        self.put(vm_state='error', task_state=None)

        for _ in range(2):
            self.assertTrue(self.freeing.free(USER, self.instance))
            self.assertEqual((False, False), self.allocated())

    def test_row_records_networks_after_a_failed_deallocation(self):
        self.put(vm_state='error', task_state=None)
        self.network.fail('deallocate', 1)

        self.assertFalse(self.freeing.free(USER, self.instance))
        self.assertEqual((True, True), self.allocated())
        self.assertIn('Could not deallocate networks', self.logs.output)

        self.assertTrue(self.freeing.free(USER, self.instance))
        self.assertEqual((False, False), self.allocated())

    def test_unexpected_error_of_a_plugin_is_a_failure(self):
        self.network.deallocate_for_instance = None

        self.assertFalse(self.freeing.deallocate(USER, self.instance))
