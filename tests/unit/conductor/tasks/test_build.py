# SPDX-License-Identifier: Apache-2.0
"""The outcome of a build, and those of a batch."""

import itertools

import oslo_messaging

from cellsched.conductor.tasks import build as build_module
from cellsched import exception
from cellsched import objects
from tests.unit import base

Outcome = build_module.Outcome

LOST = (Outcome.DELETED, Outcome.FINISHED, Outcome.BUILT_ELSEWHERE)


def make(*outcomes):
    """Return a build that came to these, one after the other."""
    build = build_module.Build(
        objects.BuildRequest(instance_uuid='uuid'), None, None)
    for outcome in outcomes:
        build.end(outcome)
    return build


#: How a build comes to each outcome.
WAYS = {
    Outcome.IN_PROGRESS: (),
    Outcome.UNKNOWN: (Outcome.FAILED, Outcome.UNKNOWN),
    **{each: (each,) for each in (
        Outcome.FAILED, Outcome.RETRY, *LOST)}}


class TestBuild(base.TestCase):

    def test_each_outcome_has_its_consequence(self):
        found = {
            outcome: (build.ended, build.to_bury, build.to_retry,
                      build.deleted, build.finished)
            for outcome in Outcome for build in [make(*WAYS[outcome])]}

        self.assertEqual({
            Outcome.IN_PROGRESS: (False, False, False, False, False),
            Outcome.FAILED: (True, True, False, False, False),
            Outcome.RETRY: (True, False, True, False, False),
            Outcome.UNKNOWN: (True, False, True, False, False),
            Outcome.DELETED: (True, False, False, True, False),
            Outcome.FINISHED: (True, False, False, False, True),
            Outcome.BUILT_ELSEWHERE: (True, False, False, False, True)}, found)

    def test_what_the_table_has_not_is_refused(self):
        for before, after in itertools.product(Outcome, Outcome):
            build = make(*WAYS[before])
            if after is before or after in build_module.TRANSITIONS[before]:
                build.end(after)
                self.assertIs(after, build.outcome)
                continue
            with self.assertRaises(build_module.OutcomeConflict) as raised:
                build.end(after, ValueError())
            self.assertEqual(
                ('uuid', before, after),
                (raised.exception.uuid, raised.exception.settled,
                 raised.exception.refused))
            self.assertIs(before, build.outcome)
            self.assertIsNone(build.reason)

    def test_no_step_fails_what_is_settled_elsewhere(self):
        for outcome in LOST:
            self.assertRaises(
                build_module.OutcomeConflict, make(outcome).fail, ValueError())

    def test_first_reason_stays(self):
        build, first = make(), ValueError()
        build.end(Outcome.RETRY, first)
        build.end(Outcome.FAILED, KeyError())

        self.assertIs(first, build.reason)

    def test_what_failed_of_what_passes_is_put_off(self):
        for reason, outcome in (
                (oslo_messaging.MessagingTimeout(), Outcome.RETRY),
                (exception.NoValidHost(reason='Full.'), Outcome.FAILED)):
            build = make()
            build.fail(reason)

            self.assertEqual(
                (outcome, reason), (build.outcome, build.reason))


class TestBatch(base.TestCase):

    def test_what_is_gone_is_not_missed(self):
        for outcome in LOST:
            batch = build_module.Batch([make(), make(outcome)], 2)
            batch.fail_together()

            self.assertEqual(1, batch.needed)
            self.assertFalse(batch.builds[0].ended)

    def test_too_few_have_one_outcome(self):
        for failed, others in (
                ([Outcome.FAILED], Outcome.FAILED),
                ([Outcome.RETRY], Outcome.RETRY),
                ([Outcome.RETRY, Outcome.FAILED], Outcome.FAILED)):
            builds = [make(), *map(make, failed)]
            build_module.Batch(builds, len(builds)).fail_together()

            self.assertEqual({others}, {each.outcome for each in builds})

    def test_what_could_not_be_undone_stays_so(self):
        builds = [make(), make(Outcome.RETRY), make(
            Outcome.FAILED, Outcome.UNKNOWN)]
        build_module.Batch(builds, 3).fail_together()

        self.assertEqual(
            [Outcome.RETRY, Outcome.RETRY, Outcome.UNKNOWN],
            [each.outcome for each in builds])


class TestPasses(base.TestCase):

    def test_what_passes_is_told_from_what_does_not(self):
        remote = type('DeadlineExceeded_Remote',
                      (exception.DeadlineExceeded,), {})
        for error, passing in (
                (exception.DeadlineExceeded(late_s=600), True),
                (remote(late_s=600), True),
                (exception.HostStateUncertain(hosts=9, known=10), True),
                (exception.CellUnreachable(cell='c', reason='r'), True),
                (exception.TransactionLost(schema='API', reason='r'), True),
                (oslo_messaging.MessagingTimeout(), True),
                (oslo_messaging.RemoteError('MessagingTimeout'), True),
                (oslo_messaging.RemoteError('DatabaseUnreachable'), True),
                (oslo_messaging.RemoteError('KeyError'), False),
                (exception.NoValidHost(reason=''), False),
                (exception.PluginFailed(kind='Filter', plugin='p'), False),
                (RuntimeError(), False)):
            self.assertEqual(
                passing, build_module.is_transient(error), repr(error))
