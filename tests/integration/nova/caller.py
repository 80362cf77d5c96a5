# SPDX-License-Identifier: Apache-2.0
"""Nova's client in a process of its own."""

from collections.abc import Mapping
import json
import pathlib
import subprocess
import sys
from typing import Any

import fixtures

from benchmarks.peers import environment
from tests.integration import processes
from tests.integration import serving

_CLIENT = pathlib.Path(__file__).with_name('client.py')

#: Number of characters of pip's output in an error.
_OUTPUT_CHARS = 1000


class Caller(fixtures.Fixture):
    """Calls a scheduler with Nova's client.

    The process ends with its standard input, also if the tests are killed.

    :param python: the python of Nova's environment
    :param configuration: a configuration file of Nova
    """

    def __init__(
        self, python: pathlib.Path, configuration: pathlib.Path
    ) -> None:
        self._python = python
        self._configuration = configuration
        self.log = configuration.with_name('nova-client.log')

    def _setUp(self) -> None:
        with self.log.open('wb') as log:
            self._process = subprocess.Popen(
                [self._python, '-I', _CLIENT, self._configuration],
                cwd=self._configuration.parent, env=processes.environment(),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                text=True)
        self.addCleanup(self._end)

    def wait(self) -> None:
        """Wait some seconds until the client is ready."""
        self._read()

    def call(
        self, method: str, pin: str | None = None, /, **arguments: Any
    ) -> Mapping[str, Any]:
        """Return the ``result`` or ``error`` of a method, see ``client``."""
        assert self._process.stdin is not None
        print(json.dumps({'method': method, 'pin': pin,
                          'arguments': arguments}),
              file=self._process.stdin, flush=True)
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise processes.ProcessFailed(
                f'the client of Nova ended:\n{self.log.read_text()}')
        return json.loads(line)

    def _end(self) -> None:
        # A client that does not end is an error.
        try:
            self._process.communicate(timeout=300)
        finally:
            self._process.kill()
            self._process.wait()


def python(place: pathlib.Path = environment.DEFAULT) -> pathlib.Path:
    """Return the python of Nova's environment; create it if necessary.

    :raises tests.integration.serving.NotInstalled: the creation failed
    """
    place = place.expanduser()
    if not environment.is_current(place):
        print(f'Installing Nova into {place}, which takes minutes …',
              file=sys.stderr, flush=True)
    try:
        return environment.make(place)
    except subprocess.CalledProcessError as exc:
        raise serving.NotInstalled(
            f'Nova cannot be installed into {place}: '
            f'{" ".join(str(exc.output).split())[-_OUTPUT_CHARS:]}') from None
