# SPDX-License-Identifier: Apache-2.0
"""Builds that are buried together."""

from cellsched.cells import cell0
from cellsched import exception
from cellsched.quota import noop
from tests.unit.conductor import base
from tests.unit.conductor.tasks import ends


class Cell0(cell0.Cell0):
    """Notes how many are buried at once."""

    def bury(self, context, instances, *args):
        self.buried.append([each.uuid for each in instances])
        return super().bury(context, instances, *args)


class Quotas(noop.NoopQuotaDriver):
    """Refuses each build for a reason of its own."""

    def admit_all(self, connection, batches):
        return {build.uuid: exception.OverQuota(
            overs='instances', req=1, used=number, allowed=9)
            for batch in batches for number, build in enumerate(batch.builds)}


class TestBurial(base.TestCase):

    def setUp(self):
        super().setUp()
        self.cell0 = Cell0(self.database, self.registry(), self.targets,
                           self.clock, 'conductor')
        self.cell0.buried = []

    def task(self, **options):
        return super().task(cell0=self.cell0, **options)

    def test_those_of_one_reason_are_buried_at_once(self):
        uuids = self.accept(3)

        self.task_with(1, ends.fail).run(base.USER, uuids)

        self.assertEqual([uuids], self.cell0.buried)
        for uuid in uuids:
            self.assertBuried(uuid, 'another place')

    def test_those_of_another_reason_are_buried_with_them(self):
        """One that is left, and tried again alone, could be built alone."""
        uuids = self.accept(2)

        self.task(quotas=Quotas(None, None)).run(base.USER, uuids)

        self.assertEqual([uuids], self.cell0.buried)
        for number, uuid in enumerate(uuids):
            self.assertBuried(uuid, f'but already used {number}')
