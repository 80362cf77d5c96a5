# SPDX-License-Identifier: Apache-2.0
"""Keeping decisions: nothing waits for ever, and little is lost."""

import contextlib
import json
import logging

import fixtures
import sqlalchemy as sa

from cellsched import context
from cellsched.db.api import decisions
from cellsched.db.api import models
from cellsched.scheduler.explanation import decision_record
from cellsched.testing import builders
from cellsched.testing import clock
from tests.unit.db.api import base
from tests.unit.db import samples

RETENTION_S = 100

TABLE = models.scheduler_decisions


class RecorderCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.logs = self.useFixture(
            fixtures.FakeLogger('cellsched', level=logging.INFO))
        self.clock = clock.FakeClock()
        self.recorder = decision_record.Recorder(
            self.database, self.clock, RETENTION_S)

    def patch_recorder(self, **values):
        for name, value in values.items():
            self.patch(decision_record, name, value)

    def record(self, count=1, by=None, request_id='req-1', uuids=None,
               reason='is a'):
        for _ in range(count):
            (by or self.recorder).record(
                context.RequestContext(request_id=request_id),
                builders.request(), uuids or samples.uuids(1),
                decision_record.Decision(
                    3, [decision_record.Count('A', 3, 2, reason)], []))

    def found(self, name='req-1'):
        return self.read(decisions.find, name)

    def count(self):
        return self.read(lambda connection: connection.scalar(
            sa.select(sa.func.count()).select_from(TABLE)))

    @contextlib.contextmanager
    def broken_database(self):
        def rename(old, new):
            self.write(lambda connection: connection.execute(
                sa.text(f'ALTER TABLE {old} RENAME TO {new}')))

        rename('scheduler_decisions', 'gone')
        yield
        rename('gone', 'scheduler_decisions')

    def log_count(self, text):
        return self.logs.output.count(text)


class TestWritten(RecorderCase):

    def test_row_has_the_time_of_the_write(self):
        self.record()
        self.clock.advance(7)

        self.recorder.flush()

        [row] = self.read(lambda connection: connection.execute(
            sa.select(TABLE)).all())
        self.assertEqual((self.clock.now(), self.clock.timestamp() - 7),
                         (row.created_at, row.decided_at))

    def test_document_has_no_spaces(self):
        self.record()

        self.recorder.flush()

        text = self.read(lambda connection: connection.scalar(
            sa.select(TABLE.c.document)))
        self.assertEqual(
            json.dumps(json.loads(text), separators=(',', ':')), text)

    def test_instances_are_copied_at_the_decision(self):
        uuids = samples.uuids(2)
        said = list(uuids)
        self.record(uuids=said)
        said.clear()

        self.recorder.flush()

        [row] = self.read(decisions.find, uuids[0])
        self.assertEqual((uuids, uuids),
                         (row.instances, row.document['instances']))

    def test_request_without_an_id_has_no_id(self):
        [uuid] = samples.uuids(1)
        for said in None, '':
            by = context.RequestContext()
            by.request_id = said
            self.recorder.record(
                by, builders.request(), [uuid],
                decision_record.Decision(3, [], []))

        self.recorder.flush()

        self.assertEqual(
            [None] * 2, [row.request_id for row in self.found(uuid)])

    def test_request_id_is_limited_to_readable_characters(self):
        for said, kept in (
                ('r' * 255, 'r' * 255), ('s' * 256, 's' * 255),
                ('r\u00e9q', 'rq'), ('s\nq', 'sq'), ('r q', 'r q'),
                ('req-\0' + 'x' * 300, 'req-' + 'x' * 250)):
            self.record(request_id=said)
            self.recorder.flush()

            [found] = self.found(kept)
            self.assertEqual((kept, kept), (
                found.request_id, found.document['request_id']))

    def test_decision_is_written_by_the_flush(self):
        [uuid] = uuids = samples.uuids(1)
        self.record(uuids=uuids)
        self.assertEqual([], self.found())

        self.recorder.flush()

        [found] = self.found(uuid)
        self.assertEqual(
            ('req-1', 1_700_000_000.0, [uuid]),
            (found.request_id, found.decided_at, found.instances))
        self.assertEqual(
            (1, '2023-11-14T22:13:20.000Z', 'req-1', 3, [
                {'by': 'A', 'entered': 3, 'left': 2, 'reason': 'is a'}]),
            tuple(found.document[name] for name in (
                'version', 'decided_at', 'request_id', 'hosts', 'stages')))

    def test_batch_is_written_in_a_single_transaction(self):
        commits = []
        self.record(5)
        sa.event.listen(self.database.engine, 'commit', commits.append)
        self.recorder._purged_at = self.clock.monotonic()

        self.recorder.flush()

        self.assertEqual((1, 5), (len(commits), self.count()))

    def test_recorder_without_retention_writes_no_decision(self):
        none = decision_record.Recorder(self.database, self.clock, 0)
        self.record(by=none)

        none.flush()
        none.close()

        self.assertEqual(0, self.count())

    def test_old_decisions_are_purged_periodically(self):
        self.patch_recorder(PURGE_ROWS=2)
        self.record(5)
        self.recorder.flush()

        for passed, left in (
                (RETENTION_S, 5), (decision_record.PURGE_SPACING_S - 1, 5),
                (1, 0)):
            self.clock.advance(passed)
            self.recorder.flush()

            self.assertEqual(left, self.count())

    def test_unwritten_decisions_wait_in_order(self):
        with self.broken_database():
            for number in range(3):
                self.record(request_id=f'req-{number}')
                self.recorder.flush()
        self.record(request_id='req-3')

        self.recorder.flush()

        self.assertEqual(2, self.log_count('cannot be written'))
        self.assertEqual(1, self.log_count('this has ended'))
        self.assertEqual(
            [f'req-{number}' for number in range(4)],
            self.read(lambda connection: connection.execute(
                sa.select(TABLE.c.request_id).order_by(TABLE.c.id)
            ).scalars().all()))

    def test_decisions_above_the_limit_are_forgotten_and_counted(self):
        self.patch_recorder(WAITING_MAX=3)
        with self.broken_database():
            for number in range(5):
                self.record(request_id=f'req-{number}')
                if number in (1, 3):
                    self.recorder.flush()

        self.recorder.flush()

        self.assertEqual([0, 0, 1, 1, 1], [
            len(self.found(f'req-{number}')) for number in range(5)])
        self.assertIn('2 decisions were forgotten', self.logs.output)

    def test_unserializable_decision_does_not_block_other_decisions(self):
        for name, reason in (('bad', object()), ('good', 'is a')):
            self.record(request_id=name, reason=reason)

        self.recorder.flush()

        self.assertEqual([0, 1], [len(self.found(name))
                                  for name in ('bad', 'good')])
        self.assertIn('cannot be kept', self.logs.output)

    def test_close_logs_lost_decisions(self):
        with self.broken_database():
            self.record()

            self.recorder.close()

        self.assertIn('1 decisions could not be written and are lost',
                      self.logs.output)


