# SPDX-License-Identifier: Apache-2.0
"""The text of a decision, from its document."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from cellsched import exception
from cellsched.hardware import units

#: The documents that are read here are of this version; see
#: ``cellsched.scheduler.explanation.decision_record``.
_VERSION = 1

#: The largest number of servers that are shown.
_LISTED_MAX = 20

#: Weights that differ by less are equal.
_EQUAL = 1e-9


def check(document: Mapping[str, Any]) -> None:
    """Make sure that the version of a document is known.

    :raises cellsched.exception.InvalidField: another release wrote it
    """
    if document.get('version') != _VERSION:
        raise exception.InvalidField(
            where='decision', field='version',
            problem=f'version {document.get("version")!a:.20} is of another '
                    'release', expected=f'version {_VERSION}')


def reason(document: Mapping[str, Any]) -> str | None:
    """Return why the second best host was not selected, in a sentence."""
    detailed = _detailed(document)
    if document.get('reason') or detailed is None:
        return None
    first, second = detailed['first'], detailed['second']
    if second is None:
        return f'{first["host"]} was the only candidate.'
    name, better = second['host'], _lead(detailed)
    if is_tied(document):
        return (f'{name} weighs the same as {first["host"]}; of equals, the '
                'first is taken, or one by chance.')
    if better < 0:
        return (f'{name} weighs more; {first["host"]} was chosen by chance '
                'among the best: see [filter_scheduler] host_subset_size, '
                'refused_host_subset_size and evacuation_host_subset_size.')
    share, by = max(_differences(first, second))
    return (f'{name} was not chosen because it weighs {better:.6g} less: '
            f'{by} made the largest difference, {share:.6g}.')


def is_tied(document: Mapping[str, Any]) -> bool:
    """Return whether another host weighs as much as the first one."""
    detailed = _detailed(document)
    if detailed is None or detailed['second'] is None:
        return False
    return abs(_lead(detailed)) < _EQUAL


def _lead(detailed: Mapping[str, Any]) -> float:
    """Return by how much the first host weighs more than the second."""
    lead: float = (
        detailed['first']['weight'] - detailed['second']['weight'])
    return lead


def lines(
    document: Mapping[str, Any], cells: Mapping[str, str],
    server: str | None = None,
) -> Iterator[str]:
    """Yield the lines of a decision.

    :param cells: names of cells, by uuid
    :param server: show only this server; by default all servers
    """
    yield from _request(document)
    yield ''
    if document['stages']:
        yield from _stages(document)
        yield ''
    if document.get('reason'):
        yield from _refusal(document)
        return
    yield from _picks(document, cells, server)
    detailed = _detailed(document)
    if detailed is not None and detailed['second'] is not None:
        yield ''
        if server not in (None, detailed['instance']):
            yield f'Weights, as of {detailed["instance"]}, the first:'
        yield from _weights(detailed)
    sentence = reason(document)
    if sentence:
        yield ''
        yield sentence


def table(
    headings: Sequence[str], rows: Iterable[Sequence[Any]]
) -> Iterator[str]:
    """Yield columns side by side, numbers to the right."""
    rows = [[_shown(value) for value in row] for row in (headings, *rows)]
    widths = [max(len(row[place]) for row in rows)
              for place in range(len(headings))]
    right = [len(rows) > 1 and all(_is_number(row[place]) for row in rows[1:])
             for place in range(len(headings))]
    for row in rows:
        yield '  '.join(
            cell.rjust(width) if numeric else cell.ljust(width)
            for cell, width, numeric in zip(row, widths, right)).rstrip()


def _request(document: Mapping[str, Any]) -> Iterator[str]:
    request = document['request']
    count = request['instances']
    servers = 'one server' if count == 1 else f'{count} servers'
    asked = document.get('request_id')
    yield (f'Decision of {document["decided_at"]} on {servers}'
           + (f', request {asked}' if asked else ''))
    yield (f'Each: {request["flavor"] or "no flavor"} '
           f'({_amounts(request["resources"])})')
    if request.get('problem'):
        yield f'That is not all: {request["problem"]}'
    for group in request.get('groups', ()):
        traits = [*group['required'],
                  *(f'no {trait}' for trait in group['forbidden'])]
        yield (f'Group {group["suffix"]}: {_amounts(group["resources"])}'
               + (f' with {", ".join(traits)}' if traits else ''))
    for name in ('project_id', 'availability_zone', 'image', 'group',
                 'group_policy', 'force_hosts', 'force_nodes', 'ignore_hosts',
                 'hints', 'destination'):
        given = request.get(name)
        if isinstance(given, dict):
            given = [f'{key}={_shown(value)}' for key, value in given.items()
                     if value]
        if given:
            yield f'{name.replace("_", " ").capitalize()}: {_shown(given)}'
    way = document.get('way')
    if way:
        yield f'Decided on {way["name"]}' + (
            f', because of {"; ".join(way["reasons"])}' if way["reasons"]
            else '')


def _stages(document: Mapping[str, Any]) -> Iterator[str]:
    yield from table(('Stage', 'Entered', 'Left', 'What it rejects'), [
        (stage['by'], stage['entered'], stage['left'],
         f'a host that {stage["reason"]}') for stage in document['stages']])


def _refusal(document: Mapping[str, Any]) -> Iterator[str]:
    yield f'No host: {document["reason"]}'
    if not document['rejections']:
        return
    examples = document['examples']
    stages = [each['by'] for each in document['rejections']]
    yield ''
    yield from table(
        ('Rejected by', 'Hosts', 'Nearest miss', 'Among them'), [
            (each['by'] if stages.count(each['by']) < 2
             else f'{each["by"]}: {each["reason"]}',
             each['hosts'], _nearest(each.get('nearest')),
             each.get('cells') or examples.get(
                 each['reason'], examples.get(each['by'], ())))
            for each in document['rejections']])


def _nearest(nearest: Mapping[str, Any] | None) -> str:
    if nearest is None:
        return ''
    return (f'{nearest["hosts"]} by {nearest["amount"]:.10g} '
            f'{nearest["unit"]}')


def _picks(
    document: Mapping[str, Any], cells: Mapping[str, str], server: str | None
) -> Iterator[str]:
    picks = [pick for pick in document['picks']
             if server in (None, pick['instance'])]
    if not picks:
        yield 'Nothing was chosen: each server kept the host that it held.'
        return
    yield from table(
        ('Server', 'Host', 'Node', 'Cell', 'Candidates', 'Weight'), [
            (pick['instance'], pick['first']['host'], pick['first']['node'],
             cells.get(pick['first']['cell'], pick['first']['cell']),
             pick['candidates'], pick['first']['weight'])
            for pick in picks[:_LISTED_MAX]])
    if len(picks) > _LISTED_MAX:
        yield (f'and {len(picks) - _LISTED_MAX} more, which -f json shows')
    given = [(pick['instance'], each['group'],
              each['name'] or each['provider'], _amounts(each['resources']))
             for pick in picks[:_LISTED_MAX]
             for each in pick['first'].get('providers', ())]
    if given:
        yield ''
        yield from table(('Server', 'Group', 'Provider', 'Gives'), given)
    parts = [(pick['instance'], 'none' if part['cell'] is None
              else part['cell'], units.describe(part))
             for pick in picks[:_LISTED_MAX]
             for part in pick['first'].get('hardware', ())]
    if parts:
        yield ''
        yield from table(('Server', 'NUMA cell', 'Gives'), parts)


def _amounts(resources: Mapping[str, int]) -> str:
    return ', '.join(f'{amount} {name}' for name, amount in resources.items())


def _weights(detailed: Mapping[str, Any]) -> Iterator[str]:
    first, second = detailed['first'], detailed['second']
    rows: list[Sequence[Any]] = []
    for one, other in zip(first['shares'], second['shares']):
        for place, share in ((first, one), (second, other)):
            rows.append((
                share['by'] if place is first else '', place['host'],
                share['raw'], share['scaled'], share['multiplier'],
                share['weight']))
    for place in (first, second):
        rows.append(('Sum' if place is first else '', place['host'], '', '',
                     '', place['weight']))
    yield from table(
        ('Weigher', 'Host', 'Raw', 'Scaled', 'Multiplier', 'Weight'), rows)


def _detailed(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the pick whose weights were kept, which is the first one."""
    return document['picks'][0] if document['picks'] else None


def _differences(
    first: Mapping[str, Any], second: Mapping[str, Any]
) -> Iterator[tuple[float, str]]:
    for one, other in zip(first['shares'], second['shares']):
        yield one['weight'] - other['weight'], one['by']


def _shown(value: Any) -> str:
    if isinstance(value, float):
        # There is no zero below zero.
        return f'{value + 0.0:.6g}'
    if isinstance(value, (list, tuple)):
        return ', '.join(map(_shown, value))
    return '' if value is None else str(value)


def _is_number(text: str) -> bool:
    if not text:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True
