# SPDX-License-Identifier: Apache-2.0
"""What recorders do again, and what they give up."""

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

    def record(self, count=1, request_id='req-1', uuids=None):
        for _ in range(count):
            self.recorder.record(
                context.RequestContext(request_id=request_id),
                builders.request(), uuids or samples.uuids(1),
                decision_record.Decision(3, [], []))

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
            self.assertIsNone(decision_record._request_id(said))
        with_none = context.RequestContext()
        with_none.request_id = None
        self.recorder.record(
            with_none, builders.request(), [uuid],
            decision_record.Decision(3, [], []))

        self.recorder.flush()

        [row] = self.read(decisions.find, uuid)
        self.assertIsNone(row.request_id)

    def test_request_id_is_limited_to_readable_characters(self):
        for said, kept in (
                ('r' * 255, 'r' * 255), ('r' * 256, 'r' * 255),
                ('r\u00e9q', 'rq'), ('r\nq', 'rq'), ('r q', 'r q')):
            self.assertEqual(kept, decision_record._request_id(said))


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
