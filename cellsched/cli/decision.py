# SPDX-License-Identifier: Apache-2.0
"""Decisions: ``cellsched plan`` and ``cellsched explain``."""

import argparse
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import pathlib
from typing import Any

from cellsched.cli.app import Shell
from cellsched.cli import base
from cellsched.cli import decision_text
from cellsched import exception

#: The exit code of a command if the servers fit on no host.
FITS_NOWHERE = 2

_ALTERNATES_MAX = 100

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
    base.argument('--availability-zone', metavar='ZONE',
                  help='availability zone of the servers'),
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
    are now or on a snapshot from ``cellsched host export``. With a snapshot
    and ``--vcpus``, ``--ram`` and ``--disk``, neither a database nor a broker
    is needed. A snapshot does not have the hosts of servers, so hints and
    groups that name servers find none.

    Ends with 2 if the servers fit on no host, and shows the reasons.

    Examples::

        cellsched plan --flavor m1.large --count 10
        cellsched plan --flavor m1.large --ignore-host n1 -f json
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
        # The help of all commands imports this module, and would import the
        # scheduler.
        from cellsched.cli import planning

        data, cells = planning.plan(self.app, parsed_args)
        self.show(parsed_args.format, data, _lines(data, cells))
        return 0 if data['fits'] else FITS_NOWHERE


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

    arguments = (
        base.argument('name', metavar='SERVER|REQUEST_ID', type=base.text,
                      help='id of a server or of a request'),
        base.flag('--all', 'show all recorded decisions, the newest first; by '
                  'default only the newest'))

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        args, deployment = parsed_args, self.app.deployment
        found = deployment.decisions(args.name, None if args.all else 1)
        if not found:
            raise exception.DecisionNotFound(
                name=args.name, kept=_retention(deployment.retention_s,
                                                deployment.retention_option))
        documents = []
        for each in found:
            decision_text.check(each.document)
            documents.append({
                **each.document,
                'why_not_second': decision_text.reason(each.document)})
        self.show(args.format, documents if args.all else documents[0],
                  self._lines(documents, args.name))

    def _lines(
        self, documents: Sequence[Mapping[str, Any]], name: str
    ) -> Iterator[str]:
        cells = self.app.deployment.cells()
        for number, document in enumerate(documents):
            if number:
                yield '-' * 79
            server = name if name in document['instances'] else None
            yield from decision_text.lines(document, cells, server)


def _retention(retention_s: int, option: str) -> str:
    if retention_s:
        return f'they are kept for {retention_s} seconds, as {option} says'
    return f'none are kept, as {option} is 0'


def _lines(data: Mapping[str, Any], cells: Mapping[str, str]) -> Iterator[str]:
    yield from decision_text.lines(data, cells)
    if any(place['alternates'] for place in data['places']):
        yield ''
        yield from decision_text.table(('Server', 'Host', 'Alternates'), [
            (place['instance'], place['host'], place['alternates'])
            for place in data['places']])
