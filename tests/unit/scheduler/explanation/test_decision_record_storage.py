# SPDX-License-Identifier: Apache-2.0
"""Keeping decisions: nothing waits for ever, and little is lost."""

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


class TestRecorder(base.TestCase):

    def setUp(self):
        super().setUp()
        self.logs = self.useFixture(
            fixtures.FakeLogger('cellsched', level=logging.INFO))
        self.clock = clock.FakeClock()
        self.recorder = self.make()

    def make(self, retention_s=RETENTION_S):
        return decision_record.Recorder(self.database, self.clock, retention_s)

    def record(self, uuid=None, by=None, request_id='req-1', **wishes):
        uuids = samples.uuids(1) if uuid is None else [uuid]
        (by or self.recorder).record(
            context.RequestContext(request_id=request_id),
            builders.request(**wishes), uuids,
            decision_record.Decision(
                3, [decision_record.Count('A', 3, 2, 'is a')], []))
        return uuids[0]

    def found(self, name='req-1'):
        return self.read(decisions.find, name)

    def count(self):
        return self.read(lambda connection: connection.scalar(
            sa.select(sa.func.count()).select_from(
                models.scheduler_decisions)))

    def break_database(self):
        """Let the database fail; return what mends it."""
        def rename(old, new):
            self.write(lambda connection: connection.execute(
                sa.text(f'ALTER TABLE {old} RENAME TO {new}')))

        rename('scheduler_decisions', 'gone')
        return lambda: rename('gone', 'scheduler_decisions')

    def test_decision_is_written_by_the_flush(self):
        uuid = self.record()
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
        for _ in range(5):
            self.record()
        sa.event.listen(self.database.engine, 'commit', commits.append)
        self.recorder._purged_at = self.clock.monotonic()

        self.recorder.flush()

        self.assertEqual((1, 5), (len(commits), self.count()))

    def test_recorder_without_retention_writes_no_decision(self):
        none = self.make(0)
        self.record(by=none)

        none.flush()
        none.close()

        self.assertEqual(0, self.count())

    def test_old_decisions_are_purged_periodically(self):
        self.useFixture(fixtures.MonkeyPatch(
            'cellsched.scheduler.explanation.decision_record.PURGE_ROWS', 2))
        for _ in range(5):
            self.record()
        self.recorder.flush()

        for passed, left in (
                (RETENTION_S, 5), (decision_record.PURGE_SPACING_S - 1, 5),
                (1, 0)):
            self.clock.advance(passed)
            self.recorder.flush()

            self.assertEqual(left, self.count())

    def test_unwritten_decisions_wait_in_order(self):
        mend = self.break_database()
        for number in range(3):
            self.record(request_id=f'req-{number}')
            self.recorder.flush()
        mend()
        self.record(request_id='req-3')

        self.recorder.flush()

        self.assertEqual(2, self.logs.output.count('cannot be written'))
        self.assertEqual(1, self.logs.output.count('this has ended'))
        self.assertEqual(
            [f'req-{number}' for number in range(4)],
            self.read(lambda connection: connection.execute(sa.select(
                models.scheduler_decisions.c.request_id).order_by(
                    models.scheduler_decisions.c.id)).scalars().all()))

    def test_decisions_above_the_limit_are_forgotten_and_counted(self):
        self.useFixture(fixtures.MonkeyPatch(
            'cellsched.scheduler.explanation.decision_record.WAITING_MAX', 3))
        mend = self.break_database()
        for number in range(5):
            self.record(request_id=f'req-{number}')
            if number in (1, 3):
                self.recorder.flush()
        mend()

        self.recorder.flush()

        self.assertEqual([0, 0, 1, 1, 1], [
            len(self.found(f'req-{number}')) for number in range(5)])
        self.assertIn('2 decisions were forgotten', self.logs.output)

    def test_unserializable_decision_does_not_block_other_decisions(self):
        for reason in (object(), 'is a'):
            self.recorder.record(
                context.RequestContext(
                    request_id='good' if reason == 'is a' else 'bad'),
                builders.request(), samples.uuids(1), decision_record.Decision(
                    3, [decision_record.Count('A', 3, 2, reason)], []))

        self.recorder.flush()

        self.assertEqual([0, 1], [len(self.found(name))
                                  for name in ('bad', 'good')])
        self.assertIn('cannot be kept', self.logs.output)

    def test_close_writes_waiting_decisions(self):
        self.record()

        self.recorder.close()

        self.assertEqual(1, self.count())

    def test_close_logs_lost_decisions(self):
        self.break_database()
        self.record()

        self.recorder.close()

        self.assertIn('1 decisions could not be written and are lost',
                      self.logs.output)

    def test_request_id_is_limited_to_storable_characters(self):
        self.record(request_id='req-\0' + 'x' * 300)
        self.recorder.flush()

        [found] = self.found('req-' + 'x' * 250)
        self.assertEqual(found.request_id, found.document['request_id'])
