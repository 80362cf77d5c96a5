# SPDX-License-Identifier: Apache-2.0
"""Answers that simulated deployments give, as tables and charts.

    python -m benchmarks.answers
    python -m benchmarks.answers --only schedulers --directory results

Each question is a scenario with some changes. Its figures are written to
``QUESTION.csv`` and ``QUESTION.svg``, for the page ``simulation-answers`` of
the documentation.
"""

import argparse
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import csv
import io
import itertools
import pathlib
import sys
from typing import Any
from typing import NamedTuple

import matplotlib
from matplotlib import figure

from cellsched.simulator.capacity import run
from cellsched.simulator.capacity import scenario
from cellsched.simulator.capacity import stores

#: The directory of the figures of the documentation.
DIRECTORY = (pathlib.Path(__file__).parent.parent
             / 'doc/source/admin/simulation-answers')

#: Settings that draw the same figures identically each time.
SETTINGS = {'svg.hashsalt': 'answers', 'svg.fonttype': 'none', 'font.size': 9}

SEED = 1

#: Changes of a scenario, by their name in a table.
Choices = Mapping[str, Sequence[str]]


def options(**values: Any) -> Sequence[str]:
    """Return changes of options of filters and weighers."""
    return [f'schedulers.configuration.filter_scheduler.{name}={value}'
            for name, value in values.items()]


def weights(multiplier: float, **values: Any) -> Sequence[str]:
    """Return changes of the multipliers of free resources, and others."""
    return options(cpu_weight_multiplier=multiplier,
                   ram_weight_multiplier=multiplier,
                   disk_weight_multiplier=multiplier, **values)


def each(key: str, values: Sequence[Any]) -> Choices:
    """Return changes of one key."""
    return {str(value): [f'{key}={value}'] for value in values}


def measured() -> Sequence[str]:
    """Return the stores whose delays were measured."""
    known = stores.measured()
    kinds = scenario.SCHEMA['properties']['store']['properties']['kind']
    return [kind for kind in kinds['enum'] if 'date' in known.get(
        'placement' if kind == 'placement-generations' else kind, {})]


POLICIES: Choices = {
    'spread': weights(1.0), 'pack': weights(-1.0),
    'fragmentation': weights(0.0, fragmentation_weight_multiplier=1.0),
    'fragmentation + pack': weights(
        -0.01, fragmentation_weight_multiplier=1.0)}

SEEDS: Choices = {str(seed): [f'seed={seed}'] for seed in (1, 2, 3)}


class Question(NamedTuple):
    """A scenario, its changes, and the figures that answer a question.

    :param dimensions: changes by dimension; a run for each combination. The
        first one is the horizontal axis of the chart, the second one its
        lines or bars
    :param figures: names of figures of a summary, with their columns
    :param drawn: the columns with a chart
    """

    scenario: str
    dimensions: Mapping[str, Choices]
    figures: Mapping[str, str]
    drawn: Sequence[str]
    changes: Sequence[str] = ()


WAITING = {
    'time_to_place_p50_s': 'p50, s', 'time_to_place_p99_s': 'p99, s',
    'conflicts_per_placed': 'conflicts for each server',
    'retries_per_placed': 'retries for each server',
    'scheduler_busy': 'schedulers at work',
    'refused_although_it_fitted': 'refused although it fitted',
    'oversold': 'oversold'}

PACKING = {
    'first_failure_used_vcpus': 'vCPUs at first failure',
    'first_failure_used_memory': 'memory at first failure',
    'refused': 'refused', 'used_vcpus_end': 'vCPUs in the end',
    'used_memory_end': 'memory in the end'}


