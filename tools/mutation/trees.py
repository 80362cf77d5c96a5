# SPDX-License-Identifier: Apache-2.0
"""Copies of the tree in which modules are changed, and tests run."""

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

#: What tests need of the tree.
_COPIED = ('benchmarks', 'cellsched', 'doc', 'etc', 'examples', 'setup.cfg',
           'tests', 'tools')
_LEFT = shutil.ignore_patterns('__pycache__', 'build', '_generated')

#: Seconds that tests may take: as many times as long as they took, and more.
_TIMES, _LEAST_S = 6, 60


class Broken(Exception):
    """Tests fail though nothing was changed."""


@dataclasses.dataclass(frozen=True)
class Tree:
    """A copy that one thread works in."""

    path: pathlib.Path
    running: 'Running'

    def passes(self, tests: Sequence[str], timeout_s: float | None) -> bool:
        """Whether these test modules pass; too slow is failed."""
        command = [sys.executable, '-B', '-W', 'ignore', '-m',
                   'testtools.run', '--failfast', *tests]
        return self.running.call(command, self.path, timeout_s) == 0

    @contextlib.contextmanager
    def changed(self, module: str, text: str) -> Iterator[None]:
        """Have a module read so meanwhile."""
        path = self.path / module
        before = path.read_text(encoding='utf-8')
        path.write_text(text, encoding='utf-8')
        try:
            yield
        finally:
            path.write_text(before, encoding='utf-8')

    def check(self) -> None:
        """Make sure that tests read this copy, and not the checkout."""
        said = subprocess.run(
            [sys.executable, '-c',
             'import cellsched, tests; print(cellsched.__file__)'],
            cwd=self.path, env=_environment(self.path), check=True,
            capture_output=True, text=True).stdout
        if not said.startswith(str(self.path)):
            raise Broken(f'tests in {self.path} would read {said}')


class Running:
    """Processes of tests, which end with this one however it ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def call(
        self, command: Sequence[str], directory: pathlib.Path,
        timeout_s: float | None,
    ) -> int:
        """Return the exit code; that of one that is too slow is not 0."""
        with self._lock:
            if self._stopped:
                return -1
            process = subprocess.Popen(
                command, cwd=directory, env=_environment(directory),
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True)
            self._processes.add(process)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            _kill(process)
            return -1
        finally:
            with self._lock:
                self._processes.remove(process)

    def stop(self) -> None:
        """End them all, and begin no other."""
        with self._lock:
            self._stopped = True
            for process in self._processes:
                _kill(process)


@contextlib.contextmanager
def copies(root: pathlib.Path, count: int) -> Iterator[list[Tree]]:
    """Give copies of a tree; they go at the end."""
    running = Running()
    with tempfile.TemporaryDirectory(prefix='mutation-') as directory:
        trees = []
        for number in range(count):
            path = pathlib.Path(directory).resolve() / str(number)
            path.mkdir()
            for name in _COPIED:
                if (root / name).is_dir():
                    shutil.copytree(root / name, path / name, ignore=_LEFT)
                else:
                    shutil.copy(root / name, path / name)
            trees.append(Tree(path, running))
        try:
            yield trees
        finally:
            running.stop()


def timeout_s(seconds: float) -> float:
    """Return how long tests may take that took so many seconds."""
    return max(_TIMES * seconds, _LEAST_S)


def _kill(process: 'subprocess.Popen[bytes]') -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _environment(directory: pathlib.Path) -> dict[str, str]:
    return {**os.environ, 'PYTHONPATH': str(directory),
            'PYTHONDONTWRITEBYTECODE': '1'}
