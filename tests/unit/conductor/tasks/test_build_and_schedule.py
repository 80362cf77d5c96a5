# SPDX-License-Identifier: Apache-2.0
"""From accepted requests to builds in cells: every end that there is."""

from concurrent import futures

from amqp import exceptions as amqp_exc
import oslo_messaging

from cellsched.db.api import build_requests
from cellsched import exception
from tests.unit.conductor import base
from tests.unit.conductor.tasks import ends
from tests.unit.db import samples


class TestBuildAndSchedule(base.TestCase):

    def test_build_goes_to_the_cell_of_its_host(self):
        [uuid] = self.accept()

        self.task().run(base.USER, [uuid])

        self.assertBuilding('cell1', uuid)
        self.assertEqual([('a1', uuid)], self.sent())
        self.assertEqual('a1', self.holds(uuid))

    def test_effects_come_in_an_order_that_readers_can_follow(self):
        [uuid] = self.accept()
        seen = []

        def look():
            seen.append((self.holds(uuid), self.mapped(uuid),
                         [*self.rows(uuid)], self.requested(uuid),
                         len(self.sent())))

        for place in range(len(ends.DONE)):
            [uuid] = self.accept()
            self.compute.clients.clear()
            self.task_with(place, look).run(base.USER, [uuid])

        self.assertEqual([
            (None, None, [], True, 0),
            ('a1', None, [], True, 0),
            ('a1', None, [], True, 0),
            ('a1', 'cell1', [], True, 0),
            ('a2', 'cell1', ['cell1'], True, 0),
            ('a2', 'cell1', ['cell1'], False, 0),
            ('a2', 'cell1', ['cell1'], False, 1),
        ], seen)

    def answer(self, **arguments):
        """Go to the second host when the first is full."""
        try:
            return super().answer(**arguments)
        except exception.NoValidHost:
            if self.chosen != ['a1', 'a2']:
                raise
            self.chosen = ['a2', 'a3']
            return super().answer(**arguments)

    def test_batch_is_split_over_its_cells(self):
        uuids = self.accept(2)

        def answer(instance_uuids, **arguments):
            return [[self.selection(host)] for host in ('b1', 'a1')]

        self.scheduler.answer = answer
        for uuid, host in zip(uuids, ('b1', 'a1')):
            self.claims.claim(base.claims_base.of_selection(
                uuid, self.selection(host)))
        self.task().run(base.USER, uuids)

        self.assertBuilding('cell2', uuids[0])
        self.assertBuilding('cell1', uuids[1])

    def test_cell_that_is_slow_holds_up_its_own_builds_only(self):
        slow, other = self.accept(2)
        task = self.task()
        cell = self.targets.database(self.cells['cell1'])
        with futures.ThreadPoolExecutor(1) as threads:
            with cell.writer():
                self.chosen = ['a1']
                waits = threads.submit(task.run, base.USER, [slow])
                while self.mapped(slow) is None:
                    self.assertFalse(waits.done())
                self.chosen = ['b1']
                task.run(base.USER, [other])

                self.assertBuilding('cell2', other)
                self.assertFalse(waits.done())
            waits.result(60)
        self.assertBuilding('cell1', slow)

    def test_nothing_is_done_for_what_is_gone_or_taken(self):
        gone, taken = self.accept(2)
        self.delete(gone)
        with self.database.writer() as connection:
            build_requests.lease(
                connection, [taken], 'other', self.clock.timestamp(),
                self.clock.timestamp() + 1)

        self.task().run(base.USER, [gone, taken, base.samples.uuids(1)[0]])

        self.assertEqual([], self.scheduler.sent)
        self.assertTrue(self.requested(taken))

    def test_message_that_comes_again_changes_nothing(self):
        [uuid] = self.accept()
        self.task().run(base.USER, [uuid])

        self.clock.advance(base.LEASE_S * 2)
        self.task().run(base.USER, [uuid])

        self.assertBuilding('cell1', uuid)
        self.assertEqual(1, len(self.scheduler.sent))


class TestDeletion(base.TestCase):

    def test_deletion_before_the_request_goes_leaves_nothing(self):
        for place in range(ends.REQUEST_GONE):
            [uuid] = self.accept()

            self.task_with(place, lambda: self.delete(uuid)).run(
                base.USER, [uuid])

            self.assertLeftNothing(uuid)
            self.assertEqual([], self.sent(), ends.DONE[place])

    def test_deletion_after_that_is_a_server_s(self):
        for place in range(ends.REQUEST_GONE, len(ends.DONE)):
            [uuid] = self.accept()

            self.task_with(place, lambda: self.delete(uuid)).run(
                base.USER, [uuid])

            # The agent finds it deleted when it is told to build it.
            self.assertEqual(('cell1', 'deleted'), (
                self.mapped(uuid), self.row(uuid).vm_state))
            self.assertIsNone(self.holds(uuid))

    def test_deletion_of_one_leaves_the_others_of_its_batch(self):
        for place in range(ends.REQUEST_GONE):
            self.claims.release(uuid for _, uuid in self.sent())
            gone, kept = self.accept(2)

            self.task_with(place, lambda: self.delete(gone)).run(
                base.USER, [gone, kept])

            self.assertLeftNothing(gone)
            self.assertBuilding('cell1', kept)

    def test_deletion_wins_over_a_failure(self):
        for place in range(ends.REQUEST_GONE):
            [uuid] = self.accept()

            def both():
                self.delete(uuid)
                ends.fail()

            self.task_with(place, both).run(base.USER, [uuid])

            self.assertLeftNothing(uuid)


