# SPDX-License-Identifier: Apache-2.0
"""Real processes: started, watched, and stopped by their ids."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

import fixtures

from tests.integration import keeper

#: Between two looks at something that is awaited: to look costs time that
#: what is awaited needs. The longer it took so far, the longer the next is.
_INTERVALS_S = 0.02, 0.3
_INTERVAL_SHARE = 0.1

#: What a message about a process quotes of its output.
_TAIL_CHARS = 4000


class ProcessFailed(Exception):
    """A process ended before its time, or with the wrong exit code."""


def wait_until(
    condition: Callable[[], Any], what: str, timeout_s: float = 600.0
) -> Any:
    """Return what the condition returns, as soon as that is true.

    :param what: completes "waited … seconds for …"
    """
    least_s, most_s = _INTERVALS_S
    began_at = time.monotonic()
    while not (result := condition()):
        waited_s = time.monotonic() - began_at
        if waited_s > timeout_s:
            raise TimeoutError(f'waited {timeout_s} seconds for {what}')
        time.sleep(min(max(_INTERVAL_SHARE * waited_s, least_s), most_s))
    return result


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a process that finds our own commands."""
    own = pathlib.Path(sys.executable).parent
    path = os.pathsep.join((str(own), os.environ.get('PATH', os.defpath)))
    return {**os.environ, 'PATH': path, **(extra or {})}


def run(
    args: Sequence[str], directory: pathlib.Path,
    env: Mapping[str, str] | None = None, expected: int = 0,
    timeout_s: float = 600.0, stdin: str = '',
) -> str:
    """Run a command to its end and return its standard output.

    :raises ProcessFailed: its exit code is another than expected
    """
    env = environment(env)
    ended = subprocess.run(
        _found(args, env), cwd=directory, env=env, input=stdin, text=True,
        capture_output=True, timeout=timeout_s)
    if ended.returncode != expected:
        raise ProcessFailed(
            f'{" ".join(args)} ended with {ended.returncode} instead of '
            f'{expected}:\n{ended.stdout}{ended.stderr}')
    return ended.stdout


#: Exit codes, besides 0, of programs that end as they are asked to.
_STOPPED_CODES = {'pgbouncer': 1}


def as_user(name: str) -> list[str]:
    """Return what to put before a command that refuses root."""
    if os.geteuid() != 0:
        return []
    return ['setpriv', f'--reuid={name}', f'--regid={name}', '--clear-groups']


def inside(directory: pathlib.Path) -> list[int]:
    """Return the processes that work in a directory or were told of it."""
    return [int(entry.name) for entry in pathlib.Path('/proc').iterdir()
            if entry.name.isdigit() and int(entry.name) != os.getpid()
            and _is_inside(entry, directory)]


