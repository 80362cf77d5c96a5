# SPDX-License-Identifier: Apache-2.0
"""Bars for the terminal: charts, and the progress of an operation."""

import io

import fixtures

from cellsched.cli import terminal
from cellsched.testing import clock
from tests.unit import base
from tests.unit.cli import base as cli_base


#: Shows the cursor, goes back to the line of the bar, and clears it.
CLEARED = '\x1b[?25h\r\x1b[1A\x1b[2K'


class TestProgress(base.TestCase):

    def test_bar_grows_and_is_gone_at_the_end(self):
        stream = cli_base.Terminal()

        with terminal.progress('Building [all]', 4, stream) as advance:
            advance(1)
            advance(8, 8)

        shown = cli_base.without_colors(stream.getvalue())
        self.assertIn(f'Building [all] {"━" * 40} 8/8', shown)
        self.assertTrue(shown.endswith(CLEARED), shown)

    def test_bar_is_cleared_after_an_error(self):
        stream = cli_base.Terminal()

        def fail():
            with terminal.progress('Building', 4, stream):
                raise KeyError

        self.assertRaises(KeyError, fail)

        self.assertTrue(stream.getvalue().endswith(CLEARED))

    def test_long_work_writes_lines_without_a_terminal(self):
        stream, time = io.StringIO(), clock.FakeClock()

        with terminal.progress('Building', 4, stream, time) as advance:
            for done in range(5):
                advance(done)
                time.advance(2)

        self.assertEqual('Building 3/4\n', stream.getvalue())

    def test_short_work_is_silent_without_a_terminal(self):
        stream = io.StringIO()

        with terminal.progress('Building', 4, stream) as advance:
            advance(1)

        self.assertEqual('', stream.getvalue())


def drawn(*bars, encoding='utf-8'):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    terminal.draw([terminal.Bar(*bar) for bar in bars], stream)
    stream.flush()
    return stream.buffer.getvalue().decode(encoding).splitlines()


class TestChart(base.TestCase):

    def test_bar_is_as_long_as_its_share(self):
        self.assertEqual(
            ['a  CPU  ' + ' ' * 30 + '    0%  0 of 8',
             'b  CPU  ' + '━' * 15 + ' ' * 15 + '   50%  4 of 8',
             'c  CPU  ' + '━' * 30 + '  100%  8 of 8'],
            drawn(('a', 'CPU', 0, 8), ('b', 'CPU', 4, 8), ('c', 'CPU', 8, 8)))

    def test_usage_above_the_total_fills_the_bar(self):
        self.assertEqual(
            ['a  CPU  ' + '━' * 30 + '  200%  8 of 4'],
            drawn(('a', 'CPU', 8, 4)))

    def test_bar_of_total_0_is_empty(self):
        self.assertEqual(
            ['a  CPU  ' + ' ' * 30 + '  0%  0 of 0'],
            drawn(('a', 'CPU', 0, 0)))

    def test_label_stands_once_and_names_are_in_columns(self):
        lines = drawn(('long', 'CPU', 1, 2), ('long', 'MEMORY', 1, 2),
                      ('s', 'CPU', 1, 2, 'GB'))

        self.assertEqual(['long  CPU   ', '      MEMORY', 's     CPU   '],
                         [line[:12] for line in lines])
        self.assertTrue(lines[2].endswith('1 of 2 GB'))

    def test_long_label_is_complete_and_is_no_markup(self):
        label = '[red]:smile: ' + 'x' * 200

        [line] = drawn((label, 'CPU', 1, 2))

        self.assertTrue(line.startswith(f'{label}  CPU  ━'), line)

    def test_only_a_terminal_has_colors(self):
        for name, value in (('FORCE_COLOR', '1'), ('NO_COLOR', None),
                            ('TERM', 'xterm')):
            self.useFixture(fixtures.EnvironmentVariable(name, value))
        shown = cli_base.Terminal()
        terminal.draw([terminal.Bar('a', 'CPU', 4, 8)], shown)

        self.assertIn('\x1b[', shown.getvalue())
        self.assertNotIn('\x1b[', drawn(('a', 'CPU', 4, 8))[0])

    def test_stream_without_block_characters_gets_dashes(self):
        self.assertEqual(
            ['a  CPU  ' + '-' * 15 + ' ' * 15 + '  50%  4 of 8'],
            drawn(('a', 'CPU', 4, 8), encoding='ascii'))

    def test_empty_chart_has_no_lines(self):
        self.assertEqual([], drawn())

    def test_sizes_have_readable_units(self):
        bars = [terminal.resource_bar('a', name, total / 4, total)
                for name, total in (
                    ('MEMORY_MB', 25 * 2 ** 20), ('DISK_GB', 200),
                    ('DISK_GB', 2048), ('VCPU', 123456),
                    ('MEMORY_MB', 2 ** 50), ('CUSTOM_GOLD', 4096))]
        stream = io.StringIO()

        terminal.draw(bars, stream)

        self.assertEqual(
            ['6.25 of 25 TB', '50 of 200 GB', '0.5 of 2 TB',
             '30864 of 123456', '256 of 1024 EB', '1024 of 4096'],
            [line.partition('% ')[2].strip()
             for line in stream.getvalue().splitlines()])
