# SPDX-License-Identifier: Apache-2.0
"""Claims that are in the API database's own SQLite file."""

from cellsched.claims import base as claims_base
from cellsched.claims import sql
from cellsched.conductor.tasks import build_and_schedule
from cellsched.db import session
from tests.unit.conductor import base
from tests.unit.conductor.tasks import ends


class TestSharedFile(base.TestCase):
    """A transaction on the API database keeps the claims from any other."""

    def setUp(self):
        super().setUp()
        shared = session.Database(
            self.database.url, 'claims', clock=self.clock)
        self.addCleanup(shared.close)
        self.claims = sql.SQLClaims(shared)
        self.claims.sync()
        for provider in self.providers.values():
            self.claims.set_inventory(provider, {
                name: claims_base.Inventory(4 * amount)
                for name, amount in base.SIZE.items()})

    def task(self, **options):
        return super().task(limits=build_and_schedule.TaskLimits(
            base.LEASE_S, fenced=False), **options)

    def test_what_fails_holds_nothing_wherever_it_failed(self):
        for place in range(1, ends.REQUEST_GONE):
            [uuid] = self.accept()

            self.task_with(place, ends.fail).run(base.USER, [uuid])

            self.assertBuried(uuid, 'another place')

    def test_what_its_user_deleted_holds_nothing(self):
        [uuid] = self.accept()

        self.task_with(ends.DONE.index('schedule'), lambda: self.delete(
            uuid)).run(base.USER, [uuid])

        self.assertLeftNothing(uuid)

    def test_what_another_one_finished_keeps_what_it_holds(self):
        [uuid] = self.accept()

        def next_one_first():
            self.clock.advance(base.LEASE_S)
            self.task().run(base.USER, [uuid])
            ends.fail()

        self.task_with(ends.DONE.index('schedule'), next_one_first).run(
            base.USER, [uuid])

        self.assertBuilding('cell1', uuid)
