# SPDX-License-Identifier: Apache-2.0

from cellsched.db.api import instance_mappings
from cellsched.db.cell import server_moves
from tests.unit.audit import base
from tests.unit.db import samples


class TestClaims(base.TestCase):

    def test_claim_of_a_deleted_server_goes(self):
        uuid = self.deleted()

        self.assertMends(('S4', 'claim-leaked', uuid, 'cell1'))

        self.assertEqual({}, self.claims.held([uuid]))

    def test_claim_of_a_buried_server_goes(self):
        uuid = self.failed()
        self.take(uuid, 'a1')

        self.assertMends(('S4', 'claim-leaked', uuid, 'cell0'))

    def test_claim_of_an_error_without_a_host_goes(self):
        uuid = self.failed('cell1')
        self.take(uuid, 'a1')

        self.assertMends(('S4', 'claim-leaked', uuid, 'cell1'))

    def test_claim_of_a_shelved_server_goes(self):
        uuid = self.running()
        self.change_row(uuid, 'cell1', vm_state='shelved_offloaded',
                        host=None, node=None)

        self.assertMends(('S4', 'claim-leaked', uuid, 'cell1'))

    def test_claim_of_an_error_on_a_host_stays(self):
        uuid = self.running()
        self.change_row(uuid, 'cell1', vm_state='error')

        self.assertMends(('S13', 'no-reason', uuid, 'cell1'))

        self.assertIn(uuid, self.claims.held([uuid]))

    def test_server_that_runs_unclaimed_claims(self):
        uuid = self.running()
        self.claims.release([uuid])

        self.assertMends(('S4', 'unclaimed', uuid, 'cell1'))

        [claim] = self.claims.held([uuid])[uuid]
        self.assertEqual((self.providers['a1'], base.SIZE),
                         (claim.provider, claim.resources))

    def test_server_that_runs_unclaimed_where_there_is_no_room_is_left(self):
        uuid = self.running()
        self.claims.release([uuid])
        for other in samples.uuids(4):
            self.take(other, 'a1')

        report = self.assertFound(
            ('S4', 'unclaimed', uuid, 'cell1'), fix=True)

        self.assertEqual([], report.repaired)

    def test_build_that_waits_for_no_host_unclaimed_is_left(self):
        uuid = self.accept()
        self.decide(uuid, 'cell1')
        self.put_row(uuid, 'cell1')
        self.forget(uuid)

        self.assertLeft(('S4', 'unclaimed', uuid, 'cell1'))

    def test_claim_on_another_host_is_left_to_a_human(self):
        uuid = self.running()
        self.claims.release([uuid])
        self.take(uuid, 'a2')

        self.assertLeft(('S4', 'claim-elsewhere', uuid, 'cell1'))

    def test_claim_of_a_buried_server_that_is_built_again_stays(self):
        uuid = self.accept()
        self.decide(uuid, 'cell0')
        self.put_row(uuid, 'cell0', vm_state='error', task_state=None)
        self.take(uuid, 'a1')

        self.assertClean()

    def test_claim_of_a_deleted_server_in_a_cell_that_is_down_stays(self):
        uuid = self.running()
        self.write(self.database, instance_mappings.mark_deleted, [uuid],
                   samples.NOW)
        self.take_down('cell1')

        self.assertFound(('S2', 'cell-unreachable',
                          self.by_name['cell1'].uuid, 'cell1'), fix=True)

    def test_build_that_waits_for_its_next_host_need_not_claim(self):
        uuid = self.accept()
        self.decide(uuid, 'cell1')
        self.put_row(uuid, 'cell1', task_state=None)
        self.forget(uuid)

        self.assertClean()


class TestMoves(base.TestCase):

    def test_claim_of_a_move_that_goes_on_stays(self):
        uuid = self.running()
        self.take(self.move(uuid), 'a2')

        report = self.audit()

        self.assertEqual(([], 0), (report.left, report.foreign))

    def test_claim_of_a_move_that_has_ended_goes(self):
        uuid = self.running()
        name = self.move(uuid, status=server_moves.ERROR)
        self.take(name, 'a2')

        self.assertMends(('S4', 'move-claim-leaked', uuid, 'cell1'))

        self.assertEqual({uuid}, {*self.claims.held([uuid, name])})

    def test_claim_to_move_a_deleted_server_goes(self):
        uuid = self.deleted()
        self.claims.release([uuid])
        self.take(self.move(uuid, status=server_moves.DONE), 'a2')

        self.assertMends(('S4', 'move-claim-leaked', uuid, 'cell1'))
