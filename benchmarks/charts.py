# SPDX-License-Identifier: Apache-2.0
"""The chart of the figures of ``exactness.py``."""

import io

import matplotlib
from matplotlib import figure
from matplotlib import ticker

#: The panels: column, label, and scale of the y axis.
PANELS = (
    ('claims_per_second', 'claims a second', 'log'),
    ('p99_ms', 'p99 of a claim, ms', 'log'),
    ('conflicts', 'conflicts for each claim', 'linear'),
    ('wrong', 'oversold, or refused although it fitted, %', 'linear'),
)

#: Settings that draw the same figures identically each time.
SETTINGS = {'svg.hashsalt': 'exactness', 'svg.fonttype': 'none',
            'font.size': 9}

MARKERS = 'osD^v<>PX*hdp'

#: Number of colours in the cycle; further lines are dashed.
COLOURS = 10


def draw(rows):
    """Return the chart as the text of an SVG image."""
    with matplotlib.rc_context(SETTINGS):
        drawn = figure.Figure(figsize=(9, 7), layout='constrained')
        for axes, panel in zip(drawn.subplots(2, 2).flat, PANELS):
            draw_panel(axes, rows, *panel)
        handles, labels = drawn.axes[0].get_legend_handles_labels()
        drawn.legend(handles, labels, loc='outside lower center', ncols=4)
        file = io.StringIO()
        # Leave out the date, so that the file changes only with the figures.
        drawn.savefig(file, format='svg', metadata={'Date': None})
    # matplotlib ends the lines of paths with spaces.
    return '\n'.join(
        line.rstrip() for line in file.getvalue().splitlines()) + '\n'


def draw_panel(axes, rows, column, label, scale):
    for number, store in enumerate(dict.fromkeys(
            row['store'] for row in rows)):
        points = [row for row in rows if row['store'] == store]
        axes.plot([row['schedulers'] for row in points],
                  [value(row, column) for row in points],
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