class TestFailure(base.TestCase):

    def test_failure_before_the_request_goes_is_buried(self):
        for place in range(ends.REQUEST_GONE):
            uuids = self.accept(2)

            self.task_with(place, ends.fail).run(base.USER, uuids)

            for uuid in uuids:
                self.assertBuried(uuid, 'holds another place')
                self.assertNotIn('secret', self.reason(uuid))

    def test_request_that_fits_nowhere_is_buried_with_the_reasons(self):
        def answer(**arguments):
            raise exception.NoValidHost(reason='Of 3 hosts 3 lack memory.')

        self.scheduler.answer = answer
        [uuid] = self.accept()

        self.task().run(base.USER, [uuid])

        self.assertBuried(uuid, 'Of 3 hosts 3 lack memory.')

    def answer_gone(self, *alternates):
        """Have the first build go to a host whose mapping has gone."""
        self.add_provider('x9')

        def answer(instance_uuids, **arguments):
            chosen = [
                [self.selection(host) for host in hosts] for hosts in (
                    ['x9', *alternates], ['a1'])[:len(instance_uuids)]]
            for uuid, (first, *_) in zip(instance_uuids, chosen):
                self.claims.claim(
                    base.claims_base.of_selection(uuid, first))
            return chosen

        self.scheduler.answer = answer

    def add_provider(self, host):
        self.providers[host] = samples.uuids(1)[0]
        self.claims.set_inventory(self.providers[host], {
            name: base.claims_base.Inventory(4 * amount)
            for name, amount in base.SIZE.items()})

    def test_host_whose_mapping_has_gone_is_passed_over(self):
        self.answer_gone('a3')
        lost, found = self.accept(2)

        self.task().run(base.USER, [lost, found])

        for uuid, host in (lost, 'a3'), (found, 'a1'):
            self.assertBuilding('cell1', uuid)
            self.assertEqual(host, self.holds(uuid))
            self.assertIn((host, uuid), self.sent())

    def test_build_without_another_host_is_tried_again(self):
        self.answer_gone()
        lost, found = self.accept(2)

        self.task().run(base.USER, [lost, found])

        self.assertBuilding('cell1', found)
        self.assertEqual(({}, True, None), (
            self.rows(lost), self.requested(lost), self.holds(lost)))

        self.claims.release([found])
        self.scheduler.answer = self.answer
        self.clock.advance(base.LEASE_S)
        self.task().run(base.USER, [lost])
        self.assertBuilding('cell1', lost)

    def test_scheduler_that_does_not_answer_is_asked_again_later(self):
        self.assert_asked_again_after(oslo_messaging.MessagingTimeout())

    def test_broker_that_refuses_is_tried_again_later(self):
        self.assert_asked_again_after(amqp_exc.AccessRefused('password'))

    def assert_asked_again_after(self, failure):
        def answer(**arguments):
            self.answer(**arguments)
            raise failure

        self.scheduler.answer = answer
        [uuid] = self.accept()

        self.task().run(base.USER, [uuid])

        self.assertEqual(({}, None, True, None), (
            self.rows(uuid), self.mapped(uuid), self.requested(uuid),
            self.holds(uuid)))

        self.assertIn(type(failure).__name__, self.logs.output)
        self.assertNotIn('Traceback', self.logs.output)
        self.scheduler.answer = self.answer
        self.clock.advance(base.LEASE_S)
        self.task().run(base.USER, [uuid])

        self.assertBuilding('cell1', uuid)

    def test_cell_that_cannot_be_written_fails_its_builds_only(self):
        self.point('cell1', 'sqlite:////nowhere/at/all.sqlite')
        lost, found = self.accept(2)
        claims = {lost: 'a1', found: 'b1'}

        def answer(instance_uuids, **arguments):
            for uuid, host in claims.items():
                self.claims.claim(base.claims_base.of_selection(
                    uuid, self.selection(host)))
            return [[self.selection(host)] for host in claims.values()]

        self.scheduler.answer = answer
        self.task().run(base.USER, [lost, found])

        self.assertBuilding('cell2', found)
        # Nothing was written there, so it may go elsewhere.
        self.assertEqual((None, True, None), (
            self.mapped(lost), self.requested(lost), self.holds(lost)))

    def test_cell_that_goes_while_it_is_written_is_waited_for(self):
        self.break_cell('cell1')
        [uuid] = self.accept()

        self.task().run(base.USER, [uuid])

        # What was written there is not known; its claim keeps the place.
        self.assertEqual(('cell1', True, 'a1'), (
            self.mapped(uuid), self.requested(uuid), self.holds(uuid)))

    def test_least_number_is_kept(self):
        uuids = self.accept(6, min_count=5)

        self.task().run(base.USER, uuids)

        for uuid in uuids:
            self.assertBuried(uuid, 'Full.')

    def test_those_beyond_the_room_are_buried(self):
        uuids = self.accept(6, min_count=3)

        self.task().run(base.USER, uuids)

        for uuid in uuids[:4]:
            self.assertBuilding('cell1', uuid)
        self.compute.clients.clear()
        for uuid in uuids[4:]:
            self.assertBuried(uuid, 'Full.')

    def test_what_cannot_be_told_to_any_host_is_an_error_in_its_cell(self):
        url = self.cells['cell1'].transport_url
        self.compute.get(self.transports.get(url)).failure = ValueError()
        [uuid] = self.accept()

        self.task().run(base.USER, [uuid])

        self.assertEqual(['cell1'], [*self.rows(uuid)])
        self.assertEqual('error', self.row(uuid).vm_state)
        self.assertEqual(('cell1', False, None), (
            self.mapped(uuid), self.requested(uuid), self.holds(uuid)))
