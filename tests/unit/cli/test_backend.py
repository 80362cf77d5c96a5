# SPDX-License-Identifier: Apache-2.0

import io

from cellsched.cli import backend
from tests.unit.cli import base


class TestCountingGatherer(base.CommandTestCase):

    def test_terminal_shows_how_many_cells_are_through(self):
        class Gatherer:

            @staticmethod
            def gather(context, cells, function, timeout_s):
                return [function(cell) for cell in cells]

        stream = base.Terminal()

        found = backend.CountingGatherer(Gatherer(), stream).gather(
            None, iter('ab'), str.upper)

        self.assertEqual(['A', 'B'], found)
        self.assertIn('2/2', stream.getvalue())
        self.assertEqual(['A'], backend.CountingGatherer(
            Gatherer(), io.StringIO()).gather(None, 'a', str.upper))
