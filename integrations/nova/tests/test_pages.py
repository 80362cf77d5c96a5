# SPDX-License-Identifier: Apache-2.0
"""Commands and output in the administrator guide are correct."""

import datetime
import io
import pathlib
import re
import shlex
import textwrap

import nova.conf

from cellsched_nova import commands
from cellsched_nova import configuration
from cellsched_nova.shadow.commands import ShadowShell
from cellsched_nova.shadow import comparison
from tests import configuration_fixtures

CONF = nova.conf.CONF

PAGES = pathlib.Path(__file__).parents[3] / 'doc/source/admin'

#: The pages about this package.
NAMES = ('existing-service', 'adopting-in-nova', 'in-novas-place',
         'nova-commands')

_BLOCK = re.compile(
    r'^\.\. code-block:: console\n(?:   :\w+: .*\n)*\n((?:   .*\n|\n)+)',
    re.MULTILINE)

#: Commands that the test parses.
APPS = {'cellsched-nova': commands.NovaShell,
        'cellsched-nova-shadow': ShadowShell}


def typed():
    """Yield each command of the pages with its output."""
    for name in NAMES:
        text = (PAGES / f'{name}.rst').read_text(encoding='utf-8')
        for block in map(textwrap.dedent, _BLOCK.findall(text)):
            for part in re.split(r'^\$ ', block, flags=re.MULTILINE)[1:]:
                command, _, output = part.replace('\\\n', '').partition('\n')
                yield shlex.split(command), output.strip()


class Store:
    """A store with the comparisons of a page."""

    def groups(self):
        return [
            self.group(comparison.Outcome.SAME, '', 705, '08:00:00',
                       '12:00:00', 'req-5f0c…', '9d1e…'),
            self.group(comparison.Outcome.EQUAL, '', 291, '08:01:10',
                       '11:59:00', 'req-2b7a…', '01cc…'),
            self.group(comparison.Outcome.WEIGHT, 'RAMWeigher', 4, '11:42:37',
                       '11:50:00', 'req-77e2…', '6a30…')]

    def group(self, outcome, reason, requests, first, last, request, server):
        first_at, last_at = (
            datetime.datetime.fromisoformat(f'2026-03-02T{time}Z').timestamp()
            for time in (first, last))
        return comparison.Group(
            outcome, reason, requests, first_at, last_at,
            comparison.Comparison(
                last_at, request, server, 'host1', 'host2',
                comparison.Verdict(outcome, reason)))


class TestPages(configuration_fixtures.TestCase):

    def app(self, kind):
        return kind(io.StringIO(), io.StringIO())

    def test_commands_and_options_of_the_pages_exist(self):
        parsed = []
        for words, _ in typed():
            if words[0] not in APPS:
                continue
            app = self.app(APPS[words[0]])
            _, rest = app.parser.parse_known_args(words[1:])
            kind, name, arguments = app.command_manager.find_command(rest)
            kind(app, None).get_parser(name).parse_args(arguments)
            parsed.append(name)

        self.assertEqual(
            {'capacity', 'explain', 'host export', 'plan', 'replay', 'report',
             'run'},
            {*parsed})

    def test_report_on_the_page_equals_the_printed_report(self):
        [shown] = [output for words, output in typed()
                   if words == ['cellsched-nova-shadow', 'report']]
        app = self.app(ShadowShell)
        app.store = Store()

        self.assertEqual(0, app.run(['report']), app.stderr.getvalue())

        self.assertEqual(shown, app.stdout.getvalue().strip())

    def test_configuration_error_on_the_page_equals_the_printed_error(self):
        [shown] = [output for words, output in typed()
                   if words[0] == 'cellsched-nova-scheduler' and output]
        CONF.set_override('servicegroup_driver', 'mc')

        self.assertEqual(shown, '\n'.join(
            f'invalid configuration: {each}'
            for each in configuration.problems(CONF)))
