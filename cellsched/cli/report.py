# SPDX-License-Identifier: Apache-2.0
"""The report on a deployment: ``cellsched report``.

:func:`collect` reads the deployment and returns plain data, from which
``cellsched.cli.report_page`` makes the HTML page. Nothing is changed.
"""

import argparse
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import datetime
import math
import pathlib
import re
from typing import Any
from typing import TYPE_CHECKING
from typing import TypeVar

from cellsched.cli.app import Shell
from cellsched.cli import base
from cellsched.cli import decision
from cellsched.cli import decision_text
from cellsched import exception
from cellsched.hardware import units
from cellsched import plugins
from cellsched import urls

if TYPE_CHECKING:
    from cellsched.api.cells import CellRecord
    from cellsched.api.providers import ClassUsage
    from cellsched.api.providers import ProviderRecord
    from cellsched.api.services import ServiceRecord

#: The version of the data.
VERSION = 1

#: The most rows that are read of servers, decisions and failures each, and
#: the most hosts that are listed.
LIMIT = 1000

#: The most reasons of a chart; the others are added up.
REASONS_MAX = 7
OTHER = 'other reasons'

#: The lengths of a bar's time in seconds, and the least and most bars.
_STEPS_S = (300, 3600, 86400)
_BARS_MIN = 12
_BARS_MAX = 48

#: Resource classes that come first.
_FIRST = ('VCPU', 'MEMORY_MB', 'DISK_GB')

_AMOUNTS = ('total', 'reserved', 'used', 'free', 'unavailable')

_COMPUTE = 'nova-compute'

#: The error of a failed build in the details of a fault, and the hosts by
#: reason in its message; see ``cellsched.scheduler.explanation.diagnosis``.
_KIND = re.compile(r'([A-Za-z_]\w{0,99}): ')
_HOSTS = re.compile(r': (?:of \d+ hosts|the only host) (.+)')
_COUNTED = re.compile(r'(\d{0,9}) ?([a-z][^(;.]*)')
_PLURALS = (('is ', 'are '), ('was ', 'were '), ('has ', 'have '),
            ('does ', 'do '))

#: The longest text of a reason.
_TEXT_MAX = 255

_Item = TypeVar('_Item')

#: Time in seconds since the epoch, reason, and explanation of the reason.
_Refusal = tuple[float, str, str]


class Report(base.ReportCommand):
    """Show the state of the deployment on one page, and change nothing.

    Shows the cells and the use of their resources, the schedulers and
    conductors that are not up, the hosts that are down, disabled or full, the
    builds in progress, the refusals by reason over time,
    and one decision with its filters and weights. ``--html`` writes the report
    as one HTML file without scripts or external resources. ``-f json`` shows
    the data of the page; the table is a summary.

    At most 1000 rows of each list are read. A cell that does not answer is
    named, and the rest of the report is complete.

    Examples::

        cellsched report --html report.html
        cellsched report --html report.html --instance web
        cellsched report -f json
    """

    app: Shell

    kinds = (plugins.CLAIMS,)
    arguments = (
        base.argument('--html', metavar='FILE', type=pathlib.Path,
                      help='write the report to this file, as HTML; requires '
                           'cellsched[html]'),
        base.argument('--instance', metavar='SERVER|REQUEST_ID',
                      type=base.text,
                      help='show the last decision on this server or request; '
                           'by default the newest decision'))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        args = parsed_args
        if args.html is not None:
            base.require('--html', 'jinja2', 'html')
        data = collect(self.app, args.instance)
        for cell in data['cells']:
            if cell['state'] == 'down':
                self.app.warn(f'warning: cell {cell["name"]} did not answer: '
                              f'{cell["reason"]}')
        for problem in data['problems']:
            self.app.warn(f'warning: {problem["part"]} could not be read: '
                          f'{problem["problem"]}')
        if args.html is not None:
            # To import Jinja2 takes 140 ms of CPU, which no other command or
            # format needs.
            from cellsched.cli import report_page

            page = report_page.render(data)
            base.save(args.html, lambda stream: stream.write(page))
        if args.html is None or args.format != 'table':
            self.show(args.format, data, _lines(data), data['cells'])


