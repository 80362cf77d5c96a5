# SPDX-License-Identifier: Apache-2.0
"""Hosts of a cell that change while they are read."""

import itertools

from cellsched.db.cell import hosts
from tests.unit.db.cell import base
from tests.unit.db.cell import following
from tests.unit.db import meanwhile


class TestChanges(following.Writing, base.TestCase):

    def test_nothing_is_missed_between_one_reading_and_the_next(self):
        numbers = itertools.count()

        def report():
            self.save('a', 'one', next(numbers))
            self.report('b')
            self.save('c', f'node{next(numbers)}', 1)

        report()
        follower = following.Follower(self.database)
        for _ in range(3):
            with meanwhile.between_statements(self.database, report):
                follower.poll()
            follower.poll()
            newcomer = following.Follower(self.database)
            newcomer.poll()
            self.assertEqual(newcomer.nodes, follower.nodes)
            self.assertEqual(newcomer.services, follower.services)

    def test_token_that_was_read_before_is_what_to_go_on_from(self):
        self.save('a', 'one', 8)
        before = hosts.token(self.database)
        self.save('a', 'one', 16)

        changes = self.read(hosts.changes, None, before)

        self.assertEqual(before, changes.token)
        self.assertEqual([16], [row.vcpus for row in changes.nodes])
