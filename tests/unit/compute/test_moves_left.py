# SPDX-License-Identifier: Apache-2.0
"""Servers that left a host while it was down, and that are removed there."""

from cellsched.db.cell import instances
from cellsched.db.cell import server_moves
from tests.unit.compute import mover
from tests.unit.db import samples


class TestCleanUp(mover.MoverTestCase):

    def leave(self, count):
        """Have servers leave host1; return their moves."""
        moves = []
        for uuid in samples.uuids(count):
            self.uuid = uuid
            with self.cell.writer() as connection:
                instances.create(
                    connection, [samples.instance(uuid)], self.clock.now())
            moves.append(self.accept(
                ask=False, status=server_moves.FINISHED))
        return moves

    def test_one_that_cannot_be_removed_keeps_no_other(self):
        destroy = self.driver.destroy
        for place in range(3):
            moves = self.leave(3)
            broken = moves.pop(place)

            def fail(instance, broken=broken):
                if instance.uuid == broken.instance_uuid:
                    raise KeyError('as told')
                destroy(instance)

            self.driver.destroy = fail
            self.agents['host1'].clean_up()

            self.assertIn(
                f'Could not remove instance {broken.instance_uuid}',
                self.logs.output)
            self.assertEqual(server_moves.FINISHED, self.status(broken))
            self.assertEqual(
                {server_moves.DONE}, {self.status(move) for move in moves})
            self.driver.destroy = destroy
            self.agents['host1'].clean_up()
            self.assertEqual(server_moves.DONE, self.status(broken))
