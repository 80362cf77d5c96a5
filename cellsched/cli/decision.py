# SPDX-License-Identifier: Apache-2.0
"""Decisions: ``cellsched plan``, ``cellsched capacity``, ``explain``."""

import argparse
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import logging
import operator
import pathlib
from typing import Any
from typing import TYPE_CHECKING

from cellsched.cli.app import Shell
from cellsched.cli import base
from cellsched.cli import decision_text
from cellsched.cli import server
from cellsched.cli import terminal
from cellsched import exception

if TYPE_CHECKING:
    from cellsched.cli.deployment import ReadDeployment
    from cellsched.db.api.decisions import DecisionRow

LOG = logging.getLogger(__name__)

#: The exit code of a command if the servers fit on no host.
FITS_NOWHERE = 2

_ALTERNATES_MAX = 100

#: The cell of the last row, which has the sums.
_ALL = 'all cells'

#: The options that describe a request.
REQUEST: base.Arguments = (
    base.argument('--flavor', metavar='FLAVOR',
                  help='id or name of the flavor'),
    base.argument('--vcpus', type=base.whole(), metavar='NUMBER',
                  help='virtual CPUs, instead of a flavor'),
    base.argument('--ram', type=base.whole(), metavar='MB',
                  help='memory, instead of a flavor'),
    base.argument('--disk', type=base.whole(), metavar='GB',
                  help='root disk, instead of a flavor'),
    base.several('--extra-spec', 'KEY=VALUE',
                 'an extra spec to add to the flavor'),
    base.several('--image-property', 'KEY=VALUE', 'a property of the image'),
    base.several('--hint', 'KEY=VALUE',
                 'a scheduler hint; one key may have several values'),
    *server.HOSTS,
    base.argument('--project', metavar='ID',
                  help='id of the project; by default --os-project-id'),
    base.argument('--group', metavar='UUID',
                  help='uuid of the server group that the servers join'),
    base.argument('--force-host', metavar='HOST', action='append', default=[],
                  type=base.text,
                  help='consider only this host, and skip the filters; may be '
                       'repeated'),
    base.argument('--ignore-host', metavar='HOST', action='append',
                  default=[], type=base.text,
                  help='do not consider this host; may be repeated'),
    base.argument('--request', metavar='FILE', type=pathlib.Path,
                  help='a file with a RequestSpec in JSON, or its fields '
                       'alone; options override its fields'),
    base.argument('--snapshot', metavar='FILE', type=pathlib.Path,
                  help='decide on the hosts of this file, written by '
                       'cellsched host export'))


class Plan(base.ReportCommand):
    """Decide on hosts for servers, and claim nothing.

    The command uses the configured filters and weighers, on the hosts as they
    are now or on a snapshot from ``cellsched host export``. The output says
    why a scheduler may select other hosts. With a snapshot
    and ``--vcpus``, ``--ram`` and ``--disk``, neither a database nor a broker
    is needed. A snapshot does not have the hosts of servers, so hints and
    groups that name servers find none.

    Ends with 2 if the servers fit on no host, and shows the reasons.

    Examples::

        cellsched plan --flavor m1.large --count 10
        cellsched plan --flavor m1.large --ignore-host n1 -f json
        cellsched plan --vcpus 4 --ram 8192 --extra-spec hw:numa_nodes=2
        cellsched plan --snapshot hosts.json --vcpus 4 --ram 8192
    """

    app: Shell

    kinds = base.DECISIONS
    arguments = (
        *REQUEST,
        base.argument('--count', type=base.whole(), metavar='COUNT',
                      default=1, help='number of servers; by default 1'),
        base.argument('--alternates', type=base.whole(0, _ALTERNATES_MAX),
                      metavar='COUNT', default=0,
                      help='number of alternate hosts to show for each '
                           'server; by default 0'))

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        data, cells = _planning().plan(self.app, parsed_args)
        self.show(parsed_args.format, data, _lines(data, cells),
                  data['places'])
        return 0 if data['fits'] else FITS_NOWHERE


