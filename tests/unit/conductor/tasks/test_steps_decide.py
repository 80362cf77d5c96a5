# SPDX-License-Identifier: Apache-2.0
"""The step that decides, alone and after others."""

from cellsched.claims import base as claims_base
from cellsched.conductor.tasks.saga import Build
from cellsched.conductor.tasks import steps
from cellsched import exception
from tests.unit.conductor import base
from tests.unit.db import samples

ME, OTHER = 'me', 'other'


class TestDecide(base.StepTestCase):

    def step(self):
        return steps.Decide(
            self.database, self.targets, self.wrong_clock,
            base.LEASE_S)

    def decided(self, batch):
        return [self.mapped(build.uuid) for build in batch]

    def test_repeated_decision_sets_the_cell_of_the_host(self):
        batch = self.builds(['a1', 'b1'])

        for _ in range(2):
            self.do(self.step(), batch)
            self.assertEqual(['cell1', 'cell2'], self.decided(batch))
            self.assertFalse(any(build.ended for build in batch))

    def test_repeated_undo_removes_the_cell(self):
        batch = self.builds(['a1', 'b1'])
        self.undo(self.step(), batch)
        self.do(self.step(), batch)

        for _ in range(2):
            self.undo(self.step(), batch)
            self.assertEqual([None, None], self.decided(batch))

    def test_decision_of_another_is_not_overwritten(self):
        build, free = batch = self.builds(['a1', 'a1'])
        self.decide(build.uuid, 'cell2')

        self.do(self.step(), batch)

        self.assertEqual(['cell2', 'cell1'], self.decided(batch))
        self.assertEqual((True, False), (build.finished, build.deleted))
        self.assertFalse(free.ended)

    def test_decision_of_another_is_not_undone(self):
        [build] = self.builds(['a1'])
        self.decide(build.uuid, 'cell2')

        self.undo(self.step(), [build])

        self.assertEqual('cell2', self.mapped(build.uuid))

    def test_deleted_server_gets_no_cell(self):
        build, free = batch = self.builds(['a1', 'a1'])
        self.delete(build.uuid)

        self.do(self.step(), batch)

        self.assertEqual([None, 'cell1'], self.decided(batch))
        self.assertEqual((False, True), (build.finished, build.deleted))

    def test_conductor_without_the_lease_does_not_decide(self):
        batch = self.builds(['a1', 'a1'])
        self.clock.advance(base.LEASE_S)
        self.lease([batch[0].uuid], OTHER)

        self.do(self.step(), batch)

        self.assertEqual([None, 'cell1'], self.decided(batch))
        self.assertEqual((True, False),
                         (batch[0].finished, batch[0].deleted))

    def test_decision_renews_the_lease(self):
        [build] = self.builds(['a1'])
        self.clock.advance(base.LEASE_S - 1)
        self.do(self.step(), [build])

        self.clock.advance(base.LEASE_S - 1)
        self.assertEqual([], self.lease([build.uuid], OTHER))
        self.clock.advance(1)
        self.assertEqual(1, len(self.lease([build.uuid], OTHER)))


