# SPDX-License-Identifier: Apache-2.0
"""Change the product in one place at a time, and see if a test notices.

What survives is printed as a table. The exit code is 0 if that is at most one
change in ten, and each is explained in
doc/source/contributor/mutation-survivors.csv; 1 if not; 2 if tests fail
without a change.
"""

import argparse
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent import futures
import dataclasses
import functools
import pathlib
import queue
import random
import signal
import sys
import time

from cosmic_ray.operators import operator
from rich import box
from rich import console
from rich import table

from cellsched.cli import terminal
import mutants
import operators
import suites
import survivors
import trees

ROOT = pathlib.Path(__file__).resolve().parents[2]

PACKAGES = tuple(suites.BEYOND_UNIT)


@dataclasses.dataclass
class Session:
    """One run: what is changed, where, and how long its tests take.

    :param root: a copy of the tree, for names of tests: in the checkout there
        may be others by now
    :param free: copies of the tree that nobody works in
    """

    root: pathlib.Path
    kinds: dict[str, operator.Operator]
    free: 'queue.Queue[trees.Tree]'
    functional: bool
    timeouts: dict[tuple[str, ...], float] = dataclasses.field(
        default_factory=dict)

    def stages(self, module: str) -> list[list[str]]:
        stages = suites.stages(self.root, module)
        if not self.functional:
            stages = [stage for stage in stages
                      if stage[0].startswith('tests.unit')]
        return stages

    def measure(self, stage: Sequence[str]) -> None:
        """Find out how long tests take where nothing is changed.

        :raises trees.Broken: they fail
        """
        tree = self.free.get()
        begun = time.monotonic()
        try:
            if not tree.passes(stage, None):
                raise trees.Broken(
                    f'{" ".join(stage)} fail, though nothing was changed')
        finally:
            self.free.put(tree)
        self.timeouts[tuple(stage)] = trees.timeout_s(
            time.monotonic() - begun)

    def try_(
        self, mutant: mutants.Mutant, place: int
    ) -> survivors.Survivor | None:
        """Return a change that this stage of its tests does not notice."""
        tree = self.free.get()
        try:
            change = mutant.make(_source(tree.path, mutant), self.kinds)
            assert change is not None
            with tree.changed(mutant.module, change.text):
                for stage in self.stages(mutant.module)[place:place + 1]:
                    if not tree.passes(stage, self.timeouts[tuple(stage)]):
                        return None
        finally:
            self.free.put(tree)
        return survivors.Survivor(mutant, change.told)