class ShowCapacity(base.Lister):
    """Show how many more servers of one kind fit in each cell.

    The enabled filters select the hosts, and the number of servers that fit on
    each of them is counted. The filters are not asked again for further
    servers, so a filter that limits the servers on a host is ignored. Each
    cell is counted as if the other cells were unused: if hosts of several
    cells share a provider, for example a storage pool, fewer servers fit in
    all cells than the sum.

    ``Unusable Percent`` is the part of the free vCPUs and memory that the
    flavors in ``[filter_scheduler] fragmentation_flavors`` cannot use.
    ``Full Hosts`` names what most hosts lack after that many servers, for
    example dedicated CPUs, pages of a NUMA cell or devices of an alias.

    On a terminal, or with ``--chart``, a bar chart is drawn above the table.
    ``--plot`` draws a chart to a file, and requires ``cellsched[plot]``. Ends
    with 2 if no server fits.

    Examples::

        cellsched capacity --flavor m1.large
        cellsched capacity --vcpus 4 --ram 8192 --plot room.svg
        cellsched capacity --flavor m1.large --extra-spec hw:numa_nodes=2
        cellsched capacity --snapshot hosts.json --vcpus 4 --ram 8192 -f csv
    """

    app: Shell

    kinds = base.DECISIONS
    columns = ('Cell', 'Hosts', 'Passing Hosts', 'Servers', 'Unusable Percent',
               'Full Hosts')
    arguments = (
        *REQUEST,
        base.flag('--chart', 'draw a bar chart'),
        base.argument('--plot', metavar='FILE', type=pathlib.Path,
                      help='draw a bar chart to this file, .png or .svg'))

    def take_action(self, parsed_args: argparse.Namespace) -> base.Rows:
        args = parsed_args
        if args.plot is not None:
            _check_plot(args.plot)
        found, cells = _planning().room(self.app, args)
        rows = sorted((
            (cells.get(each.cell, each.cell), each.hosts, each.passing,
             each.servers, _percent(each.unusable), each.limit or '')
            for each in found.cells), key=operator.itemgetter(0))
        total = (sum(each.hosts for each in found.cells),
                 sum(each.passing for each in found.cells), found.servers,
                 _percent(found.unusable), found.limit or '')
        if not found.servers:
            self.exit_code = FITS_NOWHERE
            self.app.warn(found.reason)
        bars = [terminal.Bar(name, 'servers', servers, found.servers)
                for name, _, _, servers, *_ in rows]
        if args.chart or (
                args.formatter == 'table' and self.app.stdout.isatty()):
            terminal.draw(bars, self.app.stdout)
        if args.plot is not None:
            _plot(bars, args.plot)
        return self.columns, [*rows, (_ALL, *total)]


class Explain(base.ReportCommand):
    """Show how a scheduler decided on a server.

    Shows the request, how many hosts each stage and each filter left, and the
    score of each weigher for the selected host and the second best. If no
    host was found, shows how many hosts each filter rejected, the smallest
    shortage, and the names of some rejected hosts.

    Decisions are kept for ``[scheduler] decision_retention`` seconds.

    Examples::

        cellsched explain 4b0f1d0c-93a5-4e7d-9a13-5a7a2a2bba0e
        cellsched explain req-0d1fb7f1-2d9e-4c62-8f3b-0a5c0f6a1c11 --all
    """

    app: Shell

    kinds = base.SERVERS
    arguments = (
        base.argument('name', metavar='SERVER|REQUEST_ID', type=base.text,
                      help='name or id of a server, or id of a request'),
        base.flag('--all', 'show all recorded decisions, the newest first; by '
                  'default only the newest'))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        args, deployment = parsed_args, self.app.deployment
        found = deployment.decisions(args.name, None if args.all else 1)
        if not found:
            raise not_found(deployment, args.name)
        readable, problems = read_documents(found)
        documents = [{
            **document, 'why_not_second': decision_text.reason(document)}
            for _, document in readable]
        if not documents:
            raise problems[0]
        for problem in problems:
            LOG.warning('One decision is not shown: %s',
                        problem.format_message())
        self.show(args.format, documents if args.all else documents[0],
                  self._lines(documents, args.name),
                  [{'decided_at': document['decided_at'], **stage}
                   for document in documents
                   for stage in document['stages']])

    def _lines(
        self, documents: Sequence[Mapping[str, Any]], name: str
    ) -> Iterator[str]:
        cells = self.app.deployment.cells()
        for number, document in enumerate(documents):
            if number:
                yield '-' * 79
            server = name if name in document['instances'] else None
            yield from decision_text.lines(document, cells, server)