class TestAgain(RecorderCase):

    def test_each_failure_and_each_recovery_is_logged_once(self):
        for times in 1, 2:
            with self.broken_database():
                self.record()
                for _ in range(2):
                    self.recorder.flush()
                self.assertEqual(times - 1, self.log_count('this has ended'))
                # The end of each failure begins with the same words.
                self.assertEqual(2 * times - 1,
                                 self.log_count('cannot be written'))
            for _ in range(2):
                self.record()
                self.recorder.flush()

            self.assertEqual(times, self.log_count('this has ended'))
        self.assertEqual(6, self.count())

    def test_forgotten_decisions_are_counted_once(self):
        self.patch_recorder(WAITING_MAX=3)
        self.record(5)
        self.recorder.flush()
        self.assertEqual(1, self.log_count('2 decisions were forgotten'))

        self.record(4)
        self.recorder.flush()
        self.record()
        self.recorder.flush()

        self.assertEqual(1, self.log_count('1 decisions were forgotten'))
        self.assertEqual((2, 7), (self.log_count('forgotten'), self.count()))

    def test_as_many_wait_as_may(self):
        self.patch_recorder(WAITING_MAX=3)
        self.record(3)

        self.recorder.flush()

        self.assertEqual((3, 0), (self.count(), self.log_count('forgotten')))

    def test_close_without_losses_logs_no_line(self):
        self.record()

        self.recorder.close()

        self.assertEqual((1, ''), (self.count(), self.logs.output))


class TestPurge(RecorderCase):

    def setUp(self):
        super().setUp()
        self.patch_recorder(PURGE_ROWS=2, PURGE_ROUNDS=3)

    def age(self, count):
        """Write decisions, and let them become too old."""
        self.recorder._purged_at = self.clock.monotonic()
        self.record(count)
        self.recorder.flush()
        self.clock.advance(RETENTION_S + 1)

    def transactions(self):
        """Flush; return how many transactions that took."""
        commits = []

        def listen(connection):
            commits.append(connection)

        sa.event.listen(self.database.engine, 'commit', listen)
        self.recorder.flush()
        sa.event.remove(self.database.engine, 'commit', listen)
        return len(commits)

    def test_purge_removes_a_limited_number_of_rows(self):
        self.age(7)

        self.recorder.flush()
        self.assertEqual(1, self.count())
        self.recorder.flush()
        self.assertEqual(1, self.count())
        self.clock.advance(decision_record.PURGE_SPACING_S)
        self.recorder.flush()
        self.assertEqual(0, self.count())

    def test_purge_ends_after_the_last_old_row(self):
        for count, transactions in ((1, 1), (2, 2), (3, 2), (6, 3)):
            self.age(count)

            self.assertEqual(transactions, self.transactions())

            self.assertEqual(0, self.count())

    def test_decisions_within_the_retention_are_kept(self):
        self.record()
        self.recorder.flush()
        self.clock.advance(RETENTION_S)

        self.recorder.flush()

        self.assertEqual(1, self.count())

    def test_recorder_without_retention_removes_no_rows(self):
        self.age(1)

        decision_record.Recorder(self.database, self.clock, 0).flush()

        self.assertEqual(1, self.count())

    def test_failed_purge_is_logged_and_repeated_later(self):
        self.age(1)
        with self.broken_database():
            for _ in range(2):
                self.recorder.flush()
        self.assertEqual(1, self.log_count('Old decisions cannot be removed'))
        self.assertEqual(1, self.count())

        self.clock.advance(decision_record.PURGE_SPACING_S)
        self.recorder.flush()

        self.assertEqual(0, self.count())

    def test_purge_is_skipped_while_writes_fail(self):
        self.age(1)
        with self.broken_database():
            self.record()
            self.recorder.flush()
        self.assertEqual(0, self.log_count('cannot be removed'))

        self.recorder.flush()

        self.assertEqual(1, self.count())
