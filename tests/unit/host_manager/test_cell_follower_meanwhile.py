# SPDX-License-Identifier: Apache-2.0
"""A cell whose hosts change while it is read."""

import itertools

from tests.unit.db import meanwhile
from tests.unit.hosts import following


class TestReading(following.FollowerTestCase):

    def test_change_between_two_statements_is_read(self):
        uuid = self.world.add_host('cell1', 'a')
        # Another one maps it, which is to write into the cell.
        self.read()
        self.follower = self.follow('cell1')
        numbers = itertools.count(10)

        def report():
            self.node('a', vcpus=next(numbers))

        # The first reading, one of what changed, and another one of all.
        for everything in (False, False, True):
            with meanwhile.between_statements(self.database, report):
                self.read(everything)
            self.read()
            self.assertEqual(
                next(numbers) - 1, self.value(uuid, 'vcpus_total'))
            # That number was not reported.
            report()
