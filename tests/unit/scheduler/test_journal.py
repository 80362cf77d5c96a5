# SPDX-License-Identifier: Apache-2.0
"""Lines of the log that are written later."""

import logging

import fixtures

from cellsched import context
from cellsched.scheduler import journal
from tests.unit import base

LOGGER = logging.getLogger('cellsched.journal.test')


class TestJournal(base.TestCase):

    def setUp(self):
        super().setUp()
        self.logs = self.useFixture(fixtures.FakeLogger(
            LOGGER.name, level=logging.INFO, format='%(context)s %(message)s'))
        self.journal = journal.Journal()

    def say(self, *said):
        self.journal.say(LOGGER, 'who', *said)

    def test_lines_are_written_later_and_in_order(self):
        self.say('%d is %s', 1, 'one')
        self.say('done')
        self.assertEqual('', self.logs.output)

        self.journal.write()
        self.journal.write()

        self.assertEqual('who 1 is one\nwho done\n', self.logs.output)

    def test_line_has_the_time_at_which_it_was_said(self):
        records = []
        handler = logging.Handler()
        handler.emit = records.append
        LOGGER.addHandler(handler)
        self.addCleanup(LOGGER.removeHandler, handler)
        self.say('first')
        LOGGER.info('then', extra={'context': None})

        self.journal.write()

        then, first = records
        self.assertEqual(('first', 'then'), (first.msg, then.msg))
        self.assertGreaterEqual(then.created, first.created)

    def test_too_many_lines_are_written_by_who_says_them(self):
        for _ in range(journal.WAITING_MAX + 1):
            self.say('more')

        self.assertEqual(journal.WAITING_MAX + 1,
                         self.logs.output.count('more'))

    def test_nothing_waits_that_nobody_wants_to_read(self):
        LOGGER.setLevel(logging.WARNING)
        self.say('hidden')
        LOGGER.setLevel(logging.INFO)

        self.journal.write()

        self.assertEqual('', self.logs.output)

    def test_line_that_is_said_at_once_is_the_same(self):
        journal.say_now(LOGGER, context.admin(), '%s', 'this')

        self.assertIn('this\n', self.logs.output)
