# SPDX-License-Identifier: Apache-2.0
"""Decisions that change nothing: ``cellsched plan``."""

import argparse
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from typing import Any
from typing import TYPE_CHECKING

from oslo_utils import uuidutils

from cellsched.cli import base
from cellsched.cli import decision_text
from cellsched.cli import request_options

if TYPE_CHECKING:
    from cellsched.cli.app import Shell
    from cellsched.cli.deployment import Planner
    from cellsched import objects

#: Exit code.
FITS_NOWHERE = 2

_ALTERNATES_MAX = 100


class Plan(base.ReportCommand):
    """Decide where servers would go, and take nothing.

    Decides with the configured filters and weighers, on the hosts as they are
    now, or on a snapshot that ``cellsched host export`` wrote. With a
    snapshot and ``--vcpus``, ``--ram`` and ``--disk``, neither a database nor
    a broker is needed; where servers are is not in it, so hints and groups
    that name servers find none.

    Ends with 2 if they fit nowhere, and shows the reasons.

    Examples::

        cellsched plan --flavor m1.large --count 10
        cellsched plan --flavor m1.large --ignore-host n1 -f json
        cellsched plan --snapshot hosts.json --vcpus 4 --ram 8192
    """

    kinds = base.DECISIONS

    app: 'Shell'

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        request_options.add_arguments(parser)
        parser.add_argument('--count', type=int, metavar='COUNT', default=1,
                            help='how many servers; by default 1')
        parser.add_argument(
            '--alternates', type=int, metavar='COUNT', default=0,
            help='hosts to name for each server beside the chosen one; by '
                 'default 0')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        from cellsched.api import validation
        from cellsched.scheduler.explanation import decision_document
        from cellsched.scheduler import request_validation

        args = parsed_args
        validation.check_count('options', '--alternates', args.alternates,
                               _ALTERNATES_MAX, 0)
        request = request_options.made(self.app, args, args.count)
        uuids = [uuidutils.generate_uuid() for _ in range(args.count)]
        request.instance_uuid, request.num_instances = uuids[0], args.count
        request_validation.check(request, uuids, dataclasses.replace(
            request_validation.bounds(self.app.conf.scheduler),
            instances_max=args.count))
        planner, cells = self._planner(args)
        places, decision = planner.plan(
            self.app.context(), request, uuids, args.alternates)
        made = decision_document.of(
            decision, request, uuids, None, self.app.clock.now())
        data = {**made, 'fits': bool(places),
                'why_not_second': decision_text.reason(made),
                'places': [_place(uuid, place, cells)
                           for uuid, place in zip(uuids, places)]}
        self.show(args.format, data, _lines(data, cells))
        return 0 if places else FITS_NOWHERE

    def _planner(
        self, args: argparse.Namespace
    ) -> tuple['Planner', Mapping[str, str]]:
        """Return what decides, and the names of cells."""
        deployment = self.app.deployment
        if args.snapshot is not None:
            from cellsched.cli import host

            snapshot = host.read(self.app, args.snapshot)
            return deployment.planner(snapshot), snapshot.cells
        return deployment.planner(), deployment.cells()


def _place(
    uuid: str, place: Sequence['objects.Selection'], cells: Mapping[str, str]
) -> dict[str, Any]:
    first, *others = place
    return {
        'instance': uuid, 'host': first.service_host, 'node': first.nodename,
        'cell': cells.get(first.cell_uuid, first.cell_uuid),
        'availability_zone': first.availability_zone,
        'alternates': [each.service_host for each in others]}


def _lines(data: Mapping[str, Any], cells: Mapping[str, str]) -> Iterator[str]:
    yield from decision_text.lines(data, cells)
    if any(place['alternates'] for place in data['places']):
        yield ''
        yield from decision_text.table(('Server', 'Host', 'Alternates'), [
            (place['instance'], place['host'], place['alternates'])
            for place in data['places']])
