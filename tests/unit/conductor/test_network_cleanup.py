# SPDX-License-Identifier: Apache-2.0
"""Networks of servers that ended are taken back."""

from cellsched.conductor import cell_recovery
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


class TestNetworkCleanup(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cell = self.useFixture(databases.CellDatabase()).database
        self.network = networks.make(fake.FakeNetworks)
        self.leftovers = cell_recovery.NetworkCleanup(
            self.cell, deallocation.NetworkDeallocation(
                self.network, self.cell, clock.FakeClock()), batch=2)

    def make(self, **values):
        instance = samples.instance(samples.uuids(1)[0])
        with self.cell.writer() as connection:
            instances.create(connection, [instance], samples.NOW)
            samples.put(connection, instance.uuid,
                        {'network_allocated': True, **values})
        self.network.allocate_for_instance(USER, instance, None, 'host1')
        return instance.uuid

    def test_those_that_ended_are_freed_and_others_keep_theirs(self):
        live = self.make(vm_state='active', host='host1')
        waiting = self.make()
        for _ in range(3):
            self.make(deleted=1, vm_state='deleted')
            self.make(vm_state='error', task_state=None)

        self.leftovers.run()

        self.assertEqual({live, waiting}, set(self.network.allocated()))

    def test_one_that_fails_holds_no_other_up_and_is_tried_again(self):
        uuids = sorted(self.make(vm_state='error') for _ in range(5))
        self.network.fail('deallocate', 2)

        self.leftovers.run()
        self.assertEqual(set(uuids[:2]), set(self.network.allocated()))

        self.leftovers.run()
        self.assertEqual({}, self.network.allocated())

    def test_what_was_freed_is_not_asked_for_again(self):
        self.make(vm_state='error')
        self.leftovers.run()
        self.network.fail('deallocate', 1)

        self.leftovers.run()

        self.assertNotIn('Could not deallocate networks', self.logs.output)

    def test_plugin_is_asked_in_the_name_of_the_owner(self):
        self.make(vm_state='error')
        asked = []
        self.network.deallocate_for_instance = (
            lambda context, instance: asked.append(context))

        self.leftovers.run()

        self.assertEqual([('user', 'project')], [
            (each.user_id, each.project_id) for each in asked])
