# SPDX-License-Identifier: Apache-2.0
"""The page "How a host is chosen": commands and output."""

import configparser
import contextlib
import io
import pathlib
import re
import shlex
import string
import textwrap

from cellsched.cli import app
from cellsched.standalone import deployment
from tests.functional import base

PAGE = (pathlib.Path(__file__).parents[2]
        / 'doc/source/admin/decision.rst')

_BLOCK = re.compile(
    r'^\.\. code-block:: (\w+)\n((?:   :\w+: .*\n)*)\n((?:   .*\n|\n)+)',
    re.MULTILINE)

#: A command whose output is kept under a name.
_KEPT = re.compile(r'(\w+)=\$\((.*)\)')


class TestDecisionPage(base.TestCase):

    def setUp(self):
        super().setUp()
        # What precedes this section are examples for deployments of others.
        _, heading, section = PAGE.read_text().partition(
            '\nChoose hosts by their cell\n')
        self.assertTrue(heading)
        self.page = section
        self.kept = {}
        self.followed = []

    def deploy_page(self, **options):
        """Start the deployment that the page speaks of."""
        self.deploy({
            'north': ['n1', deployment.DeployedHost('n2', memory_mb=32768)],
            'south': ['s1']}, **options)
        self.world.api.flavors.create(base.ADMIN, 'm1.small', 1, 2048, 20)

    def blocks(self, wanted):
        """Yield the blocks of a language, each with its options."""
        for language, options, text in _BLOCK.findall(self.page):
            if language == wanted:
                yield options, textwrap.dedent(text)

    def options(self):
        """Return what the page says that the configuration must have."""
        parser = configparser.ConfigParser()
        for _, text in self.blocks('ini'):
            parser.read_string(text)
        return {group: dict(parser[group]) for group in parser.sections()}

    def type(self, command, code):
        """Run a command; return what it printed."""
        kept = _KEPT.fullmatch(command)
        words = shlex.split(string.Template(
            kept[2] if kept else command).substitute(self.kept))
        self.assertEqual('cellsched', words.pop(0))
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            ended = app.Shell(out, err).run([
                '--config-file',
                str(self.world.directory / 'etc' / 'api.conf'), *words])
        self.assertEqual((code, ''), (ended, err.getvalue()), command)
        self.followed.append(command)
        if kept:
            self.kept[kept[1]] = out.getvalue().strip()
        return '' if kept else out.getvalue()

    def test_commands_print_the_output_of_the_page(self):
        self.deploy_page(**self.options())

        for options, text in self.blocks('console'):
            code = 2 if 'ends with 2' in options else 0
            for part in re.split(r'^\$ ', text, flags=re.MULTILINE)[1:]:
                command, _, shown = part.strip().partition('\n')
                printed = self.type(command, code)
                if '…' not in shown:
                    self.assertEqual(shown.strip(), printed.strip(), command)
                for line in shown.replace('…', '').split('\n'):
                    self.assertIn(line.strip(), printed, command)

        # The page has been read, and not some other one.
        for words in ('server group create', 'aggregate create',
                      'aggregate add-host', 'aggregate set', 'plan'):
            self.assertIn(words, ' '.join(self.followed))

    def test_reason_during_silence_equals_the_page(self):
        # Where this machine hangs for a moment, all cells are silent for it.
        self.deploy_page(scheduler={'stale_cell_timeout': 2},
                         conductor={'recovery_interval': 1})
        self.built()
        self.take_down('south')

        # Until then the hosts are decided on as they were last known.
        refused = self.until(
            lambda: next((found for found in self.built(flavor='huge')
                          if 'is in a cell' in found.reason), None),
            'the hosts of the cell are out')

        self.assertEqual([refused.reason], re.findall(
            r'^ +(No valid host .*)', self.page, re.MULTILINE))