def main(arguments: Sequence[str]) -> int:
    options = _parse(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    kinds = operators.made()
    try:
        with trees.copies(ROOT, options.at_once) as copies:
            found = _find(options, copies[0].path, kinds)
            chosen = list(dict.fromkeys(
                mutant for those in found.values() for mutant in those))
            alive = _run(options, kinds, copies, chosen)
    except trees.Broken as exc:
        print(exc, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print('Interrupted; the checkout is as it was.', file=sys.stderr)
        return 130
    reasons = survivors.explained(ROOT)
    _report(found, alive, reasons)
    print(f'{len(alive)} of {len(chosen)} changes survived, '
          f'{sum(each.key not in reasons for each in alive)} of them '
          f'unexplained; --sample {options.sample} --seed {options.seed}')
    return 0 if survivors.passed(len(chosen), alive, reasons) else 1


def _find(
    options: argparse.Namespace, root: pathlib.Path,
    kinds: dict[str, operator.Operator],
) -> dict[str, list[mutants.Mutant]]:
    """Return the changes to make, by package."""
    rng = random.Random(options.seed)
    found = {}
    for package in options.packages or PACKAGES:
        every = [mutant for module in _modules(root, package)
                 for mutant in mutants.find(root, module, kinds)]
        found[package] = _sample(root, every, options.sample, rng, kinds)
        print(f'{package}: {len(found[package])} of {len(every)} changes',
              file=sys.stderr)
    return found


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='tools/mutation.sh', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        'packages', nargs='*', metavar='package|module', type=_package,
        help=f'such as cellsched/claims or '
             f'cellsched/scheduler/selection/placer.py; '
             f'by default {", ".join(PACKAGES)}')
    parser.add_argument(
        '--sample', type=_count, metavar='N',
        help='only so many changes of each, chosen by the seed')
    parser.add_argument('--seed', type=int, default=1, metavar='S')
    parser.add_argument(
        '--at-once', type=_count, default=2, metavar='N',
        help='changes to try at a time; 2 by default')
    parser.add_argument(
        '--unit', action='store_true',
        help='run unit tests only')
    return parser.parse_args(arguments)


def _package(text: str) -> str:
    path = (ROOT / text).resolve()
    product = ROOT / 'cellsched'
    if not path.is_relative_to(product) or path == product or not (
            path.is_dir() or path.suffix == '.py' and path.is_file()):
        raise argparse.ArgumentTypeError(
            f'{text!r} is no package or module below cellsched/')
    return path.relative_to(ROOT).as_posix()


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError('at least 1')
    return number


def _modules(root: pathlib.Path, package: str) -> list[str]:
    path = root / package
    paths = [path] if path.is_file() else sorted(path.rglob('*.py'))
    return [each.relative_to(root).as_posix() for each in paths
            if 'migrations' not in each.parts]


def _source(root: pathlib.Path, mutant: mutants.Mutant) -> str:
    return (root / mutant.module).read_text(encoding='utf-8')


def _sample(
    root: pathlib.Path, every: Sequence[mutants.Mutant], size: int | None,
    rng: random.Random, kinds: dict[str, operator.Operator],
) -> list[mutants.Mutant]:
    """Return so many changes; what cannot be read is none."""
    mixed, seen = rng.sample(every, len(every)), set()
    sources: dict[str, str] = {}
    chosen: list[mutants.Mutant] = []
    for mutant in mixed:
        if size is not None and len(chosen) == size:
            break
        if mutant.module not in sources:
            sources[mutant.module] = _source(root, mutant)
        change = mutant.make(sources[mutant.module], kinds)
        # Two ways to make the same change are one.
        if change is not None and (mutant.module, change.text) not in seen:
            seen.add((mutant.module, change.text))
            chosen.append(mutant)
    return chosen


def _run(
    options: argparse.Namespace, kinds: dict[str, operator.Operator],
    copies: Sequence[trees.Tree], chosen: Sequence[mutants.Mutant],
) -> list[survivors.Survivor]:
    """Try changes, those that unit tests notice first; return survivors."""
    free: queue.Queue[trees.Tree] = queue.Queue()
    for tree in copies:
        tree.check()
        free.put(tree)
    session = Session(copies[0].path, kinds, free, not options.unit)
    alive: list[mutants.Mutant] = list(chosen)
    found: list[survivors.Survivor] = []
    executor = futures.ThreadPoolExecutor(len(copies))
    try:
        # A later stage is measured only if anything has come to it.
        for place in range(3):
            stages = dict.fromkeys(
                tuple(stage) for mutant in alive
                for stage in session.stages(mutant.module)[place:place + 1])
            if not stages:
                break
            _each(executor, session.measure, list(stages), 'Unchanged')
            found = [each for each in _each(
                executor, functools.partial(session.try_, place=place),
                alive, f'Stage {place + 1}') if each is not None]
            alive = [each.mutant for each in found]
    finally:
        copies[0].running.stop()
        executor.shutdown(cancel_futures=True)
    return found


def _each(executor, function, arguments, what):
    """Call a function for each, some at a time, and show how far that is."""
    pending = [executor.submit(function, each) for each in arguments]
    with terminal.progress(what, len(pending), sys.stderr) as show:
        for done, _ in enumerate(futures.as_completed(pending), 1):
            show(done)
    return [each.result() for each in pending]


def _report(
    found: dict[str, list[mutants.Mutant]],
    alive: Sequence[survivors.Survivor],
    reasons: dict[tuple[str, str, str], str],
) -> None:
    out = console.Console(width=None if sys.stdout.isatty() else 160)
    counts = table.Table('of', 'changes', 'survived', box=box.SIMPLE)
    for package, those in found.items():
        counts.add_row(package, str(len(those)), str(sum(
            each.mutant in those for each in alive)))
    out.print(counts)
    rows = table.Table('module', 'line', 'function', 'change', 'explained',
                       box=box.SIMPLE)
    for row in _rows(alive, reasons):
        rows.add_row(*row)
    if alive:
        out.print(rows)


def _rows(
    alive: Sequence[survivors.Survivor],
    reasons: dict[tuple[str, str, str], str],
) -> Iterator[tuple[str, ...]]:
    for each in sorted(alive, key=lambda each: each.mutant):
        mutant = each.mutant
        yield (mutant.module, str(mutant.place[0]), mutant.function,
               each.told.replace('[', '\\['),
               'yes' if each.key in reasons else 'no')


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