class Replay(base.ReportCommand):
    """Decide recorded requests again, and show what would change.

    A scheduler records its decisions to the files that ``[scheduler] record``
    names. The command makes them again, on the recorded hosts and with the
    recorded filters, weighers and options. Options of the command change these
    one by one; ``--config-file`` replaces all of them by those of the file.
    Nothing is claimed, and neither a database nor a broker is needed.

    A decision sees the servers that earlier ones placed on other hosts than
    recorded, unless ``--independent`` is given.

    Ends with 1 if any server changes and ``--fail-on-change`` is given.

    Examples::

        cellsched replay /var/lib/cellsched/decisions
        cellsched replay decisions --weight-multiplier RAMWeigher=-1
        cellsched replay decisions --config-file new.conf -f csv
        cellsched replay decisions --since 2026-11-20T08:00 --fail-on-change
    """

    app: Shell

    kinds = base.DECISIONS
    arguments = (
        base.argument('recording', metavar='FILE', type=pathlib.Path,
                      help='the value of [scheduler] record, which means the '
                           'files of all processes, or one file'),
        base.argument('--filters', metavar='NAME,...',
                      help='the filters, in place of enabled_filters'),
        base.argument('--weighers', metavar='NAME,...',
                      help='the weighers, in place of weight_classes'),
        base.several('--weight-multiplier', 'WEIGHER=NUMBER',
                     'the multiplier of a weigher'),
        base.argument('--since', metavar='TIME',
                      help='skip earlier decisions; a time in UTC, such as '
                           '2026-11-20T08:00'),
        base.argument('--until', metavar='TIME',
                      help='skip later decisions'),
        base.flag('--independent', 'make each decision on the recorded hosts '
                  'alone'),
        base.flag('--all', 'list the servers that do not change, too'),
        base.flag('--fail-on-change', 'end with 1 if any server changes'))

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        # The help of all commands imports this module, and would import the
        # scheduler.
        from cellsched.cli import replay

        data = replay.run(self.app, parsed_args, replay.replay_of)
        self.show(parsed_args.format, data, replay.lines(data),
                  data['changes'])
        return int(parsed_args.fail_on_change and any(
            data['summary'][change]
            for change in ('elsewhere', 'refused', 'fits')))


def _planning() -> Any:
    # The help of all commands imports this module, and would import the
    # scheduler.
    from cellsched.cli import planning

    return planning


def read_documents(
    rows: 'Iterable[DecisionRow]'
) -> tuple[list[tuple[float, dict[str, Any]]], list[exception.InvalidField]]:
    """Return the times and documents of decisions that can be read.

    :returns: the errors of the other decisions, too
    """
    found, problems = [], []
    for row in rows:
        try:
            document = row.document
            decision_text.check(document)
            found.append((row.decided_at, document))
        except exception.InvalidField as exc:
            problems.append(exc)
    return found, problems


def not_found(
    deployment: 'ReadDeployment', name: str
) -> exception.DecisionNotFound:
    """Return the error that no decision on a server or a request is kept."""
    kept_s, option = deployment.retention_s, deployment.retention_option
    if not deployment.has_server(name):
        name = f'{name}, and no such server'
    return exception.DecisionNotFound(
        name=name, kept=(
            f'decisions are kept for {kept_s} seconds, as {option} says'
            if kept_s else f'decisions are not kept, as {option} is 0'))


def _lines(data: Mapping[str, Any], cells: Mapping[str, str]) -> Iterator[str]:
    yield from decision_text.lines(data, cells)
    if data['may_differ']:
        yield ''
        yield 'A scheduler may select another host:'
        yield from (f'* {reason}' for reason in data['may_differ'])
    if any(place['alternates'] for place in data['places']):
        yield ''
        yield from decision_text.table(('Server', 'Host', 'Alternates'), [
            (place['instance'], place['host'], place['alternates'])
            for place in data['places']])


def _percent(share: float | None) -> float | None:
    return None if share is None else round(100 * share, 1)


def _check_plot(path: pathlib.Path) -> None:
    """Make sure that a chart can be drawn, before the hosts are read."""
    if path.suffix not in ('.png', '.svg'):
        raise base.invalid('--plot', f'{str(path)!a:.80} is no chart',
                           'a file name that ends with .png or .svg')
    base.require('--plot', 'matplotlib', 'plot')


def _plot(bars: list[terminal.Bar], path: pathlib.Path) -> None:
    """Draw a chart to a file."""
    # An optional extra.
    from matplotlib import figure

    drawn = figure.Figure(
        figsize=(8, 1.2 + 0.4 * len(bars)), layout='constrained')
    axes = drawn.subplots()
    shown = axes.barh([bar.label for bar in bars], [bar.used for bar in bars])
    axes.bar_label(shown, padding=3)
    axes.invert_yaxis()
    axes.locator_params('x', integer=True)
    axes.set_xlabel('servers that fit')
    axes.set_title('Servers of this kind that fit, by cell')
    try:
        drawn.savefig(path)
    except OSError as exc:
        raise base.invalid(
            '--plot', f'{path} cannot be written: {exc.strerror}',
            'a writable file') from None
