# SPDX-License-Identifier: Apache-2.0
"""Networks of builds that a conductor moves on, or gives up."""

from cellsched.conductor.tasks import build_instances
from cellsched.db.cell import instances
from cellsched.network import deallocation
from cellsched.network import fake
from cellsched import objects
from tests.unit.conductor import base
from tests.unit.db import samples
from tests.unit.network import networks


class TestNetworks(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cell = self.targets.database(self.cells['cell1'])
        self.network = networks.make(fake.FakeNetworks)
        self.task = build_instances.BuildInstances(
            self.cell, self.compute.get('cell1'), self.claims, self.clock,
            'conductor', 3, free=deallocation.NetworkDeallocation(
                self.network, self.cell, self.clock).free)
        self.instance = samples.instance(
            samples.uuids(1)[0], build_attempts=1, task_state=None)
        with self.cell.writer() as connection:
            instances.create(connection, [self.instance], self.clock.now())
            instances.update(connection, self.instance.uuid,
                             {'network_allocated': True}, self.clock.now())
        self.network.allocate_for_instance(
            base.USER, self.instance, None, 'a9')

    def try_next(self, *hosts):
        self.task.run(
            base.USER, [self.instance],
            {'retry': {'num_attempts': 1, 'hosts': [['a9', 'a9']]}},
            objects.RequestSpec(), [[self.selection(host) for host in hosts]])

    def allocated(self):
        return (self.row(self.instance.uuid).network_allocated,
                self.instance.uuid in self.network.allocated())

    def test_build_that_goes_on_keeps_them(self):
        self.try_next('a1')

        self.assertEqual((True, True), self.allocated())

    def test_build_that_is_given_up_has_none(self):
        self.try_next()

        self.assertEqual('error', self.row(self.instance.uuid).vm_state)
        self.assertEqual((False, False), self.allocated())

    def test_row_says_what_could_not_be_taken_back(self):
        self.network.fail('deallocate', 1)

        self.try_next()

        self.assertEqual('error', self.row(self.instance.uuid).vm_state)
        self.assertEqual((True, True), self.allocated())

    def test_message_that_comes_late_takes_nothing(self):
        with self.cell.writer() as connection:
            samples.put(connection, self.instance.uuid, {
                'vm_state': 'active', 'host': 'a1'})

        self.try_next()

        self.assertEqual((True, True), self.allocated())
