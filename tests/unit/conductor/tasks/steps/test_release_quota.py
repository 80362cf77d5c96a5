# SPDX-License-Identifier: Apache-2.0
"""Builds of projects without quota."""

from cellsched.conductor.tasks.build import Batch
from cellsched.conductor.tasks.steps import release
from cellsched import exception
from cellsched.quota import noop
from tests.unit.conductor.tasks import leased


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
            batch_ = Batch(batch, least)
            for build in batch:
                build.batch = batch_
        quotas = Quotas(first[1].uuid)

        release.Release(
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
        self.assertIsInstance(first[1].reason, exception.OverQuota)
        self.assertEqual(
            [False, True, False],
            [self.requested(build.uuid) for build in [*first, *second]])
