# SPDX-License-Identifier: Apache-2.0
"""Builds of whose requests something is lost or cannot be read."""

import futurist

from cellsched.conductor import recovery
from cellsched.db.api import build_requests
from cellsched.db.cell import instances
from tests.unit.conductor import base
from tests.unit.conductor.tasks import ends
from tests.unit.db import samples


class TestBroken(base.TestCase):

    def spoil(self, uuid, table='build_requests', **values):
        with self.database.writer() as connection:
            samples.spoil(connection, uuid, table, **values)

    def recover(self):
        self.clock.advance(base.LEASE_S)
        recovery.Recoverer(
            self.database, self.task(), base.LEASE_S,
            futurist.SynchronousExecutor()).run()

    def break_in_turn(self):
        """Yield builds of which each is broken in another way."""
        for table, values, reason in (
                ('build_requests', {'instance': 'nonsense'},
                 'The build request of {} cannot be read.'),
                ('request_specs', {'spec': '{}'},
                 'The request specification of {} cannot be read.'),
                ('request_specs', {},
                 'The request specification of {} is missing.')):
            [uuid] = self.accept()
            self.spoil(uuid, table, **values)
            yield uuid, reason.format(uuid)

    def test_what_cannot_be_read_is_buried_with_the_reason(self):
        for uuid, reason in self.break_in_turn():
            self.task().run(base.USER, [uuid])

            self.assertBuried(uuid, reason)
            row = self.row(uuid)
            self.assertEqual(('project', 'user'),
                             (row.project_id, row.user_id))

    def test_one_that_lost_its_mapping_too_keeps_no_other(self):
        [uuid], [other] = self.accept(), self.accept()
        self.spoil(uuid, instance='nonsense')
        self.spoil(uuid, 'instance_mappings')

        self.task().run(base.USER, [uuid, other])

        self.assertEqual({}, self.rows(uuid))
        self.assertEqual([self.mapped(other)], list(self.rows(other)))

    def test_recoverer_buries_what_was_leased_and_forgotten(self):
        for uuid, reason in self.break_in_turn():
            now = self.clock.timestamp()
            with self.database.writer() as connection:
                build_requests.lease(
                    connection, [uuid], 'dead', now, now + base.LEASE_S)

            self.recover()

            self.assertBuried(uuid, reason)

    def test_what_is_broken_since_an_earlier_try_is_undone(self):
        for place in range(ends.REQUEST_GONE):
            [uuid] = self.accept()
            self.assertRaises(ends.Death, self.task_with(
                place, ends.die).run, base.USER, [uuid])
            self.spoil(uuid, 'request_specs')

            self.recover()

            self.assertBuried(uuid, 'is missing')

    def test_others_of_the_batch_are_built(self):
        broken, whole = self.accept(2)
        self.spoil(broken, 'request_specs')

        self.task().run(base.USER, [broken, whole])

        self.assertBuilding('cell1', whole)
        self.assertEqual(['cell0'], [*self.rows(broken)])

    def test_batch_that_is_to_be_whole_is_buried_with_it(self):
        uuids = samples.uuids(2)
        samples.accept(self.database, uuids, self.clock.now(), min_count=2)
        self.spoil(uuids[0], 'request_specs')

        self.task().run(base.USER, uuids)

        for uuid in uuids:
            self.assertBuried(uuid, f'{uuids[0]} is missing')

    def test_user_can_delete_what_cannot_be_read(self):
        for uuid, _ in self.break_in_turn():
            self.delete(uuid)

            self.assertLeftNothing(uuid)

    def test_user_can_delete_what_was_being_built(self):
        for place in range(ends.REQUEST_GONE):
            [uuid] = self.accept()
            self.assertRaises(ends.Death, self.task_with(
                place, ends.die).run, base.USER, [uuid])
            self.spoil(uuid, instance='nonsense')

            self.delete(uuid)

            self.assertFalse(self.requested(uuid))
            self.assertIsNone(self.holds(uuid))
            for name in self.rows(uuid):
                database = self.targets.database(self.cells[name])
                with database.reader() as connection:
                    self.assertIsNone(instances.get(connection, uuid))