def questions() -> dict[str, Question]:
    """Return the questions by name."""
    kinds = [*measured(), 'nova-legacy']
    return {
        'stores': Question('contention', {
            'store': each('store.kind', kinds),
            'round trip, ms': each('store.round_trip_ms', (0.5, 5))},
            WAITING, ('p50, s', 'p99, s')),
        'schedulers': Question('contention', {
            'schedulers': each('schedulers.count', (1, 4, 16)),
            'store': each('store.kind', [
                kind for kind in kinds if kind != 'mariadb'])},
            WAITING, ('p99, s', 'conflicts for each server',
                      'refused although it fitted')),
        'packing': Question('packing', {'policy': POLICIES, 'seed': SEEDS},
                            PACKING, ('memory at first failure', 'refused')),
        'churn': Question('packing', {'policy': POLICIES, 'seed': SEEDS}, {
            'refused': 'refused', 'asked': 'requested',
            'used_vcpus_mean': 'vCPUs', 'used_memory_mean': 'memory',
            'empty_hosts_mean': 'empty hosts',
            'stranded_memory_mean': 'stranded memory',
            'fragmentation_memory_mean': 'unusable free memory'},
            ('refused', 'empty hosts'), (
                'hours=72', 'load.rate=62', 'load.fill=0.85',
                'load.lifetimes=[[2, 60], [24, 90], [240, 100]]')),
        'groups': Question('contention', {
            'policy': {'none': [], **{policy: [f'load.groups.{policy}=1']
                                      for policy in (
                                          'affinity', 'anti-affinity',
                                          'soft-affinity',
                                          'soft-anti-affinity')}},
            'store': each('store.kind', [
                kind for kind in kinds if kind in (
                    'postgresql', 'etcd', 'cassandra', 'placement')])},
            {**WAITING, 'refused': 'refused'}, ('p50, s', 'p99, s'), (
                'load.batches=[[1.9, 0], [5, 100]]', 'load.rate=180000',
                'hours=0.004')),
        'rack': Question('rack-loss', {
            'fill': each('load.fill', (0.5, 0.85, 0.95)),
            'schedulers': {
                **each('schedulers.count', (1, 4)),
                '4, pack': ['schedulers.count=4', *weights(-1.0)]}},
            {
                'lost': 'lost', 'recovered': 'recovered',
                'lost_memory_mb': 'lost MB',
                'recovered_memory_mb': 'recovered MB',
                'refused_although_it_fitted': 'refused although it fitted',
                'recovery_s': 'recovery, s', 'conflicts': 'conflicts'},
            ('lost', 'recovered', 'recovered MB'), (
                'cells=6', 'hosts.count=60', 'hosts.rack=6', 'hours=0.6',
                'load.rate=200')),
    }


def answer(
    question: Question, report: Callable[[str], object] = lambda text: None
) -> list[dict[str, Any]]:
    """Run the simulations of a question, and return the rows of its table."""
    rows = []
    for chosen in itertools.product(*(
            choices.items() for choices in question.dimensions.values())):
        changes = [*question.changes, *itertools.chain(
            *(change for _, change in chosen))]
        found = run.run(run.read(question.scenario, None, changes))
        figures = {**found['summary'], **found['checks']}
        rows.append({
            **dict(zip(question.dimensions, (name for name, _ in chosen))),
            **{column: shown(figures[name])
               for name, column in question.figures.items()},
            'seed': found['seed']})
        report(f'{question.scenario}: '
               + ', '.join(name for name, _ in chosen))
    return rows


def shown(value: float | None) -> str:
    """Return a figure with three significant digits."""
    if value is None:
        return ''
    return f'{value:.3g}' if isinstance(value, float) else str(value)


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, rows[0], lineterminator='\n')
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def draw(question: Question, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return bars of the drawn columns, as the text of an SVG image."""
    first, second = [*question.dimensions][:2]
    groups, bars = ([*dict.fromkeys(row[name] for row in rows)]
                    for name in (first, second))
    values = {(row[first], row[second]): row for row in rows}
    with matplotlib.rc_context(SETTINGS):
        drawn = figure.Figure(
            figsize=(9, 2.6 * len(question.drawn)), layout='constrained')
        for axes, column in zip(drawn.subplots(
                len(question.drawn), squeeze=False).flat, question.drawn):
            for number, bar in enumerate(bars):
                axes.bar(
                    [place + (number + 0.5) / len(bars) * 0.8 - 0.4
                     for place in range(len(groups))],
                    [float(values[group, bar][column] or 0)
                     for group in groups], 0.8 / len(bars),
                    label=f'{second} {bar}')
            axes.set_xticks(range(len(groups)), groups)
            axes.set_title(column)
            axes.grid(True, axis='y', alpha=0.3)
        handles, labels = drawn.axes[0].get_legend_handles_labels()
        drawn.axes[-1].set_xlabel(first)
        drawn.legend(handles, labels, loc='outside lower center', ncols=4)
        file = io.StringIO()
        # Leave out the date, so that the file changes only with the figures.
        drawn.savefig(file, format='svg', metadata={'Date': None})
    # matplotlib ends the lines of paths with spaces.
    return '\n'.join(
        line.rstrip() for line in file.getvalue().splitlines()) + '\n'


def main(argv: Sequence[str] | None = None) -> int:
    known = questions()
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--only', choices=known, action='append',
                        help='answer this question; may be repeated')
    parser.add_argument('--directory', type=pathlib.Path, default=DIRECTORY,
                        help='write the files to this directory')
    args = parser.parse_args(argv)
    args.directory.mkdir(parents=True, exist_ok=True)
    for name in args.only or known:
        rows = answer(known[name], lambda text: print(text, file=sys.stderr))
        (args.directory / f'{name}.csv').write_text(as_csv(rows))
        (args.directory / f'{name}.svg').write_text(draw(known[name], rows))
    return 0


if __name__ == '__main__':
    sys.exit(main())
