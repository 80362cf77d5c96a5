# SPDX-License-Identifier: Apache-2.0
"""The base of all tests."""

import faulthandler
import logging
import pathlib
import signal
import sys

import fixtures
import testtools

from tests import profile  # noqa: F401, it sets how hypothesis works
from tests.unit import compiling

#: Seconds after its time in which a test is to be broken off, and what follows
#: the last one to end.
_GRACE_S = 300

# A shell has what it starts in the background ignore this, and so would what
# tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

compiling.share()


class TestCase(testtools.TestCase):
    """A test that keeps its logs to itself until it fails, and that ends.

    It is broken off when its time is up. Where that does not help, as when a
    thread that it waits for never ends, its process says where each thread is
    and ends as well, for else the whole run would wait and say nothing.
    """

    #: Until a test that hangs is broken off; on a busy machine others, which
    #: do not hang, take ten times as long as on an idle one.
    timeout_s = 900

    def setUp(self) -> None:
        super().setUp()
        # The last one is left on, for the process to end in time too.
        faulthandler.dump_traceback_later(
            self.timeout_s + _GRACE_S, exit=True, file=sys.__stderr__)
        self.useFixture(fixtures.Timeout(self.timeout_s, gentle=True))
        self.useFixture(fixtures.NestedTempfile())
        self.logs = self.useFixture(fixtures.FakeLogger(
            level=0, format='%(message)s', formatter=_Formatter))

    def temporary_directory(self) -> pathlib.Path:
        """Return a directory that goes with the test."""
        return pathlib.Path(self.useFixture(fixtures.TempDir()).path)


class _Formatter(logging.Formatter):
    """Puts the server of a line before its text, as oslo.log does."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        text = super().formatMessage(record)
        uuid = getattr(record, 'instance_uuid', None)
        return f'[instance: {uuid}] {text}' if uuid else text
