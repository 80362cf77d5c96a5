# SPDX-License-Identifier: Apache-2.0
"""What is tried again, as it passes."""

import oslo_messaging

from cellsched.conductor.tasks import retries
from cellsched import exception
from tests.unit import base


class TestPasses(base.TestCase):

    def test_what_passes_is_told_from_what_does_not(self):
        remote = type('DeadlineExceeded_Remote',
                      (exception.DeadlineExceeded,), {})
        for error, passing in (
                (exception.DeadlineExceeded(late_s=600), True),
                (remote(late_s=600), True),
                (exception.HostsInDoubt(hosts=9, known=10), True),
                (exception.CellUnreachable(cell='c', reason='r'), True),
                (exception.TransactionLost(schema='API', reason='r'), True),
                (oslo_messaging.MessagingTimeout(), True),
                (oslo_messaging.RemoteError('MessagingTimeout'), True),
                (oslo_messaging.RemoteError('DatabaseUnreachable'), True),
                (oslo_messaging.RemoteError('KeyError'), False),
                (exception.NoValidHost(reason=''), False),
                (exception.PluginFailed(kind='Filter', plugin='p'), False),
                (RuntimeError(), False)):
            self.assertEqual(passing, retries.passes(error), repr(error))
