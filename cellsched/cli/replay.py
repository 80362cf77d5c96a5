# SPDX-License-Identifier: Apache-2.0
"""Recorded decisions that are made again, and what would change.

A command imports this module when it runs: it imports the scheduler.
"""

import argparse
import collections
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import datetime
import itertools
import math
from typing import Any

from cellsched.cli.app import Shell
from cellsched.cli import base
from cellsched.cli import decision_text
from cellsched.cli import terminal
from cellsched import exception
from cellsched.hosts import plugin_columns
from cellsched.scheduler.drivers import filter_scheduler
from cellsched.scheduler import recording
from cellsched.scheduler import replay

#: The most changes that a text shows.
_SHOWN_MAX = 50

#: The driver that makes the decisions again.
_DRIVER = 'filter_scheduler'

#: Words of a summary, by change.
_WORDS = {replay.SAME: 'get the same host or refusal',
          replay.ELSEWHERE: 'go to another host',
          replay.REFUSED: 'are refused, and had a host',
          replay.FITS: 'get a host, and were refused',
          replay.SKIPPED: 'are not decided again'}


def replay_of(
    app: Shell, args: argparse.Namespace, header: Mapping[str, Any]
) -> replay.Replay:
    """Return the policy of the options.

    The recorded configuration is the base, unless a configuration file is
    named.

    :raises cellsched.exception.CellschedException: a plug-in or a value is
        not valid
    """
    conf, pipeline = app.conf, app.deployment.pipeline()
    filters, weighers = names(args.filters), names(args.weighers)
    if pipeline is None and not app.config_options:
        replay.apply_header(conf, header)
    if pipeline is None or filters or weighers:
        pipeline = filter_scheduler.pipeline_of(conf, filters, weighers)
    replay.set_multipliers(
        conf, pipeline.weighers,
        base.pairs('--weight-multiplier', args.weight_multiplier))
    return replay.Replay(conf, pipeline, carry=not args.independent)


def names(text: str | None) -> list[str] | None:
    """Return the names in an option, which commas separate."""
    if text is None:
        return None
    return [name for name in map(str.strip, text.split(',')) if name]


def seconds(option: str, text: str | None, default: float) -> float:
    """Return the time of an option, in seconds since the epoch.

    :raises cellsched.exception.InvalidField: it is no time
    """
    if text is None:
        return default
    try:
        time = datetime.datetime.fromisoformat(text)
        return (time if time.tzinfo else time.replace(
            tzinfo=datetime.UTC)).timestamp()
    except (OverflowError, ValueError):
        raise base.invalid(option, f'{text!a:.60} is not a time',
                           'a time such as 2026-11-20T08:00, in UTC') from None


def run(app: Shell, args: argparse.Namespace, make: Any) -> dict[str, Any]:
    """Decide the requests of a recording again.

    :param make: returns the policy; called as :func:`replay_of`
    :returns: the document of all changes
    """
    since = seconds('--since', args.since, -math.inf)
    until = seconds('--until', args.until, math.inf)
    problems: list[str] = []

    def entries(
        tables: bool, report: Any
    ) -> Iterator[recording.Entry]:
        return recording.read(
            args.recording, since, until, tables,
            plugin_columns.load() if tables else (), report)

    total = 0
    if app.stderr.isatty():
        total = sum(1 for _ in entries(False, lambda line: None))
    stream = entries(True, problems.append)
    first = next(stream, None)
    if first is None:
        for problem in problems:
            app.warn(f'warning: {problem}')
        raise exception.NotFound(
            f'{args.recording}: no decision is recorded'
            + (' in this time' if args.since or args.until else '') + '.')
    policy, header = make(app, args, first.header), first.header
    driver = header.get('driver') or _DRIVER
    if driver != _DRIVER:
        problems.append(f'the driver {driver} made the recorded decisions; '
                        f'{_DRIVER} makes them again')
    found = Report()
    with terminal.progress('Deciding again', total, app.stderr) as show:
        for entry in itertools.chain([first], stream):
            if entry.header is not header and entry.header != header:
                # The recorded configuration has changed.
                moves, header = policy.moves, entry.header
                policy = make(app, args, header)
                policy.moves = moves
            found.add(policy.decide(entry), args.all)
            if not found.requests % 100:
                show(found.requests)
        packing = _packing(entry, policy.moves)
    for problem in problems:
        app.warn(f'warning: {problem}')
    return {'recording': str(args.recording), 'from': _time(first.at),
            'until': _time(entry.at), **found.document(problems, packing)}


