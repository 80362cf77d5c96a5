# SPDX-License-Identifier: Apache-2.0
"""Commands of this project, each a process of its own that starts at once.

What a command imports takes a second. Here a process imports it once, and is
forked for each command, which then has its own arguments, directory and
output, and ends with an exit code, as if it had been started from a shell.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import importlib
from importlib import metadata
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
from typing import Any

import fixtures

from tests.integration import processes

#: Of the project, with the modules that their sub-commands are in.
PROGRAMS = {'cellsched': 'cellsched.cli', 'cellsched-manage':
            'cellsched.manage'}

#: What commands import only when they need it, and takes long.
NEEDED = ('alembic.command', 'cellsched.api.flavors', 'cellsched.api.servers',
          'cellsched.wiring.api', 'cellsched.wiring.services',
          'cellsched.claims.sql', 'cellsched.listing.servers', 'oslo_policy',
          'psycopg2', 'sqlalchemy.dialects.postgresql', 'wcwidth')

#: Where this package is found.
ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Ended:
    """What a command wrote, and the exit code that it ended with."""

    code: int
    output: str
    errors: str


class Commands(fixtures.Fixture):
    """Runs commands, one after the other.

    :param args: start what calls :func:`serve`
    :param env: more of its environment
    """

    def __init__(
        self, args: Sequence[str] = (sys.executable, '-m', __name__),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._args = args
        self._env = processes.environment(env)

    def _setUp(self) -> None:
        self._lock = threading.Lock()
        # It ends with its standard input, and so when the tests are killed.
        self._process = subprocess.Popen(
            self._args, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=self._env, text=True,
            # Benchmarks, which use this too, run in other directories.
            cwd=ROOT)
        self.addCleanup(self._end)

    def run(
        self, args: Sequence[str], directory: pathlib.Path, expected: int = 0
    ) -> str:
        """Run a command to its end and return its standard output.

        :raises tests.integration.processes.ProcessFailed: its exit code is
            another than expected
        """
        ended = self.end_of(args, directory)
        if ended.code != expected:
            raise processes.ProcessFailed(
                f'{" ".join(args)} ended with {ended.code} instead of '
                f'{expected}:\n{ended.output}{ended.errors}')
        return ended.output

    def end_of(self, args: Sequence[str], directory: pathlib.Path) -> Ended:
        """Run a command to its end, whichever that is."""
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            print(json.dumps({'args': args, 'directory': str(directory)}),
                  file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        if not line:
            raise processes.ProcessFailed('what runs commands has ended')
        return Ended(**json.loads(line))

    def _end(self) -> None:
        self._process.communicate(timeout=300)


def serve(programs: Mapping[str, Callable[[], Any]]) -> None:
    """Run what each line of the standard input says.

    :param programs: the main functions, by the commands' names
    """
    for line in sys.stdin:
        order = json.loads(line)
        with (tempfile.TemporaryFile() as output,
              tempfile.TemporaryFile() as errors):
            pid = os.fork()
            if not pid:
                _redirect(output.fileno(), errors.fileno())
                os.chdir(order['directory'])
                sys.argv = order['args']
                sys.exit(programs[sys.argv[0]]())
            _, status = os.waitpid(pid, 0)
            print(json.dumps({
                'code': os.waitstatus_to_exitcode(status),
                'output': _content(output.fileno()),
                'errors': _content(errors.fileno())}), flush=True)


def _programs() -> dict[str, Callable[[], None]]:
    """Return the main functions, with all that they may use imported."""
    points = metadata.entry_points()
    for namespace in PROGRAMS.values():
        for point in points.select(group=namespace):
            point.load()
    for name in NEEDED:
        importlib.import_module(name)
    return {point.name: point.load() for point in
            points.select(group='console_scripts') if point.name in PROGRAMS}


def _redirect(output: int, errors: int) -> None:
    """Have this process write into files, and read nothing."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (errors, 2)):
        os.dup2(source, target)


def _content(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0).decode(errors='replace')


if __name__ == '__main__':
    serve(_programs())
