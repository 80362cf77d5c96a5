# SPDX-License-Identifier: Apache-2.0
"""Builds that wait for the same cell, and projects without quota."""

from concurrent import futures
import threading

from cellsched.conductor.tasks import saga as tasks
from cellsched.conductor.tasks import steps
from cellsched import exception
from cellsched.quota import noop
from tests.unit.conductor import base
from tests.unit.conductor.tasks import leased

DEADLINE_S = 60


class TestWriteRows(leased.StepTestCase):

    def test_builds_that_wait_for_the_same_cell_are_written_together(self):
        step = steps.WriteRows(
            self.database, self.targets, self.clock, base.LEASE_S)
        batches = [self.builds(['a1']) for _ in range(4)]
        begun, go_on, times = threading.Event(), threading.Event(), []
        database = self.targets.database

        def slow(cell):
            times.append(cell.name)
            begun.set()
            go_on.wait(DEADLINE_S)
            return database(cell)

        self.targets.database = slow
        with futures.ThreadPoolExecutor(4) as threads:
            self.addCleanup(go_on.set)
            first = threads.submit(step.do, batches[0])
            begun.wait(DEADLINE_S)
            others = [threads.submit(step.do, batch) for batch in batches[1:]]
            [waiting] = step._waiting.values()
            while len(waiting._waiting) + len(times) < 4:
                futures.wait(others, 0.001)
            go_on.set()
            futures.wait([first, *others], DEADLINE_S)

        self.assertEqual(2, len(times))
        for [build] in batches:
            self.assertIsNone(build.failed)
            self.assertEqual(['cell1'], [*self.rows(build.uuid)])


class Quotas(noop.NoopQuotaDriver):
    """Refuses a build; what is asked is in ``asked``."""

    def __init__(self, refused):
        self.refused = refused
        self.asked = []

    def admit_all(self, connection, batches):
        self.asked = list(batches)
        return {build.uuid: exception.OverQuota(
            overs='instances', req='1', used='9', allowed='9')
            for batch in self.asked for build in batch.builds
            if build.uuid == self.refused}


class TestRelease(leased.StepTestCase):

    def test_each_batch_is_asked_for_with_what_its_builds_take(self):
        first, second = self.builds(['a1', 'a2']), self.builds(['b1'])
        for batch, least in ((first, 2), (second, 1)):
            batch_ = tasks.Batch(batch, least)
            for build in batch:
                build.batch = batch_
        quotas = Quotas(first[1].uuid)

        steps.Release(
            self.database, self.targets, quotas, self.clock,
        ).do([*first, *second])

        self.assertEqual(
            [('project', 'user', [build.uuid for build in first], 2),
             ('project', 'user', [build.uuid for build in second], 1)],
            [(batch.project_id, batch.user_id,
              [build.uuid for build in batch.builds], batch.min_count)
             for batch in quotas.asked])
        size = first[0].instance
        self.assertEqual({(size.vcpus, size.memory_mb)}, {
            (build.vcpus, build.memory_mb)
            for batch in quotas.asked for build in batch.builds})
        self.assertIsInstance(first[1].failed, exception.OverQuota)
        self.assertEqual(
            [False, True, False],
            [self.requested(build.uuid) for build in [*first, *second]])
