# SPDX-License-Identifier: Apache-2.0
"""Aggregates that change while they are read."""

import itertools

from tests.unit.db.api import base
from tests.unit.db.api import following
from tests.unit.db import meanwhile


class TestChanges(following.Writing, base.TestCase):

    def test_nothing_is_missed_between_one_reading_and_the_next(self):
        numbers = itertools.count()
        one = self.create('one', ['a'])

        def change():
            number = str(next(numbers))
            self.set_metadata(one, {'number': number})
            self.delete(self.create(f'{number} goes', []))
            self.create(f'{number} stays', ['b'])

        follower = following.Follower(self.database)
        for _ in range(3):
            with meanwhile.between_statements(self.database, change):
                follower.poll()
            follower.poll()
            newcomer = following.Follower(self.database)
            newcomer.poll()
            self.assertEqual(newcomer.aggregates, follower.aggregates)
