# SPDX-License-Identifier: Apache-2.0
"""What operators are told of builds that are tried elsewhere."""

from cellsched.conductor.tasks import build_instances
from cellsched.db.cell import instances
from cellsched import objects
from tests.unit.conductor import base
from tests.unit.db import samples
from tests.unit.notify import told

FAILED = 'compute_task.build_instances.error'


class TestBuildInstances(base.TestCase):

    def setUp(self):
        super().setUp()
        self.told = self.useFixture(told.Told())
        self.cell = self.targets.database(self.cells['cell1'])
        self.task = build_instances.BuildInstances(
            self.cell, self.compute.get('cell1'), self.claims, self.clock,
            'conductor', 3, self.told.notifier)
        [self.uuid] = samples.uuids(1)
        with self.cell.writer() as connection:
            instances.create(connection, [samples.instance(
                self.uuid, build_attempts=1, task_state=None)],
                self.clock.now())

    def try_next(self, *hosts):
        self.task.run(
            base.USER, [samples.instance(self.uuid)],
            {'retry': {'num_attempts': 1, 'hosts': []}},
            objects.RequestSpec(), [[self.selection(host) for host in hosts]])

    def test_build_without_alternates_is_told_once(self):
        for _ in range(2):
            self.try_next()

        [(event, data)] = self.told.all()
        self.assertEqual((FAILED, self.uuid), (event, data['instance_uuid']))
        self.assertEqual(
            'MaxRetriesExceeded',
            data['reason']['nova_object.data']['exception'])

    def test_build_that_goes_on_is_not_told(self):
        self.try_next('a1')

        self.assertEqual([], self.told.events())
