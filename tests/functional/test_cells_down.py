# SPDX-License-Identifier: Apache-2.0
"""A cell that cannot be reached costs its own servers only."""

from cellsched import exception
from tests.functional import base

LATE_S = 500


class TestCellsDown(base.TestCase):

    def setUp(self):
        super().setUp()
        # No host is known before the first request, which meets the cells as
        # they are then.
        self.deploy({'cell1': ['a1'], 'cell2': ['b1']},
                    scheduler=base.READ_EACH_TIME)

    def built_in_each(self):
        found = self.built(min_count=2)
        return sorted(found, key=lambda each: each.cell)

    def test_other_cells_take_the_builds(self):
        self.take_down('cell1')

        found = self.built(min_count=4)

        self.assertEqual({('ACTIVE', 'cell2')},
                         {(each.status, each.cell) for each in found})

    def test_listing_names_the_cell_and_has_servers_of_other_cells(self):
        [there, here] = self.built_in_each()
        self.take_down('cell1')

        page = self.world.api.servers.list(base.ADMIN)

        shown = {each.uuid: each for each in page.servers}
        self.assertEqual(here, shown.pop(here.uuid))
        self.assertEqual([(there.uuid, 'UNKNOWN', 'cell1')], [
            (each.uuid, each.status, each.cell) for each in shown.values()])
        self.assertEqual([self.cells()['cell1'].identity], page.down_cells)
        self.bring_back('cell1')
        page = self.world.api.servers.list(base.ADMIN)
        self.assertEqual(([], 2), (page.down_cells, len(page.servers)))

    def test_name_possibly_used_in_the_cell_is_not_resolved(self):
        [there, here] = self.built_in_each()
        self.world.api.servers.update(base.USER, here.uuid, name='web')
        self.take_down('cell1')
        find = self.world.api.servers.find

        self.assertRaises(exception.CellsDown, find, base.USER, 'web')
        self.assertEqual(there.uuid, find(base.USER, there.uuid))

    def test_servers_of_a_cell_are_unknown_until_reachable(self):
        [there, here] = self.built_in_each()
        self.take_down('cell1')

        self.assertEqual('UNKNOWN', self.get(there.uuid).status)
        self.assertEqual(here, self.get(here.uuid))
        self.bring_back('cell1')
        self.assertEqual(there, self.get(there.uuid))

    def test_deletion_is_refused_until_the_cell_is_reachable(self):
        [there, _] = self.built_in_each()
        self.take_down('cell1')

        for _ in range(2):
            self.assertRaises(
                exception.DatabaseUnreachable, self.delete, there.uuid)
            # What was once asked to go is not shown where nothing is known.
            self.assertRaises(
                exception.InstanceNotFound, self.get, there.uuid)

        self.bring_back('cell1')
        self.delete(there.uuid)
        self.gone(there.uuid)
        self.assertClaimsMatch()

    def test_request_without_reachable_cells_is_refused_with_the_reason(self):
        self.take_down('cell1')
        self.take_down('cell2')

        [found] = self.built()

        self.assertEqual(('ERROR', 'cell0'), (found.status, found.cell))
        self.assertIn('2 cells', found.reason)
        self.assertNotIn('sqlite', found.reason)
        self.bring_back('cell1')
        self.assertEqual('ACTIVE', self.built()[0].status)

    def test_cell_lost_during_a_write_gets_the_build_when_reachable(self):
        """Whether the server is there is not known until then."""
        unheard = self.unheard().servers
        [uuid] = unheard.create(base.USER, 'server', 'small')
        self.run_until_decided(uuid)
        cell = self.mapped(uuid)

        self.take_down(cell)
        for times in range(1, 3):
            self.recover(LATE_S * times)
            self.assertEqual('BUILD', self.get(uuid).status)
            self.assertTrue(self.requested(uuid))
        self.bring_back(cell)
        self.recover(LATE_S * 3)

        [found] = self.settled([uuid])
        self.assertEqual('ACTIVE', found.status)
        self.assertIsIn(found.cell, uuid)
        self.assertClaimsMatch()

    def test_server_of_an_unreachable_cell_can_be_deleted(self):
        unheard = self.unheard().servers
        [uuid] = unheard.create(base.USER, 'server', 'small')
        self.run_until_decided(uuid)
        cell = self.mapped(uuid)
        self.take_down(cell)

        self.assertRaises(
            exception.DatabaseUnreachable, self.delete, uuid)
        self.recover(LATE_S)
        self.assertEqual([], self.listed())

        self.bring_back(cell)
        self.recover(LATE_S * 2)
        self.assertEqual([], self.listed())

    def run_until_decided(self, uuid):
        """Run a conductor that dies as it is about to write the server."""
        class Death(BaseException):
            pass

        class Targets:

            def database(self, cell):
                raise Death

        self.assertRaises(Death, self.task(targets=Targets()).run,
                          base.USER, [uuid])
        self.assertIn(self.mapped(uuid), ('cell1', 'cell2'))


class TestCell0Down(base.TestCase):

    def setUp(self):
        super().setUp()
        self.deploy({'cell1': ['a1']})

    def refused(self):
        """Return a server that cell0 could not take."""
        [uuid] = self.unheard().servers.create(base.USER, 'server', 'huge')
        self.take_down('cell0')
        self.task().run(base.USER, [uuid])
        self.assertEqual('BUILD', self.get(uuid).status)
        self.assertTrue(self.requested(uuid))
        self.assertHoldsNothing(uuid)
        return uuid

    def test_failed_build_is_recorded_when_cell0_is_back(self):
        uuid = self.refused()
        self.recover(LATE_S)
        self.assertEqual('BUILD', self.get(uuid).status)

        self.bring_back('cell0')
        self.recover(LATE_S * 2)

        found = self.get(uuid)
        self.assertEqual(('ERROR', 'cell0'), (found.status, found.cell))
        self.assertIn('No valid host was found', found.reason)
        self.assertIsIn('cell0', uuid)
        self.assertClaimsMatch()

    def test_failed_build_ends_once_if_capacity_is_free_later(self):
        uuid = self.refused()
        self.bring_back('cell0')
        self.world.start_host('cell1', base.deployment.DeployedHost(
            'a2', memory_mb=2 ** 20))

        self.recover(LATE_S)

        [found] = self.settled([uuid])
        self.assertIsIn(found.cell, uuid)
        self.assertClaimsMatch()

    def test_failed_build_can_be_deleted(self):
        uuid = self.refused()
        self.bring_back('cell0')

        self.delete(uuid)

        self.gone(uuid)
        self.recover(LATE_S)
        self.assertLeftNothing(uuid)
        self.assertClaimsMatch()
