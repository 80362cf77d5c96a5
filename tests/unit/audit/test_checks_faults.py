# SPDX-License-Identifier: Apache-2.0

from cellsched.db.cell import instance_history
from tests.unit.audit import base
from tests.unit.db import samples


class TestReasons(base.TestCase):

    def test_error_without_a_fault_gets_an_unknown_reason(self):
        uuid = self.failed('cell1', fault=False)

        self.assertMends(('S13', 'no-reason', uuid, 'cell1'))

        [reason] = self.read(self.cell('cell1'), instance_history.latest,
                             [uuid]).values()
        self.assertIn('without a recorded reason', reason)

    def test_fault_without_a_text_gets_an_unknown_reason(self):
        uuid = self.failed('cell2', fault=False)
        table = instance_history.models.instance_faults
        with self.cell('cell2').writer() as connection:
            connection.execute(table.insert().values(
                instance_uuid=uuid, code=500, message=' ', deleted=0,
                created_at=samples.NOW))

        self.assertMends(('S13', 'no-reason', uuid, 'cell2'))

    def test_missing_action_and_fault_are_recorded(self):
        uuid = self.failed(action=False, fault=False)

        self.assertMends(('S13', 'no-action', uuid, 'cell0'),
                         ('S13', 'no-reason', uuid, 'cell0'))