def collect(app: Shell, instance: str | None = None) -> dict[str, Any]:
    """Return the report as plain data.

    A part that cannot be read is empty, and ``problems`` says why.

    :param instance: the name or the uuid of a server, or the id of a request,
        to show the last decision on; None for the newest decision
    :raises cellsched.exception.DecisionNotFound: no decision on it is kept
    """
    api, context, now = app.api, app.context(), app.clock.now()
    cells = api.cells.list(context)
    problems: list[dict[str, str]] = []

    def read(part: str, function: Callable[[], list[_Item]]) -> list[_Item]:
        try:
            return function()
        except exception.CellschedException as exc:
            problems.append({'part': part, 'problem': urls.mask_text(
                exc.format_message())[:1000]})
            return []

    # 1. Read each part by itself.
    services = read('services', lambda: api.services.list(context).services)
    agents = [each for each in services if each.binary == _COMPUTE]
    providers = read('resources', lambda: api.providers.list(
        context).providers)
    limit = min(LIMIT, app.conf.api.max_limit)
    servers = read('builds', lambda: api.servers.list(
        context, {'status': 'BUILD'}, ['created_at'], ['asc'],
        limit).servers)
    failures = read('failed builds', lambda: [
        *app.backend.latest_failures(LIMIT)])
    rows = read('decisions', lambda: app.backend.latest_decisions(LIMIT))
    documents, _ = decision.read_documents(rows)
    # 2. Describe the parts.
    shown: Mapping[str, Any] | None = documents[0][1] if documents else None
    if instance is not None:
        shown = _decision_on(app, instance)
    refused = [(decided_at, *_cause(document))
               for decided_at, document in documents if document['reason']]
    return {
        'version': VERSION, 'taken_at': base.shown(now), 'limit': limit,
        'problems': problems,
        **_cells(cells, providers, agents),
        'services': _services(
            each for each in services if each.binary != _COMPUTE),
        'hosts': _hosts(agents, providers),
        'builds': _builds(servers, now, limit),
        'refusals': {
            'decisions': {
                'kept_s': app.deployment.retention_s, 'read': len(rows),
                'limited': len(rows) == LIMIT, **_series(refused, now)},
            'failures': {
                'read': len(failures), 'limited': len(failures) == LIMIT,
                **_series([*_faults(failures)], now)}},
        'decision': None if shown is None else {
            **shown, 'why_not_second': decision_text.reason(shown)}}


# Cells and hosts.

def _cells(
    cells: 'Iterable[CellRecord]', providers: 'Iterable[ProviderRecord]',
    services: 'Iterable[ServiceRecord]',
) -> dict[str, Any]:
    """Return the cells, and the resources of all cells and shared ones."""
    services = list(services)
    unusable = {each.host for each in services
                if each.disabled or each.state != 'up'}
    by_cell: dict[str, dict[str, dict[str, int]]] = {}
    shared = []
    whole: dict[str, dict[str, int]] = {}
    for each in providers:
        if each.cell is None:
            own: dict[str, dict[str, int]] = {}
            _add(own, each.inventories, True)
            shared.append({'name': each.name, 'aggregate': each.aggregate,
                           'resources': _ordered(own)})
            continue
        for amounts in whole, by_cell.setdefault(each.cell, {}):
            _add(amounts, each.inventories, each.host not in unusable)
    return {
        'cells': [{
            'name': each.name, 'uuid': each.uuid,
            'disabled': bool(each.disabled), 'state': each.state,
            'reason': urls.mask_text(each.reason), 'hosts': each.hosts,
            'hosts_up': each.hosts_up, 'hosts_disabled': sum(
                bool(service.disabled) for service in services
                if service.cell == each.name),
            'servers': each.servers,
            'resources': _ordered(by_cell.get(each.name, {}))}
            for each in cells],
        'resources': _ordered(whole), 'shared_providers': shared}


def _add(
    amounts: dict[str, dict[str, int]],
    inventories: 'Mapping[str, ClassUsage]', usable: bool,
) -> None:
    """Add the resources of a provider, without those of its NUMA cells.

    Amounts include the allocation ratio.
    """
    for name, usage in units.plain(inventories).items():
        has, capacity = usage.inventory, usage.inventory.capacity
        total = max(math.floor(has.total * has.allocation_ratio), capacity)
        sums = amounts.setdefault(name, dict.fromkeys(_AMOUNTS, 0))
        sums['total'] += total
        sums['reserved'] += total - capacity
        sums['used'] += usage.used
        sums['free' if usable else 'unavailable'] += max(
            capacity - usage.used, 0)


def _ordered(amounts: Mapping[str, _Item]) -> dict[str, _Item]:
    first = {name: place for place, name in enumerate(_FIRST)}
    return {name: amounts[name] for name in sorted(
        amounts, key=lambda name: (first.get(name, len(first)), name))}


