# SPDX-License-Identifier: Apache-2.0
"""The base of the tests of commands: real ones, run in this process."""

import contextlib
import dataclasses
import io
import json
import re
from typing import Any
from urllib import parse
import uuid

import fixtures

from cellsched.cli import app
from cellsched import clock
from cellsched.conf import loader
from cellsched.testing import databases
from cellsched.wiring import services
from tests.unit import base

#: A password with everything that is special anywhere.
PASSWORD = '@:/%#\'" x'

#: The same as it has to stand in a URL.
QUOTED = parse.quote(PASSWORD, safe='')


@dataclasses.dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """What it printed as JSON."""
        return json.loads(self.out)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def without_colors(text: str) -> str:
    """Return what a terminal shows, without the codes of colors."""
    return re.sub(r'\x1b\[[0-9;]*m', '', text)


class StillClock(clock.Clock):
    """A clock by which nothing takes so long that a command tells of it."""

    def monotonic(self) -> float:
        return 0.0


class CommandTestCase(base.TestCase):
    """A test of commands, with a configuration file ``api.conf``."""

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_directory()
        for name in ('OS_PROJECT_ID', 'OS_USER_ID'):
            self.useFixture(fixtures.EnvironmentVariable(name))
        self.world = uuid.uuid4().hex
        self.api_conf = self.directory / 'api.conf'

    def write(self, name, **groups):
        """Write a configuration file and return its path."""
        path = self.directory / name
        lines = []
        for group, options in groups.items():
            lines.append(f'[{group}]')
            lines += [f'{option} = {value}'
                      for option, value in options.items()]
        path.write_text('\n'.join(lines) + '\n')
        return path

    def sqlite(self, name):
        return f'sqlite:///{self.directory}/{name}.sqlite'

    def local(self, name):
        return f'local://{self.world}/{name}'

    def write_api_conf(self, connection=None, **groups):
        """Write ``api.conf``, by default with a database that is migrated."""
        if connection is None:
            connection = self.useFixture(databases.APIDatabase()).url
        return self.write(
            'api.conf', DEFAULT={'transport_url': self.local('api')},
            api_database={'connection': connection}, **groups)

    def run_app(
        self, application, *argv, stderr=None, clock=None, **commands
    ):
        """Run an application, with more commands than it has."""
        stdout = io.StringIO()
        stderr = stderr or io.StringIO()
        made = application(stdout, stderr, clock)
        for name, added in commands.items():
            made.command_manager.add_command(name, added)
        # Parsers are not told where to go with their help.
        with (contextlib.redirect_stdout(stdout),
              contextlib.redirect_stderr(stderr)):
            code = made.run([str(word) for word in argv])
        return Ran(code, stdout.getvalue(), stderr.getvalue())

    def shell(self, *argv, **options):
        """Run ``cellsched`` with ``api.conf``."""
        return self.run_app(
            app.Shell, '--config-file', self.api_conf, *argv, **options)

    def manage(self, *argv, conf=('api.conf',)):
        """Run ``cellsched-manage`` with these configuration files."""
        files = [f'--config-file={self.directory / name}' for name in conf]
        return self.run_app(app.Manage, *files, *argv)

    def parts(self, name):
        """Return the parts that a configuration file wires."""
        parts = services.Components(loader.load(
            files=[str(self.directory / name)], dirs=[]))
        self.addCleanup(parts.close)
        return parts

    def assertEnds(self, code, ran, *texts):
        """The command ended so, with these texts in its one line of errors."""
        self.assertEqual(code, ran.code, ran.err)
        self.assertEqual(1, len(ran.err.splitlines()), ran.err)
        for text in texts:
            self.assertIn(text, ran.err)

    def assertKeepsSecrets(self, *rans):
        for ran in rans:
            for text in (ran.out, ran.err):
                for secret in (PASSWORD, QUOTED):
                    self.assertNotIn(secret, text)
