# SPDX-License-Identifier: Apache-2.0
"""Feeds: what changed in a database since a token."""

import sqlalchemy as sa

from cellsched import clock
from cellsched.db import feed
from cellsched.db import session
from cellsched import exception
from tests.unit import base

LANES = 3
METADATA = sa.MetaData()
FEED = feed.Feed('lanes', METADATA, LANES)
THINGS = sa.Table('things', METADATA, sa.Column('name', sa.String(10)),
                  *feed.mark_columns('things'))

#: Keys of different lanes.
KEYS = ('a', 'b', 'g')


class TestFollows(base.TestCase):

    def test_later_positions_follow(self):
        self.assertTrue(feed.follows((1, 2), (1, 2)))
        self.assertTrue(feed.follows((1, 2), (1, 3)))

    def test_earlier_positions_and_other_lanes_do_not(self):
        self.assertFalse(feed.follows((1, 2), (1, 1)))
        self.assertFalse(feed.follows((1, 2), (9, 1)))
        self.assertFalse(feed.follows((1, 2), (1, 2, 0)))


class TestFeed(base.TestCase):

    def setUp(self):
        super().setUp()
        self.database = session.Database(
            f'sqlite:///{self.temporary_directory()}/feed.db', 'cell',
            clock=clock.Clock())
        self.addCleanup(self.database.close)
        with self.database.writer() as connection:
            METADATA.create_all(connection)
            connection.execute(sa.insert(FEED.table), [
                {'lane': lane, 'position': 10 * lane}
                for lane in range(LANES)])
            connection.execute(
                sa.insert(THINGS), [{'name': name} for name in KEYS])

    def token(self):
        with self.database.reader() as connection:
            return FEED.token(connection)

    def change(self, name, key=None):
        with self.database.writer() as connection:
            lane = FEED.move(connection, key or name)
            connection.execute(
                sa.update(THINGS).where(THINGS.c.name == name)
                .values(FEED.marks), {'in_lane': lane})
        return lane

    def changed(self, since):
        with self.database.reader() as connection:
            return set(connection.execute(
                sa.select(THINGS.c.name).where(FEED.changed(THINGS)),
                feed.parameters(since)).scalars())

    def test_token_is_the_positions_in_the_order_of_the_lanes(self):
        self.assertEqual((0, 10, 20), self.token())

    def test_glance_returns_the_token(self):
        self.change('a')
        self.assertEqual(self.token(), FEED.glance(self.database))

    def test_glance_raises_the_error(self):
        with self.database.writer() as connection:
            METADATA.drop_all(connection)

        error = self.assertRaises(
            exception.SchemaOutOfDate, FEED.glance, self.database)
        self.assertIn('one with the table lanes', str(error))

    def test_change_advances_the_lane_of_the_key(self):
        lane = self.change('a')

        self.assertEqual(lane, self.change('a'))
        after = [0, 10, 20]
        after[lane] += 2
        self.assertEqual(tuple(after), self.token())
        with self.database.reader() as connection:
            self.assertEqual(after[lane], FEED.position(connection, lane))

    def test_keys_use_all_lanes(self):
        self.assertEqual({0, 1, 2}, {self.change(name) for name in KEYS})

    def test_marked_rows_have_changed(self):
        first = self.token()
        self.assertEqual(set(), self.changed(first))
        self.change('a')
        second = self.token()
        self.change('b')
        self.change('a', key='g')
        third = self.token()

        self.assertEqual({'a', 'b'}, self.changed(first))
        self.assertEqual({'a', 'b'}, self.changed(second))
        self.assertEqual(set(), self.changed(third))

    def test_rows_without_a_mark_have_not_changed(self):
        self.assertEqual(set(), self.changed((0, 0, 0)))

    def test_lost_lane_is_an_error_naming_the_lane(self):
        with self.database.writer() as connection:
            connection.execute(sa.delete(FEED.table))

        error = self.assertRaises(
            exception.DatabaseError, self.change, 'a')

        self.assertIn('The table lanes has lost its lane', str(error))

    def test_token_without_a_lane_is_an_error_with_a_count(self):
        with self.database.writer() as connection:
            connection.execute(
                sa.delete(FEED.table).where(FEED.table.c.lane == 1))

        for read in (self.token, lambda: FEED.glance(self.database)):
            error = self.assertRaises(exception.DatabaseError, read)

            self.assertIn('The table lanes has 2 of its 3 lanes', str(error))