class TestDecideAgain(base.StepTestCase):
    """A conductor decided on cell2 and died; the next one goes to cell1."""

    def setUp(self):
        super().setUp()
        [earlier] = self.builds(['b1'], OTHER)
        self.uuid = earlier.uuid
        self.decide(self.uuid, 'cell2')
        steps.WriteRows(
            self.database, self.targets, self.wrong_clock,
            base.LEASE_S,
        ).do([earlier])
        self.clock.advance(base.LEASE_S)
        [entry] = self.lease([self.uuid], ME)
        self.build = Build(
            entry.request, entry.spec, base.USER, ME, tries=entry.tries,
            selections=[self.selection('a1')], cell=self.cells['cell1'],
            earlier=self.cells['cell2'])
        self.assertTrue(self.build.again)

    def step(self):
        return steps.Decide(
            self.database, self.targets, self.wrong_clock,
            base.LEASE_S)

    def test_decision_for_another_cell_removes_the_earlier_row(self):
        for _ in range(2):
            self.do(self.step(), [self.build])

            self.assertEqual('cell1', self.mapped(self.uuid))
            self.assertEqual({}, self.rows(self.uuid))
            self.assertFalse(self.build.ended)

    def test_same_cell_is_kept_with_its_rows(self):
        self.build.cell = self.cells['cell2']

        self.do(self.step(), [self.build])

        self.assertEqual('cell2', self.mapped(self.uuid))
        self.assertEqual(['cell2'], [*self.rows(self.uuid)])
        self.assertFalse(self.build.ended)

    def test_build_fails_while_the_earlier_cell_is_unwritable(self):
        self.break_cell('cell2')
        self.build.earlier = self.mapping('cell2')

        self.do(self.step(), [self.build])

        self.assertEqual('cell2', self.mapped(self.uuid))
        self.assertEqual(['cell2'], [*self.rows(self.uuid)])
        self.assertTrue(self.build.reason)

    def test_rollback_reverts_the_earlier_decision(self):
        for _ in range(2):
            self.undo(self.step(), [self.build])

            self.assertIsNone(self.mapped(self.uuid))

    def test_undo_removes_the_rows_of_the_earlier_attempt(self):
        step = steps.WriteRows(
            self.database, self.targets, self.wrong_clock,
            base.LEASE_S)

        for _ in range(2):
            self.undo(step, [self.build])

            self.assertEqual({}, self.rows(self.uuid))

    def test_conductor_without_the_lease_does_not_revert(self):
        self.build.owner = OTHER
        self.do(self.step(), [self.build])

        self.assertEqual('cell2', self.mapped(self.uuid))
        self.assertEqual(['cell2'], [*self.rows(self.uuid)])
        self.assertTrue(self.build.finished)


class TestFindCell(base.StepTestCase):

    def test_cell_comes_from_the_host_and_not_from_the_selection(self):
        batch = self.builds(['a1', 'b1'])
        for build in batch:
            build.cell = None
        step = steps.FindCell(self.database, self.claims)

        for _ in range(2):
            self.do(step, batch)
            self.assertEqual(['cell1', 'cell2'],
                             [build.cell.name for build in batch])

    def find(self, *hosts):
        """Have one build's hosts looked up, beside another one's."""
        for host in {*hosts} - self.providers.keys():
            self.providers[host] = samples.uuids(1)[0]
            self.claims.set_inventory(self.providers[host], {
                name: claims_base.Inventory(4 * amount)
                for name, amount in base.SIZE.items()})
        build, other = self.builds(['a1', 'a1'])
        build.selections = [self.selection(host) for host in hosts]
        build.cell = None
        self.claims.release([build.uuid])
        self.claims.claim(claims_base.of_selection(
            build.uuid, build.selections[0]))

        self.do(steps.FindCell(self.database, self.claims), [build, other])

        self.assertIsNone(other.reason)
        self.assertEqual('cell1', other.cell.name)
        return build

    def fill(self, host):
        self.claims.claim([claims_base.Claim(
            samples.uuids(1)[0], self.providers[host], {'VCPU': 4})])

    def test_alternate_is_claimed_in_place_of_an_unmapped_host(self):
        build = self.find('x9', 'a2', 'a3')

        self.assertIsNone(build.reason)
        self.assertEqual(
            ('cell1', ['a2', 'a3'], 'a2'),
            (build.cell.name,
             [each.service_host for each in build.selections],
             self.holds(build.uuid)))
        [held] = self.claims.claims_of([build.uuid])[build.uuid]
        self.assertEqual(
            ('project', 'user'), (held.project_id, held.user_id))

    def test_unmapped_and_full_alternates_are_skipped(self):
        self.fill('a2')

        build = self.find('x9', 'x8', 'a2', 'x7', 'a3')

        self.assertEqual(
            (['a3'], 'a3'),
            ([each.service_host for each in build.selections],
             self.holds(build.uuid)))

    def test_build_without_remaining_hosts_is_deferred(self):
        self.fill('a2')
        for hosts in (['x9'], ['x9', 'x8'], ['x9', 'a2']):
            build = self.find(*hosts)

            self.assertIsInstance(
                build.reason, exception.HostMappingNotFound)
            self.assertEqual(('x9', True, None), (
                build.reason.host, build.to_retry, self.holds(build.uuid)))
