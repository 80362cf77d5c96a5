# SPDX-License-Identifier: Apache-2.0
"""The chart of exactness, drawn from the rows of its figures."""

import io

import matplotlib
from matplotlib import figure
from matplotlib import ticker

#: What is drawn, each beside the next: column, label, and how it is scaled.
PANELS = (
    ('claims_per_second', 'claims a second', 'log'),
    ('p99_ms', 'p99 of a claim, ms', 'log'),
    ('conflicts', 'conflicts for each claim', 'linear'),
    ('wrong', 'oversold, or refused although it fitted, %', 'linear'),
)

#: The same at each drawing of the same figures.
SETTINGS = {'svg.hashsalt': 'exactness', 'svg.fonttype': 'none',
            'font.size': 9}

MARKERS = 'osD^v<>PX*hdp'

#: Colours of the cycle; lines after so many are dashed.
COLOURS = 10


def draw(rows):
    """Return the text of an SVG image."""
    with matplotlib.rc_context(SETTINGS):
        drawn = figure.Figure(figsize=(9, 7), layout='constrained')
        for axes, panel in zip(drawn.subplots(2, 2).flat, PANELS):
            draw_panel(axes, rows, *panel)
        handles, labels = drawn.axes[0].get_legend_handles_labels()
        drawn.legend(handles, labels, loc='outside lower center', ncols=4)
        file = io.StringIO()
        # Without the day, which is no part of the figures.
        drawn.savefig(file, format='svg', metadata={'Date': None})
    # Lines of paths end in spaces.
    return '\n'.join(
        line.rstrip() for line in file.getvalue().splitlines()) + '\n'


def draw_panel(axes, rows, column, label, scale):
    for number, store in enumerate(dict.fromkeys(
            row['store'] for row in rows)):
        those = [row for row in rows if row['store'] == store]
        axes.plot([row['schedulers'] for row in those],
                  [value(row, column) for row in those],
                  marker=MARKERS[number % len(MARKERS)], label=store,
                  linestyle='-' if number < COLOURS else '--')
    axes.set_xscale('log', base=2)
    axes.set_yscale(scale)
    if scale == 'linear':
        axes.set_ylim(bottom=min(0, -0.02 * axes.get_ylim()[1]))
    axes.xaxis.set_major_locator(ticker.FixedLocator(
        sorted({row['schedulers'] for row in rows})))
    axes.xaxis.set_major_formatter(ticker.ScalarFormatter())
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.set_xlabel('schedulers')
    axes.set_title(label)
    axes.grid(True, alpha=0.3)


def value(row, column):
    if column == 'conflicts':
        return row['conflicts'] / max(row['claims'], 1)
    if column == 'wrong':
        return 100 / row['places'] * (
            row['oversold'] + row['refused_although_it_fitted'])
    return row[column]
