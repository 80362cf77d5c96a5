# SPDX-License-Identifier: Apache-2.0
"""Changes of operators, which schedulers look for."""

from cellsched.db.api import aggregates
from cellsched.db.api import operator_changes
from cellsched import exception
from cellsched.testing import clock
from tests.unit.db.api import base
from tests.unit.db import recording
from tests.unit.db import samples


class TestOperatorChanges(base.TestCase):

    def setUp(self):
        super().setUp()
        self.clock = clock.FakeClock()

    def token(self):
        return operator_changes.token(self.database)

    def names(self):
        return [each.name for each in self.read(aggregates.list_all)]

    def change(self, error=None):
        with operator_changes.known(self.database, self.clock) as connection:
            aggregates.create(
                connection, samples.uuids(1)[0], 'fast', [], {}, samples.NOW)
            if error:
                raise error

    def test_change_advances_the_feed_and_waits(self):
        before, began = self.token(), self.clock.monotonic()

        self.change()

        self.assertEqual(['fast'], self.names())
        self.assertNotEqual(before, self.token())
        self.assertEqual(
            operator_changes.KNOWN_S, self.clock.monotonic() - began)

    def test_failed_change_does_not_advance_the_feed(self):
        before, began = self.token(), self.clock.monotonic()

        self.assertRaises(KeyError, self.change, KeyError('stop'))

        self.assertEqual([], self.names())
        self.assertEqual(before, self.token())
        self.assertEqual(began, self.clock.monotonic())

    def test_wait_begins_after_the_commit(self):
        seen = []
        self.clock.sleep = lambda seconds: seen.append(self.names())

        self.change()

        self.assertEqual([['fast']], seen)

    def test_token_is_read_with_a_single_driver_statement(self):
        with recording.recorded(self.database) as statements:
            self.assertEqual(1, len(self.token()))

        # The driver executes it, without SQLAlchemy.
        self.assertEqual([], statements)

    def test_announcement_is_repeated_after_a_lost_transaction(self):
        before, writer = self.token(), self.database.writer
        losses = [None] * 3

        def lose():
            if losses:
                losses.pop()
                raise exception.TransactionLost(schema='API', reason='lost')
            return writer()

        self.database.writer = lose
        operator_changes.announce(self.database, self.clock)

        self.assertEqual((before[0] + 1,), self.token())
        losses += [None] * 100
        self.assertRaises(
            exception.TransactionLost, operator_changes.announce,
            self.database, self.clock)
