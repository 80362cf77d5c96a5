# SPDX-License-Identifier: Apache-2.0
"""The simulation of large deployments: ``cellsched simulate``."""

import argparse
from collections.abc import Iterator
from collections.abc import Mapping
import pathlib
from typing import Any

from cellsched.cli.app import Shell
from cellsched.cli import base
from cellsched.cli import terminal
from cellsched import exception

#: Exit code if the claim store oversold a host, or lost a claim.
INEXACT = 2


class Simulate(base.ReportCommand):
    """Simulate a deployment, and measure its schedulers.

    A scenario describes hosts, schedulers, a claim store, load and faults.
    It is one of the project, shown by ``--list``, or a YAML file. The classes
    that decide and claim are those of production; time is simulated, and
    nothing is connected to. The same scenario with the same seed gives the
    same output to the byte.

    The table shows the summary, ``-f json`` and ``-f yaml`` all measures and
    ``-f csv`` their course. ``--compare`` shows the summaries of two runs
    instead. The exit code is 2 if the claim store allocated more than a host
    has, or lost a claim.

    The command requires ``cellsched[simulate]``.

    Examples::

        cellsched simulate --list
        cellsched simulate nova-floor -f json > one.json
        cellsched simulate nova-floor --set schedulers.count=4 \\
            --compare one.json --html four.html
    """

    app: Shell

    arguments = (
        base.argument('scenario', metavar='SCENARIO', nargs='?',
                      help='name of a scenario, or a YAML file'),
        base.flag('--list', 'list the scenarios of the project'),
        base.argument('--seed', metavar='N', type=base.whole(0, 2 ** 31 - 1),
                      help='seed of all random numbers, in place of that of '
                           'the scenario'),
        base.argument('--set', metavar='KEY=VALUE', action='append',
                      default=[], dest='changes',
                      help='change a key of the scenario, such as '
                           'schedulers.count=4; may be repeated'),
        base.argument('--html', metavar='FILE', type=pathlib.Path,
                      help='write the results with plots to this file, as '
                           'HTML'),
        base.argument('--compare', metavar='FILE', type=pathlib.Path,
                      help='compare with another run, written with -f json'))

    def run(self, parsed_args: argparse.Namespace) -> int:
        self._code = 0
        return super().run(parsed_args) or self._code

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        base.require('simulate', 'greenlet', 'simulate')
        if parsed_args.html is not None:
            base.require('--html', 'jinja2', 'simulate')
        # The help of all commands imports this module, and would import the
        # scheduler.
        from cellsched.simulator.capacity import run

        args = parsed_args
        if args.list:
            rows = [{'Name': name, 'Description': text}
                    for name, text in run.scenarios().items()]
            self.show(args.format, rows, (
                f'{row["Name"]}: {row["Description"]}' for row in rows))
            return
        if args.scenario is None:
            raise exception.InvalidField(
                where='simulate', field='SCENARIO', problem='it is missing',
                expected=f'a file, or one of {", ".join(run.scenarios())}')
        compared = [run.read_document(args.compare)] if args.compare else []
        found = run.read(args.scenario, args.seed, args.changes)
        with terminal.progress(
                f'Simulating {found.name}', run.STEPS, self.app.stderr,
                self.app.clock) as advance:
            document = run.run(found, advance)
        for name, count in document['checks'].items():
            if count:
                self._code = INEXACT
                self.app.warn(f'the claim store is not exact: {name} is '
                              f'{count}; expected 0')
        self._show(args, document, compared, [
            row for other in compared for row in run.compare(document, other)])

    def _show(
        self, args: argparse.Namespace, document: dict[str, Any],
        compared: list[dict[str, Any]], rows: list[dict[str, Any]],
    ) -> None:
        """Show a document, or its differences from another one.

        :param rows: the differences
        """
        if args.html is not None:
            # To import Jinja2 takes 140 ms of CPU, which no other format
            # needs.
            from cellsched.simulator.capacity import page

            text = page.html([document, *compared])
            base.save(args.html, lambda stream: stream.write(text))
        if compared:
            self.show(args.format, rows, _compared_lines(rows))
        elif args.html is None or args.format != 'table':
            series = document['series']
            self.show(args.format, document, _lines(document), [
                dict(zip(series, values)) for values in zip(*series.values())])


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the summary, a figure on each line."""
    shown = {**document['summary'], **document['checks']}
    width = max(map(len, shown))
    for name, value in shown.items():
        if value is not None:
            yield f'{name:<{width}}  {_number(value)}'


def _compared_lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    width = max(len(row['figure']) for row in rows)
    yield f'{"":<{width}}  {"this":>12}  {"other":>12}'
    for row in rows:
        if row['this'] is not None or row['other'] is not None:
            yield (f'{row["figure"]:<{width}}  {_number(row["this"]):>12}  '
                   f'{_number(row["other"]):>12}')


def _number(value: float | None) -> str:
    if value is None:
        return '-'
    return f'{value:.4g}' if isinstance(value, float) else str(value)
