# SPDX-License-Identifier: Apache-2.0
"""A cell's database takes no writes, and builds of other cells go on."""

import sqlite3

from cellsched.standalone.deployment import DeployedHost
from tests.functional import base

#: The threads of a conductor.
THREADS = 64
#: More builds than threads.
STUCK = 140


class TestReadOnlyCell(base.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.decided = 0
        self.deploy({
            'cell1': [DeployedHost(
                'a1', vcpus=200, memory_mb=300000, disk_gb=9000)],
            'cell2': [DeployedHost('b1', availability_zone='other')]},
            reached=self.reached)
        self.built()
        self.built(availability_zone='other')
        self.decided = 0

    def reached(self, step: str) -> None:
        if step == 'Decide':
            self.decided += 1

    def lock(self, database: str) -> sqlite3.Connection:
        """Take the lock of a database, as a client that hangs does."""
        held = sqlite3.connect(
            self.world.directory / f'{database}.sqlite', isolation_level=None)
        self.addCleanup(held.close)
        held.execute('BEGIN IMMEDIATE')
        return held

    def test_builds_of_other_cells_continue(self):
        held = self.lock('cell1')
        for _ in range(STUCK):
            self.create(availability_zone='nova')
        # A decided build waits for the cell.
        self.until(lambda: self.decided >= THREADS, 'builds are decided')

        [uuid] = self.create(availability_zone='other')
        deadline = base.CLOCK.monotonic() + 10
        while (base.CLOCK.monotonic() < deadline
               and self.get(uuid).status == 'BUILD'):
            base.CLOCK.sleep(0.05)
        status = self.get(uuid).status
        held.execute('ROLLBACK')
        self.assertEqual('ACTIVE', status)
