# SPDX-License-Identifier: Apache-2.0

from cellsched.db.cell import instance_faults
from tests.unit.audit import base
from tests.unit.db import samples


class TestReasons(base.TestCase):

    def test_error_without_a_fault_is_told_that_nobody_knows(self):
        uuid = self.failed('cell1', fault=False)

        self.assertMends(('S13', 'no-reason', uuid, 'cell1'))

        [reason] = self.read(self.cell('cell1'), instance_faults.latest,
                             [uuid]).values()
        self.assertIn('nobody recorded why', reason)

    def test_fault_without_a_text_says_nothing(self):
        uuid = self.failed('cell2', fault=False)
        table = instance_faults.models.instance_faults
        with self.cell('cell2').writer() as connection:
            connection.execute(table.insert().values(
                instance_uuid=uuid, code=500, message=' ', deleted=0,
                created_at=samples.NOW))

        self.assertMends(('S13', 'no-reason', uuid, 'cell2'))

    def test_buried_server_without_action_gets_one(self):
        uuid = self.failed(action=False)

        self.assertMends(('S13', 'no-action', uuid, 'cell0'))

    def test_buried_server_with_neither_gets_both(self):
        uuid = self.failed(action=False, fault=False)

        self.assertMends(('S13', 'no-action', uuid, 'cell0'),
                         ('S13', 'no-reason', uuid, 'cell0'))
