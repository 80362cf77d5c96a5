# SPDX-License-Identifier: Apache-2.0
"""What becomes of a build that failed."""

import itertools

from cellsched.conductor.tasks import saga as tasks
from cellsched import exception
from tests.unit import base

FLAGS = ('deleted', 'finished', 'unclear', 'later')


class TestBuild(base.TestCase):

    def test_each_fate_is_one(self):
        failures = (None, exception.NoValidHost(reason='Full.'))
        for failed, *flags in itertools.product(
                failures, *[(False, True)] * len(FLAGS)):
            fields = dict(zip(FLAGS, flags))
            build = tasks.Build(None, None, None, failed=failed, **fields)
            gone = build.deleted or build.finished

            self.assertEqual(failed is not None or gone, build.ended)
            # Who has gone is nobody's to bury; who left something is later's.
            self.assertEqual(
                failed is not None and flags == [False] * 4,
                build.to_bury, fields)
            self.assertEqual(
                failed is not None and not gone
                and (build.unclear or build.later),
                build.to_try_again, fields)
