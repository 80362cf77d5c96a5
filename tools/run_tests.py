# SPDX-License-Identifier: Apache-2.0
"""Run parts of the test suite, show how far they are, and count the tests.

    run_tests.py [--environment-s SECONDS] PART…
    run_tests.py [--environment-s SECONDS] unit PATH…

``tools/test.sh`` runs this in the environment that it makes. Integration and
functional tests wait most of the time, so they run beside the other parts. A
path of a module selects its unit tests, and those of the modules that import
it. The exit status is 0 if nothing failed.
"""

import argparse
import collections
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any
from typing import IO

from rich import console
from rich import progress
import subunit
from subunit import test_results
import testtools

from tests import profile
from tests.unit import tidy
from tools import affected

TOP = pathlib.Path(__file__).resolve().parents[1]
LOWEST = TOP / '.venv-lowest'

#: Of what a failed test or command printed, the end says why.
LAST_LINES = 40

#: Added to the niceness of what computes, for the sake of what waits.
NICENESS = 5

#: The status of a test that was still running when its process ended.
BROKEN_OFF = 'inprogress'


@dataclasses.dataclass(frozen=True)
class Check:
    """A command, which counts as one test."""

    name: str
    command: Sequence[str]
    #: The directory of the environment, if it is not that of this process.
    environment: pathlib.Path | None = None


@dataclasses.dataclass(frozen=True)
class Tests:
    """Test modules, which several processes run.

    :param expected: tests that there are, about, for the progress bar
    :param modules: names, those that may take longest first
    """

    name: str
    modules: Sequence[str]
    expected: int
    processes: int
    #: The command that runs the processes, if they do not run by themselves.
    within: Sequence[str] = ()
    environment: pathlib.Path | None = None


Step = Check | Tests


class UnknownPart(Exception):
    """A name that is none of a part."""


@dataclasses.dataclass
class Counts:
    """Tests of a step by their outcome, and what it took."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0

    def __str__(self) -> str:
        return (f'{self.passed} passed, {self.failed} failed, '
                f'{self.skipped} skipped')


class Report:
    """What is printed: a line for each step, and each failure at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.counts: dict[str, Counts] = {}
        self.skips: collections.Counter[str] = collections.Counter()
        #: Tests that the profile leaves out, by reason.
        self.left_out: collections.Counter[str] = collections.Counter()
        self._failures: list[str] = []
        screen = console.Console(stderr=True)
        self._bars = progress.Progress(
            progress.TextColumn('{task.description:12}'),
            progress.BarColumn(), progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(), console=screen, transient=True,
            disable=not screen.is_terminal,
            redirect_stdout=sys.stdout.isatty())

    def __enter__(self) -> 'Report':
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    @contextlib.contextmanager
    def running(self, name: str, expected: int) -> Iterator[
            Callable[[], None]]:
        """Show a progress bar; give what is called after each test."""
        task = self._bars.add_task(name, total=expected)
        done = 0

        def advance() -> None:
            nonlocal done
            done += 1
            self._bars.update(
                task, completed=done, total=max(done, expected))

        try:
            yield advance
        finally:
            self._bars.remove_task(task)

    def failure(self, name: str, text: str) -> None:
        lines = text.rstrip().splitlines()[-LAST_LINES:]
        told = '\n    '.join([name, *lines])
        with self._lock:
            self._failures.append(told)
            print(f'FAILED {told}', flush=True)

    def ended(self, name: str, counts: Counts) -> None:
        with self._lock:
            self.counts[name] = counts
            print(f'{name:16} {counts}; {counts.wall_s:.0f} s, '
                  f'CPU {counts.cpu_s:.0f} s', flush=True)

    def summary(self, environment_s: float, wall_s: float) -> Counts:
        every = Counts(wall_s=environment_s + wall_s)
        for counts in self.counts.values():
            every.passed += counts.passed
            every.failed += counts.failed
            every.skipped += counts.skipped
            every.cpu_s += counts.cpu_s
        if self.left_out:
            print(f'\n{self.left_out.total()} tests are left to '
                  'tools/test.sh full:')
            _print_by_reason(self.left_out)
        if self.skips:
            print('\nSkipped:')
            _print_by_reason(self.skips)
        if self._failures:
            # Above they are among other output.
            print('\nFailed:')
            for told in self._failures:
                print(f'  {told}')
        print(f'\n{profile.NAME} profile: {every.wall_s:.0f} s, '
              f'CPU {every.cpu_s:.0f} s\n{every}')
        return every


def _print_by_reason(reasons: 'collections.Counter[str]') -> None:
    for reason, number in reasons.most_common():
        print(f'  {number:5}  {reason}')


