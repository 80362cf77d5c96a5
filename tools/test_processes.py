# SPDX-License-Identifier: Apache-2.0
"""Run test modules in several processes.

    test_processes.py COUNT MODULE…

A process takes the next module as soon as it has run one, so that all of them
end at about the same time. It imports only what its modules need. The tests of
a module run one after another, and share the fixtures of their classes. The
results are one stream of subunit, on the standard output.

If ``CELLSCHED_TEST_TIMES`` names a file, each module adds a line to it: the
CPU time of the process, the CPU time of its children that have ended, and the
duration, all in seconds, and the name of the module.
"""

from collections.abc import Sequence
import fcntl
import gc
import importlib
import io
import os
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import unittest

import subunit
import testtools

#: Bytes of each name in the pipe. A read of as many bytes gets a whole name.
_NAME_SIZE = 256

#: Names the file of times.
_TIMES = 'CELLSCHED_TEST_TIMES'

#: New objects after which Python looks for cycles. Its default finds hardly
#: any, and each look at all objects takes a fifth of a second.
_NEW_OBJECTS = 20_000


class _Output(io.BufferedIOBase):
    """The standard output, which several processes write to.

    A pipe divides long writes, so each process locks a file while it writes.
    """

    def __init__(self, descriptor: int, lock: int) -> None:
        self._descriptor = descriptor
        self._lock = lock

    def write(self, data: bytes) -> int:
        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            remaining = memoryview(data)
            while remaining:
                remaining = remaining[os.write(self._descriptor, remaining):]
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)
        return len(data)


def run(count: int, modules: Sequence[str]) -> int:
    """Run test modules in this number of processes."""
    names, end = os.pipe()
    with tempfile.TemporaryFile() as lock:
        processes = [
            subprocess.Popen(
                [sys.executable, '-W', 'ignore', '-m', __spec__.name,
                 'process', str(names), str(lock.fileno())],
                pass_fds=(names, lock.fileno()))
            for _ in range(count)]
        os.close(names)
        try:
            for module in modules:
                os.write(end, module.encode().ljust(_NAME_SIZE))
        except BrokenPipeError:
            # No process reads any more: their statuses say so.
            pass
        os.close(end)
        return max(abs(process.wait()) for process in processes)


def run_taken(names: int, lock: int) -> int:
    """Run the modules whose names come from a pipe, until its end."""
    output = _Output(os.dup(1), lock)
    # What tests print is no part of the stream.
    os.dup2(2, 1)
    stream = subunit.StreamResultToBytes(output)
    result = testtools.ExtendedToStreamDecorator(stream)
    result.startTestRun()
    gc.set_threshold(_NEW_OBJECTS)
    while name := os.read(names, _NAME_SIZE).decode().rstrip():
        before = _times()
        try:
            module = importlib.import_module(name)
        except Exception:
            stream.status(
                test_id=name, test_status='fail', eof=True,
                file_name='traceback', mime_type='text/plain; charset=utf8',
                file_bytes=traceback.format_exc().encode())
        else:
            # The modules stay, so no search for cycles needs to read them.
            gc.freeze()
            unittest.defaultTestLoader.loadTestsFromModule(module)(result)
        _note_times(name, before)
    result.stopTestRun()
    return 0


def _times() -> tuple[float, ...]:
    """Return the CPU time of this process, of ended children, and the time."""
    used = map(resource.getrusage, (
        resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return (*(each.ru_utime + each.ru_stime for each in used),
            time.monotonic())


def _note_times(module: str, before: Sequence[float]) -> None:
    """Add the times of a module to the file of times, if there is one."""
    path = os.environ.get(_TIMES)
    if path:
        spent = ' '.join(f'{now - then:.2f}' for now, then in zip(
            _times(), before, strict=True))
        with open(path, 'a', encoding='utf-8') as file:
            file.write(f'{spent} {module}\n')


if __name__ == '__main__':
    if sys.argv[1] == 'process':
        sys.exit(run_taken(*map(int, sys.argv[2:])))
    sys.exit(run(int(sys.argv[1]), sys.argv[2:]))
