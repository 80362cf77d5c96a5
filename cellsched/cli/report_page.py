# SPDX-License-Identifier: Apache-2.0
"""The HTML page of a report, made of its data alone.

The template is ``report.html`` beside this module. Jinja2 escapes each value,
because users choose the names of servers and hosts. The page has no scripts
and loads nothing.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import datetime
from importlib import resources
from typing import Any

import jinja2

#: The rows of a table that are always visible; the others unfold.
ROWS_SHOWN = 20

#: Candidates of a decision that are listed.
_PICKS_MAX = 20

_UNITS = ((86400, 'd'), (3600, 'h'), (60, 'min'), (1, 's'))

#: A space that does not break and is narrow.
_THIN = '\N{NARROW NO-BREAK SPACE}'


def render(data: Mapping[str, Any]) -> str:
    """Return the page.

    :param data: what :func:`cellsched.cli.report.collect` returns
    """
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True)
    environment.filters.update(
        number=_number, age=_age, time=_time, percent=_percent)
    template = environment.from_string(
        resources.files(__package__).joinpath('report.html').read_text(
            encoding='utf-8'))
    return template.render(
        data=data, rows_shown=ROWS_SHOWN, meters=_meters, chart=_chart,
        silent=[each for each in data['cells'] if each['state'] == 'down'],
        cell_names={each['uuid']: each['name'] for each in data['cells']},
        decision=_decision(data['decision']))


def _number(value: float | None) -> str:
    """Return a number with its thousands in groups."""
    if value is None:
        return '–'
    # There is no zero below zero.
    form = ',.4g' if value % 1 and abs(value) < 1000 else ',.0f'
    return f'{value + 0:{form}}'.replace(',', _THIN).replace('-', '−')


def _age(seconds: float) -> str:
    """Return a duration in its two largest units."""
    rest, parts = int(seconds), [f'0{_THIN}s']
    for place, (length, unit) in enumerate(_UNITS):
        if rest >= length:
            parts = [f'{rest // length}{_THIN}{unit}']
            if rest % length and place + 1 < len(_UNITS):
                shorter, unit = _UNITS[place + 1]
                parts.append(f'{rest % length // shorter}{_THIN}{unit}')
            break
    return ' '.join(parts)


def _time(text: str | None) -> str:
    """Return a time in UTC for a reader."""
    if not text:
        return '–'
    time = datetime.datetime.fromisoformat(text)
    return f'{time:%Y-%m-%d %H:%M:%S}'


def _percent(part: float, whole: float) -> str:
    """Return a share as a length of CSS, between 0 and 100 %."""
    return f'{min(max(part / whole, 0), 1):.4%}' if whole > 0 else '0%'


def _meters(resources: Mapping[str, Mapping[str, int]]) -> list[Any]:
    """Return a bar for each resource class, with widths of its parts."""
    found = []
    for name, has in resources.items():
        parts = ('used', 'reserved', 'unavailable', 'free')
        # Usage may exceed the capacity after an inventory was reduced.
        whole = max(has['total'], sum(has[part] for part in parts))
        capacity = has['total'] - has['reserved']
        found.append({
            'name': name, **has, 'capacity': capacity,
            'over': has['used'] > capacity,
            'share': f'{has["used"] / capacity:.0%}' if capacity else '–',
            'parts': [(part, has[part], _percent(has[part], whole))
                      for part in parts if has[part]]})
    return found


def _chart(series: Mapping[str, Any]) -> dict[str, Any]:
    """Return the heights of bars and the labels of both axes."""
    bars: Sequence[Mapping[str, Any]] = series['bars']
    top = max((sum(each['counts']) for each in bars), default=0)
    scale = _round_up(top)
    daily = series['step_s'] >= 86400

    def label(at: str) -> str:
        time = datetime.datetime.fromisoformat(at)
        return f'{time:%d %b}' if daily else f'{time:%d %b %H:%M}'

    return {
        'scale': scale,
        'each': {300: '5 minutes', 3600: 'hour', 86400: 'day'}.get(
            series['step_s'], f'{series["step_s"]} seconds'),
        'labels': [label(bars[place]['at'])
                   for place in (0, len(bars) // 2, -1)] if bars else [],
        'bars': [{
            'at': label(each['at']), 'count': sum(each['counts']),
            'parts': [(number, count, _percent(count, scale))
                      for number, count in enumerate(each['counts'])
                      if count]} for each in bars]}


def _round_up(number: int) -> int:
    """Return the next number with one digit before zeros, half of it whole."""
    unit = 10 ** (len(str(number)) - 1)
    scale = -(-number // unit) * unit
    return max(scale + scale % 2, 2)


def _decision(document: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a decision with what its tables show beside the document."""
    if document is None:
        return None
    picks = document['picks']
    first = picks[0]['first'] if picks else None
    second = picks[0]['second'] if picks else None
    weights = []
    if first is not None:
        nothing = [None] * len(first['shares'])
        weights = [{
            'by': one['by'], 'first': one, 'second': other,
            'difference': one['weight'] - other['weight'] if other else None}
            for one, other in zip(
                first['shares'], second['shares'] if second else nothing)]
    largest = max((abs(each['difference'] or 0) for each in weights),
                  default=0)
    request = document['request']
    return {
        **document, 'first': first, 'second': second,
        'weights': [{**each, 'width': _percent(
            abs(each['difference'] or 0), largest)} for each in weights],
        'shown_picks': picks[:_PICKS_MAX],
        'details': [(name.replace('_', ' '), _text(request.get(name)))
                    for name in ('resources', 'project_id', 'image',
                                 'availability_zone', 'group', 'group_policy',
                                 'hints', 'force_hosts', 'force_nodes',
                                 'ignore_hosts', 'destination', 'problem')
                    if request.get(name)]}


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ', '.join(f'{key}: {_text(each)}'
                         for key, each in value.items() if each is not None)
    if isinstance(value, (list, tuple)):
        return ', '.join(map(_text, value))
    return str(value)
