# SPDX-License-Identifier: Apache-2.0
"""The HTML page of runs.

The template is ``page.html`` beside this module. The page has no scripts and
loads nothing. Its charts are SVG.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from importlib import resources
import math
import sys
from typing import Any

import jinja2

#: Projects in the table of a run.
PROJECTS = 10

#: Points of a line; of more, neighbours are averaged.
POINTS_MAX = 500

#: The size of a chart, in units of its SVG.
WIDTH, HEIGHT = 480, 150

_THIN = '\N{NARROW NO-BREAK SPACE}'

Document = Mapping[str, Any]


def html(documents: Sequence[Document]) -> str:
    """Return a page that shows runs beside each other.

    :param documents: results of runs
    """
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True)
    environment.filters.update(number=_number)
    template = environment.from_string(
        resources.files(__package__).joinpath('page.html').read_text(
            encoding='utf-8'))
    names = _names(documents)
    # The table of all summaries, by figure.
    table = {name: [each['summary'].get(name) for each in documents]
             for document in documents for name in document['summary']}
    return template.render(
        names=names, width=WIDTH, height=HEIGHT,
        runs=[{**document, 'name': name, 'scenario': _scenario(document)}
              for document, name in zip(documents, names)],
        figures=[{'figure': name.replace('_', ' '), 'values': values}
                 for name, values in table.items()
                 if any(value is not None for value in values)],
        projects=PROJECTS,
        charts_of=lambda measures: [*_charts(documents, measures)])


def _scenario(document: Document) -> Mapping[str, Any]:
    """Return the scenario with its parts as text, by key."""
    scenario = document['scenario']
    if not isinstance(scenario, Mapping):
        return {'name': scenario}
    return {key: _text(value) for key, value in scenario.items()}


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ', '.join(f'{key}: {_text(each)}'
                         for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return '; '.join(map(_text, value))
    return str(value)


def _names(documents: Sequence[Document]) -> list[str]:
    """Return a name for each run; a number tells equal ones apart."""
    names: list[str] = []
    for document in documents:
        name = f'{_scenario(document)["name"]}, seed {document["seed"]}'
        same = sum(each == name or each.startswith(f'{name} (')
                   for each in names)
        names.append(f'{name} ({same + 1})' if same else name)
    return names


def _charts(
    documents: Sequence[Document], measures: Sequence[tuple[str, str, str]]
) -> Iterator[dict[str, Any]]:
    """Yield the chart of each measure that is not always 0.

    A chart has labels for the ends of its axes and, for each run, the SVG
    coordinates of the parts of a line.

    :param measures: each with its title and its kind: ``share`` for values
        from 0 to 1, shown as percentages, or ``sum`` for sums since the start,
        of which the difference between samples is shown
    """
    for name, title, kind in measures:
        found = [_points(document['series'], name, kind == 'sum')
                 for document in documents]
        values = [value for points in found for _, value in points
                  if value is not None]
        if not any(values):
            continue
        end = max(at for points in found for at, _ in points) or 1.0
        top = 1.0 if kind == 'share' and max(values) > 0.5 else _round_up(
            max(values))
        label = _percent if kind == 'share' else _number
        yield {'title': title, 'top': label(top),
               'half': label(top / 2), 'end': _duration(end),
               'lines': [[*_parts(points, end, top)] for points in found]}


def _points(
    series: Mapping[str, Sequence[float | None]], name: str, is_sum: bool
) -> list[tuple[float, float | None]]:
    """Return the times and values of a measure, at most so many."""
    times = [float(at or 0) for at in series.get('at_s', ())]
    values = list(series.get(name, ()))
    if is_sum:
        values = [(value or 0) - (before or 0) for value, before in zip(
            values, [0, *values])]
    step = -(-len(times) // POINTS_MAX) or 1
    points = []
    for start in range(0, min(len(times), len(values)), step):
        some = [value for value in values[start:start + step]
                if value is not None]
        total = math.fsum(some) if some else None
        if total is not None and not is_sum:
            total /= len(some)
        points.append((times[start], total))
    return points


def _parts(
    points: Sequence[tuple[float, float | None]], end: float, top: float
) -> Iterator[str]:
    """Yield the coordinates of each part of a line."""
    part: list[str] = []
    for at, value in [*points, (0.0, None)]:
        if value is not None:
            part.append(f'{at / end * WIDTH:.1f},'
                        f'{(1 - min(value / top, 1)) * HEIGHT:.1f}')
        elif part:
            # A single point is a line too.
            yield ' '.join(part if len(part) > 1 else part * 2)
            part = []


def _round_up(value: float) -> float:
    """Return the next of 1, 2, 5 and 10 times a power of ten."""
    # Smaller ones have no exact power of ten.
    value = max(value, sys.float_info.min * 10)
    unit = 10.0 ** math.floor(math.log10(value))
    return next(unit * each for each in (1, 2, 5, 10)
                if unit * each >= value * (1 - 1e-9))


def _number(value: float | None) -> str:
    """Return a number with its thousands in groups."""
    if value is None:
        return '–'
    form = ',.4g' if value % 1 and abs(value) < 1000 else ',.0f'
    return f'{value + 0:{form}}'.replace(',', _THIN).replace('-', '−')


def _percent(value: float) -> str:
    return f'{100 * value:.4g}{_THIN}%'


def _duration(seconds: float) -> str:
    for length, unit in ((86400, 'days'), (3600, 'hours'), (60, 'minutes')):
        if seconds >= 2 * length:
            return f'{seconds / length:.4g}{_THIN}{unit}'
    return f'{seconds:.4g}{_THIN}seconds'
