# SPDX-License-Identifier: Apache-2.0
"""Remove each guard of the claim path, and see if its test notices.

doc/source/contributor/guards.csv has the guards. The exit code is 0 if the
test of each guard fails without the guard; 1 if one does not; 2 if a test
fails with the guard, or a guard is not found in its module.
"""

import argparse
from collections.abc import Sequence
import csv
import dataclasses
import pathlib
import shlex
import sys
import time

from cellsched.cli import terminal
from cellsched import clock
import trees

ROOT = pathlib.Path(__file__).resolve().parents[2]

TABLE = 'doc/source/contributor/guards.csv'


@dataclasses.dataclass(frozen=True)
class Guard:
    """A condition of the claim path.

    :param text: the code of the guard, which its module has once
    :param without: the code without the guard
    :param test: the name of a test, or arguments of the simulation
    """

    guard: str
    module: str
    text: str
    without: str
    test: str

    def removed(self, source: str) -> str:
        """Return the source of the module without the guard.

        :raises trees.Broken: the module does not have the guard once
        """
        if source.count(self.text) != 1:
            raise trees.Broken(
                f'{self.module} has {source.count(self.text)} times: '
                f'{self.text}')
        return source.replace(self.text, self.without)

    @property
    def command(self) -> list[str]:
        """The command that fails without the guard."""
        run = (['cellsched.simulator'] if self.test.startswith('--')
               else ['testtools.run', '--failfast'])
        return [sys.executable, '-B', '-W', 'ignore', '-m', *run,
                *shlex.split(self.test)]


def read(root: pathlib.Path) -> list[Guard]:
    """Return the guards of the table.

    Code is in backticks, with ``\\n`` at the ends of lines.
    """
    with open(root / TABLE, encoding='utf-8', newline='') as file:
        return [Guard(*(cell.strip('`').replace(r'\n', '\n') for cell in row))
                for row in list(csv.reader(file))[1:]]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog='tools/mutation.sh guards', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        'texts', nargs='*', metavar='TEXT',
        help='only guards whose description or module has this text')
    texts = parser.parse_args(arguments).texts
    guards = [each for each in read(ROOT) if not texts or any(
        text in f'{each.guard} {each.module}' for text in texts)]
    unnoticed, timeouts = 0, {}
    try:
        with (trees.copies(ROOT, 1) as [tree], terminal.progress(
                'Guards', len(guards), sys.stderr, clock.Clock()) as show):
            tree.check()
            for done, guard in enumerate(guards, 1):
                if not _is_noticed(tree, guard, timeouts):
                    unnoticed += 1
                    print(f'{guard.module}: {guard.guard}: {guard.test} '
                          'does not notice', flush=True)
                show(done)
    except trees.Broken as exc:
        print(exc, file=sys.stderr)
        return 2
    print(f'{len(guards) - unnoticed} of {len(guards)} guards noticed')
    return 1 if unnoticed else 0


def _is_noticed(
    tree: trees.Tree, guard: Guard, timeouts: dict[str, float]
) -> bool:
    """Return whether the test fails without the guard, or does not end.

    :param timeouts: seconds that each test may take; empty at first
    :raises trees.Broken: the test fails with the guard
    """
    if guard.test not in timeouts:
        began = time.monotonic()
        if tree.running.call(guard.command, tree.path, None):
            raise trees.Broken(f'{guard.test} fails with the guard')
        timeouts[guard.test] = trees.timeout_s(time.monotonic() - began)
    source = (tree.path / guard.module).read_text(encoding='utf-8')
    with tree.changed(guard.module, guard.removed(source)):
        return tree.running.call(
            guard.command, tree.path, timeouts[guard.test]) != 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