def _hosts(
    services: 'Iterable[ServiceRecord]', providers: 'Iterable[ProviderRecord]'
) -> dict[str, Any]:
    """Return the number of hosts by state, and those that need attention."""
    full: dict[str | None, set[str]] = {}
    for provider in providers:
        if provider.kind == 'root':
            # A CPU of its own is full as soon as a server has it.
            full.setdefault(provider.host, set()).update(
                name for name, usage
                in units.plain(provider.inventories).items()
                if 0 < usage.inventory.capacity <= usage.used)
    counts = dict.fromkeys(('up', 'down', 'disabled', 'unknown', 'full'), 0)
    rows = []
    for each in services:
        classes = [*_ordered(dict.fromkeys(full.get(each.host, ())))]
        state = each.state.lower()
        counts[state] += 1
        counts['disabled'] += bool(each.disabled)
        counts['full'] += bool(classes)
        # A cell that does not answer is named, and its hosts are not.
        if state == 'down' or each.disabled or classes:
            rows.append({
                'host': each.host, 'cell': each.cell, 'state': state,
                'disabled': bool(each.disabled),
                'reason': each.disabled_reason if each.disabled else None,
                'forced_down': bool(each.forced_down),
                'seen_at': base.shown(each.updated_at), 'full': classes})
    rows.sort(key=lambda row: (
        row['state'] != 'down', not row['disabled'], row['host']))
    return {**counts, 'listed': len(rows), 'rows': rows[:LIMIT]}


def _services(services: 'Iterable[ServiceRecord]') -> dict[str, Any]:
    """Return the number of services by state, and those that are not up."""
    counts = dict.fromkeys(('up', 'down', 'stopped'), 0)
    rows = []
    for each in services:
        counts[each.state] += 1
        if each.state != 'up':
            rows.append({
                'binary': each.binary, 'host': each.host, 'cell': each.cell,
                'state': each.state, 'seen_at': base.shown(each.updated_at)})
    rows.sort(key=lambda row: (row['state'], row['binary'], row['host']))
    return {**counts, 'listed': len(rows), 'rows': rows[:LIMIT]}


def _builds(
    servers: Iterable[Any], now: datetime.datetime, limit: int
) -> dict[str, Any]:
    """Return the builds in progress, the longest first."""
    rows = [{
        'uuid': each.uuid, 'name': each.name, 'project_id': each.project_id,
        'state': each.task_state or 'building', 'cell': each.cell,
        'host': each.host, 'attempts': each.attempts,
        'created_at': base.shown(each.created_at),
        'age_s': max(round((now - each.created_at).total_seconds()), 0)
        if each.created_at else 0,
        'reason': urls.mask_text(each.reason)} for each in servers]
    rows.sort(key=lambda row: -row['age_s'])
    states: dict[str, dict[str, Any]] = {}
    for row in rows:
        found = states.setdefault(row['state'], {
            'state': row['state'], 'servers': 0, 'oldest_s': row['age_s']})
        found['servers'] += 1
    return {'servers': len(rows), 'limited': len(rows) == limit,
            'states': [*states.values()], 'rows': rows}


# Decisions and refusals.

def _decision_on(app: Shell, name: str) -> Mapping[str, Any]:
    found = app.deployment.decisions(name, 1)
    if not found:
        raise decision.not_found(app.deployment, name)
    document = found[0].document
    decision_text.check(document)
    return document


def _cause(document: Mapping[str, Any]) -> tuple[str, str]:
    """Return the stage that rejected most hosts, and its reason."""
    rejections: Sequence[Mapping[str, Any]] = document['rejections']
    if not rejections:
        return 'no hosts', 'no hosts are known'
    most = max(rejections, key=lambda each: int(each['hosts']))
    return str(most['by'])[:_TEXT_MAX], str(most['reason'])[:_TEXT_MAX]


def _faults(rows: Iterable[Any]) -> Iterator[_Refusal]:
    """Yield the failed builds of cell0.

    The reason is the one for which most hosts were rejected, or else the kind
    of the error.
    """
    for row in rows:
        if row.created_at is None:
            continue
        message = urls.mask_text(row.message or '')
        kind = _KIND.match(row.details or '')
        reason = (_main_reason(message) or kind and kind[1]
                  or message.partition('. ')[0] or 'unknown')
        yield (row.created_at.replace(tzinfo=datetime.UTC).timestamp(),
               reason[:_TEXT_MAX], message[:_TEXT_MAX])


