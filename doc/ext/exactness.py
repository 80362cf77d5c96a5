# SPDX-License-Identifier: Apache-2.0
"""Print the figures that ``benchmarks/exactness.py`` has written.

``exactness-table``, ``exactness-chart`` and ``exactness-machine`` print
``admin/exactness.csv``. ``exactness-choice`` prints the stores of
``admin/exactness-choice.csv`` that have figures.
"""

import csv
import pathlib
import re
import sys

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util import docutils

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Read and draw the figures with the code of the benchmarks.
sys.path.append(str(ROOT / 'benchmarks'))

import charts  # noqa: E402
import exactness_figures  # noqa: E402

ADMIN = ROOT / 'doc' / 'source' / 'admin'
FIGURES = ADMIN / 'exactness.csv'
CHOICE = ADMIN / 'exactness-choice.csv'

#: Columns of the table, with their headings.
COLUMNS = {
    'store': 'Store', 'schedulers': 'Schedulers',
    'oversold': 'Oversold',
    'refused_although_it_fitted': 'Refused although it fitted',
    'gave_up': 'Gave up', 'conflicts': 'Conflicts', 'claims': 'Claims',
    'claims_per_second': 'Claims a second',
    'p50_ms': 'p50, ms', 'p99_ms': 'p99, ms'}


def choices():
    with open(CHOICE, encoding='utf-8', newline='') as lines:
        return list(csv.DictReader(lines))


def table(header, rows):
    """Return reStructuredText of a table."""
    lines = ['.. list-table::', '   :header-rows: 1', '']
    for row in [header, *rows]:
        lines += [f'   {"-" if number else "* -"} {cell}'.replace(
            '   - ', '     - ') for number, cell in enumerate(row)]
    return lines


class _Directive(docutils.SphinxDirective):

    def run(self) -> list[nodes.Node]:
        for file in FIGURES, CHOICE:
            self.env.note_dependency(str(file))
        container = nodes.container()
        self.state.nested_parse(
            StringList(self.lines(exactness_figures.read(FIGURES)),
                       source='exactness'),
            self.content_offset, container)
        return container.children


class Table(_Directive):

    def lines(self, rows):
        return table(COLUMNS.values(), [
            [row[name] for name in COLUMNS] for row in rows])


class Choice(_Directive):

    def lines(self, rows):
        measured = {row['store'] for row in rows}
        return table(('Store', 'Choose it where'), [
            [f'``{row["store"]}``', row['deployment']]
            for row in choices() if row['store'] in measured])


class Machine(_Directive):

    def lines(self, rows):
        cpus = sorted({row['cpus'] for row in rows})
        servers = dict.fromkeys(row['server'] for row in rows)
        sizes = {tuple(row[name] for name in ('clients', 'hosts'))
                 for row in rows}
        sizes = ' or '.join(f'{clients} clients and {hosts} hosts'
                            for clients, hosts in sorted(sizes))
        return [f'The figures are of {sizes} on a machine of '
                f'{" or ".join(map(str, cpus))} virtual CPUs, with '
                + '; '.join(servers) + '.']


class Chart(docutils.SphinxDirective):

    def run(self) -> list[nodes.Node]:
        for file in FIGURES, charts.__file__:
            self.env.note_dependency(str(file))
        image = charts.draw(exactness_figures.read(FIGURES))
        # Use the width of the page.
        image = re.sub(r' width="[\d.]+pt" height="[\d.]+pt"', ' width="100%"',
                       image[image.index('<svg'):], count=1)
        return [nodes.raw('', image, format='html')]


def setup(app):
    app.add_directive('exactness-table', Table)
    app.add_directive('exactness-choice', Choice)
    app.add_directive('exactness-machine', Machine)
    app.add_directive('exactness-chart', Chart)
    return {'parallel_read_safe': True}
