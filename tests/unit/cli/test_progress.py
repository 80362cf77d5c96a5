# SPDX-License-Identifier: Apache-2.0

import io

from cellsched.cli import progress
from cellsched.testing import clock
from tests.unit import base
from tests.unit.cli import base as cli_base


class TestBar(base.TestCase):

    def test_bar_grows_and_is_gone_at_the_end(self):
        stream = cli_base.Terminal()

        with progress.bar('Building', 4, stream) as advance:
            advance(1)
            advance(4)

        frames = stream.getvalue().split('\r')
        self.assertEqual(
            [0, 10, 40], [frame.count('#') for frame in frames[1:4]])
        self.assertIn('Building', frames[1])
        self.assertIn('1/4', frames[2])
        self.assertEqual('\x1b[K', frames[4])

    def test_bar_is_gone_after_an_error_too(self):
        stream = cli_base.Terminal()

        def fail():
            with progress.bar('Building', 4, stream):
                raise KeyError

        self.assertRaises(KeyError, fail)

        self.assertTrue(stream.getvalue().endswith('\r\x1b[K'))

    def test_long_work_writes_lines_where_there_is_no_terminal(self):
        stream, time = io.StringIO(), clock.FakeClock()

        with progress.bar('Building', 4, stream, time) as advance:
            for done in range(5):
                advance(done)
                time.advance(2)

        self.assertEqual('Building 3/4\n', stream.getvalue())

    def test_nothing_is_shown_where_there_is_no_terminal(self):
        stream = io.StringIO()

        with progress.bar('Building', 4, stream) as advance:
            advance(1)

        self.assertEqual('', stream.getvalue())