class Process(fixtures.Fixture):
    """A process that runs as long as the fixture, and all that it starts.

    Its output goes to a file. It may be stopped or killed, and started again,
    at any time. If the tests are killed themselves, it is stopped as well.

    :param args: the command, looked up in the interpreter's directory first
    :param directory: where it runs, and where its output goes
    :param name: of the file; otherwise the command's
    :param ready: a pattern that its output has once it is ready, or a
        function that returns true then; otherwise it is so at once
    :param stop_signal: makes it end of its own accord
    """

    def __init__(
        self, args: Sequence[str], directory: pathlib.Path,
        name: str | None = None, env: Mapping[str, str] | None = None,
        ready: str | Callable[[], Any] | None = None,
        ready_timeout_s: float = 600.0,
        stop_signal: signal.Signals = signal.SIGTERM,
        stop_timeout_s: float = 300.0,
    ) -> None:
        self.args = list(args)
        self.directory = directory
        self.name = name or pathlib.Path(args[0]).name
        self.log = directory / f'{self.name}.log'
        self._env = environment(env)
        self._ready = ready
        self._ready_timeout_s = ready_timeout_s
        self._stop_signal = stop_signal
        self._stop_timeout_s = stop_timeout_s
        self._popen: subprocess.Popen[bytes] | None = None
        self._offset = 0

    def _setUp(self) -> None:
        self.addCleanup(self.stop)
        self.start()

    @property
    def pid(self) -> int:
        """The process's id, which is its group's too."""
        assert self._popen is not None, f'{self.name} does not run'
        return self._popen.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._popen is not None and not _has_ended(self._popen.pid)

    def start(self) -> None:
        """Start it, if it does not run, and wait until it is ready.

        :raises ProcessFailed: it ended instead
        :raises TimeoutError: it is not ready in time
        """
        if self.running:
            return
        self.kill()
        self._offset = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open('ab') as output:
            self._popen = subprocess.Popen(
                _found(self.args, self._env), cwd=self.directory,
                env=self._env, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True)
        _write_to_keeper(f'process {self.pid} {int(self._stop_signal)}')
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Ask it to end, if it runs, and wait until it has.

        :raises ProcessFailed: it had ended before, or ended badly
        :raises TimeoutError: it had to be killed
        """
        if self._popen is None:
            return
        pid, asked = self.pid, self.running
        try:
            if asked:
                os.kill(pid, self._stop_signal)
                self._wait(lambda: not self.running, 'it to stop',
                           self._stop_timeout_s)
        finally:
            code = self._reap()
        if not asked or code not in (
                0, -self._stop_signal, _STOPPED_CODES.get(self.name)):
            raise ProcessFailed(
                f'{self.name} ended with {code} '
                f'{"when" if asked else "before it was"} asked to:\n'
                f'{self._tail()}')

    def kill(self) -> None:
        """Kill it, and all that it started, without a warning."""
        if self._popen is not None:
            self._reap()

    def output(self) -> str:
        """Return what it wrote since it was started last."""
        with self.log.open('rb') as log:
            log.seek(self._offset)
            return log.read().decode(errors='replace')

    def wait_for(self, pattern: str, timeout_s: float = 600.0) -> str:
        """Return the first match of a pattern in the output of this run.

        :raises ProcessFailed: it ended first
        :raises TimeoutError: there is none in time
        """
        compiled = re.compile(pattern)
        match = self._wait(lambda: compiled.search(self.output()),
                           f'{pattern!r} in its output', timeout_s)
        return str(match[0])

    def _wait(
        self, condition: Callable[[], Any], what: str, timeout_s: float
    ) -> Any:
        def look() -> Any:
            running = self.running
            result = condition()
            if not result and not running:
                raise ProcessFailed(f'{self.name} ended:\n{self._tail()}')
            return result

        try:
            return wait_until(look, what, timeout_s)
        except TimeoutError as exc:
            raise TimeoutError(
                f'{self.name}: {exc}:\n{self._tail()}') from None

    def _wait_until_ready(self) -> None:
        if isinstance(self._ready, str):
            self.wait_for(self._ready, self._ready_timeout_s)
        elif self._ready is not None:
            self._wait(self._ready, 'it to be ready', self._ready_timeout_s)

    def _tail(self) -> str:
        return self.output()[-_TAIL_CHARS:]

    def _reap(self) -> int:
        """Kill what is left of the process and its group.

        The process stays a zombie until the end, so that its id cannot come
        to mean another group before.
        """
        assert self._popen is not None
        keeper.send(self.pid, signal.SIGKILL)
        wait_until(lambda: not self.running, f'{self.name} to be killed')
        keeper.send(self.pid, signal.SIGKILL)
        _write_to_keeper(f'not process {self.pid}')
        code = self._popen.wait()
        self._popen = None
        return code


def guard(group: int) -> None:
    """Have a group of processes terminated, if this process is killed."""
    _write_to_keeper(f'process {group} {int(signal.SIGTERM)}')


def kill_guarded(group: int) -> None:
    """Kill what is left of a group that is guarded."""
    keeper.send(group, signal.SIGKILL)
    _write_to_keeper(f'not process {group}')


def is_alive(pid: int) -> bool:
    """Return whether a process, of whomever, has not ended."""
    try:
        status = pathlib.Path(f'/proc/{pid}/stat').read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    # A zombie has ended; whoever is its parent now has not looked yet.
    return status.rpartition(')')[2].split()[0] != 'Z'


def make_directory(parent: str) -> pathlib.Path:
    """Return a new directory that goes, at the latest, with this process."""
    directory = pathlib.Path(parent, f'cellsched-{os.urandom(6).hex()}')
    directory.mkdir(mode=0o700)
    _write_to_keeper(f'directory {directory}')
    return directory


def remove_directory(directory: pathlib.Path) -> None:
    """Remove what :func:`make_directory` made."""
    shutil.rmtree(directory)
    _write_to_keeper(f'not directory {directory}')


def _found(args: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """Return the command with its path.

    The path is searched as the process will see it, not as this one does.
    """
    program = shutil.which(args[0], path=env['PATH'])
    if program is None:
        raise FileNotFoundError(f'{args[0]} is not in {env["PATH"]}')
    return [program, *args[1:]]


def _has_ended(pid: int) -> bool:
    """Return whether a child has ended, without taking its exit code."""
    return os.waitid(
        os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _is_inside(entry: pathlib.Path, directory: pathlib.Path) -> bool:
    try:
        cwd = (entry / 'cwd').readlink()
        told = (entry / 'cmdline').read_bytes() + (
            entry / 'environ').read_bytes()
    except OSError:
        # It has ended meanwhile, or is another user's and so not ours.
        return False
    return cwd.is_relative_to(directory) or str(directory).encode() in told


@functools.cache
def _keeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, '-I', keeper.__file__], cwd='/', bufsize=0,
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True)


def _write_to_keeper(line: str) -> None:
    pipe = _keeper().stdin
    assert pipe is not None
    pipe.write(f'{line}\n'.encode())