def _main_reason(message: str) -> str:
    """Return the reason for which most hosts were rejected, in the plural."""
    hosts = _HOSTS.search(message)
    counted = [each for text in (hosts[1].split(', ') if hosts else ())
               if (each := _COUNTED.match(text))]
    if not counted:
        return ''
    reason = max(counted, key=lambda each: int(each[1] or 1))[2].strip()
    for one, several in _PLURALS:
        if reason.startswith(one):
            reason = several + reason.removeprefix(one)
    return f'hosts {reason}'


def _series(
    refusals: Sequence[_Refusal], now: datetime.datetime
) -> dict[str, Any]:
    """Return the numbers of refusals by reason in equal times, until now."""
    end = now.replace(tzinfo=datetime.UTC).timestamp()
    oldest = min((time for time, *_ in refusals), default=end)
    # 1. Select the length of the times, so that the bars are not too many.
    step = next((each for each in _STEPS_S
                 if end // each - oldest // each < _BARS_MAX), _STEPS_S[-1])
    last = int(end // step)
    first = max(min(int(oldest // step), last - _BARS_MIN + 1),
                last - _BARS_MAX + 1)
    counted = [(max(min(int(each[0] // step), last), first), each)
               for each in refusals if each[0] >= first * step]
    # 2. Count by reason, the most frequent first.
    reasons: dict[str, dict[str, Any]] = {}
    for _, (time, reason, about) in counted:
        found = reasons.setdefault(reason, {
            'reason': reason, 'about': about, 'count': 0, 'latest': time})
        found['count'] += 1
        found['latest'] = max(found['latest'], time)
    ranked = sorted(reasons.values(), key=lambda each: (
        -each['count'], each['reason']))
    kept, rest = ranked[:REASONS_MAX], ranked[REASONS_MAX:]
    if rest:
        kept.append({
            'reason': OTHER, 'about': f'{len(rest)} more reasons',
            'count': sum(each['count'] for each in rest),
            'latest': max(each['latest'] for each in rest)})
    # 3. Count by time.
    place = {each['reason']: number for number, each in enumerate(kept)}
    bars = {number: [0] * len(kept) for number in range(first, last + 1)}
    for number, (_, reason, _) in counted:
        bars[number][place.get(reason, len(kept) - 1)] += 1
    return {
        'refused': len(counted), 'earlier': len(refusals) - len(counted),
        'step_s': step,
        'reasons': [{**each, 'latest': _time_at(each['latest'])}
                    for each in kept],
        'bars': [{'at': _time_at(number * step), 'counts': counts}
                 for number, counts in bars.items()]}


def _time_at(timestamp: float) -> str | None:
    return base.shown(datetime.datetime.fromtimestamp(
        timestamp, datetime.UTC))


# The summary on a terminal.

def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    hosts, builds, services = data['hosts'], data['builds'], data['services']
    yield f'Report of {data["taken_at"]}'
    yield ''
    yield from decision_text.table(
        ('Cell', 'Status', 'State', 'Hosts', 'Up', 'Servers', *_FIRST), [(
            each['name'], base.enabled_or_disabled(each['disabled']),
            each['state'], each['hosts'], each['hosts_up'], each['servers'],
            *(_share(each['resources'].get(name)) for name in _FIRST))
            for each in data['cells']])
    yield ''
    yield (f'Hosts: {hosts["up"]} up, {hosts["down"]} down, '
           f'{hosts["disabled"]} disabled, {hosts["full"]} full, '
           f'{hosts["unknown"]} in cells that do not answer')
    yield (f'Schedulers and conductors: {services["up"]} up, '
           f'{services["down"]} down, {services["stopped"]} stopped')
    if services['rows']:
        yield from decision_text.table(
            ('Binary', 'Host', 'Cell', 'State', 'Last Seen'),
            [(*each.values(),) for each in services['rows']])
    yield 'Builds in progress: ' + (', '.join(
        f'{each["state"]} ({each["servers"]}, the oldest for '
        f'{each["oldest_s"]} s)' for each in builds['states']) or 'none')
    for part, name in (('decisions', 'Refused decisions'),
                       ('failures', 'Failed builds in cell0')):
        found = data['refusals'][part]
        yield f'{name}: ' + (', '.join(
            f'{each["reason"]} ({each["count"]})'
            for each in found['reasons']) or 'none')
    shown = data['decision']
    if shown is not None:
        yield (f'Decision of {shown["decided_at"]}: '
               + (shown['reason'] or 'a host was found'))


def _share(amounts: Mapping[str, int] | None) -> str:
    """Return the used share of a resource class."""
    if not amounts:
        return ''
    capacity = amounts['total'] - amounts['reserved']
    return f'{amounts["used"] / capacity:.0%}' if capacity else '-'