class Report:
    """The outcomes of the requests of a recording."""

    def __init__(self) -> None:
        self.requests = 0
        self.counts = collections.Counter[str]()
        self.remarks = collections.Counter[str]()
        self.changes: list[dict[str, Any]] = []

    def add(self, outcome: replay.Outcome, everything: bool) -> None:
        """Add a request.

        :param everything: whether to list the unchanged servers, too
        """
        self.requests += 1
        entry = outcome.entry
        if outcome.remark:
            self.remarks[outcome.remark] += 1
        if outcome.change == replay.SKIPPED:
            self.remarks[f'not decided again: {outcome.reason}'] += 1
        for uuid, before, after in itertools.zip_longest(
                entry.uuids, entry.answer.places, outcome.answer.places):
            change = outcome.change
            if change == replay.ELSEWHERE and before.node == after.node:
                change = replay.SAME
            self.counts[change] += 1
            if everything or change not in (replay.SAME, replay.SKIPPED):
                self.changes.append({
                    'at': _time(entry.at),
                    'request_id': entry.data.get('request_id'),
                    'server': uuid,
                    'flavor': entry.request.flavor.get('name'),
                    'project_id': entry.request.get('project_id'),
                    'change': change,
                    'host_before': before and before.host,
                    'host_after': after and after.host,
                    'reason': outcome.reason,
                    'rejections': [*outcome.answer.rejections]})

    def document(
        self, problems: Iterable[str], packing: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the figures, the remarks and the changes as plain data."""
        return {
            'requests': self.requests, 'servers': self.counts.total(),
            'summary': {change: self.counts[change]
                        for change in replay.CHANGES},
            'packing': packing,
            'remarks': [*problems, *(
                f'{_count(count, "request")}: {remark}'
                for remark, count in sorted(self.remarks.items()))],
            'changes': self.changes}


def _packing(entry: recording.Entry, moves: replay.Moves) -> dict[str, Any]:
    """Return how full the last hosts are, recorded and replayed."""
    assert entry.table is not None
    moved = moves.changes(entry.table, entry.process)
    return {'before': replay.packing(entry.hosts()),
            'after': replay.packing(entry.hosts(moved))}


def _count(number: int, noun: str) -> str:
    return f'{number} {noun}' if number == 1 else f'{number} {noun}s'


def _time(at: float) -> str:
    return datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat(
        timespec='milliseconds').replace('+00:00', 'Z')


def lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the text of a document."""
    summary = document['summary']
    yield (f'{_count(document["requests"], "request")} for '
           f'{_count(document["servers"], "server")}, from '
           f'{document["from"]} to {document["until"]}')
    yield ''
    yield from decision_text.table(
        ('Servers', 'Outcome'), [(summary[change], _WORDS[change])
                                 for change in replay.CHANGES])
    yield ''
    packing = document['packing']
    before, after = packing['before'], packing['after']
    yield from decision_text.table(
        ('Hosts at the end', 'Recorded', 'Replayed'),
        [('without servers', before['empty'], after['empty']),
         *((f'{name} in use on the others, %', round(100 * before['used'][
             name], 2), round(100 * after['used'][name], 2))
           for name in before['used'])])
    for remark in document['remarks']:
        yield ''
        yield remark
    changes = document['changes']
    if changes:
        yield ''
        yield from decision_text.table(
            ('Time', 'Server', 'Outcome', 'Host', 'Now', 'Reason'),
            [(each['at'], each['server'], each['change'],
              each['host_before'], each['host_after'], each['reason'])
             for each in changes[:_SHOWN_MAX]])
    if len(changes) > _SHOWN_MAX:
        yield f'and {len(changes) - _SHOWN_MAX} more, which -f json shows'
