# SPDX-License-Identifier: Apache-2.0
"""``cellsched-manage audit``: what must hold, checked and mended."""

import argparse
import math
from typing import TYPE_CHECKING

from cellsched.cli import base
from cellsched.cli import progress
from cellsched import exception
from cellsched import plugins

if TYPE_CHECKING:
    from cellsched.audit import findings

#: Exit codes.
FOUND = 1
REPAIRED = 2
FAILED = 3

_SETTLE_MAX_S = 3600


class Audit(base.Lister):
    """Check what must hold of every server, in all databases.

    Looks into the API database, all cells, cell0 and the claim store, for
    what breaks an invariant: S1, no host gives more than it has; S2, each
    server has one fate; S3, its mapping says where it is; S4, claims are
    those of servers, of what these take; L1, somebody is at work on what has
    not ended; S13, who failed is told why. What is wrong is looked at
    again after --settle seconds, as it may have been on its way; what is
    wrong both times is listed.

    With --fix, what is safe to repair is repaired; the list says which. Two
    servers of one id that both ran, for example, are left to a human, and
    the list says what that one may do.

    Claims of consumers that the API database does not know are of somebody
    else, such as a Nova that only asks for hosts. They are counted, on
    standard error, and left alone.

    Ends with 0 if nothing is wrong, with 1 if something is wrong still, with
    2 if all that was wrong is repaired, and with 3 if it could not be found
    out.

    Example::

        cellsched-manage --config-file api.conf audit --fix -f json
    """

    kinds = (plugins.CLAIMS,)

    columns = ('Invariant', 'Kind', 'Of', 'Cell', 'Finding', 'Repair',
               'State')
    failure_code = FAILED

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--fix', action='store_true',
                            help='repair what is safe to repair')
        parser.add_argument(
            '--settle', type=float, default=5.0, metavar='SECONDS',
            help='look again after this time; 5 by default')
        return parser

    def take_action(
        self, parsed_args: argparse.Namespace
    ) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        settle_s = parsed_args.settle
        if not 0 <= settle_s <= _SETTLE_MAX_S or math.isnan(settle_s):
            raise exception.InvalidField(
                where='options', field='--settle',
                expected=f'a number from 0 to {_SETTLE_MAX_S}, not '
                         f'{settle_s}')
        auditor = self.app.backend.auditor()
        with progress.bar('auditing', auditor.size(),
                          self.app.stderr) as show:
            report = auditor.run(settle_s, parsed_args.fix, show)
        self._tell(report)
        if report.left:
            self.exit_code = FOUND
        elif report.repaired:
            self.exit_code = REPAIRED
        return self.columns, [
            (each.invariant, each.kind, each.of, each.cell, each.text,
             each.repair, state)
            for state, found in (('left', report.left),
                                 ('repaired', report.repaired))
            for each in found]

    def _tell(self, report: 'findings.AuditReport') -> None:
        from cellsched.claims import base as claims_base

        claims = self.app.backend.conductor_parts.claims
        if claims_base.Capability.SHARED in claims.capabilities:
            if report.foreign:
                self.app.warn(
                    f'{report.foreign} consumers hold claims and are not '
                    'known to the API database; they are left alone: '
                    + ', '.join(report.examples)
                    + (', …' if report.foreign > len(report.examples)
                       else ''))
            return
        self.app.warn('the claim store is seen by one process only, so '
                      'claims were not checked')