class Runner:
    """Runs steps, and reports them.

    :param directory: of output that is kept until a step ends
    """

    def __init__(self, report: Report, directory: pathlib.Path) -> None:
        self._report = report
        self._directory = directory
        self._running: set[int] = set()
        self._lock = threading.Lock()
        self._ending = False

    def run(self, steps: Sequence[Step], niceness: int = 0) -> None:
        """Run one step after another."""
        for step in steps:
            if self._ending:
                return
            counts, begin = Counts(), time.monotonic()
            try:
                if isinstance(step, Check):
                    self._check(step, counts, niceness)
                else:
                    self._tests(step, counts, niceness)
            except Exception as exc:
                counts.failed += 1
                self._report.failure(step.name, f'{type(exc).__name__}: {exc}')
            counts.wall_s = time.monotonic() - begin
            self._report.ended(step.name, counts)

    def end(self) -> None:
        """End what runs, and all that it has started."""
        with self._lock:
            self._ending = True
            for group in self._running:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGTERM)

    def _check(self, step: Check, counts: Counts, niceness: int) -> None:
        with self._report.running(step.name, 1), self._output(step) as output:
            status = self._wait(self._start(
                step, step.command, niceness, stdout=output,
                stderr=subprocess.STDOUT), counts)
            if status == 0:
                counts.passed += 1
                return
            counts.failed += 1
            output.seek(0)
            self._report.failure(
                step.name, output.read().decode(errors='replace'))

    def _tests(self, step: Tests, counts: Counts, niceness: int) -> None:
        command = [
            *step.within, 'python', '-W', 'ignore', '-m',
            'tools.test_processes', str(step.processes), *step.modules]
        with self._output(step) as errors, self._report.running(
                step.name, step.expected) as advance:
            process = self._start(
                step, command, niceness, stdout=subprocess.PIPE,
                stderr=errors)
            listener = testtools.StreamResultRouter(testtools.StreamToDict(
                lambda test: self._take(test, counts, advance)))
            # Such as what could not be imported.
            listener.add_rule(
                test_results.CatFiles(errors), 'test_id', test_id=None)
            listener.startTestRun()
            subunit.ByteStreamToStreamResult(
                process.stdout, non_subunit_name='output').run(listener)
            listener.stopTestRun()
            status = self._wait(process, counts)
            if not counts.failed and (status or not counts.passed):
                counts.failed += 1
                errors.seek(0)
                self._report.failure(
                    f'{step.name}: the processes ended with {status}',
                    errors.read().decode(errors='replace'))

    def _take(
        self, test: Mapping[str, Any], counts: Counts,
        advance: Callable[[], None],
    ) -> None:
        """Count one test, which has ended."""
        status, details = test['status'], test['details']
        if status in ('success', 'xfail'):
            counts.passed += 1
        elif status == 'skip':
            reason = details['reason'].as_text().strip()
            if reason.startswith(profile.LEFT_OUT):
                self._report.left_out[
                    reason.removeprefix(profile.LEFT_OUT)] += 1
            else:
                counts.skipped += 1
                self._report.skips[reason] += 1
        elif status != 'exists':
            counts.failed += 1
            text = '\n'.join(
                detail.as_text() for name, detail in sorted(details.items())
                if detail.content_type.type == 'text'
                and (name.startswith('traceback') or status == BROKEN_OFF))
            self._report.failure(test['id'], text or f'status: {status}')
        advance()

    def _start(
        self, step: Step, command: Sequence[str], niceness: int,
        **options: Any,
    ) -> 'subprocess.Popen[bytes]':
        env = dict(os.environ)
        if step.environment:
            env['PATH'] = f'{step.environment / "bin"}:{env["PATH"]}'
        nice = ['nice', '-n', str(niceness)] if niceness else []
        with self._lock:
            if self._ending:
                raise RuntimeError('the run was ended')
            process = subprocess.Popen(
                [*nice, *command], cwd=TOP, env=env, process_group=0,
                stdin=subprocess.DEVNULL, **options)
            self._running.add(process.pid)
        return process

    def _wait(
        self, process: 'subprocess.Popen[bytes]', counts: Counts
    ) -> int:
        _, status, used = os.wait4(process.pid, 0)
        with self._lock:
            self._running.discard(process.pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        counts.cpu_s += used.ru_utime + used.ru_stime
        return process.returncode

    @contextlib.contextmanager
    def _output(self, step: Step) -> Iterator[IO[bytes]]:
        with open(self._directory / step.name, 'w+b') as output:
            yield output


def steps_of(part: str) -> list[Step]:
    """Return the steps of a part."""
    return PARTS[part]()


def style() -> list[Step]:
    sources = [str(path.relative_to(TOP)) for path in tidy.files('.py')]
    texts = [str(path.relative_to(TOP)) for path in tidy.files('.rst')
             if path.parent == TOP or TOP / 'doc' in path.parents]
    steps: list[Step] = [
        Check('flake8', ['flake8', '-j2', *sources]),
        Check('doc8', ['doc8', '--quiet', *texts])]
    # reno reads the whole history; an export or a shallow clone has none.
    if (TOP / '.git').exists() and not (TOP / '.git/shallow').exists():
        steps.append(Check('reno', ['reno', '--quiet', 'lint']))
    return [
        *steps,
        Check('shell', ['bash', '-c', 'for script in tools/*.sh findings/*.sh '
                        '.ci/run; do '
                        'bash -n "$script" || exit; done']),
        Check('layers', ['lint-imports', '--no-logo']),
        Check('types', ['mypy'])]


def unit() -> list[Step]:
    return [Tests('unit', _modules('unit'), 7300, COMPUTING)]


def unit_of(paths: Sequence[str]) -> list[Step]:
    """Return the unit tests that changes of modules concern."""
    modules = dict.fromkeys(
        test for path in paths for test in affected.unit_tests(path))
    return [Tests('unit', list(modules), len(modules), COMPUTING)]


def functional() -> list[Step]:
    return [Tests('functional', _modules('functional', 'regressions'), 700,
                  WAITING)]


def integration() -> list[Step]:
    # Servers are heavy: one of each kind for all processes.
    return [Tests(
        'integration', _modules('integration'), 1800, WAITING,
        within=[sys.executable, '-m', 'tests.integration.sharing'])]


def _modules(*directories: str) -> list[str]:
    """Return the names of test modules, the largest first."""
    paths = [path for directory in directories
             for path in (TOP / 'tests' / directory).rglob('test_*.py')]
    paths.sort(key=lambda path: path.stat().st_size, reverse=True)
    return ['.'.join(path.relative_to(TOP).with_suffix('').parts)
            for path in paths]


def docs() -> list[Step]:
    # The second builder reads nothing again.
    return [
        Check('docs', [
            'sphinx-build', '-q', '-E', '-W', '--keep-going', '-b', 'html',
            '-d', 'doc/build/doctrees', 'doc/source', 'doc/build/html']),
        Check('manual', [
            'sphinx-build', '-q', '-W', '--keep-going', '-b', 'man',
            '-d', 'doc/build/doctrees', 'doc/source', 'doc/build/man'])]


def smoke() -> list[Step]:
    """Return what has most to do with libraries, in the lowest versions."""
    return [
        _lowest_environment(),
        Check('imports-lowest', ['python', 'tools/import_modules.py'],
              LOWEST),
        Check('demo-lowest', ['cellsched', 'demo'], LOWEST),
        Tests(
            'unit-lowest', [
                'tests.unit.cli.test_app', 'tests.unit.cli.test_base',
                *_modules('unit/conf', 'unit/objects', 'unit/rpc')],
            600, 1, environment=LOWEST)]


def lowest() -> list[Step]:
    """Return all that needs no servers, in the lowest versions."""
    return [
        _lowest_environment(),
        Tests('unit-lowest', _modules('unit'), 7300, COMPUTING,
              environment=LOWEST),
        Tests('functional-lowest', _modules('functional', 'regressions'), 700,
              COMPUTING, environment=LOWEST)]


def _lowest_environment() -> Check:
    return Check('lowest-versions', [
        'bash', '-euc', 'top=$PWD; . tools/environment.sh; environment=$1; '
        'make_environment lowest', 'tools/test.sh', str(LOWEST)])


#: Processes of tests that compute, and of those that wait most of the time.
COMPUTING = 3
WAITING = profile.size(5, 8)

#: The parts that wait most of the time, in their order.
WAITING_PARTS = ('integration', 'functional')

PARTS: Mapping[str, Callable[[], list[Step]]] = {
    each.__name__: each for each in (
        style, unit, functional, integration, docs, smoke, lowest)}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('parts', nargs='+', metavar='PART',
                        help=f'{", ".join(PARTS)}, or unit and paths')
    parser.add_argument('--environment-s', type=float, default=0.0,
                        help='how long it took to make the environment')
    args = parser.parse_args(argv)
    begin = time.monotonic()
    try:
        rows = _rows(args.parts)
    except (UnknownPart, affected.NoModule) as exc:
        parser.error(str(exc))
    with tempfile.TemporaryDirectory() as directory, Report() as report:
        runner = Runner(report, pathlib.Path(directory))
        threads = [threading.Thread(target=runner.run, args=row)
                   for row in rows]
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            runner.end()
            return 130
    every = report.summary(args.environment_s, time.monotonic() - begin)
    return 1 if every.failed or not every.passed else 0


def _rows(
    parts: Sequence[str],
) -> list[tuple[Sequence[Step], int]]:
    """Return rows of steps that run beside each other, and their niceness.

    :param parts: names of parts, or ``unit`` and paths of modules
    """
    if parts[0] == 'unit' and not set(parts[1:]) <= PARTS.keys():
        return [(unit_of(parts[1:]), 0)]
    if unknown := set(parts) - PARTS.keys():
        raise UnknownPart(f'{min(unknown)} is no part; expected '
                          f'{", ".join(PARTS)}, or unit and paths')
    beside = [step for part in WAITING_PARTS if part in parts
              for step in steps_of(part)]
    steps = [step for part in parts if part not in WAITING_PARTS
             for step in steps_of(part)]
    return [(beside, 0), (steps, NICENESS if beside else 0)]


if __name__ == '__main__':
    sys.exit(main())
